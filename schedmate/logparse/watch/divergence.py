"""Has a training diverged? Losses that are no numbers or jumped, loss scales at their end, skipped
steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import median
from typing import Any, NamedTuple

from schedmate.base.data import load
from schedmate.logparse.numbers import read_number
from schedmate.logparse.progress.line import Sample
from schedmate.logparse.reading import LogFile

JUMPED_BEFORE = 50
"""Losses before a jump that it is compared with."""
JUMPED_AFTER = 10
"""Losses that have to stay above all of those before a jump counts."""
JUMPED_TIMES = 2.0
"""How many times the usual loss they have to be, at least."""
SMALLEST_SCALE = 1.0
"""A loss scale that has been reduced to this cannot help any more."""
SKIPPED_STEPS = 20
"""Steps skipped one after another that no adjustment of the loss scale explains."""
LINES = 4000
"""Lines about scales and skipped steps that are read, from the end of the log."""


class Divergence(NamedTuple):
    """What shows it, from which byte of the log and which iteration on."""

    summary: str
    offset: int
    iteration: int | None = None
    time: float | None = None
    """By the clock of the log, if it has one."""


@cache
def patterns(kind: str) -> Any:
    """The compiled patterns of one part of `patterns.yaml`, as one."""
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # any bytes, not only UTF-8
    entries = load("logparse/watch/patterns.yaml")[kind]
    return [re2.compile(f"(?m){entry['pattern']}".encode("latin-1"), options) for entry in entries]


@cache
def any_of(*kinds: str) -> Any:
    """All patterns of several parts as one, without groups."""
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    entries = [
        entry["pattern"] for kind in kinds for entry in load("logparse/watch/patterns.yaml")[kind]
    ]
    bare = "|".join(f"(?:{pattern.replace('(?P<scale>', '(?:')})" for pattern in entries)
    return re2.compile(f"(?m){bare}".encode("latin-1"), options)


def find_divergence(file: LogFile, used: Sequence[Sample], start: int = 0) -> Divergence | None:
    """The first sign of the divergence that a log ends with; None if it ends healthy.

    `used` are its lines about progress, the newest first; the run begins at byte `start`.
    """
    found = [
        one
        for one in (_not_a_number(used), _scale(file, used, start), _jump(used))
        if one is not None
    ]
    return min(found, key=lambda one: one.offset, default=None)


def _not_a_number(used: Sequence[Sample]) -> Divergence | None:
    """Losses that are NaN or infinite up to the latest, two at least."""
    first, count = None, 0
    for sample in used:
        if sample.loss is None:
            continue
        if math.isfinite(sample.loss):
            break
        first, count = sample, count + 1
    if first is None or first.loss is None or count < 2:
        return None
    what = "NaN" if math.isnan(first.loss) else "infinite"
    return Divergence(f"the loss is {what}", first.offset, first.iteration, first.time)


def _scale(file: LogFile, used: Sequence[Sample], start: int) -> Divergence | None:
    """A loss scale that fell to its end, or step after step skipped."""
    scales: list[tuple[float, int]] = []  # newest first
    skipped: list[int] = []
    lines = file.matching_reversed(any_of("scale", "minimum", "skipped"))
    for read, (offset, data) in enumerate(lines):
        if read >= LINES or offset < start:
            break
        if any(one.search(data) for one in patterns("minimum")):
            return Divergence("the loss scale is at its minimum", offset, *_place(used, offset))
        match = next((m for one in patterns("scale") if (m := one.search(data))), None)
        if match is not None:
            try:
                scales.append((read_number(match.group(1).decode("latin-1").rstrip(".,")), offset))
            except ValueError:
                continue
        if any(one.search(data) for one in patterns("skipped")):
            skipped.append(offset)
    if len(scales) >= 2 and scales[0][0] <= SMALLEST_SCALE:
        falling = [scales[0]]
        for scale in scales[1:]:
            if scale[0] < falling[-1][0]:
                break
            falling.append(scale)
        lowest = [offset for scale, offset in falling if scale <= SMALLEST_SCALE]
        if falling[-1][0] > SMALLEST_SCALE * 16:
            summary = f"the loss scale fell from {falling[-1][0]:g} to {scales[0][0]:g}"
            return Divergence(summary, lowest[-1], *_place(used, lowest[-1]))
    run = _unbroken(skipped, used)
    if len(run) >= SKIPPED_STEPS:
        return Divergence(
            f"the last {len(run)} steps were skipped, for gradients that overflow",
            *(run[-1], *_place(used, run[-1])),
        )
    return None


def _unbroken(skipped: Sequence[int], used: Sequence[Sample]) -> list[int]:
    """Lines about skipped steps, newest first, up to the newest step that states a loss alone."""
    lines = sorted((sample.offset for sample in used), reverse=True)
    run: list[int] = []
    for offset in skipped:
        between = sum(offset < line < (run[-1] if run else math.inf) for line in lines[:2000])
        if between > 1:
            break
        run.append(offset)
    return run


def _place(used: Sequence[Sample], offset: int) -> tuple[int | None, float | None]:
    """The iteration and the time of the progress line nearest to a byte."""
    near = min(used, key=lambda sample: abs(sample.offset - offset), default=None)
    return (None, None) if near is None else (near.iteration, near.time)


def _jump(used: Sequence[Sample]) -> Divergence | None:
    """A loss that rose far above all that came before, and stayed there.

    Losses below zero, and those of an agent that learns from returns, say nothing by their size.
    """
    losses = [s for s in used if s.loss is not None and not s.part and not s.returns]
    after, before = losses[:JUMPED_AFTER], losses[JUMPED_AFTER:]
    if len(after) < JUMPED_AFTER or len(before) < JUMPED_BEFORE:
        return None
    if any(not math.isfinite(s.loss or 0.0) or (s.loss or 0.0) <= 0 for s in losses):
        return None
    # the jump may be longer ago than the latest few
    lowest = min(s.loss or 0.0 for s in after)
    start = next(
        (at for at, s in enumerate(before) if (s.loss or 0.0) < lowest / JUMPED_TIMES), len(before)
    )
    first = before[start - 1] if start else after[-1]
    usual = [s.loss or 0.0 for s in before[start : start + JUMPED_BEFORE]]
    if len(usual) < JUMPED_BEFORE or lowest < JUMPED_TIMES * median(usual) or lowest < max(usual):
        return None
    now = median(s.loss or 0.0 for s in after)
    return Divergence(
        f"the loss jumped from {median(usual):.4g} to {now:.4g}",
        first.offset,
        first.iteration,
        first.time,
    )
