"""Commands that a project keeps under names: `just train`, `pixi run train`, `mlflow run .` ...

Where each runner keeps them and how it fills in values is in tasks.yaml. A value that is not known
becomes a shell variable that nobody set.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from schedmate.agent.configs.reader import read_config
from schedmate.agent.launch.conditions import Decision
from schedmate.agent.launch.following import Call, Follower
from schedmate.agent.launch.justfile import bind, parse_justfile
from schedmate.agent.launch.launchers import Options, Table, parse_options
from schedmate.agent.launch.state import token
from schedmate.agent.values import Value
from schedmate.data import load
from schedmate.errors import InputError

COMMANDS = ("cmd", "cmds", "command", "shell", "script", "sequence", "composite", "chain")
"""Keys of a task under which its commands are."""
BEFORE = ("depends-on", "depends_on", "deps")
"""Keys of a task under which the tasks that run before it are."""
MAX_TASKS = 50


@dataclass(slots=True)
class Tasks:
    """What one runner finds: tasks by name, what fills in placeholders, and the file."""

    file: str
    tasks: dict[str, Value] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)


@cache
def _runners() -> dict[str, Any]:
    return {name: entry or {} for name, entry in load("agent/launch/tasks.yaml").items()}


def named(follower: Follower, call: Call, runner: str) -> bool:
    """Whether the first word of a call is a task of the runner."""
    found = _find(follower, call, runner)
    return found is not None and token(call.words[0]) in found.tasks


def follow(follower: Follower, call: Call, table: Table, options: Options) -> Decision:
    """Follow the task that the words of a call name, or the runner's default."""
    runner = table.tasks or ""
    found = _find(follower, call, runner)
    if found is None:
        follower.warn(f"{runner} in {call.cwd}: nothing that can be read says what it runs")
        return None
    entry = _runners()[runner]
    words = [token(word) for word in call.words]
    pairs = [pair for word in words if (pair := re.fullmatch(r"(\w+)[:?]?=(.*)", word, re.DOTALL))]
    if not entry.get("pairs"):  # they come before the task
        pairs = [pair for pair, word in zip(pairs, words, strict=False) if pair[0] == word]
    found.variables |= {pair[1]: pair[2] for pair in pairs}
    words = [word for word in words if word not in {pair[0] for pair in pairs}]
    default = entry.get("default", next(iter(found.tasks), ""))
    later = parse_options(table, call.words[1:]).given if entry.get("directory") else []
    for option in (*options.given, *later):
        if option.name in entry.get("named_by", ()) and option.values:
            default = token(option.values[0])
        elif option.name in entry.get("given", ()) and option.values:
            key, _, text = token(option.values[0]).partition("=")
            found.variables[key] = text
    if entry.get("directory"):
        words = []
    name, rest = (words[0], words[1:]) if words else (default, [])
    rest = rest[1:] if rest[:1] == ["--"] else rest
    if name is not None and name not in found.tasks:
        follower.warn(f"{found.file} has no task {name}")
        return None
    done: set[str] = set()
    for one in found.tasks if name is None else [name]:
        _run(follower, call, _Run(runner, found, done), one, rest)
    return True


@dataclass(slots=True)
class _Run:
    runner: str
    found: Tasks
    done: set[str]


def _find(follower: Follower, call: Call, runner: str) -> Tasks | None:
    """The first file of the runner, in the working directory or the root, that holds tasks."""
    for folder in dict.fromkeys((call.cwd, ".")):
        if runner == "just":
            for name in ("justfile", "Justfile", ".justfile"):
                path = follower.repo.normalise(name, folder)
                text = follower.repo.read(path) if path else None
                if path is not None and text is not None:
                    return Tasks(path, *parse_justfile(text, path))
        for name, places in _runners()[runner]["files"].items():
            path = follower.repo.normalise(name, folder)
            config = _config(follower, path) if path and follower.repo.is_file(path) else None
            if path is None or config is None:
                continue
            tasks: dict[str, Value] = {}
            for place in places:
                for table in _at(config, place.split(".")):
                    tasks |= {str(key): item for key, item in table.items()}
            if tasks:
                return Tasks(path, tasks, _variables(follower, runner, config, folder))
    return None


def _config(follower: Follower, path: str) -> Value | None:
    try:
        return read_config(follower.repo.root / path, follower.repo.root)
    except InputError as error:
        follower.warn(str(error))
        return None


