"""Plain `--name value` flags of a program whose own parser could not be followed."""

from __future__ import annotations

from schedmate.agent.configs import parse_scalar
from schedmate.agent.configs.trees import wrap
from schedmate.agent.interp.libs.records import parse_flags
from schedmate.agent.values import Origin, Value


def from_argv(argv: list[Value]) -> Value:
    """The flags as a mapping; `key=value` tokens count as flags too."""
    found: dict[object, Value] = {}
    flags, loose = parse_flags(argv)
    for name, values, flag in flags:
        origin = flag.origin
        if origin is not None:
            text = str(flag.data).split("=", 1)[0]
            origin = Origin(origin.source, origin.file, origin.line, text)
        if values and isinstance(values[0].data, str):
            found[name.replace("-", "_")] = wrap(parse_scalar(values[0].data), origin)
            loose.extend(values[1:])
        else:
            found[name.replace("-", "_")] = Value(True, origin)
    for token in loose:
        if isinstance(token.data, str) and "=" in token.data:
            key, _, text = token.data.partition("=")
            *parents, last = key.lstrip("+~").split(".")
            place = found
            for parent in parents:
                inner = place.setdefault(parent, Value({}))
                if not isinstance(inner.data, dict):
                    break
                place = inner.data
            else:
                place[last] = wrap(parse_scalar(text), token.origin)
    return Value(found)
