"""Which GPU of its node each fraction is on, where the source does not say."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from schedmate.errors import InputError
from schedmate.schedulers.fleet.snapshot import MILLI, NONE, FleetSnapshot


def on_devices(snapshot: FleetSnapshot, source: str) -> FleetSnapshot:
    """The snapshot with a GPU for every fraction.

    Unknown ones are assigned largest first, which assumes less fragmentation within GPUs than there
    may be; a note has their number. Raises `InputError` if they do not fit.
    """
    tasks = snapshot.tasks
    rows = np.flatnonzero(snapshot.fraction)
    if not len(rows):
        return snapshot
    on: dict[int, list[int]] = defaultdict(list)
    for t in rows.tolist():
        on[int(tasks.node[t])].append(t)
    device = tasks.device.copy()
    for node, here in on.items():
        free: dict[int, int] = {}
        for t in here:
            if device[t] != NONE:
                free[int(device[t])] = free.get(int(device[t]), MILLI) - int(tasks.gpus[t])
        gpus, whole = int(snapshot.nodes.gpus[node]), int(snapshot.whole_used[node])
        for t in sorted(
            (t for t in here if device[t] == NONE), key=lambda t: (-tasks.gpus[t], tasks.name[t])
        ):
            need = int(tasks.gpus[t])
            fitting = [one for one, room in free.items() if room >= need]
            chosen = min(fitting) if fitting else min(set(range(gpus + 1)) - free.keys())
            device[t] = chosen
            free[chosen] = free.get(chosen, MILLI) - need
        if min(free.values()) < 0 or max(free) >= gpus or len(free) + whole > gpus:
            raise InputError(
                f"{source}: the fractions on node {snapshot.nodes.name[node]!r} do not fit on its "
                f"{gpus} GPUs beside {whole} whole ones; state the GPU of each with 'device'."
            )
    unknown = int((tasks.device[rows] == NONE).sum())
    notes = list(snapshot.notes)
    if unknown:
        notes.append(
            f"{unknown:,} fractions of GPUs have no known GPU, and were assigned largest first"
        )
    return replace(snapshot, tasks=replace(tasks, device=device), notes=notes)
