"""Reads YAML to `Value` trees from the parser's events: no tag is ever constructed.

Events, not composed nodes, because PyYAML's composer recurses in C without a limit: a few hundred
kilobytes of `- ` would end the process. Two dialects follow: HyperPyYAML's references to plain
values (`!ref <a>`, `!ref <a[b]>/x`, `!ref <n> * 2`), and Detectron2's and yacs's files, with
`_BASE_` files underneath and Python literals in strings.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceStartEvent,
)

from schedmate.agent.configs.scalars import CORE, construct, implicit_tag, parse_scalar
from schedmate.agent.configs.trees import (
    MAX_DEPTH,
    MAX_NODES,
    ConfigError,
    Source,
    ensure_bounded,
    load_source,
    merge,
)
from schedmate.agent.syntax import parse_expression
from schedmate.agent.values import Items, Unknown, Value, lifted, unknown

TAG_KEY = "__tag__"
"""Key under which a mapping with an unknown tag keeps that tag."""
ARGS_KEY = "__args__"
"""Key under which a sequence with an unknown tag keeps its items."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAX_DIRECTIVES = 100
"""Lines that begin with `%`: libyaml compares each `%TAG` with all before."""
_MERGE_KEY = object()
_PLAIN_SEQUENCES = {CORE + name for name in ("seq", "omap", "pairs", "python/list")}
_PLAIN_MAPPINGS = {CORE + name for name in ("map", "set", "omap", "python/dict")}


@dataclass(slots=True)
class _OpenContainer:
    """A container being read; for a mapping `key` is the key whose value comes next."""

    value: Value
    mapping: bool
    tag: str | None
    anchor: str | None
    key: Any = None
    has_key: bool = False
    merges: list[Value] = field(default_factory=list)
    items: Items = field(default_factory=dict)
    elements: list[Value] = field(default_factory=list)


class _TreeBuilder:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.documents: list[Value] = []
        self._frames: list[_OpenContainer] = []
        self._anchors: dict[str, Value | None] = {}  # None: a collection that is still open
        self._nodes = 0

    def feed(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, DocumentStartEvent):
            self._anchors.clear()
        elif isinstance(event, ScalarEvent):
            self._scalar(event, line)
        elif isinstance(event, MappingStartEvent | SequenceStartEvent):
            self._open(event, line)
        elif isinstance(event, CollectionEndEvent):
            self._close(line)
        elif isinstance(event, AliasEvent):
            self._alias(str(event.anchor), line)

    def _scalar(self, event: ScalarEvent, line: int) -> None:
        text = event.value
        implicit = event.implicit[0]
        tag = implicit_tag(text) if implicit and event.tag is None else event.tag
        if tag is None or tag == "!":
            tag = CORE + "str"
        frame = self._frames[-1] if self._frames else None
        if frame and frame.mapping and not frame.has_key and tag == CORE + "merge":
            frame.key, frame.has_key = _MERGE_KEY, True
            return
        origin = self.source.origin(line)
        try:
            value = Value(construct(tag, text), origin)
        except (KeyError, ValueError):
            if implicit:
                value = Value(text, origin)
            else:
                value = unknown(f"{_short_tag(tag)} {text}".strip(), origin)
        if event.anchor:
            self._anchors[event.anchor] = value
        self._add(value, line)

    def _open(self, event: Any, line: int) -> None:
        if len(self._frames) >= MAX_DEPTH:
            raise self.source.error(f"nests deeper than {MAX_DEPTH} levels; flatten it", line)
        mapping = isinstance(event, MappingStartEvent)
        frame = self._frames[-1] if self._frames else None
        if frame and frame.mapping and not frame.has_key:
            raise self.source.error("has a mapping or list as a key; quote it if it is text", line)
        value = Value(None, self.source.origin(line))
        tag = None if event.tag in (None, "!") else event.tag
        frame = _OpenContainer(value, mapping, tag, event.anchor)
        value.data = frame.items if mapping else frame.elements
        if mapping and tag is not None and tag not in _PLAIN_MAPPINGS:
            frame.items[TAG_KEY] = Value(_short_tag(tag), value.origin)
        self._frames.append(frame)
        if event.anchor:
            self._anchors[event.anchor] = None

    def _close(self, line: int) -> None:
        frame = self._frames.pop()
        for merged in frame.merges:
            self._count(len(merged.mapping or {}), line)
            for key, item in (merged.mapping or {}).items():
                frame.items.setdefault(key, item)
        if not frame.mapping and frame.tag == CORE + "python/tuple":
            frame.value.data = tuple(frame.elements)
        elif not frame.mapping and frame.tag is not None and frame.tag not in _PLAIN_SEQUENCES:
            items = Value(frame.value.data, frame.value.origin)
            frame.value.data = {
                TAG_KEY: Value(_short_tag(frame.tag), frame.value.origin),
                ARGS_KEY: items,
            }
        if frame.anchor:
            self._anchors[frame.anchor] = frame.value
        self._add(frame.value, line)

    def _alias(self, name: str, line: int) -> None:
        if name not in self._anchors:
            raise self.source.error(f"uses '*{name}' before '&{name}' defines it", line)
        # a collection that contains itself is unknown
        self._add(self._anchors[name] or unknown(f"*{name}", self.source.origin(line)), line)

    def _count(self, values: int, line: int) -> None:
        self._nodes += values
        if self._nodes > MAX_NODES:
            message = f"holds more than {MAX_NODES:,} values, too many for a configuration"
            raise self.source.error(message, line)

    def _add(self, value: Value, line: int) -> None:
        self._count(1, line)
        if not self._frames:
            self.documents.append(value)
            return
        frame = self._frames[-1]
        if not frame.mapping:
            frame.elements.append(value)
        elif not frame.has_key:
            if not isinstance(value.data, bool | int | float | str | None):
                raise self.source.error("has a key that is not plain text or a number", line)
            frame.key, frame.has_key = value.data, True
        else:
            if frame.key is _MERGE_KEY:
                frame.merges.extend(self._mergeable(value, line))
            else:
                frame.items[frame.key] = value
            frame.has_key = False

    def _mergeable(self, value: Value, line: int) -> list[Value]:
        sources = value.data if isinstance(value.data, list) else [value]
        if not all(isinstance(item.data, dict) for item in sources):
            raise self.source.error("merges ('<<') something that is not a mapping", line)
        return list(sources)


