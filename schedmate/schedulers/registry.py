"""Policies by name: the bundled ones, and those of other packages."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

from schedmate.base.errors import (
    MissingExtraError,
    SchedmateError,
    UsageError,
    did_you_mean,
    ends_the_program,
)
from schedmate.base.plugins import POLICIES, load_plugin, plugins
from schedmate.base.terminal import clean
from schedmate.schedulers.policy import Policy

BUNDLED = {
    "fifo": "schedmate.schedulers.policies.queues:Fifo",
    "sjf": "schedmate.schedulers.policies.queues:Sjf",
    "sjf-ageing": "schedmate.schedulers.policies.queues:SjfAgeing",
    "qssf": "schedmate.schedulers.policies.queues:Qssf",
    "slurm": "schedmate.schedulers.policies.slurm:Slurm",
    "kueue": "schedmate.schedulers.policies.kueue:Kueue",
    "srtf": "schedmate.schedulers.policies.preemptive:Srtf",
    "tiresias": "schedmate.schedulers.policies.preemptive:Tiresias",
    "gittins": "schedmate.schedulers.policies.distribution:GittinsIndex",
    "serpt": "schedmate.schedulers.policies.distribution:Serpt",
    "likely-short": "schedmate.schedulers.policies.distribution:LikelyShort",
    "lucid": "schedmate.schedulers.policies.lucid:Lucid",
    "gavel": "schedmate.schedulers.policies.gavel:Gavel",
    "pollux": "schedmate.schedulers.policies.pollux:Pollux",
    "sia": "schedmate.schedulers.policies.sia:Sia",
    "elasticflow": "schedmate.schedulers.policies.elasticflow:ElasticFlow",
    "arena": "schedmate.schedulers.policies.arena:Arena",
    "horus": "schedmate.schedulers.policies.horus:Horus",
    "spot": "schedmate.schedulers.policies.spot:Spot",
    "lucid+schedmate": "schedmate.schedulers.adapters.policies:LucidWithSchedMate",
    "qssf+schedmate": "schedmate.schedulers.adapters.policies:QssfWithSchedMate",
    "srtf+schedmate": "schedmate.schedulers.adapters.policies:SrtfWithSchedMate",
    "sia+schedmate": "schedmate.schedulers.adapters.policies:SiaWithSchedMate",
    "spot+schedmate": "schedmate.schedulers.adapters.policies:SpotWithSchedMate",
    "sjf+schedmate": "schedmate.schedulers.adapters.policies:SjfWithSchedMate",
}


_QUOTED = r"""'(?:[^']|'')*'|"(?:[^"]|"")*\""""
"""A quoted value, in which a doubled quote stands for one."""


def split_outside_quotes(text: str, separator: str) -> list[str]:
    """Split at separators outside quotes.

    Quotes count only at the beginning of a value: after `=`, or after a comma. `a:b='1,2',c` split
    at commas is `a:b='1,2'` and `c`.
    """
    part = re.compile(rf"(?:(?<=[=,])(?:{_QUOTED})|[^{re.escape(separator)}])*")
    parts, at = [], 0
    while at <= len(text):
        match = part.match(text, at)
        assert match is not None  # it may be empty
        parts.append(match[0])
        at = match.end() + 1
    return parts


def unquoted(value: str) -> str:
    """The value without quotes; raises `UsageError` for a quote that is not closed."""
    if value[:1] not in ("'", '"'):
        return value
    if not re.fullmatch(_QUOTED, value, re.DOTALL):
        raise UsageError(
            f"the value {value} begins with a quote and does not end with it; write NAME='VALUE', "
            "with a quote in the value doubled."
        )
    return value[1:-1].replace(value[0] * 2, value[0])


def quoted(value: str) -> str:
    """The value in a form that `unquoted` reads, in quotes if needed."""
    if value == value.strip() and not re.search(r"""[:;,]|^['"]""", value):
        return value
    return "'" + value.replace("'", "''") + "'"


class PolicySpec(NamedTuple):
    """A requested policy: its name and settings, unchecked."""

    name: str
    settings: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> PolicySpec:
        """Parse `sjf`, `tiresias:threshold_gpu_s=7200` or `module:Class:a=1;b='x:y'`.

        Each setting follows a colon, or all follow one colon, separated by semicolons. A value with
        a colon, semicolon or comma is quoted. Raises `UsageError` for one that is not.
        """
        names, settings = list[str](), dict[str, str]()
        for part in split_outside_quotes(text, ":"):
            if "=" in part:
                for setting in split_outside_quotes(part, ";"):
                    key, _, value = setting.partition("=")
                    settings[key] = unquoted(value)
            elif settings:
                key, value = list(settings.items())[-1]
                raise UsageError(
                    f"{part!r} in policy {text!r} is not a setting; write NAME=VALUE, and a value "
                    f"with a colon in quotes: {key}={quoted(f'{value}:{part}')}."
                )
            else:
                names.append(part)
        return cls(":".join(names), settings)

    def with_defaults(self, further: Mapping[str, str]) -> PolicySpec:
        """The same with default settings that the policy has and that are not given.

        Raises `UsageError` for an unknown name.
        """
        own_settings = {parameter.name for parameter in parameters(policy_class(self.name))}
        more = {
            key: value
            for key, value in further.items()
            if key in own_settings and key not in self.settings
        }
        return self._replace(settings={**self.settings, **more})

    def __str__(self) -> str:
        settings = (f"{key}={quoted(value)}" for key, value in self.settings.items())
        return ":".join([self.name, *settings])


class Parameter(NamedTuple):
    """One setting of a policy."""

    name: str
    type: str
    default: Any


