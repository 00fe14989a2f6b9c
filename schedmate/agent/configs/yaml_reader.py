"""YAML text to a `Value` tree, from the parser's events: no tag is ever constructed.

Events, not composed nodes, because PyYAML's composer recurses in C without a limit: a few hundred
kilobytes of `- ` would end the process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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

from schedmate.agent.configs.files import Source
from schedmate.agent.configs.scalars import CORE, construct, implicit_tag
from schedmate.agent.configs.trees import MAX_DEPTH, MAX_NODES, ensure_bounded
from schedmate.agent.values import Items, Value, unknown

TAG = "__tag__"
"""Key under which a mapping with an unknown tag keeps that tag."""
ARGS = "__args__"
"""Key under which a sequence with an unknown tag keeps its items, next to `TAG`."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAX_DIRECTIVES = 100
"""Lines that begin with `%`: libyaml compares each `%TAG` with all before."""
_MERGE_KEY = object()
_PLAIN_SEQUENCES = {CORE + name for name in ("seq", "omap", "pairs", "python/list")}
_PLAIN_MAPPINGS = {CORE + name for name in ("map", "set", "omap", "python/dict")}


@dataclass(slots=True)
class _Frame:
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


class _Builder:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.documents: list[Value] = []
        self._frames: list[_Frame] = []
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
                value = unknown(f"{_short(tag)} {text}".strip(), origin)
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
        frame = _Frame(value, mapping, tag, event.anchor)
        value.data = frame.items if mapping else frame.elements
        if mapping and tag is not None and tag not in _PLAIN_MAPPINGS:
            frame.items[TAG] = Value(_short(tag), value.origin)
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
            frame.value.data = {TAG: Value(_short(frame.tag), frame.value.origin), ARGS: items}
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


def _short(tag: str) -> str:
    return tag.replace(CORE, "!!", 1) if tag.startswith(CORE) else tag


def read_yaml(source: Source) -> Value:
    """The document of a YAML text, or a list of documents when there are several.

    A scalar under an unknown tag is unknown; a mapping under one gets the tag as `__tag__`, a
    sequence becomes `{__tag__, __args__}`.
    Raises ConfigError, with the line, for broken syntax, and for aliases that expand too far.
    """
    builder = _Builder(source)
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
