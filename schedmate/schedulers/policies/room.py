"""Chooses the jobs to stop for a waiting job: the last in rank, no more than needed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.model import Allocation, Job
from schedmate.schedulers.pools import lowest
from schedmate.schedulers.view import View


class Stopped(set[Job]):
    """The running jobs that a decision has stopped so far."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[Hashable, int] = {}
        """Number of jobs at the end of each group that can be skipped."""


class Room(NamedTuple):
    """The jobs to stop so that a job can start."""

    victims: list[Job]
    """Released in the view's space already."""
    allocation: Allocation | None
    """The job's allocation; None: it cannot fit."""
    largest: int = 0
    """If it cannot: the most GPUs that one node could free."""


def make_room(view: View, job: Job, bar: Rank, stopped: Stopped) -> Room:
    """Release the last of the running jobs that rank after `bar`, so that `job` fits.

    They are of the job's own group: its lane among the running is (VC, GPU type). Only those on
    the nodes that the job will get are released.
    """
    plain = job.share == 1.0 and not job.cpus and not job.memory_mb
    if plain and job.gpus <= view.space.largest:
        return _on_a_node(view, job, bar, stopped)
    return _anywhere(view, job, bar, stopped)


def _on_a_node(view: View, job: Job, bar: Rank, stopped: Stopped) -> Room:
    wanted, group = job.gpus, (job.vc, job.gpu_type)
    free = view.space.free
    counts: dict[int, int] = {}  # of a node, were those so far released
    first, known = stopped.first.get(group, 0), counts.get
    walked = first
    for victim in view.running.after(bar, group, first):
        walked += 1
        if not victim.preemptible or victim in stopped:
            if walked == first + 1:
                first = stopped.first[group] = walked
            continue
        enough = -1
        for node, mask in victim.allocation:
            before = known(node)
            if before is None:
                before = free[node].bit_count()
            counts[node] = count = before + mask.bit_count()
            if before < wanted <= count:
                enough = node
        if enough < 0:
            continue
        victims = [victim]
        if walked > first + 1:
            victims = _walked(view, group, bar, stopped, first, walked)
        if all(one.share == 1.0 for one in victims):
            # No other node has enough, or it would have been found before.
            mask = free[enough]
            for one in victims:
                for node, held in one.allocation:
                    if node == enough:
                        mask |= held
            return _release(view, victims, ((enough, lowest(mask, wanted)),))
        if found := _try(view, job, victims):
            return _release(view, victims, found)
    largest = view.space.freest(job)
    return Room([], None, max(largest, *counts.values()) if counts else largest)


def _anywhere(view: View, job: Job, bar: Rank, stopped: Stopped) -> Room:
    """For a gang over several nodes, and for a job that takes more than whole GPUs."""
    space, free, group = view.space, view.space.free, (job.vc, job.gpu_type)
    whole = min(job.gpus, space.largest)
    missing, gpus = job.gpus // whole - space.whole(job), space.idle
    counts: dict[int, int] = {}
    first = stopped.first.get(group, 0)
    for walked, victim in enumerate(view.running.after(bar, group, first), first + 1):
        if victim in stopped or not victim.preemptible:
            continue
        opened = False
        for node, mask in victim.allocation:
            before = counts[node] if node in counts else free[node].bit_count()
            counts[node] = count = before + mask.bit_count()
            gpus += mask.bit_count()
            if before < whole <= count:
                missing -= 1
                opened = True
        if opened and missing <= 0 and gpus >= job.gpus:
            victims = _walked(view, group, bar, stopped, first, walked)
            if found := _try(view, job, victims):
                return _release(view, victims, found)
    return Room([], None, job.gpus)


def _walked(
    view: View, group: Hashable, bar: Rank, stopped: Stopped, first: int, last: int
) -> list[Job]:
    """Those between two places of the walk that can be stopped."""
    found = zip(range(first, last), view.running.after(bar, group, first), strict=False)
    return [one for _, one in found if one.preemptible and one not in stopped]


def _try(view: View, job: Job, victims: Iterable[Job]) -> Allocation | None:
    """Where the job would go, were all of these released."""
    space = view.space
    mark = space.mark()
    for victim in victims:
        space.give(victim, victim.allocation)
    allocation = space.find(job)
    space.return_to(mark)
    return allocation


def _release(view: View, victims: list[Job], allocation: Allocation) -> Room:
    """Release those of the victims that are in the way."""
    wanted, needed = dict(allocation), []
    for victim in victims:
        for node, mask in victim.allocation:
            if wanted.get(node, 0) & mask:
                needed.append(victim)
                view.space.give(victim, victim.allocation)
                break
    return Room(needed, allocation)
