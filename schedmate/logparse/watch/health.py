"""How a running job is, by its log at one moment: progress, and what a person should know.

Five conditions are looked for. *Stalled*: no progress for longer than the log's own rhythm allows
(`progress/silence.py`); with several ranks, the one that is behind. *Looping*: the same, while the
log goes on with attempts that do not succeed. *Slowed*: a change point in step times
(`slowdown.py`). *Diverged*: `divergence.py`. *Late*: what is left does not fit the time limit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise, takewhile
from pathlib import Path
from statistics import median
from typing import NamedTuple

from schedmate.base.files import children
from schedmate.base.inputs import format_duration
from schedmate.base.terminal import clean
from schedmate.jobs import Progress
from schedmate.jobs.health import URGENCY, Condition, Health
from schedmate.logparse.progress.line import Sample
from schedmate.logparse.progress.series import (
    clock_resolution,
    is_mean_since_start,
    one_stream,
)
from schedmate.logparse.progress.silence import SURVIVED_TIMES, rhythm
from schedmate.logparse.progress.tracker import RANKS, track_series
from schedmate.logparse.reading import Log, LogError, LogFile, parse_line
from schedmate.logparse.signs import last_run, last_sign
from schedmate.logparse.templates import mask
from schedmate.logparse.watch.divergence import any_of, find_divergence
from schedmate.logparse.watch.slowdown import SLOWER, THRESHOLD, present_slowdown

SERIES = 1000
"""Lines about progress that are read, from the end of the log."""
LEAST_S = 120.0
"""A shorter time without progress is never a stall [s]."""
TICKS = 10
"""A time between lines must be this many times the clock's resolution to be a reading."""
DIGITS = 2
"""By how many of its last digits a step time must have changed."""
REPEATED = 5
"""Equal lines since the last progress that show a loop of attempts."""
TAIL = 1 << 18
"""Bytes behind the last progress in which such lines are counted."""
SHOWN = 160
"""Characters of a line that are shown."""


class WatchLimits(NamedTuple):
    """What a site allows and what is known of a job beside its log."""

    least_s: float = LEAST_S
    """A shorter time without progress is never a stall [s]."""
    patience: float = 1.0
    """Factor on the time without progress that is expected of a job."""
    threshold: float = THRESHOLD
    """Sum of evidence at which a slowdown is certain."""
    slower: float = SLOWER
    """Factor by which steps must have become longer."""
    lines: int = SERIES
    """Lines about progress that are read, from the end of the log."""
    ends_at: float | None = None
    """When the scheduler ends the job [s since epoch]."""
    gpus: int | None = None


def written_at(path: Path, now: float) -> float:
    """When a log, or the newest of the files of a folder, was written [s since epoch]."""
    times = []
    for file in [path, *(children(path) if path.is_dir() else [])]:
        with suppress(OSError):
            times.append(file.stat().st_mtime)
    return max(times, default=now)


def watch_log(
    log: Log,
    now: float,
    written: float,
    *,
    limits: WatchLimits = WatchLimits(),  # noqa: B008 - immutable
    before: Health | None = None,
    batch: int | None = None,
) -> Health:
    """The health of the job that writes this log; `before` is what the look before found.

    `now` and `written`, when the log was written last, are in [s since epoch]. Raises `LogError`
    for a directory without logs.
    """
    if not log.files:
        raise LogError(f"{log.name} holds no log; give a directory with the text files of one job.")
    read, starts = [], {}
    for file in log.files[:RANKS]:
        start = last_run(file).offset  # what stands before it was another process
        progress, used = track_series(file, batch=batch, since=start, enough=limits.lines)
        read.append((progress, used, file))
        starts[file.name] = start
        if len(log.files) > 1:
            file.close()
    best = max(read, key=lambda each: (bool(each[1]), not each[0].abstained))
    progress, used, file = best
    start = starts[file.name]
    health = Health(read_at=now, written_at=min(written, now), progress=progress)
    _place(health, used, file, before, limits)
    sign = last_sign("checkpoint", file, start, file.size)
    health.checkpoint_line = None if sign is None else file.line_number(sign.offset)
    if progress.ended is None:
        streams = _streams(read)
        for condition in (
            _diverged(health, file, used, start, limits),
            _stalled(health, file, used, streams, limits),
            _late(health, limits),
            _slowed(health, file, used, limits),
        ):
            if condition is not None:
                health.conditions.append(condition)
        health.conditions.sort(key=lambda condition: URGENCY[condition.kind])
        if any(each.kind in ("stalled", "looping") for each in health.conditions):
            progress.stalled, progress.eta_s = True, None
    progress.read_at, progress.silent_since = now, health.progress_at
    return health


