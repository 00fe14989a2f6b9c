"""Paths, files of the repository that a program opens, and files that it writes for what reads
them later on.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, cast

from schedmate.agent.bounds import MAX_PATH, VALUE_WEIGHT, joined_length
from schedmate.agent.interp.objects import (
    Invocation,
    PathStr,
    Symbol,
    as_call,
    bound,
    modelled,
    return_owner,  # noqa: F401 (of models.yaml)
)
from schedmate.agent.interp.source import MAX_SOURCE_BYTES, decode
from schedmate.agent.interp.values.base import Kind, kind_of
from schedmate.agent.interp.values.plain import Text, deep_copy
from schedmate.agent.values import Data, StandIn, Value, unknown
from schedmate.base.files import is_dir, is_file, matching_paths

if TYPE_CHECKING:
    from schedmate.agent.interp.machine import Machine


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


def keep_written(machine: Machine, target: Value, value: Value) -> None:
    """Keep the mapping that is written to `target`, a path or a handle, in doubt the first one."""
    path = target.data.path if isinstance(target.data, WriteHandle) else target.text
    items = machine.mapping(value)
    if path is None or items is None:
        return
    name = place_of(machine, path)
    if machine.certain or name not in machine.written:
        machine.written[name] = deep_copy(Value(dict(items), value.origin))


def written_content(machine: Machine, path: str) -> tuple[str, Value] | None:
    """A file that was written before: its place, and a copy of what is in it."""
    name = place_of(machine, path) if machine.written else ""
    value = machine.written.get(name)
    return (name, deep_copy(value)) if value is not None else None


def write_content(machine: Machine, call: Invocation) -> Value:
    """`target.write(dumps(mapping))`: of texts, those that a library makes of a mapping."""
    text = as_call(call.first)
    if text is not None and text.args:
        keep_written(machine, call.owner, text.args[0])
    return Value(None)


@kind_of(WriteHandle)
class WrittenFileKind(Kind[WriteHandle]):
    """Files that are opened for writing."""

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        return bound(base, name, write_content) if name == "write" else unknown(name)


# Paths, and files of the repository that are opened.


MAX_FILES = 500
"""Files listed of one pattern."""
MAX_LINES = 5000
"""Lines read of one file."""


def _property(path: PathStr, name: str) -> Data:
    if len(path) > MAX_PATH:
        return None
    pure = PurePosixPath(path)
    if name == "parent":
        return PathStr(pure.parent)
    if name == "parents":
        return tuple(Value(PathStr(folder)) for folder in pure.parents)
    if name in ("name", "stem", "suffix"):
        return cast("str", getattr(pure, name))
    return None


def _path_of(call: Invocation) -> PathStr:
    """The path whose method is called."""
    return cast("PathStr", call.owner.data)


def _path_join(machine: Machine, call: Invocation) -> Value:
    parts = [_path_of(call), *(a.text for a in call.args if a.text is not None)]
    if len(parts) <= len(call.args):
        return unknown(origin=call.owner.origin)
    if joined_length(parts, "/") > MAX_PATH:
        return unknown(origin=call.owner.origin)
    return Value(PathStr(PurePosixPath(*parts)), call.owner.origin)


def _path_with_suffix(machine: Machine, call: Invocation) -> Value:
    suffix = call.first.text
    try:
        if suffix is not None:
            path = PurePosixPath(_path_of(call)).with_suffix(suffix)
            return Value(PathStr(path), call.owner.origin)
    except ValueError:
        pass
    return unknown(origin=call.owner.origin)


def _path_exists(machine: Machine, call: Invocation) -> Value:
    found = machine.sources.locate(_path_of(call))
    return Value(True) if found is not None else unknown()


def _path_glob(machine: Machine, call: Invocation) -> Value:
    """The files of a pattern: the repository's, else found when the program runs."""
    pattern = call.first.text
    folder = machine.sources.locate(_path_of(call))
    if pattern is None or pattern.startswith("/") or not is_bearable_pattern(pattern):
        return unknown(origin=call.owner.origin)
    if folder is None or not is_dir(folder) or "**" in pattern:
        place = Value(str(PurePosixPath(_path_of(call), pattern)), call.owner.origin)
        return machine.call(Value(Symbol("glob.glob")), [place], {}, call.site)
    files = sorted(map(str, matching_paths(folder, pattern, MAX_FILES)))
    return Value([Value(PathStr(file), call.owner.origin) for file in files])


