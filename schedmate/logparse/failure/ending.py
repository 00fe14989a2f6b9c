"""How far a job is and whether it has failed, by one reading of its log.

The Metric Tracker looks for the latest progress, the Failure Handler for what followed it: a job
that has failed has no time left, and a loss is NaN from the iteration on that both name.
"""

from __future__ import annotations

from schedmate.jobs import Progress
from schedmate.logparse.failure.handler import non_finite_loss_from
from schedmate.logparse.failure.locate import Verdict, decide, first_report, role_of
from schedmate.logparse.failure.rules import load_rules
from schedmate.logparse.failure.runs import set_aside_handled
from schedmate.logparse.failure.scan import FileScan, scan
from schedmate.logparse.progress.line import read_line
from schedmate.logparse.progress.tracker import NUMBERED, track_log
from schedmate.logparse.reading import Attempt, Log, LogFile, attempts
from schedmate.logparse.signs import last_run

TAIL = 1 << 20
"""The end of a log in which a failure is looked for [bytes]."""


def track_job(log: Log, *, batch: int | None = None, since: int = 0) -> tuple[Progress, LogFile]:
    """The progress of a job as `track_log` gives it, and whether its log shows that it failed."""
    progress, file = track_log(log, batch=batch, since=since)
    if file.size > NUMBERED:
        return progress, file
    if progress.loss_state is not None:
        _set_first_loss(progress, file)
    if progress.ended is None:
        _set_failure(progress, file, since)
    file.close()
    return progress, file


def _set_failure(progress: Progress, file: LogFile, since: int) -> None:
    """Say that a run is over if its last one failed or was ended after the latest progress."""
    start = file.align(max(since, file.size - TAIL))
    tail = Attempt(file.line_number(start), file.line_count(), start, file.size, "")
    verdict = _verdict_on(file, tail)
    if verdict.root is not None and (last := attempts(file)[-1]).offset > start:
        verdict = _verdict_on(file, last)  # what stands before it is of an earlier run
    root = verdict.root
    if root is None or root.faint:
        return
    progress.ended = "stopped" if role_of(root) == "stop" else "failed"
    progress.ended_line = first_report(root, verdict.cascade)
    progress.failure = root.rule.name if root.rule is not None else None
    progress.eta_s = None


def _verdict_on(file: LogFile, attempt: Attempt) -> Verdict:
    scanned = scan(file, attempt, load_rules())
    return set_aside_handled(decide([scanned]), [scanned])


def _set_first_loss(progress: Progress, file: LogFile) -> None:
    """The iteration of the first loss that is no number, which may stand far above the end."""
    line = non_finite_loss_from(FileScan(file, last_run(file), 0))
    sample = read_line(line.text) if line is not None else None
    if sample is not None and sample.iteration is not None and sample.iteration >= 0:
        known = progress.loss_state_since
        first = sample.iteration
        progress.loss_state_since = first if known is None else min(known, first)