def _place(
    health: Health, used: list[Sample], file: LogFile, before: Health | None, limits: WatchLimits
) -> None:
    """Set when the job advanced last, and by when the next progress is to be expected."""
    newest = _newest_advance(used)
    expected = rhythm(health.progress, used, file) if used else None
    if newest is None or expected is None:
        return
    health.position = newest.offset
    health.progress_at = health.written_at - _written_later(file, newest)
    survived = 0.0
    if before is not None and before.progress_at is not None:
        if before.position == newest.offset:
            health.progress_at = min(health.progress_at, before.progress_at)
        else:
            # what was seen before it went on is a pause that is to be expected again
            waited = before.read_at - before.progress_at
            survived = max(before.progress.longest_silence_s, waited)
    if before is not None:
        survived = max(survived, before.progress.longest_silence_s)
    health.progress.longest_silence_s = survived
    health.usual_s = expected.usual_s
    health.expected_s = max(
        expected.limit_s * limits.patience, limits.least_s, SURVIVED_TIMES * survived
    )


def _newest_advance(used: Sequence[Sample]) -> Sample | None:
    """The line with which the counter last advanced; repeated counts are no progress."""
    newest = next((s for s in used if s.iteration is not None or s.epoch is not None), None)
    if newest is None:
        return used[0] if used else None
    same = takewhile(
        lambda s: (s.iteration, s.epoch) == (newest.iteration, newest.epoch),
        (s for s in used if s.stream == newest.stream),
    )
    return list(same)[-1]


def _written_later(file: LogFile, sample: Sample) -> float:
    """How much later than a line of progress the last line of the log was written [s].

    By the clock of the log; 0 where that does not say, so that the time since is never too long.
    """
    if sample.time is None:
        return 0.0
    for looked, (offset, data) in enumerate(file.pieces_reversed()):
        if offset <= sample.offset or looked > 200:
            break
        time = parse_line(data, 0, file.layout).time
        if time is not None:
            return max(0.0, time - sample.time)
    return 0.0


# Stalled, or busy with attempts that do not succeed.


def _stalled(
    health: Health,
    file: LogFile,
    used: list[Sample],
    streams: dict[str, tuple[Sample, str]],
    limits: WatchLimits,
) -> Condition | None:
    if health.progress_at is None or health.expected_s is None or health.usual_s is None:
        return None
    waited = health.read_at - health.progress_at
    if waited <= health.expected_s:
        return None
    summary = f"last progress {format_duration(waited)} ago; usual interval {_usual(used, health)}"
    condition = Condition(
        kind="stalled",
        summary=summary,
        since=health.progress_at,
        iteration=health.progress.iteration,
        line=next(iter(health.progress.lines), None),
        usual_s=health.usual_s,
        expected_s=health.expected_s,
        gpu_hours=_gpu_hours(waited, limits),
        last_line=_last_line(file),
    )
    repeated = _repeated(file, health.position)
    if repeated is not None:
        times, text = repeated
        condition.kind, condition.last_line = "looping", text
        condition.summary += f"; since then {times} times: {text}"
    behind = _behind(streams)
    if behind is not None:
        name, steps, text = behind
        condition.stream, condition.last_line = name, text
        condition.summary += f"; {name} is {steps} steps behind the others, its last line: {text}"
    elif condition.kind == "stalled" and condition.last_line:
        condition.summary += f"; last line: {condition.last_line}"
    return condition


