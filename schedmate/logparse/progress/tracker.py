"""The Metric Tracker: a log from its end to a `Progress` (SchedMate paper, section 3.2).

Lines are read in reverse chronological order until one kind of line has given enough readings. The
kind that says most about training is believed; what it leaves open comes from the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from typing import Any

from schedmate.jobs import Progress
from schedmate.logparse.progress.facts import Facts, read_facts
from schedmate.logparse.progress.pace import Spread, Tick, interval, pace, typical
from schedmate.logparse.progress.registry import read_line
from schedmate.logparse.progress.sample import Sample
from schedmate.logparse.reading import Log, LogError, LogFile, parse_line

ENOUGH = 60
"""Readings of one kind of line after which the tracker stops (N of the paper)."""
MOST = 600
"""Lines that say something about training after which it stops in any case."""
REACH = 1 << 26
"""Bytes from the end of the log that are looked at (64 MiB)."""
NUMBERED = 1 << 30
"""In a larger file lines are not counted, as that would take longer than all else [bytes]."""
LONG = 4000
"""Of a longer line both ends are looked at [bytes]."""
RANKS = 16
"""Files of a directory that are asked before the tracker abstains."""
LISTED = 10
"""Lines listed in the answer."""
AGREE = 0.3
"""Two ways to tell a step time agree within this relative difference."""
FASTEST = 0.02
"""A bar without a name and without metrics that takes less for each count [s] is no training."""
UNITLESS = 60.0
"""A time without unit above this is not believed to be seconds unless something confirms it."""

Reader = Callable[[str], Sample | None]


def track(
    file: LogFile,
    *,
    batch: int | None = None,
    since: int = 0,
    reader: Reader = read_line,
    every_line: bool = False,
) -> Progress:
    """How the job is going that writes this log.

    `batch` is the global batch size where the job's metadata says it: with it, samples per second
    become a step time. `since` [bytes] leaves out what stands before. `every_line` gives the
    reader lines too that do not look like progress. Raises `LogError` when the file has become
    unreadable.
    """
    samples = collect(file, since=since, reader=reader, every_line=every_line)
    progress = conclude(file, samples, batch)
    progress.log_bytes = file.size
    return progress


def track_log(log: Log, *, batch: int | None = None, since: int = 0) -> tuple[Progress, LogFile]:
    """How the job is going by the first of its files that says so, and that file.

    `since` [bytes] counts in that file. Raises `LogError` for a directory without log files.
    """
    if not log.files:
        raise LogError(f"{log.name} holds no log; give a directory with the text files of one job.")
    best: tuple[Progress, LogFile] | None = None
    for file in log.files[:RANKS]:
        progress = track(file, batch=batch, since=since)
        file.close()
        if best is None or (best[0].iteration is None and progress.iteration is not None):
            best = progress, file
        if not progress.abstained:
            return progress, file
    assert best is not None
    return best


def collect(
    file: LogFile, *, since: int = 0, reader: Reader = read_line, every_line: bool = False
) -> list[Sample]:
    """What the lines say, the newest first, until enough is known."""
    samples: list[Sample] = []
    counts: dict[str, int] = {}
    lines = file.pieces_reversed() if every_line else file.matching_reversed(_candidate())
    for offset, data in lines:
        if offset < since or file.size - offset > REACH or len(samples) >= MOST:
            break
        text = data if len(data) <= LONG else data[: LONG // 2] + b" " + data[-LONG // 2 :]
        line = parse_line(text, 0, file.layout)
        sample = reader(line.text)
        if sample is None:
            continue
        sample.offset, sample.time, sample.stream = offset, line.time, line.stream
        samples.append(sample)
        if sample.timed or line.time is not None or sample.elapsed_s is not None:
            counts[sample.group] = counts.get(sample.group, 0) + (sample.timed or sample.training)
            if counts[sample.group] >= ENOUGH:
                break
    return samples


@cache
def _candidate() -> Any:
    """A line without any of this says nothing about progress; most of a log is passed over."""
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # any bytes, not only UTF-8
    return re2.compile(
        rb"(?i)\d\s?(?:it|iter|iters|step|steps|batch|s|sec)/|\d/\d+ ?[\])[(]|\d of \d"
        rb"|\b(?:loss|step|steps|iter|iters|iteration|iterations|epoch|batch|update|updates|trl"
        rb"|runtime|per_second|fps|timesteps|objective|s)\b\W{1,40}[-+]?[.\d]"
        rb"|(?:loss|step|iteration|iter|epoch|sec)[\"'_a-z)]{0,8}\s?[:=(\[|]\W{0,8}[-+]?[.\d]"
        rb"|train_(?:runtime|steps_per_second)\W|\d avg(?: loss)?,"
        rb"|[\x80-\xff][^\d\n]{0,8}\d",
        options,
    )


def conclude(file: LogFile, samples: list[Sample], batch: int | None = None) -> Progress:
    """A `Progress` from samples, the newest first."""
    if not samples:
        return Progress(reason="no line of the log shows training progress")
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.group, []).append(sample)
    ranked = sorted(groups.values(), key=_worth, reverse=True)
    facts = read_facts(file)
    counted = any(s.iteration is not None or s.epoch is not None for s in samples)
    progress = Progress(
        reason="the log counts iterations but does not say how long one takes"
        if counted
        else "no line of the log shows training progress"
    )
    for group in ranked:
        found = _step_time(group, facts, batch)
        if found is not None:
            spread, source, notes = found
            progress = Progress(
                step_time_s=spread.median,
                step_time_p10_s=spread.p10,
                step_time_p90_s=spread.p90,
                readings=spread.n,
                source=source,
                notes=notes,
            )
            ranked = [group, *(other for other in ranked if other is not group)]
            break
    else:
        _summary(progress, samples, facts)
    _describe(progress, ranked, facts)
    _count(progress, ranked, facts)
    used = ranked[0]
    counts = [s.iteration for s in _one_stream(used) if s.iteration is not None]
    progress.steps_seen = max(counts) - min(counts) + 1 if counts else 0
    progress.reader = used[0].reader
    progress.updated = next((s.time for s in used if s.time is not None), None)
    if file.size <= NUMBERED:
        numbers = dict.fromkeys(file.line_number(sample.offset) for sample in used[:LISTED])
        progress.lines = list(numbers)
    return progress


def _worth(group: list[Sample]) -> tuple[int, int]:
    some = group[:ENOUGH]
    says = (
        4 * any(s.training for s in some)
        + 3 * any(s.timed for s in some)
        + 2 * any(s.named for s in some)
        + any(s.iteration is not None for s in some)
        + any(s.reader != "general" for s in some)
    )
    return says, group[0].offset


Found = tuple[Spread, Any, list[str]]


def _step_time(group: list[Sample], facts: Facts, batch: int | None) -> Found | None:
    ordered = group[::-1]
    counted = [s for s in ordered if s.iteration is not None]
    clock = pace(_ticks(_one_stream(counted), "time"))
    stated = _stated(ordered, counted, clock)
    if stated is not None:
        nameless = not any(s.named or s.training for s in group)
        # such a bar counts files or samples far more often than training steps
        return None if nameless and stated[0].median < FASTEST else stated
    if found := pace(_ticks(_one_stream(counted), "elapsed_s")):
        return found, "elapsed", []
    if by_samples := _by_samples(ordered, counted, facts, batch):
        return by_samples
    if clock is not None and any(s.named or s.training for s in counted):
        return clock, "timestamps", []
    return None


def _ticks(samples: list[Sample], clock: str) -> list[Tick]:
    return [
        Tick(value, s.iteration, None if s.epoch is None else int(s.epoch))
        for s in samples
        if (value := getattr(s, clock)) is not None and s.iteration is not None
    ]


def _one_stream(samples: list[Sample]) -> list[Sample]:
    """The samples of the rank or process that wrote most of them."""
    streams: dict[str, list[Sample]] = {}
    for sample in samples:
        streams.setdefault(sample.stream, []).append(sample)
    return max(streams.values(), key=len, default=[])


def _stated(ordered: list[Sample], counted: list[Sample], clock: Spread | None) -> Found | None:
    timed = [s for s in ordered if s.step_time_s is not None]
    found = typical([s.step_time_s for s in timed if s.step_time_s is not None])
    if found is None:
        return None
    ticks = [Tick(s.step_time_s, s.iteration) for s in _one_stream(counted) if s.step_time_s]  # type: ignore[arg-type]
    if timed[-1].bare:
        if _rises(ticks):
            total = pace(ticks)
            return (
                None if total is None else (total, "elapsed", ["`time` rises: it is the elapsed"])
            )
        if timed[-1].iteration is None:
            return None
    if timed[-1].unit and (not timed[-1].bare or timed[-1].reader != "general"):
        return found, "stated", []
    every = interval([Tick(0.0, s.iteration) for s in _one_stream(counted)])  # type: ignore[arg-type]
    return _decide(found, clock, every, timed[-1])


def _rises(ticks: list[Tick]) -> bool:
    """Whether a time grows with the iterations as an elapsed time does."""
    pairs = [(a, b) for a, b in pairwise(ticks) if b.steps > a.steps]
    return len(pairs) >= 3 and all(b.clock > a.clock for a, b in pairs)


def _decide(found: Spread, clock: Spread | None, every: int, latest: Sample) -> Found | None:
    """Whether a bare time is of one step or of all since the line before, in which unit."""
    notes: list[str] = []
    factors = {1.0: "", 1 / every: f"the time stated is that of {every} iterations"}
    if not latest.unit:
        factors[0.001] = "times without unit are milliseconds, as the timestamps show"
        factors[0.001 / every] = f"the time stated is that of {every} iterations in milliseconds"
    if clock is not None:
        fits = {abs(math.log(found.median * factor / clock.median)): factor for factor in factors}
        best = min(fits)
        if best > math.log(1 + AGREE):
            # evaluation and checkpoints between the lines may explain a longer clock time
            if found.median > clock.median:
                return clock, "timestamps", ["the time stated does not fit the timestamps"]
            factor = 1.0
        else:
            factor = fits[best]
    elif not latest.unit and found.median > UNITLESS:
        return None
    elif latest.bare and latest.reader == "general" and every > 1 and not _eta_fits(latest, found):
        return None  # of one iteration, or of all since the last line: nothing tells
    else:
        factor = 1.0
        if not latest.unit:
            notes.append("a time without unit is taken for seconds")
    if factors[factor]:
        notes.append(factors[factor])
    return found.times(factor), "stated", notes


def _eta_fits(latest: Sample, found: Spread) -> bool:
    """Whether the log's own estimate of what is left rests on this step time."""
    if not latest.eta_s or latest.total is None or latest.iteration is None or latest.in_epoch:
        return False
    left = (latest.total - latest.iteration) * found.median
    return left > 0 and abs(math.log(left / latest.eta_s)) < math.log(1 + AGREE)


