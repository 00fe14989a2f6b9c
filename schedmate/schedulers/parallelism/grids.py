"""The plans of a grid: all stage partitions and GPU assignments for one number of stages.

Arena, section 3.3: operators are clustered, GPUs follow loads (Equation 2), assignments are powers
of two nearest to that (computation bias, Equation 3), and communication is weighed for the whole
pipeline (Equation 4). All partitions of a grid are handled at once as arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedmate.schedulers.parallelism import operators as ops
from schedmate.schedulers.parallelism.candidates import Candidate, Request, frontier
from schedmate.schedulers.parallelism.kernels import calibration
from schedmate.schedulers.parallelism.memory import context_bytes, layer_memory
from schedmate.schedulers.parallelism.network import Network
from schedmate.schedulers.parallelism.operators import Sizes
from schedmate.schedulers.parallelism.partitions import assigned, clustered, loads, partitions

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
        self, request: Request, stages: int, network: Network, clusters: int = CLUSTERS
    ) -> None:
        self.request, self.stages, self.network = request, stages, network
        self.device = network.spec(request.gpu)
        self.clusters = clusters

    def candidates(self) -> list[Candidate]:
        """The non-dominated plans that fit into memory, by ascending computation bias."""
        found = []
        for data in _powers(self.request.gpus // self.stages):
            for batches in self.micro_batches(data):
                found += self._with_data(data, batches)
        return frontier(found)

    def micro_batches(self, data: int) -> list[int]:
        """Numbers of micro-batches to choose from.

        Four a stage, or the most below that which divide the batch, as in the paper; and more and
        smaller ones, which need less memory: sixteen a stage, or one for each sample.
        """
        share, rest = divmod(self.request.global_batch, data)
        if rest:
            return []
        wanted = MICRO_BATCHES_PER_STAGE * self.stages
        found = [_divisor(share, min(wanted * factor, share)) for factor in (1, 4)]
        return list(dict.fromkeys([*found, share]))

    def _with_data(self, data: int, batches: int) -> list[Candidate]:
        import numpy as np

        request = self.request
        micro_batch = request.global_batch // (data * batches)
        sizes = Sizes(micro_batch, request.sequence, request.precision, 1)
        weights = loads(request.spec, self.device, sizes)
        ends = clustered(weights, self.clusters)
        if len(ends) < self.stages:
            return []
        cuts = partitions(len(ends), self.stages)
        layer_ends = np.array(ends)[cuts - 1]
        starts = np.hstack([np.zeros((len(cuts), 1), dtype=np.int64), layer_ends[:, :-1]])
        summed = np.concatenate([[0.0], np.cumsum(weights)])
        stage_loads = summed[layer_ends] - summed[starts]
        # data parallelism needs a multiple of `data` GPUs in each stage: divide by it
        groups, bias = assigned(
            stage_loads / summed[-1] * (request.gpus / data), request.gpus // data
        )
        fits, communication = self._weighed(sizes, data, batches, starts, layer_ends, groups)
        usable = fits & np.isfinite(bias)
        kept = _non_dominated(bias[usable], communication[usable])
        places = np.flatnonzero(usable)[kept]
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
        degrees = _powers(max(1, request.gpus // data))
        place = np.log2(np.maximum(tensor, 1)).astype(np.int64)
        parameters, saved, reduces, scratch = [], [], [], []
        for degree in degrees:
            divided = sizes._replace(tensor=degree)
            rows = [
                layer_memory(request.spec, layer, divided, request.recompute)
                for layer in range(request.spec.layers)
            ]
            parameters.append(_summed([row.parameters for row in rows]))
            saved.append(_summed([row.saved for row in rows]))
            scratch.append(max(row.temporary for row in rows))
            reduces.append(_summed(self._reduces(divided)))
        held, activations, per_stage = (
            table[place, ends] - table[place, starts]
            for table in (np.array(parameters), np.array(saved), np.array(reduces))
        )
        constants = calibration()["memory"]
        each = constants["bytes_per_parameter"][request.precision]
        shared = min(constants["sharded"][request.sharding].get(request.precision, 0), each)
        in_flight = np.minimum(self.stages - np.arange(self.stages), batches)
        memory = (
            held * (each - shared + shared / data)
            + activations * in_flight
            + np.array(scratch)[place]
            + context_bytes(self.device)
        )
        fits = (memory <= self.device.memory_bytes).all(axis=1) & self._divisible(tensor)
        gradients = self._gradients(held, tensor, data)
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

    def _gradients(self, held: Floats, tensor: Wholes, data: int) -> Floats:
        """All-reduce of gradients by the slowest stage [s]."""
        import numpy as np

        if data == 1:
            return np.zeros(len(held))
        request = self.request
        inside = int(tensor.max()) * data <= request.gpus_per_node
        at_once = min(request.gpus_per_node, int(tensor.max()))
        second_per_byte = self.network.ring([request.gpu], data, 1e8, at_once, inside=inside) / 1e8
        slowest: Floats = (4 * held).max(axis=1) * second_per_byte
        return slowest


def _divisor(number: int, most: int) -> int:
    """The largest divisor that is at most `most`."""
    return next(count for count in range(most, 0, -1) if number % count == 0)


def _summed(values: list[float]) -> Floats:
    """Running sums from 0, so that layers a to b take the difference of two."""
    import numpy as np

    return np.concatenate([[0.0], np.cumsum(values)])


def _powers(limit: int) -> list[int]:
    return [1 << power for power in range(limit.bit_length()) if 1 << power <= limit]


def _non_dominated(first: Floats, second: Floats) -> Wholes:
    """Positions of the points that no other has below or equal in both, by ascending first."""
    import numpy as np

    order = np.lexsort((second, first))
    kept, least = [], np.inf
    for place in order:
        if second[place] < least - 1e-15:
            kept.append(place)
            least = second[place]
    return np.array(kept, dtype=np.int64)
