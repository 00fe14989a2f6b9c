"""Exhaustive search, and the three rules that prune it (Arena, section 3.6).

Every stage partition of the clustered operators, every assignment of powers of two in every order,
every data-parallel degree, all priced by the end-to-end model: what the proxy plans are measured
against, and what a searching framework (Alpa, Galvatron) would do on the cluster itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations
from typing import Any

from schedmate.schedulers.parallelism.grids import (
    Candidate,
    Grid,
    Request,
    clustered,
    loads,
    power_sums,
)
from schedmate.schedulers.parallelism.network import Network
from schedmate.schedulers.parallelism.operators import Sizes
from schedmate.schedulers.parallelism.planner import GridPlans, to_plan
from schedmate.schedulers.parallelism.predict import Prediction, Predictor

RULES = "schedmate.parallel-pruning/v1"


@dataclass(frozen=True)
class Pruning:
    """The three rules for a scheduled job, from the plans of its best grid."""

    stages: int
    """Rule 1: the pipeline degree of the best grid."""
    imbalance: float
    """Rule 2: plans whose largest stage is more than this times their mean stage are dropped."""
    fixed: dict[int, tuple[int, int]]
    """Rule 3: GPUs and tensor degree of a stage by its layers, where the frontier has such one."""

    @classmethod
    def of(cls, grid: GridPlans) -> Pruning:
        """The rules that a grid's frontier gives."""
        fixed: dict[int, tuple[int, int]] = {}
        for plan in reversed(grid.frontier):
            for layers, gpus, tensor in zip(plan.layers, plan.gpus, plan.tensor, strict=True):
                fixed[layers] = gpus, tensor
        return cls(grid.stages, max(_imbalance(plan) for plan in grid.frontier), fixed)

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


def every_plan(
    request: Request, network: Network, clusters: int, stages: int
) -> Iterator[Candidate]:
    """All plans of a grid, whether or not they fit into memory; bias and communication are 0."""
    device = network.spec(request.gpu)
    grid = Grid(request, stages, network, clusters)
    data = 1
    while data * stages <= request.gpus:
        for batches in grid.micro_batches(data):
            sizes = Sizes(
                request.global_batch // (data * batches), request.sequence, request.precision, 1
            )
            ends = clustered(loads(request.spec, device, sizes), clusters)
            orders = sorted(
                {
                    order
                    for powers in power_sums(request.gpus // data, stages)
                    for order in permutations(powers)
                }
            )
            for cut in combinations(ends[:-1], stages - 1):
                bounds = (0, *cut, ends[-1])
                layers = tuple(b - a for a, b in pairwise(bounds))
                for order in orders:
                    if any(request.spec.heads % one for one in order) and request.spec.heads > 1:
                        continue
                    gpus = tuple(one * data for one in order)
                    yield Candidate(layers, gpus, data, batches, 0.0, 0.0)
        data *= 2


def exhaustive(
    request: Request, predictor: Predictor, clusters: int, pruning: Pruning | None = None
) -> tuple[Prediction | None, int]:
    """The fastest plan that fits of all, or of those `pruning` keeps; and how many were priced."""
    best, priced = None, 0
    for stages in range(1, min(request.gpus, clusters, request.spec.layers) + 1):
        if pruning is not None and stages != pruning.stages:
            continue
        for candidate in every_plan(request, predictor.network, clusters, stages):
            if pruning is not None and not pruning.keeps(candidate):
                continue
            priced += 1
            prediction = predictor.predict(to_plan(request, candidate))
            if prediction.fits and (best is None or prediction.iteration_s < best.iteration_s):
                best = prediction
    return best, priced
