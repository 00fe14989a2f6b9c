"""Reads every format of plain configuration file behind one door, `read_config`.

The readers below give trees of `Value`s with line numbers: JSON (comments and trailing commas are
allowed), HOCON as pyhocon reads it (includes are not followed: what they name may lie anywhere),
TOML, INI, `key = value` files, and spaCy's configurations (confection), INI whose sections nest by
their dotted names, with `${paths.train}` and the older `${paths:train}` for other values; text of
protocol buffers, and Python files that assign plain values. YAML and Jsonnet have modules of their
own.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from schedmate.agent.configs.interpolation import grammar_scalar, resolve_interpolations
from schedmate.agent.configs.jsonnet import is_jsonnet, read_jsonnet
from schedmate.agent.configs.scalars import parse_scalar
from schedmate.agent.configs.trees import (
    MAX_DEPTH,
    MAX_NODES,
    ConfigError,
    Source,
    ensure_bounded,
    load_source,
    merge,
    set_dotted,
)
from schedmate.agent.configs.yaml_reader import REF_TAG, read_yaml, resolve_refs
from schedmate.agent.syntax import parse_or_none
from schedmate.agent.values import Items, Origin, Value, lifted


class TokenReader:
    """Stands at one token of `source`: its `kind` (a group of `pattern`), `lexeme` and `line`.

    Tokens of the kind `space` are passed over; at the end of the text the kind is empty.
    """

    def __init__(self, source: Source, pattern: re.Pattern[str], language: str) -> None:
        self.source = source
        self.line = 1
        self.kind = ""
        self.lexeme = ""
        self._pattern = pattern
        self._language = language
        self._at = 0
        self._next_line = 1
        self._nodes = 0
        self.advance()

    def advance(self) -> None:
        """Move to the next token."""
        while match := self._pattern.match(self.source.text, self._at):
            self._at = match.end()
            self.line = self._next_line
            self._next_line += match[0].count("\n")
            if match.lastgroup != "space":
                self.kind, self.lexeme = str(match.lastgroup), match[0]
                return
        self.line = self._next_line
        if self._at < len(self.source.text):
            raise self.wrong(f"unexpected {self.source.text[self._at]!r}")
        self.kind, self.lexeme = "", "the end of the file"

    def wrong(self, reason: str) -> ConfigError:
        """The error that the text breaks the rules of its language here."""
        return self.source.error(f"is not valid {self._language} ({reason})", self.line)

    def count(self, depth: int) -> None:
        """Count a value; raises ConfigError for too many, and for one that lies too deep."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            message = f"holds more than {MAX_NODES:,} values, too many for a configuration"
            raise self.source.error(message, self.line)
        if depth > MAX_DEPTH:
            raise self.source.error(f"nests deeper than {MAX_DEPTH} levels; flatten it", self.line)


# JSON text to a `Value` tree with line numbers; comments and trailing commas are allowed.


