"""`schedmate.fleet-plan/v1`: a plan as JSON, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from schedmate.errors import InputError, SchedmateError
from schedmate.schedulers.fleet.budget import Choice
from schedmate.schedulers.fleet.plan import Plan
from schedmate.schedulers.fleet.snapshot import NONE, FleetSnapshot
from schedmate.schedulers.fleet.verify import Planned, faults

SCHEMA = "schedmate.fleet-plan/v1"


class ReadPlan(NamedTuple):
    """A plan read from a file, on a snapshot."""

    moves: list[Planned]
    emptied: list[int]
    same_snapshot: bool
    """Whether it was made from this snapshot."""


def planned(plan: Plan) -> list[Planned]:
    """The moves of a plan as the checker takes them."""
    return [Planned(s.task, s.source, s.target, s.device, s.wave, s.after) for s in plan.steps]


def proved(plan: Plan) -> None:
    """Raise `SchedmateError` for a plan that is not proved to be safe."""
    if wrong := faults(plan.snapshot, planned(plan), plan.emptied):
        raise SchedmateError(
            f"the plan found is not safe ({wrong[0]}), so it is withheld; report this with the "
            "snapshot."
        )


def document(choice: Choice, seconds: float, method: str, seed: int) -> dict[str, Any]:
    """The plan as `--json` prints it."""
    plan = choice.plan
    snapshot, nodes = plan.snapshot, plan.snapshot.nodes.name
    waves: list[list[dict[str, Any]]] = [[] for _ in range(plan.waves)]
    for k, step in enumerate(plan.steps):
        move: dict[str, Any] = {
            "move": k,
            "task": snapshot.tasks.name[step.task],
            "from": nodes[step.source],
            "to": nodes[step.target],
        }
        if step.device != NONE:
            move["device"] = step.device
        if step.after:
            move["after"] = step.after
        waves[step.wave].append(move)
    regained = sum(int(snapshot.nodes.gpus[n]) for n in plan.emptied)
    return {
        "schema": SCHEMA,
        "snapshot": snapshot.hash,
        "origin": snapshot.origin,
        "method": method,
        "seed": seed,
        "waves": waves,
        "emptied": [nodes[n] for n in plan.emptied],
        "emptied_gpus": regained,
        "migrations": len(plan.steps),
        "slack_before": snapshot.slack(),
        "slack_after": snapshot.slack(plan.node_after()),
        "cost_gpu_h": round(choice.cost_gpu_h, 3),
        "worth_gpu_h": round(choice.worth_gpu_h, 3),
        "left_too_dear": choice.too_dear,
        "left_over_budget": choice.over_budget,
        "left_ending": choice.ending,
        "seconds": round(seconds, 3),
    }


def read_plan(path: Path, snapshot: FleetSnapshot) -> ReadPlan:
    """A plan from its JSON, with names looked up in a snapshot; raises `InputError`.

    A task or node that the snapshot lacks means that the cluster has changed since.
    """
    try:
        says = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot read the plan {path}: {error}.") from None
    if not isinstance(says, dict) or says.get("schema") != SCHEMA:
        raise InputError(
            f"{path} is no {SCHEMA} document; `schedmate fleet defrag -o FILE` writes one."
        )
    node = {name: n for n, name in enumerate(snapshot.nodes.name)}
    task = {name: t for t, name in enumerate(snapshot.tasks.name)}
    moves: list[Planned] = []
    try:
        for wave, listed in enumerate(says["waves"]):
            for move in listed:
                if move.get("move", len(moves)) != len(moves):
                    _bad(path, f"its moves are not numbered in order at {move['move']!r}")
                after = move.get("after", [])
                device = move.get("device", NONE)
                if not all(type(one) is int for one in (device, *after)):
                    _bad(path, f"move {len(moves)} has an 'after' or 'device' that is not a number")
                moves.append(
                    Planned(
                        _known(task, move["task"], "task"),
                        _known(node, move["from"], "node"),
                        _known(node, move["to"], "node"),
                        device,
                        wave,
                        after,
                    )
                )
        emptied = [_known(node, name, "node") for name in says["emptied"]]
        return ReadPlan(moves, emptied, says["snapshot"] == snapshot.hash)
    except (KeyError, TypeError, AttributeError) as error:
        _bad(path, f"it lacks or misuses {error}")


def _known(names: dict[str, int], name: Any, what: str) -> int:
    if name not in names:
        raise InputError(
            f"the plan names {what} {name!r}, which the snapshot does not have: the cluster has "
            "changed; make a new plan."
        )
    return names[name]


def _bad(path: Path, what: str) -> NoReturn:
    raise InputError(
        f"{path} is not a complete plan: {what}; "
        "write it again with `schedmate fleet defrag -o FILE`."
    )
