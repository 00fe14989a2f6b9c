"""What launch options, `#SBATCH` lines and launcher configs say about resources."""

from __future__ import annotations

import re
import shlex

from schedmate.agent.launch.launchers import Options, Table, option_origin, parse_options, rules
from schedmate.agent.launch.quantities import READERS, Plain
from schedmate.agent.launch.repo import Repo
from schedmate.agent.launch.state import token
from schedmate.agent.values import Origin, Unknown, Value
from schedmate.errors import InputError

Facts = dict[str, Value]

_ACCELERATE = {
    "num_processes": "procs",
    "num_machines": "nodes",
    "mixed_precision": "precision",
    "zero_stage": "zero_stage",
    "deepspeed_config_file": "deepspeed_config",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}


def from_options(table: Table, options: Options, repo: Repo, cwd: str) -> Facts:
    """The facts that a launcher's options state. What is unknown states nothing."""
    facts: Facts = {}
    config: Facts = {}
    for option in options.given:
        name, values, word = option
        for fact, data in table.flags.get(name, {}).items():
            facts[fact] = Value(data, word.origin)
        if name not in table.facts or not values or isinstance(values[0].data, Unknown):
            continue
        fact, text = table.facts[name], token(values[0])
        origin = option_origin(option)
        if fact in ("hostfile", "accelerate_config"):
            path = repo.normalise(text, cwd) or repo.by_suffix(text)
            content = repo.read(path) if path else None
            if fact == "accelerate_config":
                facts[fact] = Value(path or text, origin)
                config = _accelerate(repo, path) if path is not None else {}
            elif content is not None:
                facts |= _hostfile(content, path)
        else:
            plain = READERS[fact](text) if fact in READERS else _text(fact, text)
            facts |= {key: Value(data, origin) for key, data in plain.items()}
    return config | facts


def _text(fact: str, text: str) -> Plain:
    return {fact: text} if re.fullmatch(r"[\w.,:/%+=@-]+", text) else {}


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


def _accelerate(repo: Repo, path: str) -> Facts:
    """What an `accelerate config` file states, at its top or in its `deepspeed_config`."""
    try:
        items = repo.config(path).mapping or {}
    except InputError:
        return {}
    facts: Facts = {}
    inner = items.get("deepspeed_config", Value(None)).mapping or {}
    for key, fact in _ACCELERATE.items():
        value = inner.get(key) or items.get(key) or Value(None)
        if value.origin is None or not isinstance(value.data, bool | int | float | str):
            continue
        text = "no" if value.data is False else str(value.data)
        stated = READERS[fact](text) if fact in READERS else {fact: text}
        origin = value.origin._replace(text=key)
        facts |= {name: Value(data, origin) for name, data in stated.items()}
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
