"""pyhocon: trees read from HOCON, asked by dotted path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedmate.agent.configs import read_hocon_text
from schedmate.agent.interp.invocation import Handler, Invocation, Method
from schedmate.agent.interp.libs.configs.files import noted, read_file
from schedmate.agent.interp.nodes import attr_tree
from schedmate.agent.values import Value, unknown
from schedmate.errors import InputError

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State

FLAVOUR = "hocon"


def parse_file(state: State, call: Invocation) -> Value:
    """`ConfigFactory.parse_file(path)`."""
    loaded = read_file(state, call.argument(0, "filename") or unknown())
    return attr_tree(loaded, FLAVOUR) if loaded is not None else unknown()


def parse_string(state: State, call: Invocation) -> Value:
    """`ConfigFactory.parse_string(text)`; the program may have put words into a file's text."""
    given = call.argument(0, "content")
    if given is None or not isinstance(given.data, str):
        return unknown()
    lines = given.data.count("\n")
    files = [path for text, path in state.texts.items() if text.count("\n") == lines]
    name = state.sources.relative(files[-1]) if files else None
    try:
        tree = read_hocon_text(given.data, name)
    except InputError as error:
        state.trace.warn(str(error))
        return unknown()
    return noted(state, attr_tree(tree, FLAVOUR), name or "configuration text")


def get(state: State, base: Value, call: Invocation) -> Value:
    """`tree.get_int("train.steps", default=0)` and its kin."""
    key = call.argument(0, "key")
    value: Value | None = base
    for part in key.data.split(".") if key is not None and isinstance(key.data, str) else [""]:
        mapping = state.mapping(value) if value is not None else None
        value = mapping.get(part) if mapping is not None else None
    default = call.argument(1, "default")
    return value or default or unknown()


_KINDS = ("int", "float", "bool", "string", "list", "config")
METHODS: dict[str, Method] = {"get": get, **{f"get_{kind}": get for kind in _KINDS}}

HANDLERS: dict[str, Handler] = {
    "pyhocon.ConfigFactory.parse_file": parse_file,
    "pyhocon.ConfigFactory.parse_string": parse_string,
    "pyhocon.ConfigFactory.from_dict": lambda state, call: call.first,
}
