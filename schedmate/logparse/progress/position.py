"""Says how far a run is, and when it will end: in iterations over all epochs if possible.

For that it recognises nested loops. A bar without a name counts epochs if its total is the run's
number of epochs, if it advances together with the epochs that other lines name, or if another
counter restarts whenever it advances. A loop that restarts with each line that names an epoch
consists of the steps of that epoch.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

from schedmate.jobs import Progress
from schedmate.logparse.progress.collect import Facts
from schedmate.logparse.progress.line import Sample
from schedmate.logparse.progress.series import Tick, pace, typical, usual_interval
from schedmate.logparse.reading import LogFile
from schedmate.logparse.signs import NEARLY_ENDED, run_end


def find_position(
    progress: Progress, ranked: list[list[Sample]], epochs: list[Sample], facts: Facts
) -> None:
    """Set the counts and the remaining time, by kinds of lines in order of preference.

    `epochs` are the lines about whole epochs, the newest first.
    """
    latest = _latest_count(progress, ranked)
    if latest is not None and progress.iteration is None:
        progress.iteration, progress.total_iterations = latest.iteration, latest.total
        progress.in_epoch = latest.in_epoch
        if latest.in_epoch:
            _over_epochs(progress, latest, facts)
        elif latest.total is None and (facts.total_iterations or 0) >= (latest.iteration or 0):
            progress.total_iterations = facts.total_iterations
    named = [s for s in (*epochs, *(s for group in ranked for s in group)) if s.epoch is not None]
    newest = max(named, key=lambda sample: sample.offset, default=None)
    done = progress.epoch
    if newest is not None and newest.epoch == done is not None and facts.first_epoch == 0:
        # counted from 0; a line that says how long an epoch took stands at its end
        done += newest.epoch_time_s is not None
    progress.eta_s = _time_left(progress, latest, done)


def _latest_count(progress: Progress, ranked: list[list[Sample]]) -> Sample | None:
    """The newest count of the preferred kind, or one of the whole run from a later epoch."""
    newest = [s for group in ranked if (s := _newest_count(group)) is not None]
    for sample in newest[1:]:
        later = sample.epoch is not None and sample.epoch > (newest[0].epoch or sample.epoch)
        if later and sample.total is None and sample.epoch == progress.epoch:
            return sample
    return newest[0] if newest else None


def _newest_count(group: list[Sample]) -> Sample | None:
    return next((s for s in group if s.iteration is not None), None)


def _over_epochs(progress: Progress, latest: Sample, facts: Facts) -> None:
    epochs, epoch, total = progress.total_epochs, latest.epoch, latest.total
    if not total or not epochs or epoch is None or latest.iteration is None:
        return
    done = int(epoch) - (facts.first_epoch if epoch < epochs else 1)
    progress.iteration = max(0, done) * total + latest.iteration
    progress.total_iterations, progress.in_epoch = epochs * total, False


def _time_left(
    progress: Progress, latest: Sample | None, epochs_done: float | None
) -> float | None:
    """Seconds until the run ends, by the log's own estimate or by the remaining steps or epochs."""
    if latest is not None and latest.eta_s is not None and not latest.in_epoch:
        return latest.eta_s
    step, count, total = progress.step_time_s, progress.iteration, progress.total_iterations
    if step is not None and not progress.in_epoch and count is not None and total is not None:
        return max(0, total - count) * step
    if progress.epoch_time_s and progress.total_epochs and epochs_done is not None:
        return max(0.0, progress.total_epochs - epochs_done) * progress.epoch_time_s
    return None


def find_end(progress: Progress, file: LogFile, *, numbered: bool) -> None:
    """Set whether the run has ended, by the log's words or because it reached its total.

    Without `numbered`, the number of the line that shows it is not determined.
    """
    count, total = progress.iteration, progress.total_iterations
    short = count is not None and total is not None and count < NEARLY_ENDED * total
    end = run_end(file, short=short)
    if end is not None:
        line, finished = end
        progress.ended = "finished" if finished else "stopped"
        progress.ended_line = line.number if numbered else None
        progress.eta_s = 0.0
    elif progress.eta_s == 0:
        progress.ended = "finished"
        progress.ended_line = max(progress.lines, default=None)


