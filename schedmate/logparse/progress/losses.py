"""Which loss of a line is the training loss, and since when it has been NaN or infinite.

A loss named as the sum (`total_loss`) precedes plain `loss`, that precedes a specific one
(`ce_loss`), and that precedes parts (`loss_box`), in any order on the line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from schedmate.logparse.progress.sample import Sample
from schedmate.logparse.progress.words import loss_rank

PART, WHOLE = 0, 3
"""Ranks of `words.loss_rank`."""
MORE = 1.5
"""A sum this many times larger than the losses beside it accumulates several steps."""
NEAR = 2000
"""Distance up to which losses of one step may be on lines of their own [bytes]."""


class Losses:
    """The losses of one line, from left to right."""

    def __init__(self) -> None:
        self._found: list[tuple[int, float]] = []

    def add(self, key: str, value: float, *, named: bool = False) -> bool:
        """Add a loss; `named` if its key is known as that of a loss.

        Returns whether it is the first of its rank, which distinguishes kinds of lines.
        """
        rank = loss_rank(key, named=named)
        best = max((rank for rank, _ in self._found), default=None)
        self._found.append((rank, value))
        return best is None or best == PART < rank

    def settle(self, sample: Sample) -> None:
        """Set the loss of a line's sample."""
        if not self._found:
            return
        rank, value = max(self._found, key=lambda found: found[0])
        if rank == WHOLE and math.isfinite(value):
            others = [found for found in self._found if found[0] != WHOLE]
            beside = sum(abs(other) for _, other in others if math.isfinite(other))
            if others and max(others)[0] > PART and abs(value) > MORE * beside:
                rank, value = max(others, key=lambda found: found[0])
        sample.loss, sample.loss_rank, sample.part = value, rank, rank == PART


def latest_loss(samples: Iterable[Sample]) -> Sample | None:
    """The sample with the current loss; samples of the preferred kind come first, newest first."""
    said = [sample for sample in samples if sample.loss is not None]
    whole = [sample for sample in said if not sample.part] or said
    near = [sample for sample in whole if abs(sample.offset - whole[0].offset) <= NEAR]
    return max(near, key=lambda sample: sample.loss_rank, default=None)


def no_number_since(latest: Sample, samples: Iterable[Sample]) -> Sample:
    """The first of the uninterrupted NaN or infinite losses up to the latest."""
    first = latest
    of_kind = [s for s in samples if s.group == latest.group and s.loss is not None]
    for sample in sorted(of_kind, key=lambda s: -s.offset):
        if sample.offset <= latest.offset:
            if math.isfinite(sample.loss or 0.0):
                break
            first = sample
    return first


def no_numbers(latest: Iterable[Sample]) -> dict[str, Literal["nan", "inf"]]:
    """The gradient norms and validation losses that were NaN or infinite when last stated."""
    last: dict[str, float] = {}
    for sample in latest:
        for name, value in sample.watched:
            last.setdefault(name, value)
    return {
        name: "nan" if math.isnan(value) else "inf"
        for name, value in last.items()
        if not math.isfinite(value)
    }
