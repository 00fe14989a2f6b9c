"""What the service counts, for Prometheus. No label holds a name that a user can choose."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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
    """The counters of one service, in a separate registry."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "schedmate_http_requests",
            "Requests by route and status",
            ("route", "method", "status"),
            registry=registry,
        )
        self.latency = Histogram(
            "schedmate_http_request_seconds",
            "Time of requests by route [s]",
            ("route",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge(
            "schedmate_http_requests_in_flight", "Requests being answered", registry=registry
        )
        self.refused = Counter(
            "schedmate_http_refused",
            "Requests that were not taken on",
            ("reason",),
            registry=registry,
        )
        self.advice = Counter(
            "schedmate_advice",
            "Estimates, and jobs without one",
            ("outcome",),
            registry=registry,
        )
        self.error = Histogram(
            "schedmate_estimate_error_ratio",
            "Run time of completed jobs over the last estimate before they began",
            buckets=_RATIOS,
            registry=registry,
        )
        self.within = Counter(
            "schedmate_estimates_checked",
            "Completed jobs that had an estimate, by where in its interval they ended",
            ("place",),
            registry=registry,
        )
        self.verdicts = Counter(
            "schedmate_verdicts", "Diagnoses by type of error", ("error_type",), registry=registry
        )
        self.stored = Counter(
            "schedmate_history_stored_jobs", "Jobs stored in the history", registry=registry
        )
        self.history = Gauge("schedmate_history_jobs", "Jobs in the history", registry=registry)
        self.plans = Gauge("schedmate_plans", "Plans by state", ("state",), registry=registry)
        self.model_calls = Gauge(
            "schedmate_model_calls_last_hour",
            "Calls of language models by this user in the last hour, by outcome",
            ("verdict",),
            registry=registry,
        )
        self.unshown = Counter(
            "schedmate_dashboard_dropped",
            "Updates of the dashboard that were dropped under load",
            registry=registry,
        )
        for outcome in ("estimated", "abstained"):
            self.advice.labels(outcome)
        for place in ("below", "within", "above"):
            self.within.labels(place)

    def show(
        self,
        plans: Mapping[str, int],
        history_size: int,
        model_calls: Mapping[str, int] = MappingProxyType({}),
    ) -> bytes:
        """The text that Prometheus reads."""
        self.model_calls.clear()
        for verdict, count in model_calls.items():
            self.model_calls.labels(verdict).set(count)
        self.plans.clear()
        for state, count in plans.items():
            self.plans.labels(state).set(count)
        self.history.set(history_size)
        return generate_latest(self.registry)
