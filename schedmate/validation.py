"""The errors in a document that a person wrote, in plain words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from schedmate.errors import did_you_mean
from schedmate.terminal import clean

if TYPE_CHECKING:
    from pydantic import ValidationError

KINDS = {
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "dict": "an object with keys and values",
    "model": "an object with keys and values",
    "model_attributes": "an object with keys and values",
    "date": "a date",
    "datetime": "a time",
    "path": "a path",
}
"""What was expected, by the first words of the type of an error."""
LIMITS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
_LONGEST = 80


def first_fault(error: ValidationError, known: Iterable[str] = (), *, place: str = "") -> str:
    """The first error: its place, and what is expected there instead; no full stop.

    `known` are keys that a misspelt one may mean; `place` is the name of the whole document, if the
    error has no place in it.
    """
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    others = error.error_count() - 1
    more = f" ({others} more)" if others else ""
    if first["type"] == "extra_forbidden":
        meant = did_you_mean(str(first["loc"][-1]), known)
        return f"there is no key {clean(where, 100)}{more}{meant}"
    where = clean(where or place, 100)
    colon = "" if first["type"] in ("missing", "json_invalid") else ":"
    return f"{where}{colon} {expected(first)}{more}".strip()


def sentence(error: ValidationError, known: Iterable[str] = (), *, place: str = "") -> str:
    """The same, as the end of a sentence."""
    fault = first_fault(error, known, place=place)
    return fault if fault.endswith("?") else f"{fault}."


def expected(fault: Any) -> str:
    """The meaning of one of the `errors()` of a ValidationError, without its place."""
    kind, context = fault["type"], fault.get("ctx") or {}
    given = clean(repr(fault.get("input")), _LONGEST)
    if kind == "missing":
        return "is missing"
    if kind == "json_invalid":
        return f"is no JSON: {context.get('error', 'it cannot be read')}"
    if kind in LIMITS:
        key, words = LIMITS[kind]
        return f"{given} is given; it has to be {words} {context[key]}"
    if kind in ("literal_error", "enum"):
        return f"{given} is given; it has to be {context['expected']}"
    if kind == "finite_number":
        return f"{given} is given; it has to be a finite number"
    base = kind.removesuffix("_type").removesuffix("_parsing").removesuffix("_from_float")
    if base in KINDS:
        return f"{given} is given; it has to be {KINDS[base]}"
    message: str = fault["msg"]
    if kind == "value_error":
        return clean(message.removeprefix("Value error, "), 400)
    return clean(message[:1].lower() + message[1:].replace("nput should", "t has to"), 400)
