"""Policies by name: the bundled ones, and those of other packages."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from schedmate.errors import SchedmateError, UsageError, did_you_mean, ends_the_program
from schedmate.schedulers.policy import Policy

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

ENTRY_POINTS = "schedmate.policies"
"""The entry point group in which a package names its policies."""

BUNDLED = {
    "fifo": "schedmate.schedulers.policies.queues:Fifo",
    "sjf": "schedmate.schedulers.policies.queues:Sjf",
    "sjf-ageing": "schedmate.schedulers.policies.queues:SjfAgeing",
    "qssf": "schedmate.schedulers.policies.queues:Qssf",
    "srtf": "schedmate.schedulers.policies.preemptive:Srtf",
    "tiresias": "schedmate.schedulers.policies.tiresias:Tiresias",
    "lucid": "schedmate.schedulers.policies.lucid:Lucid",
    "gavel": "schedmate.schedulers.policies.gavel:Gavel",
    "pollux": "schedmate.schedulers.policies.pollux:Pollux",
    "sia": "schedmate.schedulers.policies.sia:Sia",
    "elasticflow": "schedmate.schedulers.policies.elasticflow:ElasticFlow",
    "arena": "schedmate.schedulers.policies.arena:Arena",
    "horus": "schedmate.schedulers.policies.horus:Horus",
    "spot": "schedmate.schedulers.policies.spot:Spot",
    "lucid+schedmate": "schedmate.schedulers.adapters.lucid:LucidWithSchedMate",
    "qssf+schedmate": "schedmate.schedulers.adapters.sjf:QssfWithSchedMate",
    "srtf+schedmate": "schedmate.schedulers.adapters.sjf:SrtfWithSchedMate",
    "sia+schedmate": "schedmate.schedulers.adapters.sia:SiaWithSchedMate",
    "spot+schedmate": "schedmate.schedulers.adapters.spot:SpotWithSchedMate",
    "sjf+schedmate": "schedmate.schedulers.adapters.sjf:SjfWithSchedMate",
}


class PolicySpec(NamedTuple):
    """A policy as it is asked for: its name, and settings by theirs, none of them checked."""

    name: str
    settings: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> PolicySpec:
        """Of `sjf`, `tiresias:threshold_gpu_s=7200` or `module:Class:a=1;b=2`.

        Settings come after a colon each, or after one with semicolons between them.
        """
        parts = text.split(":")
        settings = [one for part in parts if "=" in part for one in part.split(";")]
        pairs = (one.partition("=") for one in settings)
        return cls(
            ":".join(part for part in parts if "=" not in part),
            {key: value for key, _, value in pairs},
        )

    def with_defaults(self, further: Mapping[str, str]) -> PolicySpec:
        """The same with further settings, as far as the policy has them and they are not given.

        Raises `UsageError` for an unknown name.
        """
        known = {one.name for one in parameters(policy_class(self.name))}
        more = {
            key: value
            for key, value in further.items()
            if key in known and key not in self.settings
        }
        return self._replace(settings={**self.settings, **more})

    def __str__(self) -> str:
        return ":".join([self.name, *(f"{key}={value}" for key, value in self.settings.items())])


class Parameter(NamedTuple):
    """One setting of a policy."""

    name: str
    type: str
    default: Any


def names() -> list[str]:
    """Every policy that can be asked for by name."""
    return sorted({*BUNDLED, *(point.name for point in _of_packages())})


def _of_packages() -> EntryPoints:
    from importlib.metadata import entry_points  # imports much, and is rarely asked

    return entry_points(group=ENTRY_POINTS)


def policy_class(name: str) -> type[Policy]:
    """The class called `name`: bundled, registered by a package, or `module:Class`.

    Raises `UsageError` when there is none.
    """
    target = BUNDLED.get(name)
    if target is None:
        for point in _of_packages():
            if point.name == name:
                target = point.value
    if target is None and ":" in name:
        target = name
    if target is None:
        raise UsageError(
            f"no policy {name!r}; there are {', '.join(names())}, or module:Class of your own"
            f"{did_you_mean(name, names()) or '.'}"
        )
    module, _, attribute = target.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"policy {name!r} cannot be loaded: {error}. Say in PYTHONPATH where it is; if "
            "here: PYTHONPATH=. schedmate ..."
        ) from None
    except (ImportError, AttributeError, SyntaxError) as error:
        raise UsageError(f"policy {name!r} cannot be loaded: {error}.") from None
    except BaseException as error:
        if ends_the_program(error):
            raise
        what = f"{type(error).__name__}: {error}"
        raise UsageError(f"policy {name!r} cannot be loaded: its module fails ({what}).") from error
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise UsageError(f"policy {name!r}: {target} is not a subclass of schedmate's Policy.")
    return found


def parameters(policy: type[Policy]) -> list[Parameter]:
    """The settings of a policy, from the signature of its constructor.

    One that takes `**settings` passes them on: then those of the class it extends count too.
    """
    found: list[Parameter] = []
    for kind in policy.__mro__:
        if kind is object:
            break
        if "__init__" not in vars(kind):
            continue
        arguments = list(inspect.signature(vars(kind)["__init__"]).parameters.values())[1:]
        known = {one.name for one in found}
        found += [
            Parameter(one.name, str(one.annotation), one.default)
            for one in arguments
            if one.kind is not one.VAR_KEYWORD and one.name not in known
        ]
        if all(one.kind is not one.VAR_KEYWORD for one in arguments):
            break
    return found


def make(asked: str | PolicySpec) -> Policy:
    """The policy that is asked for. Raises `UsageError` for an unknown name or setting."""
    name, settings = asked if isinstance(asked, PolicySpec) else PolicySpec.parse(asked)
    found = policy_class(name)
    known = {one.name: one for one in parameters(found)}
    values: dict[str, Any] = {}
    for key, value in settings.items():
        if key not in known or not value:
            raise UsageError(
                f"policy {name!r} has no setting {f'{key}={value}'!r}; it has "
                f"{', '.join(f'{one.name}={one.default}' for one in known.values()) or 'none'}"
                f"{did_you_mean(key, known) or '.'}"
            )
        values[key] = _parse(name, known[key], value)
    for one in known.values():
        if one.default is inspect.Parameter.empty and one.name not in values:
            raise UsageError(
                f"policy {name!r} needs {one.name}: give the argument a default, or write "
                f"{name}:{one.name}=VALUE."
            )
    try:
        return found(**values)
    except SchedmateError:
        raise
    except BaseException as error:
        if name in BUNDLED or ends_the_program(error):
            raise
        what = f"{type(error).__name__}: {error}"
        raise UsageError(f"policy {name!r} cannot be made of {str(asked)!r} ({what}).") from error


def has_setting(text: str, key: str) -> bool:
    """Whether the policy called `text` has a setting of that name. Raises `UsageError`."""
    return any(one.name == key for one in parameters(policy_class(PolicySpec.parse(text).name)))


def _parse(policy: str, parameter: Parameter, value: str) -> Any:
    kind = type(parameter.default)
    number: float | None = None
    try:
        if kind is bool:
            return {"true": True, "false": False, "1": True, "0": False}[value.lower()]
        if kind is int:
            number = int(value)
        elif kind is float or parameter.default is None:
            number = float(value)
    except (KeyError, ValueError):
        wanted = _KINDS.get(kind, "a number")
        raise UsageError(f"policy {policy!r}: {parameter.name}={value} is not {wanted}.") from None
    if number is None:
        return value
    if number != number or (number < 0 and parameter.name.endswith(_QUANTITIES)):
        raise UsageError(f"policy {policy!r}: {parameter.name}={value} makes no sense.")
    return number


_KINDS: Mapping[type, str] = {bool: "true or false", int: "a whole number"}
_QUANTITIES = ("_s", "_mb", "_gpus", "_nodes")
"""How the names of settings end that no value below zero makes sense for."""
