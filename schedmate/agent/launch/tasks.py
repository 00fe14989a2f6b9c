"""Commands that a project keeps under names: `just train`, `pixi run train`, `dvc repro` ...

Where each runner keeps them and how it fills in values is in tasks.yaml. A value that is not known
becomes a shell variable that is not set.
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
from schedmate.agent.launch.justfile import bind, parse_justfile
from schedmate.agent.launch.scripts import run_text
from schedmate.agent.launch.state import token
from schedmate.agent.values import Value
from schedmate.data import load

COMMANDS = ("cmd", "cmds", "command", "shell", "script", "sequence", "composite", "chain")
"""Keys of a task under which its commands are."""
BEFORE = ("depends-on", "depends_on", "deps")
"""Keys of a task under which the tasks that run before it are."""
MAX_TASKS = 50


@dataclass(slots=True)
class TaskFile:
    """The tasks of one file by name, and what fills in their placeholders."""

    file: str
    tasks: dict[str, Value]
    variables: dict[str, str]
    done: set[str] = field(default_factory=set)


@cache
def _runners() -> dict[str, dict[str, Any]]:
    runners: dict[str, dict[str, Any]] = load("agent/launch/tasks.yaml")
    return runners


def is_task(follower: Follower, call: Call, runner: str) -> bool:
    """Whether the first word of a call is a task of the runner."""
    task_file = _find(follower, call, runner)
    return task_file is not None and token(call.words[0]) in task_file.tasks


def follow(follower: Follower, call: Call, runner: str) -> Decision:
    """Follow the task that the words of a call name, or the runner's default."""
    task_file = _find(follower, call, runner)
    if task_file is None:
        follower.warn(f"{runner} in {call.cwd}: nothing that can be read says what it runs")
        return None
    entry = _runners()[runner]
    words = [token(word) for word in call.words]
    pairs = [re.fullmatch(r"(\w+)[:?]?=(.*)", word, re.DOTALL) for word in words]
    if not entry.get("pairs"):  # they come before the task
        pairs = pairs[: pairs.index(None)] if None in pairs else pairs
    settings = [pair for pair in pairs if pair is not None]
    task_file.variables |= {pair[1]: pair[2] for pair in settings}
    words = [word for word in words if word not in {pair[0] for pair in settings}]
    default = entry.get("default", next(iter(task_file.tasks), ""))
    name, rest = (words[0], words[1:]) if words else (default, [])
    if name is not None and name not in task_file.tasks:
        follower.warn(f"{task_file.file} has no task {name}")
        return None
    rest = rest[1:] if rest[:1] == ["--"] else rest
    for task in list(task_file.tasks) if name is None else [name]:
        _run(follower, call, runner, task_file, task, rest)
    return True


def _find(follower: Follower, call: Call, runner: str) -> TaskFile | None:
    """The first file of the runner, in the working directory or the root, that holds tasks."""
    for folder in dict.fromkeys((call.cwd, ".")):
        for name, places in _runners()[runner]["files"].items():
            path = follower.repo.normalise(name, folder)
            if path is None or not follower.repo.is_file(path):
                continue
            if runner == "just":
                return TaskFile(path, *parse_justfile(follower.repo.read(path) or "", path))
            config = follower.config(path)
            tables = [] if config is None else _tables(config, places)
            tasks = {str(key): task for table in tables for key, task in table.items()}
            if config is not None and tasks:
                return TaskFile(path, tasks, _variables(follower, runner, config, folder))
    return None


def _tables(config: Value, places: list[str]) -> list[dict[Any, Value]]:
    """The mappings at dotted paths whose parts may be `*`."""
    matching: list[dict[Any, Value]] = []
    for place in places:
        tables = [config.mapping or {}]
        for part in place.split("."):
            inner = [t.values() if part == "*" else [t[part]] for t in tables if part in (*t, "*")]
            tables = [item.mapping or {} for items in inner for item in items]
        matching += tables
    return matching


def _variables(follower: Follower, runner: str, config: Value, folder: str) -> dict[str, str]:
    entry = _runners()[runner]
    tables = _tables(config, entry.get("variables", []))
    path = follower.repo.normalise(entry.get("parameters", ""), folder)
    if path is not None and follower.repo.is_file(path):
        parameters = follower.config(path)
        tables.append((parameters.mapping if parameters is not None else None) or {})
    return {
        key: str(leaf.data)
        for table in tables
        for key, leaf in Value(table).leaves()
        if isinstance(leaf.data, str | int | float)
    }


def _run(
    follower: Follower, call: Call, runner: str, task_file: TaskFile, name: str, rest: list[str]
) -> None:
    """Follow the commands of a task, after those of the tasks that it depends on."""
    follower.tick()
    task = task_file.tasks.get(name)
    if task is None or name in task_file.done or len(task_file.done) > MAX_TASKS:
        return
    task_file.done.add(name)
    variables = dict(task_file.variables)
    if task.mapping is not None:
        for before in (item for key in BEFORE for item in _listed(task.mapping.get(key))):
            inner = (before.mapping or {}).get("task", before)
            _run(follower, call, runner, task_file, str(inner.data), [])
        variables = _own_variables(task.mapping) | variables
        bound = bind(task, rest)
        if bound is not None:
            variables, rest = variables | bound, []
    commands = list(_commands(task))
    for number, command in enumerate(commands):
        text = str(command.data)
        if text in task_file.tasks and text != name:  # a sequence of other tasks
            _run(follower, call, runner, task_file, text, rest)
            continue
        filled = _filled(runner, text, variables, rest)
        if filled == text and rest and number == len(commands) - 1:
            filled = f"{text.rstrip()} {shlex.join(rest)}"
        line = command.origin.line if command.origin is not None and command.origin.line else 1
        line += text.endswith("\n")  # a block begins on the line after its key
        file = command.origin.file if command.origin is not None else task_file.file
        run_text(follower, filled, line, file, runner, [], call)


def _own_variables(task: dict[Any, Value]) -> dict[str, str]:
    """The variables that a task sets for itself."""
    tables = [(task[key].mapping or {}) for key in ("vars", "env") if key in task]
    return {
        str(name): str(value.data)
        for table in tables
        for name, value in table.items()
        if isinstance(value.data, str | int | float)
    }


def _listed(value: Value | None) -> list[Value]:
    if value is None:
        return []
    return list(value.sequence) if value.sequence is not None else [value]


def _commands(task: Value) -> Iterator[Value]:
    """The commands of a task; a list under `cmd` is one command, any other list one for each."""
    if isinstance(task.data, str):
        yield task
    for item in task.sequence or ():
        yield from _commands(item)
    for key in ("task", *COMMANDS):
        value = (task.mapping or {}).get(key)
        if value is not None and key == "cmd" and value.sequence is not None:
            yield Value(shlex.join(str(item.data) for item in value.sequence), value.origin)
        elif value is not None:
            yield from _commands(value)


def _filled(runner: str, text: str, variables: dict[str, str], rest: list[str]) -> str:
    """A command with the placeholders of its runner filled in."""
    entry = _runners()[runner]
    pattern = entry.get("placeholder")

    def value(match: re.Match[str]) -> str:
        name, default = match[1], match[2] if match.re.groups > 1 else None
        if name == entry.get("arguments"):
            return shlex.join(rest) if rest else default or ""
        known = variables.get(name, default)
        variable = re.sub(r"\W", "_", name)
        return f"${{{variable}}}" if known is None else known

    return re.sub(pattern, value, text) if pattern else text
