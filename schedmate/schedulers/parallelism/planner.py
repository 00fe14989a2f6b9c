"""From a model and a number of GPUs to parallelism plans, without running anything.

For each number of stages (a grid): the Pareto frontier of plans and its proxy plan (Arena, section
3.3). Layers are clustered by load (Equation 2), GPUs of stages are powers of two near their loads
(Equation 3), the proxy plan is the one with the least computation bias and, of equals, the least
communication. Exhaustive search prices all plans, optionally pruned (section 3.6).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from schedmate.base.errors import InputError
from schedmate.schedulers.parallelism import operators as ops
from schedmate.schedulers.parallelism.devices import DeviceSpec
from schedmate.schedulers.parallelism.models import ModelSpec
from schedmate.schedulers.parallelism.network import Network
from schedmate.schedulers.parallelism.operators import Sizes, calibration
from schedmate.schedulers.parallelism.plan import Plan, Stage
from schedmate.schedulers.parallelism.predict import (
    Prediction,
    Predictor,
    context_bytes,
    layer_memory,
)

MOST_KEPT = 12
"""A frontier keeps at most this many plans."""


class PlanRequest(NamedTuple):
    """A planning request: a model on GPUs of one type."""

    spec: ModelSpec
    gpu: str
    gpus: int
    gpus_per_node: int
    global_batch: int
    sequence: int
    precision: str
    sharding: str = "none"
    recompute: str = "none"
    uniform: bool = False
    """Only plans whose stages have the same number of GPUs, as most frameworks need."""


@dataclass(frozen=True)
class Candidate:
    """A plan of a grid by the two metrics that need no execution."""

    layers: tuple[int, ...]
    gpus: tuple[int, ...]
    """GPUs of each stage."""
    data: int
    micro_batches: int
    bias: float
    """Computation bias, Equation 3 [GPUs]."""
    communication: float
    """Communication load, Equation 4 [s]."""

    @property
    def tensor(self) -> tuple[int, ...]:
        """Tensor-parallel GPUs of each stage."""
        return tuple(count // self.data for count in self.gpus)


def frontier(candidates: list[Candidate], most: int = MOST_KEPT) -> list[Candidate]:
    """The Pareto frontier by bias and communication, thinned to `most` plans.

    Of the two plans with the most similar partitions, the one that communicates more goes.
    """
    plans: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda plan: (plan.bias, plan.communication)):
        if not plans or candidate.communication < plans[-1].communication - 1e-15:
            plans.append(candidate)
    while len(plans) > most:
        pairs = [
            (_partition_difference(a, b), place) for place, (a, b) in enumerate(pairwise(plans))
        ]
        place = min(pairs)[1]
        worse = place if plans[place].communication >= plans[place + 1].communication else place + 1
        del plans[worse]
    return plans


def _partition_difference(one: Candidate, other: Candidate) -> float:
    return sum(abs(a - b) for a, b in zip(one.layers, other.layers, strict=True))


# The plans of a grid: all stage partitions and GPU assignments for one number of stages.
#
# Arena, section 3.3: operators are clustered, GPUs follow loads (Equation 2), assignments are
# powers of two nearest to that (computation bias, Equation 3), and communication is weighed for
# the whole pipeline (Equation 4). All partitions of a grid are handled at once as arrays.


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Wholes = NDArray[np.int64]

CLUSTERS = 16
"""Operators are clustered into at most this many (Alpa's default, as the paper's)."""
MICRO_BATCHES_PER_STAGE = 4
"""Section 5.1: the number of micro-batches is four times that of stages."""


class Grid:
    """All plans of one request with one number of stages."""

    def __init__(
        self, request: PlanRequest, stages: int, network: Network, clusters: int = CLUSTERS
    ) -> None:
        self.request, self.stages, self.network = request, stages, network
        self.device = network.spec(request.gpu)
        self.clusters = clusters

    def candidates(self) -> list[Candidate]:
        """The non-dominated plans that fit into memory, by ascending computation bias."""
        candidates = []
        for data in _powers_of_two(self.request.gpus // self.stages):
            for batches in self.micro_batches(data):
                candidates += self._with_data(data, batches)
        return frontier(candidates)

    def micro_batches(self, data: int) -> list[int]:
        """Numbers of micro-batches to choose from.

        Four a stage, or the most below that which divide the batch, as in the paper; and more and
        smaller ones, which need less memory: sixteen a stage, or one for each sample.
        """
        share, rest = divmod(self.request.global_batch, data)
        if rest:
            return []
        wanted = MICRO_BATCHES_PER_STAGE * self.stages
        sizes = [_largest_divisor(share, min(wanted * factor, share)) for factor in (1, 4)]
        return list(dict.fromkeys([*sizes, share]))

    def _with_data(self, data: int, batches: int) -> list[Candidate]:
        import numpy as np

        request = self.request
        micro_batch = request.global_batch // (data * batches)
        sizes = Sizes(micro_batch, request.sequence, request.precision, 1)
        weights = layer_loads(request.spec, self.device, sizes)
        ends = cluster_layers(weights, self.clusters)
        if len(ends) < self.stages:
            return []
        cuts = stage_partitions(len(ends), self.stages)
        layer_ends = np.array(ends)[cuts - 1]
        starts = np.hstack([np.zeros((len(cuts), 1), dtype=np.int64), layer_ends[:, :-1]])
        summed = np.concatenate([[0.0], np.cumsum(weights)])
        stage_loads = summed[layer_ends] - summed[starts]
        # data parallelism needs a multiple of `data` GPUs in each stage: divide by it
        groups, bias = assign_gpus(
            stage_loads / summed[-1] * (request.gpus / data), request.gpus // data
        )
        fits, communication = self._weighed(sizes, data, batches, starts, layer_ends, groups)
        usable = fits & np.isfinite(bias)
        optimal = _non_dominated(bias[usable], communication[usable])
        places = np.flatnonzero(usable)[optimal]
        counts = layer_ends - starts
        return [
            Candidate(
                tuple(int(one) for one in counts[place]),
                tuple(int(one) * data for one in groups[place]),
                data,
                batches,
                float(bias[place] * data),
                float(communication[place]),
            )
            for place in places
        ]

    def _weighed(
        self, sizes: Sizes, data: int, batches: int, starts: Wholes, ends: Wholes, tensor: Wholes
    ) -> tuple[NDArray[np.bool_], Floats]:
        """Whether plans fit, and their communication load, by stages' layers and tensor degree."""
        import numpy as np

        request = self.request
        degrees = _powers_of_two(max(1, request.gpus // data))
        place = np.log2(np.maximum(tensor, 1)).astype(np.int64)
        parameters, saved, reduces, scratch = [], [], [], []
        for degree in degrees:
            divided = sizes._replace(tensor=degree)
            rows = [
                layer_memory(request.spec, layer, divided, request.recompute)
                for layer in range(request.spec.layers)
            ]
            parameters.append(_running_sums([row.parameters for row in rows]))
            saved.append(_running_sums([row.saved for row in rows]))
            scratch.append(max(row.temporary for row in rows))
            reduces.append(_running_sums(self._reduces(divided)))
        stage_parameters, activations, per_stage = (
            table[place, ends] - table[place, starts]
            for table in (np.array(parameters), np.array(saved), np.array(reduces))
        )
        constants = calibration()["memory"]
        each = constants["bytes_per_parameter"][request.precision]
        shared = min(constants["sharded"][request.sharding].get(request.precision, 0), each)
        in_flight = np.minimum(self.stages - np.arange(self.stages), batches)
        memory = (
            stage_parameters * (each - shared + shared / data)
            + activations * in_flight
            + np.array(scratch)[place]
            + context_bytes(self.device)
        )
        fits = (memory <= self.device.memory_bytes).all(axis=1) & self._divisible(tensor)
        gradients = self._gradients(stage_parameters, tensor, data)
        load = (batches - 1) * per_stage.max(axis=1) + per_stage.sum(axis=1) + gradients
        return fits, load

    def _divisible(self, tensor: Wholes) -> NDArray[np.bool_]:
        """Whether tensor parallelism divides the heads, with no more GPUs than heads."""
        spec = self.request.spec
        heads = spec.heads if spec.kind == "transformer" else 1 << 30
        good: NDArray[np.bool_] = ((heads % tensor) == 0).all(axis=1)
        if self.request.uniform:
            good &= tensor.min(axis=1) == tensor.max(axis=1)
        return good

    def _reduces(self, sizes: Sizes) -> list[float]:
        """Tensor-parallel collectives of every layer for a micro-batch, both directions [s]."""
        request = self.request
        if sizes.tensor == 1:
            return [0.0] * request.spec.layers
        return [
            sum(ops.tensor_reduces(request.spec, layer))
            * self.network.tensor_reduce(
                request.gpu,
                sizes.tensor,
                ops.output_bytes(request.spec, layer, sizes),
                request.gpus_per_node,
            )
            for layer in range(request.spec.layers)
        ]

    def _gradients(self, parameters: Floats, tensor: Wholes, data: int) -> Floats:
        """All-reduce of gradients by the slowest stage [s]."""
        import numpy as np

        if data == 1:
            return np.zeros(len(parameters))
        request = self.request
        inside = int(tensor.max()) * data <= request.gpus_per_node
        at_once = min(request.gpus_per_node, int(tensor.max()))
        second_per_byte = self.network.ring([request.gpu], data, 1e8, at_once, inside=inside) / 1e8
        slowest: Floats = (4 * parameters).max(axis=1) * second_per_byte
        return slowest


def _largest_divisor(number: int, most: int) -> int:
    """The largest divisor that is at most `most`."""
    return next(count for count in range(most, 0, -1) if number % count == 0)


def _running_sums(values: list[float]) -> Floats:
    """Running sums from 0, so that layers a to b take the difference of two."""
    import numpy as np

    return np.concatenate([[0.0], np.cumsum(values)])


def _powers_of_two(limit: int) -> list[int]:
    return [1 << power for power in range(limit.bit_length()) if 1 << power <= limit]


def _non_dominated(first: Floats, second: Floats) -> Wholes:
    """Positions of the points that no other has below or equal in both, by ascending first."""
    import numpy as np

    order = np.lexsort((second, first))
    places, least = [], np.inf
    for place in order:
        if second[place] < least - 1e-15:
            places.append(place)
            least = second[place]
    return np.array(places, dtype=np.int64)


# The three rules that prune a framework's search for a parallel plan (Arena, section 3.6).


PRUNING_SCHEMA = "schedmate.parallel-pruning/v1"


@dataclass(frozen=True)
class Pruning:
    """The three rules for a scheduled job, from the plans of its best grid."""

    stages: int
    """Rule 1: the pipeline degree of the best grid."""
    imbalance: float
    """Rule 2: plans whose largest stage is more than this times their mean stage are dropped."""
    fixed: dict[int, set[tuple[int, int]]]
    """Rule 3: GPUs and tensor degrees that stages of so many layers have on the frontier. Most have
    one; where plans differ each counts, so that no plan of the frontier is dropped."""

    @classmethod
    def of(cls, frontier: Sequence[Candidate]) -> Pruning:
        """The rules from the Pareto frontier of the best grid."""
        fixed: dict[int, set[tuple[int, int]]] = {}
        for plan in frontier:
            for layers, gpus, tensor in zip(plan.layers, plan.gpus, plan.tensor, strict=True):
                fixed.setdefault(layers, set()).add((gpus, tensor))
        return cls(len(frontier[0].layers), max(imbalance(plan) for plan in frontier), fixed)

    def document(self) -> dict[str, Any]:
        """The rules as JSON (schema `schedmate.parallel-pruning/v1`) for a searching framework."""
        return {
            "schema": PRUNING_SCHEMA,
            "pipeline_degree": self.stages,
            "largest_imbalance": self.imbalance,
            "stages": [
                {"layers": layers, "gpus": gpus, "tensor": tensor}
                for layers, kinds in sorted(self.fixed.items())
                for gpus, tensor in sorted(kinds)
            ],
        }


def imbalance(plan: Candidate) -> float:
    """How uneven a partition is: the largest share of layers per GPU over the mean one."""
    shares = [layers / gpus for layers, gpus in zip(plan.layers, plan.gpus, strict=True)]
    return max(shares) * len(shares) / sum(shares)


# From a model and a number of GPUs to parallelism plans, without running anything.
#
# For each number of stages (a grid): the Pareto frontier of plans and its proxy plan. Arena
# (section 3.3) takes the plan with the least computation bias and, of equals, the least
# communication; as the end-to-end model prices a plan in under a millisecond, here it is the
# fastest of the frontier unless `published` is set. A scheduler chooses between the proxy plans of
# all grids.


PLANNING_SCHEMA = "schedmate.parallel-planning/v1"


@dataclass(frozen=True)
class GridPlans:
    """The plans of one grid: `n` GPUs of one type in `stages` stages."""

    stages: int
    frontier: tuple[Candidate, ...]
    proxy: Prediction


@dataclass(frozen=True)
class Planning:
    """The proxy plan of every grid that has one, fastest first."""

    original: PlanRequest
    request: PlanRequest
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
        notes = []
        if self.request.sharding != self.original.sharding:
            notes.append("optimiser states are sharded (ZeRO-1): nothing fits without")
        if self.request.recompute != self.original.recompute:
            notes.append("activations are recomputed: nothing fits without")
        return notes

    def document(self) -> dict[str, Any]:
        """The plans as JSON (schema `schedmate.parallel-planning/v1`)."""
        return {
            "schema": PLANNING_SCHEMA,
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

    def plan(self, request: PlanRequest, most_stages: int | None = None) -> Planning:
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
        for variant in _lighter(request):
            grids = self._grids(variant, most_stages)
            if grids:
                order = sorted(grids, key=lambda grid: (grid.proxy.iteration_s, grid.stages))
                return Planning(request, variant, tuple(order))
        raise self._why_none(request)

    def _grids(self, request: PlanRequest, most_stages: int | None) -> list[GridPlans]:
        grids = []
        most = min(request.gpus, request.spec.layers, self.clusters, most_stages or CLUSTERS)
        for stages in range(1, most + 1):
            candidates = Grid(request, stages, self.network, self.clusters).candidates()
            priced = (
                self.predictor.predict(to_plan(request, priced_plan)) for priced_plan in candidates
            )
            fitting = (priced_plan for priced_plan in priced if priced_plan.fits)
            proxy = (
                next(fitting, None)  # candidates ascend by bias, then by communication
                if self.published
                else min(fitting, key=lambda priced_plan: priced_plan.iteration_s, default=None)
            )
            if proxy is not None:
                grids.append(GridPlans(stages, tuple(candidates), proxy))
        return grids

    def _why_none(self, request: PlanRequest) -> InputError:
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
            f"needed, which {_power_of_two_for(need * 1e9, device.memory_bytes)} of them would have"
        )


def to_plan(request: PlanRequest, candidate: Candidate) -> Plan:
    """A candidate as a plan."""
    micro_batch = request.global_batch // (candidate.data * candidate.micro_batches)
    spec = request.spec
    sizes = None
    if spec.kind == "transformer":
        sizes = spec.sizes()
    return Plan(
        model=spec.name,
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


def _lighter(request: PlanRequest) -> list[PlanRequest]:
    """The request, then with less memory: sharded optimiser states, then recomputation."""
    requests = [request]
    if request.sharding == "none":
        requests.append(request._replace(sharding="zero-1"))
    if request.recompute == "none":
        requests.append(requests[-1]._replace(recompute="full"))
    return requests


def _power_of_two_for(need: float, each: float) -> int:
    count = 1
    while count * each < need:
        count *= 2
    return count


# Dividing a model's layers into stages and GPUs among them (Arena, section 3.3).
#
# Layers are clustered by load (Equation 2); GPUs of stages are powers of two near their loads
# (Equation 3).


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def layer_loads(spec: ModelSpec, device: DeviceSpec, sizes: Sizes) -> list[float]:
    """Load of every layer for a micro-batch, forward and backward (Equation 2) [s]."""
    loads = []
    for layer in ops.layer_operators(spec, sizes):
        load = 0.0
        for operator in layer:
            if operator.flops:
                intensity = operator.flops / operator.traffic
                speed = device.roofline(intensity, sizes.precision)
                load += (1 + operator.passes) * operator.flops / speed
        loads.append(load)
    return loads


def cluster_layers(weights: list[float], count: int) -> list[int]:
    """Where clusters of consecutive layers end, so that their loads are about equal.

    The result ascends and ends with the number of layers.
    """
    total, passed = sum(weights), 0.0
    ends: list[int] = []
    layers = len(weights)
    count = min(count, layers)
    for place, weight in enumerate(weights, 1):
        passed += weight
        open_clusters = count - len(ends)
        must = layers - place <= open_clusters - 1
        full = passed >= total * (len(ends) + 1) / count - weight / 2
        if must or (full and open_clusters > 1):
            ends.append(place)
    return ends


@cache
def power_sums(total: int, parts: int) -> tuple[tuple[int, ...], ...]:
    """All ways to write `total` as a sum of `parts` powers of two, each ascending."""

    def fill(left: int, count: int, largest: int) -> Iterator[tuple[int, ...]]:
        if count == 0:
            if left == 0:
                yield ()
            return
        power = largest
        while power:
            if power <= left - (count - 1) and power * count >= left:
                for rest in fill(left - power, count - 1, power):
                    yield (*rest, power)
            power //= 2

    return tuple(fill(total, parts, 1 << (total.bit_length() - 1)))


def stage_partitions(clusters: int, stages: int) -> Wholes:
    """All C(clusters-1, stages-1) partitions: rows of stage ends, the last being `clusters`."""
    import numpy as np

    rows = list(combinations(range(1, clusters), stages - 1))
    cuts = np.array(rows, dtype=np.int64).reshape(len(rows), stages - 1)
    return np.hstack([cuts, np.full((len(cuts), 1), clusters, dtype=np.int64)])


def assign_gpus(shares: Floats, gpus: int) -> tuple[Wholes, Floats]:
    """GPUs of each stage as powers of two, and the computation bias, for rows of ideal shares.

    The sum of squares is least where shares and powers are in the same order, so that each way to
    split the GPUs needs one comparison of sorted rows. Rows that no split fits have infinite bias.
    """
    import numpy as np

    rows, stages = shares.shape
    order = np.argsort(shares, axis=1, kind="stable")
    ascending = np.take_along_axis(shares, order, axis=1)
    best, least = np.zeros((rows, stages), dtype=np.int64), np.full(rows, np.inf)
    for powers in power_sums(gpus, stages):
        bias = np.sqrt(((ascending - np.array(powers)) ** 2).sum(axis=1))
        better = bias < least - 1e-12
        least[better] = bias[better]
        best[better] = powers
    assigned = np.zeros_like(best)
    np.put_along_axis(assigned, order, best, axis=1)
    return assigned, least
