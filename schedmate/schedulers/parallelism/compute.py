"""How long the layers of a stage compute: by measured operators, else by the device model."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from schedmate.errors import InputError
from schedmate.schedulers.parallelism import operators as ops
from schedmate.schedulers.parallelism.devices import DeviceSpec, canonical
from schedmate.schedulers.parallelism.fitting import fitted
from schedmate.schedulers.parallelism.kernels import Shares, both_times, calibration
from schedmate.schedulers.parallelism.models import ModelSpec
from schedmate.schedulers.parallelism.network import Network
from schedmate.schedulers.parallelism.operators import Sizes
from schedmate.schedulers.parallelism.profile import EMBEDDING, HEAD, LayerKey, Profiled

Times = tuple[float, float]
"""Forward and backward time [s]."""


@dataclass
class LayerTimes:
    """Times of one micro-batch on one GPU type: of the embedding, of each block, of the head."""

    embedding: Times
    blocks: list[Times]
    head: Times
    source: str
    """`profile`, `device model`, or `fitted device model` if a kernel table was given."""

    def stage(self, first: int, count: int) -> Times:
        """Forward and backward time of `count` layers from layer `first`: 0 is the embedding."""
        layers = [self.embedding, *self.blocks, self.head][first : first + count]
        return sum(one for one, _ in layers), sum(one for _, one in layers)


@dataclass
class Compute:
    """Times of layers, remembered: plans of a search share most of them."""

    network: Network
    notes: set[str] = field(default_factory=set)
    _known: dict[tuple[ModelSpec, str, Sizes, int], LayerTimes] = field(default_factory=dict)

    @cached_property
    def _fitted(self) -> dict[str, Shares]:
        """The share of datasheet peaks that GPU types reach, from the given kernel tables."""
        rows = self.network.tables.kernels
        if not rows:
            return {}
        names = {canonical(row.get("device") or "") for row in rows}
        return fitted(rows, {name: spec for name in names if (spec := self._spec(name))})

    def _spec(self, gpu: str) -> DeviceSpec | None:
        """A GPU type of a table, which may contain types that no plan uses."""
        try:
            return self.network.spec(gpu)
        except InputError:
            return None

    def layers(self, spec: ModelSpec, gpu: str, sizes: Sizes, per_node: int) -> LayerTimes:
        """The times of a model's layers on one GPU type, with `per_node` GPUs a node."""
        key = (spec, canonical(gpu), sizes, per_node)
        if key not in self._known:
            profiled = self._profiled(spec, gpu, sizes)
            self._known[key] = profiled or self._modelled(spec, gpu, sizes, per_node)
        return self._known[key]

    def _profiled(self, spec: ModelSpec, gpu: str, sizes: Sizes) -> LayerTimes | None:
        tables = self.network.tables
        if not tables.layers or spec.kind != "transformer":
            return None
        key = LayerKey(
            canonical(gpu), sizes.precision, spec.hidden, sizes.micro_batch, sizes.tensor
        )
        found = tables.layers.get(key)
        if found is None or not _alike(found, spec, sizes):
            self._missing(gpu, spec, key)
            return None
        overhead = calibration()["iteration"]
        block = _total(
            found, [name for name in found.operators if name not in {EMBEDDING, *HEAD}], overhead
        )
        excess = 2 * self._excess(spec, gpu, sizes)
        block = block[0] - excess, block[1] - excess
        rows = spec.padded_vocabulary / found.vocabulary if found.vocabulary else 1.0
        ends = [_total(found, [name], overhead) for name in (EMBEDDING, *HEAD)]
        scaled = [(forward * rows, backward * rows) for forward, backward in (ends[0], ends[2])]
        return LayerTimes(
            (ends[0][0], scaled[0][1]),
            [block] * spec.blocks,
            (ends[1][0] + scaled[1][0], ends[1][1] + scaled[1][1]),
            "profile",
        )

    def _excess(self, spec: ModelSpec, gpu: str, sizes: Sizes) -> float:
        """Part of the time of a tensor-parallel all-reduce in the profile that is due to contention
        [s].

        There are two measurements of the links of a node: the timed all-reduce and the fitted
        bandwidth. If the latter falls as GPUs are added, links are contended, the two differ by a
        large factor, and their geometric mean is used.
        """
        if sizes.tensor == 1 or not self.network.contended(gpu, sizes.tensor):
            return 0.0
        stream = sizes.tokens * spec.hidden * sizes.element
        timed = self.network.all_reduce([gpu], sizes.tensor, stream, 1, inside=True)
        by_links = self.network.ring([gpu], sizes.tensor, stream, 1, inside=True)
        return max(0.0, timed - math.sqrt(timed * by_links))

    def _missing(self, gpu: str, spec: ModelSpec, key: LayerKey) -> None:
        timed = sorted(self.network.tables.gpus())
        if key.gpu not in timed and not self.network.tables.kernels:
            raise InputError(
                f"the profile covers {', '.join(timed)}, none of {gpu}: give a profile of "
                f"{gpu}, or leave --profile out to estimate from its datasheet"
            )
        self.notes.add(
            f"no times of {spec.name} at micro-batch {key.micro_batch}, tensor {key.tensor}, "
            f"{key.precision} on {gpu} in the profile: estimated by the device model"
        )

    def _modelled(self, spec: ModelSpec, gpu: str, sizes: Sizes, per_node: int) -> LayerTimes:
        device = self.network.spec(gpu)
        shares = self._fitted.get(canonical(gpu))
        known: dict[tuple[object, ...], Times] = {}
        times = []
        for layer, operators in enumerate(ops.all_layers(spec, sizes)):
            kind = tuple(operators)
            if kind not in known:
                known[kind] = _sum(device, operators, sizes, shares)
            forward, backward = known[kind]
            there, back = ops.tensor_reduces(spec, layer)
            reduce = 0.0
            if sizes.tensor > 1:
                size = ops.output_bytes(spec, layer, sizes)
                reduce = self.network.tensor_reduce(gpu, sizes.tensor, size, per_node)
            times.append((forward + there * reduce, backward + back * reduce))
        source = "device model" if shares is None else "fitted device model"
        return LayerTimes(times[0], times[1:-1], times[-1], source)


def _sum(
    device: DeviceSpec, operators: Iterable[ops.Operator], sizes: Sizes, shares: Shares | None
) -> Times:
    times = [both_times(device, operator, sizes.precision, shares) for operator in operators]
    return sum(one for one, _ in times), sum(one for _, one in times)


def _alike(found: Profiled, spec: ModelSpec, sizes: Sizes) -> bool:
    """Whether a layer was timed with the shapes of this model: a table has plain ones only."""
    grouped = spec.kv_heads not in (0, spec.heads)
    plain = not (spec.gated or spec.experts or grouped)
    wide = found.feed_forward in (0, spec.feed_forward)
    return plain and wide and found.sequence == sizes.sequence


def _total(found: Profiled, names: Iterable[str], constants: dict[str, float]) -> Times:
    """Times of timed operators within a stream of others: without what timing one alone adds."""
    forward = backward = 0.0
    overhead, least = constants["operator_overhead_s"], constants["least_share"]
    for name in names:
        one, other = found.operators.get(name, (0.0, 0.0))
        forward += max(one - overhead, least * one)
        backward += max(other - overhead, least * other)
    return forward, backward
