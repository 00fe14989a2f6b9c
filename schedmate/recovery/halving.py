"""Finding the faulty nodes of many with few runs of a collective: O(log n) for one faulty node.

A collective over a group fails if any node of it is faulty. A group that fails is split into
halves; if the first half passes, only the other can contain the fault. A single node is tested
together with one that is known to be healthy, since a node alone does not use its network. The
result is proved: an accused node fails with two healthy ones, each alone (with one of them the
cause may be the link between them), and all others pass together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from schedmate.terminal import counted

Tested = Literal["healthy", "faulty", "unclear"]
Test = Callable[[tuple[str, ...]], Tested]
"""Runs the collective over some nodes."""


class Search(NamedTuple):
    """Result of a search. `faulty` and `sound` are proved; the other nodes are undecided."""

    faulty: tuple[str, ...]
    sound: tuple[str, ...]
    runs: int
    detail: str


class _UnclearError(Exception):
    pass


def find_faulty(nodes: Sequence[str], test: Test, *, most_runs: int = 64) -> Search:
    """The faulty ones of `nodes`. Without a proof no node is accused: an unclear run, too
    many runs, or halves that pass alone and fail together end the search."""
    return _Searching(tuple(dict.fromkeys(nodes)), test, most_runs).search()


class _Searching:
    def __init__(self, nodes: tuple[str, ...], test: Test, most_runs: int) -> None:
        self.nodes, self._test, self.most_runs = nodes, test, most_runs
        self.runs = 0
        self.sound: list[str] = []
        self.suspects: list[str] = []

    def search(self) -> Search:
        try:
            if self._passes(self.nodes):
                return self._result((), "all nodes pass together")
            self._split(self.nodes)
            return self._proved()
        except _UnclearError as error:
            return self._result((), str(error))

    def _passes(self, group: tuple[str, ...]) -> bool:
        if self.runs >= self.most_runs:
            raise _UnclearError(f"not decided within {counted(self.most_runs, 'run')}")
        self.runs += 1
        result = self._test(group)
        if result == "unclear":
            raise _UnclearError(f"the run over {counted(len(group), 'node')} was unclear")
        if result == "healthy":
            self.sound += [node for node in group if node not in self.sound]
        return result == "healthy"

    def _split(self, group: tuple[str, ...]) -> None:
        """Split a group that fails until single nodes are left, which are suspects."""
        if len(group) == 1:
            self.suspects += group
            return
        first, second = group[: len(group) // 2], group[len(group) // 2 :]
        failing = [first, second]
        if self._clears(first):
            failing = [second]  # without a run: the group fails, and not because of the first
        elif self._clears(second):
            failing = [first]
        for half in failing:
            self._split(half)

    def _clears(self, group: tuple[str, ...]) -> bool:
        """Whether a run clears a group; a single node cannot be cleared without a sound one."""
        if len(group) > 1:
            return self._passes(group)
        helper = next((node for node in self.sound if node not in group), None)
        return helper is not None and self._passes((*group, helper))

    def _proved(self) -> Search:
        if not self.sound:
            self._find_sound()
        rest = tuple(node for node in self.nodes if node not in self.suspects)
        named = ", ".join(self.suspects[:8])
        if rest and not self._passes(rest):
            raise _UnclearError(f"no single node explains it: the others fail without {named}")
        faulty = tuple(node for node in self.suspects if self._fails_for_itself(node))
        if not faulty:
            raise _UnclearError(
                f"no node is at fault for itself; look at the network between {named} and the rest"
            )
        return self._result(faulty, f"{', '.join(faulty)} fail with nodes that are sound")

    def _fails_for_itself(self, node: str) -> bool:
        helpers = [one for one in self.sound if one != node and one not in self.suspects]
        if not helpers:
            return not self._passes((node,))
        # the first and the last: the most different ones, where names follow the network
        different = dict.fromkeys((helpers[0], helpers[-1]))
        return not any(self._passes((node, one)) for one in different)

    def _find_sound(self) -> None:
        """Find two suspects that pass together, if no node is known to be healthy."""
        pairs = zip(self.suspects, self.suspects[1:] + self.suspects[:1], strict=True)
        if len(self.suspects) > 2 and any(self._passes(pair) for pair in pairs):
            self.suspects = [node for node in self.suspects if node not in self.sound]

    def _result(self, faulty: tuple[str, ...], detail: str) -> Search:
        sound = tuple(node for node in self.nodes if node in self.sound and node not in faulty)
        return Search(faulty, sound, self.runs, detail)
