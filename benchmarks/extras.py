"""What does each extra add to an installation, and does what it is for work there?

    python benchmarks/extras.py [NAME]... [--without vllm] [--torch torch==2.13.0]

Builds the wheel and installs it into an empty virtual environment, the base; then, for each extra
of pyproject.toml in turn, adds the extra to a fresh copy of that, measures it and runs the trial of
`extras.yaml` in an empty folder. `MB` is all that the environment holds beyond an empty one,
bytecode included; of an extra, beyond the base. `install CPU s` and `wall s` are those of pip for
the base, and for the extra on top of it: downloads, unpacking, bytecode; the wall time depends on
the network, on pip's cache and on what else the machine does. What was measured before and is not
named now keeps its row, but for the base, which is always measured. Without NAME all extras but
`dev`, which `make test` tries. The exit code is 1 when a trial failed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import yaml
from _record import record, recorded

ROOT = Path(__file__).parent.parent
TRIALS = yaml.safe_load((ROOT / "benchmarks" / "extras.yaml").read_text())
MB = 1e6
LIMIT_S = 900
"""How long a trial may take [s]."""
LARGEST = """
import collections, importlib.metadata as metadata, json
sizes = collections.Counter()
for one in metadata.distributions():
    files = [file.locate() for file in one.files or ()]
    sizes[one.metadata["Name"]] += sum(file.stat().st_size for file in files if file.is_file())
for name in ("pip", "setuptools", "schedmate"):
    sizes.pop(name, None)
print(json.dumps({name: size / 1e6 for name, size in sizes.items()}))
"""
"""Sizes [MB] of distributions by the files that they list, bytecode included."""


def main() -> None:
    """Install, measure, try and record."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="base, or an extra; else all")
    parser.add_argument("--without", action="append", default=[], metavar="NAME")
    parser.add_argument("--torch", help="the torch to install before an extra that needs it")
    parser.add_argument("--torch-index", help="where torch comes from instead of PyPI")
    options = parser.parse_args()
    wanted = options.names or ["base", *sorted(extras.keys() - {"dev", *options.without})]
    for name in wanted:
        if name not in TRIALS:
            parser.error(f"there is no trial of {name!r} in extras.yaml")
    rows = {row["extra"]: row for row in recorded("extras")["rows"]}
    torch = ["--index-url", options.torch_index] if options.torch_index else []
    if torch or options.torch:
        torch.append(options.torch or "torch")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        wheel = build(folder)
        for name in ["base", *(one for one in wanted if one != "base")]:
            rows[name] = measured(name, wheel, folder, torch)
            order = sorted(rows.values(), key=lambda row: (row["extra"] != "base", row["extra"]))
            record("extras", order, torch=" ".join(torch) or "from PyPI")
    sys.exit(any(rows[name]["trial"] != "passed" for name in wanted))


def build(folder: Path) -> Path:
    """The wheel of this clone."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), "."]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    [wheel] = folder.glob("*.whl")
    return wheel


def measured(name: str, wheel: Path, folder: Path, torch: list[str]) -> dict[str, Any]:
    """The row of the base, which stays in `folder`, or of an extra on a copy of it."""
    home, base = folder / "env", folder / "base"
    shutil.rmtree(home, ignore_errors=True)
    if name == "base":
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    else:  # scripts name their interpreter by its path, so the copy takes the same
        shutil.copytree(base, home, symlinks=True)
    python = home / "bin" / "python"
    without, there = size(home), packages(python).keys()
    pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    what = str(wheel) if name == "base" else f"schedmate[{name}] @ {wheel.as_uri()}"
    before, started = children(), time.monotonic()
    if torch and needs(name) & {"torch", "vllm"}:
        subprocess.run([*pip, *torch], check=True, cwd=folder)
    subprocess.run([*pip, what], check=True, cwd=folder)
    spent, waited = children() - before, time.monotonic() - started
    if name == "base":
        shutil.copytree(home, base, symlinks=True)
    sizes = {one: mb for one, mb in packages(python).items() if one not in there}
    trial = TRIALS[name]
    row = {
        "extra": name,
        "MB": round((size(home) - without) / MB),
        "packages": len(sizes),
        "install CPU s": round(spent, 1),
        "wall s": round(waited, 1),
        "five largest [MB]": ", ".join(
            f"{one} {sizes[one]:.1f}" for one in sorted(sizes, key=lambda one: -sizes[one])[:5]
        ),
        "tried": trial["what"],
    }
    if trial.get("also"):
        subprocess.run([*pip, *trial["also"]], check=True, cwd=folder)
    return row | {"trial": tried(trial["run"], home, folder)}


def packages(python: Path) -> dict[str, float]:
    """Sizes of the installed distributions [MB]."""
    listed = subprocess.run(
        [python, "-I", "-c", LARGEST], check=True, capture_output=True, text=True
    )
    sizes: dict[str, float] = json.loads(listed.stdout)
    return sizes


def needs(name: str) -> set[str]:
    """Names of the packages that an extra asks for."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    return {one.partition(">")[0].partition("=")[0] for one in extras.get(name, ())}


def tried(script: str, home: Path, folder: Path) -> str:
    """`passed`, or the last line that a trial printed before it failed."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    env = {key: value for key, value in os.environ.items() if not key.startswith("SCHEDMATE_")}
    env |= {
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "HOME": str(folder / "home"),
        "CLONE": str(ROOT),
    }
    command = ["bash", "-euo", "pipefail", "-c", script]
    try:
        done = subprocess.run(
            command, cwd=work, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"failed: not done after {LIMIT_S} s"
    if done.returncode == 0:
        return "passed"
    print(done.stdout[-3000:], done.stderr[-3000:], file=sys.stderr)
    return f"failed: {[*(done.stdout + done.stderr).splitlines(), 'no output'][-1][:200]}"


def children() -> float:
    """CPU time of all processes that were started and ended [s]."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def size(folder: Path) -> int:
    """Bytes of the files below a folder, through no links."""
    return sum(
        (Path(top) / name).lstat().st_size for top, _, names in os.walk(folder) for name in names
    )


if __name__ == "__main__":
    main()
