"""Plain scalars and literals: what unquoted text in a YAML file or an override means.

The rules are PyYAML's (YAML 1.1) with OmegaConf's two corrections: `1e-4` is a float, and dates
stay text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

import yaml
from yaml.constructor import SafeConstructor
from yaml.nodes import ScalarNode
from yaml.resolver import Resolver

from schedmate.agent.values import Unknown

Scalar: TypeAlias = bool | int | float | str | None
LiteralData: TypeAlias = (
    Scalar | Unknown | list["LiteralData"] | tuple["LiteralData", ...] | dict[Scalar, "LiteralData"]
)

CORE = "tag:yaml.org,2002:"
_FLOAT = re.compile(
    r"""^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+
    |[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)
_MAX_DIGITS = 100  # longer "numbers" stay text: no scalar of a configuration needs them
_MAX_NESTING = 50


# YAML's implicit tags without dates and with OmegaConf's floats, by first character.
_IMPLICIT = {
    first: [rule for rule in rules if rule[0] not in (CORE + "timestamp", CORE + "float")]
    for first, rules in Resolver.yaml_implicit_resolvers.items()
}
for _first in "-+0123456789.":
    _IMPLICIT.setdefault(_first, []).insert(0, (CORE + "float", _FLOAT))

_CONSTRUCT = SafeConstructor()
_CONSTRUCTORS: dict[str, Callable[[ScalarNode], Scalar]] = {
    CORE + "int": _CONSTRUCT.construct_yaml_int,
    CORE + "float": _CONSTRUCT.construct_yaml_float,
    CORE + "bool": _CONSTRUCT.construct_yaml_bool,
    CORE + "null": _CONSTRUCT.construct_yaml_null,
    CORE + "str": lambda node: str(node.value),
}


def implicit_tag(text: str) -> str:
    """The YAML tag a plain (unquoted) scalar gets."""
    for tag, regexp in _IMPLICIT.get(text[:1], ()):
        if regexp.match(text):
            return str(tag)
    return CORE + "str"


def construct(tag: str, text: str) -> Scalar:
    """The value of a scalar under one of YAML's core tags.

    Raises KeyError for another tag and ValueError for text that does not fit the tag.
    """
    build = _CONSTRUCTORS[tag]
    if len(text) > _MAX_DIGITS and tag != CORE + "str":
        raise ValueError(f"not a plain value: {text[:20]}...")
    try:
        return build(ScalarNode(tag, text))
    except (yaml.YAMLError, ValueError, IndexError, KeyError) as error:
        raise ValueError(f"not a {tag.removeprefix(CORE)}: {text}") from error


def plain_scalar(text: str) -> Scalar:
    """What a plain YAML scalar means; text that is nothing else is itself."""
    try:
        return construct(implicit_tag(text), text)
    except (KeyError, ValueError):
        return text


class LiteralError(ValueError):
    """Text that is not one complete literal."""


