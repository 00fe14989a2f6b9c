"""Models what a program does with files, modules and processes.

`os.path`, `pathlib` and `glob`: what the repository holds at a path. `importlib`: modules by name
or by file. `subprocess`, `os.system`, `runpy` and the launchers of PyTorch and accelerate: programs
that a program starts. Reading and writing of configuration files: YAML, JSON, TOML, INI and HOCON.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import shlex
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path

from schedmate.agent.bounds import MAX_PATH, joined_length
from schedmate.agent.configs.reader import read_config, read_hocon_text
from schedmate.agent.configs.scalars import parse_scalar
from schedmate.agent.interp.builtins import FUNCTIONS
from schedmate.agent.interp.machine import Machine, Plugin
from schedmate.agent.interp.objects import (  # noqa: F401 (of models.yaml)
    Handler,
    Invocation,
    Module,
    PathStr,
    Raised,
    as_call,
    as_class,
    as_node,
    as_symbol,
    modelled,
    return_first,
)
from schedmate.agent.interp.values.base import iterate, origin_of
from schedmate.agent.interp.values.files import (
    FileHandle,
    WriteHandle,
    find_mislaid,
    is_bearable_pattern,
    keep_written,
    written_content,
)
from schedmate.agent.interp.values.plain import attr_tree, deep_copy, plain_tree
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.launch.planning import plan_launch
from schedmate.agent.values import UNSAID, Value, begun, lifted, unknown
from schedmate.base.errors import InputError
from schedmate.base.files import children, is_dir, is_file, matching_paths
from schedmate.jobs import LaunchConfig

MAX_LISTING = 500


def path_join(machine: Machine, call: Invocation) -> Value:
    parts = _leading_texts(call.args)
    if not parts or len(parts) < len(call.args):
        if parts and joined_length(parts, "/") <= MAX_PATH:
            return begun(posixpath.join(*parts), origin_of(*call.args), joint="/")
        first = call.args[0].unknown if call.args else None
        if first is not None and (first.text or "").endswith(UNSAID):
            return call.args[0]
        last = next((a.text for a in reversed(call.args) if a.text is not None), None)
        return unknown(last, origin_of(*call.args))
    if joined_length(parts, "/") > MAX_PATH:
        return unknown(origin=origin_of(*call.args))
    return Value(posixpath.join(*parts), origin_of(*call.args))


def _leading_texts(parts: list[Value]) -> list[str]:
    """The texts up to the first part that is none."""
    texts = takewhile(lambda text: text is not None, (part.text for part in parts))
    return [text for text in texts if text is not None]


def path_function(name: str) -> Handler:
    function = getattr(posixpath, name)

    def apply(machine: Machine, call: Invocation) -> Value:
        value = call.first
        if value.text is None or len(value.text) > MAX_PATH:
            return unknown(origin=value.origin)
        return lifted(function(value.text), value.origin)

    return apply


def path_exists(machine: Machine, call: Invocation) -> Value:
    return unknown() if _repository_path(machine, call.first) is None else Value(True)


def path_is_folder(machine: Machine, call: Invocation) -> Value:
    found = _repository_path(machine, call.first)
    return unknown() if found is None else Value(is_dir(found))


def _repository_path(machine: Machine, path: Value) -> Path | None:
    if path.text is None:
        return None
    return machine.sources.locate(path.text) or find_mislaid(machine, path)


def path_is_file(machine: Machine, call: Invocation) -> Value:
    folder = path_is_folder(machine, call)
    return folder if folder.unknown else Value(not folder.data)


def list_folder(machine: Machine, call: Invocation) -> Value:
    path = call.args[0] if call.args else Value(".")
    found = machine.sources.locate(path.text) if path.text is not None else None
    if found is None or not is_dir(found):
        return unknown()
    names = [child.name for child in children(found)][:MAX_LISTING]
    return Value([Value(name) for name in names])


def glob_files(machine: Machine, call: Invocation) -> Value | None:
    """The repository's files of a pattern; None, a call like any other, for those elsewhere."""
    pattern = call.first.text
    if pattern is None or "**" in pattern or not is_bearable_pattern(pattern):
        return None
    folder, _, name = pattern.rpartition("/")
    found = machine.sources.locate(folder or ".")
    if found is None or not is_dir(found) or "*" in folder:
        return None
    files = sorted(str(child) for child in matching_paths(found, name or "*", MAX_LISTING))
    return Value([Value(file) for file in files])


