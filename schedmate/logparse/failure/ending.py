"""How far a job is and whether it has failed, by one reading of its log.

The Metric Tracker looks for the latest progress, the Failure Handler for what followed it. What
the one says never contradicts the other: the verdict of `judge_job` is laid over the progress. A
job that has failed has no time left, one that finished is through, and a loss that is NaN up to
the end is so for both. Words that only read like an end, or a bar that is full, do not end
the progress of a job.
"""

from __future__ import annotations

from schedmate.jobs import Progress
from schedmate.logparse.failure.examine import SAYS_SO, end_of
from schedmate.logparse.failure.handler import DIVERGED, Judged, judge_job
from schedmate.logparse.failure.locate import first_report, role_of
from schedmate.logparse.failure.scan import Event
from schedmate.logparse.progress.line import read_line
from schedmate.logparse.progress.tracker import NUMBERED, track_log
from schedmate.logparse.reading import Attempt, Log, LogFile
from schedmate.logparse.signs import RUNS_WITHIN

TAIL = 1 << 20
"""The end of a log larger than `RUNS_WITHIN` in which a failure is looked for [bytes]."""


def track_job(log: Log, *, batch: int | None = None, since: int = 0) -> tuple[Progress, LogFile]:
    """The progress of a job as `track_log` gives it, agreed with the verdict on its log.

    Of logs larger than `RUNS_WITHIN` only the end of the file that was tracked is judged, and of a
    file larger than `NUMBERED` nothing.
    """
    progress, file = track_log(log, batch=batch, since=since)
    if file.size > NUMBERED:
        return progress, file
    if log.size <= RUNS_WITHIN:
        judged = judge_job(log)
    else:
        start = file.align(max(since, file.size - TAIL))
        tail = Attempt(file.line_number(start), file.line_count(), start, file.size, "")
        judged = judge_job(Log(log.name, [file]), only=tail)
    _agree(progress, file, judged, since)
    for one in log.files:
        one.close()
    return progress, file


def _agree(progress: Progress, file: LogFile, judged: Judged, since: int) -> None:
    """Set how a run ended, and since when its loss is no number, as the verdict says."""
    verdict, root = judged.verdict, judged.verdict.root
    if root is not None and root.file is file and file.line_offset(root.number) < since:
        return  # of a part that is not asked about
    for event in (*([root] if root is not None else ()), *verdict.hints):
        if _diverged(event) and event.file is file:
            _set_first_loss(progress, event)
    if root is None:
        end = end_of(judged.examined.scans)
        if end is not None and end.why == SAYS_SO and progress.ended is None:
            progress.ended, progress.eta_s = "finished", 0.0
            progress.ended_line = end.line.number if end.file is file else None
    elif verdict.cascade or not _diverged(root):
        progress.eta_s = None
        began_again = judged.examined.attempt < judged.examined.attempts
        if root.faint or began_again:
            why = "the next run has begun" if began_again else f"line {root.number} may be its end"
            progress.notes.append(f"{why}: no time left is given")
            progress.ended = progress.ended_line = None
            return
        progress.ended = "stopped" if role_of(root) == "stop" else "failed"
        progress.ended_line = first_report(root, verdict.cascade) if root.file is file else None
        if progress.ended == "stopped":
            progress.eta_s = 0.0
        elif root.rule is not None:
            progress.failure = root.rule.name


def _diverged(event: Event) -> bool:
    return event.rule is not None and event.rule.id == DIVERGED


def _set_first_loss(progress: Progress, event: Event) -> None:
    """The iteration of the first loss that is no number, which may stand far above the end."""
    sample = read_line(event.text)
    if progress.loss_state is None:
        progress.loss_state = "nan" if "nan" in event.text.lower() else "inf"
        progress.loss = None
    if sample is not None and sample.iteration is not None and sample.iteration >= 0:
        known = progress.loss_state_since
        first = sample.iteration
        progress.loss_state_since = first if known is None else min(known, first)
