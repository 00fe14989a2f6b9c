"""Recovery on the queue of `schedmate ray`: rules and guards of recovery.yaml, the queue's acts."""

from __future__ import annotations

from pathlib import Path

from schedmate.errors import SchedmateError, SettingsError
from schedmate.recovery.checkpoints import newest, resumed
from schedmate.recovery.configuration import Configuration, load_configuration
from schedmate.recovery.inventory import Inventory
from schedmate.recovery.local import LocalExecutor
from schedmate.recovery.proposing import Case, propose
from schedmate.recovery.service import Recovery
from schedmate.schedulers.live.actions import Action, Notify
from schedmate.schedulers.live.apply import Result
from schedmate.schedulers.live.ended import Failure
from schedmate.schedulers.live.executor import Answer, Finding, Ran
from schedmate.schedulers.live.plans import Plan
from schedmate.schedulers.live.queue.adapter import QueueAdapter
from schedmate.schedulers.live.queue.requests import StoredJob
from schedmate.schedulers.live.record import Record
from schedmate.schedulers.live.statuses import PlanStatus


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
        raise SettingsError(f"{path} is for cluster {found.cluster!r}, and this is {cluster!r}.")
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


class QueueExecutor:
    """Takes recovery's actions on the queue. Without a command `notify` the record tells people."""

    name = "ray"

    def __init__(self, adapter: QueueAdapter, configuration: Configuration) -> None:
        self._adapter = adapter
        commands = configuration.commands
        self._notify = LocalExecutor(commands) if commands and commands.notify else None

    def probe(self, action: Action) -> Finding:
        """See `Executor.probe`."""
        return Finding("ready") if isinstance(action, Notify) else self._adapter.probe(action)

    def act(self, action: Action, *, key: str, timeout_s: float) -> Answer:
        """See `Executor.act`."""
        if not isinstance(action, Notify):
            return self._adapter.act(action, key=key, timeout_s=timeout_s)
        if self._notify is None:
            return Answer("done", f"written down for the {action.to}: {action.text}")
        return self._notify.act(action, key=key, timeout_s=timeout_s)

    def inventory(self) -> Inventory:
        """See `HasInventory.inventory`."""
        return Inventory.of(
            (one.name, one.queues, None if one.healthy else one.reason or "out of service")
            for one in self._adapter.nodes()
        )

    def run(
        self, command: tuple[str, ...], nodes: tuple[str, ...], *, key: str, timeout_s: float
    ) -> Ran:
        """Diagnostics are not run here: what they would say is not known."""
        return Ran(None, "", "the queue of `schedmate ray` runs no diagnostics")


class QueueRecovery:
    """The loop's `Healer`."""

    def __init__(self, adapter: QueueAdapter, configuration: Configuration, record: Record) -> None:
        self._configuration = configuration
        executor = QueueExecutor(adapter, configuration)
        self._service = Recovery(configuration, record, executor, by="schedmate ray")

    def preview(self, failure: Failure) -> Plan | None:
        """See `Healer.preview`."""
        return propose(_case(failure), self._configuration, None).plan

    def propose(self, failure: Failure) -> PlanStatus | None:
        """See `Healer.propose`."""
        return self._service.plan(_case(failure))[1]

    def apply(self, id_: str) -> Result:
        """See `Healer.apply`."""
        return self._service.apply(id_).result


def _case(failure: Failure) -> Case:
    return Case(
        job=failure.run.job,
        run=failure.restarts,
        diagnosis=failure.diagnosis,
        nodes=tuple(failure.run.nodes),
    )
