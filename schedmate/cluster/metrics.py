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


COUNTERS: dict[str, tuple[str, ...]] = {
    "passes": ("Passes over the cluster",),
    "problems": ("What could not be done in passes",),
    "estimates": ("Jobs estimated", "outcome"),
    "estimates_checked": (
        "Completed jobs that had an estimate, by where in its interval they ended",
        "place",
    ),
    "failures": ("Failed runs by whose fault it was", "type"),
    "actions": ("Actions by their plan's state", "kind", "state"),
}
GAUGES: dict[str, tuple[str, ...]] = {
    "jobs": ("Jobs looked at", "state"),
    "left": ("Work left for the next pass", "work"),
    "last_pass_timestamp_seconds": ("When the last pass began",),
    "plans_waiting": ("Plans that wait to be approved",),
}
"""What an agent counts, after `schedmate_agent_`: the text and the labels of each."""
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
        self._counters = {
            name: Counter(f"schedmate_agent_{name}", text, labels, registry=registry)
            for name, (text, *labels) in COUNTERS.items()
        }
        self._gauges = {
            name: prometheus_client.Gauge(
                f"schedmate_agent_{name}", text, labels, registry=registry
            )
            for name, (text, *labels) in GAUGES.items()
        }
        for place in ("below", "within", "above"):
            self._counters["estimates_checked"].labels(place)
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
        counters, gauges = self._counters, self._gauges
        counters["passes"].inc()
        counters["problems"].inc(len(result.problems))
        gauges["last_pass_timestamp_seconds"].set(result.time)
        gauges["plans_waiting"].set(len(result.waiting))
        for state in ("pending", "running", "stalled"):
            gauges["jobs"].labels(state).set(getattr(result, state))
        for work in ("unread", "undiagnosed", "unlearned"):
            gauges["left"].labels(work).set(getattr(result, work))
        for estimated in result.estimated:
            outcome = "abstained" if estimated.estimate.abstained else "given"
            counters["estimates"].labels(outcome).inc()
        for one in result.checked:
            if one.place is not None:
                counters["estimates_checked"].labels(one.place).inc()
        for failed in result.failed:
            verdict = failed.diagnosis.error_type if failed.diagnosis else "unread"
            counters["failures"].labels(verdict).inc()
        for done in result.actions:
            counters["actions"].labels(done.action.kind, done.state).inc()
