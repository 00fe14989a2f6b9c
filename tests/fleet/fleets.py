"""Small fleets for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import strategies as st

from schedmate.schedulers.fleet.snapshot import Builder, FleetSnapshot


def fleet(nodes: Iterable[Mapping[str, Any]], tasks: Iterable[Mapping[str, Any]]) -> FleetSnapshot:
    """A snapshot of these rows."""
    builder = Builder("the test")
    for node in nodes:
        builder.node(node)
    for task in tasks:
        builder.task(task)
    return builder.build()


def machines(count: int, gpus: int = 8, **more: Any) -> list[dict[str, Any]]:
    """Equal nodes n0, n1, ..."""
    return [
        {
            "name": f"n{n}",
            "gpu_type": "A",
            "gpus": gpus,
            "cpus": 16 * gpus,
            "memory_mb": 1e6,
            **more,
        }
        for n in range(count)
    ]


@st.composite
def fleets(draw: st.DrawFn, most_nodes: int = 7) -> FleetSnapshot:
    """Any small fleet: types, switches, labels, fractions, groups, locks, CPU tasks."""
    nodes = []
    for n in range(draw(st.integers(2, most_nodes))):
        gpus = draw(st.sampled_from([1, 2, 4, 8]))
        nodes.append(
            {
                "name": f"n{n}",
                "gpu_type": draw(st.sampled_from("AAB")),
                "gpus": gpus,
                "cpus": gpus * draw(st.sampled_from([4, 8, 16])),
                "memory_mb": gpus * 1000,
                "switch": draw(st.sampled_from(["s0", "s1", ""])),
                "labels": draw(st.sampled_from([{}, {"zone": "a"}, {"zone": "b"}])),
            }
        )
    free = {node["name"]: [node["gpus"], node["cpus"], node["memory_mb"]] for node in nodes}
    shared: dict[str, list[float]] = {name: [] for name in free}
    groups: dict[str, list[tuple[str, list[str]]]] = {name: [] for name in free}
    tasks = []
    for t in range(draw(st.integers(0, 4 * len(nodes)))):
        node = draw(st.sampled_from(nodes))
        name = node["name"]
        gpus = draw(st.sampled_from([0, 0.25, 0.5, 1, 1, 2, 4]))
        cpus = draw(st.sampled_from([0, 1, 2, 4, 8]))
        memory = draw(st.sampled_from([0, 100, 500]))
        device = next((d for d, left in enumerate(shared[name]) if left >= gpus), None)
        fresh = gpus >= 1 or (0 < gpus < 1 and device is None)
        whole = gpus if gpus >= 1 else int(fresh)
        if free[name][0] < whole or free[name][1] < cpus or free[name][2] < memory:
            continue
        group = draw(st.sampled_from(["", "", "g", "h"]))
        avoid = draw(st.sampled_from([[], [], ["g"], ["h"]]))
        if any(g in avoid or (group and group in a) for g, a in groups[name]):
            continue
        # GPUs are numbered from the first on, so that those of fractions come first
        if 0 < gpus < 1:
            if device is None:
                shared[name].append(1.0)
                device = len(shared[name]) - 1
            shared[name][device] -= gpus
        groups[name].append((group, avoid))
        free[name] = [free[name][0] - whole, free[name][1] - cpus, free[name][2] - memory]
        row: dict[str, Any] = {
            "id": f"t{t}",
            "node": name,
            "gpus": gpus,
            "cpus": cpus,
            "memory_mb": memory,
            "locked": draw(st.sampled_from([False, False, False, True])),
            "class": draw(st.sampled_from(["hp", "lp"])),
            "any_gpu_type": draw(st.booleans()),
            "group": group,
            "avoid": avoid,
            "checkpoint_age_s": draw(st.sampled_from([0, 60, 90_000])),
        }
        if 0 < gpus < 1:
            row["device"] = device
        if node["labels"] and draw(st.booleans()):
            row["require"] = node["labels"]
        tasks.append(row)
    return fleet(nodes, tasks)
