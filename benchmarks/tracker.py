"""How often the Metric Tracker reads the step time of real logs, and how well it abstains.

    python benchmarks/tracker.py LOGS     # a directory with index.csv, see real_logs.py

Success: the step time is within 5 % of the expected one, or both are null. RMSRE: root mean square
relative error over the logs where both have one. Every log that differs is listed.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from _record import record
from real_logs import RealLog, real_logs

from schedmate.jobs import Progress
from schedmate.logparse.progress.tracker import track_log
from schedmate.logparse.reading import open_log

CLOSE = 0.05


def main() -> None:
    """Track both halves and record them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", type=Path, nargs="?", help="directory with index.csv")
    logs = parser.parse_args().logs
    if logs is None:
        print("give a directory of logs with an index.csv; nothing was measured")
        return
    rows, cases = [], []
    for half in ("development", "report"):
        results = [(log, *_track(log)) for log in real_logs(logs, half)]
        rows.append(_row(half, results))
        if half == "development":  # the other half is counted, not looked at
            cases += [
                _case(half, log, found) for log, found, _ in results if not _right(log, found)
            ]
    record("tracker", rows, success=f"within {CLOSE:.0%}, or both null")
    record(
        "tracker_cases",
        cases,
        working=True,
        what="logs whose step time differs from the expected one",
    )


def _track(log: RealLog) -> tuple[Progress, float]:
    began = time.perf_counter()
    with open_log(log.path) as opened:
        progress, _ = track_log(opened)
    return progress, time.perf_counter() - began


def _right(log: RealLog, found: Progress) -> bool:
    error = _error(log, found)
    return error <= CLOSE if error is not None else (log.step_time_s is None) == found.abstained


def _error(log: RealLog, found: Progress) -> float | None:
    if log.step_time_s is None or found.step_time_s is None:
        return None
    return abs(found.step_time_s / log.step_time_s - 1)


def _row(half: str, results: list[tuple[RealLog, Progress, float]]) -> dict[str, Any]:
    pairs = [(log, found) for log, found, _ in results]
    errors = [e for log, found in pairs if (e := _error(log, found)) is not None]
    stated = [found for log, found in pairs if log.step_time_s is not None]
    silent = [found for log, found in pairs if log.step_time_s is None]
    losses = [(log.loss, found.loss) for log, found in pairs if log.loss is not None]
    same = sum(b is not None and math.isclose(a, b, rel_tol=1e-3) for a, b in losses if a)
    times = sorted(seconds for _, _, seconds in results)
    return {
        "half": half,
        "logs": len(pairs),
        "success": f"{sum(_right(*pair) for pair in pairs) / len(pairs):.1%}",
        "stated: right": sum(_right(*pair) for pair in pairs if pair[0].step_time_s is not None),
        "stated: wrong": sum(e > CLOSE for e in errors),
        "stated: abstained": sum(found.abstained for found in stated),
        "silent: abstained": sum(found.abstained for found in silent),
        "silent: answered": sum(not found.abstained for found in silent),
        "RMSRE": round(math.sqrt(sum(e * e for e in errors) / max(1, len(errors))), 4),
        "loss right": f"{same} of {len(losses)}",
        "median s": round(times[len(times) // 2], 3),
        "longest s": round(times[-1], 3),
    }


def _case(half: str, log: RealLog, found: Progress) -> dict[str, Any]:
    return {
        "half": half,
        "log": log.name,
        "expected s": log.step_time_s,
        "found s": found.step_time_s and round(found.step_time_s, 5),
        "from": found.source,
        "reader": found.reader,
        "what is known": log.note.replace("|", "/"),
    }


if __name__ == "__main__":
    main()
