"""How soon `schedmate watch` notices a stall or a slowdown, and how often it is wrong.

    python benchmarks/watch.py LOGS [--more FOLDER]   # with index.csv, see real_logs.py

Real logs of healthy jobs that have a clock are replayed line by line. Planted stalls: the log is
cut after each line about progress, and the delay is the time until the alarm, in usual intervals of
that log. False alarms: gaps that the log came back from. Beside it a fixed time since the last
progress. Planted slowdowns: step times from the middle of a log on are stretched; beside it the
mean of five over 1.2 times the median before. One log of them had shown while the detector was
made that stated times with few digits are no readings. Healthy logs: those and, of FOLDER, the ones
that labels/failures.jsonl calls finished or running, each looked at while it is being written,
after a quarter, a half, three quarters and all of it. What `watch` says then is counted by kind.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from statistics import mean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from _record import record
from fresh_failures import labelled
from real_logs import real_logs

from schedmate.jobs import Progress
from schedmate.logparse.progress.line import Sample
from schedmate.logparse.progress.series import one_stream
from schedmate.logparse.progress.silence import rhythm
from schedmate.logparse.progress.tracker import track_series
from schedmate.logparse.reading import Log, LogFile, open_log
from schedmate.logparse.reading.storage import Memory
from schedmate.logparse.watch.health import step_times, watch_log
from schedmate.logparse.watch.slowdown import slowdowns

LINES = 400
FEWEST = 20
WINDOW = 1 << 12
STRETCHES = (1.2, 1.5, 2.0)
SHARES = (0.25, 0.5, 0.75, 1.0)
Replay = list[tuple[float, float, float]]
"""For each line: the gap after it, the usual gap so far, and the gap that was expected [s]."""


def main() -> None:
    """Replay the logs and record both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", type=Path, nargs="?", help="directory with index.csv")
    parser.add_argument("--more", type=Path, help="directory of ID.log, see fresh_failures.py")
    options = parser.parse_args()
    logs = options.logs
    if logs is None:
        print("give a directory of logs with an index.csv; nothing was measured")
        return
    healthy: list[Path] = []
    replays: list[Replay] = []
    series: list[list[float]] = []
    for half in ("development", "report"):
        for log in real_logs(logs, half):
            healthy += [log.path] if log.healthy else []
            with open_log(log.path) as opened:
                for file in opened.files[:1]:
                    progress, used = track_series(file, enough=LINES)
                    if len(replay := _replay(file, progress, used)) >= FEWEST:
                        replays.append(replay)
                    times = [reading.step_s for reading in step_times(used)]
                    if len(times) >= 4 * FEWEST:
                        series.append(times)
    rows: list[dict[str, Any]] = []
    for patience in (0.5, 1.0, 2.0, 4.0):
        rows += [
            _stalls(f"watch, patience {patience:g}", replays, patience, least)
            for least in (0.0, 120.0, 300.0)
        ]
    rows += [_stalls("fixed time", replays, None, least) for least in (300.0, 600.0, 1800.0)]
    record("watch_stalls", rows, logs=len(replays))
    record(
        "watch_slowdowns",
        [_slow(series, stretch) for stretch in (1.0, *STRETCHES)],
        logs=len(series),
    )

    if options.more is not None:
        paths = (
            options.more / f"{one['id']}.log"
            for one in labelled()
            if one["outcome"] in ("finished", "running")
        )
        healthy += [path for path in paths if path.exists()]
    record("watch_healthy", [_healthy(healthy, share) for share in SHARES], logs=len(healthy))


def _healthy(paths: list[Path], share: float) -> dict[str, Any]:
    """The conditions of healthy logs that are being written and have this share of their bytes."""
    kinds: Counter[str] = Counter()
    alarmed = shown = 0
    for path in paths:
        with open_log(path) as opened:
            file = opened.files[0]
            data = file.read(0, file.align(int(share * file.size)) if share < 1 else file.size)
        cut = LogFile(path.name, Memory(data))
        health = watch_log(Log(path.name, [cut]), 0.0, 0.0)
        shown += health.progress_at is not None
        kinds.update(one.kind for one in health.conditions)
        alarmed += bool(health.conditions)
    return {
        "share of the log": share,
        "logs": len(paths),
        "with progress": shown,
        "with an alarm": alarmed,
        **{kind: kinds[kind] for kind in ("diverged", "stalled", "looping", "slowed", "late")},
    }


def _replay(file: LogFile, progress: Progress, used: list[Sample]) -> Replay:
    lines = [s for s in one_stream(used)[::-1] if s.time is not None]
    replay: Replay = []
    for at in range(FEWEST, len(lines)):
        end = lines[at].offset
        tail = file.read(max(0, end - WINDOW), min(WINDOW, end))
        cut = LogFile(file.name, Memory(tail))
        expected = rhythm(progress, lines[:at][::-1], cut)
        gap = (lines[at].time or 0.0) - (lines[at - 1].time or 0.0)
        if expected is not None and gap >= 0:
            replay.append((gap, *expected))
    return replay


def _stalls(
    name: str, replays: list[Replay], patience: float | None, least: float
) -> dict[str, Any]:
    delays, wrong, hours = [], 0, 0.0
    for replay in replays:
        limits = [
            least if patience is None else max(least, patience * limit) for _, _, limit in replay
        ]
        wrong += sum(gap > limit for (gap, _, _), limit in zip(replay, limits, strict=True))
        hours += sum(gap for gap, _, _ in replay) / 3600
        delays.append(
            median(limit / usual for (_, usual, _), limit in zip(replay, limits, strict=True))
        )
    return {
        "rule": name,
        "least [s]": least,
        "delay, usual intervals: median": round(median(delays), 1),
        "worst log": round(max(delays)),
        "false alarms": wrong,
        "job hours": round(hours, 1),
        "a 1,000 hours": round(1000 * wrong / hours, 1),
    }


def _slow(series: list[list[float]], stretch: float) -> dict[str, Any]:
    delays, found, simple, early, simple_early, readings = [], 0, 0, 0, 0, 0
    for times in series:
        half = len(times) // 2
        planted = [t * (stretch if at >= half else 1.0) for at, t in enumerate(times)]
        seen = slowdowns(planted)
        after = [one for one in seen if one.found >= half]
        early += sum(one.found < half for one in seen)
        found += bool(after)
        delays += [after[0].found - half + 1] if after else []
        rings = [
            at
            for at in range(FEWEST, len(planted))
            if mean(planted[at - 4 : at + 1]) > 1.2 * median(planted[: at - 4])
        ]
        simple += any(at >= half for at in rings)
        simple_early += any(at < half for at in rings)
        readings += half
    return {
        "stretched": stretch,
        "logs": len(series),
        "alarm after it": found,
        "delay, readings: median": median(delays) if delays else None,
        "alarms before it": early,
        "readings before it": readings,
        "mean of 5 over 1.2 medians: after": simple,
        "before (logs)": simple_early,
    }


if __name__ == "__main__":
    main()
