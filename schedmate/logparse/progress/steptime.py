"""How long one step takes, from the samples of one kind of line."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any

from schedmate.logparse.progress.facts import Facts
from schedmate.logparse.progress.pace import (
    TICKS,
    Spread,
    Tick,
    interval,
    pace,
    resolution,
    typical,
)
from schedmate.logparse.progress.sample import Sample

AGREE = 0.3
"""Two ways to tell a step time agree within this relative difference."""
SAMPLES = 0.002
"""A counter without a name that takes less [s] by the timestamps counts samples, not steps."""
FASTEST = 0.02
"""A bar without a name and without metrics that takes less for each count [s] is no training."""
BRIEF = 120.0
"""Nor is one that takes less in all [s] where nothing else in the log speaks of training."""
AGAIN = 10
"""A bar that begins anew this often may take a quarter of that: so do epochs."""
COARSE = 0.05
"""Times stated in steps of more than this share of them say less than the timestamps."""
EVEN = 0.02
"""What is the same may differ by so much."""
FEWEST = 3
"""Readings of what is left below which they say nothing of a step."""
UNITLESS = 60.0
"""A time without unit above this is not believed to be seconds unless something confirms it."""

Found = tuple[Spread, Any, list[str]]


def step_time(
    group: list[Sample],
    facts: Facts,
    batch: int | None,
    *,
    training: bool = True,
    epoch_s: float | None = None,
) -> Found | None:
    """The step time by samples of one kind, the newest first; its source and what was decided.

    `batch` is the global batch size where it is known from elsewhere, `training` whether other
    lines of the log speak of training, `epoch_s` [s] how long an epoch takes. None: they do not
    say.
    """
    ordered = group[::-1]
    counted = [s for s in ordered if s.iteration is not None]
    _share_out(one_stream(counted))
    clock = pace(_ticks(one_stream(counted), "time"))
    stated = _stated(ordered, counted, clock, epoch_s)
    if stated is not None and group[0].reader != "tqdm" and _is_since_start(one_stream(counted)):
        recent = pace(_ticks(one_stream(counted), "elapsed_s"))
        if recent is not None and not _agree(recent.median, stated[0].median):
            stated = recent, "elapsed", ["the time stated is the mean since the start"]
    if stated is not None:
        nameless = not any(s.named or s.training for s in group)
        # such a bar counts files or samples far more often than training steps
        return None if nameless and _is_small(stated[0].median, group[0], training) else stated
    if found := pace(_ticks(one_stream(counted), "elapsed_s")):
        return found, "elapsed", []
    if by_samples := _by_samples(ordered, counted, facts, batch):
        return by_samples
    if clock is not None and (any(s.training for s in counted) or _says_the_same(counted)):
        many = clock.median < SAMPLES and not any(s.named for s in counted)
        return None if many else (clock, "timestamps", [])
    return _by_tokens(ordered, counted, facts) or _by_what_is_left(counted)


def _agree(one: float, other: float) -> bool:
    return abs(math.log(one / other)) <= math.log(1 + AGREE)


def _is_since_start(counted: list[Sample]) -> bool:
    """Whether the time stated of a step is nothing but the elapsed time over the steps."""
    means = [
        (s.step_time_s, s.elapsed_s / s.iteration)
        for s in counted
        if s.step_time_s and s.elapsed_s and s.iteration and not s.since_last
    ]
    return len(means) >= FEWEST and all(abs(one / mean - 1) < EVEN for one, mean in means)


def _says_the_same(counted: list[Sample]) -> bool:
    """Whether lines name their counter and say the same of it; `Step 1: load` does not."""
    wordings = Counter(s.wording for s in counted if s.named)
    return bool(wordings) and 2 * wordings.most_common(1)[0][1] >= len(counted)


def _is_small(step_s: float, latest: Sample, training: bool) -> bool:
    if step_s < FASTEST:
        return True
    takes = step_s * (latest.total or latest.iteration or 0)
    return not training and takes < (BRIEF if latest.again < AGAIN else BRIEF / 4)


def _share_out(counted: list[Sample]) -> None:
    """Divides times that are of all iterations since the line before by how many those are."""
    older: Sample | None = None
    for sample in counted:
        if sample.since_last and sample.step_time_s is not None:
            steps = (sample.iteration or 0) - (older.iteration or 0) if older else 0
            sample.step_time_s = sample.step_time_s / steps if steps > 0 else None
            sample.since_last = False
        older = sample


def _ticks(samples: list[Sample], clock: str) -> list[Tick]:
    return [
        Tick(value, s.iteration, None if s.epoch is None else int(s.epoch))
        for s in samples
        if (value := getattr(s, clock)) is not None and s.iteration is not None
    ]


def one_stream(samples: list[Sample]) -> list[Sample]:
    """The samples of the rank or process that wrote most of them."""
    streams: dict[str, list[Sample]] = {}
    for sample in samples:
        streams.setdefault(sample.stream, []).append(sample)
    return max(streams.values(), key=len, default=[])


def _stated(
    ordered: list[Sample], counted: list[Sample], clock: Spread | None, epoch_s: float | None
) -> Found | None:
    timed = _steady([s for s in ordered if s.step_time_s is not None and not s.since_last])
    found = typical([s.step_time_s for s in timed if s.step_time_s is not None])
    if found is None:
        return None
    ticks = [Tick(s.step_time_s, s.iteration) for s in one_stream(counted) if s.step_time_s]  # type: ignore[arg-type]
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
    every = interval([Tick(0.0, s.iteration) for s in one_stream(counted)])  # type: ignore[arg-type]
    coarse = resolution([s.step_time_s or 0.0 for s in timed]) > COARSE * found.median
    alone = _is_of_one(one_stream(counted), found.median, every) or _fills_epoch(
        timed[-1], found.median, epoch_s
    )
    return _decide(found, clock, every, timed[-1], coarse=coarse, alone=alone)


def _is_of_one(counted: list[Sample], typical_s: float, every: int) -> bool:
    """Whether the first line of an epoch, which has one step behind it, states the time of others.

    The very first one pays for starting up; a time of all steps since the line before would be
    smaller by as much as the steps are fewer.
    """
    starts = [
        b.step_time_s
        for a, b in pairwise(counted)
        if b.iteration in (0, 1) and (a.iteration or 0) > every and b.step_time_s is not None
    ]
    near = [s for s in starts if typical_s / 2 <= s <= typical_s * 2]
    return len(near) >= 2 and 2 * len(near) >= len(starts)


def _fills_epoch(latest: Sample, step_s: float, epoch_s: float | None) -> bool:
    """Whether all steps of an epoch, of this time each, make up most of it."""
    if epoch_s is None or not latest.in_epoch or latest.total is None:
        return False
    return epoch_s / 2 <= step_s * latest.total <= epoch_s * (1 + AGREE / 3)


def _steady(timed: list[Sample]) -> list[Sample]:
    """Without the first line of each epoch, which pays for starting it, where enough are left."""
    later = timed[:1] + [b for a, b in pairwise(timed) if a.epoch == b.epoch]
    return later if len(later) >= max(3, len(timed) // 3) else timed


def _rises(ticks: list[Tick]) -> bool:
    """Whether a time grows with the iterations as an elapsed time does."""
    pairs = [(a, b) for a, b in pairwise(ticks) if b.steps > a.steps]
    return len(pairs) >= 3 and all(b.clock > a.clock for a, b in pairs)


def _decide(
    found: Spread, clock: Spread | None, every: int, latest: Sample, *, coarse: bool, alone: bool
) -> Found | None:
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
            if coarse:
                return clock, "timestamps", ["the time stated has too few digits"]
    elif not latest.unit and found.median > UNITLESS:
        return None
    elif (
        latest.bare
        and latest.reader == "general"
        and every > 1
        and not alone
        and not _eta_fits(latest, found)
    ):
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


def _by_tokens(ordered: list[Sample], counted: list[Sample], facts: Facts) -> Found | None:
    speeds = typical([s.tokens_per_s for s in ordered if s.tokens_per_s])
    if speeds is None:
        return None
    size = facts.tokens
    seen = pace([Tick(float(s.tokens), s.iteration) for s in one_stream(counted) if s.tokens])  # type: ignore[arg-type]
    if seen is not None and seen.p90 - seen.p10 <= EVEN * seen.median:
        size = round(seen.median)
    if not size:
        return None
    times = Spread(size / speeds.median, size / speeds.p90, size / speeds.p10, speeds.n)
    return times, "samples", [f"{size:,} tokens a step"]


def _by_what_is_left(counted: list[Sample]) -> Found | None:
    """By the log's own estimate of when it will end, where that is of the whole run."""
    left = [
        (s.eta_s, s.total - s.iteration)
        for s in one_stream(counted)
        if s.eta_s and s.total is not None and s.iteration is not None and not s.in_epoch
    ]
    if len(left) < FEWEST or any(s.again for s in counted):
        return None
    finest = resolution([eta for eta, _ in left])
    found = typical([eta / steps for eta, steps in left if steps > 0 and eta >= TICKS * finest])
    if found is None or found.n < FEWEST or found.p90 - found.p10 > AGREE * found.median:
        return None
    shrinks = pace([Tick(-eta, -steps) for eta, steps in left])  # as fast as what is left to do
    if shrinks is None or not _agree(shrinks.median, found.median):
        return None
    return found, "eta", []


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
