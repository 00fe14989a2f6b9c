"""Whether a plan is safe, checked from outside.

`plan_faults` lists everything that is wrong with a plan, by the definitions and independently of
the search: for any set of failed migrations, at any moment, no node holds more than it has, no two
tasks share a node of which one avoids the other, and no task is where it may not be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from schedmate.base.terminal import counted
from schedmate.schedulers.fleet.snapshot import MILLI, NONE, FleetSnapshot


class Planned(NamedTuple):
    """One migration of a plan, as its document has it."""

    task: int
    source: int
    target: int
    device: int
    wave: int
    after: Sequence[int]
    """Positions in the list of all migrations."""


def plan_faults(
    snapshot: FleetSnapshot, moves: Sequence[Planned], emptied: Iterable[int]
) -> list[str]:
    """The faults of a plan, as sentences without a full stop; empty if it is safe."""
    faults = [*_order_faults(snapshot, moves), *_right_faults(snapshot, moves)]
    # what follows needs every move to be about something
    if not faults:
        faults = [*_room_faults(snapshot, moves), *_end_faults(snapshot, moves, emptied)]
    return faults


def _order_faults(snapshot: FleetSnapshot, moves: Sequence[Planned]) -> Iterable[str]:
    """Each move starts where its task is, and needs only moves of earlier waves."""
    names = snapshot.tasks.name
    at: dict[int, int] = {}
    last: dict[int, int] = {}
    wave = 0
    for k, move in enumerate(moves):
        name = names[move.task]
        if move.wave < wave:
            yield f"migration {k} of task {name!r} comes after a later wave"
        wave = max(wave, move.wave)
        where = at.get(move.task, int(snapshot.tasks.node[move.task]))
        if move.source != where:
            yield (
                f"migration {k} takes task {name!r} from {snapshot.nodes.name[move.source]!r}, "
                f"and it is on {snapshot.nodes.name[where]!r}"
            )
        if move.target == where:
            yield f"migration {k} moves task {name!r} to the node that it is on"
        for earlier in move.after:
            if not 0 <= earlier < len(moves) or moves[earlier].wave >= move.wave:
                yield f"migration {k} of task {name!r} waits for {earlier}, which is not before it"
        if move.task in last and last[move.task] not in move.after:
            yield f"migration {k} of task {name!r} does not wait for the one before it"
        at[move.task], last[move.task] = move.target, k


def _right_faults(snapshot: FleetSnapshot, moves: Sequence[Planned]) -> Iterable[str]:
    """Check that no locked task is moved, and none to a forbidden node."""
    nodes, tasks = snapshot.nodes, snapshot.tasks
    for k, move in enumerate(moves):
        name, target = tasks.name[move.task], nodes.name[move.target]
        if tasks.locked[move.task]:
            yield f"migration {k} moves task {name!r}, which is locked"
        required = snapshot.require_sets[tasks.require[move.task]]
        labels = snapshot.label_sets[nodes.labels[move.target]]
        if any(labels.get(key) != value for key, value in required.items()):
            yield f"migration {k} moves task {name!r} to {target!r} without the labels it requires"
        pinned = tasks.gpus[move.task] > 0 and not tasks.any_type[move.task]
        home = nodes.gpu_type[tasks.node[move.task]]
        if pinned and nodes.gpu_type[move.target] != home:
            yield f"migration {k} moves task {name!r} to {target!r}, which has other GPUs"
        fraction = 0 < tasks.gpus[move.task] < MILLI
        if fraction and not 0 <= move.device < nodes.gpus[move.target]:
            yield f"migration {k} of task {name!r} does not state the GPU of {target!r} it goes"


def _room_faults(snapshot: FleetSnapshot, moves: Sequence[Planned]) -> Iterable[str]:
    """Check that the largest possible load on a node at the time of a move fits.

    Moves onto a node happen wave by wave, in a wave in any order or at once. Whatever failed, at
    the time of a move its list is complete: what its list takes away is gone. Order the moves onto
    a node, and consider any moment: let the last of those that happened be the i-th. Then the node
    holds at most the initial tasks, without those that the i-th list takes away, and the tasks of
    the first i moves. Lists that do not grow are credited with what all later ones have, too.
    """
    onto: dict[int, list[int]] = defaultdict(list)
    off: dict[int, list[int]] = defaultdict(list)
    for k, move in enumerate(moves):
        onto[move.target].append(k)
        off[move.source].append(k)
    first: dict[int, list[tuple[int, int]]] = defaultdict(list)
    device = snapshot.tasks.device
    for t, n in enumerate(snapshot.tasks.node.tolist()):
        if n in onto:
            first[n].append((t, int(device[t])))
    for n, coming in onto.items():
        lists = [set(moves[k].after) & set(off[n]) for k in coming]
        # the order within a wave is free: find the one with growing lists
        order = sorted(range(len(coming)), key=lambda i: (moves[coming[i]].wave, len(lists[i])))
        credited = [lists[i] for i in order]
        for i in range(len(order) - 2, -1, -1):
            credited[i] = credited[i] & credited[i + 1]
        for i in range(len(order)):
            gone = credited[i]
            present = [(t, d) for t, d in first[n] if not any(_took(moves[j], t) for j in gone)]
            for earlier in order[: i + 1]:
                move = moves[coming[earlier]]
                left = any(_took(moves[j], move.task) and j > coming[earlier] for j in gone)
                if not left:
                    present.append((move.task, move.device))
            fault = _crowded(snapshot, n, present)
            if fault:
                move = moves[coming[order[i]]]
                yield (
                    f"when task {snapshot.tasks.name[move.task]!r} comes to "
                    f"{snapshot.nodes.name[n]!r} in wave {move.wave}, {fault}"
                )
                break


def _took(move: Planned, task: int) -> bool:
    return move.task == task


def _crowded(snapshot: FleetSnapshot, n: int, present: list[tuple[int, int]]) -> str:
    """What is wrong with these tasks, and fractions on these GPUs, on one node at once; empty:
    nothing."""
    nodes, tasks = snapshot.nodes, snapshot.tasks
    ids = [t for t, _ in present]
    if len(set(ids)) < len(ids):
        return "the same task may be there twice"
    gpus: dict[int, int] = defaultdict(int)
    whole = 0
    for t, d in present:
        need = int(tasks.gpus[t])
        if need >= MILLI:
            whole += need // MILLI
        elif need:
            gpus[d] += need
    if whole + len(gpus) > nodes.gpus[n]:
        return f"{whole + len(gpus)} of its {counted(int(nodes.gpus[n]), 'GPU')} may be needed"
    if any(milli_gpus > MILLI for milli_gpus in gpus.values()):
        return "more than one GPU may be needed of one GPU"
    for what, column, capacity in (
        ("CPUs", tasks.cpus, nodes.cpus),
        ("memory", tasks.memory, nodes.memory),
    ):
        needed = sum(int(column[t]) for t in ids)
        # a snapshot's own rounding, one unit a task, is no fault of the plan
        if needed > capacity[n] + len(ids):
            return f"{needed / capacity[n]:.1%} of its {what} may be needed"
    groups: dict[int, list[int]] = defaultdict(list)
    for t in ids:
        if tasks.group[t] != NONE:
            groups[int(tasks.group[t])].append(t)
    for t in ids:
        for group in snapshot.avoid_sets[tasks.avoid[t]]:
            if any(other != t for other in groups.get(group, ())):
                return (
                    f"{tasks.name[t]!r} may meet group {snapshot.groups[group]!r}, which it avoids"
                )
    return ""


def _end_faults(
    snapshot: FleetSnapshot, moves: Sequence[Planned], emptied: Iterable[int]
) -> Iterable[str]:
    """Check that the nodes that the plan claims to empty are empty in the end, if nothing fails."""
    at = dict(enumerate(snapshot.tasks.node.tolist()))
    for move in moves:
        at[move.task] = move.target
    used = set(at.values())
    for n in emptied:
        if n in used:
            yield f"node {snapshot.nodes.name[n]!r} is not empty in the end"
        elif not snapshot.task_count[n]:
            yield f"node {snapshot.nodes.name[n]!r} was empty before"