class LiteralReader:
    """Reads quoted strings, lists, tuples, mappings and plain text out of one line of text.

    `plain` gives unquoted text its meaning; `${...}` and backslash escapes belong to that text.
    Without `tuples` a parenthesis is text.
    """

    def __init__(
        self, text: str, plain: Callable[[str], LiteralData], *, tuples: bool = True
    ) -> None:
        self.text = text
        self.at = 0
        self._plain = plain
        self._open = "[(" if tuples else "["
        self._nesting = 0

    def peek(self) -> str:
        """The next character after white space, or nothing at the end."""
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return self.text[self.at : self.at + 1]

    def value(self, stop: str) -> LiteralData:
        """One value; unquoted text ends before any character of `stop`."""
        first = self.peek()
        if first and first in self._open:
            return self._sequence("]" if first == "[" else ")")
        if first == "{":
            return self._mapping()
        if first in ("'", '"'):
            start = self.at
            quoted = self._quoted()
            while self.peek() in ("'", '"') and self.peek():
                quoted += self._quoted()
            if not self.peek() or self.peek() in stop:
                return quoted
            self.at = start
        return self._unquoted(stop)

    def _enter(self) -> None:
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            raise LiteralError("nested too deeply")
        self.at += 1

    def _leave(self) -> None:
        self._nesting -= 1
        self.at += 1

    def _separator(self, close: str) -> None:
        if self.peek() == ",":
            self.at += 1
        elif self.peek() != close:
            raise LiteralError(f"expected ',' or '{close}' at column {self.at + 1}")

    def _sequence(self, close: str) -> LiteralData:
        self._enter()
        items: list[LiteralData] = []
        comma = False
        while self.peek() != close:
            items.append(self.value("," + close))
            comma = self.peek() == ","
            self._separator(close)
        self._leave()
        if close == "]":
            return items
        return items[0] if len(items) == 1 and not comma else tuple(items)

    def _mapping(self) -> dict[Scalar, LiteralData]:
        self._enter()
        items: dict[Scalar, LiteralData] = {}
        while self.peek() != "}":
            key = self.value(":,}")
            if self.peek() != ":" or not isinstance(key, bool | int | float | str | None):
                raise LiteralError(f"expected 'key: value' at column {self.at + 1}")
            self.at += 1
            items[key] = self.value(",}")
            self._separator("}")
        self._leave()
        return items

    def _quoted(self) -> str:
        quote = self.text[self.at]
        self.at += 1
        parts: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 1
            if char == quote:
                return "".join(parts)
            if char == "\\" and self.text[self.at : self.at + 1] in (quote, "\\"):
                char = self.text[self.at : self.at + 1]
                self.at += 1
            parts.append(char)
        raise LiteralError("quote without an end")

    def _unquoted(self, stop: str) -> LiteralData:
        parts: list[str] = []
        escaped = False
        while self.at < len(self.text) and self.text[self.at] not in stop:
            if self.text.startswith("${", self.at):
                end = closing_brace(self.text, self.at + 2)
                if end < 0:
                    raise LiteralError("interpolation without an end")
                parts.append(self.text[self.at : end + 1])
                self.at = end + 1
                continue
            if self.text[self.at] == "\\" and self.text[self.at + 1 : self.at + 2] in _ESCAPABLE:
                self.at += 1
                escaped = True
            parts.append(self.text[self.at : self.at + 1])
            self.at += 1
        text = "".join(parts).strip()
        if not text and stop and not escaped:
            raise LiteralError(f"nothing where a value should be, at column {self.at + 1}")
        return text if escaped else self._plain(text)


_ESCAPABLE = tuple("\\()[]{}:=, \t")


def closing_brace(text: str, start: int) -> int:
    """Index of the `}` that ends the interpolation whose inside begins at `start`, or -1."""
    depth = 1
    at = start
    quote = ""
    while at < len(text):
        char = text[at]
        if quote:
            if char == "\\":
                at += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if not depth:
                return at
        at += 1
    return -1


def read_literal(text: str, plain: Callable[[str], LiteralData], stop: str = "") -> LiteralData:
    """All of `text` as one literal. Raises LiteralError when it is not one."""
    reader = LiteralReader(text, plain)
    result = reader.value(stop)
    if reader.peek():
        raise LiteralError(f"unexpected '{reader.peek()}' at column {reader.at + 1}")
    return result


def _read_general_literal(text: str) -> LiteralData:
    return None if text == "None" else plain_scalar(text)


def parse_scalar(text: str) -> LiteralData:
    """The value that override text such as `3`, `1e-4`, `true`, `[1, 2]` or `{a: 1}` means.

    Python's `None`, quotes and tuples count too. Text that is nothing else is returned as it is.
    """
    stripped = text.strip()
    if stripped[:1] in ("[", "(", "{", "'", '"'):
        try:
            return read_literal(
                stripped, _read_general_literal, " " if stripped[:1] in "'\"" else ""
            )
        except LiteralError:
            return stripped
    return _read_general_literal(stripped) if stripped else ""