def _by_samples(
    ordered: list[Sample], counted: list[Sample], facts: Facts, batch: int | None
) -> Found | None:
    speeds = typical([s.samples_per_s for s in ordered if s.samples_per_s])
    if speeds is None:
        return None
    note = "batch size from the job's metadata"
    size = batch
    if (said := next((s.batch for s in reversed(ordered) if s.batch), None)) is not None:
        size, note = said, f"batch size {said} from the same line"
    elif seen := pace([Tick(float(s.samples), s.iteration) for s in counted if s.samples]):  # type: ignore[arg-type]
        size, note = round(seen.median), f"batch size {round(seen.median)} from the samples seen"
    elif facts.batch is not None:
        size, note = facts.batch, f"batch size {facts.batch} from the beginning of the log"
    if not size:
        return None
    times = Spread(size / speeds.median, size / speeds.p90, size / speeds.p10, speeds.n)
    return times, "samples", [note]


def _summary(progress: Progress, samples: list[Sample], facts: Facts) -> None:
    """A run that has ended and says only how long it took."""
    run = next((s.run_s for s in samples if s.run_s), None)
    if run is not None and facts.total_iterations:
        progress.step_time_s = run / facts.total_iterations
        progress.iteration = progress.total_iterations = facts.total_iterations
        progress.source, progress.readings, progress.reason = "summary", 1, None


