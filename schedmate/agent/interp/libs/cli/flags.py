"""Command-line tokens: flags, their values, and where a value came from."""

from __future__ import annotations

import re

from schedmate.agent.configs.scalars import parse_scalar
from schedmate.agent.configs.trees import wrap
from schedmate.agent.interp.machine import Machine
from schedmate.agent.values import Origin, Value


def parse_flags(argv: list[Value]) -> tuple[list[tuple[str, list[Value], Value]], list[Value]]:
    """Split `argv` into (name, values, flag token) triples and what stands before any flag."""
    found: list[tuple[str, list[Value], Value]] = []
    loose: list[Value] = []
    complete = False
    for token in argv:
        text = token.text or ""
        if text.startswith("--") and len(text) > 2:
            name, equals, value = text[2:].partition("=")
            found.append((name, [Value(value, token.origin)] if equals else [], token))
            complete = bool(equals)
        elif re.match(r"^-[A-Za-z]$", text):
            found.append((text[1:], [], token))
            complete = False
        elif found and not complete:
            found[-1][1].append(token)
        else:
            loose.append(token)
    return found, loose


def flag_origin(token: Value, flag: str | None = None) -> Origin | None:
    """The origin of what `token` gives, which says that it was given by this flag."""
    origin = token.origin
    text = token.text.split("=", 1)[0] if flag is None and token.text is not None else flag
    if origin is None or text is None:
        return origin
    return Origin(origin.source, origin.file, origin.line, text)


def plain_scalar(token: Value) -> Value:
    """The number, boolean or text that a token spells."""
    if token.text is None:
        return token
    value = spelled(token, token.origin)
    return value if value.mapping is None and value.elements is None else token


def spelled(given: Value, origin: Origin | None) -> Value:
    """What a text spells, `3`, `true` or `[1, 2]`, with an origin; other data as it is."""
    if given.text is None:
        return Value(given.data, origin)
    return wrap(parse_scalar(given.text), origin)


def command_option(machine: Machine, name: str) -> Value | None:
    """What the command gives an option, `--name value` or `--na-me=value`, of an unseen parser."""
    for token, after in zip(machine.argv, [*machine.argv[1:], Value(None)], strict=True):
        if token.text is None:
            continue
        flag, equals, text = token.text.partition("=")
        if flag.startswith("--") and flag[2:].replace("-", "_") == name:
            if equals:
                return plain_scalar(Value(text, flag_origin(token)))
            given = after.text is not None and not after.text.startswith("--")
            return plain_scalar(Value(after.data, flag_origin(after, flag))) if given else None
    return None
