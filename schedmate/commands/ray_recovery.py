"""Recovery on the queue of `schedmate ray`: its rules, and the command with which a job goes on."""

from __future__ import annotations

from pathlib import Path

from schedmate.errors import SchedmateError, SettingsError
from schedmate.recovery.checkpoints import newest, resumed
from schedmate.recovery.configuration import Configuration, load_configuration
from schedmate.schedulers.live.queue.requests import StoredJob


def load_recovery(
    path: str | None, state: Path, cluster: str, *, restart: bool
) -> Configuration | None:
    """recovery.yaml for this queue; without one, with `restart`, the defaults with restarts and
    notices automatic; else None.

    Raises `SettingsError` for that of another cluster.
    """
    if path is None:
        if not restart:
            return None
        return Configuration(
            version=1,
            cluster=cluster,
            record=state / "record.db",
            kill_switch=state / "stop",
            automatic=frozenset({"restart", "notify"}),
        )
    found = load_configuration(Path(path))
    if found.cluster not in ("default", cluster):
        raise SettingsError(
            f"{path} is for cluster {found.cluster!r}, and this is {cluster!r}; name the file of "
            "this one, or set `cluster` in it."
        )
    return found.model_copy(update={"cluster": cluster})


def resumed_command(stored: StoredJob) -> str:
    """The command with which a job goes on from its newest complete checkpoint, if it named the
    directory of its checkpoints and there is one."""
    command, folder = stored.request.spec.command or "", stored.request.checkpoints
    if folder is None:
        return command
    try:
        # nobody writes to it any more: the job's processes have ended
        saved = newest(Path(stored.request.spec.repo or "/") / folder, settle_s=0.0)
        return command if saved is None else resumed(command, saved)[0]
    except (SchedmateError, OSError):
        return command
