"""The Metric Tracker: from the end of a log to a `Progress` (SchedMate paper, section 3.2).

Lines are read in reverse chronological order until one kind of line has given enough readings. The
kind with the strongest evidence of training decides; the others add what it does not state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from schedmate.jobs import Progress
from schedmate.logparse.progress.collect import (
    ENOUGH,
    Facts,
    Reader,
    collect,
    find_table,
    read_facts,
)
from schedmate.logparse.progress.line import (
    EPOCH_ONLY,
    Sample,
    latest_loss,
    name_by_run_time,
    non_finite_metrics,
    non_finite_since,
    read_line,
)
from schedmate.logparse.progress.position import (
    epoch_lines,
    epoch_time,
    find_end,
    find_position,
    place_in_epochs,
    recognise_epoch_bar,
    stated_epoch_time,
)
from schedmate.logparse.progress.series import (
    choose_inner_counter,
    find_counter,
    find_times,
    make_epoch_times,
    one_stream,
    swap_totals,
    typical,
)
from schedmate.logparse.progress.silence import set_rhythm
from schedmate.logparse.progress.steptime import StepTime, is_of_training, step_time
from schedmate.logparse.reading import Log, LogError, LogFile
from schedmate.logparse.reading.lines import dated

NUMBERED = 1 << 30
"""Lines of larger files are not counted, which would take longer than all the rest [bytes]."""
RANKS = 16
"""Limit for the files of a directory that are tried before the tracker abstains."""
DIGIT = 0.001
"""The last digit of a rate over a whole run, which is printed with three decimals [1/s]."""
ROUGHLY = 0.2
"""Limit for the relative difference between a number of steps and the run's rate."""
COARSE = 0.01
"""Smaller rates of a whole run have lost their digits to the three decimals printed [1/s]."""
FEW = 5
"""A bar with fewer readings gives way to another one."""
NOTHING = "no line of the log shows training progress"
LISTED = 10
"""Limit for the line numbers that a `Progress` lists."""


def track(
    file: LogFile,
    *,
    batch: int | None = None,
    since: int = 0,
    reader: Reader = read_line,
    every_line: bool = False,
) -> Progress:
    """The progress of the job that writes this log.

    `batch` is the global batch size if the job's metadata states it, so that samples per second
    become a step time. Bytes before `since` are left out. With `every_line`, the reader also gets
    lines that do not look like progress. Raises `LogError` if the file has become unreadable.
    """
    return track_series(file, batch=batch, since=since, reader=reader, every_line=every_line)[0]


def track_series(
    file: LogFile,
    *,
    batch: int | None = None,
    since: int = 0,
    reader: Reader = read_line,
    every_line: bool = False,
    enough: int = ENOUGH,
) -> tuple[Progress, list[Sample]]:
    """The progress as `track` gives it, and the lines that it follows from, the newest first.

    Up to `enough` lines of each kind are read.
    """
    samples = collect(file, since=since, reader=reader, every_line=every_line, enough=enough)
    progress, used = conclude(file, samples, batch)
    if progress.abstained and reader is read_line and (table := find_table(file)) is not None:
        rows = collect(file, since=since, reader=table.read, every_line=True, enough=enough)
        shown, of_table = conclude(file, rows, batch)
        nothing = progress.iteration is None and progress.epoch is None
        if not shown.abstained or nothing or (progress.iteration is None and shown.iteration):
            progress, used = shown, of_table
    progress.log_bytes = file.size
    find_end(progress, file, numbered=file.size <= NUMBERED)
    return progress, used