def _describe(progress: Progress, ranked: list[list[Sample]], facts: Facts) -> None:
    latest = sorted((s for group in ranked for s in group), key=lambda s: -s.offset)
    whole = [sample for sample in latest if not sample.part]
    for name in ("loss", "lr", "epoch", "total_epochs"):
        value = _first(whole, name) if name == "loss" else None
        value = _first(latest, name) if value is None else value
        setattr(progress, name, None if value is None or not math.isfinite(value) else value)
    if progress.total_epochs is None and (facts.total_epochs or 0) >= (progress.epoch or 0):
        progress.total_epochs = facts.total_epochs
    epochs = typical([s.epoch_time_s for s in latest if s.epoch_time_s])
    progress.epoch_time_s = epochs.median if epochs else _epoch_pace(latest)
    for name, unit in (("samples_per_s", "samples/s"), ("tokens_per_s", "tokens/s")):
        speeds = typical([v for s in latest[:ENOUGH] if (v := getattr(s, name))])
        if speeds is not None:
            progress.throughput, progress.throughput_unit = speeds.median, unit  # type: ignore[assignment]
            return
    batch = _first(latest, "batch") or facts.batch
    if progress.step_time_s is not None:
        speed = (batch or 1) / progress.step_time_s
        progress.throughput = speed
        progress.throughput_unit = "samples/s" if batch else "iterations/s"


