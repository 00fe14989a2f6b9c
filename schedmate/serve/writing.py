"""Writes to the history: many requests in one transaction, whose cost they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from schedmate.errors import SchedmateError
from schedmate.jobs import JobRecord
from schedmate.retrieval.history import JobHistory
from schedmate.serve.errors import AbsentError, ConflictError
from schedmate.serve.models import FinishRequest


@dataclass(frozen=True, slots=True)
class Store:
    """Store these jobs; with `new`, not in the place of one that has ended."""

    jobs: Sequence[JobRecord]
    new: bool = False


Write = Store | FinishRequest
Written = Sequence[JobRecord]


class Writer:
    """Answers a batch of writes, in order. An answer means that the disk has it."""

    def __init__(self, history: JobHistory, on_written: Callable[[Written], None]) -> None:
        self._history = history
        self._on_written = on_written

    def __call__(self, writes: Sequence[Write]) -> list[Written | Exception]:
        """The result for each: its jobs as stored, or the error."""
        answers: list[Written | Exception] = []
        at = 0
        while at < len(writes):
            one = writes[at]
            if isinstance(one, FinishRequest):
                answers.append(self._alone(one))
                at += 1
                continue
            run = [one]
            for other in writes[at + 1 :]:
                if not isinstance(other, Store) or other.new:
                    break
                run.append(other)
            answers += self._together(run)
            at += len(run)
        for answer in answers:
            if not isinstance(answer, Exception):
                self._on_written(answer)
        return answers

    def _together(self, run: Sequence[Store]) -> list[Written | Exception]:
        if len(run) > 1:
            try:
                self._history.add_many(job for one in run for job in one.jobs)
            except SchedmateError:
                pass  # one of them cannot be stored: each for itself
            else:
                return [one.jobs for one in run]
        return [self._alone(one) for one in run]

    def _alone(self, write: Write) -> Written | Exception:
        try:
            if isinstance(write, FinishRequest):
                return [self._finish(write)]
            if write.new:
                self._refuse_ended(write.jobs)
            self._history.add_many(write.jobs)
        except SchedmateError as error:
            return error
        return write.jobs

    def _finish(self, one: FinishRequest) -> JobRecord:
        if self._history.get(one.job_id) is None:
            raise AbsentError(f"no job {one.job_id!r} in the history; store it first.")
        usage = one.model_dump(exclude_none=True, exclude={"job_id"})
        return self._history.finish(one.job_id, **usage)

    def _refuse_ended(self, jobs: Sequence[JobRecord]) -> None:
        for job in jobs:
            known = self._history.get(job.job_id)
            if known is not None and known.ended:
                raise ConflictError(
                    f"job {job.job_id} is in the history as {known.state}; record this one under "
                    "another job id."
                )
