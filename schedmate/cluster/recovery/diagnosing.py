"""Runs the administrator's diagnostics on nodes, and searches many nodes for the faulty ones.

`Diagnosing` is an executor around that of the cluster which handles `Diagnose`. The answer's `data`
states for each node whether it is healthy, faulty or unclear, and why; a later plan is based on it.
Diagnostics change nothing, so an interrupted one is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

from schedmate.base.terminal import counted
from schedmate.cluster.actions import Action, Diagnose
from schedmate.cluster.adapter import Answer, Executor, Finding, Runner
from schedmate.cluster.recovery.configuration import Configuration, Diagnostic
from schedmate.cluster.recovery.health import Health, assess

SHOWN = 20
"""Complaints of a node that are kept."""


class Diagnosing:
    """Takes `Diagnose` actions through a `Runner`, and all others through `executor`."""

    def __init__(self, executor: Executor, runner: Runner, configuration: Configuration) -> None:
        self.executor, self.runner, self.configuration = executor, runner, configuration
        self.name = executor.name

    def probe(self, action: Action) -> Finding:
        """A diagnostic can always be run once more."""
        if isinstance(action, Diagnose):
            if action.diagnostic not in self.configuration.diagnostics:
                return Finding("changed", f"recovery.yaml has no diagnostic {action.diagnostic}")
            return Finding("ready")
        return self.executor.probe(action)

    def act(self, action: Action, *, key: str, timeout_s: float) -> Answer:
        """Run the diagnostic on each node, or search with it for those at fault."""
        if not isinstance(action, Diagnose):
            return self.executor.act(action, key=key, timeout_s=timeout_s)
        diagnostic = self.configuration.diagnostics[action.diagnostic]
        if action.how == "halving":
            return self._searched(diagnostic, action, key)
        with ThreadPoolExecutor(max_workers=diagnostic.at_once) as pool:
            runs = [
                pool.submit(self._run, diagnostic, (node,), f"{key}-{number}")
                for number, node in enumerate(action.nodes)
            ]
            results = [run.result() for run in runs]
        return _diagnosis_answer(
            {
                node: _health_document(health)
                for node, health in zip(action.nodes, results, strict=True)
            }
        )

    def _run(self, diagnostic: Diagnostic, nodes: tuple[str, ...], key: str) -> Health:
        command = fill_command(
            diagnostic.command, node=nodes[0], nodes=",".join(nodes), count=str(len(nodes))
        )
        ran = self.runner.run(command, nodes, key=key, timeout_s=diagnostic.timeout)
        return assess(diagnostic.reads, ran, diagnostic.expected)

    def _searched(self, diagnostic: Diagnostic, action: Diagnose, key: str) -> Answer:
        runs: list[dict[str, Any]] = []
        last: dict[str, Health] = {}

        def test(nodes: tuple[str, ...]) -> Any:
            health = self._run(diagnostic, nodes, f"{key}-{len(runs)}")
            runs.append({"nodes": list(nodes), "state": health.state, "detail": health.detail})
            last.update(dict.fromkeys(nodes, health))
            return health.state

        search = find_faulty(action.nodes, test)
        nodes: dict[str, dict[str, Any]] = {
            node: {"state": "unclear", "detail": search.detail, "complaints": []}
            for node in action.nodes
        }
        for node in search.sound:
            nodes[node] = {"state": "healthy", "detail": "passes with others", "complaints": []}
        for node in search.faulty:
            nodes[node] = _health_document(last[node])
        return _diagnosis_answer(nodes, runs=runs)


def fill_command(command: tuple[str, ...], **words: str) -> tuple[str, ...]:
    """A command with `{node}` and its like replaced, each within its own argument."""
    filled = []
    for part in command:
        for name, value in words.items():
            part = part.replace(f"{{{name}}}", value)  # noqa: PLW2901
        filled.append(part)
    return tuple(filled)


def _health_document(health: Health) -> dict[str, Any]:
    return {
        "state": health.state,
        "detail": health.detail,
        "complaints": [one._asdict() for one in health.complaints[:SHOWN]],
    }


def _diagnosis_answer(nodes: Mapping[str, dict[str, Any]], **more: Any) -> Answer:
    faulty = [node for node, result in nodes.items() if result["state"] == "faulty"]
    healthy = sum(result["state"] == "healthy" for result in nodes.values())
    detail = f"{counted(len(faulty), 'node')} faulty, {healthy} healthy of {len(nodes)}"
    if faulty:
        first = nodes[faulty[0]]["detail"]
        detail += f"; {faulty[0]}: {first}"
    return Answer("done", detail, {"nodes": dict(nodes), **more})


# Finding the faulty nodes of many with few runs of a collective: O(log n) for one faulty node.
#
# A collective over a group fails if any node of it is faulty. A group that fails is split into
# halves; if the first half passes, only the other can contain the fault. A single node is tested
# together with one that is known to be healthy, since a node alone does not use its network. The
# result is proved: an accused node fails with two healthy ones, each alone (with one of them the
# cause may be the link between them), and all others pass together.


Tested = Literal["healthy", "faulty", "unclear"]
Test = Callable[[tuple[str, ...]], Tested]
"""Runs the collective over some nodes."""


class SearchResult(NamedTuple):
    """Result of a search. `faulty` and `sound` are proved; the other nodes are undecided."""

    faulty: tuple[str, ...]
    sound: tuple[str, ...]
    runs: int
    detail: str


class _UnclearError(Exception):
    pass


def find_faulty(nodes: Sequence[str], test: Test, *, most_runs: int = 64) -> SearchResult:
    """The faulty ones of `nodes`. Without a proof no node is accused: an unclear run, too
    many runs, or halves that pass alone and fail together end the search."""
    return _Search(tuple(dict.fromkeys(nodes)), test, most_runs).search()


class _Search:
    def __init__(self, nodes: tuple[str, ...], test: Test, most_runs: int) -> None:
        self.nodes, self._test, self.most_runs = nodes, test, most_runs
        self.runs = 0
        self.sound: list[str] = []
        self.suspects: list[str] = []

    def search(self) -> SearchResult:
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

    def _proved(self) -> SearchResult:
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

    def _result(self, faulty: tuple[str, ...], detail: str) -> SearchResult:
        sound = tuple(node for node in self.nodes if node in self.sound and node not in faulty)
        return SearchResult(faulty, sound, self.runs, detail)
