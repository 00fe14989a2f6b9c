"""The command line of a Hydra program: its own flags and the override grammar."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal as Choice

from schedmate.agent.configs.interpolation import grammar_scalar
from schedmate.agent.configs.scalars import Literal, LiteralError, LiteralReader
from schedmate.agent.values import Origin, Unknown, Value

Kind = Choice["change", "add", "force", "delete"]

_VALUE_FLAGS = {
    "--config-name": "config_name",
    "-cn": "config_name",
    "--config-path": "config_path",
    "-cp": "config_path",
    "--config-dir": "config_dir",
    "-cd": "config_dir",
    "--package": "",
    "-p": "",
    "--cfg": "",
    "-c": "",
    "--info": "",
    "-i": "",
    "--experimental-rerun": "",
}
_SWITCHES = {
    "--multirun",
    "-m",
    "--run",
    "-r",
    "--resolve",
    "--help",
    "-h",
    "--hydra-help",
    "--version",
    "--shell-completion",
    "-sc",
}
_OVERRIDE = re.compile(
    r"(?P<sign>\+\+|\+|~|)(?P<key>[\w$./-]*)(?:@(?P<package>[\w$.:-]*))?(?:=(?P<value>.*))?",
    re.DOTALL,
)
_FUNCTION = re.compile(r"([A-Za-z_][\w-]*)\s*\((.*)\)", re.DOTALL)
_SWEEPS = ("choice", "range")
_FUNCTIONS = (
    "interval", "shuffle", "sort", "tag", "glob", "int", "float", "str", "bool", "json_str"
)  # fmt: skip
"""Functions of the grammar whose value is left unknown."""


@dataclass(frozen=True, slots=True)
class Override:
    """One override: `+group@package=option`, `a.b=c`, `~key`, ..."""

    kind: Kind
    key: str
    package: str | None
    value: Literal
    has_value: bool
    text: str
    origin: Origin | None

    @property
    def group_key(self) -> str:
        """`group` or `group@package`, as defaults lists are overridden by."""
        return f"{self.key}@{self.package}" if self.package is not None else self.key


@dataclass(slots=True)
class CommandLine:
    """What the tokens after the program say."""

    overrides: list[Override] = field(default_factory=list)
    config_name: str | None = None
    config_path: str | None = None
    config_dir: str | None = None
    warnings: list[str] = field(default_factory=list)


def parse_command_line(tokens: Sequence[Value]) -> CommandLine:
    """Hydra's flags and overrides among `tokens`; what is neither is warned of and skipped."""
    line = CommandLine()
    remaining: Iterator[Value] = iter(tokens)
    for token in remaining:
        text = token.data
        if not isinstance(text, str):
            line.warnings.append("an override is not known and was left out")
            continue
        name, equals, attached = text.partition("=")
        if name in _VALUE_FLAGS:
            following = None if equals else next(remaining, None)
            value = attached if equals else (following.data if following else None)
            if _VALUE_FLAGS[name] and isinstance(value, str):
                setattr(line, _VALUE_FLAGS[name], value)
        elif text in _SWITCHES:
            continue
        elif text.startswith("-"):
            line.warnings.append(f"'{text}' is not a flag of Hydra; it was left out")
        else:
            _override(text, token.origin, line)
    return line


def _override(text: str, origin: Origin | None, line: CommandLine) -> None:
    match = _OVERRIDE.fullmatch(text)
    if match is None or not match["key"] or (match["value"] is None and match["sign"] != "~"):
        line.warnings.append(f"'{text}' is not an override (key=value); it was left out")
        return
    kinds: dict[str, Kind] = {"": "change", "+": "add", "++": "force", "~": "delete"}
    package = match["package"]
    if package is not None and ":" in package:  # the old renaming form group@from:to
        package = package.rpartition(":")[2]
    raw = match["value"]
    value, swept = _value(raw.strip()) if raw else ("" if raw is not None else None, False)
    if swept:
        line.warnings.append(f"'{text}' sweeps over several values; the first is used")
    kind = kinds[match["sign"]]
    line.overrides.append(
        Override(kind, match["key"], package, value, raw is not None, text, origin)
    )


def _value(text: str) -> tuple[Literal, bool]:
    """The value of an override's right side, and whether it is the first of a sweep."""
    call = _FUNCTION.fullmatch(text)
    if call and call[1] in _FUNCTIONS:
        return Unknown(text), False
    try:
        elements = _elements(call[2] if call and call[1] in _SWEEPS else text)
    except (LiteralError, ValueError, OverflowError):
        return text, False
    if call and call[1] == "range" and len(elements) == 1:
        return 0, True
    return elements[0], len(elements) > 1


def _elements(text: str) -> list[Literal]:
    """Comma-separated elements; parentheses are text here, as there are no tuples in Hydra."""
    reader = LiteralReader(text, grammar_scalar, tuples=False)
    elements = [reader.value(",")]
    while reader.peek() == ",":
        reader.at += 1
        elements.append(reader.value(","))
    if reader.at < len(text):
        raise LiteralError(f"unexpected text at column {reader.at + 1}")
    return elements