def track_log(log: Log, *, batch: int | None = None, since: int = 0) -> tuple[Progress, LogFile]:
    """The progress of a job, by the first of its files that states it, and that file.

    `since` [bytes] applies to that file. Raises `LogError` for a directory without log files.
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


def conclude(
    file: LogFile, samples: list[Sample], batch: int | None = None
) -> tuple[Progress, list[Sample]]:
    """The progress of a job by the samples of its log, newest first, and those that were used.

    `batch` is the global batch size, if known. Without evidence of training the result abstains
    and says why.
    """
    training = any(s.training or s.epoch is not None or s.group == EPOCH_ONLY for s in samples)
    every = samples
    samples = [sample for sample in samples if sample.group != EPOCH_ONLY]
    epochs = epoch_lines([sample for sample in every if sample.group == EPOCH_ONLY])
    if not samples and not epochs:
        return Progress(reason=NOTHING), []
    facts = read_facts(file)
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.total is not None and sample.total == facts.total_iterations:
            sample.named = True
        groups.setdefault(sample.group, []).append(sample)
    swap_totals(groups)
    for group in groups.values():
        find_counter(group[::-1])
        make_epoch_times(group)
        choose_inner_counter(one_stream(group)[::-1])
        find_times(group[::-1])
        recognise_epoch_bar(group, every, facts.total_epochs)
        if _counts_on(group):
            for sample in group:
                sample.in_epoch = False
    name_by_run_time(groups.values())
    ranked = sorted(filter(_states_more_than_time, groups.values()), key=_worth, reverse=True)
    best = _first_with_step_time(ranked, facts, batch, training=training)
    believed = best[0] if best is not None else None
    ranked = [g for g in ranked if g is believed or is_of_training(g, facts, training=training)]
    if not ranked and not epochs:
        return Progress(reason=NOTHING), []
    progress = Progress(reason=_why_open(ranked, epochs))
    if best is not None:
        group, (spread, source, notes) = best
        progress = Progress(
            step_time_s=spread.median,
            step_time_p10_s=spread.p10,
            step_time_p90_s=spread.p90,
            readings=spread.n,
            source=source,
            notes=notes,
        )
        ranked = [group, *(g for g in ranked if g is not group)]
    else:
        _summary(progress, samples, facts)
    for group in ranked:
        other_samples = [s for g in ranked if g is not group for s in g]
        place_in_epochs(group, sorted([*epochs, *other_samples], key=lambda s: -s.offset))
    _describe(progress, [*ranked, epochs], facts)
    find_position(progress, ranked, epochs, facts)
    used = ranked[0] if ranked else epochs
    counts = [s.iteration for s in one_stream(used) if s.iteration is not None]
    progress.steps_seen = max(counts) - min(counts) + 1 if counts else 0
    progress.reader = used[0].reader
    written = next((s.time for s in used if s.time is not None), None)
    progress.updated = dated(written, ())
    if file.size <= NUMBERED:
        numbers = dict.fromkeys(file.line_number(sample.offset) for sample in used[:LISTED])
        progress.lines = list(numbers)
    set_rhythm(progress, used, file)
    return progress, used


def _why_open(ranked: list[list[Sample]], epochs: list[Sample]) -> str:
    """The reason why there cannot be a step time, if there is one."""
    if any(s.iteration is not None for group in ranked for s in group):
        return "the log counts iterations but does not say how long one takes"
    if epochs or any(s.epoch is not None for group in ranked for s in group):
        return "the log counts epochs but not the iterations within them"
    return NOTHING


def _first_with_step_time(
    ranked: list[list[Sample]], facts: Facts, batch: int | None, *, training: bool
) -> tuple[list[Sample], StepTime] | None:
    """The first kind of line that gives a step time, and that time.

    Times across epochs include the work between them, so a later kind with lines within epochs is
    preferred.
    """
    first = None
    epoch_s = stated_epoch_time([s for group in ranked for s in group])
    for group in ranked:
        timing = step_time(group, facts, batch, training=training, epoch_s=epoch_s)
        if timing is None:
            continue
        spread, source, _ = timing
        if source != "timestamps" or not spread.across:
            if first is None or (source == "timestamps" and group[0].in_epoch):
                return group, timing
        elif first is None:
            first = group, timing
    return first


def _counts_on(group: list[Sample]) -> bool:
    """Whether a counter does not restart with the epochs."""
    counted = [s for s in one_stream(group) if s.iteration is not None and s.epoch is not None]
    changes = [(a, b) for b, a in pairwise(counted) if b.epoch != a.epoch]
    return bool(changes) and all((b.iteration or 0) > (a.iteration or 0) for a, b in changes)


def _states_more_than_time(group: list[Sample]) -> bool:
    """Whether lines state more than a duration, which may be about anything."""
    return any(s.training or s.iteration is not None or not s.nameless for s in group)


def _worth(group: list[Sample]) -> tuple[int, bool, bool, float, int]:
    """The strength of the evidence that a kind of line is training; the largest decides.

    Of equal kinds one that states a time precedes a bar, whose rate is a moving average. Of two
    bars, or of counters without a name, the one that ran longer precedes: the shorter one is an
    evaluation within it. One that was drawn only a few times does not compete with one drawn often.
    """
    some = group[:ENOUGH]
    evidence = (
        4 * any(s.training for s in some)
        + 3 * any(s.timed for s in some)
        + 2 * any(s.named for s in some)
        + any(s.iteration is not None for s in some)
        + any(s.reader != "general" for s in some)
    )
    bar = some[0].reader == "tqdm"
    ran = max((s.elapsed_s or 0.0 for s in some), default=0.0) if bar else 0.0
    if not bar and not any(s.named for s in some):
        ran = max((s.step_time_s or 0.0) * (s.total or 0) for s in some)
    return evidence, not bar, len(some) >= FEW, ran, group[0].offset


def _summary(progress: Progress, samples: list[Sample], facts: Facts) -> None:
    """Set the step time of a run that has ended and states only its total time or mean rate."""
    run = next((s.run_s for s in samples if s.run_s), None)
    rate = next((s.run_rate for s in samples if s.run_rate), None)
    steps = facts.total_iterations
    if run is not None and rate is not None and not _fits(steps, run, rate):
        exact = rate >= COARSE and run * DIGIT < 1
        steps = round(run * rate) if exact else None
    if run is not None and steps:
        progress.step_time_s = run / steps
        progress.iteration = progress.total_iterations = steps
    elif rate is not None and rate >= COARSE:
        progress.step_time_s = 1 / rate
    if progress.step_time_s is not None:
        progress.source, progress.readings, progress.reason = "summary", 1, None


def _fits(steps: int | None, run_s: float, rate: float) -> bool:
    """Whether this number of steps in that time gives that rate."""
    return steps is not None and abs(steps / run_s - rate) <= DIGIT + ROUGHLY * rate


def _describe(progress: Progress, ranked: list[list[Sample]], facts: Facts) -> None:
    """Set loss, learning rate, epochs and throughput of `progress` from the latest samples."""
    latest = sorted((s for group in ranked for s in group), key=lambda s: -s.offset)
    # of the kind that was believed, before an evaluation's that comes later
    loss_sample = latest_loss([*ranked[0], *latest])
    if loss_sample is not None and loss_sample.loss is not None:
        if math.isfinite(loss_sample.loss):
            progress.loss = loss_sample.loss
        else:
            progress.loss_state = "nan" if math.isnan(loss_sample.loss) else "inf"
            progress.loss_state_since = non_finite_since(loss_sample, latest).iteration
    progress.no_numbers = non_finite_metrics(latest)
    for name in ("lr", "epoch", "total_epochs"):
        value = _first(latest, name)
        setattr(progress, name, None if value is None or not math.isfinite(value) else value)
    if progress.total_epochs is None and (facts.total_epochs or 0) >= (progress.epoch or 0):
        progress.total_epochs = facts.total_epochs
    progress.epoch_time_s = epoch_time(latest)
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
