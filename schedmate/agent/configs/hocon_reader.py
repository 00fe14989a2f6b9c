"""HOCON, JSON with less to type, as pyhocon reads it, to a `Value` tree with line numbers.

Includes are not followed: what they name may lie anywhere, on another machine even.
"""

from __future__ import annotations

import re

from schedmate.agent.configs.files import ConfigError, Source
from schedmate.agent.configs.interpolation import grammar_scalar, resolve_interpolations
from schedmate.agent.configs.trees import MAX_DEPTH, MAX_NODES, merge
from schedmate.agent.values import Items, Value

MAX_COPIED = 10_000_000
"""Most fields that laying objects upon each other may copy."""
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


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.at, self.line, self._nodes, self._copied = 0, 1, 0, 0
        self.kind, self.lexeme = "line", ""
        self.advance()

    def advance(self) -> None:
        """Move to the next token; at the end of the text `kind` is empty."""
        self.line += self.lexeme.count("\n")
        while match := _TOKEN.match(self.source.text, self.at):
            self.at = match.end()
            if match.lastgroup != "space":
                self.kind, self.lexeme = str(match.lastgroup), match[0]
                return
        if self.at < len(self.source.text):
            raise self._wrong(f"unexpected {self.source.text[self.at]!r}")
        self.kind = self.lexeme = ""

    def _wrong(self, reason: str) -> ConfigError:
        return self.source.error(f"is not valid HOCON ({reason})", self.line)

    def _between(self) -> None:
        while self.kind == "line" or self.lexeme == ",":
            self.advance()

    def body(self, depth: int) -> Value:
        """The fields up to the closing brace or the end of the text; a later one is laid upon."""
        if depth > MAX_DEPTH:
            raise self.source.error(f"nests deeper than {MAX_DEPTH} levels; flatten it", self.line)
        held: Items = {}
        origin = self.source.origin(self.line)
        self._between()
        while self.kind and self.lexeme != "}":
            if self.kind not in ("word", "string"):
                raise self._wrong(f"found {self.lexeme} where a key should be")
            key = self.lexeme.strip('"')
            self.advance()
            if self.lexeme in ("=", ":", "+="):
                self.advance()
                while self.kind == "line":
                    self.advance()
            value = self.value(depth + 1)
            for part in reversed(key.split(".")):
                value = Value({part: value}, value.origin)
            if key != "include":
                self._lay(held, value)
            self._between()
        return Value(held, origin)

    def _lay(self, held: Items, value: Value) -> None:
        """Lay one field upon those before; to lay an object upon another copies what is there."""
        for key, item in (value.mapping or {}).items():
            below = held.get(key)
            if below is None:
                held[key] = item
                continue
            self._copied += len(below.data) if isinstance(below.data, dict) else 1
            if self._copied > MAX_COPIED:
                message = "lays too many objects upon each other; write each once"
                raise self.source.error(message, self.line)
            held[key] = merge(below, item)

    def value(self, depth: int) -> Value:
        """What stands up to the end of the line: parts side by side are one value."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            message = f"holds more than {MAX_NODES:,} values, too many for a configuration"
            raise self.source.error(message, self.line)
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
            whole = self._laid(whole, part)
        return whole

    def _laid(self, base: Value, over: Value) -> Value:
        if isinstance(base.data, str) and isinstance(over.data, dict):
            return Value({_BASE: base, **over.data}, over.origin)
        return merge(base, over)

    def _items(self, depth: int) -> list[Value]:
        found: list[Value] = []
        self._between()
        while self.kind and self.lexeme != "]":
            found.append(self.value(depth + 1))
            self._between()
        return found

    def _close(self, mark: str) -> None:
        if self.lexeme != mark:
            raise self._wrong(f"found {self.lexeme or 'the end'} where '{mark}' should be")
        self.advance()


_BASE = "\0base"


def read_hocon(source: Source) -> Value:
    """The object of a HOCON text, references between its values resolved.

    Raises ConfigError with the line for broken syntax.
    """
    reader = _Reader(source)
    while reader.kind == "line":
        reader.advance()
    braces = reader.lexeme == "{"
    if braces:
        reader.advance()
    tree = reader.body(0)
    if reader.lexeme and not braces:
        raise source.error("is not valid HOCON (a brace too many)", reader.line)
    return _with_bases(resolve_interpolations(tree))


def _with_bases(value: Value, depth: int = 0) -> Value:
    """Objects with those that they were laid upon."""
    if not isinstance(value.data, dict) or depth > MAX_DEPTH:
        return value
    items = {key: _with_bases(item, depth + 1) for key, item in value.data.items()}
    base = items.pop(_BASE, None)
    own = Value(items, value.origin)
    return merge(base, own) if base is not None and isinstance(base.data, dict) else own