def _usual(used: list[Sample], health: Health) -> str:
    """The usual interval in words: from the 10th to the 90th percentile where it was measured."""
    times = [s.time for s in one_stream(used)[::-1] if s.time is not None]
    gaps = sorted(b - a for a, b in pairwise(times) if b > a)
    if len(gaps) >= TICKS:
        low, high = gaps[len(gaps) // 10], gaps[9 * len(gaps) // 10]
        if _short(low) != _short(high):
            return f"{_short(low)} to {_short(high)}"
    return _short(health.usual_s or 0.0)


def _short(seconds: float) -> str:
    """A time between lines or of a step, with three digits where it is short."""
    return f"{seconds:.3g} s" if seconds < 60 else format_duration(seconds)


def _last_line(file: LogFile) -> str | None:
    for _, data in file.pieces_reversed():
        text = parse_line(data, 0, file.layout).text.strip()
        if text:
            return clean(text, SHOWN)
    return None


def _repeated(file: LogFile, position: int) -> tuple[int, str] | None:
    """The line about an attempt that was written most often since the last progress."""
    attempt = any_of("attempt")
    counts: Counter[str] = Counter()
    latest: dict[str, str] = {}
    for offset, data in file.pieces_reversed():
        if offset <= position or file.size - offset > TAIL:
            break
        text = parse_line(data, 0, file.layout).text
        if attempt.search(text.encode("utf-8", "replace")):
            kind = mask(text)
            counts[kind] += 1
            latest.setdefault(kind, clean(text.strip(), SHOWN))
    # what an exception says tells more than that there was a traceback
    kinds = sorted(counts.items(), key=lambda each: (each[0].startswith("Traceback"), -each[1]))
    return next(((n, latest[kind]) for kind, n in kinds if n >= REPEATED), None)


def _streams(
    read: Sequence[tuple[Progress, list[Sample], LogFile]],
) -> dict[str, tuple[Sample, str]]:
    """The newest progress of each rank, and what it last wrote."""
    found: dict[str, tuple[Sample, str]] = {}
    if len(read) > 1:
        for _, used, file in read:
            if used:
                found[file.name] = used[0], _last_line(file) or ""
        return found
    _, used, file = read[0]
    for sample in used:
        if sample.stream not in found:
            found[sample.stream] = sample, ""
    if len(found) < 2:
        return {}
    left = set(found)
    for looked, (_, data) in enumerate(file.pieces_reversed()):
        if not left or looked > SERIES:
            break
        line = parse_line(data, 0, file.layout)
        if line.stream in left and line.text.strip():
            left.discard(line.stream)
            found[line.stream] = found[line.stream][0], clean(line.text.strip(), SHOWN)
    return found


def _behind(streams: dict[str, tuple[Sample, str]]) -> tuple[str, int, str] | None:
    """The one rank that has counted fewer steps than all others, by how many, its last line."""
    counts = {
        name: (sample.epoch or 0.0 if sample.in_epoch else 0.0, sample.iteration)
        for name, (sample, _) in streams.items()
        if sample.iteration is not None
    }
    if len(counts) < 2:
        return None
    ranked = sorted(counts, key=lambda name: counts[name])
    last, others = ranked[0], ranked[1:]
    steps = (counts[others[0]][1] or 0) - (counts[last][1] or 0)
    same_epoch = counts[others[0]][0] == counts[last][0]
    if not same_epoch or steps <= 0:
        return None
    return f"rank {last}" if last.isdigit() else last, steps, streams[last][1]


# Slowed: step times over the whole log.


class Reading(NamedTuple):
    """The time of a step [s] by a line of a log, and what the log says of when that was."""

    step_s: float
    sample: Sample


def step_times(used: Sequence[Sample]) -> list[Reading]:
    """Step times of the lines that were used, newest first, in the order of the log.

    Stated ones are taken unless they are means since the start or smoothed by a bar; else those by
    the timestamps, or by elapsed time, over as many lines as the clock's resolution needs.
    """
    lines = one_stream(list(used))[::-1]
    stated = [Reading(s.step_time_s, s) for s in lines if s.step_time_s and not s.since_last]
    smoothed = sum(s.reader == "tqdm" for s in lines) > len(lines) / 2
    counted = [s for s in lines if s.iteration is not None]
    by_clock = _by_clock(counted, "time") or _by_clock(counted, "elapsed_s")
    times = [reading.step_s for reading in stated]
    if not times or (by_clock and TICKS * clock_resolution(times) > median(times)):
        return by_clock
    if len(stated) > len(lines) / 2 and not smoothed and not is_mean_since_start(counted):
        return stated
    return by_clock or stated


def _by_clock(counted: Sequence[Sample], clock: str) -> list[Reading]:
    ticks = [(value, s) for s in counted if (value := getattr(s, clock)) is not None]
    if len(ticks) < TICKS:
        return []
    least = TICKS * clock_resolution([value for value, _ in ticks])
    readings: list[Reading] = []
    start_value, start = ticks[0]
    for value, sample in ticks[1:]:
        passed = value - start_value
        steps = (sample.iteration or 0) - (start.iteration or 0)
        anew = steps < 0 or passed < 0 or (sample.in_epoch and sample.epoch != start.epoch)
        if anew or (steps == 0 and passed >= least):
            start_value, start = value, sample
        elif steps > 0 and passed >= least:
            readings.append(Reading(passed / steps, sample))
            start_value, start = value, sample
    return readings


def _slowed(
    health: Health, file: LogFile, used: list[Sample], limits: WatchLimits
) -> Condition | None:
    readings = step_times(used)
    times = [reading.step_s for reading in readings]
    slowdown = present_slowdown(times, threshold=limits.threshold, slower=limits.slower)
    if slowdown is None:
        return None
    if slowdown.after_s - slowdown.before_s < DIGITS * clock_resolution(times):
        return None  # as times with few digits differ by themselves
    first = readings[slowdown.first].sample
    since = _when(health, file, first, used)
    ago = "" if since is None else f" since {format_duration(health.read_at - since)} ago"
    at = "" if first.iteration is None else f" (iteration {first.iteration:,})"
    return Condition(
        kind="slowed",
        summary=f"{slowdown.ratio:.2g} times slower{ago}{at}: {_short(slowdown.after_s)} a step "
        f"instead of {_short(slowdown.before_s)}",
        since=since,
        iteration=first.iteration,
        line=file.line_number(first.offset),
        usual_s=slowdown.before_s,
        ratio=slowdown.ratio,
    )


def _when(health: Health, file: LogFile, sample: Sample, used: Sequence[Sample]) -> float | None:
    """When a line was written [s since epoch], counted back from the last progress."""
    newest = used[0]
    if health.progress_at is None:
        return None
    for clock in ("time", "elapsed_s"):
        then: float | None = getattr(sample, clock)
        last: float | None = getattr(newest, clock)
        if then is not None and last is not None and last >= then:
            return health.progress_at - (last - then)
    step_s, count, at = health.progress.step_time_s, newest.iteration, sample.iteration
    if step_s is None or count is None or at is None or count < at:
        return None
    return health.progress_at - step_s * (count - at)


# Diverged, and too late.


def _diverged(
    health: Health, file: LogFile, used: list[Sample], start: int, limits: WatchLimits
) -> Condition | None:
    found = find_divergence(file, used, start)
    if found is None:
        return None
    near = min(used, key=lambda s: abs(s.offset - found.offset), default=None)
    since = None if near is None else _when(health, file, near, used)
    lost = None if since is None else _gpu_hours(health.read_at - since, limits)
    at = "" if found.iteration is None else f" since iteration {found.iteration:,}"
    ago = "" if since is None else f", {format_duration(health.read_at - since)} ago"
    hours = "" if lost is None else f"; {lost:.1f} GPU hours since"
    return Condition(
        kind="diverged",
        summary=f"{found.summary}{at}{ago}{hours}",
        since=since,
        iteration=found.iteration,
        line=file.line_number(found.offset),
        gpu_hours=lost,
    )


def _gpu_hours(seconds: float, limits: WatchLimits) -> float | None:
    return None if limits.gpus is None else max(0.0, seconds) * limits.gpus / 3600.0


def _late(health: Health, limits: WatchLimits) -> Condition | None:
    progress = health.progress
    if limits.ends_at is None or progress.eta_s is None:
        return None
    low = high = progress.eta_s
    if progress.step_time_s and progress.step_time_p10_s and progress.step_time_p90_s:
        low *= progress.step_time_p10_s / progress.step_time_s
        high *= progress.step_time_p90_s / progress.step_time_s
    left = max(0.0, limits.ends_at - health.read_at)
    short = progress.eta_s - left
    if short <= 0 or not math.isfinite(short):
        return None
    saved = (
        "; its log names no checkpoint"
        if health.checkpoint_line is None
        else f"; last checkpoint in line {health.checkpoint_line:,}"
    )
    sure = "" if low > left else ", if it goes on like this"
    return Condition(
        kind="late",
        summary=f"will be killed {format_duration(short)} before its end{sure}: "
        f"{format_duration(low)} to {format_duration(high)} to go, limit in "
        f"{format_duration(left)}{saved}",
        short_by_s=short,
        line=health.checkpoint_line,
    )
