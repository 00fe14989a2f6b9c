"""From a model and a number of GPUs to parallelism plans, without running anything.

For each number of stages (a grid): the Pareto frontier of plans and its proxy plan. Arena (section
3.3) takes the plan with the least computation bias and, of equals, the least communication; as the
end-to-end model prices a plan in under a millisecond, here it is the fastest of the frontier unless
`published` is set. A scheduler chooses between the proxy plans of all grids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from schedmate.errors import InputError
from schedmate.schedulers.parallelism.candidates import Candidate, Request
from schedmate.schedulers.parallelism.grids import CLUSTERS, Grid
from schedmate.schedulers.parallelism.network import Network
from schedmate.schedulers.parallelism.plan import Plan, Stage
from schedmate.schedulers.parallelism.predict import Prediction, Predictor
from schedmate.schedulers.parallelism.pruning import Pruning

SCHEMA = "schedmate.parallel-planning/v1"


@dataclass(frozen=True)
class GridPlans:
    """The plans of one grid: `n` GPUs of one type in `stages` stages."""

    stages: int
    frontier: tuple[Candidate, ...]
    proxy: Prediction


@dataclass(frozen=True)
class Planning:
    """The proxy plan of every grid that has one, fastest first."""

    original: Request
    request: Request
    """The request that was planned: the original, or one with less memory if nothing fits
    otherwise."""
    grids: tuple[GridPlans, ...]

    @property
    def best(self) -> GridPlans:
        """The grid whose proxy plan is fastest."""
        return self.grids[0]

    @property
    def notes(self) -> list[str]:
        """Changes to the request that made a plan fit, in sentences."""
        found = []
        if self.request.sharding != self.original.sharding:
            found.append("optimiser states are sharded (ZeRO-1): nothing fits without")
        if self.request.recompute != self.original.recompute:
            found.append("activations are recomputed: nothing fits without")
        return found

    def document(self) -> dict[str, Any]:
        """The plans as JSON (schema `schedmate.parallel-planning/v1`)."""
        return {
            "schema": SCHEMA,
            "model": self.request.spec.name,
            "parameters": self.request.spec.parameters(),
            "gpus": self.request.gpus,
            "gpu_type": self.request.gpu,
            "notes": self.notes,
            "best": _grid_document(self.best),
            "pruning": Pruning.of(self.best.frontier).document(),
            "grids": [_grid_document(grid) for grid in self.grids],
        }


def _grid_document(grid: GridPlans) -> dict[str, Any]:
    prediction = grid.proxy.document()
    del prediction["schema"]
    return {
        "stages": grid.stages,
        "plan": grid.proxy.plan.model_dump(mode="json", exclude_none=True),
        "prediction": prediction,
        "frontier": [
            {
                "layers": plan.layers,
                "gpus": plan.gpus,
                "tensor": plan.tensor,
                "data": plan.data,
                "computation_bias": plan.bias,
                "communication_load_s": plan.communication,
            }
            for plan in grid.frontier
        ],
    }


class Planner:
    """Plans models on one cluster; remembers what layers take."""

    def __init__(
        self, network: Network, *, published: bool = False, clusters: int = CLUSTERS
    ) -> None:
        self.network, self.published, self.clusters = network, published, clusters
        self.predictor = Predictor(network)

    def plan(self, request: Request, most_stages: int | None = None) -> Planning:
        """The proxy plans of a request.

        If none fits, optimiser states are sharded (ZeRO-1), then activations are recomputed, and
        the request of the result states this. Raises `InputError` if none fits even so, with what
        takes the memory; for a number of GPUs that is not a power of two; and for a global batch
        that cannot be divided.
        """
        if request.gpus & (request.gpus - 1) or request.gpus < 1:
            raise InputError(
                f"{request.gpus} GPUs: plans need a power of two (1, 2, 4, ...), as "
                "stages get powers of two of them"
            )
        for one in _lighter(request):
            found = self._grids(one, most_stages)
            if found:
                order = sorted(found, key=lambda grid: (grid.proxy.iteration_s, grid.stages))
                return Planning(request, one, tuple(order))
        raise self._why_none(request)

    def _grids(self, request: Request, most_stages: int | None) -> list[GridPlans]:
        found = []
        most = min(request.gpus, request.spec.layers, self.clusters, most_stages or CLUSTERS)
        for stages in range(1, most + 1):
            candidates = Grid(request, stages, self.network, self.clusters).candidates()
            priced = (self.predictor.predict(to_plan(request, one)) for one in candidates)
            fitting = (one for one in priced if one.fits)
            proxy = (
                next(fitting, None)  # candidates ascend by bias, then by communication
                if self.published
                else min(fitting, key=lambda one: one.iteration_s, default=None)
            )
            if proxy is not None:
                found.append(GridPlans(stages, tuple(candidates), proxy))
        return found

    def _why_none(self, request: Request) -> InputError:
        """The error with the missing memory, by the plan that needs least."""
        lightest = list(_lighter(request))[-1]
        tensor = 1
        while tensor * 2 <= min(request.gpus, request.gpus_per_node) and not (
            request.spec.heads % (tensor * 2)
        ):
            tensor *= 2
        stages = max(1, min(request.gpus // tensor, request.spec.layers))
        each, more = divmod(request.spec.layers, stages)
        layers = tuple(each + (place < more) for place in range(stages))
        candidate = Candidate(layers, (tensor,) * stages, 1, request.global_batch, 0, 0)
        prediction = self.predictor.predict(to_plan(lightest, candidate))
        need = prediction.max_memory_bytes * request.gpus / 1e9
        device = self.network.spec(request.gpu)
        if prediction.fits:
            return InputError(
                f"no plan was found for {request.gpus} {device.name}, though the memory would do: "
                "try --recompute full, another --global-batch or more GPUs"
            )
        return InputError(
            f"{request.spec.name} fits on no plan for {request.gpus} {device.name}, even with "
            f"ZeRO-1 and recomputation: {prediction.why_not}; at least {need:.0f} GB in all are "
            f"needed, which {_enough(need * 1e9, device.memory_bytes)} of them would have"
        )


def to_plan(request: Request, candidate: Candidate) -> Plan:
    """A candidate as a plan."""
    micro_batch = request.global_batch // (candidate.data * candidate.micro_batches)
    known = request.spec
    sizes = None
    if known.kind == "transformer":
        sizes = known.sizes()
    return Plan(
        model=known.name,
        model_sizes=sizes,
        gpus_per_node=request.gpus_per_node,
        global_batch=request.global_batch,
        micro_batch=micro_batch,
        sequence=request.sequence,
        precision=request.precision,
        sharding=request.sharding,
        recompute=request.recompute,
        stages=tuple(
            Stage(layers=layers, tensor=tensor, data=candidate.data, gpu_type=request.gpu)
            for layers, tensor in zip(candidate.layers, candidate.tensor, strict=True)
        ),
    )


def _lighter(request: Request) -> list[Request]:
    """The request, then with less memory: sharded optimiser states, then recomputation."""
    found = [request]
    if request.sharding == "none":
        found.append(request._replace(sharding="zero-1"))
    if request.recompute == "none":
        found.append(found[-1]._replace(recompute="full"))
    return found


def _enough(need: float, each: float) -> int:
    count = 1
    while count * each < need:
        count *= 2
    return count