def make_path(machine: Machine, call: Invocation) -> Value:
    parts = _leading_texts(call.args)
    if not call.args:
        return Value(PathStr("."))
    if len(parts) < len(call.args) or joined_length(parts, "/") > MAX_PATH:
        return unknown(origin=origin_of(*call.args))
    return Value(PathStr(posixpath.join(*parts)), origin_of(*call.args))


# importlib: modules by name or by file.


def import_module(machine: Machine, call: Invocation) -> Value:
    name, text = call.need(0, "name"), call.need_text(0, "name")
    importer = machine.frames[-1].scope.module
    if text.startswith("."):
        package = call.argument(1, "package")
        base = package.text if package is not None else importer.package
        above = len(text) - len(text.lstrip(".")) - 1
        if base is not None and base.count(".") >= above:
            text = ".".join([*base.split(".")[: base.count(".") + 1 - above], text.lstrip(".")])
        else:
            text = text.lstrip(".")
    if not text.replace(".", "").replace("_", "").isalnum():
        return unknown(text)
    value = machine.import_module(text, importer)
    if as_symbol(value) is not None and machine.expects("ImportError", "ModuleNotFoundError"):
        outer = text.rpartition(".")[0]
        if outer and machine.sources.find(outer, importer, machine.search_path()) is not None:
            raise Raised("ModuleNotFoundError")  # a name inside a module, which is tried next
    return Value(value.data, name.origin)


def spec_from_file(machine: Machine, call: Invocation) -> Value:
    """`importlib.util.spec_from_file_location(name, path)`, `SourceFileLoader`, `run_path`."""
    asked = 1, "location", "path", "pathname"
    file = machine.sources.locate(call.need_text(*asked))
    if file is None or file.suffix != ".py":
        return unknown()
    module = machine.sources.module(file, file.stem)
    machine.load(module)
    return Value(module, call.need(*asked).origin)


def iter_modules(machine: Machine, call: Invocation) -> Value:
    """`pkgutil.iter_modules([folder], prefix)` and `walk_packages`: (finder, name, is package)."""
    folders = iterate(call.argument(0, "path") or unknown()) or []
    before = call.text(1, "prefix") or ""
    modules: list[tuple[str, bool]] = []
    for folder in folders:
        place = machine.sources.locate(folder.text) if folder.text is not None else None
        if place is not None and is_dir(place):
            modules.extend(_modules_in(place, before, call.path.endswith("walk_packages")))
    if not modules:
        return unknown()
    return Value(
        [Value((unknown(), Value(name), Value(package))) for name, package in modules[:MAX_LISTING]]
    )


def _modules_in(folder: Path, prefix: str, deep: bool) -> Iterator[tuple[str, bool]]:
    for child in children(folder):
        if is_file(child / "__init__.py"):
            yield prefix + child.name, True
            if deep:
                yield from _modules_in(child, f"{prefix}{child.name}.", deep)
        elif child.suffix == ".py" and child.stem != "__init__" and child.stem.isidentifier():
            yield prefix + child.stem, False


def package_files(machine: Machine, call: Invocation) -> Value:
    """`importlib.resources.files("package")`: the folder of the repository's package."""
    argument = call.need(0, "package", "anchor", "package_or_requirement")
    name = argument.data.name if isinstance(argument.data, Module) else argument.text
    package = machine.sources.find(name, None, machine.search_path()) if name is not None else None
    if package is None:
        return unknown()
    path = package.path if is_dir(package.path) else package.path.parent
    return Value(PathStr(str(path)), argument.origin)


