"""Bars without a name that count epochs, as other lines of the log show.

They are as long as the run has epochs, or go along with the epochs that other lines name, or
another counter begins anew whenever they count on: of two loops the inner one is that of the steps.
"""

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
    if group[0].reader != "tqdm":
        return
    if _names_them(group):
        _make_epochs(group)
    if any(s.named or s.training or s.epoch for s in group):
        return
    epochs = [s for s in reversed(samples) if s.epoch is not None and s.reader != "tqdm"]
    alike = group[0].total is not None and (
        _ends_alike(group[0].total, epochs, total) or _go_along(group, epochs)
    )
    if alike or _encloses(group, samples):
        _make_epochs(group)


def _make_epochs(group: list[Sample]) -> None:
    for sample in group:
        sample.epoch, sample.total_epochs = float(sample.iteration or 0), sample.total
        sample.epoch_time_s, sample.step_time_s = sample.step_time_s, None
        sample.iteration = sample.total = sample.elapsed_s = None


def _names_them(group: list[Sample]) -> bool:
    """Whether lines that name an epoch besides name the one that the bar counts."""
    same = {s.iteration: (s.iteration or 0) - s.epoch for s in group if s.epoch is not None}
    return len(same) >= FEWEST and sum(0 <= d <= 1 for d in same.values()) >= SHARE * len(same)


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


def _encloses(group: list[Sample], samples: list[Sample]) -> bool:
    """Whether another counter begins anew each time when this one counts on."""
    outer = {s.iteration: s for s in group}  # where each count was drawn first
    places = sorted(s.offset for s in outer.values())
    inner: dict[str, list[Sample]] = {}
    for sample in reversed(samples):
        if sample.group != group[0].group and sample.iteration is not None and sample.named:
            inner.setdefault(sample.group, []).append(sample)
    for loop in inner.values():
        starts = [s.offset for s in loop]
        met = [
            (loop[at - 1].iteration or 0) >= (loop[at].iteration or 0)
            for at in (bisect_left(starts, place) for place in places)
            if 0 < at < len(loop)
        ]
        if len(set(starts)) > len(met) >= FEWEST and sum(met) >= SHARE * len(met):
            return True
    return False
