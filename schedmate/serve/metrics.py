"""What the service counts, for Prometheus. No label holds a name that a user can choose."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_RATIOS = (0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0, 1.11, 1.25, 1.5, 2, 3, 5, 10)


class Metrics:
    """The counters of one service, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        make = {"namespace": "schedmate", "registry": self.registry}
        self.requests = Counter(
            "http_requests",
            "Requests by route and status",
            ("route", "method", "status"),
            namespace="schedmate",
            registry=self.registry,
        )
        self.latency = Histogram(
            "http_request_seconds",
            "Time of requests by route [s]",
            ("route",),
            buckets=_SECONDS,
            namespace="schedmate",
            registry=self.registry,
        )
        self.in_flight = Gauge("http_requests_in_flight", "Requests being answered", **make)
        self.refused = Counter(
            "http_refused", "Requests that were not taken on", ("reason",),
            namespace="schedmate", registry=self.registry,
        )  # fmt: skip
        self.advice = Counter(
            "advice", "Estimates given, and jobs of which nothing is known", ("outcome",),
            namespace="schedmate", registry=self.registry,
        )  # fmt: skip
        self.error = Histogram(
            "estimate_error_ratio",
            "Run time of completed jobs over the last estimate before they began",
            buckets=_RATIOS,
            **make,
        )
        self.within = Counter(
            "estimates_checked", "Completed jobs that had an estimate, by where they ended",
            ("place",), namespace="schedmate", registry=self.registry,
        )  # fmt: skip
        self.verdicts = Counter(
            "verdicts", "Diagnoses by type of error", ("error_type",),
            namespace="schedmate", registry=self.registry,
        )  # fmt: skip
        self.stored = Counter("history_stored_jobs", "Jobs stored in the history", **make)
        self.history = Gauge("history_jobs", "Jobs in the history", **make)
        self.plans = Gauge(
            "plans", "Plans by state", ("state",), namespace="schedmate", registry=self.registry
        )
        self.unshown = Counter(
            "dashboard_dropped", "Updates of the dashboard that were dropped under load", **make
        )
        for outcome in ("estimated", "abstained"):
            self.advice.labels(outcome)
        for place in ("below", "within", "above"):
            self.within.labels(place)

    def show(self, plans: Mapping[str, int], history_size: int) -> bytes:
        """The text that Prometheus reads."""
        self.plans.clear()
        for state, count in plans.items():
            self.plans.labels(state).set(count)
        self.history.set(history_size)
        return generate_latest(self.registry)
