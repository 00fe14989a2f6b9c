"""A queue in which schedmate is the scheduler, on the GPUs of a Ray cluster.

Jobs are in SQLite (`store.py`), any bundled policy decides over a `Board` (`controller.py`,
`runs.py`), commands run in process groups that cannot outlive their lease (`seats.py`, `runner.py`,
`supervise.py`); `backend.py` gets GPUs from Ray, `local.py` is a Ray cluster to try it on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedmate.base.errors import UsageError
from schedmate.cluster import ClusterKind

if TYPE_CHECKING:
    from schedmate.cluster.bounds import Bounds
    from schedmate.cluster.ray.adapter import QueueAdapter


class Ray(ClusterKind[Any]):
    """Ray. Its agent is a part of schedmate's queue there, and is not started by itself."""

    name, title = "ray", "Ray"
    commands = "schedmate.commands.ray"
    next_steps = ("schedmate ray up    # a queue of jobs on the cluster",)

    @property
    def further(self) -> str:
        """See `ClusterKind.further`."""
        return "`schedmate ray queue` shows its jobs"

    why_no_start = "`schedmate ray queue` says when"

    def is_here(self) -> bool:
        """Whether Ray's own variable names a cluster, or a queue was started from here."""
        return bool(os.environ.get("RAY_ADDRESS")) or _noted_queue() is not None

    @contextmanager
    def visited(self, bounds: Bounds, user: str | None = None) -> Iterator[QueueAdapter]:
        """See `ClusterKind.visited`: the queue that was started from here last, by its file."""
        from schedmate.cluster.ray.adapter import QueueAdapter
        from schedmate.cluster.ray.store import Store

        place = _noted_queue()
        if place is None:
            raise UsageError(
                "no queue of Ray keeps its files here; run this where `schedmate ray up` was run, "
                "or see `schedmate ray queue` and `schedmate ray logs`."
            )
        with Store(place) as store:
            yield QueueAdapter(store, place.parent.name, list)

    def fact(self, bounds: Bounds) -> str:
        """See `ClusterKind.fact`; the cluster is not connected to, which takes seconds."""
        from schedmate.base.errors import require

        require("a Ray cluster", "ray", "ray")
        return f"Ray at {address_of(None)}"


# The cluster that the last `schedmate ray up` used.


def cluster_file() -> Path:
    """Where `up` notes the cluster that the other commands are to find."""
    from schedmate.settings import data_dir

    return data_dir() / "ray" / "cluster.json"


def note_cluster(address: str, state: Path, *, local: bool = False) -> None:
    """Note a cluster and the directory of its queue; a `local` one ends with its queue."""
    from schedmate.base.data import dumps
    from schedmate.base.files import replaced

    place = cluster_file()
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with replaced(place) as part:
        part.write_text(dumps({"address": address, "local": local, "state": str(state)}))


def forget_cluster(address: str) -> None:
    """The cluster is no more."""
    if _noted_cluster().get("address") == address:
        cluster_file().unlink(missing_ok=True)


def address_of(address: str | None) -> str:
    """The address to connect to."""
    noted = _noted_cluster().get("address")
    last = noted if isinstance(noted, str) else None
    return address or os.environ.get("RAY_ADDRESS") or last or "auto"


def is_local_cluster(address: str) -> bool:
    """Whether a cluster is that of `up --local`."""
    noted = _noted_cluster()
    return noted.get("address") == address and noted.get("local") is True


def _noted_queue() -> Path | None:
    """The file of the queue that was started from here last, if it is there."""
    from schedmate.cluster.ray.store import QUEUE_FILE

    state = _noted_cluster().get("state")
    place = Path(state) / QUEUE_FILE if isinstance(state, str) else None
    return place if place is not None and place.is_file() else None


def _noted_cluster() -> dict[str, Any]:
    try:
        document = json.loads(cluster_file().read_text())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
