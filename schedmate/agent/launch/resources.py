"""What launch options, `#SBATCH` lines and launcher configs say about resources.

Units: counts are numbers of GPUs, processes or nodes; times are seconds.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from schedmate.agent.launch.launchers import Options, Table, option_origin, parse_options, rules
from schedmate.agent.launch.repo import Repo
from schedmate.agent.launch.state import token
from schedmate.agent.values import Origin, Unknown, Value
from schedmate.jobs import LaunchConfig

Facts = dict[str, Value]
Plain = dict[str, int | float | str]

_PRECISION = {"no": "fp32", "32": "fp32", "32-true": "fp32", "16": "fp16", "16-mixed": "fp16"}
_PRECISION |= {"bf16-mixed": "bf16", "bf16-true": "bf16", "16-true": "fp16"}
_COUNTS = ("nodes", "procs", "procs_per_node", "tasks", "tasks_per_node", "cpus_per_task")
_ACCELERATE = {
    "num_processes": "procs",
    "num_machines": "nodes",
    "mixed_precision": "precision",
    "zero_stage": "zero_stage",
    "deepspeed_config_file": "deepspeed_config",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}


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
    def read(text: str) -> Plain:
        # `1:4` (elastic torchrun) and `2-4` (Slurm) ask for at least the first number.
        match = re.fullmatch(r"(\d{1,6})(?:[:-]\d{1,6})?", text.strip())
        return {name: int(match[1])} if match else {}

    return read


def _typed(name: str) -> Callable[[str], Plain]:
    def read(text: str) -> Plain:
        """`8`, `a100:8` (Slurm)."""
        match = re.fullmatch(r"(?:([A-Za-z][\w.\-]*):)?(\d{1,6})", text.strip())
        if match is None:
            return {}
        return {name: int(match[2])} | ({"gpu_type": match[1]} if match[1] else {})

    return read


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


def _time(text: str) -> Plain:
    limit = seconds(text)
    return {} if limit is None else {"time_limit_s": limit}


def _precision(text: str) -> Plain:
    return {"precision": _PRECISION.get(text.lower(), text.lower())}


def _text(fact: str, text: str) -> Plain:
    return {fact: text} if re.fullmatch(r"[\w.,:/%+=@-]+", text) else {}


_READERS: dict[str, Callable[[str], Plain]] = {
    **{name: _whole(name) for name in _COUNTS},
    **{name: _whole(name) for name in ("zero_stage", "gradient_accumulation_steps")},
    **{name: _typed(name) for name in ("gpus", "gpus_per_node", "gpus_per_task")},
    "gres": _gres,
    "devices": _devices,
    "devices_or_count": _devices_or_count,
    "deepspeed_devices": _deepspeed_devices,
    "hosts": _hosts,
    "docker_gpus": _docker_gpus,
    "time": _time,
    "precision": _precision,
}


def from_options(table: Table, options: Options, repo: Repo, cwd: str) -> Facts:
    """The facts that a launcher's options state. What is unknown states nothing."""
    facts: Facts = {}
    config: Facts = {}
    for name, values, word in options.given:
        for fact, data in table.flags.get(name, {}).items():
            facts[fact] = Value(data, word.origin)
        if name not in table.facts or not values or isinstance(values[0].data, Unknown):
            continue
        fact, text = table.facts[name], token(values[0])
        origin = option_origin(name, values[0])
        if fact in ("hostfile", "accelerate_config"):
            path = repo.normalise(text, cwd) or repo.by_suffix(text)
            content = repo.read(path) if path else None
            if fact == "accelerate_config":
                facts[fact] = Value(path or text, origin)
                config = _accelerate(content, path) if content and path else {}
            elif content is not None:
                facts |= _hostfile(content, path)
        else:
            plain = _READERS[fact](text) if fact in _READERS else _text(fact, text)
            facts |= {key: Value(data, origin) for key, data in plain.items()}
    return config | facts