def package_file(machine: Machine, call: Invocation) -> Value:
    """`pkg_resources.resource_filename(package, path)`; what packaging copies is at the root."""
    name, folder = call.need_text(1, "resource_name"), package_files(machine, call).text
    beside = f"{folder}/{name}" if folder is not None else name
    file = machine.sources.locate(beside) or machine.sources.locate(name)
    origin = call.need(1, "resource_name").origin
    return Value(str(file) if file is not None else beside, origin)


def class_named(machine: Machine, name: str) -> Value | None:
    """The class of this name among the modules that were imported, if there is one only."""
    classes: dict[int, Value] = {}
    for module in list(machine.sources.modules.values()):
        if not module.loaded or name not in module.scope.names:
            continue
        value = machine.getattr(Value(module), name)
        if as_class(value) is not None:
            classes[id(value.data)] = value
    return next(iter(classes.values())) if len(classes) == 1 else None


# Programs that a program starts: `subprocess`, `os.system`, `runpy` and PyTorch's launcher.
#
# They are followed as the launch command itself is, in the same trace.


_NOT_KNOWN = "not-known-{}"


def start_command(machine: Machine, call: Invocation) -> Value | None:
    """`subprocess.run(["python", "train.py", ...])` and its kin, `os.system("python ...")`."""
    command = call.argument(0, "args", "command", "cmd")
    environ = machine.mapping(call.kwargs["env"]) if "env" in call.kwargs else None
    outer = dict(machine.environ)
    machine.environ.update(environ or {})
    _start_given(machine, command)
    machine.environ.clear()
    machine.environ.update(outer)
    return None


def _start_given(machine: Machine, command: Value | None) -> None:
    if command is not None and command.text is not None:
        _start_line(machine, command.text, {command.text: command})
    elif command is not None and command.unknown is not None and command.unknown.text:
        # a port, say, that is drawn anew each time
        text = command.unknown.text.replace("…", _NOT_KNOWN.format(0))
        _start_line(machine, text, {text: command})
    elif command is not None:
        _start_words(machine, iterate(command) or [])


def exec_command(machine: Machine, call: Invocation) -> Value | None:
    """`os.execvp(file, [name, *args])`."""
    words = iterate(call.args[1]) if len(call.args) > 1 else None
    if words:
        _start_words(machine, [call.args[0], *words[1:]])
    return None


def torch_run(machine: Machine, call: Invocation) -> Value | None:
    """`torch.distributed.run.main(argv)`, or `run(args)` with the launcher's own namespace."""
    argument = call.argument(0, "args")
    if argument is None:
        return None
    arguments = as_node(argument)
    if arguments is not None:
        script, module = arguments.get("training_script"), arguments.get("module")
        words = iterate(arguments.get("training_script_args")) or []
        if script is not None:
            flag = [Value("-m")] if module is not None and module.data is True else []
            _start_words(machine, [Value("python"), *flag, script, *words])
        return None
    _start_words(machine, [Value("torchrun"), *(iterate(argument) or [])])
    return None


def accelerate_arguments(machine: Machine, call: Invocation) -> Value:
    """`launch_command_parser().parse_args(words)`: the words, for the launcher to read."""
    return call.argument(0, "args") or Value(machine.argv[1:])


def accelerate_launch(machine: Machine, call: Invocation) -> Value | None:
    """`accelerate.commands.launch.launch_command(arguments)`."""
    words = iterate(call.first)
    if words:
        _start_words(machine, [Value("accelerate"), Value("launch"), *words])
    return None


def run_path(machine: Machine, call: Invocation) -> Value:
    """`runpy.run_path(path, run_name="__main__")`."""
    return _run_file(machine, call, machine.sources.locate(call.need_text(0, "path_name")))


