"""Failures of jobs by themselves: of their hardware, and by their bugs.

SchedMate (section 5.3) takes them from a trace that is not public; here they are drawn. By default
only users restart jobs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields

from schedmate.durations import parse_duration
from schedmate.errors import UsageError
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world.faults import Again, Failure, Faults

NEVER = float("inf")

LEAST_MTBF_S = 600.0
"""Nodes or GPUs that fail more often end no job, and the simulation neither [s]."""


@dataclass(frozen=True)
class FailureRates:
    """How often jobs fail and how long people take; `gpu_mtbf=2000d,bugs=0.2,user=2h` sets some."""

    gpu_mtbf: float = 50_676.0 * 3600
    """GPU time between two failures of the infrastructure: Llama 3 saw 419 in 54 days on 16,384
    GPUs (section 3.3.4) [s of one GPU]."""
    bugs: float = 0.1
    """Share of jobs that fail once for a bug: an assumption; of Acme's jobs about 40 % fail."""
    bug_after: float = 300.0
    """Mean work until they do, exponential: bugs show early; an assumption [s]."""
    user: float = 3600.0
    """Time until a user notices a failure, fixes its cause and restarts the job: an assumption,
    much too short for nights and weekends [s]."""

    @classmethod
    def parse(cls, text: str) -> FailureRates:
        """Parse `gpu_mtbf=2000d,bugs=0.2,user=2h`; raises `UsageError` for anything else."""
        values: dict[str, float] = {}
        known = {one.name: one.default for one in fields(cls)}
        for part in filter(None, text.split(",")):
            key, _, value = part.partition("=")
            try:
                values[key] = float(value) if key == "bugs" else parse_duration(value)
                if key not in known or not 0 <= values[key] < NEVER:
                    raise ValueError(key)
            except ValueError:
                raise UsageError(
                    f"--failures: {part!r} is not a setting; write gpu_mtbf=2000d,bugs=0.2,user=2h "
                    "(bug_after too)."
                ) from None
        if values.get("bugs", 0.0) > 1 or values.get("gpu_mtbf", LEAST_MTBF_S) < LEAST_MTBF_S:
            raise UsageError(
                f"--failures: bugs is a share from 0 to 1, gpu_mtbf at least {LEAST_MTBF_S:g} s."
            )
        return cls(**values)


class JobFailures(Faults):
    """Fails jobs by `rates`, and lets their users restart them from the last checkpoint.

    Infrastructure fails at random over the GPU time that a job uses. A bug fails its job at the
    same work again and again until the user has mended it. The seed decides both, whatever the
    policy.
    """

    def __init__(self, workload: Workload, rates: FailureRates, seed: int = 0) -> None:
        self.rates = rates
        self.seed = seed
        self._workload = workload
        self._mended: set[int] = set()
        self._resumed: dict[int, float] = {}
        self._broken: dict[int, int] = {}

    def fails_at(self, job: int, attempt: int) -> float:
        """See `Faults.fails_at`."""
        return min(self._bug_at(job), self._breaks_at(job))

    def after(self, failure: Failure) -> Again | None:
        """See `Faults.after`."""
        if failure.node is not None:
            self._resumed[failure.job] = failure.saved
            return super().after(failure)
        return self.by_user(failure)

    def is_bug(self, failure: Failure) -> bool:
        """Whether it was a bug: the truth, which no handler knows."""
        return self._bug_at(failure.job) <= self._breaks_at(failure.job)

    def by_user(self, failure: Failure) -> Again:
        """The user restarts the job, with the bug mended if that was it."""
        bug = self.is_bug(failure)
        again = self.restart(failure, self.rates.user)
        if bug:
            self._mended.add(failure.job)
        return again

    def restart(self, failure: Failure, wait_s: float) -> Again:
        """The job resumes from its checkpoint, unchanged."""
        job = failure.job
        if not self.is_bug(failure):
            self._broken[job] = self._broken.get(job, 0) + 1
        self._resumed[job] = failure.saved
        return Again(wait_s, failure.saved)

    def _bug_at(self, job: int) -> float:
        if job in self._mended:
            return NEVER
        draw = random.Random(f"{self.seed}/bug/{job}")  # noqa: S311 - an experiment
        if draw.random() >= self.rates.bugs:
            return NEVER
        at = draw.expovariate(1.0 / max(self.rates.bug_after, 1e-9))
        return min(at, 0.9 * self._workload.duration_s[job])

    def _breaks_at(self, job: int) -> float:
        count = self._broken.get(job, 0)
        draw = random.Random(f"{self.seed}/break/{job}/{count}")  # noqa: S311 - an experiment
        mean = self.rates.gpu_mtbf / self._workload.jobs[job].gpus
        return self._resumed.get(job, 0.0) + draw.expovariate(1.0 / mean)
