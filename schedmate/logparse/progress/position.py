"""Where a run is, and when it will end: iterations over all epochs where their length is known."""

from __future__ import annotations

from schedmate.jobs import Progress
from schedmate.logparse.progress.facts import Facts
from schedmate.logparse.progress.sample import Sample


def find_position(progress: Progress, ranked: list[list[Sample]], facts: Facts) -> None:
    """Sets the counts and the time left, by kinds of lines of which the first is believed."""
    latest = _latest(progress, ranked)
    if latest is not None and progress.iteration is None:
        progress.iteration, progress.total_iterations = latest.iteration, latest.total
        progress.in_epoch = latest.in_epoch
        if latest.in_epoch:
            _over_epochs(progress, latest, facts)
        elif latest.total is None and (facts.total_iterations or 0) >= (latest.iteration or 0):
            progress.total_iterations = facts.total_iterations
    progress.eta_s = _left(progress, latest)


def _latest(progress: Progress, ranked: list[list[Sample]]) -> Sample | None:
    """The newest count of the kind that is believed, or one of the whole run of a later epoch."""
    newest = [s for group in ranked if (s := _newest(group)) is not None]
    for sample in newest[1:]:
        later = sample.epoch is not None and sample.epoch > (newest[0].epoch or sample.epoch)
        if later and sample.total is None and sample.epoch == progress.epoch:
            return sample
    return newest[0] if newest else None


def _newest(group: list[Sample]) -> Sample | None:
    return next((s for s in group if s.iteration is not None), None)


def _over_epochs(progress: Progress, latest: Sample, facts: Facts) -> None:
    epochs, epoch, total = progress.total_epochs, latest.epoch, latest.total
    if not total or not epochs or epoch is None or latest.iteration is None:
        return
    done = int(epoch) - (facts.first_epoch if epoch < epochs else 1)
    progress.iteration = max(0, done) * total + latest.iteration
    progress.total_iterations, progress.in_epoch = epochs * total, False


def _left(progress: Progress, latest: Sample | None) -> float | None:
    """Seconds until the run ends: what the log itself expects, or steps or epochs to go."""
    if latest is not None and latest.eta_s is not None and not latest.in_epoch:
        return latest.eta_s
    step, count, total = progress.step_time_s, progress.iteration, progress.total_iterations
    if step is not None and not progress.in_epoch and count is not None and total is not None:
        return max(0, total - count) * step
    if progress.epoch_time_s and progress.total_epochs and progress.epoch is not None:
        return max(0.0, progress.total_epochs - progress.epoch) * progress.epoch_time_s
    return None
