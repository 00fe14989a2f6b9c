"""Files that a program writes: what was put into them, for what reads them later on.

`python configure.py --epochs 9 --out run.yaml && python train.py run.yaml` trains with a file that
no repository holds. What is written is kept as the values it was made of, each with its own origin,
so that the evidence is the option or the template that a person wrote.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import Path

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.natives import bound
from schedmate.agent.interp.objects import as_call
from schedmate.agent.interp.values.base import Kind, of
from schedmate.agent.interp.values.trees import deep_copy
from schedmate.agent.values import StandIn, Value, unknown


@dataclass(eq=False, slots=True)
class FileHandle(StandIn):
    """A file of the repository opened for reading."""

    path: Path


@dataclass(eq=False, slots=True)
class WriteHandle(StandIn):
    """A file opened for writing, by its path as the program has it."""

    path: str


def place_in(root: str, folder: str, path: str) -> str:
    """A path that a program in `folder` uses, from the repository's root: `../run.yaml` outside.

    An absolute one far from the repository is the job's own, and stays whole.
    """
    whole = posixpath.normpath(posixpath.join(folder, path))
    beside = f"{posixpath.dirname(root)}/"
    if posixpath.isabs(path) and not whole.startswith(beside):
        return whole
    return posixpath.relpath(whole, root)


def place_of(machine: Machine, path: str) -> str:
    """A path from the repository's root, see `place_in`."""
    root = str(machine.sources.root)
    cwd = machine.facts.get("cwd")
    folder = cwd.text if cwd is not None and cwd.text is not None else root
    return place_in(root, folder, path)


def keep(machine: Machine, target: Value, value: Value) -> None:
    """Keep the mapping that is written to `target`, a path or a handle, in doubt the first one."""
    path = target.data.path if isinstance(target.data, WriteHandle) else target.text
    items = machine.mapping(value)
    if path is None or items is None:
        return
    name = place_of(machine, path)
    if machine.certain or name not in machine.written:
        machine.written[name] = deep_copy(Value(dict(items), value.origin))


def content(machine: Machine, path: str) -> tuple[str, Value] | None:
    """A file that was written before: its place, and a copy of what is in it."""
    name = place_of(machine, path) if machine.written else ""
    held = machine.written.get(name)
    return (name, deep_copy(held)) if held is not None else None


def write(machine: Machine, call: Invocation) -> Value:
    """`target.write(dumps(mapping))`: of texts, those that a library makes of a mapping."""
    text = as_call(call.first)
    if text is not None and text.args:
        keep(machine, call.owner, text.args[0])
    return Value(None)


@of(WriteHandle)
class Target(Kind[WriteHandle]):
    """A file that is opened for writing."""

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        return bound(base, name, write) if name == "write" else unknown(name)
