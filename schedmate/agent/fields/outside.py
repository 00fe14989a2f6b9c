"""Training programs of libraries, run where the repository holds no code of its own for them.

What their words mean, and what holds where nothing is said, is in outside.yaml.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from schedmate.agent.fields.candidates import rules
from schedmate.agent.interp.libs.cli.flags import parse_flags
from schedmate.agent.interp.libs.documented import record_defaults
from schedmate.agent.interp.trace import Settings
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.values import Origin, Value
from schedmate.paths import is_file


@cache
def _programs() -> dict[str, tuple[str, dict[str, Any]]]:
    """Each program, by all its names: its first name and what is known of it."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, entry in rules("outside").items():
        for alias in (name, *entry.get("names", ())):
            found[alias] = (name, entry)
    return found


def known(plan: LaunchPlan) -> tuple[str, dict[str, Any], list[Value]] | None:
    """The program of a plan, what is known of it, and the words after its name."""
    if plan.entry is not None or plan.console is None:
        return None
    texts = [str(value.data) for value in plan.argv]
    for count in range(min(2, len(texts)), -1, -1):
        held = _programs().get(" ".join([plan.console, *texts[:count]]))
        if held is not None:
            return *held, plan.argv[count:]
    return None


def python_config(root: Path, plan: LaunchPlan) -> str | None:
    """The Python file of the repository that the program of a plan is configured by."""
    found = known(plan)
    if found is None or not found[1].get("python"):
        return None
    for word in found[2]:
        path = root / plan.cwd / str(word.data)
        if path.suffix == ".py" and is_file(path) and path.resolve().is_relative_to(root):
            return path.resolve().relative_to(root).as_posix()
    return None


def usual_files(plan: LaunchPlan) -> list[str]:
    """The configuration files that the program of a plan reads where its words name none."""
    found = known(plan)
    return list(found[1].get("files", ())) if found is not None else []


def domain(plan: LaunchPlan) -> tuple[str, str] | None:
    """The only domain that the program of a plan trains for, and the program."""
    found = known(plan)
    return (found[1]["domain"], found[0]) if found is not None and "domain" in found[1] else None


def _at(value: Value, path: list[str]) -> Value | None:
    for part in path:
        if not isinstance(value.data, dict) or part not in value.data:
            return None
        value = value.data[part]
    return value


def _stem(value: Value, pattern: str) -> Value | None:
    """What of a name says what it names: `llama3_1/8B` of `llama3_1/8B_lora_single_device`."""
    match = re.fullmatch(pattern, str(value.data))
    return Value(match[1], value.origin) if match else None


def _trained_part(configs: list[Value], parts: str, length: str) -> dict[Any, Value]:
    """The part of a pipeline that is trained, by its name and for how long."""
    for config in configs:
        held = _at(config, [parts])
        for part in held.data if held is not None and isinstance(held.data, list) else ():
            if isinstance(part.data, dict) and {"name", length} <= part.data.keys():
                return {"model_name": part.data["name"], length: part.data[length]}
    return {}


def settings(plan: LaunchPlan, given: Value, configs: list[Value]) -> list[Settings]:
    """What the program's own names mean, and its defaults, laid under what the command gives.

    `configs` are the configuration files that it reads.
    """
    found = known(plan)
    if found is None or not isinstance(given.data, dict):
        return []
    name, entry, words = found
    library = Origin("library", text=name)
    named: dict[Any, Value] = {}
    for own, usual in entry.get("options", {}).items():
        value = _at(given, own.split("."))
        pattern = entry.get("stems", {}).get(usual)
        if value is not None and pattern is not None:  # unless it is a file's name, which was read
            value = None if configs else _stem(value, pattern)
        if value is not None:
            named[usual] = value
    _, loose = parse_flags(words)
    plain = [word for word in loose if isinstance(word.data, str) and "=" not in word.data]
    named |= dict(zip(entry.get("positional", ()), plain, strict=False))
    if entry.get("evaluates"):
        data = named.get("dataset", given.data.get("dataset"))
        if data is not None:
            named["val_dataset"] = data
    if "part" in entry:
        named |= _trained_part(configs, **entry["part"])
    defaults = {key: Value(value, library) for key, value in entry.get("defaults", {}).items()}
    if "record" in entry:
        defaults = record_defaults(entry["record"]) | defaults
    missing = {key: value for key, value in defaults.items() if key not in given.data}
    told = [Settings(name, Value(named), "arguments")] if named else []
    return [*told, *([Settings(name, Value(missing), "config")] if missing else [])]
