"""OmegaConf interpolations between plain values; a resolver that would run code is never run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from schedmate.agent.configs.scalars import (
    LiteralData,
    LiteralError,
    LiteralReader,
    closing_brace,
    read_literal,
)
from schedmate.agent.configs.trees import (
    MAX_DEPTH,
    MISSING,
    ConfigError,
    child,
    ensure_bounded,
    split_path,
)
from schedmate.agent.values import Unknown, Value, lifted, unknown

Path: TypeAlias = tuple[str, ...]
CustomResolver: TypeAlias = Callable[[list[Value]], Value]
"""What a resolver of the program makes of its arguments, unknown where that is not plain."""

_RESOLVER = re.compile(r"\s*([A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*)\s*:(.*)", re.DOTALL)
_KEY = re.compile(r"[^{}:$'\"\s]+(?: [^{}:$'\"\s]+)*")
_INT = re.compile(r"[+-]?(?:0|[1-9](?:_?\d)*)")
_FLOAT = re.compile(
    r"[+-]?(?:(?:\d(?:_?\d)*)?\.\d(?:_?\d)*(?:[eE][+-]?\d+)?|\d(?:_?\d)*\.?(?:[eE][+-]?\d+)"
    r"|\d(?:_?\d)*\.|inf|nan)",
    re.IGNORECASE,
)
_WORDS = {"true": True, "false": False, "null": None}
_MAX_CHAIN = 50
_MAX_TEXT = 10_000


class _Unresolved(Exception):  # noqa: N818  (control flow inside this module)
    """An interpolation whose value cannot be known."""


def grammar_scalar(text: str) -> bool | int | float | str | None:
    """What unquoted text means in OmegaConf's and Hydra's grammars (not YAML: `yes` is text)."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        if _INT.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
    except ValueError:  # more digits than Python converts
        return text
    return text


def resolve_interpolations(
    config: Value,
    *,
    env: Mapping[str, Value] | None = None,
    resolvers: Mapping[str, CustomResolver] | None = None,
) -> Value:
    """`config` with every interpolation of plain values replaced by the value it names.

    `${a.b}`, `${a[0]}`, relative `${.x}` and `${..x}`, nested ones and ones inside text follow
    OmegaConf; a resolved value keeps the origin of the place where it stands. `${oc.env:VAR}`
    takes `env`, else its default; `oc.select` and `oc.decode` work, and the program's own
    `resolvers`. Every other resolver, a circle, a key that does not exist
    and the mandatory mark `???` become unknown with their text.
    Raises ConfigError when the result is too large or too deep.
    """
    resolved = Resolver(config, env or {}, resolvers).resolve(config, ())
    return ensure_bounded(resolved, "the configuration with its interpolations")


def has_interpolation(text: str) -> bool:
    """Whether `text` holds `${`, escaped or not."""
    return "${" in text