def _hostfile(content: str, path: str | None) -> Facts:
    """Lines such as `worker-1 slots=8`."""
    lines = [line.split("#")[0].strip() for line in content.splitlines()]
    hosts = [line for line in lines if line]
    slots = {match[1] for line in hosts if (match := re.search(r"slots\s*=\s*(\d{1,4})", line))}
    if not hosts:
        return {}
    origin = Origin("config", path)
    facts: Facts = {"nodes": Value(len(hosts), origin)}
    if len(slots) == 1:
        facts["gpus_per_node"] = Value(int(slots.pop()), origin)
    return facts


def _accelerate(content: str, path: str) -> Facts:
    """An `accelerate config` file, read as scalar nodes of its top two levels."""
    import yaml

    try:
        root = yaml.compose(content, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return {}
    facts: Facts = {}
    mappings = [root] if isinstance(root, yaml.MappingNode) else []
    for mapping in mappings:
        for key, node in mapping.value:
            if key.value == "deepspeed_config" and isinstance(node, yaml.MappingNode):
                if len(mappings) == 1:
                    mappings.append(node)
            elif key.value in _ACCELERATE and isinstance(node, yaml.ScalarNode):
                fact = _ACCELERATE[key.value]
                origin = Origin("config", path, node.start_mark.line + 1, key.value)
                plain = _READERS[fact](node.value) if fact in _READERS else {fact: node.value}
                facts |= {name: Value(data, origin) for name, data in plain.items()}
    return facts


def from_batch_lines(text: str, file: str, repo: Repo) -> Facts:
    """The `#SBATCH` lines of a batch script; they end at the first command (sbatch(1))."""
    table = rules().launchers["sbatch"]
    facts: Facts = {}
    for number, line in enumerate(text.splitlines(), start=1):
        match = re.match(r"#SBATCH\s+(.*)", line)
        if match is None:
            if line.strip() and not line.lstrip().startswith("#"):
                break
            continue
        try:
            words = shlex.split(match[1], comments=True)
        except ValueError:
            words = match[1].split()
        origin = Origin("script", file, number)
        options = parse_options(table, [Value(word, origin) for word in words])
        facts |= from_options(table, options, repo, ".")
    return facts


def product(facts: Facts, *names: str) -> int | None:
    """The product of counts, or None when one is not known."""
    result = 1
    for name in names:
        if name not in facts or not isinstance(facts[name].data, int):
            return None
        result *= int(facts[name].data)
    return result


def _total(facts: Facts, total: str, factors: tuple[str, ...]) -> None:
    """Set a total where it is not stated and its factors are known."""
    if total not in facts and (count := product(facts, *factors)) is not None:
        facts[total] = Value(count, facts[factors[-1]].origin)


def _times(value: Value, factor: int) -> Value:
    return Value(int(value.data) * factor, value.origin)


def complete(
    facts: Facts, env: dict[str, Value], launch: LaunchConfig, warnings: list[str]
) -> Facts:
    """Totals that follow from the facts; the launch configuration given by the user wins.

    GPUs: what the allocation says, else one for each process of a launcher (a bare Slurm task is
    none), else the visible devices.
    """
    facts = dict(facts)
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
            facts["gpus"] = Value(count * nodes, visible.origin)
    given: dict[str, int | float | str | None] = {
        "gpus": launch.gpus,
        "nodes": launch.nodes,
        "gpu_type": launch.gpu_type,
    }
    given |= {"time_limit_s": launch.time_limit_s}
    for name, data in given.items():
        if data is None:
            continue
        said = facts[name].data if name in facts else data
        if name in ("gpus", "nodes") and said != data:
            warnings.append(
                f"the launch configuration says {data} {name}, the command {said}: "
                f"the launch configuration is used"
            )
        facts[name] = Value(data, Origin("launch"))
    return facts


def launcher_variables(sets: dict[str, str], facts: Facts) -> dict[str, Value]:
    """The variables that launchers set for the first process; unknown where the fact is."""
    variables: dict[str, Value] = {}
    for name, text in sets.items():
        fact = facts.get(text.removeprefix("$")) if text.startswith("$") else None
        if fact is not None:
            variables[name] = Value(str(fact.data), fact.origin)
        else:
            known = not text.startswith("$")
            variables[name] = Value(text if known else Unknown(f"${name}"), Origin("library"))
    return variables
