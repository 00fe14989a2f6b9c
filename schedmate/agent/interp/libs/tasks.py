"""Ray and Modal: functions and classes whose decorator has them run elsewhere."""

from __future__ import annotations

import re

from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.natives import native
from schedmate.agent.interp.objects import Bound, Class, Function, Instance, path_of
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.values import Value

_TASK = re.compile(r"ray\.remote|(\?|modal)\S*\.(function|cls)")


def _is_task(data: object) -> bool:
    """Whether a function, or the class of an object, runs elsewhere by its decorator."""
    if isinstance(data, Bound):
        return isinstance(data.self.data, Instance) and _is_task(data.self.data.cls)
    return isinstance(data, Class | Function) and any(
        _TASK.match(path_of(decorator)) for decorator in data.decorators
    )


def _remote(machine: Machine, base: Value) -> Value | None:
    """`task.remote`: the task, called here."""
    return base if _is_task(base.data) else None


def _options(machine: Machine, base: Value) -> Value | None:
    """`task.options(num_gpus=1)`: the same on other resources."""
    return native("options", lambda *_: base) if _is_task(base.data) else None


PLUGIN = Plugin(attributes={"remote": _remote, "options": _options})
