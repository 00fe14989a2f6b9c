"""What the decorator of a main function does when the program calls it without arguments."""

from __future__ import annotations

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.click import run_click
from schedmate.agent.interp.libs.cli.dataclass_parsers import from_command_line
from schedmate.agent.interp.libs.cli.functions import call_with_flags
from schedmate.agent.interp.libs.hydra import compose_for
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Call, Function, Symbol
from schedmate.agent.values import Value


def enter(machine: Machine, function: Function) -> Value | None:
    """Run a decorated main function called without arguments, as its decorator would."""
    for decorator in function.decorators:
        data = decorator.data
        path = data.path if isinstance(data, Symbol | Call) else ""
        if path in (
            "hydra.main",
            "nemo.core.config.hydra_runner",
            "hydra_zen.main",
            "dora.hydra_main",
        ):
            config = compose_for(machine, function, data)
            return _run(machine, function, [config])
        if path.startswith("click.") or path in ("rich_click.command", "rich_click.group"):
            return run_click(machine, function, machine.argv[1:])
        if path.split(".")[-1] == "wrap" and path.startswith(
            ("pyrallis", "draccus", "?", "lerobot")
        ):
            return _wrapped(machine, function)
        if path.endswith(("argbind.bind",)):
            return call_with_flags(machine, Value(function.undecorated()), machine.argv[1:])
    return None


def _run(machine: Machine, function: Function, args: list[Value]) -> Value:
    return machine.call(Value(function.undecorated()), args, {}, function.site)


def _wrapped(machine: Machine, function: Function) -> Value:
    spec = function.node.args
    first = next(iter((*spec.posonlyargs, *spec.args)), None)
    if first is None or first.annotation is None:
        return _run(machine, function, [])
    kind = machine.evaluate(first.annotation, function.scope)
    call = Invocation("pyrallis.parse", [kind], {}, function.site)
    return _run(machine, function, [from_command_line(machine, call)])
