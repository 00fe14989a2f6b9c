"""How long messages and collectives take between GPUs, by measured tables or datasheet numbers."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from schedmate.schedulers.parallelism.devices import DeviceSpec, canonical, device, normalised
from schedmate.schedulers.parallelism.profile import Point, Tables

DEFAULT_NETWORK = 25e9
"""What a GPU with NVLink sends to other nodes, or a whole node without [bytes/s]: 200 Gbit/s."""

SLOWEST = 1e6
_NVLINK = 100e9


def interpolated(points: list[Point], size: float) -> float:
    """Time of a message of `size` bytes by measured ones [s]: linear between them, proportional
    beyond the largest, that of the smallest below it."""
    sizes = [one for one, _ in points]
    place = bisect_left(sizes, size)
    if place == 0:
        return points[0][1]
    if place == len(points):
        return points[-1][1] * size / points[-1][0]
    (left, early), (right, late) = points[place - 1], points[place]
    return early + (late - early) * (size - left) / (right - left)


def alpha_beta(points: list[Point]) -> tuple[float, float, float]:
    """Latency [s], seconds per byte, and mean relative error of the line alpha + beta x bytes.

    Fitted by weighted least squares, where each point weighs by its relative error.
    """
    weights = [1 / time**2 for _, time in points]
    total = sum(weights)
    mean_size = sum(w * size for w, (size, _) in zip(weights, points, strict=True)) / total
    mean_time = sum(w * time for w, (_, time) in zip(weights, points, strict=True)) / total
    pairs = list(zip(weights, points, strict=True))
    spread = sum(w * (size - mean_size) ** 2 for w, (size, _) in pairs)
    beta = (
        sum(w * (size - mean_size) * (time - mean_time) for w, (size, time) in pairs) / spread
        if spread
        else 0.0
    )
    alpha = mean_time - beta * mean_size
    errors = [abs((alpha + beta * size) / time - 1) for size, time in points]
    return alpha, beta, sum(errors) / len(errors)


@dataclass(frozen=True)
class Network:
    """The links of a cluster: measured if `tables` has them, else by datasheet."""

    tables: Tables
    between_nodes: float = 0.0
    """Total bandwidth of a node to others [bytes/s], if no table has it; 0: by default."""
    devices: tuple[DeviceSpec, ...] = ()
    """GPU types that were described and are not bundled."""
    describing: str = ""
    """The option that describes more of them, for messages."""

    def spec(self, gpu: str) -> DeviceSpec:
        """The GPU type of a name; raises `InputError` for an unknown one."""
        for one in self.devices:
            if normalised(one.name) == normalised(gpu):
                return one
        return device(gpu, self.describing)

    def bandwidth(self, gpu: str, senders: int, size: float, *, inside: bool) -> float:
        """Bandwidth for a message of `size` bytes [bytes/s].

        Between nodes what `senders` GPUs of one node send in all, each its part; inside a node
        what each of `senders` GPUs sends while all do, as in a ring.
        """
        scope = "intra" if inside else "inter"
        found = self._link(scope, gpu, senders)
        if found is not None:
            polynomial, peak = found
            power = math.log2(max(size, 1e6) / 1e6)
            fitted = sum(c * power**n for n, c in enumerate(reversed(polynomial))) * 1e9
            return min(max(fitted, SLOWEST), peak)
        spec = self.spec(gpu)
        if inside:
            return spec.link
        if self.between_nodes:
            return self.between_nodes
        return DEFAULT_NETWORK * (senders if spec.link >= _NVLINK else 1)

    def send(self, gpus: Iterable[str], senders: int, size: float, *, inside: bool) -> float:
        """Time of `size` bytes that `senders` GPUs send in equal parts to the next stage [s]."""
        return max(size / self.bandwidth(gpu, senders, size, inside=inside) for gpu in gpus)

    def all_reduce(
        self, gpus: Iterable[str], ranks: int, size: float, at_once: int, *, inside: bool
    ) -> float:
        """Time of a ring all-reduce of `size` bytes over `ranks` GPUs [s].

        `at_once` such rings of neighbouring GPUs run at the same time over the links of a node.
        """
        if ranks == 1:
            return 0.0
        if inside:
            timed = [self._timed("all_reduce", gpu, ranks, size) for gpu in gpus]
            if timed and all(time is not None for time in timed):
                return max(time for time in timed if time is not None)
        return self.ring(gpus, ranks, size, at_once, inside=inside)

    def tensor_reduce(self, gpu: str, ranks: int, size: float, per_node: int) -> float:
        """One all-reduce of `size` bytes among the tensor-parallel GPUs of a stage [s].

        More of them than the `per_node` GPUs of a node reduce between nodes as well.
        """
        if ranks <= per_node:
            return self.all_reduce([gpu], ranks, size, 1, inside=True)
        within = self.all_reduce([gpu], per_node, size, 1, inside=True)
        nodes = -(-ranks // per_node)  # each GPU reduces its part with its peers of other nodes
        return within + self.ring([gpu], nodes, size / per_node, per_node, inside=False)

    def ring(
        self, gpus: Iterable[str], ranks: int, size: float, at_once: int, *, inside: bool
    ) -> float:
        """Time of a ring all-reduce by the bandwidth of the links alone [s]; see `all_reduce`."""
        volume = 2 * (ranks - 1) / ranks * size
        if inside:  # every GPU has its own links
            return max(volume / self.bandwidth(gpu, ranks, size, inside=True) for gpu in gpus)
        return max(
            volume * at_once / self.bandwidth(gpu, at_once, size, inside=False) for gpu in gpus
        )

    def contended(self, gpu: str, ranks: int) -> bool:
        """Whether measured bandwidth within a node falls as more of its GPUs send."""
        fewer, all_of_them = self._link("intra", gpu, 2), self._link("intra", gpu, ranks)
        return fewer is not None and all_of_them is not None and all_of_them[1] < fewer[1]

    def _timed(self, primitive: str, gpu: str, ranks: int, size: float) -> float | None:
        for (name, _, what, count), points in self.tables.collectives.items():
            if (name, what, count) == (canonical(gpu), primitive, ranks):
                return interpolated(points, size)
        return None

    def _link(self, scope: str, gpu: str, senders: int) -> tuple[tuple[float, ...], float] | None:
        name = canonical(gpu)
        counts = [count for where, one, count in self.tables.links if (where, one) == (scope, name)]
        if not counts:
            return None
        nearest = min(counts, key=lambda count: abs(math.log(count / max(senders, 1))))
        return self.tables.links[scope, name, nearest]