def run_module(machine: Machine, call: Invocation) -> Value:
    """`runpy.run_module(name, run_name="__main__")`."""
    module = machine.sources.find(call.need_text(0, "mod_name"), None, machine.search_path())
    path = module.path if module is not None else None
    if path is not None and path.name == "__init__.py":
        path = path.with_name("__main__.py")
    return _run_file(machine, call, path)


def _run_file(machine: Machine, call: Invocation, file: Path | None) -> Value:
    if file is None or file.suffix != ".py" or not is_file(file):
        return unknown()
    name = call.argument(2, "run_name")
    if name is None or name.data != "__main__":
        module = machine.sources.module(file, file.stem)
        machine.load(module)
        return Value(dict(module.scope.names))
    return Value(dict(_as_main(machine, file, "").scope.names))


def _as_main(machine: Machine, path: Path, package: str) -> Module:
    module = Module("__main__", path, machine.sources.relative(path), package)
    module.loaded = True
    machine.sources.add_root(path.parent)
    tree = machine.parse(path)
    if tree is not None:
        machine.run_module(module, tree)
    return module


def _start_words(machine: Machine, words: list[Value]) -> None:
    texts = [
        str(word.data) if isinstance(word.data, str | int | float) else _NOT_KNOWN.format(index)
        for index, word in enumerate(words)
    ]
    _start_line(machine, shlex.join(texts), dict(zip(texts, words, strict=True)))


def _plan_command(machine: Machine, text: str) -> LaunchPlan | None:
    """What a command line starts in the working directory, or else in the repository's root."""
    cwd = os.path.relpath(str(machine.facts["cwd"].data), machine.sources.root)
    for line in dict.fromkeys((f"cd {shlex.quote(cwd)} && {text}", text)):
        try:
            return plan_launch(line, machine.sources.repo, LaunchConfig())
        except InputError:
            continue
    return None


def _start_line(machine: Machine, text: str, words: dict[str, Value]) -> None:
    """Follow a command line; what starts nothing of the repository is left alone."""
    started: set[str] = machine.shared.setdefault("started", set())
    if text in started or len(started) > 8:
        return
    started.add(text)
    plan = _plan_command(machine, text)
    if plan is not None and plan.entry is None and plan.console is not None:
        plan.argv = [words.get(str(value.data), value) for value in plan.argv]
        plan.env = {**machine.environ, **plan.env}
        machine.observer.starts(plan)
    if plan is None or plan.entry is None or plan.function is not None or plan.entry in started:
        return
    started.add(plan.entry)
    argv, environ = machine.argv, dict(machine.environ)
    machine.argv = [Value(plan.entry), *(words.get(str(v.data), v) for v in plan.argv)]
    machine.environ.update(plan.env)
    try:
        package = (plan.module or "").rpartition(".")[0]
        _as_main(machine, machine.sources.root / plan.entry, package)
    except Raised as error:
        if error.name != "SystemExit":
            machine.observer.warns(
                f"{plan.entry}: following the code stopped at a raised {error.name}"
            )
    finally:
        machine.argv = argv
        machine.environ.clear()
        machine.environ.update(environ)


# Configuration files: YAML, JSON, TOML, INI and HOCON.


LARGE_FILE = 100_000
"""Size from which a file is asked whether it is a table [bytes]."""
MANY_ITEMS = 2_000
"""Entries that no settings have side by side."""


def locate_file(machine: Machine, path: Value) -> Path | None:
    """The repository's file that a path value means."""
    if isinstance(path.data, FileHandle):
        return path.data.path if machine.sources.inside(path.data.path) else None
    if path.text is not None:
        near = machine.frames[-1].scope.module.path if machine.frames else None
        file = machine.sources.locate(path.text, near) or machine.texts.get(path.text)
        file = file or find_mislaid(machine, path)
        return file if file is not None and is_file(file) else None
    return None


