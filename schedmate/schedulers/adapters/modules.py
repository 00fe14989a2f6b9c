"""SchedMate's three modules as settings of a policy, and the parts that they become in a run."""

from __future__ import annotations

from typing import Any

from schedmate.errors import UsageError
from schedmate.retrieval.advisor import Method
from schedmate.schedulers.adapters.advisor import PAPER_LATENCY_S, Advisor
from schedmate.schedulers.adapters.handler import HANDLING_S, HandledFailures
from schedmate.schedulers.adapters.simulated import SimulatedLogs
from schedmate.schedulers.adapters.tracker import PackingTracker
from schedmate.schedulers.policy import Policy
from schedmate.schedulers.sim.equipment import Equipment, World


class WithSchedMate(Policy):
    """Base of policies with SchedMate's modules around them: `class X(WithSchedMate, Policy)`.

    Args:
        advisor: whether the Scheduling Advisor estimates; else the estimator of other policies.
        method: `weighted` (ours), or `mean` (the paper's mean of the k nearest).
        k: neighbours of the mean.
        similarity: least cosine similarity of a neighbour; 0: the embedder's default.
        latency_s: time that the advisor takes for a job [s].
        risk: 0: the median of the advisor's interval, 1: the corresponding mean.
        error: standard deviation of the logarithm of an artificial error of its estimates.
        tracker: whether the Metric Tracker reads the logs of jobs that share GPUs.
        detection_rate: share of pairs whose slowdown may be detected.
        baseline: whether logs of past jobs of a workload provide its speed alone if a job's own log
            does not (ours).
        handler: whether the Failure Handler restarts jobs, if failures are simulated.
        handling_s: time that this takes [s].
        recall: share of infrastructure failures that it recognises; -1: the real handler decides.
        false_alarms: share of bugs that it mistakes for one; -1: the real handler decides.
    """

    advisor_type: type[Advisor] = Advisor

    def __init__(
        self,
        advisor: bool = True,
        method: str = "weighted",
        k: int = 3,
        similarity: float = 0.0,
        latency_s: float = PAPER_LATENCY_S,
        risk: float = 0.0,
        error: float = 0.0,
        tracker: bool = True,
        detection_rate: float = 1.0,
        baseline: bool = True,
        handler: bool = True,
        handling_s: float = HANDLING_S,
        recall: float = -1.0,
        false_alarms: float = -1.0,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        if method not in ("weighted", "mean"):
            raise UsageError(f"method={method}: choose weighted or mean.")
        if k < 1 or latency_s < 0 or error < 0 or not 0 <= detection_rate <= 1:
            raise UsageError(
                "k is at least 1, latency_s and error not negative, detection_rate from 0 to 1."
            )
        self.advisor = advisor
        self.method: Method = "mean" if method == "mean" else "weighted"
        self.k = k
        self.similarity = similarity
        self.latency_s = latency_s
        self.risk = risk
        self.error = error
        self.tracker = tracker
        self.detection_rate = detection_rate
        self.baseline = baseline
        self.handler = handler
        self.handling_s = handling_s
        self.recall = recall
        self.false_alarms = false_alarms

    def equip(self, world: World) -> Equipment:
        """See `Equipped`."""
        parts: dict[str, Any] = {}
        if self.advisor:
            parts["advisor"] = self.advisor_type(
                world.workload,
                world.estimator,
                method=self.method,
                k=self.k,
                threshold=self.similarity or None,
                latency_s=self.latency_s,
                risk=self.risk,
                error=self.error,
                seed=world.seed,
            )
        if self.tracker:
            parts["logs"] = SimulatedLogs(world.workload, world.seed)
            parts["tracker"] = PackingTracker(
                parts["logs"],
                detection_rate=self.detection_rate,
                baseline=self.baseline,
                seed=world.seed,
            )
        if self.handler and world.failures is not None:
            parts["handler"] = HandledFailures(
                world.workload,
                world.failures,
                world.seed,
                handling_s=self.handling_s,
                recall=None if self.recall < 0 else self.recall,
                false_alarms=None if self.false_alarms < 0 else self.false_alarms,
            )
        return Equipment(
            estimator=parts.get("advisor"),
            faults=parts.get("handler"),
            observers=tuple(
                parts[name] for name in ("advisor", "logs", "tracker") if name in parts
            ),
            report=lambda: {
                **{name: dict(part.counts) for name, part in parts.items() if name != "logs"},
                "warnings": dict(parts["advisor"].warnings) if "advisor" in parts else {},
            },
        )
