"""What an agent tells monitors over HTTP: metrics for Prometheus, that it lives, that it is ready.

No label holds a name that a user can choose.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from schedmate.base.data import dumps
from schedmate.base.errors import UsageError, require
from schedmate.base.inputs import format_duration

if TYPE_CHECKING:
    from schedmate.cluster import ClusterKind
    from schedmate.cluster.report import Pass

LATE_S = 300.0
"""Age of the last pass from which an agent is not ready, if it pauses up to a tenth of that [s]."""


class Gauge(NamedTuple):
    """A number that only one kind of cluster has, and how it is asked for."""

    text: str
    value: Callable[[], float]


@contextmanager
def metrics_at(
    address: str | None,
    kind: ClusterKind[Any],
    poll_s: float,
    gauges: Mapping[str, Gauge] = MappingProxyType({}),
) -> Iterator[AgentMetrics | None]:
    """The metrics of an agent that looks every `poll_s`, served at an address; None without one."""
    if address is None:
        yield None
        return
    require("--metrics", "k8s" if kind.group == "k8s" else "serve", "prometheus_client")
    with AgentMetrics(address, gauges, late_s=max(LATE_S, 10.0 * poll_s)) as metrics:
        yield metrics


_JSON = ("Content-Type", "application/json")


class AgentMetrics:
    """Serves `/metrics`, `/healthz` and `/readyz` at HOST:PORT for as long as it is entered.

    It is ready (200, else 503 with the reason) if its last pass was completed at most `late_s` ago,
    or while it stands by for another agent.
    """

    def __init__(
        self,
        address: str,
        gauges: Mapping[str, Gauge] = MappingProxyType({}),
        late_s: float = LATE_S,
    ) -> None:
        import prometheus_client
        from prometheus_client import CollectorRegistry, Counter

        host, _, port = address.rpartition(":")
        if not port.isdecimal() or int(port) > 65_535:
            raise UsageError(f"--metrics {address!r} is not HOST:PORT, such as 0.0.0.0:9095.")
        self._host, self._port = host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - as asked
        self.registry = registry = CollectorRegistry()
        self._passes = Counter(
            "schedmate_agent_passes", "Passes over the cluster", registry=registry
        )
        self._problems = Counter(
            "schedmate_agent_problems", "What could not be done in passes", registry=registry
        )
        self._estimates = Counter(
            "schedmate_agent_estimates", "Jobs estimated", ("outcome",), registry=registry
        )
        self._checked = Counter(
            "schedmate_agent_estimates_checked",
            "Completed jobs that had an estimate, by where in its interval they ended",
            ("place",),
            registry=registry,
        )
        for place in ("below", "within", "above"):
            self._checked.labels(place)
        self._failures = Counter(
            "schedmate_agent_failures",
            "Failed runs by whose fault it was",
            ("type",),
            registry=registry,
        )
        self._actions = Counter(
            "schedmate_agent_actions",
            "Actions by their plan's state",
            ("kind", "state"),
            registry=registry,
        )
        self._jobs = prometheus_client.Gauge(
            "schedmate_agent_jobs", "Jobs looked at", ("state",), registry=registry
        )
        self._left = prometheus_client.Gauge(
            "schedmate_agent_left", "Work left for the next pass", ("work",), registry=registry
        )
        self._last = prometheus_client.Gauge(
            "schedmate_agent_last_pass_timestamp_seconds",
            "When the last pass began",
            registry=registry,
        )
        self._waiting = prometheus_client.Gauge(
            "schedmate_agent_plans_waiting", "Plans that wait to be approved", registry=registry
        )
        for name, gauge in gauges.items():
            shown = prometheus_client.Gauge(name, gauge.text, registry=registry)
            shown.set_function(gauge.value)
        self._server: Any = None
        self._late_s = late_s
        self._passed: float | None = None
        self._stands_by = False

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
        self._metrics = self._server.get_app()
        self._server.set_app(self._answer)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        """The port of the metrics server."""
        return int(self._server.server_port)

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO")
        if path not in ("/healthz", "/readyz"):
            answer: Iterable[bytes] = self._metrics(environ, start)
            return answer
        why_not = self.why_not_ready() if path == "/readyz" else None
        start("200 OK" if why_not is None else "503 Service Unavailable", [_JSON])
        status = "ok" if why_not is None else "unavailable"
        return [dumps({"status": status, "detail": why_not}).encode()]

    def why_not_ready(self) -> str | None:
        """Why its work is not done, in a sentence; None: it is done, or by another agent."""
        if self._stands_by:
            return None
        if self._passed is None:
            return "no pass over the cluster has been completed yet"
        age = time.monotonic() - self._passed
        if age <= self._late_s:
            return None
        return f"the last complete pass was {format_duration(age)} ago; the agent's log says why"

    def stands_by(self, waits: bool) -> None:
        """Whether another agent works on the cluster, whose end this one waits for."""
        self._stands_by = waits

    def seen(self, result: Pass) -> None:
        """Add the problems, failures, estimates and actions of a pass to the metrics."""
        self._passed = time.monotonic()
        self._passes.inc()
        self._problems.inc(len(result.problems))
        self._last.set(result.time)
        self._waiting.set(len(result.waiting))
        self._jobs.labels("pending").set(result.pending)
        self._jobs.labels("running").set(result.running)
        self._jobs.labels("stalled").set(result.stalled)
        for work in ("unread", "undiagnosed", "unlearned"):
            self._left.labels(work).set(getattr(result, work))
        for estimated in result.estimated:
            self._estimates.labels("abstained" if estimated.estimate.abstained else "given").inc()
        for one in result.checked:
            if one.place is not None:
                self._checked.labels(one.place).inc()
        for failed in result.failed:
            self._failures.labels(
                failed.diagnosis.error_type if failed.diagnosis else "unread"
            ).inc()
        for done in result.actions:
            self._actions.labels(done.action.kind, done.state).inc()
