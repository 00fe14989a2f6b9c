"""os.path, pathlib, glob, open: paths, and what the repository holds at them."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

from schedmate.agent.interp.builtins.table import BUILTINS
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.natives import identity
from schedmate.agent.interp.objects import PathStr
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import origin_of
from schedmate.agent.interp.values.paths import bearable, mislaid
from schedmate.agent.sizes import MAX_PATH, joined
from schedmate.agent.values import UNSAID, Value, begun, lifted, unknown
from schedmate.paths import children, is_dir, matching

MAX_LISTING = 500


def path_join(machine: Machine, call: Invocation) -> Value:
    parts = _leading_texts(call.args)
    if not parts or len(parts) < len(call.args):
        if parts and joined(parts, "/") <= MAX_PATH:
            return begun(posixpath.join(*parts), origin_of(*call.args), joint="/")
        first = call.args[0].unknown if call.args else None
        if first is not None and (first.text or "").endswith(UNSAID):
            return call.args[0]
        last = next((a.text for a in reversed(call.args) if a.text is not None), None)
        return unknown(last, origin_of(*call.args))
    if joined(parts, "/") > MAX_PATH:
        return unknown(origin=origin_of(*call.args))
    return Value(posixpath.join(*parts), origin_of(*call.args))


def _leading_texts(parts: list[Value]) -> list[str]:
    """The texts up to the first part that is none."""
    texts = takewhile(lambda text: text is not None, (part.text for part in parts))
    return [text for text in texts if text is not None]


def _path_function(function: Callable[[str], str | tuple[str, str]]) -> Handler:
    def apply(machine: Machine, call: Invocation) -> Value:
        value = call.first
        if value.text is None or len(value.text) > MAX_PATH:
            return unknown(origin=value.origin)
        return lifted(function(value.text), value.origin)

    return apply


def exists(machine: Machine, call: Invocation) -> Value:
    return unknown() if _found(machine, call.first) is None else Value(True)


def is_folder(machine: Machine, call: Invocation) -> Value:
    found = _found(machine, call.first)
    return unknown() if found is None else Value(is_dir(found))


def _found(machine: Machine, path: Value) -> Path | None:
    if path.text is None:
        return None
    return machine.sources.locate(path.text) or mislaid(machine, path)


def is_file(machine: Machine, call: Invocation) -> Value:
    folder = is_folder(machine, call)
    return folder if folder.unknown else Value(not folder.data)


def listdir(machine: Machine, call: Invocation) -> Value:
    path = call.args[0] if call.args else Value(".")
    found = machine.sources.locate(path.text) if path.text is not None else None
    if found is None or not is_dir(found):
        return unknown()
    names = [child.name for child in children(found)][:MAX_LISTING]
    return Value([Value(name) for name in names])


def glob(machine: Machine, call: Invocation) -> Value | None:
    """The repository's files of a pattern; None, a call like any other, for those elsewhere."""
    pattern = call.first.text
    if pattern is None or "**" in pattern or not bearable(pattern):
        return None
    folder, _, name = pattern.rpartition("/")
    found = machine.sources.locate(folder or ".")
    if found is None or not is_dir(found) or "*" in folder:
        return None
    files = sorted(str(child) for child in matching(found, name or "*", MAX_LISTING))
    return Value([Value(file) for file in files])


def make_path(machine: Machine, call: Invocation) -> Value:
    parts = _leading_texts(call.args)
    if not call.args:
        return Value(PathStr("."))
    if len(parts) < len(call.args) or joined(parts, "/") > MAX_PATH:
        return unknown(origin=origin_of(*call.args))
    return Value(PathStr(posixpath.join(*parts)), origin_of(*call.args))


def open_file(machine: Machine, call: Invocation) -> Value | None:
    """A library's own `open`."""
    opener = BUILTINS.get("open")
    return machine.call(opener, call.args, call.kwargs, call.site) if opener is not None else None


_OPENERS = (
    "io.open", "codecs.open", "fvcore.common.file_io.PathManager.open",
    "iopath.common.file_io.PathManager().open", "iopath.common.file_io.g_pathmgr.open",
    "tensorflow.io.gfile.GFile", "tensorflow.gfile.Open", "tensorflow.gfile.GFile", "fsspec.open",
)  # fmt: skip

PLUGIN = Plugin(
    calls={
        "os.path.join": path_join,
        "os.path.dirname": _path_function(posixpath.dirname),
        "os.path.basename": _path_function(posixpath.basename),
        "os.path.splitext": _path_function(posixpath.splitext),
        "os.path.split": _path_function(posixpath.split),
        "os.path.normpath": _path_function(posixpath.normpath),
        "os.path.abspath": identity,
        "os.path.realpath": identity,
        "os.path.expanduser": identity,
        "os.path.expandvars": identity,
        "os.path.exists": exists,
        "os.path.isfile": is_file,
        "os.path.isdir": is_folder,
        "os.listdir": listdir,
        "glob.glob": glob,
        "pathlib.Path": make_path,
        "pathlib.PosixPath": make_path,
        "pathlib.PurePath": make_path,
        **dict.fromkeys(_OPENERS, open_file),
    }
)
