"""Placement and preemption for two preemptive queues: see `service_loop.py`.

A waiting job can have the free GPUs and those of every running job that ranks after it. On no node
does their number increase when a job that ranks after it starts, ends or is stopped; so a refused
job is tried again only on nodes from which jobs that rank before it have left or dropped to the
second queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from schedmate.schedulers.model import Allocation
from schedmate.schedulers.pools import lowest
from schedmate.schedulers.sim.serving import Left, Serving

_NOTHING = (1 << 62, True)


class Room(Serving):
    """What `policies.room` does, by places."""

    def bar(self, place: int) -> int:
        """The last place with the rank of this one: those behind it rank after it."""
        count = self.count
        return self.last[place] if place < count else self.last[place - count] + count

    def hopeless(self, head: tuple[int, int], left: Iterable[Left]) -> bool:
        """Whether a refused job would be refused again, since nothing has changed for it."""
        place, kind = head
        bar, group, wanted = self.bar(place), self.group[kind], self.gpus[kind]
        for was, of, held in left:
            if of == group and was > bar:
                continue
            if wanted > self.smallest or self.enough(held, group, bar, wanted):
                return False
        return True

    def enough(self, held: Allocation, group: int, bar: int, wanted: int) -> bool:
        """Whether one of these nodes could free this number of GPUs for a job with this bar."""
        free, places, kinds, groups = self.space.free, self.place, self.kind, self.group
        for node, _ in held:
            found = free[node].bit_count()
            for other, gpus in self.on[node].items():
                if places[other] > bar and groups[kinds[other]] == group:
                    found += gpus
            if found >= wanted:
                return True
        return False

    def offer(
        self,
        place: int,
        kind: int,
        unmet: dict[int, tuple[int, bool]],
        out: list[tuple[int, int]],
        stopped: list[int],
    ) -> Allocation | None:
        """Find and book GPUs for a job, preempting others if necessary; see `Preemptive`.

        `unmet`: by group, GPUs that no later job gets, and whether that is certain.
        """
        group, wanted, space = self.group[kind], self.gpus[kind], self.space
        least, certain = unmet.get(group, _NOTHING)
        held = space.place(self.asking[kind]) if space.idle else None
        if held is not None:
            return held
        if wanted < least:
            for at, other in out:
                if at < place and self.gpus[other] <= wanted and self.group[other] == group:
                    # Jobs that rank before it and need no more could not be placed either.
                    least, certain = wanted, True
                    break
        if wanted >= least:
            if wanted > self.smallest:
                self.sure[kind] = certain and self.alike
            return None
        bar = self.bar(place)
        if wanted <= space.largest:
            held, largest = self.on_a_node(kind, bar, stopped)
            certain = True
        else:
            held, certain = self.anywhere(kind, bar, stopped)
            largest = wanted
            self.sure[kind] = certain and self.alike
        if held is None:
            unmet[group] = min(wanted, largest + 1), certain
        else:
            space.take(self.asking[kind], held)
        return held

    def on_a_node(self, kind: int, bar: int, stopped: list[int]) -> tuple[Allocation | None, int]:
        """Stop the last jobs that rank after `bar`, so that the job fits on one node.

        If it cannot: the most GPUs that one node could free.
        """
        places = self.running[self.group[kind]]
        if not places or places[-1] <= bar:
            return None, self.space.freest(self.asking[kind])
        wanted, free, held, count = self.gpus[kind], self.space.free, self.held, self.count
        counts: dict[int, int] = {}
        walked: list[int] = []
        for place in reversed(places):
            if place <= bar:
                break
            job = place if place < count else place - count
            walked.append(job)
            enough = -1
            for node, mask in held[job]:
                before = counts.get(node)
                if before is None:
                    before = free[node].bit_count()
                counts[node] = after = before + mask.bit_count()
                if before < wanted <= after:
                    enough = node
            if enough >= 0:
                mask = free[enough]
                for job in walked:
                    for node, theirs in held[job]:
                        if node == enough:
                            mask |= theirs
                found = ((enough, lowest(mask, wanted)),)
                self.clear(found, walked, stopped)
                return found, 0
        return None, max(self.space.freest(self.asking[kind]), *counts.values())

    def anywhere(self, kind: int, bar: int, stopped: list[int]) -> tuple[Allocation | None, bool]:
        """The same for a gang over several nodes.

        If it cannot: whether it would not fit even with all of them stopped.
        """
        space, wanted, count = self.space, self.gpus[kind], self.count
        free, whole, asking = space.free, space.largest, self.asking[kind]
        missing, gpus = wanted // whole - space.whole(asking), space.idle
        counts: dict[int, int] = {}
        walked: list[int] = []
        for place in reversed(self.running[self.group[kind]]):
            if place <= bar:
                break
            job = place if place < count else place - count
            walked.append(job)
            opened = False
            for node, mask in self.held[job]:
                before = counts[node] if node in counts else free[node].bit_count()
                counts[node] = after = before + mask.bit_count()
                gpus += mask.bit_count()
                if before < whole <= after:
                    missing -= 1
                    opened = True
            if opened and missing <= 0 and gpus >= wanted and (found := self.try_(kind, walked)):
                self.clear(found, walked, stopped)
                return found, True
        return None, missing > 0 or gpus < wanted

    def try_(self, kind: int, walked: Sequence[int]) -> Allocation | None:
        """Where a job would go, were all of these off their GPUs."""
        space, asking = self.space, self.asking
        space.begin()
        for job in walked:
            space.give(asking[self.kind[job]], self.held[job])
        found = space.find(asking[kind])
        space.rollback()
        return found

    def clear(self, allocation: Allocation, walked: Iterable[int], stopped: list[int]) -> None:
        """Stop the examined jobs that are in the way."""
        wanted = dict(allocation)
        for job in walked:
            for node, mask in self.held[job]:
                if wanted.get(node, 0) & mask:
                    self.off(job)
                    stopped.append(job)
                    break
