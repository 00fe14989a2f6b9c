"""What the decorator of a main function does when the program calls it without arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.click import run_click
from schedmate.agent.interp.libs.cli.dataclass_parsers import from_command_line
from schedmate.agent.interp.libs.cli.functions import call_with_flags
from schedmate.agent.interp.libs.hydra import compose_for
from schedmate.agent.interp.objects import Call, Function, Symbol
from schedmate.agent.values import Value

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State


def enter(state: State, function: Function) -> Value | None:
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
            config = compose_for(state, function, data)
            return _run(state, function, [config])
        if path.startswith("click.") or path in ("rich_click.command", "rich_click.group"):
            return run_click(state, function, state.argv[1:])
        if path.split(".")[-1] == "wrap" and path.startswith(
            ("pyrallis", "draccus", "?", "lerobot")
        ):
            return _wrapped(state, function)
        if path.endswith(("argbind.bind",)):
            return call_with_flags(state, Value(function.undecorated()), state.argv[1:])
    return None


def _run(state: State, function: Function, args: list[Value]) -> Value:
    return state.call(Value(function.undecorated()), args, {}, function.site)


def _wrapped(state: State, function: Function) -> Value:
    spec = function.node.args
    first = next(iter((*spec.posonlyargs, *spec.args)), None)
    if first is None or first.annotation is None:
        return _run(state, function, [])
    kind = state.evaluate(first.annotation, function.scope)
    call = Invocation("pyrallis.parse", [kind], {}, function.site)
    return _run(state, function, [from_command_line(state, call)])
