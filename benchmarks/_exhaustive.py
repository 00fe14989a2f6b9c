"""Exhaustive search for the fastest plan, optionally pruned (Arena, section 3.6).

Every stage partition of the clustered operators, every assignment of powers of two in every
order, every data-parallel degree, all priced by the end-to-end model: what the proxy plans are
measured against, and what a searching framework (Alpa, Galvatron) would do on the cluster
itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise, permutations

from schedmate.schedulers.parallelism.network import Network
from schedmate.schedulers.parallelism.operators import Sizes
from schedmate.schedulers.parallelism.planner import (
    Candidate,
    Grid,
    PlanRequest,
    Pruning,
    cluster_layers,
    imbalance,
    layer_loads,
    power_sums,
    to_plan,
)
from schedmate.schedulers.parallelism.predict import Prediction, Predictor


def every_plan(
    request: PlanRequest, network: Network, clusters: int, stages: int
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
            ends = cluster_layers(layer_loads(request.spec, device, sizes), clusters)
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


def keeps(rules: Pruning, plan: Candidate) -> bool:
    """Whether a pruned search tries a plan."""
    if len(plan.layers) != rules.stages or imbalance(plan) > rules.imbalance + 1e-9:
        return False
    return all(
        layers not in rules.fixed or (gpus, tensor) in rules.fixed[layers]
        for layers, gpus, tensor in zip(plan.layers, plan.gpus, plan.tensor, strict=True)
    )


def search_exhaustively(
    request: PlanRequest, predictor: Predictor, clusters: int, pruning: Pruning | None = None
) -> tuple[Prediction | None, int]:
    """The fastest plan that fits of all, or of those `pruning` keeps; and how many were priced."""
    best, priced = None, 0
    for stages in range(1, min(request.gpus, clusters, request.spec.layers) + 1):
        if pruning is not None and stages != pruning.stages:
            continue
        for candidate in every_plan(request, predictor.network, clusters, stages):
            if pruning is not None and not keeps(pruning, candidate):
                continue
            priced += 1
            prediction = predictor.predict(to_plan(request, candidate))
            if prediction.fits and (best is None or prediction.iteration_s < best.iteration_s):
                best = prediction
    return best, priced
