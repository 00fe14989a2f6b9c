"""gin-config files: bindings, scopes, macros and includes, read as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from schedmate.agent.configs.scalars import LiteralData, LiteralError, plain_scalar, read_literal
from schedmate.agent.configs.trees import ConfigError, Source, ensure_bounded, load_source
from schedmate.agent.values import Unknown, Value, lifted, unknown

_TOKEN = re.compile(
    r"(?P<string>'''.*?'''|\"\"\".*?\"\"\"|'(?:\\.|[^'\\\n])*+(?:'|(?=\n)|\Z)|\"(?:\\.|[^\"\\\n])*+(?:\"|(?=\n)|\Z))"
    r"|(?P<comment>\#[^\n]*)|(?P<joined>\\\r?\n)|(?P<open>[\[({])|(?P<close>[\])}])|(?P<end>\n)"
    r"|(?P<other>[^'\"#\\\[\](){}\n]+|.)",
    re.DOTALL,
)
_PREFIX = re.compile(r"(?<![\w.])[rRbBuU]{1,2}$")  # of a Python string
_INCLUDE = re.compile(r"include\s+(['\"])(.+?)\1")
_BINDING = re.compile(r"([A-Za-z_][\w./]*)\s*=\s*(.+)", re.DOTALL)
_BLOCK = re.compile(r"([A-Za-z_][\w./]*)\s*:")
_IMPORT = re.compile(r"(?:from\s+([\w.]+)\s+)?import\s+([\w.]+)(?:\s+as\s+\w+)?")
_MACRO = re.compile(r"%[A-Za-z_][\w./]*")
_MAX_FILES = 100
_MAX_CHAIN = 20


def parse_gin(
    path_or_text: Path | str | Sequence[Path], root: Path, *, bindings: Sequence[Value] = ()
) -> dict[str, Value]:
    """The bindings of gin files (Paths) or of gin text, by full name (`scope/Class.parameter`).

    Later bindings win, and `bindings` (text such as `Class.parameter = 1` from the command line)
    last. `include` follows files inside `root`; another is kept as unknown under
    `include <its name>`, as a module that is imported under `import <its name>`. A macro `%name`
    is its value, or unknown when nothing binds it; `@name` is unknown with that text. Raises
    ConfigError, with the line, for broken syntax and a cycle of includes.
    """
    reader = _Reader(root)
    if isinstance(path_or_text, str):
        reader.file(Source(path_or_text, None, root), ())
    else:
        for path in [path_or_text] if isinstance(path_or_text, Path) else path_or_text:
            reader.file(load_source(path, root), ())
    for binding in bindings:
        reader.binding(binding)
    macros = _Macros(reader.bindings)
    expanded = {name: macros.expand(value) for name, value in reader.bindings.items()}
    ensure_bounded(Value(expanded), "the gin configuration with its macros")
    return expanded


class _Reader:
    def __init__(self, root: Path) -> None:
        self.bindings: dict[str, Value] = {}
        self._root = root
        self._files = 0

    def file(self, source: Source, above: tuple[Path, ...]) -> None:
        if source.path in above:
            raise source.error("includes itself, directly or through another; break the cycle")
        self._files += 1
        if self._files > _MAX_FILES:
            raise source.error(f"includes more than {_MAX_FILES} files; reduce them")
        block = ""
        for line, indent, statement in _statements(source):
            block = block if indent else ""
            include = _INCLUDE.fullmatch(statement)
            opened = _BLOCK.fullmatch(statement)
            binding = _BINDING.fullmatch(statement)
            if include:
                included = self._included(source, include[2])
                if included is None:
                    absent = unknown(include[2], source.origin(line))
                    self.bindings[f"include {include[2]}"] = absent
                else:
                    self.file(included, (*above, source.path))
            elif opened and not indent:
                block = f"{opened[1]}."
            elif binding:
                literal = _literal(source, binding[2].strip(), line)
                origin = source.origin(line, binding[2].strip())
                self.bindings[block + binding[1]] = lifted(literal, origin)
            elif imported := _IMPORT.fullmatch(statement):
                parts = [part for part in imported.groups() if part]
                self.bindings[f"import {'.'.join(parts)}"] = unknown(None, source.origin(line))
            else:
                raise source.error(f"is not a gin statement: {statement[:60]}", line)

    def binding(self, text: Value) -> None:
        """Bind what one text outside any file says, under its own origin."""
        source = Source("", "gin binding", self._root)
        match = _BINDING.fullmatch(text.data.strip()) if isinstance(text.data, str) else None
        if match is None:
            raise source.error(f"is not 'name = value': {text.plain()}")
        self.bindings[match[1]] = lifted(_literal(source, match[2].strip(), None), text.origin)

    def _included(self, source: Source, name: str) -> Source | None:
        for directory in (self._root, source.path.parent):
            try:
                return load_source(directory / name, self._root)
            except ConfigError:
                continue
        return None


def _statements(source: Source) -> Iterator[tuple[int, bool, str]]:
    """Line, whether indented, and text of each statement; brackets and `\\` join lines."""
    parts: list[str] = []
    begun = False
    line, start, depth = 1, 1, 0
    for match in _TOKEN.finditer(source.text + "\n"):
        kind, token = match.lastgroup, match[0]
        if kind == "end" and depth <= 0:
            if begun:
                statement = "".join(parts)
                yield start, statement[:1].isspace(), statement.strip()
            parts, begun, depth = [], False, 0
        elif kind in ("end", "joined"):
            parts.append(" ")
        elif kind != "comment":
            if not begun and not token.isspace():
                begun, start = True, line
            if kind == "string" and parts:
                parts[-1] = _PREFIX.sub("", parts[-1])
            depth += (kind == "open") - (kind == "close")
            parts.append(token)
        line += token.count("\n")
    if begun:
        raise source.error("opens a bracket that is never closed", start)


def _literal(source: Source, text: str, line: int | None) -> LiteralData:
    try:
        return read_literal(text, _scalar)
    except LiteralError as error:
        raise source.error(f"is not a gin value ({error}): {text[:60]}", line) from error


def _scalar(text: str) -> LiteralData:
    if text.startswith(("@", "%")):
        return Unknown(text)
    if text in ("None", "True", "False"):
        return {"None": None, "True": True, "False": False}[text]
    number = plain_scalar(text)
    return (
        number
        if isinstance(number, int | float) and not isinstance(number, bool)
        else Unknown(text)
    )


class _Macros:
    """Replaces `%name` by what binds it; each macro is expanded once and then shared."""

    def __init__(self, bindings: dict[str, Value]) -> None:
        self._bindings = bindings
        self._done: dict[str, Value] = {}
        self._active: set[str] = set()

    def expand(self, value: Value) -> Value:
        if isinstance(value.data, dict):
            items = {key: self.expand(item) for key, item in value.data.items()}
            return Value(items, value.origin)
        if isinstance(value.data, list | tuple):
            return Value(type(value.data)(map(self.expand, value.data)), value.origin)
        text = value.data.text if isinstance(value.data, Unknown) else None
        if text is None or not _MACRO.fullmatch(text):
            return value
        if text not in self._done:
            bound = self._bindings.get(text[1:]) or self._bindings.get(f"{text[1:]}/macro.value")
            if bound is None or text in self._active or len(self._active) >= _MAX_CHAIN:
                return value
            self._active.add(text)
            self._done[text] = self.expand(bound)
            self._active.discard(text)
        return self._done[text]
