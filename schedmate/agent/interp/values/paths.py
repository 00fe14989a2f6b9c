"""Paths, and files of the repository that are opened."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import cast

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.natives import bound, itself
from schedmate.agent.interp.objects import PathStr, Symbol
from schedmate.agent.interp.repair import decode
from schedmate.agent.interp.source import MAX_SOURCE_BYTES
from schedmate.agent.interp.values.base import Kind, of
from schedmate.agent.interp.values.texts import Text
from schedmate.agent.interp.values.written import FileHandle, WriteHandle, content, write
from schedmate.agent.sizes import MAX_PATH, VALUE, joined
from schedmate.agent.values import Data, Value, unknown
from schedmate.paths import is_dir, is_file, matching

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
    if joined(parts, "/") > MAX_PATH:
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
    found = machine.sources.locate(_path_of(call))
    if pattern is None or pattern.startswith("/") or not bearable(pattern):
        return unknown(origin=call.owner.origin)
    if found is None or not is_dir(found) or "**" in pattern:
        place = Value(str(PurePosixPath(_path_of(call), pattern)), call.owner.origin)
        return machine.call(Value(Symbol("glob.glob")), [place], {}, call.site)
    files = sorted(map(str, matching(found, pattern, MAX_FILES)))
    return Value([Value(PathStr(file), call.owner.origin) for file in files])


def bearable(pattern: str) -> bool:
    """Whether a pattern of files goes down only: `*/../*/../*` visits the same folders for ever."""
    return len(pattern) <= MAX_PATH and ".." not in pattern.split("/")


def _path_open(machine: Machine, call: Invocation) -> Value:
    mode = call.args[0] if call.args else call.kwargs.get("mode", Value("r"))
    if mode.text is not None and any(letter in mode.text for letter in "wax"):
        return Value(WriteHandle(_path_of(call)), call.owner.origin)
    return open_file(machine, call.owner)


def _path_read(machine: Machine, call: Invocation) -> Value:
    handle = open_file(machine, call.owner)
    return _read(machine, handle) if handle.data is not None else handle


def open_file(machine: Machine, path: Value) -> Value:
    """A handle on a file of the repository, unknown for any other file."""
    if isinstance(path.data, FileHandle):
        return path
    text = path.text
    if text is not None:
        frame = machine.frames[-1] if machine.frames else None
        near = frame.scope.module.path if frame is not None else None
        if (file := content(machine, text)) is not None:
            return Value(FileHandle(machine.sources.root / file[0]), path.origin)
        found = machine.sources.locate(text, near) or mislaid(machine, path)
        if found is not None and is_file(found):
            return Value(FileHandle(found), path.origin)
    return unknown(origin=path.origin)


def mislaid(machine: Machine, path: Value) -> Path | None:
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


def _file_lines(machine: Machine, call: Invocation) -> Value:
    text = _read(machine, call.owner)
    if text.text is None:
        return text
    lines = text.text.splitlines(keepends=True)[:MAX_LINES]
    machine.charge(VALUE * len(lines))
    return Value([Value(line) for line in lines])


_PATH: dict[str, Handler] = {
    "is_absolute": lambda _, call: Value(_path_of(call).startswith("/"), call.owner.origin),
    "resolve": itself,
    "absolute": itself,
    "expanduser": itself,
    "as_posix": itself,
    "joinpath": _path_join,
    "with_suffix": _path_with_suffix,
    "exists": _path_exists,
    "is_file": _path_exists,
    "is_dir": _path_exists,
    "glob": _path_glob,
    "open": _path_open,
    "read_text": _path_read,
    "write_text": write,
}

_FILE: dict[str, Handler] = {
    "read": lambda machine, call: _read(machine, call.owner),
    "readlines": _file_lines,
    "__enter__": itself,
}


@of(PathStr)
class Location(Text[PathStr]):
    """A path, with the methods of a text besides."""

    def method(self, base: Value, name: str) -> Value:
        prop = _property(self.data(base), name)
        if prop is not None:
            return Value(prop, base.origin)
        own = _PATH.get(name)
        return bound(base, name, own) if own is not None else super().method(base, name)


@of(FileHandle)
class File(Kind[FileHandle]):
    """A file that is opened for reading."""

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        method = _FILE.get(name)
        return bound(base, name, method) if method is not None else unknown(name)
