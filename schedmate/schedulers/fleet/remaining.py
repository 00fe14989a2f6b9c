"""Estimates of how long tasks will still run, from a table of jobs or tasks."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from schedmate.errors import InputError, reason_of, unreadable
from schedmate.schedulers.fleet.snapshot import FleetSnapshot

_MOST = 1e12


def read_remaining(path: Path) -> dict[str, float]:
    """Seconds by name, from a CSV with the columns `remaining_s` and `job` or `task`.

    Rows without a number are skipped: unknown. Raises `InputError`.
    """
    found: dict[str, float] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            columns = reader.fieldnames or ()
            key = next((one for one in ("task", "job") if one in columns), None)
            if key is None or "remaining_s" not in columns:
                raise InputError(
                    f"{path} needs the columns remaining_s and job (or task); add what is missing "
                    f"to {', '.join(columns) or 'its header, which is empty'}."
                )
            for row in reader:
                name, text = row[key], (row["remaining_s"] or "").strip()
                if not text:
                    continue
                if name is None or "\0" in name:
                    raise InputError(
                        f"{path} line {reader.line_num} has no {key}, or one with a NUL byte; "
                        "correct that line."
                    )
                if name in found:
                    raise InputError(
                        f"{path} line {reader.line_num}: {key} {name!r} comes twice; leave one out."
                    )
                found[name] = _seconds(text, f"{path} line {reader.line_num}")
    except OSError as error:
        raise unreadable(path, error) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{path} is not CSV in UTF-8: {reason_of(error)}; export it again."
        ) from None
    return found


def with_remaining(
    snapshot: FleetSnapshot, by_name: dict[str, float], source: str
) -> FleetSnapshot:
    """The snapshot with these estimates instead of its own, by task or else by job.

    Raises `InputError` if no name occurs in the snapshot.
    """
    tasks = snapshot.tasks
    left = tasks.remaining_s.copy()
    of_job = np.array([by_name.get(name, math.nan) for name in snapshot.jobs])
    known = 0
    for t, name in enumerate(tasks.name):
        seconds = by_name.get(name, of_job[tasks.job[t]])
        if not math.isnan(seconds):
            left[t] = seconds
            known += 1
    if by_name and not known:
        raise InputError(
            f"{source} names no task or job of the snapshot: it begins with "
            f"{next(iter(by_name))!r}, the snapshot with {(snapshot.jobs or ['none'])[0]!r}; "
            "export both from the same cluster."
        )
    return replace(snapshot, tasks=replace(tasks, remaining_s=left))


def _seconds(text: str, where: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= _MOST:
        raise InputError(f"{where}: remaining_s is {text!r}; write a time in seconds, as 3600.")
    return seconds
