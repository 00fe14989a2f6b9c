"""TOML, INI and `key = value` files to `Value` trees with line numbers."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from schedmate.agent.configs.confection import is_confection, nested
from schedmate.agent.configs.files import Source
from schedmate.agent.configs.scalars import parse_scalar
from schedmate.agent.configs.trees import MAX_DEPTH, MAX_NODES, ensure_bounded, wrap
from schedmate.agent.values import Origin, Value

_TOML_TOKEN = re.compile(
    r'"""(?:\\.|[^\\"]|"(?!""))*+(?:"""|\Z)|\'\'\'(?:[^\']|\'(?!\'\'))*+(?:\'\'\'|\Z)'
    r'|"(?:\\.|[^"\\\n])*+(?:"|$|\Z)|\'[^\'\n]*+(?:\'|$)|\#[^\n]*+|[\[\]{}]|\n',
    re.DOTALL | re.MULTILINE,
)
MAX_STATEMENTS = 50_000
"""Most assignments, and most tables, of a TOML text."""
_TOML_LINE = re.compile(r"at line (\d+)")
_SECTION = re.compile(r"\[([^\]]*+)\]\s*+(?:[#;].*)?")
_PAIR = re.compile(r"([^=:]*+)[=:](.*)")
_FLAG_PAIR = re.compile(r"-{1,2}([A-Za-z][\w.-]*+)(?:\s*+=\s*+|\s++|$)(.*)")
_WORDS = re.compile(r"([A-Za-z][\w.-]*+)(?:\s++(.*))?")
_TRAILING_COMMENT = re.compile(r"\s[#;].*+$")


def read_toml(source: Source) -> Value:
    """The tables of a TOML text; a leaf's line is that of the statement that gives it.

    Dates and times become text. Raises ConfigError with the line for broken syntax.
    """
    try:
        tables = parse_toml(source.text)
    except tomllib.TOMLDecodeError as error:
        match = _TOML_LINE.search(str(error))
        line = int(match[1]) if match else None
        raise source.error(f"is not valid TOML ({error})", line) from error
    except ValueError as error:
        raise source.error(str(error)) from error
    lines = _toml_lines(source.text)
    budget = [MAX_NODES]

    def build(data: Any, path: tuple[object, ...], line: int) -> Value:
        line = lines.get(path, line)
        origin = source.origin(line)
        budget[0] -= 1
        if budget[0] < 0:
            message = f"holds more than {MAX_NODES:,} values, too many for a configuration"
            raise source.error(message, line)
        if len(path) > MAX_DEPTH:
            raise source.error(f"nests deeper than {MAX_DEPTH} levels; flatten it", line)
        if isinstance(data, dict):
            return Value({k: build(v, (*path, k), line) for k, v in data.items()}, origin)
        if isinstance(data, list):
            return Value([build(v, (*path, i), line) for i, v in enumerate(data)], origin)
        return Value(data if isinstance(data, bool | int | float | str) else str(data), origin)

    return build(tables, (), 1)


def parse_toml(text: str) -> dict[str, Any]:
    """What a TOML text says.

    Raises ValueError for what is not valid, and for what would take tomllib long.
    """
    unquoted = _TOML_TOKEN.sub(lambda token: token[0] if token[0] == "\n" else " ", text)
    if any(part.count(".") > MAX_DEPTH for part in re.split(r"[=,\n]", unquoted)):
        raise ValueError(f"has a key of more than {MAX_DEPTH} parts; shorten it")
    if unquoted.count("=") > MAX_STATEMENTS or unquoted.count("\n[") > MAX_STATEMENTS:
        raise ValueError(f"has more than {MAX_STATEMENTS:,} lines that say something; shorten it")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("is not usable TOML (nested too deeply)") from error
    except ValueError as error:
        if isinstance(error, tomllib.TOMLDecodeError):
            raise
        raise ValueError("is not usable TOML (a number too long)") from error


def _toml_lines(text: str) -> dict[tuple[object, ...], int]:
    """The line of each statement of a valid TOML text, by the path it gives a value to."""
    lines: dict[tuple[object, ...], int] = {}
    tables: dict[tuple[object, ...], int] = {}
    header: tuple[object, ...] = ()
    for line, statement in _toml_statements(text):
        if not statement.startswith("["):
            path = (*header, *_only_path(tomllib.loads(statement)))
            lines.setdefault(path, line)
            continue
        names = _only_path(tomllib.loads(statement))
        array = statement.startswith("[[")
        header = ()
        for index, name in enumerate(names):
            header = (*header, name)
            if index == len(names) - 1 and array:
                tables[header] = tables.get(header, -1) + 1
            if header in tables:
                header = (*header, tables[header])
        lines.setdefault(header, line)
    return lines


def _toml_statements(text: str) -> list[tuple[int, str]]:
    statements: list[tuple[int, str]] = []
    start, start_line, line, depth = 0, 1, 1, 0
    for match in _TOML_TOKEN.finditer(text + "\n"):
        mark = match[0]
        if mark in ("[", "{"):
            depth += 1
        elif mark in ("]", "}"):
            depth -= 1
        elif mark == "\n" and depth == 0:
            statement = text[start : match.start()]
            stripped = statement.strip()
            if stripped and not stripped.startswith("#"):
                statements.append((start_line, stripped))
            start, start_line = match.end(), line + 1
        line += mark.count("\n")
    return statements


def _only_path(data: Any) -> tuple[str, ...]:
    """The keys of a table made by a single statement, down to its value."""
    path: list[str] = []
    while isinstance(data, dict) and len(data) == 1:
        key, data = next(iter(data.items()))
        path.append(key)
        if isinstance(data, list) and data == [{}]:
            break
    return tuple(path)


def read_ini(source: Source) -> Value:
    """The sections of an INI text as configparser reads it, without interpolation.

    Option names are lower case, `[DEFAULT]` holds for every section, an indented line continues
    the value above. Values are read as literals; the origin keeps their text. A text without a
    section is a flat mapping. Sections of spaCy's configurations nest.
    """
    sections = _Sections(source, ini=True).read()
    return nested(sections) if is_confection(sections) else sections


def read_pairs(source: Source) -> Value:
    """A file of `key = value`, `key: value`, `key value`, `--key value` or bare `flag` lines.

    Values are read as literals; the origin keeps their text. `[section]` lines nest what follows.
    """
    return _Sections(source, ini=False).read()


class _Sections:
    def __init__(self, source: Source, ini: bool) -> None:
        self.source = source
        self.ini = ini
        self.top: dict[Any, Value] = {}
        self.into = self.top
        self.pending: tuple[str, list[str], int] | None = None
        self.indent = 0

    def read(self) -> Value:
        for number, raw in enumerate(self.source.text.split("\n"), start=1):
            self._line(raw, number)
        self._store()
        defaults = self.top.get("DEFAULT") if self.ini else None
        if defaults is not None and isinstance(defaults.data, dict):
            sections = [one for one in self.top.values() if isinstance(one.data, dict)]
            if len(defaults.data) * len(sections) > MAX_NODES:
                message = f"expands to more than {MAX_NODES:,} values, too many for a configuration"
                raise self.source.error(message)
            for section in self.top.values():
                if isinstance(section.data, dict):
                    section.data = {**defaults.data, **section.data}
        origin = self.source.origin(1)
        return ensure_bounded(Value(self.top, origin), f"{self.source.name}: the file")

    def _line(self, raw: str, number: int) -> None:
        text = raw.strip()
        indent = len(raw) - len(raw.lstrip())
        if not text or text[0] in "#;!":
            return
        if self.ini and self.pending is not None and indent > self.indent:
            self.pending[1].append(_without_comment(text))
            return
        self._store()
        section = _SECTION.fullmatch(text)
        if section and (name := section[1].strip()):
            existing = self.top.get(name)
            self.into = {}
            if existing is not None and existing.mapping is not None:
                self.into = existing.mapping
            else:
                self.top[name] = Value(self.into, self.source.origin(number))
            return
        self.indent = indent
        pair = (_FLAG_PAIR.fullmatch(text) if not self.ini else None) or _PAIR.fullmatch(text)
        bare = _WORDS.fullmatch(_without_comment(text)) if pair is None else None
        if pair is not None and pair[1].strip():
            key = pair[1].strip()
            value = _without_comment(pair[2].strip())
            if not value and text.startswith("-"):
                value = "true"
            self.pending = (key.lower() if self.ini else key, [value], number)
        elif bare is not None and (not self.ini or bare[2] is None):
            key, value = bare[1], bare[2] or ("" if self.ini else "true")
            self.pending = (key.lower() if self.ini else key, [value], number)
        else:
            raise self.source.error(f"is not 'key = value': {text[:60]}", number)

    def _store(self) -> None:
        if self.pending is None:
            return
        key, parts, number = self.pending
        self.pending = None
        text = "\n".join(parts).strip()
        origin: Origin = self.source.origin(number, text)
        self.into[key] = wrap(parse_scalar(text), origin)


def _without_comment(text: str) -> str:
    """`text` without a comment that white space sets off, unless a quote stands before it."""
    if text[:1] in ("'", '"'):
        return text.strip()
    if text[:1] in ("#", ";"):
        return ""
    return _TRAILING_COMMENT.sub("", text).strip()