# Nested loops: which one counts epochs, and which epoch the steps belong to.
#
# A bar without a name counts epochs if its total is the run's number of epochs, if it advances
# together with the epochs that other lines name, or if another counter restarts whenever it
# advances. A loop that restarts with each line that names an epoch consists of the steps of that
# epoch.


FEWEST_EPOCHS = 3
"""Minimum number of epochs seen before a bar is taken to count them."""
SHARE_OF_EPOCHS = 0.8


def recognise_epoch_bar(group: list[Sample], samples: list[Sample], total: int | None) -> None:
    """Turn the counts of a nameless bar into epochs if other lines name the same epochs.

    `samples` are those of the whole log, the newest first; `total` is the number of epochs if the
    log states it.
    """
    if group[0].reader != "tqdm":
        return
    if _names_same_epochs(group):
        _make_epochs(group)
    if any(s.named or s.training or s.epoch for s in group):
        return
    epochs = [s for s in reversed(samples) if s.epoch is not None and s.reader != "tqdm"]
    alike = group[0].total is not None and (
        _ends_alike(group[0].total, epochs, total) or _counts_along(group, epochs)
    )
    if alike or _encloses(group, samples):
        _make_epochs(group)


def _make_epochs(group: list[Sample]) -> None:
    for sample in group:
        sample.epoch, sample.total_epochs = float(sample.iteration or 0), sample.total
        sample.epoch_time_s, sample.step_time_s = sample.step_time_s, None
        sample.iteration = sample.total = sample.elapsed_s = None


def _names_same_epochs(group: list[Sample]) -> bool:
    """Whether other lines that name an epoch name the one that the bar counts."""
    same = {s.iteration: (s.iteration or 0) - s.epoch for s in group if s.epoch is not None}
    return len(same) >= FEWEST_EPOCHS and sum(
        0 <= d <= 1 for d in same.values()
    ) >= SHARE_OF_EPOCHS * len(same)


def _ends_alike(count: int, epochs: list[Sample], total: int | None) -> bool:
    """Whether a bar's total is the run's number of epochs."""
    last = max((int(s.epoch) for s in epochs if s.epoch is not None), default=0)
    stated = total or next((s.total_epochs for s in epochs if s.total_epochs), None)
    if stated is not None:
        return count == stated
    first = min((int(s.epoch) for s in epochs if s.epoch is not None), default=0)
    return last - first >= FEWEST_EPOCHS and count in (last, last + 1)


def _counts_along(group: list[Sample], epochs: list[Sample]) -> bool:
    """Whether the epoch named before each count equals that count."""
    places = [s.offset for s in epochs]
    met: dict[int, bool] = {}
    for sample in group:
        at = bisect_left(places, sample.offset)
        if at and sample.iteration:
            distance = sample.iteration - (epochs[at - 1].epoch or 0.0)
            met[sample.iteration] = met.get(sample.iteration, False) or 0 <= distance <= 1
    return len(met) >= FEWEST_EPOCHS and sum(met.values()) >= SHARE_OF_EPOCHS * len(met)


def _encloses(group: list[Sample], samples: list[Sample]) -> bool:
    """Whether another counter restarts each time this one advances."""
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
        if len(set(starts)) > len(met) >= FEWEST_EPOCHS and sum(met) >= SHARE_OF_EPOCHS * len(met):
            return True
    return False


def epoch_lines(samples: list[Sample]) -> list[Sample]:
    """Of the lines that state only an epoch, those that name the current one.

    Of all wordings it is the one found in most epochs: `best so far: epoch 3` is found in fewer.
    """
    kinds: dict[int, list[Sample]] = {}
    for sample in samples:
        if sample.epoch is not None:
            kinds.setdefault(sample.wording, []).append(sample)
    current = max(kinds.values(), key=lambda kind: len({s.epoch for s in kind}), default=[])
    up = [(a.epoch or 0) >= (b.epoch or 0) for a, b in pairwise(current)]
    counts = len({s.epoch for s in current}) > 1 or any(s.total_epochs for s in current)
    return current if counts and sum(up) >= SHARE_OF_EPOCHS * len(up) else []