class Resolver:
    """Resolves the nodes of one tree on demand, each once."""

    def __init__(
        self,
        root: Value,
        env: Mapping[str, Value],
        resolvers: Mapping[str, CustomResolver] | None = None,
    ) -> None:
        self.root = root
        self._env = env
        self._resolvers = resolvers or {}
        self._done: dict[Path, Value] = {}
        self._active: set[Path] = set()
        self._depth = 0

    def resolve(self, value: Value, path: Path) -> Value:
        """The resolved form of `value`, which stands at `path`."""
        if path in self._done:
            return self._done[path]
        if not isinstance(value.data, dict | list | tuple | str):
            return value
        if self._depth > MAX_DEPTH:
            raise ConfigError(f"'{'.'.join(path)[:80]}' nests too deeply; flatten it")
        self._depth += 1
        try:
            result = self._resolve(value, path)
        finally:
            self._depth -= 1
        self._done[path] = result
        return result

    def _resolve(self, value: Value, path: Path) -> Value:
        data = value.data
        if isinstance(data, dict):
            items = {key: self.resolve(item, (*path, str(key))) for key, item in data.items()}
            return Value(items, value.origin)
        if isinstance(data, list | tuple):
            parts = [self.resolve(item, (*path, str(at))) for at, item in enumerate(data)]
            return Value(type(data)(parts), value.origin)
        if data == MISSING:
            return unknown(MISSING, value.origin)
        text = value.text
        if text is None or not has_interpolation(text):
            return value
        if path in self._active or len(self._active) > _MAX_CHAIN:
            return unknown(text, value.origin)
        self._active.add(path)
        try:
            return self.evaluate(text, path, value)
        except _Unresolved:
            return unknown(text, value.origin)
        finally:
            self._active.discard(path)

    def evaluate(self, text: str, path: Path, at: Value) -> Value:
        """The value of `text`, a string standing at `path`, its interpolations resolved."""
        pieces: list[str] = []
        position = 0
        while (start := text.find("${", position)) >= 0:
            literal = text[position:start]
            slashes = len(literal) - len(literal.rstrip("\\"))
            literal = literal[: len(literal) - slashes] + "\\" * (slashes // 2)
            if slashes % 2:
                pieces.append(literal + "${")
                position = start + 2
                continue
            end = closing_brace(text, start + 2)
            if end < 0:
                raise _Unresolved
            inner = self._inside(text[start + 2 : end], path, at)
            if start == 0 and end == len(text) - 1:
                return inner
            pieces += [literal, _as_text(inner)]
            position = end + 1
        joined = "".join([*pieces, text[position:]])
        if len(joined) > _MAX_TEXT:
            raise _Unresolved
        return Value(joined, at.origin)

    def _inside(self, inner: str, path: Path, at: Value) -> Value:
        call = _RESOLVER.fullmatch(inner)
        if call:
            return self._call(call[1], call[2], path, at)
        key = _as_text(self.evaluate(inner, path, at)) if has_interpolation(inner) else inner
        if not _KEY.fullmatch(key.strip()):
            raise _Unresolved
        selected = self.select(key.strip(), path)
        if selected is None or isinstance(selected.data, Unknown):
            raise _Unresolved
        return selected

    def select(self, key: str, path: Path) -> Value | None:
        """The resolved value at `key`, which may be relative to the node at `path`."""
        parts = split_path(key)
        ups = len(key) - len(key.lstrip("."))
        if ups > len(path):
            return None
        target: Path = (*path[: len(path) - ups], *parts[ups:]) if ups else tuple(parts)
        value = self.root
        linked = False
        for index, part in enumerate(target):
            if isinstance(value.data, str) and not linked:
                value = self.resolve(value, target[:index])
                linked = True
            below = child(value, part)
            if below is None:
                return None
            value = below
        return value if linked else self.resolve(value, target)

    def _call(self, name: str, arguments: str, path: Path, at: Value) -> Value:
        values = [self._argument(text, path, at) for text in _split_arguments(arguments)]
        if name in ("oc.env", "env") and values and isinstance(values[0].data, str):
            known = self._env.get(values[0].data)
            if known is not None:
                return known
            if len(values) > 1 and values[1].data is None:
                return values[1]
            if len(values) > 1:
                if name == "env":
                    return values[1]
                return Value(_as_text(values[1]), values[1].origin)
        elif name == "oc.select" and values and isinstance(values[0].data, str):
            selected = self.select(values[0].data, path)
            if selected is not None and not isinstance(selected.data, Unknown):
                return selected
            if selected is None:
                return values[1] if len(values) > 1 else Value(None, at.origin)
        elif name == "oc.decode" and len(values) == 1:
            if isinstance(values[0].data, str):
                decoded = lifted(_decode(values[0].data), values[0].origin)
                return self.resolve(decoded, (*path, "oc.decode"))
            return values[0]
        elif name in self._resolvers:
            answer = self._resolvers[name](values)
            if isinstance(answer.data, bool | int | float | str | list | dict | None):
                return answer
        raise _Unresolved

    def _argument(self, text: str, path: Path, at: Value) -> Value:
        quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
        inner = text[1:-1] if quoted else text
        if has_interpolation(inner) and not inner.startswith(("[", "{")):
            return self.evaluate(inner, path, at)
        return lifted(_decode(text), at.origin)


def _decode(text: str) -> LiteralData:
    try:
        return read_literal(text.strip(), grammar_scalar)
    except LiteralError:
        return text.strip()


def _split_arguments(text: str) -> list[str]:
    """The top-level, comma-separated arguments of a resolver call."""
    if not text.strip():
        return []
    reader = LiteralReader(text, lambda part: part)
    parts: list[str] = []
    while True:
        start = reader.at
        try:
            reader.value(",")
        except LiteralError as error:
            raise _Unresolved from error
        parts.append(text[start : reader.at].strip())
        if reader.peek() != ",":
            break
        reader.at += 1
    if reader.at < len(text):
        raise _Unresolved
    return parts


def _as_text(value: Value) -> str:
    if isinstance(value.data, bool | int | float | str | None):
        return str(value.data)
    raise _Unresolved