def names() -> list[str]:
    """Names of all available policies."""
    return sorted([*BUNDLED, *plugins(POLICIES, BUNDLED)])


def policy_class(name: str) -> type[Policy]:
    """The class named `name`: bundled, registered by a package, or `module:Class`.

    Raises `UsageError` if there is none.
    """
    target = BUNDLED.get(name) or plugins(POLICIES).get(name)
    if target is None and ":" in name:
        target = name
    if target is None:
        near = did_you_mean(name, names())
        there = f"; there are {', '.join(names())}, or module:Class of your own."
        raise UsageError(
            f"no policy {name!r}{f'{near} `schedmate policies` lists them.' if near else there}"
        )
    module, _, attribute = target.partition(":")
    if module.endswith(".py") or "/" in module:
        raise UsageError(_no_path(name, Path(module), attribute))
    if not attribute:
        raise UsageError(
            f"policy {name!r} cannot be loaded: {target} names no class; write module:Class."
        )
    loaded = load_plugin(f"policy {name!r}", target)
    if not (isinstance(loaded, type) and issubclass(loaded, Policy)):
        raise UsageError(
            f"policy {name!r}: {target} is not a subclass of schedmate.schedulers.policy.Policy; "
            "derive it from that (docs/policies.md)."
        )
    return loaded


def _no_path(name: str, file: Path, attribute: str) -> str:
    folder = "." if file.parent == Path() else file.parent
    return (
        f"policy {name!r} names a file; name its module, and say in PYTHONPATH where it is: "
        f"PYTHONPATH={clean(folder, 200)} schedmate ... --policy "
        f"{clean(file.stem, 200)}:{clean(attribute, 200)}"
    )


def parameters(policy: type[Policy]) -> list[Parameter]:
    """The settings of a policy, from the signature of its constructor.

    One that takes `**settings` passes them on: then those of the class it extends count too.
    """
    settings: list[Parameter] = []
    for kind in policy.__mro__:
        if kind is object:
            break
        if "__init__" not in vars(kind):
            continue
        arguments = list(inspect.signature(vars(kind)["__init__"]).parameters.values())[1:]
        own_names = {argument.name for argument in settings}
        settings += [
            Parameter(argument.name, str(argument.annotation), argument.default)
            for argument in arguments
            if argument.kind is not argument.VAR_KEYWORD and argument.name not in own_names
        ]
        if all(argument.kind is not argument.VAR_KEYWORD for argument in arguments):
            break
    return settings


_ARGUMENT = re.compile(r"^(\w+(?:, \w+)*): (.+(?:\n +.+)*)", re.MULTILINE)


def meanings(policy: type[Policy]) -> dict[str, str]:
    """What each setting means: the `Args` in the docstrings of the policy, its constructor and the
    classes that it extends."""
    found: dict[str, str] = {}
    for kind in policy.__mro__:
        for owner in (kind, vars(kind).get("__init__")):
            _, _, stated = inspect.cleandoc(owner.__doc__ or "").partition("Args:\n")
            for names, text in _ARGUMENT.findall(dedent(stated.partition("\n\n")[0])):
                for name in names.split(", "):
                    found.setdefault(name, " ".join(text.split()).removesuffix("."))
    return found


def make(spec: str | PolicySpec) -> Policy:
    """The policy, constructed with its settings. Raises `UsageError` for an unknown name or
    setting."""
    name, settings = spec if isinstance(spec, PolicySpec) else PolicySpec.parse(spec)
    policy = policy_class(name)
    available = {parameter.name: parameter for parameter in parameters(policy)}
    values: dict[str, Any] = {}
    for key, value in settings.items():
        if key not in available or not value:
            shown = ", ".join(f"{one.name}={one.default}" for one in available.values())
            raise UsageError(
                f"policy {name!r} has no setting {f'{key}={value}'!r}; it has {shown or 'none'}"
                f"{did_you_mean(key, available) or '.'}"
            )
        values[key] = _parse(name, available[key], value)
    for parameter in available.values():
        if parameter.default is inspect.Parameter.empty and parameter.name not in values:
            raise UsageError(
                f"policy {name!r} needs {parameter.name}: give the argument a default, or write "
                f"{name}:{parameter.name}=VALUE."
            )
    try:
        return policy(**values)
    except MissingExtraError as error:
        raise MissingExtraError(f"policy {name}", error.packages, error.extra) from None
    except SchedmateError:
        raise
    except BaseException as error:
        if name in BUNDLED or ends_the_program(error):
            raise
        what = f"{type(error).__name__}: {error}"
        raise UsageError(f"policy {name!r} cannot be made of {str(spec)!r} ({what}).") from error


def has_setting(text: str, key: str) -> bool:
    """Whether the policy called `text` has a setting of that name. Raises `UsageError`."""
    return any(
        parameter.name == key for parameter in parameters(policy_class(PolicySpec.parse(text).name))
    )


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
    if math.isnan(number):
        raise UsageError(f"policy {policy!r}: {parameter.name}={value} is not a number; give one.")
    if math.isinf(number):
        raise UsageError(
            f"policy {policy!r}: {parameter.name}={value} is not finite; give a number below 1e308."
        )
    if number < 0 and parameter.name.endswith(_QUANTITIES):
        raise UsageError(f"policy {policy!r}: {parameter.name}={value} must be at least 0.")
    return number


_KINDS: Mapping[type, str] = {bool: "true or false", int: "a whole number"}
_QUANTITIES = ("_s", "_mb", "_gpus", "_nodes")
"""How the names of settings end that no value below zero makes sense for."""