_JSON_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/)
    |(?P<string>"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*')
    |(?P<mark>[\[\]{},:])
    |(?P<word>[^\s\[\]{},:"'\#/]+)""",
    re.VERBOSE | re.DOTALL,
)
_JSON_WORDS: dict[str, bool | float | None] = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
_JSON_KEY = re.compile(r"[A-Za-z_$][\w$-]*")


class _JsonReader(TokenReader):
    def value(self, depth: int) -> Value:
        self.count(depth)
        result = Value(None, self.source.origin(self.line))
        if self.lexeme == "{":
            result.data = self._object(depth)
        elif self.lexeme == "[":
            result.data = self._array(depth)
        elif self.kind == "string":
            result.data = self._string()
        elif self.kind == "word":
            result.data = self._word()
        else:
            raise self.wrong(f"found {self.lexeme} where a value should be")
        self.advance()
        return result

    def _array(self, depth: int) -> list[Value]:
        items: list[Value] = []
        self.advance()
        while self.lexeme != "]":
            items.append(self.value(depth + 1))
            self._comma("]")
        return items

    def _object(self, depth: int) -> dict[str, Value]:
        items: dict[str, Value] = {}
        self.advance()
        while self.lexeme != "}":
            if self.kind == "string":
                key = self._string()
            elif self.kind == "word" and _JSON_KEY.fullmatch(self.lexeme):
                key = self.lexeme
            else:
                raise self.wrong(f"found {self.lexeme} where a key should be")
            self.advance()
            if self.lexeme != ":":
                raise self.wrong(f"found {self.lexeme} where ':' should be")
            self.advance()
            items[key] = self.value(depth + 1)
            self._comma("}")
        return items

    def _comma(self, close: str) -> None:
        if self.lexeme == ",":
            self.advance()
        elif self.lexeme != close:
            raise self.wrong(f"found {self.lexeme} where ',' or '{close}' should be")

    def _string(self) -> str:
        inner = self.lexeme[1:-1]
        if self.lexeme[0] == "'":
            inner = inner.replace("\\'", "'").replace('"', '\\"')
        if "\\" not in inner:
            return inner
        try:
            return str(json.loads(f'"{inner}"', strict=False))
        except ValueError as error:
            raise self.wrong(f"bad escape in {self.lexeme[:40]}") from error

    def _word(self) -> bool | int | float | str | None:
        if self.lexeme in _JSON_WORDS:
            return _JSON_WORDS[self.lexeme]
        try:
            return int(self.lexeme)
        except ValueError:
            pass
        try:
            return float(self.lexeme)
        except ValueError as error:
            raise self.wrong(f"unexpected {self.lexeme[:40]}") from error


def read_json(source: Source) -> Value:
    """The value of a JSON text. Raises ConfigError with the line for broken syntax."""
    reader = _JsonReader(source, _JSON_TOKEN, "JSON")
    if not reader.kind:
        return Value(None, source.origin(1))
    result = reader.value(0)
    if reader.kind:
        raise reader.wrong(f"unexpected {reader.lexeme[:40]}")
    return result


# HOCON, JSON with less to type, as pyhocon reads it, to a `Value` tree with line numbers.
#
# Includes are not followed: what they name may lie anywhere, on another machine even.


_HOCON_TOKEN = re.compile(
    r"""(?P<space>[^\S\n]+|(?:\#|//)[^\n]*)
    |(?P<line>\n)
    |(?P<string>\"{3}.*?\"{3}|"[^"\\\n]*(?:\\.[^"\\\n]*)*")
    |(?P<reference>\$\{\??[^{}\n]+\})
    |(?P<mark>\+=|[\[\]{},:=])
    |(?P<word>[^\s\[\]{},:="\#+]+|\+)""",
    re.VERBOSE | re.DOTALL,
)
_NAMED_OBJECT = re.compile(
    r"^[ \t]*+[\w.\"-]++[ \t]*+(?:[=:][ \t]*+)?(\$\{[\w.]++\}[ \t]*+)?\{[ \t]*+$", re.MULTILINE
)


def looks_like_hocon(text: str) -> bool:
    """Whether a text has a named object, `train {` or `train = {`, at the end of a line."""
    return _NAMED_OBJECT.search(text) is not None


class _HoconReader(TokenReader):
    def _between(self) -> None:
        while self.kind == "line" or self.lexeme == ",":
            self.advance()

    def body(self, depth: int) -> Value:
        """The fields up to the closing brace or the end of the text; a later one is laid upon."""
        fields: Items = {}
        origin = self.source.origin(self.line)
        self._between()
        while self.kind and self.lexeme != "}":
            if self.kind not in ("word", "string"):
                raise self.wrong(f"found {self.lexeme} where a key should be")
            key = self.lexeme.strip('"')
            self.advance()
            if self.lexeme in ("=", ":", "+="):
                self.advance()
                while self.kind == "line":
                    self.advance()
            value = self.value(depth + 1)
            path = key.split(".")
            if len(path) > 1:
                self.count(depth + len(path))
            for part in reversed(path[1:]):
                value = Value({part: value}, value.origin)
            if key != "include":
                _lay_upon(fields, {path[0]: value})
            self._between()
        return Value(fields, origin)

    def value(self, depth: int) -> Value:
        """What stands up to the end of the line: parts side by side are one value."""
        self.count(depth)
        origin = self.source.origin(self.line)
        parts: list[Value] = []
        words: list[str] = []
        while self.kind not in ("", "line") and self.lexeme not in (",", "}", "]"):
            if self.lexeme == "{":
                self.advance()
                parts.append(self.body(depth))
                self._close("}")
            elif self.lexeme == "[":
                self.advance()
                parts.append(Value(self._items(depth), origin))
                self._close("]")
            else:
                text = self.lexeme
                words.append(text.strip('"').replace("${?", "${"))
                quoted = self.kind == "string"
                parts.append(Value(words[-1] if quoted else grammar_scalar(words[-1]), origin))
                self.advance()
        if len(parts) == 1:
            return parts[0]
        if len(words) == len(parts):
            return Value(" ".join(words), origin)
        whole = parts[0]  # `${base} {...}`: an object laid upon another
        for part in parts[1:]:
            if isinstance(whole.data, str) and isinstance(part.data, dict):
                whole = Value({_BASE_KEY: whole, **part.data}, part.origin)
            else:
                whole = merge(whole, part)
        return whole

    def _items(self, depth: int) -> list[Value]:
        items: list[Value] = []
        self._between()
        while self.kind and self.lexeme != "]":
            items.append(self.value(depth + 1))
            self._between()
        return items

    def _close(self, mark: str) -> None:
        if self.lexeme != mark:
            raise self.wrong(f"found {self.lexeme} where '{mark}' should be")
        self.advance()


_BASE_KEY = "\0base"
"""Key of the object that an object is laid upon."""


def _lay_upon(fields: Items, later: Items) -> None:
    """Merge later fields of a HOCON object over earlier ones of the same name."""
    for key, item in later.items():
        before = fields[key].mapping if key in fields else None
        if before is not None and item.mapping is not None:
            _lay_upon(before, item.mapping)
        else:
            fields[key] = item


def read_hocon(source: Source) -> Value:
    """The object of a HOCON text, references between its values resolved.

    Raises ConfigError with the line for broken syntax.
    """
    reader = _HoconReader(source, _HOCON_TOKEN, "HOCON")
    while reader.kind == "line":
        reader.advance()
    braces = reader.lexeme == "{"
    if braces:
        reader.advance()
    tree = reader.body(0)
    if reader.kind and not braces:
        raise reader.wrong("a brace too many")
    return _with_bases(resolve_interpolations(tree))


def _with_bases(value: Value, depth: int = 0) -> Value:
    """Objects with those that they were laid upon."""
    if not isinstance(value.data, dict) or depth > MAX_DEPTH:
        return value
    items = {key: _with_bases(item, depth + 1) for key, item in value.data.items()}
    base = items.pop(_BASE_KEY, None)
    own = Value(items, value.origin)
    return merge(base, own) if base is not None and isinstance(base.data, dict) else own


# TOML, INI and `key = value` files to `Value` trees with line numbers.


_TOML_TOKEN = re.compile(
    r'"""(?:\\.|[^\\"]|"(?!""))*+(?:"""|\Z)|\'\'\'(?:[^\']|\'(?!\'\'))*+(?:\'\'\'|\Z)'
    r'|"(?:\\.|[^"\\\n])*+(?:"|$|\Z)|\'[^\'\n]*+(?:\'|$)|\#[^\n]*+|[\[\]{}]|\n',
    re.DOTALL | re.MULTILINE,
)
MAX_STATEMENTS = 50_000
"""Most assignments, and most tables, of a TOML text."""
_TOML_LINE = re.compile(r"at line (\d+)")
_SECTION = re.compile(r"\[([^\]]*+)\]\s*+(?:[#;].*)?")
_KEY_AND_VALUE = re.compile(r"([^=:]*+)[=:](.*)")
_FLAG_PAIR = re.compile(r"-{1,2}([A-Za-z][\w.-]*+)(?:\s*+=\s*+|\s++|$)(.*)")
_BARE_WORDS = re.compile(r"([A-Za-z][\w.-]*+)(?:\s++(.*))?")
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


_TOML_HEADER = re.compile(r"\[(\[?)([^\[\]]++)\]\]?\s*+(?:#.*)?")
_TOML_KEY = re.compile(r"[\w.\"' -]++(?==)")
_TOML_PART = re.compile(r"\"([^\"]*+)\"|'([^']*+)'|([\w-]++)")


def _toml_lines(text: str) -> dict[tuple[object, ...], int]:
    """The lines on which a TOML text begins a table or gives a value, by the path of what it is."""
    lines: dict[tuple[object, ...], int] = {}
    tables: dict[tuple[object, ...], int] = {}
    header: tuple[object, ...] = ()
    text = _TOML_TOKEN.sub(_without_long_string, text)
    for number, line in enumerate(map(str.strip, text.split("\n")), 1):
        if key := _TOML_KEY.match(line):
            lines.setdefault((*header, *_toml_path(key[0])), number)
        elif opened := _TOML_HEADER.fullmatch(line):
            names, header = _toml_path(opened[2]), ()
            for index, name in enumerate(names, 1):
                header = (*header, name)
                if index == len(names) and opened[1]:  # the next table of an array
                    tables[header] = tables.get(header, -1) + 1
                if header in tables:
                    header = (*header, tables[header])
            lines.setdefault(header, number)
    return lines


def _without_long_string(token: re.Match[str]) -> str:
    """A token as it stands; of a string of several lines only the lines."""
    text = token[0]
    return "\n" * text.count("\n") if text.startswith(('"""', "'''")) else text


def _toml_path(dotted: str) -> list[str]:
    """The parts of a dotted key of TOML, some of them quoted."""
    return ["".join(parts) for parts in _TOML_PART.findall(dotted)]


def read_ini(source: Source) -> Value:
    """The sections of an INI text as configparser reads it, without interpolation.

    Option names are lower case, `[DEFAULT]` holds for every section, an indented line continues
    the value above. Values are read as literals; the origin keeps their text. A text without a
    section is a flat mapping. Sections of spaCy's configurations nest.
    """
    sections = _Sections(source, ini=True).read()
    return nest_sections(sections) if is_confection(sections) else sections


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
        pair = (_FLAG_PAIR.fullmatch(text) if not self.ini else None) or _KEY_AND_VALUE.fullmatch(
            text
        )
        bare = _BARE_WORDS.fullmatch(_without_comment(text)) if pair is None else None
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
        self.into[key] = lifted(parse_scalar(text), origin)


def _without_comment(text: str) -> str:
    """`text` without a comment that white space sets off, unless a quote stands before it."""
    if text[:1] in ("'", '"'):
        return text.strip()
    if text[:1] in ("#", ";"):
        return ""
    return _TRAILING_COMMENT.sub("", text).strip()


# spaCy's configurations (confection): INI whose sections nest by their dotted names.
#
# `${paths.train}` and the older `${paths:train}` name other values; `@architectures` and the like
# a function that is registered.


_OLDER_REFERENCE = re.compile(r"\$\{([\w.]+):(\w+)\}")


def is_confection(sections: Value) -> bool:
    """Whether every dotted section has the section around it, and one is a registered function."""
    named = sections.mapping or {}
    inner = [name for name in named if "." in name]
    return (
        bool(inner)
        and all(name.rpartition(".")[0] in named for name in inner)
        and any(str(key).startswith("@") for name in inner for key in named[name].mapping or {})
    )


def nest_sections(sections: Value) -> Value:
    """The sections one inside the other, with what they name of each other filled in."""
    config = Value({}, sections.origin)
    for name, section in (sections.mapping or {}).items():
        items = {key: _modern_references(value) for key, value in (section.mapping or {}).items()}
        config = set_dotted(config, name, Value(items, section.origin))
    return resolve_interpolations(config)


def _modern_references(value: Value) -> Value:
    """A value with its older references written as newer ones."""
    text = value.text
    return value if text is None else Value(_OLDER_REFERENCE.sub(r"${\1.\2}", text), value.origin)


# Text of protocol buffers (`.pbtxt`, `.prototxt`, a `pipeline.config`) to a `Value` tree.


_PROTO_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
    |(?P<string>"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*')
    |(?P<mark>[\[\]{}<>:,;])
    |(?P<word>[^\s\[\]{}<>:,;"'\#]+)""",
    re.VERBOSE,
)
_PROTO_FIELD = re.compile(r"\w++\s*+:?\s*+\{|\w++\s*+:\s*+[\w\"'.+-]++\s*+;?\s*+$")


class _ProtoReader(TokenReader):
    def message(self, close: str, depth: int) -> Value:
        """The fields up to `close`, or to the end of the text; a repeated one is a list."""
        fields: Items = {}
        many: dict[str, list[Value]] = {}
        origin = self.source.origin(self.line)
        while self.kind and self.lexeme != close:
            key = self._name()
            if self.lexeme == ":":
                self.advance()
            value = self._value(depth + 1)
            if key in fields:
                many.setdefault(key, [fields[key]]).append(value)
            else:
                fields[key] = value
            if self.lexeme in (",", ";"):
                self.advance()
        if not self.kind and close:
            raise self.wrong(f"ends before {close}")
        fields |= {key: Value(values, values[0].origin) for key, values in many.items()}
        return Value(fields, origin)

    def _name(self) -> str:
        if self.lexeme == "[":  # an extension, by its full name
            self.advance()
            name = self.lexeme
            self.advance()
            if self.lexeme != "]":
                raise self.wrong(f"found {self.lexeme} where ']' should be")
        elif self.kind == "word":
            name = self.lexeme
        else:
            raise self.wrong(f"found {self.lexeme} where a field's name should be")
        self.advance()
        return name

    def _value(self, depth: int) -> Value:
        self.count(depth)
        origin, text = self.source.origin(self.line), self.lexeme
        if text in ("{", "<"):
            self.advance()
            value = self.message("}" if text == "{" else ">", depth)
            self.advance()
            return value
        if text == "[":
            self.advance()
            items: list[Value] = []
            while self.lexeme != "]":
                items.append(self._value(depth + 1))
                if self.lexeme == ",":
                    self.advance()
            self.advance()
            return Value(items, origin)
        if self.kind == "string":
            parts = []
            while self.kind == "string":
                parts.append(self.lexeme[1:-1])
                self.advance()
            return Value("".join(parts), origin)
        if self.kind != "word":
            raise self.wrong(f"found {text} where a value should be")
        self.advance()
        return Value({"true": True, "false": False}.get(text, grammar_scalar(text)), origin)


def read_proto_text(source: Source) -> Value:
    """The message of a protocol buffer's text. Raises ConfigError with the line for broken text."""
    return _ProtoReader(source, _PROTO_TOKEN, "text of a protocol buffer").message("", 0)


# Python files of plain values to a `Value` tree: what is assigned at the top of the module.


def read_python(source: Source) -> Value:
    """The names that a Python file assigns plain values at its top level, and in its classes.

    Values are literals, `dict(...)` of them, and names assigned before; others are left out. The
    file is not run. Raises ConfigError for what is not Python.
    """
    tree = parse_or_none(source.text)
    if tree is None:
        raise source.error("is not valid Python", 1)
    names = Value(_assigned(tree.body, source, ChainMap()), source.origin(1))
    return ensure_bounded(names, str(source.name))


def _assigned(body: Sequence[ast.stmt], source: Source, outer: ChainMap[Any, Value]) -> Items:
    names: Items = {}
    around = outer.new_child(names)
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            inner = _assigned(statement.body, source, around)
            if inner:
                names[statement.name] = Value(inner, source.origin(statement.lineno))
            continue
        if isinstance(statement, ast.Assign):
            targets, node = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets, node = [statement.target], statement.value
        else:
            continue
        value = _literal(node, source, around, 0)
        for target in targets:
            if isinstance(target, ast.Name) and not target.id.startswith("_"):
                if value is None:
                    names.pop(target.id, None)  # it is something else from here on
                else:
                    names[target.id] = value
    return names


def _literal(
    node: ast.expr, source: Source, names: Mapping[Any, Value], depth: int
) -> Value | None:
    origin = source.origin(node.lineno)
    if depth > MAX_DEPTH:
        return None
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as data):
            return Value(data, origin)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return Value(-number, origin)
        case ast.Name(id=name):
            return names.get(name)
        case ast.Dict(keys=keys, values=values):
            pairs = [
                (key.value, value)
                for key, value in zip(keys, values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            ]
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            pairs = [(one.arg, one.value) for one in keywords if one.arg is not None]
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            items = [_literal(element, source, names, depth + 1) for element in elements]
            known = [item for item in items if item is not None]
            return Value(known, origin) if len(known) == len(items) else None
        case _:
            return None
    read = {key: _literal(value, source, names, depth + 1) for key, value in pairs}
    return Value({key: value for key, value in read.items() if value is not None}, origin)


# `read_config`: one door for every format of plain configuration file.


_READERS: dict[str, Callable[[Source], Value]] = {
    ".yaml": read_yaml,
    ".yml": read_yaml,
    ".json": read_json,
    ".json5": read_json,
    ".jsonc": read_json,
    ".toml": read_toml,
    ".ini": read_ini,
    ".hocon": read_hocon,
    ".properties": read_pairs,
    ".args": read_pairs,
    **dict.fromkeys((".pbtxt", ".prototxt", ".textproto"), read_proto_text),
    ".py": read_python,
}


_JSONNET_SUFFIXES = (".jsonnet", ".libsonnet")


def read_config(
    path: Path,
    root: Path,
    *,
    overrides: Mapping[str, Value] | None = None,
    variables: Mapping[str, Value] | None = None,
) -> Value:
    """Read a configuration file inside `root`; every leaf has its file and 1-based line.

    The format follows from the extension, and from the content where that says too little
    (`.cfg`, `.conf`, `.txt`, none). YAML with several documents gives a list of them. `overrides`
    are set by dotted path, before HyperPyYAML's references are followed; `variables` are what
    Jsonnet's `std.extVar` finds. Raises ConfigError, with file and line, for what cannot be read.
    """
    return _read(load_source(path, root), root, overrides, variables)


def read_changed(
    path: Path, root: Path, versions: Sequence[tuple[str, Origin]], name: str
) -> Value:
    """A configuration that commands make of the file `path`, one after the other, as `name`.

    `versions` are its texts with the command that made each. What differs from the one before has
    that command's origin, all else its line of the file. Raises ConfigError as `read_config` does.
    """
    source = load_source(path, root)
    value = _read(source, root)
    for text, origin in versions:
        made = _read(Source(text, source.name, Path(name)), root)
        value = _changed_leaves(made, value, origin)
    return value


def _changed_leaves(after: Value, before: Value | None, origin: Origin) -> Value:
    if before is not None and before.plain() == after.plain():
        return before
    if after.mapping is None:
        return Value(after.data, origin)
    former = (before.mapping if before is not None else None) or {}
    return Value(
        {
            key: _changed_leaves(item, former.get(key), origin)
            for key, item in after.mapping.items()
        },
        after.origin,
    )


def _read(
    source: Source,
    root: Path,
    overrides: Mapping[str, Value] | None = None,
    variables: Mapping[str, Value] | None = None,
) -> Value:
    suffix = source.path.suffix.lower()
    if suffix in _JSONNET_SUFFIXES or (suffix == ".json" and is_jsonnet(source)):
        return read_jsonnet(source, root, variables)
    read = _READERS.get(suffix) or _guess_reader(source)
    config = read(source)
    for key, value in (overrides or {}).items():
        config = set_dotted(config, key, value)
    return resolve_refs(config) if REF_TAG in source.text and read is read_yaml else config


def read_hocon_text(text: str, name: str | None) -> Value:
    """A HOCON text that a program made, cited as the file `name` that it made it from."""
    return read_hocon(Source(text, name, Path(name or "")))


def _guess_reader(source: Source) -> Callable[[Source], Value]:
    stripped = (line.strip() for line in source.text[:4000].split("\n"))
    first = next((line for line in stripped if line and line[0] not in "#;"), "")
    if re.fullmatch(r"\[[^\[\]{}\"',]+\]\s*(?:[#;].*)?", first):
        return read_ini
    if first.startswith(("{", "[")):
        return read_json
    if source.path.suffix == ".conf" and looks_like_hocon(source.text):
        return read_hocon
    if source.path.suffix == ".config" and _PROTO_FIELD.match(first):
        return read_proto_text
    if first.startswith(("---", "- ", "%YAML")) or re.match(r"[\w.\"'/-]+:(\s|$)", first):
        return read_yaml
    return read_pairs
