"""Recovery through a cluster's adapter: rules and guards of recovery.yaml, actions of the
adapter."""

from __future__ import annotations

from schedmate.errors import SettingsError
from schedmate.recovery.configuration import Configuration, load_configuration
from schedmate.recovery.inventory import Inventory
from schedmate.recovery.local import LocalExecutor
from schedmate.recovery.proposing import Case, propose
from schedmate.recovery.service import Recovery
from schedmate.schedulers.live.actions import Action, Notify
from schedmate.schedulers.live.adapter import ClusterAdapter
from schedmate.schedulers.live.apply import Result
from schedmate.schedulers.live.bounds import Bounds
from schedmate.schedulers.live.ended import Failure
from schedmate.schedulers.live.executor import Answer, Finding, Ran, Runner
from schedmate.schedulers.live.plans import Plan
from schedmate.schedulers.live.record import Record
from schedmate.schedulers.live.statuses import PlanStatus


def load_recovery(bounds: Bounds, cluster: str) -> Configuration | None:
    """recovery.yaml for a cluster, if the bounds name one.

    Raises `SettingsError` for that of another cluster.
    """
    if bounds.recovery is None:
        return None
    found = load_configuration(bounds.recovery)
    if found.cluster not in ("default", cluster):
        raise SettingsError(
            f"{bounds.recovery} is for cluster {found.cluster!r}, and this is {cluster!r}."
        )
    return found.model_copy(update={"cluster": cluster})


class ClusterExecutor:
    """Takes recovery's actions through an adapter, and lists its nodes.

    People are notified by the site's command (`commands: notify`); without one, by the record and
    the agent's output.
    """

    def __init__(
        self, adapter: ClusterAdapter, configuration: Configuration, runner: Runner
    ) -> None:
        self.name = adapter.name
        self._adapter, self._runner = adapter, runner
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
        """See `Runner.run`."""
        return self._runner.run(command, nodes, key=key, timeout_s=timeout_s)


class NoRunner:
    """A `Runner` for a cluster on which no diagnostics are run; `where` names it for people."""

    def __init__(self, where: str) -> None:
        self._where = where

    def run(
        self, command: tuple[str, ...], nodes: tuple[str, ...], *, key: str, timeout_s: float
    ) -> Ran:
        """See `Runner.run`; the result of the diagnostics is unknown here."""
        return Ran(None, "", f"schedmate runs no diagnostics on {self._where}")


class ClusterRecovery:
    """The loop's `Healer`."""

    def __init__(
        self,
        adapter: ClusterAdapter,
        configuration: Configuration,
        record: Record | None,
        runner: Runner,
        by: str = "schedmate agent",
    ) -> None:
        self._configuration = configuration
        self._service = None
        if record is not None:
            executor = ClusterExecutor(adapter, configuration, runner)
            self._service = Recovery(configuration, record, executor, by=by)

    def preview(self, failure: Failure) -> Plan | None:
        """See `Healer.preview`."""
        return propose(_case(failure), self._configuration, None).plan

    def propose(self, failure: Failure) -> PlanStatus | None:
        """See `Healer.propose`."""
        assert self._service is not None
        return self._service.plan(_case(failure))[1]

    def apply(self, id_: str) -> Result:
        """See `Healer.apply`."""
        assert self._service is not None
        return self._service.apply(id_).result

    def undo(self, id_: str) -> Result:
        """Undo the steps of a plan, except what somebody else has changed since."""
        assert self._service is not None
        return self._service.undo(id_)


def _case(failure: Failure) -> Case:
    run = failure.run
    return Case(
        job=run.job, run=failure.restarts, diagnosis=failure.diagnosis, nodes=tuple(run.nodes)
    )