def is_bearable_pattern(pattern: str) -> bool:
    """Whether a pattern of files goes down only: `*/../*/../*` visits the same folders for ever."""
    return len(pattern) <= MAX_PATH and ".." not in pattern.split("/")


def _path_open(machine: Machine, call: Invocation) -> Value:
    mode = call.args[0] if call.args else call.kwargs.get("mode", Value("r"))
    if mode.text is not None and any(letter in mode.text for letter in "wax"):
        return Value(WriteHandle(_path_of(call)), call.owner.origin)
    return open_file(machine, call.owner)


def _path_read(machine: Machine, call: Invocation) -> Value:
    return _read(machine, open_file(machine, call.owner))


def open_file(machine: Machine, path: Value) -> Value:
    """A handle on a file of the repository, unknown for any other file."""
    if isinstance(path.data, FileHandle):
        return path
    text = path.text
    if text is not None:
        frame = machine.frames[-1] if machine.frames else None
        near = frame.scope.module.path if frame is not None else None
        if (file := written_content(machine, text)) is not None:
            return Value(FileHandle(machine.sources.root / file[0]), path.origin)
        found = machine.sources.locate(text, near) or find_mislaid(machine, path)
        if found is not None and is_file(found):
            return Value(FileHandle(found), path.origin)
    return unknown(origin=path.origin)


def find_mislaid(machine: Machine, path: Value) -> Path | None:
    """A configuration that the launch names and that is elsewhere: the only one of its name."""
    launched, text = path.origin is not None and path.origin.source in _LAUNCHED, path.text
    if not launched or text is None or not text.endswith(_CONFIGURATIONS):
        return None
    file = machine.sources.only_one(text)
    if file is not None:
        machine.observer.warns(f"{text} is not in the repository: {file} is taken")
        return machine.sources.root / file
    return None


_LAUNCHED = ("command", "script", "environment")
_CONFIGURATIONS = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg")


def _read(machine: Machine, file: Value) -> Value:
    handle = file.data
    # a file that the program has "written" may lie outside, where nothing is read
    if not isinstance(handle, FileHandle) or not machine.sources.inside(handle.path):
        return unknown()
    try:
        if handle.path.stat().st_size > MAX_SOURCE_BYTES:
            return unknown()
        text = decode(handle.path.read_bytes())
    except OSError:
        return unknown()
    value = machine.made(Value(text, file.origin))
    machine.texts[text] = handle.path
    return value


def _file_read(machine: Machine, call: Invocation) -> Value:
    return _read(machine, call.owner)


def _file_lines(machine: Machine, call: Invocation) -> Value:
    text = _read(machine, call.owner)
    if text.text is None:
        return text
    lines = text.text.splitlines(keepends=True)[:MAX_LINES]
    machine.charge(VALUE_WEIGHT * len(lines))
    return Value([Value(line) for line in lines])


def _is_absolute(_: Machine, call: Invocation) -> Value:
    return Value(_path_of(call).startswith("/"), call.owner.origin)


_PATH = modelled("path", globals())
_FILE = modelled("file", globals())


@kind_of(PathStr)
class PathKind(Text[PathStr]):
    """A path, with the methods of a text besides."""

    def method(self, base: Value, name: str) -> Value:
        prop = _property(self.data(base), name)
        if prop is not None:
            return Value(prop, base.origin)
        own = _PATH.get(name)
        return bound(base, name, own) if own is not None else super().method(base, name)


@kind_of(FileHandle)
class FileKind(Kind[FileHandle]):
    """Files of the repository that are opened for reading."""

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        method = _FILE.get(name)
        return bound(base, name, method) if method is not None else unknown(name)
