"""What stands against a length: a program that trains nothing, a configuration that is missing."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from schedmate.agent.fields import optimizers
from schedmate.agent.fields.candidates import matching
from schedmate.agent.fields.leaves import Setting
from schedmate.agent.interp.trace import Trace
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.values import Unknown

_EVALUATES = re.compile(
    r"(^|[_.-])(val|valid|validate|validation|eval|evaluate|evaluation|test|infer|inference|predict|"
    r"prediction|export|convert|demo|animate|visuali[sz]e|vis|render|view|viewer|verify|enjoy|play|"
    r"generate|sample|sampling|benchmark|preprocess)([_.-]|$)",
    re.IGNORECASE,
)
_TRAINS = re.compile(r"train|tun(e|ing)|fit|learn", re.IGNORECASE)
_TRAINING = re.compile(r"train(_\w+)?")
"""Functions that train, perhaps in processes of their own."""


def only_evaluates(trace: Trace, plan: LaunchPlan) -> bool:
    """Whether the program is named for something else than training, and nothing in it trains."""
    name = PurePosixPath(plan.entry or "").stem
    if not _EVALUATES.search(name) or _TRAINS.search(name):
        return False
    if any(_TRAINING.fullmatch(function) for function in trace.functions):
        return False
    return not any(loop.has_backward and loop.kind == "for" for loop in trace.loops) and not any(
        optimizers.makes_optimizer(event) or matching(event, "length") for event in trace.calls
    )


_FLAG = re.compile(r"-{1,2}\w*(config|cfg|recipe)[\w-]*", re.IGNORECASE)
_OTHER = re.compile(r"deepspeed|ds_|accelerate|model|token|data|log|hyp", re.IGNORECASE)
"""What options name whose files configure something else."""
_FILE = re.compile(r"\S+\.(ya?ml|toml|jsonnet|gin)|[A-Z_]*(CONFIG|CFG)[A-Z_]*")
"""A configuration's file, or what stands for one: `x.yaml`, `CONFIG_FILE`."""


def configuration_unread(plan: LaunchPlan, settings: list[Setting]) -> bool:
    """Whether the launch names a configuration, and the program was seen to read none."""
    read = any(s.source == "config" and s.owner != "launcher" for s in settings)
    words = [w.data.text or "" if isinstance(w.data, Unknown) else str(w.data) for w in plan.argv]
    option = ""
    for word, following in zip(words, [*words[1:], "-"], strict=False):
        flag, equals, value = word.partition("=")
        option = flag if equals or flag.startswith("-") else option
        if _OTHER.search(option):
            continue
        # a file, and no name of one that the program knows
        named = not re.fullmatch(r"\w[\w-]*", value if equals else following)
        if (_FLAG.fullmatch(flag) and named) or _FILE.fullmatch(value or flag):
            return not read
    return False
