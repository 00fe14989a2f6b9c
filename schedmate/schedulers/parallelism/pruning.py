"""The three rules that prune a framework's search for a parallel plan (Arena, section 3.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schedmate.schedulers.parallelism.candidates import Candidate

RULES = "schedmate.parallel-pruning/v1"


@dataclass(frozen=True)
class Pruning:
    """The three rules for a scheduled job, from the plans of its best grid."""

    stages: int
    """Rule 1: the pipeline degree of the best grid."""
    imbalance: float
    """Rule 2: plans whose largest stage is more than this times their mean stage are dropped."""
    fixed: dict[int, tuple[int, int]]
    """Rule 3: GPUs and tensor degree of a stage by its number of layers, if the frontier has such a
    stage."""

    @classmethod
    def of(cls, frontier: Sequence[Candidate]) -> Pruning:
        """The rules from the Pareto frontier of the best grid."""
        fixed: dict[int, tuple[int, int]] = {}
        for plan in reversed(frontier):
            for layers, gpus, tensor in zip(plan.layers, plan.gpus, plan.tensor, strict=True):
                fixed[layers] = gpus, tensor
        return cls(len(frontier[0].layers), max(_imbalance(plan) for plan in frontier), fixed)

    def keeps(self, plan: Candidate) -> bool:
        """Whether a plan is searched."""
        if len(plan.layers) != self.stages or _imbalance(plan) > self.imbalance + 1e-9:
            return False
        return all(
            self.fixed.get(layers, (gpus, tensor)) == (gpus, tensor)
            for layers, gpus, tensor in zip(plan.layers, plan.gpus, plan.tensor, strict=True)
        )

    def document(self) -> dict[str, Any]:
        """The rules as JSON (schema `schedmate.parallel-pruning/v1`) for a searching framework."""
        return {
            "schema": RULES,
            "pipeline_degree": self.stages,
            "largest_imbalance": self.imbalance,
            "stages": [
                {"layers": layers, "gpus": gpus, "tensor": tensor}
                for layers, (gpus, tensor) in sorted(self.fixed.items())
            ],
        }


def _imbalance(plan: Candidate) -> float:
    """How uneven a partition is: the largest share of layers per GPU over the mean one."""
    shares = [layers / gpus for layers, gpus in zip(plan.layers, plan.gpus, strict=True)]
    return max(shares) * len(shares) / sum(shares)
