"""Selects the active one of several agents: the one that holds a Lease, by renewing it.

A Lease is written only at the version that was read, so that of two attempts one fails. Its times
are from other clocks: an agent measures from when it saw the Lease change, by its own clock, and
the duration that it states counts within bounds. An agent that could not renew in time stops acting
before another may begin.
"""

from __future__ import annotations

import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from schedmate.cluster.claims import ClaimedError
from schedmate.cluster.kubernetes.api import Api, number_at, text_at
from schedmate.cluster.kubernetes.connection import Json, KubernetesError
from schedmate.cluster.kubernetes.workloads import path_of

DURATION_S = 15
"""After this long without renewal another agent may take the Lease [s]."""
RENEW_S = 4.0
"""How often it is renewed [s]."""
LONGEST_S = 60.0
"""After this long another agent may take it, whatever duration its holder wrote into it [s]."""
GIVE_UP_S = 10.0
"""Without renewal for this long the holder itself stops acting [s]."""


class Leadership:
    """One agent's part in the election."""

    def __init__(self, api: Api, namespace: str, name: str, *, identity: str = "") -> None:
        self.identity = identity or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._api, self._name = api, name
        self._list = path_of("coordination.k8s.io", "v1", "leases", namespace)
        self._path = f"{self._list}/{name}"
        self._renewed = -math.inf
        self._seen: tuple[str, float] | None = None
        self._stopped = threading.Event()
        self.holder = ""
        """Who held the lease when it was last read."""

    @property
    def held(self) -> bool:
        """Whether this agent may act."""
        return time.monotonic() - self._renewed < GIVE_UP_S

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Hold the Lease until the block ends, renewing it in the background.

        Raises `ClaimedError` at once if another agent holds it, `KubernetesError` if the holder is
        unknown.
        """
        if not self.attempt():
            raise ClaimedError(f"{self.holder} works on this cluster; wait for it to end.")
        self._stopped.clear()
        renewing = threading.Thread(target=self._renew, name="lease", daemon=True)
        renewing.start()
        try:
            yield
        finally:
            self._stopped.set()
            renewing.join(5.0)
            with suppress(KubernetesError):
                self._release()

    def attempt(self) -> bool:
        """Take or renew the Lease if no other agent has it; return whether it is ours now."""
        began = time.monotonic()
        try:
            lease = self._api.get(self._path)
        except KubernetesError as error:
            if error.code != 404:
                raise
            return self._written(lambda: self._api.create(self._list, self._body(None)), began)
        self.holder = text_at(lease, "spec.holderIdentity")
        if self.holder not in ("", self.identity) and not self._is_over(lease):
            return False
        return self._written(lambda: self._api.replace(self._path, self._body(lease)), began)

    def _written(self, write: object, began: float) -> bool:
        try:
            write()  # type: ignore[operator]
        except KubernetesError as error:
            if error.code != 409:  # another one was quicker
                raise
            return False
        self._renewed, self.holder = began, self.identity
        return True

    def _is_over(self, lease: Json) -> bool:
        """Whether we have observed for its whole duration that its holder did not renew it."""
        version, now = text_at(lease, "metadata.resourceVersion"), time.monotonic()
        if self._seen is None or self._seen[0] != version:
            self._seen = version, now
        duration = number_at(lease, "spec.leaseDurationSeconds", DURATION_S)
        return now - self._seen[1] > min(max(duration, DURATION_S), LONGEST_S)

    def _body(self, lease: Json | None) -> Json:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = dict((lease or {}).get("spec") or {})
        if spec.get("holderIdentity") != self.identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = number_at(lease, "spec.leaseTransitions") + (
                lease is not None
            )
        spec |= {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": DURATION_S,
            "renewTime": now,
        }
        metadata = (lease or {}).get("metadata") or {"name": self._name}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": spec,
        }

    def _renew(self) -> None:
        while not self._stopped.wait(RENEW_S):
            with suppress(KubernetesError):  # `held` ends by itself
                self.attempt()

    def _release(self) -> None:
        lease = self._api.get(self._path)
        if text_at(lease, "spec.holderIdentity") == self.identity:
            spec = {**lease["spec"], "holderIdentity": ""}
            self._api.replace(self._path, {**lease, "spec": spec})
        self._renewed = -math.inf
