"""Which of several configurations a program chose, where it reads or makes them all.

A package that keeps a file for each model reads every one of them into a table and takes one by its
name. A module of presets makes a record for each experiment. What was passed over says nothing of
the run, however much it looks like its settings.
"""

from __future__ import annotations

from schedmate.agent.interp.objects import Class, Instance, as_instance
from schedmate.agent.interp.trace import Settings
from schedmate.agent.values import Items, Value

_OF_THE_LAUNCH = frozenset({"command", "script", "environment", "default", "config"})
"""Sources of keys that a launch chooses a section by; those that the code spells only name one."""


class Choice:
    """What was taken of tables of configurations, and which records were handed on."""

    def __init__(self) -> None:
        self._read: dict[int, object] = {}  # kept alive, so that no other has their identity
        self._in_tables: set[int] = set()
        self._picked: set[int] = set()
        self._records: dict[int, tuple[Class, list[Instance]]] = {}
        self._handed: set[int] = set()
        self._sections: dict[int, tuple[Items, set[int]]] = {}
        self._by_launch: set[int] = set()

    def reads(self, value: Value) -> None:
        """A configuration was read, or a record of settings made."""
        self._read[id(value.data)] = value.data

    def constructs(self, record: Instance) -> None:
        """A record of settings is made."""
        self._records.setdefault(id(record.cls), (record.cls, []))[1].append(record)

    def hands(self, value: Value) -> None:
        """A value is handed to a call by itself, not in a sequence of several."""
        if as_instance(value) is not None:
            self._handed.add(id(value.data))

    def picks(self, table: Items, value: Value, key: Value) -> None:
        """An item of a mapping is taken by its key."""
        self._sections.setdefault(id(table), (table, set()))[1].add(id(value.data))
        if key.origin is not None and key.origin.source in _OF_THE_LAUNCH:
            self._by_launch.add(id(table))
        taken = _settings_of(value)
        if taken not in self._read:
            return
        beside = {_settings_of(item) for item in table.values()} & self._read.keys()
        if len(beside) > 1:
            self._in_tables |= beside
            self._picked.add(taken)

    def chosen(self, settings: list[Settings]) -> list[Settings]:
        """The settings without configurations that others were chosen in place of."""
        passed_over = (self._in_tables - self._picked) | self._left_aside()
        if not passed_over:
            return settings
        return [group for group in settings if id(group.value.data) not in passed_over]

    def sections(self) -> dict[int, object]:
        """The sections of tables that nothing took, where the launch says which one is taken.

        `full[args.dataset][args.model]` of a file leaves those of other datasets and models aside.
        """
        return {
            id(item.data): item.data
            for place, (table, taken) in self._sections.items()
            if place in self._by_launch
            for item in table.values()
            if isinstance(item.data, dict) and id(item.data) not in taken
        }

    def _left_aside(self) -> set[int]:
        """Records that nothing was given, of classes of which another one was handed on."""
        found: set[int] = set()
        for _, records in self._records.values():
            used = [record for record in records if id(record) in self._handed]
            if used:
                for record in records:
                    if id(record) not in self._handed:
                        found.add(id(record.attrs))
                        if record.items is not None:
                            found.add(id(record.items.data))
        return found


def _settings_of(value: Value) -> int:
    """The identity that the settings of a configuration or a record are known by."""
    record = as_instance(value)
    return id(record.attrs if record is not None else value.data)
