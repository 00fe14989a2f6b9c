"""Paths of a job as its own command and repository write them, wherever they were unpacked."""

from __future__ import annotations

import re
from pathlib import Path

from schedmate.agent.interp.objects import Instance
from schedmate.agent.interp.trace import Trace
from schedmate.agent.values import Unknown, Value, unknown

MAX_TEXT = 300
"""Longest text that fields are chosen from [characters]: a path or a list of paths, not a file."""

_OWN_DEPTH = 4
"""Least parts of the repository's path at which the folder it is in is not a common one."""
_AS_WRITTEN = frozenset({"command", "script", "environment", "config"})
"""Sources of paths that stand as the job's people wrote them."""

_PLACE = r"([\"']?)(?:\$(?:\w+|\{\w+\})|\.{0,2}/[\w.@+-]+)(?:/[\w.@+${}-]+)+"
_BELOW_UNKNOWN = re.compile(
    rf"(?:-{{0,2}}[\w.-]+=)?(?:{_PLACE}\1|\[\s*{_PLACE}\2(?:\s*,\s*{_PLACE}\3)*\s*\])"
)


def relative_to(root: Path, trace: Trace) -> None:
    """Write paths inside the repository (`os.getcwd()`, `__file__`) without what leads up to it.

    So are those beside it that the code computes (`dirname(dirname(__file__))`), as `../data`. The
    repository's folder is named for its code, not for the data of a run. Texts that are too long to
    name anything become unknown.
    """
    inside = f"{root}/"
    beside = f"{root.parent}/"
    shared = len(root.parts) < _OWN_DEPTH  # a folder such as /tmp, where others' places are too
    seen: set[int] = set()
    lists: dict[int, list[Value]] = {}  # made anew, by the old one, which the trace keeps alive

    def shown(value: Value) -> Value:
        data = value.data
        held = data.attrs if isinstance(data, Instance) else data
        if isinstance(held, dict) and id(held) not in seen:
            seen.add(id(held))
            held.update({key: shown(item) for key, item in held.items() if isinstance(item, Value)})
        if isinstance(data, str) and len(data) > MAX_TEXT:
            return unknown(origin=value.origin)
        if data == str(root):
            return Value(".", value.origin)
        if isinstance(data, str) and data.startswith(inside):
            return Value(f"./{data.removeprefix(inside)}", value.origin)
        if isinstance(data, str) and data.startswith(beside) and not shared and not given(value):
            return Value(f"../{data.removeprefix(beside)}", value.origin)
        if isinstance(data, list) and any(
            isinstance(item.data, str)
            and (item.data.startswith(inside) or len(item.data) > MAX_TEXT)
            for item in data
        ):
            if id(data) not in lists:
                lists[id(data)] = []
                lists[id(data)].extend([shown(item) for item in data])
            return Value(lists[id(data)], value.origin)
        return value

    def given(value: Value) -> bool:
        return value.origin is not None and value.origin.source in _AS_WRITTEN

    for event in trace.calls:
        event.args = [shown(value) for value in event.args]
        event.kwargs = {key: shown(value) for key, value in event.kwargs.items()}
    for settings in trace.settings:
        settings.value = shown(settings.value)


def as_written(value: Value) -> Value:
    """An argument below a folder that only the machine knows, `$HOME/data/x.csv`, as written.

    So is a list of such places, `files=['$HOME/a.csv', '$HOME/b.csv']`.
    """
    text = value.data.text if isinstance(value.data, Unknown) else None
    if text is not None and _BELOW_UNKNOWN.fullmatch(text):
        # without braces, which are a configuration's own references
        return Value(re.sub(r"\$\{(\w+)\}", r"$\1", text), value.origin)
    return value
