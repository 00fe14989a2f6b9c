"""The parts of the standard library that decide what a program does."""

from __future__ import annotations

import ast
import itertools
import math
import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from schedmate.agent.configs.trees import wrap
from schedmate.agent.interp import instances
from schedmate.agent.interp.builtins.table import BUILTINS
from schedmate.agent.interp.containers import copy_shallow
from schedmate.agent.interp.flow import Raised
from schedmate.agent.interp.invocation import Handler, Invocation
from schedmate.agent.interp.nodes import deep_copy
from schedmate.agent.interp.objects import (
    AttrDict,
    DefaultDict,
    Instance,
    Native,
    Partial,
    PathStr,
    RangeOf,
    Symbol,
)
from schedmate.agent.interp.values_ops import iterate, origin_of
from schedmate.agent.values import Value, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State

MAX_LISTING = 500
MAX_COMBINATIONS = 64


def environ_get(state: State, call: Invocation) -> Value:
    name = call.argument(0, "key")
    default = call.argument(1, "default")
    if name is not None and isinstance(name.data, str) and name.data in state.environ:
        return state.environ[name.data]
    if default is not None:
        return default
    return unknown(str(name.data) if name is not None else None)


def environ_setdefault(state: State, call: Invocation) -> Value:
    if len(call.args) == 2 and isinstance(call.args[0].data, str):
        return state.environ.setdefault(call.args[0].data, call.args[1])
    return unknown()


def path_join(state: State, call: Invocation) -> Value:
    parts = [a.data for a in call.args]
    if not parts or not all(isinstance(part, str) for part in parts):
        known = next((a for a in reversed(call.args) if isinstance(a.data, str)), None)
        return unknown(known.data if known is not None else None, origin_of(*call.args))
    return Value(posixpath.join(*parts), origin_of(*call.args))


def _path_function(function: Callable[[str], Any]) -> Handler:
    def apply(state: State, call: Invocation) -> Value:
        value = call.args[0] if call.args else unknown()
        if not isinstance(value.data, str):
            return unknown(origin=value.origin)
        result = function(value.data)
        if isinstance(result, tuple):
            return Value(tuple(Value(part, value.origin) for part in result), value.origin)
        return Value(result, value.origin)

    return apply


def exists(state: State, call: Invocation) -> Value:
    value = call.args[0] if call.args else unknown()
    if isinstance(value.data, str) and state.sources.locate(value.data) is not None:
        return Value(True)
    return unknown()


def is_folder(state: State, call: Invocation) -> Value:
    value = call.args[0] if call.args else unknown()
    found = state.sources.locate(value.data) if isinstance(value.data, str) else None
    return unknown() if found is None else Value(found.is_dir())


def is_file(state: State, call: Invocation) -> Value:
    folder = is_folder(state, call)
    return Value(not folder.data) if isinstance(folder.data, bool) else folder


def listdir(state: State, call: Invocation) -> Value:
    path = call.args[0] if call.args else Value(".")
    found = state.sources.locate(path.data) if isinstance(path.data, str) else None
    if found is None or not found.is_dir():
        return unknown()
    names = sorted(child.name for child in found.iterdir())[:MAX_LISTING]
    return Value([Value(name) for name in names])


def glob(state: State, call: Invocation) -> Value:
    pattern = call.args[0].data if call.args else None
    if not isinstance(pattern, str) or "**" in pattern:
        return unknown()
    folder, _, name = pattern.rpartition("/")
    found = state.sources.locate(folder or ".")
    if found is None or not found.is_dir() or "*" in folder:
        return unknown()
    files = sorted(str(child) for child in found.glob(name or "*"))[:MAX_LISTING]
    return Value([Value(file) for file in files])


def make_path(state: State, call: Invocation) -> Value:
    parts = [a.data for a in call.args]
    if not parts:
        return Value(PathStr("."))
    if not all(isinstance(part, str) for part in parts):
        return unknown(origin=origin_of(*call.args))
    return Value(PathStr(posixpath.join(*parts)), origin_of(*call.args))


def open_file(state: State, call: Invocation) -> Value | None:
    """A library's own `open`."""
    opener = BUILTINS.get("open")
    return state.call(opener, call.args, call.kwargs, call.site) if opener is not None else None


