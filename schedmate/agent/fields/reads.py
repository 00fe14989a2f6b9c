"""Which keys of a configuration file the program can read at all.

A file may hold keys that no code reads any more. A key counts as read where a module that was
followed spells it, or where it is in something that a library is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from schedmate.agent.fields.candidates import Candidate
from schedmate.agent.fields.leaves import Setting, normal
from schedmate.agent.interp.objects import Instance
from schedmate.agent.interp.trace import Trace
from schedmate.agent.values import Value

NOTE = "no code of this run was seen to read this key"
_LEAST_KEYS = 3
_LEAST_SHARE = 0.5
"""Share of a file's keys that the code must spell, so that it is known to read them by name."""
_BY_LIBRARY = re.compile(
    r"merge_from|get_cfg|instantiate|build_from|fromfile|load_config|from_(file|config|dict|yaml)"
)
"""How libraries are told to read configurations in ways of their own."""
_DEEP = 3
_MANY = 5_000
"""Mappings that are looked through, of those that libraries are given."""


class Reads:
    """What the modules of a run spell, looked up when it is asked for."""

    def __init__(self, trace: Trace, settings: list[Setting]) -> None:
        self._trace = trace
        self._settings = settings
        self._handed: set[str] | None = None
        self._by_library: bool | None = None
        self._spelt: dict[str, bool] = {}
        self._by_name: dict[str, bool] = {}
        self._marked: set[tuple[str | None, int | None]] = set()

    def mark(self, known: Iterable[tuple[int, Setting]]) -> None:
        """Say of each of the settings, by rank, whether it stands in a file and is not read."""
        for _, setting in known:
            origin = setting.value.origin
            if setting.kind != "config" or setting.source != "config" or origin is None:
                continue
            if not self._is_read(setting.path[-1]) and self._reads_by_name(setting.owner):
                setting.unread = True
                self._marked.add((origin.file, origin.line))

    def doubted(self, candidate: Candidate) -> Candidate:
        """The candidate, doubted with a note for people where it is of a file and is not read."""
        if candidate.place not in self._marked:
            return candidate
        return replace(candidate, note=NOTE, doubted=True)

    def _is_read(self, key: str) -> bool:
        if key not in self._spelt:
            word = re.compile(r"\b" + "[-_]".join(map(re.escape, key.split("-"))) + r"\b")
            self._spelt[key] = any(word.search(text) for text in self._trace.texts)
        return self._spelt[key] or normal(key) in self._given()

    def _reads_by_name(self, owner: str) -> bool:
        """Whether the program reads a file key by key: it spells most of them."""
        if self._by_library is None:
            libraries = (event.path for event in self._trace.calls if event.cls is None)
            self._by_library = any(map(_BY_LIBRARY.search, libraries))
        if self._by_library:
            return False
        if owner not in self._by_name:
            keys = {s.path[-1] for s in self._settings if s.kind == "config" and s.owner == owner}
            spelt = sum(self._is_read(key) for key in keys)
            self._by_name[owner] = spelt >= max(_LEAST_KEYS, _LEAST_SHARE * len(keys))
        return self._by_name[owner]

    def _given(self) -> set[str]:
        """The keys, normalised, of what calls are given by keyword or in mappings."""
        if self._handed is None:
            self._handed = set()
            seen: set[int] = set()
            for event in self._trace.calls:
                self._handed.update(map(normal, event.kwargs))
                if event.cls is None or event.cls.external_bases():
                    for value in (*event.args, *event.kwargs.values()):
                        self._handed.update(_keys(value, 0, seen))
        return self._handed


def _keys(value: Value, depth: int, seen: set[int]) -> Iterator[str]:
    """The keys of a mapping and of those in it, normalised, each mapping once."""
    data = value.data
    items = data.attrs if isinstance(data, Instance) else data
    if not isinstance(items, dict) or depth > _DEEP or id(items) in seen or len(seen) > _MANY:
        return
    seen.add(id(items))
    for key, item in items.items():
        if isinstance(key, str):
            yield normal(key)
        if isinstance(item, Value):
            yield from _keys(item, depth + 1, seen)
