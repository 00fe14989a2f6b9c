"""Estimates of queued jobs: from their code once, within a time budget, and again as runs end."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from schedmate.base.errors import SchedmateError
from schedmate.base.inputs import format_duration
from schedmate.cluster.actions import REASON_PREFIX
from schedmate.cluster.adapter import ClusterAdapter, Description, LiveJob
from schedmate.cluster.bounds import Bounds
from schedmate.cluster.memory import KnownJob, Memory
from schedmate.cluster.report import Estimated, Pass
from schedmate.jobs import Estimate, JobSpec, WorkloadMetadata
from schedmate.mate import Analysis, SchedMate

DESCRIBED = 20
"""Most new jobs described by one call of the adapter, which costs a command for each script."""


def newest_first(jobs: Iterable[LiveJob]) -> list[LiveJob]:
    """Jobs in the order in which their code is read.

    Each user's newest job comes before anybody's second, and so on, so that neither an old backlog
    nor another user's thousand jobs keep a newcomer waiting. Running jobs come last: they cannot be
    reordered any more.
    """
    ranks: Counter[tuple[str, str]] = Counter()
    ordered: list[tuple[bool, int, int, LiveJob]] = []
    for job in sorted(jobs, key=lambda job: -(job.submitted or 0.0)):
        ranks[job.state, job.user] += 1
        ordered.append((job.state != "PENDING", ranks[job.state, job.user], len(ordered), job))
    return [job for *_, job in sorted(ordered, key=lambda one: one[:3])]


class Advising:
    """The Scheduling Advisor's part of the loop."""

    def __init__(
        self,
        adapter: ClusterAdapter,
        mate: SchedMate,
        memory: Memory,
        bounds: Bounds,
        clock: Callable[[], float],
    ) -> None:
        self._adapter, self._mate, self._memory = adapter, mate, memory
        self._bounds, self._clock = bounds.advise, clock
        self._every_s, self._look_at = bounds.learn.every, 0.0
        self._history: tuple[int, int] | None = None
        self.estimates: dict[str, Estimate] = {}
        """Estimates of the jobs in the queue, by key."""
        self._stale: dict[str, None] = {}
        """Keys of waiting jobs whose estimates are older than the history, the longest first."""

    def ask_again(self, jobs: Iterable[LiveJob]) -> None:
        """The history has grown: the estimates of those jobs that wait are to be made again."""
        self._stale |= {job.key: None for job in jobs if job.state == "PENDING"}

    def _look_at_history(self, jobs: Sequence[LiveJob]) -> None:
        """Notice what others wrote into the history (an import, the service, another cluster).

        The first time, after a start, nobody knows what was written meanwhile.
        """
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + self._every_s
        version = self._mate.history_version()
        if version != self._history:
            self._history = version
            self.ask_again(job for job in jobs if job.key in self.estimates)

    def advise(self, jobs_now: list[LiveJob], report: Pass) -> None:
        """Estimate the jobs that have no estimate yet, in the order of `newest_first`."""
        deadline = time.monotonic() + self._bounds.seconds
        keys = {job.key for job in jobs_now}
        self.estimates = {key: estimate for key, estimate in self.estimates.items() if key in keys}
        missing = [key for key in keys if key not in self.estimates]
        self.estimates |= self._memory.estimates(missing)
        self._look_at_history(jobs_now)
        new = {job.key: job for job in jobs_now if job.key not in self.estimates}
        queue = newest_first(new.values())
        reader = CodeReader(self._mate, self._bounds.each)
        done = 0
        while done < len(queue) and time.monotonic() < deadline:
            some = {job.key: job for job in queue[done : done + DESCRIBED]}
            described = self._adapter.describe([job.id for job in some.values()])
            jobs = [(job.key, described[job.id]) for job in some.values() if job.id in described]
            estimated = 0
            for known_job in reader.known_jobs(jobs, self._clock(), deadline):
                estimated += 1
                job = some[known_job.key]
                report.problems += described[job.id].problems  # once, as the job is remembered
                self._keep(known_job, job, report)
            done += len(some) - (len(jobs) - estimated)
        report.unread = len(queue) - done
        self._advise_again([job for job in jobs_now if job.state == "PENDING"], deadline, report)

    def _keep(self, known_job: KnownJob, job: LiveJob, report: Pass) -> None:
        self._memory.remember(known_job)
        self.estimates[job.key] = known_job.estimate
        report.estimated.append(Estimated(job=job.id, user=job.user, estimate=known_job.estimate))

    def _advise_again(self, pending: Sequence[LiveJob], deadline: float, report: Pass) -> None:
        """Update estimates of waiting jobs when more runs are known; code is not read again.

        That includes jobs without an estimate so far. Those that differ in nothing are asked for
        once.
        """
        jobs = {job.key: job for job in pending}
        answers: dict[tuple[str, str], Estimate] = {}
        for key in list(self._stale):
            if time.monotonic() >= deadline:
                return
            del self._stale[key]
            job, known_job = jobs.get(key), self._memory.known(key)
            if job is None or known_job is None:
                continue
            metadata, launch = known_job.metadata, known_job.spec.launch
            spec = known_job.spec
            alike = spec.model_dump_json(exclude={"job_id", "submit_time"})
            question = alike, metadata.model_dump_json()
            estimate = answers.get(question)
            if estimate is None:
                estimate = self._mate.estimate(metadata, launch, self._clock(), spec)
                answers[question] = estimate
            if estimate.duration_s != known_job.estimate.duration_s:
                self._memory.remember(known_job._replace(estimate=estimate))
                self.estimates[key] = estimate
                report.estimated.append(
                    Estimated(job=job.id, user=job.user, estimate=estimate, again=True)
                )


