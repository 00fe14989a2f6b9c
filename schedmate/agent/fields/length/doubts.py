"""What stands against a length: a program that trains nothing, a configuration that is missing."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from schedmate.agent.fields import called
from schedmate.agent.fields.candidates import Setting, matches, rules
from schedmate.agent.interp.trace import Trace
from schedmate.agent.launch import LaunchPlan
from schedmate.agent.values import Unknown, Value

_EVALUATES = re.compile(
    r"(^|[_.-])(val|valid|validate|validation|eval|evaluate|evaluation|test|infer|inference|predict|"
    r"prediction|export|convert|demo|animate|visuali[sz]e|vis|render|view|viewer|verify|enjoy|play|"
    r"generate|sample|sampling|benchmark|preprocess)([_.-]|$)",
    re.IGNORECASE,
)
_TRAINS = re.compile(r"train|tun(e|ing)|fit|learn", re.IGNORECASE)


def only_evaluates(trace: Trace, plan: LaunchPlan) -> bool:
    """Whether the program is named for something else than training, and nothing in it trains."""
    name = PurePosixPath(plan.entry or "").stem
    if not _EVALUATES.search(name) or _TRAINS.search(name):
        return False
    return not any(loop.has_backward and loop.kind == "for" for loop in trace.loops) and not any(
        called.makes_optimizer(event)
        or any(matches(event, rule) for rule in rules("calls")["length"])
        for event in trace.calls
    )


_CONFIGURATION = re.compile(
    r"-{0,2}\$?\{?(?!\w*(deepspeed|ds_|accelerate|model|token|data|log))\w*(config|cfg|recipe)[\w-]*\}?"
    r"|.+\.(ya?ml|toml|jsonnet|gin)",
    re.IGNORECASE,
)
"""A flag for a configuration, or its file: `--cfg`, `${CONFIG}`, `x.yaml`."""


def configuration_unread(plan: LaunchPlan, settings: list[Setting]) -> bool:
    """Whether the launch names a configuration, and the program was seen to read none."""
    read = any(
        setting.value.origin is not None
        and setting.value.origin.source == "config"
        and setting.owner != "launcher"
        for setting in settings
    )
    return not read and any(_names_configuration(word) for word in plan.argv)


def _names_configuration(word: Value) -> bool:
    text = word.data.text if isinstance(word.data, Unknown) else word.data
    flag = text.partition("=")[0] if isinstance(text, str) else ""
    return _CONFIGURATION.fullmatch(flag) is not None
