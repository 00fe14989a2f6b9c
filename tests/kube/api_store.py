"""What the stand-in keeps, as etcd does for an API server: versions, events, compaction."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Key = tuple[str, str, str, str]
"""Group, plural, namespace (empty: none), name."""


class Event(NamedTuple):
    version: int
    type: str
    key: Key
    found: dict[str, Any]
    before: dict[str, Any] | None


class Store:
    """It outlives the server: one that is restarted goes on with it."""

    def __init__(self) -> None:
        self.version = 100
        self.floor = 100
        self.objects: dict[Key, dict[str, Any]] = {}
        self.events: list[Event] = []
        self.changed = threading.Condition(threading.RLock())
        self.owners: dict[Key, dict[str, set[tuple[str, ...]]]] = {}
        """For apply: the fields that each field manager owns."""

    def put(self, key: Key, found: dict[str, Any] | None) -> dict[str, Any]:
        """Write an object, or with None delete it; gives it as it is, or was."""
        with self.changed:
            before = self.objects.get(key)
            self.version += 1
            kept = copy.deepcopy(found if found is not None else before)
            assert kept is not None
            kept["metadata"]["resourceVersion"] = str(self.version)
            if found is None:
                del self.objects[key]
                self.owners.pop(key, None)
                type_ = "DELETED"
            else:
                self.objects[key] = kept
                type_ = "ADDED" if before is None else "MODIFIED"
            self.events.append(Event(self.version, type_, key, kept, before))
            self.changed.notify_all()
            return copy.deepcopy(kept)

    def get(self, key: Key) -> dict[str, Any] | None:
        with self.changed:
            return copy.deepcopy(self.objects.get(key))

    def compact(self) -> None:
        """Forget all events: older versions are gone."""
        with self.changed:
            self.floor = self.version
            self.events.clear()

    def select(
        self, fits: Callable[[Key, dict[str, Any]], bool]
    ) -> list[tuple[Key, dict[str, Any]]]:
        with self.changed:
            return [
                (k, copy.deepcopy(one)) for k, one in sorted(self.objects.items()) if fits(k, one)
            ]

    def follow(
        self, version: int, until: float, stopped: Callable[[], bool]
    ) -> Iterator[Event | None]:
        """Events past a version until a moment (`time.monotonic`); None now and then."""
        while time.monotonic() < until and not stopped():
            with self.changed:
                news = [one for one in self.events if one.version > version]
                if not news:
                    self.changed.wait(min(0.2, until - time.monotonic()))
            yield from news
            version = news[-1].version if news else version
            if not news:
                yield None
