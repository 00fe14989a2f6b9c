"""Bars without a name that count epochs, as other lines of the log show."""

from __future__ import annotations

from bisect import bisect_left

from schedmate.logparse.progress.sample import Sample

FEWEST = 3
"""Epochs that must be met before a bar is said to count them."""
SHARE = 0.8


def counts_epochs(group: list[Sample], samples: list[Sample], total: int | None) -> None:
    """Makes epochs of the counts of a nameless bar, where they are those that other lines name.

    `samples` are those of the whole log, the newest first; `total` is the number of epochs where
    the log says it.
    """
    if group[0].reader != "tqdm" or any(s.named or s.training or s.epoch for s in group):
        return
    epochs = [s for s in reversed(samples) if s.epoch is not None and s.reader != "tqdm"]
    if group[0].total is None or not (
        _ends_alike(group[0].total, epochs, total) or _go_along(group, epochs)
    ):
        return
    for sample in group:
        sample.epoch, sample.total_epochs = float(sample.iteration or 0), sample.total
        sample.epoch_time_s, sample.step_time_s = sample.step_time_s, None
        sample.iteration = sample.total = sample.elapsed_s = None


def _ends_alike(count: int, epochs: list[Sample], total: int | None) -> bool:
    """Whether a bar is as long as the run has epochs."""
    last = max((int(s.epoch) for s in epochs if s.epoch is not None), default=0)
    stated = total or next((s.total_epochs for s in epochs if s.total_epochs), None)
    if stated is not None:
        return count == stated
    first = min((int(s.epoch) for s in epochs if s.epoch is not None), default=0)
    return last - first >= FEWEST and count in (last, last + 1)


def _go_along(group: list[Sample], epochs: list[Sample]) -> bool:
    """Whether the epoch named before each count is that count."""
    places = [s.offset for s in epochs]
    met: dict[int, bool] = {}
    for sample in group:
        at = bisect_left(places, sample.offset)
        if at and sample.iteration:
            distance = sample.iteration - (epochs[at - 1].epoch or 0.0)
            met[sample.iteration] = met.get(sample.iteration, False) or 0 <= distance <= 1
    return len(met) >= FEWEST and sum(met.values()) >= SHARE * len(met)