def _first(samples: Iterable[Sample], name: str) -> Any:
    return next((v for s in samples if (v := getattr(s, name)) is not None), None)


def _epoch_pace(latest: list[Sample]) -> float | None:
    """The time of an epoch where each line is one: from when the lines were written."""
    ticks = [
        Tick(s.time, int(s.epoch))
        for s in reversed(latest)
        if s.time is not None and s.epoch is not None and s.iteration is None
    ]
    found = pace(ticks)
    return found.median if found is not None else None


def _count(progress: Progress, ranked: list[list[Sample]], facts: Facts) -> None:
    """Where the run is, and when it will end."""
    latest = next((s for group in ranked for s in group if s.iteration is not None), None)
    step = progress.step_time_s
    if latest is not None and progress.iteration is None:
        total = latest.total
        progress.iteration, progress.total_iterations = latest.iteration, total
        progress.in_epoch = latest.in_epoch
        epochs, epoch = progress.total_epochs, latest.epoch
        if (
            latest.in_epoch
            and total
            and epochs
            and epoch is not None
            and latest.iteration is not None
        ):
            done = int(epoch) - (facts.first_epoch if epoch < epochs else 1)
            progress.iteration = max(0, done) * total + latest.iteration
            progress.total_iterations, progress.in_epoch = epochs * total, False
        elif not latest.in_epoch and total is None and latest.iteration is not None:
            if (facts.total_iterations or 0) >= latest.iteration:
                progress.total_iterations = facts.total_iterations
    if latest is not None and latest.eta_s is not None and not latest.in_epoch:
        progress.eta_s = latest.eta_s
    elif (
        step is not None
        and not progress.in_epoch
        and progress.iteration is not None
        and progress.total_iterations is not None
    ):
        progress.eta_s = max(0, progress.total_iterations - progress.iteration) * step
    elif progress.epoch_time_s and progress.total_epochs and progress.epoch is not None:
        left = progress.total_epochs - progress.epoch
        progress.eta_s = max(0.0, left) * progress.epoch_time_s
