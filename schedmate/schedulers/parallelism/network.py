"""How long messages and collectives take between GPUs: by measured tables or datasheet numbers.

`schedmate parallel profile --collectives` measures them here, between the devices of one machine.
Under the same primitive and topology the time of a collective follows from its volume (Arena,
section 3.4), so each is measured once per cluster, at a few volumes.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from schedmate.base.errors import InputError, require
from schedmate.schedulers.parallelism.devices import (
    DeviceSpec,
    canonical_name,
    find_device,
    normalised_name,
)
from schedmate.schedulers.parallelism.profile import MEGABYTE, Point, Tables

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
        for device in self.devices:
            if normalised_name(device.name) == normalised_name(gpu):
                return device
        return find_device(gpu, self.describing)

    def bandwidth(self, gpu: str, senders: int, size: float, *, inside: bool) -> float:
        """Bandwidth for a message of `size` bytes [bytes/s].

        Between nodes what `senders` GPUs of one node send in all, each its part; inside a node
        what each of `senders` GPUs sends while all do, as in a ring.
        """
        scope = "intra" if inside else "inter"
        link = self._link(scope, gpu, senders)
        if link is not None:
            polynomial, peak = link
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
            if (name, what, count) == (canonical_name(gpu), primitive, ranks):
                return interpolated(points, size)
        return None

    def _link(self, scope: str, gpu: str, senders: int) -> tuple[tuple[float, ...], float] | None:
        name = canonical_name(gpu)
        counts = [count for where, one, count in self.tables.links if (where, one) == (scope, name)]
        if not counts:
            return None
        nearest = min(counts, key=lambda count: abs(math.log(count / max(senders, 1))))
        return self.tables.links[scope, name, nearest]


# Times collectives between the devices of one machine: `schedmate parallel profile --collectives`.
#
# One process a device, gloo on CPUs and NCCL on GPUs; they meet by a file, so that no port is
# needed.


COLLECTIVE_COLUMNS = "gpu,precision,primitive,gpus,data_size(mb),time(ms),noise"
VOLUMES_MB = (0.0625, 0.25, 1, 4, 16, 64)
"""Sizes of the whole tensor [MiB] that are timed."""
WARM_UP = 2
LONGEST_S = 300.0
"""Time limit for starting or running a collective, beyond which something is broken [s]."""


class TimedCollective(NamedTuple):
    """The measured time of one collective."""

    primitive: str
    ranks: int
    size: int
    """Size of the whole tensor [bytes]."""
    seconds: float
    noise: float
    """Interquartile range over the median."""


def time_collectives(
    ranks: int,
    device: str = "cuda",
    repeats: int = 20,
    volumes_mb: Sequence[float] = VOLUMES_MB,
) -> list[TimedCollective]:
    """Time the primitives among `ranks` processes of this machine, one for each device.

    Primitives that the backend lacks are left out. Raises `MissingExtraError` without torch, and
    `InputError` if there are fewer GPUs than ranks, or a process fails.
    """
    require("timing collectives", "profile", "torch")
    import torch

    kind = device.partition(":")[0]
    if kind == "cuda" and torch.cuda.device_count() < ranks:
        raise InputError(
            f"torch sees {torch.cuda.device_count()} CUDA devices here, not {ranks}: run on a node "
            "with more GPUs, or say --on cpu"
        )
    with tempfile.TemporaryDirectory(prefix="schedmate-links-") as folder:
        arguments = (ranks, folder, kind, repeats, tuple(volumes_mb))
        try:
            torch.multiprocessing.spawn(_rank, arguments, nprocs=ranks)
        except Exception as error:  # whatever a backend raises in another process
            last = str(error).strip().rpartition("\n")[2]
            raise InputError(
                f"a process that times collectives failed: {last}; check that all GPUs are free, "
                "or use fewer --ranks"
            ) from error
        rows = json.loads(Path(folder, "timed.json").read_text())
    return [TimedCollective(*one) for one in rows]


def _rank(rank: int, ranks: int, folder: str, kind: str, repeats: int, volumes: Any) -> None:
    """What each process does; the first one writes the times down."""
    import warnings
    from datetime import timedelta

    import torch
    from torch import distributed

    warnings.simplefilter("ignore", FutureWarning)  # new names that older versions lack
    if kind == "cpu":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    else:
        torch.cuda.set_device(rank)
    distributed.init_process_group(
        "gloo" if kind == "cpu" else "nccl",
        init_method=Path(folder, "meeting").as_uri(),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=LONGEST_S),
    )
    try:
        timings = [
            _time_collective(torch, name, run, size, repeats, kind)
            for megabytes in volumes
            for name, size, run in _collectives(torch, ranks, int(megabytes * MEGABYTE), kind, rank)
        ]
        if rank == 0:
            timed = [[*one[:1], ranks, *one[1:]] for one in timings if one is not None]
            Path(folder, "timed.json").write_text(json.dumps(timed))
    finally:
        distributed.destroy_process_group()


def _collectives(
    torch: Any, ranks: int, size: int, kind: str, rank: int
) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    """Every primitive on a tensor of about `size` bytes in all, with its exact size."""
    each = max(1, size // 4 // ranks)
    device = kind if kind == "cpu" else f"cuda:{rank}"
    whole = torch.ones(each * ranks, device=device)
    part = torch.ones(each, device=device)
    received = torch.empty_like(whole)
    distributed, exact = torch.distributed, whole.numel() * whole.element_size()
    yield "all_reduce", exact, lambda: distributed.all_reduce(whole)
    yield "all_gather", exact, lambda: distributed.all_gather_into_tensor(whole, part)
    yield "reduce_scatter", exact, lambda: distributed.reduce_scatter_tensor(part, whole)
    yield "all_to_all", exact, lambda: distributed.all_to_all_single(received, whole)


def _time_collective(
    torch: Any, name: str, run: Callable[[], Any], size: int, repeats: int, kind: str
) -> tuple[str, int, float, float] | None:
    """Median and spread of a primitive; None where the backend has none."""
    seconds = []
    try:
        for number in range(WARM_UP + repeats):
            torch.distributed.barrier()
            start = time.perf_counter()
            run()
            if kind == "cuda":
                torch.cuda.synchronize()
            if number >= WARM_UP:
                seconds.append(time.perf_counter() - start)
    except (RuntimeError, NotImplementedError) as error:
        # Backends report this in different words, before anything is sent.
        if any(word in str(error).lower() for word in ("support", "implement")):
            return None
        raise
    low, middle, high = statistics.quantiles(seconds, n=4)
    return name, size, middle, (high - low) / middle


def collective_row(timed: TimedCollective, gpu: str) -> str:
    """A collective as a line of the table."""
    return (
        f"{gpu},fp32,{timed.primitive},{timed.ranks},{timed.size / MEGABYTE:.6f},"
        f"{timed.seconds * 1e3:.6f},{timed.noise:.3f}"
    )


class AlphaBetaFit(NamedTuple):
    """How well collectives of one kind are described by a latency and a bandwidth."""

    gpu: str
    precision: str
    primitive: str
    ranks: int
    points: int
    latency_s: float
    bandwidth: float
    """[bytes/s]; infinity where time does not grow with the volume."""
    error: float
    """Mean relative error of the line."""
    interpolated: float
    """Mean relative error of interpolating each point between its neighbours, as predictions do."""


def alpha_beta_fits(tables: Tables) -> list[AlphaBetaFit]:
    """The alpha-beta fit of every primitive in collective tables, with the error of
    interpolation."""
    fits = []
    for (gpu, precision, primitive, ranks), points in sorted(tables.collectives.items()):
        sizes: dict[float, list[float]] = {}
        for size, seconds in points:
            sizes.setdefault(size, []).append(seconds)
        distinct = sorted((size, statistics.median(times)) for size, times in sizes.items())
        alpha, beta, error = alpha_beta(distinct)
        inner = [
            abs(interpolated([*distinct[:place], *distinct[place + 1 :]], size) / seconds - 1)
            for place, (size, seconds) in enumerate(distinct[1:-1], 1)
        ]
        between = statistics.mean(inner) if inner else 0.0
        bandwidth = 1 / beta if beta > 0 else float("inf")
        fits.append(
            AlphaBetaFit(
                *(gpu, precision, primitive, ranks, len(distinct)),
                *(alpha, bandwidth, error, between),
            )
        )
    return fits
