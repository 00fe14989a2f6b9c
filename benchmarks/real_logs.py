"""Real training logs with what is known of each, in two halves, for the benchmarks of logs.

A directory of logs has an `index.csv` (file, framework, kind, expected_step_time_s,
expected_last_loss, failure_label, first_error_line, note). Which half a log belongs to was settled
before any was looked at, by a hash of its name: patterns, words and labelled lines were made from
the development half and from public issue threads only; figures are reported for the other half.
"""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RealLog:
    """One log. What is not known, or not in the log, is None; times in seconds."""

    name: str
    path: Path
    framework: str
    step_time_s: float | None
    loss: float | None
    note: str
    healthy: bool
    """Whether no failure is labelled in it."""


def development(name: str) -> bool:
    """Whether a log, by its name in the index, belongs to the development half."""
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 0


def real_logs(root: Path, half: str) -> list[RealLog]:
    """The logs of one half, `development` or `report`."""
    with (root / "index.csv").open(newline="", encoding="utf-8") as stream:
        return [
            RealLog(
                row["file"],
                root / row["file"],
                row["framework"],
                _number(row["expected_step_time_s"]),
                _number(row["expected_last_loss"]),
                row["note"],
                row["failure_label"] in ("", "none"),
            )
            for row in csv.DictReader(stream)
            if development(row["file"]) == (half == "development")
        ]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
