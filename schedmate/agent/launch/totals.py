"""What follows from the facts of a launch: totals, and the variables that launchers set."""

from __future__ import annotations

from schedmate.agent.launch.quantities import count_devices
from schedmate.agent.launch.resources import Facts
from schedmate.agent.launch.state import token
from schedmate.agent.values import Origin, Unknown, Value, stated
from schedmate.jobs import LaunchConfig


def product(facts: Facts, *names: str) -> int | None:
    """The product of counts, or None when one is not known."""
    result = 1
    for name in names:
        count = facts[name].integer if name in facts else None
        if count is None:
            return None
        result *= count
    return result


def _total(facts: Facts, total: str, factors: tuple[str, ...]) -> None:
    """Set a total where it is not stated and its factors are known."""
    if total not in facts and (count := product(facts, *factors)) is not None:
        facts[total] = Value(count, _computed(facts, factors))


def _computed(facts: Facts, factors: tuple[str, ...]) -> Origin | None:
    """The origin of a product: where its last factor is, and the others where they count."""
    origin = facts[factors[-1]].origin
    others = [name for name in factors[:-1] if facts[name].data != 1]
    if origin is None or not others:
        return origin
    return origin._replace(
        computed=" x ".join(_in_words(facts, name) for name in (*others, factors[-1]))
    )


def _in_words(facts: Facts, name: str) -> str:
    """A fact in words: `2 nodes (--nnodes 2)`."""
    origin = facts[name].origin
    text = origin.text if origin is not None and origin.source != "library" else None
    words = f"{facts[name].plain()} {name.replace('_per_', ' per ')}"
    return f"{words} ({text})" if text else words


def _nodes(facts: Facts, launch: LaunchConfig) -> None:
    """The nodes that the tasks fill, where none are stated."""
    tasks, each = product(facts, "tasks"), product(facts, "tasks_per_node")
    if tasks and each and tasks > each and launch.nodes is None and "nodes" not in facts:
        facts["nodes"] = Value(-(-tasks // each), facts["tasks"].origin)


def _times(value: Value, nodes: int) -> Value:
    """GPUs of one node, of all nodes."""
    count, origin = int(value.number or 0), value.origin
    if origin is not None and nodes != 1:
        origin = origin._replace(computed=f"{count} per node x {nodes} nodes")
    return Value(count * nodes, origin)


def complete(
    facts: Facts, env: dict[str, Value], launch: LaunchConfig, warnings: list[str]
) -> Facts:
    """Totals that follow from the facts; the launch configuration given by the user wins.

    GPUs: what the allocation says, else one for each process of a launcher (a bare Slurm task is
    none), else the visible devices.
    """
    facts = dict(facts)
    _nodes(facts, launch)
    nodes = product(facts, "nodes") or launch.nodes or 1
    _total(facts, "procs", ("nodes", "procs_per_node"))
    _total(facts, "tasks", ("nodes", "tasks_per_node"))
    if "gpus_per_node" in facts and "gpus" not in facts:
        facts["gpus"] = _times(facts["gpus_per_node"], nodes)
    _total(facts, "gpus", ("gpus_per_task", "tasks"))
    _total(facts, "gpus", ("gpus_per_task", "procs"))
    _total(facts, "gpus", ("procs",))
    _total(facts, "procs", ("tasks",))
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if "gpus" not in facts and visible is not None and not isinstance(visible.data, Unknown):
        count = count_devices(token(visible))
        if count is not None:
            facts["gpus"] = _times(Value(count, visible.origin), nodes)
    configured: dict[str, int | float | str | None] = {
        "gpus": launch.gpus,
        "nodes": launch.nodes,
        "gpu_type": launch.gpu_type,
        "time_limit_s": launch.time_limit_s,
    }
    for name, data in configured.items():
        if data is None:
            continue
        of_command = facts[name].plain() if name in facts else data
        if name in ("gpus", "nodes") and of_command != data:
            warnings.append(
                f"the launch configuration says {data} {name}, the command {of_command}: "
                f"the launch configuration is used"
            )
        facts[name] = Value(data, stated(name, data))
    return facts


def launcher_variables(sets: dict[str, str], facts: Facts) -> dict[str, Value]:
    """The variables that launchers set for the first process; unknown where the fact is."""
    variables: dict[str, Value] = {}
    for name, text in sets.items():
        fact = facts.get(text.removeprefix("$")) if text.startswith("$") else None
        if fact is not None:
            # the origin is the launch as a whole: what a program computes from it is its own
            variables[name] = Value(str(fact.data), stated(name, fact.data))
        else:
            known = not text.startswith("$")
            origin = stated(name, text)
            variables[name] = Value(text if known else Unknown(f"${name}"), origin)
    return variables