def _at(value: Value, path: list[str]) -> Iterator[dict[Any, Value]]:
    """The mappings at a path whose parts may be `*`; what lists hold is found by its `name`."""
    if not path and isinstance(value.data, list):
        named = [(item.mapping or {}).get("name") for item in value.data]
        yield {str(n.data): item for n, item in zip(named, value.data, strict=True) if n}
    if not isinstance(value.data, dict):
        return
    if not path:
        yield value.data
    elif path[0] == "*":
        for item in value.data.values():
            yield from _at(item, path[1:])
    elif path[0] in value.data:
        yield from _at(value.data[path[0]], path[1:])


def _variables(follower: Follower, runner: str, config: Value, folder: str) -> dict[str, str]:
    entry, values = _runners()[runner], [config]
    parameters = follower.repo.normalise(entry.get("parameters", ""), folder)
    if parameters is not None and follower.repo.is_file(parameters):
        values.append(_config(follower, parameters) or config)
    tables = [t for place in entry.get("variables", ()) for t in _at(config, place.split("."))]
    return {
        key: str(leaf.data)
        for table in (*tables, *(v.data for v in values[1:] if isinstance(v.data, dict)))
        for key, leaf in Value(table).leaves()
        if isinstance(leaf.data, str | int | float)
    }


def _run(follower: Follower, call: Call, run: _Run, name: str, rest: list[str]) -> None:
    follower.tick()
    task = run.found.tasks.get(name)
    if task is None or name in run.done or len(run.done) > MAX_TASKS:
        return
    run.done.add(name)
    known = dict(run.found.variables)
    if isinstance(task.data, dict):
        for key in BEFORE:
            for before in _several(task.data.get(key)):
                inner = before.data.get("task", before) if isinstance(before.data, dict) else before
                _run(follower, call, run, str(inner.data), [])
        known |= _parameters(task.data, known)
        taken = bind(task, rest)
        if taken is not None:
            known, rest = known | taken, []
    commands = list(_commands(task))
    for number, command in enumerate(commands):
        text = str(command.data)
        if text in run.found.tasks and text != name:  # a sequence of other tasks
            _run(follower, call, run, text, rest)
            continue
        told = _filled(run.runner, text, known, rest)
        if told == text and rest and number == len(commands) - 1:
            told = f"{text.rstrip()} {shlex.join(rest)}"
        line = command.origin.line if command.origin is not None and command.origin.line else 1
        line += text.endswith("\n")  # a block begins on the line after its key
        file = command.origin.file if command.origin is not None else run.found.file
        follower.run_text(told, line, file, run.runner, [], call)


def _parameters(task: dict[Any, Value], given: dict[str, str]) -> dict[str, str]:
    """Defaults of a task's own parameters or variables, under those that are given."""
    told: dict[str, str] = {}
    for key in ("parameters", "vars", "env"):
        table = task.get(key, Value(None)).data
        for name, value in table.items() if isinstance(table, dict) else ():
            default = value.data.get("default") if isinstance(value.data, dict) else value
            if default is not None and isinstance(default.data, str | int | float):
                told[str(name)] = str(default.data)
    return {name: given.get(name, text) for name, text in told.items()}


def _several(value: Value | None) -> list[Value]:
    if value is None:
        return []
    return list(value.data) if isinstance(value.data, list | tuple) else [value]


def _commands(task: Value) -> Iterator[Value]:
    """The commands of a task; a list under `cmd` is one command, any other list one for each."""
    if isinstance(task.data, str):
        yield task
    elif isinstance(task.data, list | tuple):
        for item in task.data:
            yield from _commands(item)
    elif isinstance(task.data, dict):
        inner = task.data.get("task")
        if inner is not None and isinstance(inner.data, str):
            yield inner
        for key in COMMANDS:
            value = task.data.get(key)
            if value is None:
                continue
            if key == "cmd" and isinstance(value.data, list | tuple):
                words = [str(item.data) for item in value.data]
                yield Value(shlex.join(words), value.origin)
            else:
                yield from _commands(value)


def _filled(runner: str, text: str, known: dict[str, str], rest: list[str]) -> str:
    """A command with the placeholders of its runner filled in."""
    entry = _runners()[runner]
    pattern = entry.get("placeholder")

    def value(match: re.Match[str]) -> str:
        name, default = match[1], match[2] if match.re.groups > 1 else None
        if name == entry.get("arguments"):
            return shlex.join(rest) if rest else default or ""
        told = known.get(name, default)
        variable = re.sub(r"\W", "_", name)
        return f"${{{variable}}}" if told is None else told

    return re.sub(pattern, value, text) if pattern else text
