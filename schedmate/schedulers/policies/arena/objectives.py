"""Objectives of Arena's scheduler: throughput, deadlines or fairness (section 3.5).

Speed and remaining time of a job are relative to the speed on its requested GPUs, so that different
jobs can be added up.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedmate.schedulers.goodput.planned import Size

Worth = tuple[float, float]
"""Compared in order; the second number decides between equals."""

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Prospect:
    """How a job could continue."""

    speeds: dict[Size, float]
    """Throughput by size, relative to that of the requested size (or its best, if that fails)."""
    held: Size | None = None
    """Its present size."""
    left_s: float = NEVER
    """Remaining time at speed 1 [s]; infinity: unknown."""
    total_s: float = NEVER
    """Total time at speed 1 [s]."""
    age_s: float = 0.0
    """Time since it was submitted [s]."""
    change_s: float = 0.0
    """Cost of a change of its size [s]."""
    busy_s: float = 0.0
    """Time until it makes progress on its present GPUs [s]."""
    deadline_s: float = NEVER
    """Time until its deadline [s]."""

    def ends_s(self, size: Size) -> float:
        """Time until it is done if it has this size from now on [s]."""
        speed = self.speeds.get(size, 0.0)
        if speed <= 0:
            return NEVER
        return self.left_s / speed + (self.busy_s if size == self.held else self.change_s)


class Objective:
    """Equation 5: the most throughput in all."""

    def __init__(self, *, remaining: bool = False) -> None:
        """`remaining`: only what a change gains in the time that a job has left counts."""
        self.remaining = remaining

    def gain(self, job: Prospect, before: Size, after: Size) -> Worth:
        """Worth of giving a job a better size."""
        more = job.speeds[after] - job.speeds.get(before, 0.0)
        if self.remaining and job.left_s < NEVER:
            # The part of its remaining time that it saves.
            now_s = job.ends_s(before)
            more *= max(0.0, 1.0 - job.ends_s(after) / now_s) if now_s < NEVER else 1.0
        return more, 0.0

    def loss(self, job: Prospect, before: Size, after: Size, freed: int) -> Worth:
        """Worth of giving a job a worse size, for each GPU that is freed: negative."""
        return (job.speeds[after] - job.speeds.get(before, 0.0)) / freed, 0.0

    def sizes(self, job: Prospect) -> dict[Size, float]:
        """The sizes among which it may get one."""
        return job.speeds


class Deadlines(Objective):
    """Equation 6: the same, of sizes on which every job meets its deadline."""

    def __init__(self, *, remaining: bool = False, margin: float = 0.05) -> None:
        """`margin`: the part by which a change must be early, as throughputs are estimates."""
        super().__init__(remaining=remaining)
        self.margin = margin

    def sizes(self, job: Prospect) -> dict[Size, float]:
        """Sizes with which it meets its deadline; empty: none."""
        if job.deadline_s == NEVER:
            return job.speeds
        within = job.deadline_s / (1 + self.margin)
        return {
            size: speed
            for size, speed in job.speeds.items()
            if job.ends_s(size) <= (job.deadline_s if size == job.held else within)
        }


class Fairness(Objective):
    """Equation 7: minimise the largest finish-time ratio.

    The equation divides the remaining time by "allocated resources" that it does not define; this
    is the ratio of Themis (NSDI'20), to which it refers: the time from submission to the end over
    the time that the job takes alone on its requested GPUs.
    """

    def ratio(self, job: Prospect, size: Size) -> float:
        """The finish-time ratio if it has this size from now on."""
        if job.total_s == NEVER or job.total_s <= 0:
            return 1.0 / max(job.speeds.get(size, 0.0), 1e-9)
        return (job.age_s + job.ends_s(size)) / job.total_s

    def gain(self, job: Prospect, before: Size, after: Size) -> Worth:
        """The worst-treated job comes first."""
        now, then = self.ratio(job, before), self.ratio(job, after)
        return (now, now - then) if then < now else (0.0, 0.0)

    def loss(self, job: Prospect, before: Size, after: Size, freed: int) -> Worth:
        """The job that is then best treated comes first."""
        return -self.ratio(job, after), super().loss(job, before, after, freed)[0]


OBJECTIVES: dict[str, type[Objective]] = {
    "throughput": Objective,
    "deadline": Deadlines,
    "fairness": Fairness,
}