def _short_tag(tag: str) -> str:
    return tag.replace(CORE, "!!", 1) if tag.startswith(CORE) else tag


def read_yaml(source: Source) -> Value:
    """The document of a YAML text, or a list of documents when there are several.

    A scalar under an unknown tag is unknown; a mapping under one gets the tag as `__tag__`, a
    sequence becomes `{__tag__, __args__}`.
    Raises ConfigError, with the line, for broken syntax, and for aliases that expand too far.
    """
    builder = _TreeBuilder(source)
    if source.text.count("\n%") > MAX_DIRECTIVES:
        raise source.error(f"has more than {MAX_DIRECTIVES} directives; remove them")
    try:
        loader = _Loader(source.text)
        try:
            while loader.check_event():
                builder.feed(loader.get_event())
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        line = mark.line + 1 if mark else None
        raise source.error(f"is not valid YAML ({' '.join(str(reason).split())})", line) from error
    documents = builder.documents
    while len(documents) > 1 and documents[-1].data is None:
        documents.pop()
    if not documents:
        return Value(None, source.origin(1))
    whole = documents[0] if len(documents) == 1 else Value(documents, documents[0].origin)
    return ensure_bounded(whole, f"{source.name or 'the text'}: the file with its aliases")


# HyperPyYAML references to plain values: `!ref <a>`, `!ref <a[b]>/x`, `!ref <n> * 2`.


REF_TAG = "!ref"
_REFERENCE = re.compile(r"<([^<>]*)>")
_ARITHMETIC = re.compile(r"[\d\s+\-*/%().eE_]{1,200}")
_MAX_CHAIN = 50
_MAX_TEXT = 10_000
_OPERATORS: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def resolve_refs(root: Value) -> Value:
    """`root`, changed in place: each `!ref` to something plain is that value.

    A whole `<a>` keeps the origin of `a`; text and arithmetic keep the place they stand at.
    References to objects (`<model.weight>`), to nothing, or in a circle stay unknown. Raises
    ConfigError when the references expand too far.
    """
    seen: set[int] = set()
    pending = [root]
    while pending:
        value = pending.pop()
        if id(value) in seen or not isinstance(value.data, dict | list | tuple):
            continue
        seen.add(id(value))
        if isinstance(value.data, dict):
            value.data = {key: _follow_reference(root, item, 0) for key, item in value.data.items()}
            pending.extend(value.data.values())
        else:
            value.data = type(value.data)(_follow_reference(root, item, 0) for item in value.data)
            pending.extend(value.data)
    name = root.origin.file if root.origin else None
    return ensure_bounded(root, f"{name}: with its references, the file")


