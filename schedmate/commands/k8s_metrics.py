"""What an agent counts, for Prometheus. No label holds a name that a user can choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from schedmate.errors import UsageError, require

if TYPE_CHECKING:
    from schedmate.schedulers.live.kubernetes.adapter import KubernetesAdapter
    from schedmate.schedulers.live.report import Pass


class AgentMetrics:
    """Serves metrics at HOST:PORT for as long as it is entered."""

    def __init__(self, address: str, adapter: KubernetesAdapter, leads: Callable[[], bool]) -> None:
        require("--metrics", "k8s", "prometheus_client")
        from prometheus_client import CollectorRegistry, Counter, Gauge

        host, _, port = address.rpartition(":")
        if not port.isdecimal() or int(port) > 65_535:
            raise UsageError(f"--metrics {address!r} is not HOST:PORT, such as 0.0.0.0:9095.")
        self._host, self._port = host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - as asked
        self.registry = one = CollectorRegistry()
        self._passes = Counter("schedmate_agent_passes", "Passes over the cluster", registry=one)
        self._problems = Counter(
            "schedmate_agent_problems", "What could not be done in passes", registry=one
        )
        self._estimates = Counter(
            "schedmate_agent_estimates", "Jobs estimated", ("outcome",), registry=one
        )
        self._failures = Counter(
            "schedmate_agent_failures", "Failed runs by whose fault it was", ("type",), registry=one
        )
        self._actions = Counter(
            "schedmate_agent_actions",
            "Actions by their plan's state",
            ("kind", "state"),
            registry=one,
        )
        self._jobs = Gauge("schedmate_agent_jobs", "Jobs looked at", ("state",), registry=one)
        self._last = Gauge(
            "schedmate_agent_last_pass_timestamp_seconds", "When the last pass began", registry=one
        )
        self._waiting = Gauge(
            "schedmate_agent_plans_waiting", "Plans that wait to be approved", registry=one
        )
        leader = Gauge("schedmate_agent_leader", "Whether this agent holds the Lease", registry=one)
        leader.set_function(lambda: float(leads()))
        lists = Gauge("schedmate_agent_lists", "Lists that watches had to make", registry=one)
        lists.set_function(lambda: float(sum(mirror.lists for mirror in adapter.mirrors)))
        self._server: Any = None

    def __enter__(self) -> Self:
        from prometheus_client import start_http_server

        try:
            self._server, self._thread = start_http_server(
                self._port, addr=self._host, registry=self.registry
            )
        except OSError as error:
            raise UsageError(
                f"cannot serve metrics at {self._host}:{self._port}: {error.strerror}; choose "
                "another port with --metrics."
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_port)

    def seen(self, found: Pass) -> None:
        """Count what a pass found and did."""
        self._passes.inc()
        self._problems.inc(len(found.problems))
        self._last.set(found.time)
        self._waiting.set(len(found.waiting))
        self._jobs.labels("pending").set(found.pending)
        self._jobs.labels("running").set(found.running)
        for one in found.estimated:
            self._estimates.labels("abstained" if one.estimate.abstained else "given").inc()
        for failed in found.failed:
            self._failures.labels(
                failed.diagnosis.error_type if failed.diagnosis else "unread"
            ).inc()
        for done in found.actions:
            self._actions.labels(done.action.kind, done.state).inc()
