"""The `re` module on text that is known: programs take names apart with it.

A pattern comes from the repository, and one that goes through the text again and again could take
for ever: those with a repetition inside a repetition are left alone, as are long ones.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from schedmate.agent.interp.invocation import Handler, Invocation
from schedmate.agent.interp.objects import Call
from schedmate.agent.values import Value, lifted, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State

MAX_TEXT = 100
MAX_PATTERN = 120
MAX_REPEATS = 3
MAX_OPTIONAL = 6
_COMPILED = "re.compile()"


def _apply(name: str) -> Handler:
    def run(state: State, call: Invocation) -> Value | None:
        args = list(call.args)
        base = call.base.data if call.base is not None else None
        if isinstance(base, Call) and base.path == "re.compile":
            args = [*base.args[:1], *args]
        texts = [value.data for value in args]
        if call.kwargs or not all(isinstance(text, str) for text in texts) or len(texts) < 2:
            return None
        if not _is_quick(texts[0]) or len(texts[-1]) > MAX_TEXT or state.out_of_time():
            return None
        try:
            found = getattr(re, name)(*texts)
        except (re.error, TypeError, ValueError, RecursionError, OverflowError):
            return None
        origin = args[-1].origin
        return _match(found, args) if isinstance(found, re.Match) else lifted(found, origin)

    return run


def _is_quick(pattern: str) -> bool:
    """Whether matching takes a time of a few powers of the text's length at most."""
    if len(pattern) > MAX_PATTERN:
        return False
    # escapes, sets of characters and the marks of groups say nothing of repetition
    plain = re.sub(
        r"\\.|\[\^?\]?[^\]]*\]|\(\?[^)]?[<\w=!]*>?", lambda m: "(" * (m[0][0] == "("), pattern
    )
    repeats = optional = 0
    choices = [False]  # whether each open group can match the same text in several ways
    for index, char in enumerate(plain):
        if char == "(":
            choices.append(False)
        elif char == ")" and len(choices) > 1:
            inner = choices.pop()
            if inner and plain[index + 1 : index + 2] in ("*", "+", "{"):
                return False
            choices[-1] |= inner
        elif char in "*+{":
            repeats, choices[-1] = repeats + 1, True
        elif char in "?|":
            optional, choices[-1] = optional + 1, True
    return repeats <= MAX_REPEATS and optional <= MAX_OPTIONAL and "\\" not in plain


def _match(found: re.Match[str], args: list[Value]) -> Value:
    """A match, with what its groups hold."""
    groups = {index: found.group(index) for index in range(found.re.groups + 1)}
    held: dict[Any, Value] = {
        key: Value(text, args[-1].origin) for key, text in (groups | found.groupdict()).items()
    }
    return Value(Call("re.Match", args, {}, held), args[-1].origin)


def _group(state: State, call: Invocation) -> Value:
    attrs = call.base.data.attrs if call.base is not None else {}
    wanted = call.args or [Value(0)]
    found = [attrs.get(value.data, unknown()) for value in wanted]
    return found[0] if len(found) == 1 else Value(tuple(found))


def _groups(state: State, call: Invocation) -> Value:
    attrs = call.base.data.attrs if call.base is not None else {}
    numbers = sorted(key for key in attrs if isinstance(key, int) and key)
    return Value(tuple(attrs[number] for number in numbers))


def _named(state: State, call: Invocation) -> Value:
    attrs = call.base.data.attrs if call.base is not None else {}
    return Value({key: value for key, value in attrs.items() if isinstance(key, str)})


_FUNCTIONS = ("match", "search", "fullmatch", "sub", "split", "findall")

HANDLERS: dict[str, Handler] = {
    **{f"re.{name}": _apply(name) for name in _FUNCTIONS},
    **{f"{_COMPILED}.{name}": _apply(name) for name in _FUNCTIONS},
    "re.Match().group": _group,
    "re.Match().groups": _groups,
    "re.Match().groupdict": _named,
}
