"""HOCON, JSON with less to type, as pyhocon reads it, to a `Value` tree with line numbers.

Includes are not followed: what they name may lie anywhere, on another machine even.
"""

from __future__ import annotations

import re

from schedmate.agent.configs.files import Source
from schedmate.agent.configs.interpolation import grammar_scalar, resolve_interpolations
from schedmate.agent.configs.tokens import TokenReader
from schedmate.agent.configs.trees import MAX_DEPTH, merge
from schedmate.agent.values import Items, Value

_TOKEN = re.compile(
    r"""(?P<space>[^\S\n]+|(?:\#|//)[^\n]*)
    |(?P<line>\n)
    |(?P<string>\"{3}.*?\"{3}|"[^"\\\n]*(?:\\.[^"\\\n]*)*")
    |(?P<reference>\$\{\??[^{}\n]+\})
    |(?P<mark>\+=|[\[\]{},:=])
    |(?P<word>[^\s\[\]{},:="\#+]+|\+)""",
    re.VERBOSE | re.DOTALL,
)
_OPENS = re.compile(
    r"^[ \t]*+[\w.\"-]++[ \t]*+(?:[=:][ \t]*+)?(\$\{[\w.]++\}[ \t]*+)?\{[ \t]*+$", re.MULTILINE
)


def looks_like_hocon(text: str) -> bool:
    """Whether a text has a named object, `train {` or `train = {`, at the end of a line."""
    return _OPENS.search(text) is not None


class _Reader(TokenReader):
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
                _lay(fields, {path[0]: value})
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
                whole = Value({_BASE: whole, **part.data}, part.origin)
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


_BASE = "\0base"
"""Key of the object that an object is laid upon."""


def _lay(fields: Items, later: Items) -> None:
    """Lay fields upon those before them."""
    for key, item in later.items():
        before = fields[key].mapping if key in fields else None
        if before is not None and item.mapping is not None:
            _lay(before, item.mapping)
        else:
            fields[key] = item


def read_hocon(source: Source) -> Value:
    """The object of a HOCON text, references between its values resolved.

    Raises ConfigError with the line for broken syntax.
    """
    reader = _Reader(source, _TOKEN, "HOCON")
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
    base = items.pop(_BASE, None)
    own = Value(items, value.origin)
    return merge(base, own) if base is not None and isinstance(base.data, dict) else own
