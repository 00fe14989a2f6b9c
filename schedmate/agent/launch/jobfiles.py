"""Jobs described in YAML files: `kubectl apply -f job.yaml`, `sky launch task.yaml` ...

The systems differ in their keys, not in what they say: a command, its arguments, variables, GPUs
and nodes. jobfiles.yaml says which keys mean what; the first job of the file that starts a program
of the repository counts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from schedmate.agent.launch.conditions import Decision
from schedmate.agent.launch.following import Call, Follower
from schedmate.agent.launch.launchers import Options, Table, parse_options
from schedmate.agent.launch.resources import Facts
from schedmate.agent.launch.scripts import run_text
from schedmate.agent.launch.state import token
from schedmate.agent.values import Value
from schedmate.data import load

MAX_JOBS = 20
MAX_DEPTH = 20


@dataclass(frozen=True, slots=True)
class Job:
    """A job's shell text, variables and facts, under its own name or its key."""

    name: str
    text: Value
    env: dict[str, Value]
    facts: Facts


@dataclass(slots=True)
class _Around:
    """What holds for the jobs inside a mapping."""

    name: str = ""
    env: dict[str, Value] = field(default_factory=dict)
    facts: Facts = field(default_factory=dict)


@cache
def _keys() -> dict[str, Any]:
    data: dict[str, Any] = load("agent/launch/jobfiles.yaml")
    return data


def file_of(follower: Follower, call: Call, options: Options, table: Table) -> str | None:
    """The job description that a launcher's words name, else the system's usual one.

    Takes variables that options after the file set.
    """
    rest = parse_options(table, call.words[1:]).given if call.words else []
    for option in rest:
        if option.name in table.env and option.values:
            name, _, text = token(option.values[0]).partition("=")
            call.env[name] = Value(text, option.values[0].origin)
    given = [value for option in (*options.given, *rest) for value in option.values]
    named = [token(word).rpartition("=")[2] for word in (*given, *call.words)]
    for text in (*(t for t in named if t.endswith((".yaml", ".yml"))), *table.files):
        for folder in dict.fromkeys((call.cwd, ".")):
            path = follower.repo.normalise(text, folder)
            if path is not None and follower.repo.is_file(path):
                return path
    return None


def follow(follower: Follower, call: Call, path: str) -> Decision:
    """Follow the jobs of a file; of several, those that a word of the call names."""
    config = follower.config(path)
    if config is None:
        return None
    jobs = list(_jobs(config, _Around(), 0))[:MAX_JOBS]
    if not jobs:
        follower.warn(f"{path} has no command that is understood")
    words = [token(word) for word in call.words]
    outer_env, outer_facts = dict(call.env), dict(call.facts)
    for job in [job for job in jobs if job.name in words] or jobs:
        given = words[words.index(job.name) + 1 :] if job.name in words else []
        call.env = job.env | outer_env
        call.facts = outer_facts | job.facts
        line = job.text.origin.line if job.text.origin is not None else None
        text = shlex.join(given) if given else str(job.text.data)
        block = text.endswith("\n") and "\n" in text.rstrip("\n")
        run_text(follower, text, (line or 1) + block, path, job.name, [], call)
    return True


def _jobs(value: Value, around: _Around, depth: int) -> Iterator[Job]:
    data = value.data
    if depth > MAX_DEPTH:
        return
    if isinstance(data, list | tuple):
        for item in data:
            yield from _jobs(item, around, depth + 1)
    if not isinstance(data, dict):
        return
    keys = _keys()
    name = data["name"].data if "name" in data and isinstance(data["name"].data, str) else None
    here = _Around(
        name or around.name,
        around.env | _variables(data),
        around.facts | _facts(data),
    )
    text = _text(data)
    if text is not None:
        yield Job(here.name, text, here.env, here.facts)
    for key, item in data.items():
        if key in keys["passed_over"] or not isinstance(item.data, dict | list):
            continue
        inside = here
        if re.fullmatch(keys["replicas"], str(key)) and (count := _replicas(item)) is not None:
            inside = _Around(here.name, here.env, here.facts | {"nodes": count})
        named = name is None and isinstance(item.data, dict)
        inside = _Around(str(key) if named else inside.name, inside.env, inside.facts)
        yield from _jobs(item, inside, depth + 1)