def import_module(state: State, call: Invocation) -> Value:
    name = call.argument(0, "name")
    if name is None or not isinstance(name.data, str):
        return unknown()
    text = name.data
    importer = state.frames[-1].scope.module
    if text.startswith("."):
        package = call.argument(1, "package")
        base = package.data if package is not None else importer.package
        text = f"{base}{text}" if isinstance(base, str) else text.lstrip(".")
    if not text.replace(".", "").replace("_", "").isalnum():
        return unknown(text)
    value = state.import_module(text, importer)
    if isinstance(value.data, Symbol) and state.expects("ImportError", "ModuleNotFoundError"):
        outer = text.rpartition(".")[0]
        if outer and state.sources.find(outer, importer, state.search_path()) is not None:
            raise Raised("ModuleNotFoundError")  # a name inside a module, which is tried next
    return Value(value.data, name.origin)


def spec_from_file(state: State, call: Invocation) -> Value:
    """`importlib.util.spec_from_file_location(name, path)`, `SourceFileLoader`, `run_path`."""
    path = call.argument(1, "location", "path")
    found = (
        state.sources.locate(path.data) if path is not None and isinstance(path.data, str) else None
    )
    if found is None or found.suffix != ".py":
        return unknown()
    module = state.sources.module(found, found.stem)
    state.load(module)
    return Value(module, path.origin if path is not None else None)


def module_from_spec(state: State, call: Invocation) -> Value:
    return call.args[0] if call.args else unknown()


def deepcopy(state: State, call: Invocation) -> Value:
    return deep_copy(call.args[0]) if call.args else unknown()


def shallow(state: State, call: Invocation) -> Value:
    return copy_shallow(call.args[0]) if call.args else unknown()


def partial(state: State, call: Invocation) -> Value:
    if not call.args:
        return unknown()
    return Value(Partial(call.args[0], call.args[1:], call.kwargs), call.args[0].origin)


def identity(state: State, call: Invocation) -> Value:
    return call.args[0] if call.args else unknown()


def ordered_dict(state: State, call: Invocation) -> Value:
    items: dict[Any, Value] = {}
    instances.fill_mapping(state, items, call.args, call.kwargs)
    return Value(items)


def default_dict(state: State, call: Invocation) -> Value:
    return Value(DefaultDict(call.args[0] if call.args else unknown()))


def named_tuple(state: State, call: Invocation) -> Value:
    """`collections.namedtuple(name, fields)`: a constructor of attribute records."""
    given = call.argument(1, "field_names")
    if given is None:
        return unknown()
    names = (
        given.data.replace(",", " ").split()
        if isinstance(given.data, str)
        else [i.data for i in iterate(given) or []]
    )

    def make(s: State, args: list[Value], kwargs: dict[str, Value], site: Any) -> Value:
        items = dict(zip(names, args, strict=False))
        return Value(AttrDict({**items, **kwargs}, "namespace"))

    return Value(Native(str(call.args[0].data), make))


def product(state: State, call: Invocation) -> Value:
    """`itertools.product(...)` of short lists; of long ones, the first combinations."""
    columns = [iterate(argument) for argument in call.args]
    if any(column is None for column in columns) or call.kwargs:
        return unknown()
    rows = itertools.islice(itertools.product(*(c or [] for c in columns)), MAX_COMBINATIONS)
    return Value([Value(tuple(row)) for row in rows])


def as_dict(state: State, call: Invocation) -> Value:
    value = call.args[0] if call.args else unknown()
    if isinstance(value.data, Instance):
        return deep_copy(Value(dict(value.data.attrs), value.origin))
    if isinstance(value.data, dict):
        return deep_copy(Value(dict(value.data), value.origin))
    return unknown()


def replace(state: State, call: Invocation) -> Value:
    if not call.args:
        return unknown()
    made = deep_copy(call.args[0])
    for key, value in call.kwargs.items():
        state.setattr(made, key, value)
    return made


def literal(state: State, call: Invocation) -> Value:
    text = call.args[0] if call.args else unknown()
    if not isinstance(text.data, str) or len(text.data) > 5000:
        return unknown(origin=text.origin)
    try:
        return wrap(ast.literal_eval(text.data.strip()), text.origin)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        if state.expects("ValueError", "SyntaxError"):
            raise Raised("ValueError") from None
        return unknown(origin=text.origin)


def exit_(state: State, call: Invocation) -> Value:
    raise Raised("SystemExit")


