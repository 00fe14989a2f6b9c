"""A local copy of all objects of one kind that a selector names, updated by a watch.

It is a list, then a watch from its version on, with bookmarks; it starts again if the server does
not have that version any more (410), and every `RESYNC_S`. While it is not up to date, reading it
is an error.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from schedmate.schedulers.live.kubernetes.api import Api, Json, KubernetesError, Watching
from schedmate.schedulers.live.kubernetes.fields import text_at
from schedmate.schedulers.live.watch import pause_s

RESYNC_S = 3600.0
"""Interval after which everything is listed again, whatever the watch said [s]."""
WATCH_S = 240
"""How long one watch lasts; the server ends it then [s]."""
QUIET_S = 90.0
"""A watch without events for this long is broken: bookmarks come each minute [s]."""
ABSENT_S = 60.0
"""Interval of checking whether a kind that was not installed is now [s]."""
STALE_S = 180.0
"""Age after which the copy is not used any more [s]."""


class Mirror:
    """One list and watch, in a separate thread."""

    def __init__(
        self,
        api: Api,
        path: str,
        *,
        labels: str | None = None,
        slim: Callable[[Json], Json] = lambda one: one,
        changed: Callable[[], object] = lambda: None,
        optional: bool = False,
    ) -> None:
        """`slim` reduces an object to what is stored of it; `changed` is called after each change.

        An `optional` kind may not be installed: then there are no objects.
        """
        self.path = path
        self._api, self._labels, self._slim, self._changed = api, labels, slim, changed
        self._optional = optional
        self._objects: dict[str, Json] = {}
        self._lock = threading.Lock()
        self._synced = threading.Event()
        self._stopped = threading.Event()
        self._heard = 0.0
        self._problem = ""
        self._watching: Watching | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)
        self.lists = 0
        """How often everything was listed."""
        self.version = ""
        """The version that it has reached, by events and bookmarks."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch, and wait a little for its thread."""
        self._stopped.set()
        watching = self._watching
        if watching is not None:
            with suppress(Exception):  # it has ended by itself meanwhile
                watching.close()
        self._thread.join(5.0)

    def items(self, wait_s: float = 30.0) -> list[Json]:
        """The objects. Raises `KubernetesError` if the copy is not up to date."""
        if not self._synced.wait(wait_s):
            raise KubernetesError(self._problem or f"{self.path} was not listed in {wait_s:g} s.")
        with self._lock:
            age = time.monotonic() - self._heard
            if age > STALE_S or self._problem:
                raise KubernetesError(
                    self._problem or f"nothing was heard of {self.path} for {age:.0f} s."
                )
            return list(self._objects.values())

    # -- its thread --------------------------------------------------------

    def _run(self) -> None:
        failures, until = 0, 0.0
        while not self._stopped.is_set():
            try:
                if not self.version or time.monotonic() > until:
                    self._list()
                    until = time.monotonic() + RESYNC_S
                began = time.monotonic()
                self._follow()
                failures = 0
                if time.monotonic() - began < 1.0:  # in case a server ends each watch immediately
                    self._stopped.wait(1.0)
            except KubernetesError as error:
                if self._stopped.is_set():
                    return
                if error.code == 404 and self._optional:
                    self._set({})
                    self.version = ""
                    self._stopped.wait(ABSENT_S)
                    continue
                if error.code == 410:  # what happened since that version is forgotten
                    self.version = ""
                else:
                    with self._lock:
                        self._problem = str(error)
                if not error.passes:
                    self.version = ""
                pause = pause_s(0.25, failures, random.random()) if failures else 0.0  # noqa: S311
                failures += 1
                self._stopped.wait(max(min(pause, 30.0), error.retry_after_s or 0.0))

    def _list(self) -> None:
        self.lists += 1
        items, version = self._api.list(self.path, labelSelector=self._labels)
        self._set({text_at(one, "metadata.uid"): self._slim(one) for one in items})
        self.version = version

    def _set(self, objects: dict[str, Json]) -> None:
        with self._lock:
            self._objects, self._problem, self._heard = objects, "", time.monotonic()
        self._synced.set()
        self._changed()

    def _follow(self) -> None:
        """One watch, from the version on that the last one came to, however that ended."""
        query = {"labelSelector": self._labels, "timeoutSeconds": WATCH_S}
        watching = self._api.watch(self.path, read_s=QUIET_S, resourceVersion=self.version, **query)
        self._watching = watching
        try:
            with self._lock:
                self._heard, self._problem = time.monotonic(), ""
            if self._stopped.is_set():
                return
            for kind, found in watching:
                uid = text_at(found, "metadata.uid")
                with self._lock:
                    self._heard, self._problem = time.monotonic(), ""
                    if kind == "DELETED":
                        self._objects.pop(uid, None)
                    elif kind in ("ADDED", "MODIFIED"):
                        self._objects[uid] = self._slim(found)
                # only now, so that an event that failed comes again
                self.version = text_at(found, "metadata.resourceVersion") or self.version
                if kind != "BOOKMARK":
                    self._changed()
        finally:
            self._watching = None
        with self._lock:
            self._heard = time.monotonic()
