"""The interface to a provider of GPUs: nodes, and runners that hold GPUs on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol


class NodeSeen(NamedTuple):
    """One node that is there now."""

    id: str
    """Its own for as long as it lives: a node that comes back has another."""
    name: str
    gpus: int
    gpu_type: str = ""
    cpus: float = 0
    memory_mb: float = 0


class SeatDeadError(Exception):
    """The runner's process has ended for certain."""


class SeatSilentError(Exception):
    """The runner does not answer: it, its node or the network may be gone."""


class SeatMethodError(Exception):
    """A request failed on the runner: a full disk, a folder that cannot be created."""


class Backend(Protocol):
    """Starts runners (`Runner`) on nodes and calls them without waiting.

    A handle identifies a runner, a reference a call; both are the backend's own objects.
    """

    def nodes(self) -> list[NodeSeen]:
        """The nodes with GPUs that are alive."""
        ...

    def create(self, name: str, node: str, gpus: float) -> Any:
        """Create a runner that holds this many GPUs of a node; it may still be starting."""
        ...

    def existing(self) -> dict[str, Any]:
        """Existing runners by name, after a restart of the queue."""
        ...

    def call(self, handle: Any, method: str, *arguments: Any) -> Any:
        """Call a method of a runner; return the reference of the answer."""
        ...

    def ready(self, references: Sequence[Any], timeout_s: float) -> list[Any]:
        """Those that have an answer; waits for one at least, or the time [s]."""
        ...

    def answer(self, reference: Any) -> Any:
        """The answer of a ready call. Raises `SeatDeadError`, `SeatSilentError`, or
        `SeatMethodError` for what the method raised."""
        ...

    def kill(self, handle: Any) -> None:
        """Kill a runner, with the commands that it runs."""
        ...
