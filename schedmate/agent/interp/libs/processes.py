"""Programs that a program starts: `subprocess`, `os.system`, `runpy` and PyTorch's launcher.

They are followed as the launch command itself is, in the same trace.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from schedmate.agent.interp.flow import Raised
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Module, as_node
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.launch.planning import plan_launch
from schedmate.agent.values import Value, unknown
from schedmate.errors import InputError
from schedmate.jobs import LaunchConfig
from schedmate.paths import is_file

_NOT_KNOWN = "not-known-{}"


def command(machine: Machine, call: Invocation) -> Value | None:
    """`subprocess.run(["python", "train.py", ...])` and its kin, `os.system("python ...")`."""
    given = call.argument(0, "args", "command", "cmd")
    environ = machine.mapping(call.kwargs["env"]) if "env" in call.kwargs else None
    outer = dict(machine.environ)
    machine.environ.update(environ or {})
    _command(machine, given)
    machine.environ.clear()
    machine.environ.update(outer)
    return None


def _command(machine: Machine, given: Value | None) -> None:
    if given is not None and given.text is not None:
        _start(machine, given.text, {given.text: given})
    elif given is not None and given.unknown is not None and given.unknown.text:
        # a port, say, that is drawn anew each time
        text = given.unknown.text.replace("…", _NOT_KNOWN.format(0))
        _start(machine, text, {text: given})
    elif given is not None:
        _start_words(machine, iterate(given) or [])


def execute(machine: Machine, call: Invocation) -> Value | None:
    """`os.execvp(file, [name, *args])`."""
    words = iterate(call.args[1]) if len(call.args) > 1 else None
    if words:
        _start_words(machine, [call.args[0], *words[1:]])
    return None


def torch_run(machine: Machine, call: Invocation) -> Value | None:
    """`torch.distributed.run.main(argv)`, or `run(args)` with the launcher's own namespace."""
    given = call.argument(0, "args")
    if given is None:
        return None
    arguments = as_node(given)
    if arguments is not None:
        script, module = arguments.get("training_script"), arguments.get("module")
        words = iterate(arguments.get("training_script_args")) or []
        if script is not None:
            flag = [Value("-m")] if module is not None and module.data is True else []
            _start_words(machine, [Value("python"), *flag, script, *words])
        return None
    _start_words(machine, [Value("torchrun"), *(iterate(given) or [])])
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


def _run_file(machine: Machine, call: Invocation, found: Path | None) -> Value:
    if found is None or found.suffix != ".py" or not is_file(found):
        return unknown()
    name = call.argument(2, "run_name")
    if name is None or name.data != "__main__":
        module = machine.sources.module(found, found.stem)
        machine.load(module)
        return Value(dict(module.scope.names))
    return Value(dict(_as_main(machine, found, "").scope.names))


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
    _start(machine, shlex.join(texts), dict(zip(texts, words, strict=True)))


def _plan(machine: Machine, text: str) -> LaunchPlan | None:
    """What a command line starts in the working directory, or else in the repository's root."""
    cwd = os.path.relpath(str(machine.facts["cwd"].data), machine.sources.root)
    for line in dict.fromkeys((f"cd {shlex.quote(cwd)} && {text}", text)):
        try:
            return plan_launch(line, machine.sources.repo, LaunchConfig())
        except InputError:
            continue
    return None


def _start(machine: Machine, text: str, words: dict[str, Value]) -> None:
    """Follow a command line; what starts nothing of the repository is left alone."""
    started: set[str] = machine.shared.setdefault("started", set())
    if text in started or len(started) > 8:
        return
    started.add(text)
    plan = _plan(machine, text)
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

PLUGIN = Plugin(
    calls={
        **dict.fromkeys(_COMMANDS, command),
        **dict.fromkeys(("os.execv", "os.execvp", "os.execve", "os.execvpe"), execute),
        **dict.fromkeys(_TORCH_RUN, torch_run),
        "accelerate.commands.launch.launch_command_parser().parse_args": accelerate_arguments,
        "accelerate.commands.launch.launch_command": accelerate_launch,
        "runpy.run_path": run_path,
        "runpy.run_module": run_module,
    }
)