class CodeReader:
    """Reads the code of jobs, for one pass: metadata and an estimate; without code, an estimate by
    user, name and limits.

    Jobs of one directory with the same script, arguments and resources share one reading: within a
    pass each reading would see the same files. Other variants of a directory are read together in
    one process, which costs a fifth of a process each.
    """

    AT_ONCE = 10
    """Most variants that are read in one process."""

    def __init__(self, mate: SchedMate, budget_s: float) -> None:
        """`budget_s` bounds the reading of each job [s of CPU time]."""
        self._mate, self._budget_s = mate, budget_s
        self._read: dict[tuple[str, ...], Analysis | SchedmateError] = {}
        self._estimates: dict[str, Estimate] = {}
        self._cost_s: dict[str, float] = {}
        """Time that a variant of a directory took [s]."""

    def known_jobs(
        self, jobs: Sequence[tuple[str, Description]], now: float, deadline: float = math.inf
    ) -> Iterator[KnownJob]:
        """The jobs, by key and description; at least the first, not all if the time is over before.

        `now` is in [s since epoch], `deadline` by `time.monotonic` [s].
        """
        variants: dict[tuple[str, ...], list[tuple[str, Description]]] = {}
        for key, description in jobs:
            if description.no_code:
                yield self._without_code(key, description, description.no_code, now)
            else:
                variants.setdefault(_variant_of(description.spec), []).append((key, description))
        first = True
        while variants and (first or time.monotonic() < deadline):
            first = False
            variant = next(iter(variants))
            if variant not in self._read:
                self._read_with_siblings(variant, variants, deadline)
            analysis = self._read[variant]
            for key, description in variants.pop(variant):
                if isinstance(analysis, SchedmateError):
                    # the command derived from the script was typed by no user
                    problem = f"{analysis}".split("...` ", 1)[-1]
                    why = f"its code cannot be read: {problem}"
                    yield self._without_code(key, description, why, now)
                    continue
                spec = description.spec.model_copy(update={"launch": analysis.launch})
                estimate = analysis.estimate
                if (spec.user, spec.name) != (analysis.spec.user, analysis.spec.name):
                    estimate = self._estimate(spec, analysis.metadata, now)
                yield KnownJob(
                    *(key, now, spec, analysis.metadata, estimate),
                    *(description.log, description.errors),
                )

    def _estimate(self, spec: JobSpec, metadata: WorkloadMetadata, now: float) -> Estimate:
        """The estimate of a job; those that differ in nothing share one."""
        question = spec.model_dump_json(exclude={"job_id", "submit_time"})
        if question not in self._estimates:
            self._estimates[question] = self._mate.estimate(metadata, spec.launch, now, spec)
        return self._estimates[question]

    def _without_code(self, key: str, description: Description, why: str, now: float) -> KnownJob:
        """A job of which only user, name, command and launch are known; abstained, `why`."""
        estimate = self._estimate(description.spec, WorkloadMetadata(), now)
        if estimate.abstained and not estimate.quantiles_s:
            estimate = Estimate(reason=why)
        return KnownJob(
            *(key, now, description.spec, WorkloadMetadata(), estimate),
            *(description.log, description.errors),
        )

    def _read_with_siblings(
        self,
        variant: tuple[str, ...],
        variants: Mapping[tuple[str, ...], list[tuple[str, Description]]],
        deadline: float,
    ) -> None:
        """Read a variant, and with it others of its directory if there is time for them."""
        repo = variant[0]
        cost_s, left_s = self._cost_s.get(repo), deadline - time.monotonic()
        count = 1 if cost_s is None else int(max(1, min(self.AT_ONCE, left_s / cost_s)))
        siblings = [one for one in variants if one[0] == repo and one not in self._read][:count]
        specs = [variants[one][0][1].spec for one in siblings]
        began = time.monotonic()
        answers = self._mate.analyze_variants(specs, budget_s=self._budget_s)
        self._cost_s[repo] = max(1e-3, (time.monotonic() - began) / len(siblings))
        self._read.update(zip(siblings, answers, strict=True))


def _variant_of(spec: JobSpec) -> tuple[str, ...]:
    return spec.repo or "", spec.command or "", spec.launch.model_dump_json()


def note_of(estimate: Estimate) -> str:
    """An estimate as the note on a job."""
    if estimate.endless:
        return f"{REASON_PREFIX} does not end by itself"
    low, high = estimate.duration_p10_s, estimate.duration_p90_s
    text = f"{REASON_PREFIX} about {format_duration(estimate.duration_s or 0.0)}"
    if low is not None and high is not None:
        text += f" ({format_duration(low)} to {format_duration(high)})"
    count = estimate.past_jobs
    return f"{text}, from {count} past run{'s' * (count != 1)}"
