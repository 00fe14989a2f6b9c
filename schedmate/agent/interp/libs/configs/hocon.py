"""pyhocon: trees read from HOCON, asked by dotted path."""

from __future__ import annotations

from schedmate.agent.configs.reader import read_hocon_text
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.configs.files import noted, read_file
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.natives import identity
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.trees import attr_tree
from schedmate.agent.values import Value, unknown
from schedmate.errors import InputError

FLAVOUR = "hocon"


def parse_file(machine: Machine, call: Invocation) -> Value:
    """`ConfigFactory.parse_file(path)`."""
    loaded = read_file(machine, call.argument(0, "filename") or unknown())
    return attr_tree(loaded, FLAVOUR) if loaded is not None else unknown()


def parse_string(machine: Machine, call: Invocation) -> Value:
    """`ConfigFactory.parse_string(text)`; the program may have put words into a file's text."""
    given = call.text(0, "content")
    if given is None:
        return unknown()
    lines = given.count("\n")
    files = [path for text, path in machine.texts.items() if text.count("\n") == lines]
    name = machine.sources.relative(files[-1]) if files else None
    try:
        tree = read_hocon_text(given, name)
    except InputError as error:
        machine.observer.warns(str(error))
        return unknown()
    return noted(machine, attr_tree(tree, FLAVOUR), name or "configuration text")


def get(machine: Machine, call: Invocation) -> Value:
    """`tree.get_int("train.steps", default=0)` and its kin."""
    key = call.text(0, "key")
    value: Value | None = call.owner
    for part in (key or "").split("."):
        mapping = machine.mapping(value)
        value = mapping.get(part) if mapping is not None else None
    default = call.argument(1, "default")
    return value or default or unknown()


_KINDS = ("int", "float", "bool", "string", "list", "config")


def _inside(machine: Machine, call: Invocation) -> Value | None:
    """`tree["train.steps"]`: an item of the tree that the first name stands for."""
    outer, dot, rest = (call.first.text or "").partition(".")
    items = machine.mapping(call.owner)
    found = items.get(outer) if items is not None and dot else None
    return machine.getitem(found, Value(rest)) if found is not None else None


PLUGIN = Plugin(
    methods={
        FLAVOUR: {"get": get, "__missing__": _inside, **{f"get_{kind}": get for kind in _KINDS}}
    },
    calls={
        "pyhocon.ConfigFactory.parse_file": parse_file,
        "pyhocon.ConfigFactory.parse_string": parse_string,
        "pyhocon.ConfigFactory.from_dict": identity,
    },
)