def required_file(machine: Machine, path: Value) -> Path | None:
    """The repository's file that a path value means, with a warning when it is not there."""
    file = locate_file(machine, path)
    if file is None and path.text:
        machine.observer.warns(machine.sources.repo.missing_settings(path.text))
    return file


def or_warned(machine: Machine, read: Callable[[], Value]) -> Value | None:
    """What `read` gives; None, with a warning, for input that cannot be read."""
    try:
        return read()
    except InputError as error:
        machine.observer.warns(str(error))
        return None


def read_file(machine: Machine, path: Value) -> Value | None:
    """A configuration file's content, noted as settings; None when it is not in the repository."""
    named = str(path.data.path) if isinstance(path.data, FileHandle) else path.text
    if named is not None and (file := written_content(machine, named)) is not None:
        return note_settings(machine, file[1], file[0])
    located = locate_file(machine, path)
    if located is None:
        if path.text is not None and re.fullmatch(r"[^\n\0]{0,290}\.[A-Za-z]\w{1,4}", path.text):
            machine.observer.warns(machine.sources.repo.missing_settings(path.text))
        return None
    if _is_table(located):
        return unknown(origin=path.origin)
    value = or_warned(machine, lambda: plain_tree(read_config(located, machine.sources.root)))
    if value is None:
        return None
    return note_settings(machine, value, machine.sources.relative(located))


def _is_table(path: Path) -> bool:
    """Whether a large JSON file is a table, a vocabulary or an index, rather than settings."""
    try:
        if path.suffix != ".json" or path.stat().st_size < LARGE_FILE:
            return False
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    values = (
        content.values()
        if isinstance(content, dict)
        else content
        if isinstance(content, list)
        else ()
    )
    return len(values) > MANY_ITEMS and not any(isinstance(value, dict) for value in values)


def load_mapping(machine: Machine, call: Invocation) -> Value:
    """`yaml.safe_load(f)`, `json.load(f)`, `toml.load(path)` and the like."""
    source = call.need(0, "stream", "fp", "f", "s", "path", "filename")
    dumped = as_call(source)
    if dumped is not None and dumped.path == "json.dumps" and dumped.args:
        return _with_object_hook(machine, call, deep_copy(dumped.args[0]))
    loaded = read_file(machine, source)
    if loaded is None:
        if source.text is not None and "\n" not in source.text and len(source.text) < 200:
            return _with_object_hook(
                machine, call, lifted(parse_scalar(source.text), source.origin)
            )
        return unknown(origin=source.origin)
    # the program may change what it loaded, and the settings noted are to change with it
    return _with_object_hook(machine, call, loaded)


def _with_object_hook(machine: Machine, call: Invocation, value: Value) -> Value:
    """`json.load(f, object_hook=Struct)`: every mapping as the hook makes it, inner ones first."""
    hook = call.kwargs.get("object_hook")
    if hook is None or hook.data is None:
        return value
    if value.elements is not None:
        return Value(
            [_with_object_hook(machine, call, item) for item in value.elements], value.origin
        )
    if value.mapping is None:
        return value
    inner = {key: _with_object_hook(machine, call, item) for key, item in value.mapping.items()}
    return machine.call(hook, [Value(inner, value.origin)], {}, call.site)


def load_documents(machine: Machine, call: Invocation) -> Value:
    """`yaml.load_all(f)`: the documents of a file."""
    loaded = load_mapping(machine, call)
    return Value([loaded], loaded.origin) if loaded.mapping is not None else loaded


def note_settings(machine: Machine, value: Value, name: str) -> Value:
    """The value, kept as settings that the program read under `name`; a JSON list is records."""
    if value.elements is not None and name.endswith(".json"):
        return value
    machine.observer.settings(name, value, "config")
    return value


