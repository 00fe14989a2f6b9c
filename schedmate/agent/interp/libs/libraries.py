"""What the documentation of libraries says of them, and libraries that run what they are given.

`libraries.yaml` has results, constants, defaults and options. Launchers, trainers, wrappers and
registries call the program's functions, or give back what they are given.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from schedmate.agent.interp.libs.files import read_file
from schedmate.agent.interp.machine import Machine, Plugin
from schedmate.agent.interp.objects import (
    AttrDict,
    Bound,
    Call,
    Handler,
    Instance,
    Invocation,
    as_call,
    as_class,
    as_function,
    as_instance,
    as_symbol,
    is_own,
    modelled,
    native,
    path_of,
)
from schedmate.agent.interp.values import classes
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.values import Origin, Value, lifted, unknown
from schedmate.base.data import load

_SETTINGS = ("config", "train_loop_config", "param_space")
_RECORDED = (
    *("model_fn", "train_loop_per_worker", "trainable", "env_fns"),
    *("run_or_experiment", "func", "function"),
)
"""Arguments of calls that are recorded: constructors, whose object they give, and searches."""


def _takes_one(function: Value) -> bool:
    own = as_function(function)
    return own is None or bool(own.node.args.args)


def callback_model(position: int | None, how: str, keyword: str) -> Handler:
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


def wrapped_model(machine: Machine, call: Invocation) -> Value:
    return call.argument(0, "model", "module", "fun", "cfg") or unknown()


def fluent(machine: Machine, call: Invocation) -> Value | None:
    """`x.to(device)`: x itself, for objects of unknown libraries and for networks."""
    base = call.base
    if as_instance(base) is None and as_call(base) is None:
        return None
    name = classes.last_part(call.path)
    if name != "to" and (call.kwargs or len(call.args) > 1):
        return None  # a library's own `model.train(data, epochs=3)`
    kind = call.argument(0, "dtype") if name == "to" else Value(name)
    if kind is not None and (kind.text is not None or as_symbol(kind) is not None):
        machine.record("torch.nn.Module.to", [kind], {}, call.site)
    return base


def prepare_objects(machine: Machine, call: Invocation) -> Value:
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


_TASK = re.compile(r"ray\.remote|(\?|modal)\S*\.(function|cls)")
"""Decorators of Ray and Modal by which a function or class runs elsewhere."""


def _is_task(value: Value) -> bool:
    """Whether a function, or the class of an object, runs elsewhere by its decorator."""
    owner = as_instance(value.data.self) if isinstance(value.data, Bound) else None
    task = owner.cls if owner is not None else as_class(value) or as_function(value)
    decorators = task.decorators if task is not None else []
    return any(_TASK.match(path_of(decorator)) for decorator in decorators)


def _task_remote(machine: Machine, base: Value) -> Value | None:
    """`task.remote`: the task, called here."""
    return base if _is_task(base) else None


def _task_options(machine: Machine, base: Value) -> Value | None:
    """`task.options(num_gpus=1)`: the same on other resources."""
    return native("options", lambda *_: base) if _is_task(base) else None


# What libraries' documentation says of them: results, constants, defaults, functions that pass on.
#
# All of it is data, in `libraries.yaml`.


_LIBRARIES: dict[str, Any] = load("agent/interp/libs/libraries.yaml")
_ALIASES: tuple[tuple[str, str], ...] = tuple(_LIBRARIES["aliases"].items())
TRAINER_OPTIONS: list[str] = _LIBRARIES["trainer_options"]
"""Arguments of Lightning's trainer."""


@lru_cache(16_384)
def canonical_path(path: str) -> str:
    """One spelling for what can be imported under several names."""
    for old, new in _ALIASES:
        if path.startswith(old):
            return new + path[len(old) :]
    renamed: str = _LIBRARIES["renamed"].get(path, path)
    return renamed


@lru_cache(1024)
def documented_defaults(path: str) -> tuple[str, dict[str, Any]] | None:
    """The class at `path`, or of that name in a library, and its fields' documented defaults."""
    name = classes.last_part(path)
    for documented, fields in _LIBRARIES["records"].items():
        if documented == path or (
            documented.rsplit(".", 1)[-1] == name and path.split(".", maxsplit=1)[0] != "?"
        ):
            return documented, fields
    return None


def record_defaults(path: str) -> dict[str, Value]:
    """Documented defaults of a library's configuration class, by field."""
    documented = documented_defaults(path)
    if documented is None:
        return {}
    return {
        key: Value(value, Origin("library", text=f"{documented[0]}.{key}"))
        for key, value in documented[1].items()
    }


def record_classes() -> list[str]:
    """Configuration classes of libraries whose defaults are documented."""
    return list(_LIBRARIES["records"])


def config_defaults(name: str) -> Value:
    """A library's default configuration tree."""
    return _named_defaults(_LIBRARIES["configs"][name], name)


def _named_defaults(data: Any, name: str) -> Value:
    """A tree of documented defaults, each under its whole name."""
    if isinstance(data, dict):
        items = {key: _named_defaults(item, f"{name}.{key}") for key, item in data.items()}
        return Value(items, Origin("library", text=name))
    return lifted(data, Origin("library", text=name))


def documented_parsers() -> dict[str, list[dict[str, Any]]]:
    """The options of argument parsers that libraries make, by the function that makes one."""
    options: dict[str, list[dict[str, Any]]] = _LIBRARIES["parsers"]
    return options


def _class_copied(names: set[str]) -> str | None:
    for path, copies in _LIBRARIES["copies"].items():
        if any(names >= set(telling) for telling in copies):
            return str(path)
    return None


def _constant_model(constant: Any) -> Callable[[Machine], Value]:
    """A value, or with `{name}` what the launch says of it."""
    if isinstance(constant, str) and constant.startswith("{") and constant.endswith("}"):
        fact = constant[1:-1]
        return lambda machine: machine.facts[fact]
    value = Value(constant)
    return lambda _: value


def _result_model(said: Any) -> Handler:
    constant = _constant_model(said)

    def answer(machine: Machine, call: Invocation) -> Value:
        value = constant(machine)
        return Value(value.data, value.origin)

    return answer


DOCUMENTED = Plugin(
    attributes={"remote": _task_remote, "options": _task_options},
    calls={
        **modelled("libraries", globals()),
        **{path: _result_model(said) for path, said in _LIBRARIES["results"].items()},
        **dict.fromkeys(_LIBRARIES["identity"], wrapped_model),
        **{f"*.{name}": fluent for name in _LIBRARIES["fluent"]},
        **{path: callback_model(*how) for path, how in _LIBRARIES["callbacks"].items()},
    },
    names={
        "wandb.config": lambda machine: machine.shared.get("wandb.config"),
        **{path: _constant_model(said) for path, said in _LIBRARIES["constants"].items()},
    },
    defaults=record_defaults,
    stands_for=_class_copied,
)
