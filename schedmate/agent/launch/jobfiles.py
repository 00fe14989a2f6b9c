"""Jobs described in YAML files: `kubectl apply -f job.yaml`, `sky launch task.yaml` ...

The systems differ in their keys, not in what they say: a command, its arguments, variables, GPUs
and nodes. jobfiles.yaml says which keys mean what; the first job of the file that starts a program
of the repository counts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from schedmate.agent.launch.conditions import Decision
from schedmate.agent.launch.following import Call, Follower
from schedmate.agent.launch.launchers import Options, Table, parse_options
from schedmate.agent.launch.resources import Facts
from schedmate.agent.launch.scripts import run_text
from schedmate.agent.launch.state import token
from schedmate.agent.values import Items, Value
from schedmate.data import load

MAX_JOBS = 20
MAX_DEPTH = 20
_NOTHING = Value(None)


@dataclass(frozen=True, slots=True)
class Job:
    """What a mapping and those around it say: a job where there is `text`, its shell text."""

    name: str = ""
    env: dict[str, Value] = field(default_factory=dict)
    facts: Facts = field(default_factory=dict)
    text: Value | None = None


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
    values = [value for option in (*options.given, *rest) for value in option.values]
    texts = [token(word).rpartition("=")[2] for word in (*values, *call.words)]
    for text in (*(t for t in texts if t.endswith((".yaml", ".yml"))), *table.files):
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
    jobs = list(_jobs(config, Job(), 0))[:MAX_JOBS]
    if not jobs:
        follower.warn(f"{path} has no command that is understood")
    words = [token(word) for word in call.words]
    outer_env, outer_facts = dict(call.env), dict(call.facts)
    for job in [job for job in jobs if job.name in words] or jobs:
        text = job.text or _NOTHING
        command = words[words.index(job.name) + 1 :] if job.name in words else []
        script = shlex.join(command) if command else str(text.data)
        call.env = job.env | outer_env
        call.facts = outer_facts | job.facts
        line = (text.origin.line if text.origin is not None else None) or 1
        line += script.endswith("\n") and "\n" in script.rstrip("\n")  # a block begins a line later
        run_text(follower, script, line, path, job.name, [], call)
    return True


def _jobs(value: Value, around: Job, depth: int) -> Iterator[Job]:
    if depth > MAX_DEPTH:
        return
    for item in value.sequence or ():
        yield from _jobs(item, around, depth + 1)
    items = value.mapping or {}
    name = items.get("name", _NOTHING).text
    env, facts = around.env | _variables(items), around.facts | _facts(items)
    here = Job(name or around.name, env, facts, _text(items))
    if here.text is not None:
        yield here
    for key, item in items.items():
        if key in _keys()["passed_over"]:
            continue
        inside = here
        if re.fullmatch(_keys()["replicas"], str(key)) and (count := _replicas(item)) is not None:
            inside = replace(inside, facts=facts | {"nodes": count})
        if name is None and item.mapping is not None:
            inside = replace(inside, name=str(key))
        yield from _jobs(item, inside, depth + 1)


def _text(items: Items) -> Value | None:
    """The command of a mapping as shell text, None where it has none."""
    keys = _keys()
    for key in keys["text"]:
        text = items.get(key, _NOTHING)
        if text.text is not None:
            return Value(" ".join([text.text, *_flags(items)]), text.origin)
    for key in keys["lines"]:
        lines = items.get(key, _NOTHING).elements
        if lines and all(line.text is not None for line in lines):
            return Value("\n".join(str(line.data) for line in lines), lines[0].origin)
    parts: list[Value] = []
    for key in keys["words"]:
        part = items.get(key, _NOTHING)
        words = part.elements
        if words is not None and all(isinstance(word.data, str | int | float) for word in words):
            origin = words[0].origin if words else None
            parts.append(Value(shlex.join(str(word.data) for word in words), origin))
        elif part.text is not None:
            parts.append(part)
    if not any(" " in str(part.data) or ".py" in str(part.data) for part in parts):
        return None
    return Value(" ".join(str(part.data) for part in parts), parts[0].origin)


def _flags(items: Items) -> list[str]:
    """The words of flags that stand apart from the command; one that is on has no value."""
    words: list[str] = []
    for key in _keys()["flags"]:
        for name, value in (_first(items.get(key, _NOTHING)).mapping or {}).items():
            data = _first(value).data
            if re.fullmatch(r"[A-Za-z]\w*", str(name)) and data not in (False, None):
                words += [f"--{name}"] if data is True else [f"--{name}", shlex.quote(str(data))]
    return words


def _first(value: Value) -> Value:
    """The first item of a list; anything else is itself."""
    if value.elements is None:
        return value
    return value.elements[0] if value.elements else _NOTHING


def _variables(items: Items) -> dict[str, Value]:
    variables: dict[str, Value] = {}
    for key in _keys()["variables"]:
        table = items.get(key, _NOTHING)
        for name, value in (table.mapping or {}).items():
            if isinstance(value.data, str | int | float) and re.fullmatch(r"\w+", str(name)):
                variables[str(name)] = Value(str(value.data), value.origin)
        for item in table.elements or ():
            entry = item.mapping or {}
            if match := re.fullmatch(r"(\w+)=(.*)", item.text or "", re.DOTALL):
                variables[match[1]] = Value(match[2], item.origin)
            elif "name" in entry and "value" in entry:
                value = entry["value"]
                variables[str(entry["name"].data)] = Value(str(value.data), value.origin)
    return variables


def _facts(items: Items) -> Facts:
    """GPUs and nodes that a mapping states, itself or in what describes its resources."""
    keys, facts = _keys(), Facts()
    for key in keys["resources"]:
        resources = items.get(key, _NOTHING).mapping
        if resources:
            facts |= _facts(resources)
    for fact in ("gpus_per_node", "nodes"):
        for key in keys[fact]:
            count = _count(items[key]) if key in items else None
            if count is not None:
                facts[fact] = Value(count, items[key].origin)
    return facts


def _count(value: Value) -> int | None:
    """`8`, `A100:8`, `{A100: 8}`, `{name: A100, count: 8}`, the first of several."""
    value = _first(value)
    if value.mapping is not None:
        return _count(value.mapping.get("count", next(iter(value.mapping.values()), _NOTHING)))
    match = re.fullmatch(r"(?:.*:)?(\d{1,5})", str(value.data))
    return int(match[1]) if match and not isinstance(value.data, bool) else None


def _replicas(value: Value) -> Value | None:
    """How many nodes the roles of a distributed job are, together."""
    roles = value.mapping.values() if value.mapping is not None else value.sequence or ()
    stated = [(role.mapping or {}).get("replicas") for role in roles]
    counts = [count for count in stated if count is not None]
    numbers = [count.data for count in counts if type(count.data) is int]
    if not numbers or len(numbers) < len(counts):
        return None
    return Value(sum(numbers), counts[0].origin)
