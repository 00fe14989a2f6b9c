"""Counts, devices and times as launchers write them.

Units: counts are numbers of GPUs, processes or nodes; times are seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Plain = dict[str, int | float | str]

_PRECISION = {
    "no": "fp32",
    "32": "fp32",
    "32-true": "fp32",
    "16": "fp16",
    "16-true": "fp16",
    "16-mixed": "fp16",
    "bf16-true": "bf16",
    "bf16-mixed": "bf16",
}

_COUNTS = ("nodes", "procs", "procs_per_node", "tasks", "tasks_per_node", "cpus_per_task")


def seconds(text: str) -> float | None:
    """A Slurm time limit (`M`, `M:S`, `H:M:S`, `D-H`, `D-H:M`, `D-H:M:S`) [s]; sbatch(1)."""
    match = re.fullmatch(r"(?:(\d{1,5})-)?(\d{1,7}(?::\d{1,7}){0,2})", text.strip())
    if match is None:
        return None
    fields = [int(field) for field in match[2].split(":")]
    if match[1] is not None:
        hours, minutes, secs = [*fields, 0, 0][:3]
        return float(int(match[1]) * 86_400 + hours * 3_600 + minutes * 60 + secs)
    if len(fields) == 3:
        return float(fields[0] * 3_600 + fields[1] * 60 + fields[2])
    return float(fields[0] * 60 + (fields[1] if len(fields) == 2 else 0))


def count_devices(text: str) -> int | None:
    """How many devices a list such as `0,1,2` names; an empty list or -1 names none."""
    items = [item.strip() for item in text.strip().strip("\"'").split(",") if item.strip()]
    if "-1" in items or not items:
        return 0
    count = 0
    for item in items:
        ends = re.fullmatch(r"(\d{1,4})-(\d{1,4})", item)
        if ends and int(ends[2]) >= int(ends[1]):
            count += int(ends[2]) - int(ends[1]) + 1
        elif re.fullmatch(r"\d{1,4}|(GPU|MIG)-[\w-]+", item):
            count += 1
        else:
            return None
    return count


def _whole(name: str) -> Callable[[str], Plain]:
    def parse_quantity(text: str) -> Plain:
        # `1:4` (elastic torchrun) and `2-4` (Slurm) ask for at least the first number.
        match = re.fullmatch(r"(\d{1,6})(?:[:-]\d{1,6})?", text.strip())
        return {name: int(match[1])} if match else {}

    return parse_quantity


def _typed(name: str) -> Callable[[str], Plain]:
    def parse_quantity(text: str) -> Plain:
        """`8`, `a100:8` (Slurm)."""
        match = re.fullmatch(r"(?:([A-Za-z][\w.\-]*):)?(\d{1,6})", text.strip())
        if match is None:
            return {}
        return {name: int(match[2])} | ({"gpu_type": match[1]} if match[1] else {})

    return parse_quantity


def _gres(text: str) -> Plain:
    """`gpu:8`, `gpu:a100:8`, `gpu`; other generic resources are passed over."""
    for item in text.split(","):
        match = re.fullmatch(r"(?:gres/)?gpu(?::([A-Za-z][\w.\-]*))?(?:[:=](\d{1,6}))?", item)
        if match:
            facts: Plain = {"gpus_per_node": int(match[2] or 1)}
            return facts | ({"gpu_type": match[1]} if match[1] else {})
    return {}


def _devices(text: str) -> Plain:
    count = count_devices(text)
    return {} if count is None else {"gpus_per_node": count}


def _devices_or_count(text: str) -> Plain:
    """Lightning's `--devices`: a number, or a list when it holds a comma."""
    return _devices(text) if "," in text else _whole("gpus_per_node")(text)


def _deepspeed_devices(text: str) -> Plain:
    """`localhost:0,1@worker-2:2,3`."""
    hosts = [host for host in text.split("@") if host]
    counts = [count_devices(host.partition(":")[2]) for host in hosts]
    known = [count for count in counts if count]
    if len(known) != len(hosts) or not hosts:
        return {"nodes": len(hosts)} if hosts else {}
    facts: Plain = {"nodes": len(hosts), "gpus": sum(known)}
    return facts | ({"gpus_per_node": known[0]} if len(set(known)) == 1 else {})


def _hosts(text: str) -> Plain:
    """`host1:4,host2:4`."""
    return {"nodes": len({host.partition(":")[0] for host in text.split(",") if host})}


def _docker_gpus(text: str) -> Plain:
    listed = re.search(r"device=([\w,-]+)", text)
    return _devices(listed[1]) if listed else _whole("gpus")(text)


def _replicas(text: str) -> Plain:
    """TorchX's `2x8`, nodes by processes of each; `8` is one node."""
    match = re.fullmatch(r"(?:(\d{1,5})(?::\d{1,5})?x)?(\d{1,4})", text)
    return {"nodes": int(match[1] or 1), "procs_per_node": int(match[2])} if match else {}


def _time(text: str) -> Plain:
    limit = seconds(text)
    return {} if limit is None else {"time_limit_s": limit}


def _precision(text: str) -> Plain:
    return {"precision": _PRECISION.get(text.lower(), text.lower())}


READERS: dict[str, Callable[[str], Plain]] = {
    **{name: _whole(name) for name in _COUNTS},
    **{name: _whole(name) for name in ("zero_stage", "gradient_accumulation_steps")},
    **{name: _typed(name) for name in ("gpus", "gpus_per_node", "gpus_per_task")},
    "gres": _gres,
    "devices": _devices,
    "devices_or_count": _devices_or_count,
    "deepspeed_devices": _deepspeed_devices,
    "hosts": _hosts,
    "docker_gpus": _docker_gpus,
    "replicas": _replicas,
    "time": _time,
    "precision": _precision,
}
