"""Everything schedmate knows of third-party libraries, in one place for the interpreter."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any

from schedmate.agent.configs.trees import wrap
from schedmate.agent.interp import classes
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs import (
    filesystem,
    hydra,
    importing,
    iteration,
    patterns,
    processes,
    registries,
    runtime,
    signatures,
    standard,
    structures,
)
from schedmate.agent.interp.libs.cli import (
    absl,
    argparse,
    choices,
    dataclass_parsers,
    decorators,
    functions,
    jsonargparse,
    ready_made,
    records,
    sacred,
    typer,
)
from schedmate.agent.interp.libs.configs import (
    attribute_dicts,
    files,
    gin,
    hocon,
    lazy,
    mmengine,
    omegaconf,
    torchpack,
)
from schedmate.agent.interp.libs.configs.methods import config_method
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.objects import Call, Class, Function
from schedmate.agent.values import Origin, Value, unknown
from schedmate.data import load

_MODELS = (
    standard,
    signatures,
    structures,
    filesystem,
    importing,
    iteration,
    patterns,
    argparse,
    ready_made,
    choices,
    dataclass_parsers,
    functions,
    jsonargparse,
    typer,
    absl,
    sacred,
    attribute_dicts,
    files,
    gin,
    hocon,
    lazy,
    mmengine,
    omegaconf,
    hydra,
    registries,
    runtime,
    processes,
)


@cache
def _data() -> dict[str, Any]:
    loaded: dict[str, Any] = load("agent/interp/libs/libraries.yaml")
    return loaded


class Library:
    """Models of third-party libraries for one launch.

    Args:
        facts: values for the placeholders in `libraries.yaml`: gpus, gpus_per_node, nodes,
            distributed, cwd; None where the launch does not say.
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        data = _data()
        self.facts = facts
        self.trainer_options: list[str] = data["trainer_options"]
        self.constants = {path: self._fact(value) for path, value in data["constants"].items()}
        self.handlers: dict[str, Handler] = {
            path: handler for module in _MODELS for path, handler in module.HANDLERS.items()
        }
        for path in data["records"]:
            self.handlers.setdefault(path, records.construct)
        for path, options in data["parsers"].items():
            self.handlers[path] = ready_made.ready_made(options, path)
        for path, value in data["results"].items():
            self.handlers.setdefault(path, _constant(self._fact(value)))
        for path in data["identity"]:
            self.handlers[path] = runtime.identity
        for name in data["fluent"]:
            self.handlers[f"*.{name}"] = runtime.fluent
        for path, (position, how, keyword) in data["callbacks"].items():
            self.handlers[path] = runtime.callback(position, how, keyword)

    def _fact(self, value: Any) -> Value:
        if isinstance(value, str) and value.startswith("{") and value.endswith("}"):
            fact = self.facts.get(value[1:-1])
            return unknown() if fact is None else Value(fact, Origin("launch"))
        return Value(value)

    def constant(self, machine: Machine, path: str) -> Value | None:
        """The value a library name stands for, where that is known."""
        if path in self.constants:
            return self.constants[path]
        if path in absl.FLAGS_PATHS:
            return Value(absl.flags_object(machine))
        if path == torchpack.CONFIGS:
            return torchpack.configs(machine)
        if path == "wandb.config":
            return machine.shared.get(path)
        if path == "sys.argv":
            return Value(machine.argv)
        if path == "sys.path":
            paths: Value = machine.shared.setdefault("sys.path", Value([]))
            return paths
        return None

    @staticmethod
    def record_defaults(path: str) -> dict[str, Value]:
        """Documented defaults of a library's configuration class, by field."""
        name = classes.last(path)
        for known, fields in _data()["records"].items():
            if known == path or (
                known.rsplit(".", 1)[-1] == name and path.split(".", maxsplit=1)[0] != "?"
            ):
                origin = Origin("library", text=f"{known}")
                return {key: Value(value, origin) for key, value in fields.items()}
        return {}

    def config_defaults(self, name: str) -> Value:
        """A library's default configuration tree."""
        return wrap(_data()["configs"][name], Origin("library", text=name))

    parser_actions = staticmethod(argparse.actions)
    config_method = staticmethod(config_method)
    enter = staticmethod(decorators.enter)
    defined = staticmethod(sacred.automain)

    @staticmethod
    def bound_arguments(machine: Machine, target: Function | Class) -> dict[str, Value]:
        """Arguments that a configuration library gives what its caller gives none."""
        bound = gin.gin_arguments(machine, target)
        if isinstance(target, Function):
            bound |= sacred.captured_arguments(machine, target)
        return bound

    @staticmethod
    def is_parser(call: Invocation) -> bool:
        """Whether a call of an unknown library function is given an argument parser first."""
        data = call.args[0].data if call.args else None
        return isinstance(data, Call) and data.path in argparse.CONSTRUCTORS

    @staticmethod
    def stands_for(names: AbstractSet[str]) -> str | None:
        """The library's class that a class is a copy of, by its methods and its module's names."""
        for path, copies in _data()["copies"].items():
            if any(names >= set(telling) for telling in copies):
                return str(path)
        return None

    @staticmethod
    def constructed(
        machine: Machine, instance: Value, cls: Class, call: Invocation
    ) -> Value | None:
        """The object, where constructing a class built on a library's is the library's doing."""
        if runtime.constructed(machine, instance, cls, call):
            return instance
        if any(base in dataclass_parsers.PARSERS for base in cls.external_bases()):
            dataclass_parsers.hold_kinds(machine, instance)
        if any(base in attribute_dicts.YACS_NODES for base in cls.external_bases()):
            return attribute_dicts.HANDLERS["yacs.config.CfgNode"](machine, call)
        return None


def _constant(value: Value) -> Handler:
    def answer(machine: Machine, call: Invocation) -> Value:
        return Value(value.data, value.origin)

    return answer
