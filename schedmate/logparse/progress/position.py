"""How far a run is, and when it will end: in iterations over all epochs if possible."""

from __future__ import annotations

from schedmate.jobs import Progress
from schedmate.logparse.progress.facts import Facts
from schedmate.logparse.progress.sample import Sample
from schedmate.logparse.reading import LogFile
from schedmate.logparse.signs import run_end

NEARLY = 0.95
"""A run below this share of its iterations has not ended by words alone if further ones follow."""


def find_position(
    progress: Progress, ranked: list[list[Sample]], epochs: list[Sample], facts: Facts
) -> None:
    """Set the counts and the remaining time, by kinds of lines in order of preference.

    `epochs` are the lines about whole epochs, the newest first.
    """
    latest = _latest(progress, ranked)
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
    progress.eta_s = _left(progress, latest, done)


def _latest(progress: Progress, ranked: list[list[Sample]]) -> Sample | None:
    """The newest count of the preferred kind, or one of the whole run from a later epoch."""
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


def _left(progress: Progress, latest: Sample | None, epochs_done: float | None) -> float | None:
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
    short = count is not None and total is not None and count < NEARLY * total
    end = run_end(file, short=short)
    if end is not None:
        line, finished = end
        progress.ended = "finished" if finished else "stopped"
        progress.ended_line = line.number if numbered else None
        progress.eta_s = 0.0
    elif progress.eta_s == 0:
        progress.ended = "finished"
        progress.ended_line = max(progress.lines, default=None)
