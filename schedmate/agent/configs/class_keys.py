"""The keys by which configurations name classes, from class_keys.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeAlias

from schedmate.data import load

Says: TypeAlias = Literal["path", "class", "name", "tag"]


@cache
def _table() -> dict[str, Any]:
    loaded: dict[str, Any] = load("agent/configs/class_keys.yaml")
    return loaded


@cache
def class_keys(*says: Says) -> tuple[str, ...]:
    """The keys whose value is one of `says`: a `path`, a `class`, a `name` or a `tag`."""
    return tuple(key for key, entry in _table()["keys"].items() if entry["says"] in says)


def built_by(config: Mapping[Any, Any]) -> str | None:
    """The key of `config` that `instantiate` and its like follow, if it has one."""
    keys = _table()["keys"]
    return next((key for key in keys if keys[key].get("built") and key in config), None)


def argument_keys(key: str) -> tuple[str, ...]:
    """Where the arguments of the class named under `key` may stand, rather than beside it."""
    return tuple(_table()["keys"][key].get("arguments", ()))


def is_instruction(key: object) -> bool:
    """Whether a key beside the class's is no argument of it."""
    table = _table()
    return key in table["instructions"] or bool(table["keys"].get(key, {}).get("built"))
