"""How many GPUs and nodes the program's own settings ask for, where the launch does not say."""

from __future__ import annotations

import re
from dataclasses import replace

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import Candidate, best, is_number, rules, source_bonus
from schedmate.agent.fields.leaves import Setting, named, normal
from schedmate.agent.launch.quantities import count_devices
from schedmate.agent.values import Value

_NOT_TRAINING = re.compile(r"eval|valid|test|infer|worker|actor|ray|resource|vllm", re.IGNORECASE)
_OR_OF_A_GRAPH = normal("num_nodes")
_MOST = 4096
"""More than this many GPUs or nodes is something else."""


def find(settings: list[Setting]) -> dict[str, Candidate]:
    """`num_gpus` (of all nodes) and `num_nodes`, where settings state them."""
    names = rules("names")["devices"]
    found: dict[str, Candidate] = {}
    told = [
        *_counts(settings, names["gpus"], _gpus),
        *_counts(settings, names["gpu_ids"], _ids, named_one=True),
    ]
    gpus = best(told)
    # where nothing beside them is told of GPUs, these are nodes of a graph
    left_open = {s.path[:-1] for _, s in named(settings, names["gpus"]) if _as_many_as_there_are(s)}
    machines = [
        s
        for s in settings
        if gpus is not None or s.key != _OR_OF_A_GRAPH or s.path[:-1] in left_open
    ]
    counts = _counts(machines, names["nodes"], _whole)
    nodes = best(counts)
    if nodes is not None:
        found["num_nodes"] = replace(nodes, considered=counts)
    if gpus is not None:
        if nodes is not None:  # a program that counts nodes counts the GPUs of each
            gpus.data *= nodes.data
        found["num_gpus"] = replace(gpus, considered=told)
    return found


def _as_many_as_there_are(devices: Setting) -> bool:
    return isinstance(devices.value.data, str | int) and devices.value.data in ("auto", "-1", -1)


def _counts(
    settings: list[Setting], names: list[str], read: object, named_one: bool = False
) -> list[Candidate]:
    out = []
    for rank, setting in named(settings, names):
        origin = setting.value.origin
        if any(_NOT_TRAINING.search(part) for part in setting.path[:-1]):
            continue
        chosen = setting.explicit or setting.owner == "environment" or setting.source == "config"
        if (named_one and not chosen) or setting.kind == "globals":
            continue  # the first device by default says nothing of the others
        count = read(setting.value) if callable(read) else None
        if count is not None and 0 < count <= _MOST:
            score = prior.devices["named"] + prior.devices["rank"] * rank + source_bonus(origin)
            out.append(Candidate(count, origin, score, rule="setting"))
    return out


def _whole(value: Value) -> int | None:
    if isinstance(value.data, str) and re.fullmatch(r"\d{1,4}", value.data):
        return int(value.data)
    return value.data if is_number(value) and isinstance(value.data, int) else None


def _gpus(value: Value) -> int | None:
    """A count, or a list of devices: `8`, `"0,1"`, `0-3`, `[0, 1]`."""
    listed = _listed(value)
    return listed if listed is not None else _whole(value)


def _ids(value: Value) -> int | None:
    """Which devices: `0` is one of them."""
    listed = _listed(value)
    if listed is not None:
        return listed
    if isinstance(value.data, str):
        return 1 if re.fullmatch(r"(cuda:)?\d{1,2}", value.data) else None
    return 1 if is_number(value) and value.data >= 0 else None


def _listed(value: Value) -> int | None:
    data = value.data
    if isinstance(data, list | tuple):
        numbers = [str(item.data).removeprefix("cuda:") for item in data]
        plain = all(re.fullmatch(r"\d{1,3}", number) for number in numbers)
        return len(set(numbers)) if numbers and plain else None
    if isinstance(data, str) and re.search(r"[,-]", data.strip("()[] ")):
        return count_devices(data.strip("()[] ")) or None
    return None
