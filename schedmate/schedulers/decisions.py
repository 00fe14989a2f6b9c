"""The decisions that a policy returns, and the executor's answers to them."""

from __future__ import annotations

from typing import Literal, NamedTuple

from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.terms import Capabilities


class Start(NamedTuple):
    """Run a waiting job on free GPUs, or on GPUs of jobs that were asked to stop.

    In the latter case the GPUs are reserved, and the job starts when those have left.
    """

    job: Job
    allocation: Allocation


class Pack(NamedTuple):
    """Run a waiting job on the GPUs of another that runs alone on the same number."""

    job: Job
    partner: Job


class Evict(NamedTuple):
    """Take a job off its GPUs; it waits again, and a partner continues alone.

    Its work since the last checkpoint is lost. With `grace_s` it is asked to stop and holds its
    GPUs until it has, at most for that time; it loses nothing if it saves a checkpoint meanwhile.
    """

    job: Job
    grace_s: float = 0.0
    """[s]"""


class Preempt(NamedTuple):
    """Stop a job that runs alone; it keeps its progress and waits again."""

    job: Job


class Resize(NamedTuple):
    """Move an elastic job to other GPUs, more or fewer."""

    job: Job
    allocation: Allocation


class Migrate(NamedTuple):
    """Move a running job to the same number of other GPUs.

    With `overlap` it keeps running while it is started there, and holds both sets meanwhile.
    """

    job: Job
    allocation: Allocation
    overlap: bool = False


class Borrow(NamedTuple):
    """Run a waiting job on borrowed GPUs: of another virtual cluster, or lent by a job.

    A virtual cluster gets them back by an `Evict` or `Preempt`; a job reclaims them by itself.
    """

    job: Job
    allocation: Allocation


class Drop(NamedTuple):
    """Give up a job, waiting or running: it is counted as dropped."""

    job: Job
    why: str = ""


class Profile(NamedTuple):
    """Run a waiting job alone for at most `limit_s` to measure its GPU use.

    A job that ends within the limit is done; any other waits again, with its `profile` known.
    """

    job: Job
    allocation: Allocation
    limit_s: float
    """[s]"""


Decision = Start | Pack | Evict | Preempt | Resize | Migrate | Profile | Borrow | Drop


_NEEDS: dict[type, str] = {
    Pack: "pack",
    Preempt: "preempt",
    Evict: "evict",
    Resize: "resize",
    Migrate: "migrate",
    Profile: "profile",
    Borrow: "borrow",
    Drop: "drop",
}


def needs(decision: Decision, can: Capabilities) -> str:
    """The capability that this decision needs and the executor lacks, by name; empty: none."""
    what = _NEEDS.get(type(decision), "")
    if what and not getattr(can, what):
        return what
    return "overlap" if isinstance(decision, Migrate) and decision.overlap > can.overlap else ""


class Answer(NamedTuple):
    """The executor's answer to a decision."""

    decision: Decision
    state: Literal["accepted", "refused", "late"]
    """`late`: carried out, but after the executor's deadline."""
    why: str = ""
    """Reason of a refusal."""
    at: float = 0.0
    """[s]"""
