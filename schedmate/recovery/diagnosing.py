"""Runs the administrator's diagnostics: an executor around that of the cluster which handles
`Diagnose`.

The answer's `data` states for each node whether it is healthy, faulty or unclear, and why; a later
plan is based on it (`proposing.py`). Diagnostics change nothing, so an interrupted one is run
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from schedmate.recovery.configuration import Configuration, Diagnostic
from schedmate.recovery.halving import find_faulty
from schedmate.recovery.health import Health, assess
from schedmate.schedulers.live.actions import Action, Diagnose
from schedmate.schedulers.live.executor import Answer, Executor, Finding, Runner
from schedmate.terminal import counted

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
            found = [run.result() for run in runs]
        return _answer(
            {node: _said(health) for node, health in zip(action.nodes, found, strict=True)}
        )

    def _run(self, diagnostic: Diagnostic, nodes: tuple[str, ...], key: str) -> Health:
        command = filled(
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
            nodes[node] = _said(last[node])
        return _answer(nodes, runs=runs)


def filled(command: tuple[str, ...], **words: str) -> tuple[str, ...]:
    """A command with `{node}` and its like replaced, each within its own argument."""
    found = []
    for part in command:
        for name, value in words.items():
            part = part.replace(f"{{{name}}}", value)  # noqa: PLW2901
        found.append(part)
    return tuple(found)


def _said(health: Health) -> dict[str, Any]:
    return {
        "state": health.state,
        "detail": health.detail,
        "complaints": [one._asdict() for one in health.complaints[:SHOWN]],
    }


def _answer(nodes: Mapping[str, dict[str, Any]], **more: Any) -> Answer:
    faulty = [node for node, said in nodes.items() if said["state"] == "faulty"]
    healthy = sum(said["state"] == "healthy" for said in nodes.values())
    detail = f"{counted(len(faulty), 'node')} faulty, {healthy} healthy of {len(nodes)}"
    if faulty:
        first = nodes[faulty[0]]["detail"]
        detail += f"; {faulty[0]}: {first}"
    return Answer("done", detail, {"nodes": dict(nodes), **more})
