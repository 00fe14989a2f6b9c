"""Finding the queue actor of a Ray cluster, and asking it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from schedmate.errors import InputError
from schedmate.files import replaced
from schedmate.plain import dumps

AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="The Ray cluster. Default: RAY_ADDRESS, then that of the last `ray up`, then auto.",
    ),
]
NameOption = Annotated[
    str, typer.Option("--name", help="Name of the queue, if the cluster has several.")
]
DEFAULT = "default"
PATIENCE_S = 60.0
"""How long a queue that is being restarted is waited for [s]."""
CALL_S = 30.0


def note_file() -> Path:
    """Where `up` notes the cluster that the other commands are to find."""
    from schedmate.settings import data_dir

    return data_dir() / "ray" / "cluster.json"


def note(address: str, *, local: bool = False) -> None:
    """Note a cluster; a `local` one ends with its queue."""
    place = note_file()
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with replaced(place) as part:
        part.write_text(dumps({"address": address, "local": local}))


def forget(address: str) -> None:
    """The cluster is no more."""
    if _noted().get("address") == address:
        note_file().unlink(missing_ok=True)


def address_of(given: str | None) -> str:
    """The address to connect to."""
    noted = _noted().get("address")
    last = noted if isinstance(noted, str) else None
    return given or os.environ.get("RAY_ADDRESS") or last or "auto"


def is_local(address: str) -> bool:
    """Whether a cluster is that of `up --local`."""
    noted = _noted()
    return noted.get("address") == address and noted.get("local") is True


def _noted() -> dict[str, Any]:
    try:
        found = json.loads(note_file().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def actor_name(name: str) -> str:
    """What Ray calls a queue's actor."""
    return f"queue:{name}"


class Client:
    """The queue of a name on a cluster. Raises `InputError` where there is none."""

    def __init__(self, address: str | None, name: str) -> None:
        from schedmate.schedulers.live.ray.backend import connect

        self.name, self.address = name, address_of(address)
        connect(self.address)
        self.actor = find(name)
        if self.actor is None:
            raise InputError(
                f"the Ray cluster at {self.address} has no queue {name!r}; `schedmate ray up` "
                "starts one."
            )

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the queue; waits while it is being restarted.

        Whatever is asked may be asked again, since the first answer may have been lost.
        """
        import ray

        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return ray.get(getattr(self.actor, method).remote(*arguments), timeout=CALL_S)
            except ray.exceptions.RayTaskError as error:
                cause = error.cause or error
                raise InputError(f"the queue cannot do that: {cause}") from None
            except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
                if time.monotonic() > until:
                    raise InputError(
                        f"the queue {self.name!r} does not answer: {type(error).__name__}; see "
                        "`ray list actors`, or `schedmate ray down` and `up` again."
                    ) from None
                time.sleep(0.5)
                self.actor = find(self.name) or self.actor


def find(name: str) -> Any:
    """The queue's actor, or None."""
    import ray

    from schedmate.schedulers.live.ray.backend import NAMESPACE

    try:
        return ray.get_actor(actor_name(name), namespace=NAMESPACE)
    except ValueError:
        return None
