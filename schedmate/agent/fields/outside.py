"""Training programs of libraries, run where the repository holds no code of its own for them.

What their words mean, and what holds where nothing is said, is in outside.yaml.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from schedmate.agent.fields.candidates import rules
from schedmate.agent.interp.libs.cli.flags import parse_flags
from schedmate.agent.interp.libs.library import Library
from schedmate.agent.interp.trace import Settings
from schedmate.agent.launch import LaunchPlan
from schedmate.agent.values import Origin, Value


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


def settings(plan: LaunchPlan, given: Value) -> list[Settings]:
    """What the program's own names mean, and its defaults, laid under what the command gives."""
    found = known(plan)
    if found is None or not isinstance(given.data, dict):
        return []
    name, entry, words = found
    library = Origin("library", text=name)
    named: dict[Any, Value] = {}
    for own, usual in entry.get("options", {}).items():
        if own in given.data:
            named[usual] = given.data[own]
    _, loose = parse_flags(words)
    plain = [word for word in loose if isinstance(word.data, str) and "=" not in word.data]
    named |= dict(zip(entry.get("positional", ()), plain, strict=False))
    if entry.get("evaluates"):
        data = named.get("dataset", given.data.get("dataset"))
        if data is not None:
            named["val_dataset"] = data
    defaults = {key: Value(value, library) for key, value in entry.get("defaults", {}).items()}
    if "record" in entry:
        defaults = Library.record_defaults(entry["record"]) | defaults
    missing = {key: value for key, value in defaults.items() if key not in given.data}
    told = [Settings(name, Value(named), "arguments")] if named else []
    return [*told, *([Settings(name, Value(missing), "config")] if missing else [])]
