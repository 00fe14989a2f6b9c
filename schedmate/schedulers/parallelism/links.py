"""Times collectives between the devices of one machine: `schedmate parallel profile --collectives`.

Arena, section 3.4: under the same primitive and topology the time of a collective follows from its
volume, so that each is measured once per cluster, at a few volumes, and interpolated later. One
process a device, gloo on CPUs and NCCL on GPUs; they meet by a file, so that no port is needed.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from schedmate.errors import InputError, require
from schedmate.schedulers.parallelism.network import alpha_beta, interpolated
from schedmate.schedulers.parallelism.profile import MEGABYTE, Tables

COLUMNS = "gpu,precision,primitive,gpus,data_size(mb),time(ms),noise"
VOLUMES_MB = (0.0625, 0.25, 1, 4, 16, 64)
"""Sizes of the whole tensor [MiB] that are timed."""
WARM_UP = 2
LONGEST_S = 300.0
"""Time limit for starting or running a collective, beyond which something is broken [s]."""


class Timed(NamedTuple):
    """One collective as timed."""

    primitive: str
    ranks: int
    size: int
    """Of the whole tensor [bytes]."""
    seconds: float
    noise: float
    """Interquartile range over the median."""


def timed_collectives(
    ranks: int,
    device: str = "cuda",
    repeats: int = 20,
    volumes_mb: Sequence[float] = VOLUMES_MB,
) -> list[Timed]:
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
        given = (ranks, folder, kind, repeats, tuple(volumes_mb))
        try:
            torch.multiprocessing.spawn(_rank, given, nprocs=ranks)
        except Exception as error:  # whatever a backend raises in another process
            last = str(error).strip().rpartition("\n")[2]
            raise InputError(
                f"a process that times collectives failed: {last}; check that all GPUs are free, "
                "or use fewer --ranks"
            ) from error
        found = json.loads(Path(folder, "timed.json").read_text())
    return [Timed(*one) for one in found]


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
        found = [
            _time(torch, name, run, size, repeats, kind)
            for megabytes in volumes
            for name, size, run in _runs(torch, ranks, int(megabytes * MEGABYTE), kind, rank)
        ]
        if rank == 0:
            timed = [[*one[:1], ranks, *one[1:]] for one in found if one is not None]
            Path(folder, "timed.json").write_text(json.dumps(timed))
    finally:
        distributed.destroy_process_group()


def _runs(
    torch: Any, ranks: int, size: int, kind: str, rank: int
) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    """Every primitive on a tensor of about `size` bytes in all, with its exact size."""
    each = max(1, size // 4 // ranks)
    device = kind if kind == "cpu" else f"cuda:{rank}"
    whole = torch.ones(each * ranks, device=device)
    part = torch.ones(each, device=device)
    other = torch.empty_like(whole)
    distributed, exact = torch.distributed, whole.numel() * whole.element_size()
    yield "all_reduce", exact, lambda: distributed.all_reduce(whole)
    yield "all_gather", exact, lambda: distributed.all_gather_into_tensor(whole, part)
    yield "reduce_scatter", exact, lambda: distributed.reduce_scatter_tensor(part, whole)
    yield "all_to_all", exact, lambda: distributed.all_to_all_single(other, whole)


def _time(
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


def row(one: Timed, gpu: str) -> str:
    """A collective as a line of the table."""
    return (
        f"{gpu},fp32,{one.primitive},{one.ranks},{one.size / MEGABYTE:.6f},"
        f"{one.seconds * 1e3:.6f},{one.noise:.3f}"
    )


class Fit(NamedTuple):
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
    """The same of interpolating each point between its neighbours, as predictions do."""


def fits(tables: Tables) -> list[Fit]:
    """The alpha-beta fit of every primitive in collective tables, with the error of
    interpolation."""
    found = []
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
        found.append(
            Fit(
                *(gpu, precision, primitive, ranks, len(distinct)),
                *(alpha, bandwidth, error, between),
            )
        )
    return found