def place_in_epochs(group: list[Sample], lines: list[Sample]) -> None:
    """Set the epochs of a loop from `lines` of other kinds, all the newest first.

    `Epoch 3/25` is printed before the steps of that epoch; `epoch 3: loss 0.5, 12 s` and a bar that
    counts epochs are printed after them.
    """
    loop = [s for s in reversed(group) if s.iteration is not None]
    if not loop or any(s.epoch is not None for s in loop):
        return
    again = [a for a, b in pairwise(loop) if _begins_again(a, b)]
    if again and all(s.total and (s.iteration or 0) >= s.total for s in again):
        for sample in loop:
            sample.in_epoch = True
    names = [s for s in reversed(lines) if s.epoch is not None and s.epoch % 1 == 0]
    closing = 2 * sum(map(_closes_epoch, names)) > len(names)
    if not names or not _restarts_with_epochs(loop, names, closing=closing):
        return
    places = [s.offset for s in names]
    for sample in loop:
        at = bisect_left(places, sample.offset)
        name = names[min(at, len(names) - 1) if closing else max(at - 1, 0)]
        sample.epoch, sample.total_epochs, sample.in_epoch = name.epoch, name.total_epochs, True
        if closing and at == len(names):
            sample.epoch = (name.epoch or 0.0) + 1  # the one after the last that was closed


def _closes_epoch(line: Sample) -> bool:
    """Whether a line that names an epoch reports its results."""
    return line.loss is not None or line.epoch_time_s is not None or line.reader == "tqdm"


def _begins_again(before: Sample, after: Sample) -> bool:
    """Whether a counter restarts, also if only the last line of each loop is seen."""
    if after.iteration == after.total == before.iteration and after.offset != before.offset:
        return (after.elapsed_s or 0.0) < (before.elapsed_s or 0.0)
    return (after.iteration or 0) < (before.iteration or 0)


def _restarts_with_epochs(loop: list[Sample], names: list[Sample], *, closing: bool) -> bool:
    """Whether a counter restarts between two epochs and never within one.

    If only one of several epochs is seen, the counts below it are taken as its steps.
    """
    places = [s.offset for s in names]
    anew = on = 0
    for a, b in pairwise(loop):
        if bisect_left(places, a.offset) != bisect_left(places, b.offset):
            falls = (b.iteration or 0) < (a.iteration or 0) or b.iteration == b.total
            anew, on = anew + falls, on + (not falls)
    if anew + on:
        return anew >= SHARE_OF_EPOCHS * (anew + on)
    one_of_several = names[0].total_epochs is not None or not loop[0].named
    if loop[0].total is None or not one_of_several:
        return False
    if closing:
        through = loop[-1].iteration == loop[-1].total and names[0].reader == "tqdm"
        return loop[-1].in_epoch or through
    return places[0] < loop[-1].offset


def epoch_time(latest: list[Sample]) -> float | None:
    """The time of an epoch as stated; for several epochs at once only by timestamps."""
    stated = stated_epoch_time(latest)
    return _epoch_pace(latest) if stated is None else stated


def stated_epoch_time(latest: list[Sample]) -> float | None:
    """The time of an epoch [s] stated by lines that each count one."""
    stated = sorted((s for s in latest if s.epoch_time_s), key=lambda s: s.offset)
    spread = typical([s.epoch_time_s for s in stated if s.epoch_time_s])
    counted = [Tick(0.0, int(s.epoch)) for s in stated if s.epoch is not None and not _is_bar(s)]
    return None if spread is None or usual_interval(counted) > 1 else spread.median


def _is_bar(sample: Sample) -> bool:
    """Whether lines are redraws of a bar, whose rate is that of one epoch."""
    return sample.reader == "tqdm"


def _epoch_pace(latest: list[Sample]) -> float | None:
    """The time of an epoch by the timestamps of lines that each count one."""
    ticks = [
        Tick(s.time, int(s.epoch))
        for s in reversed(latest)
        if s.time is not None and s.epoch is not None and s.iteration is None
    ]
    spread = pace(ticks)
    return spread.median if spread is not None else None