def read_ini(machine: Machine, call: Invocation) -> Value:
    """`ConfigParser.read(path)`: the sections become the parser's items."""
    loaded = read_file(machine, call.args[0]) if call.args else None
    parser = as_call(call.base)
    if loaded is not None and parser is not None:
        for key, value in (machine.mapping(loaded) or {}).items():
            parser.attrs[str(key)] = value
        parser.attrs["__items__"] = loaded
    return Value([])


def _sections(call: Invocation) -> Value | None:
    """What the parser whose method is called has read."""
    parser = as_call(call.base)
    return parser.attrs.get("__items__") if parser is not None else None


def ini_get(machine: Machine, call: Invocation) -> Value:
    value = _sections(call)
    for key in call.args[:2]:
        mapping = machine.mapping(value)
        value = mapping.get(key.data) if mapping is not None else None
        if value is None and mapping is not None and key.text is not None:
            value = mapping.get(key.text.lower())  # options are read without their case
    return value if value is not None else call.kwargs.get("fallback", unknown())


def ini_items(machine: Machine, call: Invocation) -> Value:
    mapping = machine.mapping(_sections(call))
    if mapping is None:
        return unknown()
    inner = machine.mapping(mapping.get(call.first.text)) if call.args else mapping
    return Value([Value((lifted(key), value)) for key, value in (inner or {}).items()])


def dump_file(machine: Machine, call: Invocation) -> Value | None:
    """`yaml.dump(data, stream)`; None, a call like any other, for text that goes nowhere yet."""
    stream = call.argument(1, "stream", "fp", "f")
    if stream is None or not isinstance(stream.data, WriteHandle):
        return None
    keep_written(machine, stream, call.first)
    return Value(None)


def save_config(machine: Machine, call: Invocation) -> Value:
    """`OmegaConf.save(config, path)`."""
    target = call.argument(1, "f")
    if target is not None:
        keep_written(machine, target, call.argument(0, "config") or Value(None))
    return Value(None)


# pyhocon: trees read from HOCON, asked by dotted path.


HOCON_FLAVOUR = "hocon"


def parse_hocon_file(machine: Machine, call: Invocation) -> Value:
    """`ConfigFactory.parse_file(path)`."""
    loaded = read_file(machine, call.argument(0, "filename") or unknown())
    return attr_tree(loaded, HOCON_FLAVOUR) if loaded is not None else unknown()


def parse_hocon_text(machine: Machine, call: Invocation) -> Value:
    """`ConfigFactory.parse_string(text)`; the program may have put words into a file's text."""
    content = call.need_text(0, "content")
    lines = content.count("\n")
    files = [path for text, path in machine.texts.items() if text.count("\n") == lines]
    name = machine.sources.relative(files[-1]) if files else None
    tree = or_warned(machine, lambda: read_hocon_text(content, name))
    if tree is None:
        return unknown()
    return note_settings(machine, attr_tree(tree, HOCON_FLAVOUR), name or "configuration text")


def hocon_get(machine: Machine, call: Invocation) -> Value:
    """`tree.get_int("train.steps", default=0)` and its kin."""
    key = call.text(0, "key")
    value: Value | None = call.owner
    for part in (key or "").split("."):
        mapping = machine.mapping(value)
        value = mapping.get(part) if mapping is not None else None
    default = call.argument(1, "default")
    return value or default or unknown()


_HOCON_KINDS = ("int", "float", "bool", "string", "list", "config")


def _hocon_item(machine: Machine, call: Invocation) -> Value | None:
    """`tree["train.steps"]`: an item of the tree that the first name stands for."""
    outer, dot, rest = (call.first.text or "").partition(".")
    items = machine.mapping(call.owner)
    found = items.get(outer) if items is not None and dot else None
    return machine.getitem(found, Value(rest)) if found is not None else None


FILES = Plugin(
    methods={
        HOCON_FLAVOUR: {
            "get": hocon_get,
            "__missing__": _hocon_item,
            **{f"get_{kind}": hocon_get for kind in _HOCON_KINDS},
        }
    },
    calls=modelled("files", {**FUNCTIONS, **globals()}),
)