def _text(data: dict[Any, Value]) -> Value | None:
    """The command of a mapping as shell text, None where it has none."""
    keys = _keys()
    for key in keys["text"]:
        if key in data and isinstance(data[key].data, str):
            text = str(data[key].data)
            return Value(
                " ".join([text, *_flags(data)]) if _flags(data) else text, data[key].origin
            )
    for key in keys["lines"]:
        lines = data[key].data if key in data else None
        if isinstance(lines, list) and lines and all(isinstance(i.data, str) for i in lines):
            return Value("\n".join(str(item.data) for item in lines), lines[0].origin)
    parts: list[Value] = []
    for key in keys["words"]:
        held = data.get(key, Value(None)).data
        if isinstance(held, list) and all(isinstance(i.data, str | int | float) for i in held):
            words = shlex.join(str(item.data) for item in held)
            parts.append(Value(words, held[0].origin if held else None))
        elif isinstance(held, str):
            parts.append(data[key])
    if not parts or not any(" " in str(part.data) or ".py" in str(part.data) for part in parts):
        return None
    return Value(" ".join(str(part.data) for part in parts), parts[0].origin)


def _flags(data: dict[Any, Value]) -> list[str]:
    """The words of flags that stand apart from the command; one that is on has no value."""
    words: list[str] = []
    for key in _keys()["flags"]:
        held = _first(data.get(key, Value(None)))
        for name, value in held.items() if isinstance(held, dict) else ():
            told = _first(value)
            if re.fullmatch(r"[A-Za-z]\w*", str(name)) and told not in (False, None):
                words += [f"--{name}"] if told is True else [f"--{name}", shlex.quote(str(told))]
    return words


def _first(value: Value) -> Any:
    """The data, of a list the first item's."""
    if isinstance(value.data, list):
        return value.data[0].data if value.data else None
    return value.data


def _variables(data: dict[Any, Value]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for key in _keys()["variables"]:
        held = data.get(key, Value(None)).data
        for name, item in held.items() if isinstance(held, dict) else ():
            if isinstance(item.data, str | int | float) and re.fullmatch(r"\w+", str(name)):
                found[str(name)] = Value(str(item.data), item.origin)
        for item in held if isinstance(held, list) else ():
            pair = item.data
            if isinstance(pair, str) and (match := re.fullmatch(r"(\w+)=(.*)", pair, re.DOTALL)):
                found[match[1]] = Value(match[2], item.origin)
            elif isinstance(pair, dict) and "name" in pair and "value" in pair:
                found[str(pair["name"].data)] = Value(str(pair["value"].data), pair["value"].origin)
    return found


def _facts(data: dict[Any, Value]) -> Facts:
    """GPUs and nodes that a mapping states, itself or in what describes its resources."""
    keys, facts = _keys(), Facts()
    for key in keys["resources"]:
        held = data.get(key, Value(None)).data
        if isinstance(held, dict):
            facts |= _facts(held)
    for fact in ("gpus_per_node", "nodes"):
        for key in keys[fact]:
            count = _count(data[key]) if key in data else None
            if count is not None:
                facts[fact] = Value(count, data[key].origin)
    return facts


def _count(value: Value) -> int | None:
    """`8`, `A100:8`, `{A100: 8}`, `{name: A100, count: 8}`, the first of several."""
    data = value.data
    if isinstance(data, dict):
        return _count(data.get("count", next(iter(data.values()), Value(None))))
    if isinstance(data, list):
        return _count(data[0]) if data else None
    match = re.fullmatch(r"(?:.*:)?(\d{1,5})", str(data))
    return int(match[1]) if match and not isinstance(data, bool) else None


def _replicas(value: Value) -> Value | None:
    """How many nodes the roles of a distributed job are, together."""
    roles = value.mapping.values() if value.mapping is not None else value.sequence or ()
    said = [(role.mapping or {}).get("replicas") for role in roles]
    counts = [count for count in said if count is not None]
    numbers = [count.data for count in counts if type(count.data) is int]
    if not numbers or len(numbers) < len(counts):
        return None
    return Value(sum(numbers), counts[0].origin)
