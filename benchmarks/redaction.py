"""What redaction takes out of real training code, and how fast.

    python benchmarks/redaction.py [--repos DIR] [--show]

Public repositories hold next to no secrets, so almost every line that changes is one too many; what
has to be found is in tests/llm/test_redact.py. DIR holds plain checkouts; without it the fixture
repositories are read. `--show` prints each changed line.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _record import record

from schedmate.agent.react.tokens import READABLE
from schedmate.llm.redact import PLACEHOLDER, Redactor

FIXTURES = Path(__file__).parent.parent / "tests" / "fixtures" / "repos"
MOST_BYTES = 2_000_000


def texts(repos: Path) -> Iterator[tuple[Path, str]]:
    """Code, configuration, scripts and documents below a directory, links left out."""
    for path in sorted(repos.rglob("*")):
        if path.suffix.lower() not in READABLE | {".md", ".txt"} or path.is_symlink():
            continue
        if path.is_file() and path.stat().st_size <= MOST_BYTES:
            yield path, path.read_text("utf-8", errors="replace")


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repos", type=Path)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    changed: Counter[str] = Counter()
    files = lines = characters = 0
    seconds = 0.0
    for path, text in texts(options.repos or FIXTURES):
        redactor = Redactor()
        began = time.perf_counter()
        redacted = redactor.redact(text)
        seconds += time.perf_counter() - began
        files, lines, characters = files + 1, lines + text.count("\n"), characters + len(text)
        for before, after in zip(text.split("\n"), redacted.split("\n"), strict=True):
            found = PLACEHOLDER.search(after)
            if before != after and found:
                changed[found[0].split(":")[1]] += 1
                if options.show:
                    print(f"{path.name}: {before.strip()[:160]}")
    rows: list[dict[str, Any]] = [
        {"rule": name, "lines changed": count, "in a million": round(count / lines * 1e6, 2)}
        for name, count in changed.most_common()
    ]
    total = changed.total()
    rows.append(
        {"rule": "all", "lines changed": total, "in a million": round(total / lines * 1e6, 2)}
    )
    record(
        "redaction_real" if options.repos else "redaction",
        rows,
        files=files,
        lines=lines,
        megabytes_per_s=round(characters / seconds / 1e6, 1),
        repositories=sum(1 for one in (options.repos or FIXTURES).iterdir() if one.is_dir()),
    )


if __name__ == "__main__":
    main()
