"""Libraries that run what they are given: launchers, trainers, wrappers, registries."""

from __future__ import annotations

import re

from schedmate.agent.interp import classes
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.configs.files import read_file
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.natives import native
from schedmate.agent.interp.objects import (
    AttrDict,
    Bound,
    Call,
    Instance,
    as_call,
    as_class,
    as_function,
    as_instance,
    as_symbol,
    is_own,
    path_of,
)
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.values import Value, unknown

_SETTINGS = ("config", "train_loop_config", "param_space")
_RECORDED = ("model_fn", "train_loop_per_worker", "trainable", "env_fns")
"""Arguments of a constructor, whose object is what the call gives."""


def _takes_one(function: Value) -> bool:
    own = as_function(function)
    return own is None or bool(own.node.args.args)


def callback(position: int | None, how: str, keyword: str) -> Handler:
    """A model of a call that runs a function given at `position` or as `keyword`."""

    def run(machine: Machine, call: Invocation) -> Value | None:
        function = call.argument(position, keyword)
        if function is not None and function.elements:
            function = function.elements[0]  # one of several alike
        bound = function is not None and isinstance(function.data, Bound | Instance)
        if function is None or not (is_own(function) or (bound and how == "rest")):
            return None
        if how == "rest":
            machine.call(function, call.args[1:], dict(call.kwargs), call.site)
            return None  # a handle of the job
        given = call.kwargs.get("args")
        if given is None and how == "rank" and len(call.args) > 1:
            given = call.args[1]
        args = iterate(given) or []
        if how == "rank":
            args = [Value(0), *args]
        elif how == "none":
            args = []
        elif how == "config":
            settings = (call.kwargs[name] for name in _SETTINGS if name in call.kwargs)
            args = [next(settings, unknown())] if _takes_one(function) else []
        result = machine.call(function, args, {}, call.site)
        return None if keyword in _RECORDED else result

    return run


def identity(machine: Machine, call: Invocation) -> Value:
    return call.argument(0, "model", "module", "fun", "cfg") or unknown()


def fluent(machine: Machine, call: Invocation) -> Value | None:
    """`x.to(device)`: x itself, for objects of unknown libraries and for networks."""
    base = call.base
    if as_instance(base) is None and as_call(base) is None:
        return None
    name = classes.last(call.path)
    if name != "to" and (call.kwargs or len(call.args) > 1):
        return None  # a library's own `model.train(data, epochs=3)`
    kind = call.argument(0, "dtype") if name == "to" else Value(name)
    if kind is not None and (kind.text is not None or as_symbol(kind) is not None):
        machine.record("torch.nn.Module.to", [kind], {}, call.site)
    return base


def prepare(machine: Machine, call: Invocation) -> Value:
    """`accelerator.prepare(a, b)` and `fabric.setup(a, b)`: the same objects."""
    return call.args[0] if len(call.args) == 1 else Value(tuple(call.args))


def wandb_init(machine: Machine, call: Invocation) -> Value:
    """`wandb.init(config=...)`: the run's config, which programs read their settings back from."""
    given = call.kwargs.get("config")
    mapping, record = machine.mapping(given), as_instance(given)
    if mapping is None and record is not None:
        mapping = record.attrs
    config = Value(AttrDict(dict(mapping or {}), "attr"))
    machine.shared["wandb.config"] = config
    if mapping:
        machine.observer.settings("wandb", config, "config")
    return Value(Call(call.path, call.args, call.kwargs, {"config": config}))


def deepspeed_initialize(machine: Machine, call: Invocation) -> Value:
    config = call.kwargs.get("config") or call.kwargs.get("config_params")
    if config is not None:
        loaded = read_file(machine, config) if config.text is not None else config
        if loaded is not None and loaded.mapping is not None:
            machine.observer.settings("deepspeed", loaded, "config")
    model = call.argument(1, "model") or unknown()
    optimizer = call.argument(2, "optimizer") or unknown()
    return Value((model, optimizer, unknown(), unknown()))


def _wandb_config(machine: Machine) -> Value | None:
    return machine.shared.get("wandb.config")


_TASK = re.compile(r"ray\.remote|(\?|modal)\S*\.(function|cls)")
"""Decorators of Ray and Modal by which a function or class runs elsewhere."""


def _is_task(value: Value) -> bool:
    """Whether a function, or the class of an object, runs elsewhere by its decorator."""
    owner = as_instance(value.data.self) if isinstance(value.data, Bound) else None
    task = owner.cls if owner is not None else as_class(value) or as_function(value)
    decorators = task.decorators if task is not None else []
    return any(_TASK.match(path_of(decorator)) for decorator in decorators)


def _remote(machine: Machine, base: Value) -> Value | None:
    """`task.remote`: the task, called here."""
    return base if _is_task(base) else None


def _options(machine: Machine, base: Value) -> Value | None:
    """`task.options(num_gpus=1)`: the same on other resources."""
    return native("options", lambda *_: base) if _is_task(base) else None


PLUGIN = Plugin(
    attributes={"remote": _remote, "options": _options},
    calls={
        "accelerate.Accelerator().prepare": prepare,
        "lightning.fabric.Fabric().setup": prepare,
        "lightning.Fabric().setup": prepare,
        "deepspeed.initialize": deepspeed_initialize,
        "wandb.init": wandb_init,
    },
    names={"wandb.config": _wandb_config},
)