def strtobool(state: State, call: Invocation) -> Value:
    text = call.args[0] if call.args else unknown()
    if not isinstance(text.data, str):
        return unknown(origin=text.origin)
    return Value(text.data.lower() in ("y", "yes", "t", "true", "on", "1"), text.origin)


def count(state: State, call: Invocation) -> Value:
    start = call.args[0] if call.args else Value(0)
    return Value(RangeOf(start, unknown("count"), Value(1)))


def islice(state: State, call: Invocation) -> Value:
    if len(call.args) < 2:
        return unknown()
    stop = call.args[2] if len(call.args) > 2 else call.args[1]
    return Value(RangeOf(Value(0), stop, Value(1)), stop.origin)


def trange(state: State, call: Invocation) -> Value:
    if not call.args:
        return unknown()
    start, stop = (call.args[0], call.args[1]) if len(call.args) > 1 else (Value(0), call.args[0])
    return Value(RangeOf(start, stop, Value(1)), stop.origin)


def progress(state: State, call: Invocation) -> Value:
    """`tqdm(iterable)`; with only `total=`, a counter up to it."""
    source = call.argument(0, "iterable", "sequence", "gen")
    if source is not None:
        return source
    total = call.kwargs.get("total")
    if total is not None:
        return Value(RangeOf(call.kwargs.get("initial", Value(0)), total, Value(1)), total.origin)
    return unknown()


def _math(name: str) -> Handler:
    function = getattr(math, name)

    def apply(state: State, call: Invocation) -> Value:
        if not call.args or not all(isinstance(a.data, int | float) for a in call.args):
            return unknown(origin=origin_of(*call.args))
        try:
            return Value(function(*(a.data for a in call.args)), origin_of(*call.args))
        except (ValueError, OverflowError, TypeError):
            return unknown(origin=origin_of(*call.args))

    return apply


HANDLERS: dict[str, Handler] = {
    "os.environ.get": environ_get,
    "os.getenv": environ_get,
    "os.environ.setdefault": environ_setdefault,
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
    "importlib.import_module": import_module,
    **dict.fromkeys(
        (
            "io.open",
            "codecs.open",
            "fvcore.common.file_io.PathManager.open",
            "iopath.common.file_io.PathManager().open",
            "iopath.common.file_io.g_pathmgr.open",
            "tensorflow.io.gfile.GFile",
            "tensorflow.gfile.Open",
            "tensorflow.gfile.GFile",
            "fsspec.open",
        ),
        open_file,
    ),
    "importlib.util.spec_from_file_location": spec_from_file,
    "importlib.machinery.SourceFileLoader": spec_from_file,
    "importlib.util.module_from_spec": module_from_spec,
    "importlib.reload": identity,
    "copy.deepcopy": deepcopy,
    "copy.copy": shallow,
    "functools.partial": partial,
    "functools.lru_cache": identity,
    "functools.cache": identity,
    "collections.OrderedDict": ordered_dict,
    "collections.defaultdict": default_dict,
    "collections.namedtuple": named_tuple,
    "dataclasses.asdict": as_dict,
    "attr.asdict": as_dict,
    "attrs.asdict": as_dict,
    "dataclasses.replace": replace,
    "ast.literal_eval": literal,
    "distutils.strtobool": strtobool,
    "sys.exit": exit_,
    "os._exit": exit_,
    "itertools.count": count,
    "itertools.islice": islice,
    "itertools.cycle": identity,
    "itertools.product": product,
    "tqdm.trange": trange,
    "tqdm.auto.trange": trange,
    "tqdm.notebook.trange": trange,
    **dict.fromkeys(
        (
            "tqdm.tqdm",
            "tqdm.auto.tqdm",
            "tqdm.notebook.tqdm",
            "tqdm.rich.tqdm",
            "tqdm.asyncio.tqdm",
            "rich.progress.track",
            "fastprogress.master_bar",
            "fastprogress.progress_bar",
            "alive_progress.alive_it",
            "mmcv.track_iter_progress",
            "progressbar.progressbar",
            "tqdm.autonotebook.tqdm",
            "fastprogress.fastprogress.master_bar",
        ),
        progress,
    ),
    **{
        f"math.{name}": _math(name)
        for name in ("ceil", "floor", "sqrt", "log", "log2", "exp", "pow")
    },
    **{f"numpy.{name}": _math(name) for name in ("ceil", "floor", "sqrt", "log", "log2", "exp")},
}
