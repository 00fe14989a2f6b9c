"""Models of what a program does with files, modules and processes.

`os.path`, `pathlib` and `glob`: what the repository holds at a path. `importlib`: modules by name
or by file. `subprocess`, `os.system`, `runpy` and the launchers of PyTorch and accelerate: programs
that a program starts.
"""

from __future__ import annotations

import os
import posixpath
import shlex
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path

from schedmate.agent.bounds import MAX_PATH, joined_length
from schedmate.agent.interp.builtins import open_
from schedmate.agent.interp.machine import Machine, Plugin
from schedmate.agent.interp.objects import (
    Handler,
    Invocation,
    Module,
    PathStr,
    Raised,
    as_class,
    as_node,
    as_symbol,
    return_first,
)
from schedmate.agent.interp.values.base import iterate, origin_of
from schedmate.agent.interp.values.files import find_mislaid, is_bearable_pattern
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


def _path_function(function: Callable[[str], str | tuple[str, str]]) -> Handler:
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


_OPENERS = (
    "io.open", "codecs.open", "fvcore.common.file_io.PathManager.open",
    "iopath.common.file_io.PathManager().open", "iopath.common.file_io.g_pathmgr.open",
    "tensorflow.io.gfile.GFile", "tensorflow.gfile.Open", "tensorflow.gfile.GFile", "fsspec.open",
)  # fmt: skip

FILESYSTEM = Plugin(
    calls={
        "os.path.join": path_join,
        "os.path.dirname": _path_function(posixpath.dirname),
        "os.path.basename": _path_function(posixpath.basename),
        "os.path.splitext": _path_function(posixpath.splitext),
        "os.path.split": _path_function(posixpath.split),
        "os.path.normpath": _path_function(posixpath.normpath),
        "os.path.abspath": return_first,
        "os.path.realpath": return_first,
        "os.path.expanduser": return_first,
        "os.path.expandvars": return_first,
        "os.path.exists": path_exists,
        "os.path.isfile": path_is_file,
        "os.path.isdir": path_is_folder,
        "os.listdir": list_folder,
        "glob.glob": glob_files,
        "pathlib.Path": make_path,
        "pathlib.PosixPath": make_path,
        "pathlib.PurePath": make_path,
        **dict.fromkeys(_OPENERS, open_),
    }
)


# importlib: modules by name or by file.


def import_module(machine: Machine, call: Invocation) -> Value:
    name = call.argument(0, "name")
    if name is None or name.text is None:
        return unknown()
    text = name.text
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
    path = call.argument(1, "location", "path", "pathname")
    text = path.text if path is not None else None
    file = machine.sources.locate(text) if text is not None else None
    if file is None or file.suffix != ".py":
        return unknown()
    module = machine.sources.module(file, file.stem)
    machine.load(module)
    return Value(module, path.origin if path is not None else None)


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
    argument = call.argument(0, "package", "anchor", "package_or_requirement")
    module = argument.data if argument is not None else None
    name = (
        module.name
        if isinstance(module, Module)
        else argument.text
        if argument is not None
        else None
    )
    package = machine.sources.find(name, None, machine.search_path()) if name is not None else None
    if package is None:
        return unknown()
    path = package.path if is_dir(package.path) else package.path.parent
    return Value(PathStr(str(path)), argument.origin if argument is not None else None)


def package_file(machine: Machine, call: Invocation) -> Value:
    """`pkg_resources.resource_filename(package, path)`; what packaging copies is at the root."""
    argument = call.argument(1, "resource_name")
    folder = package_files(machine, call).text
    if argument is None or argument.text is None:
        return unknown()
    beside = f"{folder}/{argument.text}" if folder is not None else argument.text
    file = machine.sources.locate(beside) or machine.sources.locate(argument.text)
    return Value(str(file) if file is not None else beside, argument.origin)


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


IMPORTING = Plugin(
    calls={
        "pkgutil.iter_modules": iter_modules,
        "pkgutil.walk_packages": iter_modules,
        "importlib.import_module": import_module,
        "importlib.util.spec_from_file_location": spec_from_file,
        "importlib.machinery.SourceFileLoader": spec_from_file,
        "imp.load_source": spec_from_file,
        "importlib.util.module_from_spec": return_first,
        "importlib.reload": return_first,
        "importlib.resources.files": package_files,
        "importlib_resources.files": package_files,
        "pkg_resources.resource_filename": package_file,
    }
)


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
    path = call.text(0, "path_name")
    return _run_file(machine, call, machine.sources.locate(path) if path is not None else None)


def run_module(machine: Machine, call: Invocation) -> Value:
    """`runpy.run_module(name, run_name="__main__")`."""
    name = call.text(0, "mod_name")
    module = machine.sources.find(name, None, machine.search_path()) if name is not None else None
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


_COMMANDS = (
    "subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output",
    "subprocess.Popen", "os.system", "os.popen",
)  # fmt: skip

_TORCH_RUN = (
    "torch.distributed.run.main", "torch.distributed.run.run", "torch.distributed.launch.main",
    "torch.distributed.launch.launch",
)  # fmt: skip

PROCESSES = Plugin(
    calls={
        **dict.fromkeys(_COMMANDS, start_command),
        **dict.fromkeys(("os.execv", "os.execvp", "os.execve", "os.execvpe"), exec_command),
        **dict.fromkeys(_TORCH_RUN, torch_run),
        "accelerate.commands.launch.launch_command_parser().parse_args": accelerate_arguments,
        "accelerate.commands.launch.launch_command": accelerate_launch,
        "runpy.run_path": run_path,
        "runpy.run_module": run_module,
    }
)