def _follow_reference(root: Value, value: Value, chain: int) -> Value:
    """What `value` refers to; text that a reference leads to may hold references itself."""
    if isinstance(value.data, Unknown) and (value.data.text or "").startswith(REF_TAG + " "):
        text = (value.data.text or "").removeprefix(REF_TAG + " ").strip()
    elif chain and isinstance(value.data, str) and _REFERENCE.search(value.data):
        text = value.data
    else:
        return value
    if chain >= _MAX_CHAIN:
        return value
    if not _REFERENCE.search(text):
        return Value(text, value.origin)
    whole = _REFERENCE.fullmatch(text)
    if whole:
        referenced = _look_up(root, whole[1])
        return value if referenced is None else _follow_reference(root, referenced, chain + 1)
    parts: list[str] = []
    at = 0
    for match in _REFERENCE.finditer(text):
        referenced = _look_up(root, match[1])
        target = _follow_reference(root, referenced, chain + 1) if referenced is not None else None
        if target is None or not isinstance(target.data, bool | int | float | str | None):
            return value
        parts += [text[at : match.start()], str(target.data)]
        at = match.end()
    filled = "".join([*parts, text[at:]])
    if len(filled) > _MAX_TEXT:
        return value
    return Value(_reference_arithmetic(filled), value.origin)


def _look_up(root: Value, reference: str) -> Value | None:
    value = root
    for part in reference.split("["):
        key = part.strip("]")
        if not isinstance(value.data, dict) or key not in value.data:
            return None
        value = value.data[key]
    return value


def _reference_arithmetic(text: str) -> int | float | str:
    """The number that arithmetic on literals gives; any other text is itself."""
    if not _ARITHMETIC.fullmatch(text):
        return text
    try:
        return _evaluate_arithmetic(parse_expression(text))
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError, TypeError):
        return text


def _evaluate_arithmetic(node: ast.AST) -> int | float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate_arithmetic(operand)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _evaluate_arithmetic(left), _evaluate_arithmetic(right)
            if isinstance(op, ast.Pow) and (abs(a) > 1e9 or abs(b) > 64):
                raise ValueError("power too large")
            result = _OPERATORS[type(op)](a, b)
            if isinstance(result, int | float):
                return result
    raise ValueError("not arithmetic on numbers")


# Detectron2 and yacs YAML: `_BASE_` files underneath, Python literals in strings.


BASE_KEY = "_BASE_"
_MAX_BASES = 100


def read_detectron(path: Path, root: Path) -> Value:
    """The config at `path` upon the configs its `_BASE_` names, which are read first.

    `_BASE_` is one path or a list, relative to the file. A base that is not in the repository
    (`detectron2://...`, `http://...`, absent) is left in `_BASE_` as an unknown value with its
    text. Strings such as `(60000, 80000)` become the literal, as yacs reads them. Raises
    ConfigError for a cycle of bases and for what `read_config` refuses.
    """
    reader = _DetectronReader(root)
    config = reader.read(path, ())
    if reader.absent and isinstance(config.data, dict):
        absent = reader.absent
        bases = absent[0] if len(absent) == 1 else Value(absent, absent[0].origin)
        config = Value({BASE_KEY: bases, **config.data}, config.origin)
    return ensure_bounded(config, f"{path.name}: with its bases, the file")


class _DetectronReader:
    def __init__(self, root: Path) -> None:
        self.absent: list[Value] = []
        self._root = root
        self._files = 0

    def read(self, path: Path, above: tuple[Path, ...]) -> Value:
        source = load_source(path, self._root)
        if source.path in above:
            raise source.error(
                f"is its own {BASE_KEY}, directly or through another; break the cycle"
            )
        self._files += 1
        if self._files > _MAX_BASES:
            raise source.error(f"has more than {_MAX_BASES} files under {BASE_KEY}; reduce them")
        own = _read_literals(read_yaml(source))
        if not isinstance(own.data, dict):
            return own
        bases = own.data.pop(BASE_KEY, None)
        listed = bases.data if bases is not None and isinstance(bases.data, list) else [bases]
        config = Value({}, own.origin)
        for base in (item for item in listed if item is not None):
            base_path = _local_base(base, source.path.parent, self._root)
            if base_path is None:
                self.absent.append(unknown(str(base.data), base.origin))
            else:
                config = merge(config, self.read(base_path, (*above, source.path)))
        return merge(config, own)


def _local_base(base: Value, directory: Path, root: Path) -> Path | None:
    """The file a base names, when it is one of the repository."""
    if not isinstance(base.data, str) or "://" in base.data:
        return None
    path = directory / base.data
    try:
        load_source(path, root)
    except ConfigError:
        return None
    return path


def _read_literals(value: Value) -> Value:
    if isinstance(value.data, dict):
        return Value({key: _read_literals(item) for key, item in value.data.items()}, value.origin)
    if isinstance(value.data, list):
        return Value([_read_literals(item) for item in value.data], value.origin)
    if isinstance(value.data, str) and value.data.strip()[:1] in ("(", "["):
        return lifted(parse_scalar(value.data), value.origin)
    return value
