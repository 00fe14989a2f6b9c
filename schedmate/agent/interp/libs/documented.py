"""What libraries' documentation says of them: results, constants, defaults, functions that pass on.

All of it is data, in `libraries.yaml`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from schedmate.agent.configs.trees import wrap
from schedmate.agent.interp import classes
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs import running
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.values import Origin, Value
from schedmate.data import load

_DATA: dict[str, Any] = load("agent/interp/libs/libraries.yaml")
_ALIASES: tuple[tuple[str, str], ...] = tuple(_DATA["aliases"].items())
TRAINER_OPTIONS: list[str] = _DATA["trainer_options"]
"""Arguments of Lightning's trainer."""


@lru_cache(16_384)
def canonical(path: str) -> str:
    """One spelling for what can be imported under several names."""
    for old, new in _ALIASES:
        if path.startswith(old):
            return new + path[len(old) :]
    renamed: str = _DATA["renamed"].get(path, path)
    return renamed


@lru_cache(1024)
def defaults(path: str) -> tuple[str, dict[str, Any]] | None:
    """The class at `path`, or of that name in a library, and its fields' documented defaults."""
    name = classes.last(path)
    for known, fields in _DATA["records"].items():
        if known == path or (
            known.rsplit(".", 1)[-1] == name and path.split(".", maxsplit=1)[0] != "?"
        ):
            return known, fields
    return None


def record_defaults(path: str) -> dict[str, Value]:
    """Documented defaults of a library's configuration class, by field."""
    found = defaults(path)
    if found is None:
        return {}
    return {
        key: Value(value, Origin("library", text=f"{found[0]}.{key}"))
        for key, value in found[1].items()
    }


def record_classes() -> list[str]:
    """Configuration classes of libraries whose defaults are documented."""
    return list(_DATA["records"])


def config_defaults(name: str) -> Value:
    """A library's default configuration tree."""
    return _named(_DATA["configs"][name], name)


def _named(data: Any, name: str) -> Value:
    """A tree of documented defaults, each under its whole name."""
    if isinstance(data, dict):
        items = {key: _named(item, f"{name}.{key}") for key, item in data.items()}
        return Value(items, Origin("library", text=name))
    return wrap(data, Origin("library", text=name))


def parsers() -> dict[str, list[dict[str, Any]]]:
    """The options of argument parsers that libraries make, by the function that makes one."""
    options: dict[str, list[dict[str, Any]]] = _DATA["parsers"]
    return options


def _stands_for(names: set[str]) -> str | None:
    for path, copies in _DATA["copies"].items():
        if any(names >= set(telling) for telling in copies):
            return str(path)
    return None


def _constant(said: Any) -> Callable[[Machine], Value]:
    """A value, or with `{name}` what the launch says of it."""
    if isinstance(said, str) and said.startswith("{") and said.endswith("}"):
        fact = said[1:-1]
        return lambda machine: machine.facts[fact]
    value = Value(said)
    return lambda _: value


def _result(said: Any) -> Handler:
    constant = _constant(said)

    def answer(machine: Machine, call: Invocation) -> Value:
        value = constant(machine)
        return Value(value.data, value.origin)

    return answer


PLUGIN = Plugin(
    calls={
        **{path: _result(said) for path, said in _DATA["results"].items()},
        **dict.fromkeys(_DATA["identity"], running.identity),
        **{f"*.{name}": running.fluent for name in _DATA["fluent"]},
        **{path: running.callback(*how) for path, how in _DATA["callbacks"].items()},
    },
    names={path: _constant(said) for path, said in _DATA["constants"].items()},
    defaults=record_defaults,
    stands_for=_stands_for,
)
