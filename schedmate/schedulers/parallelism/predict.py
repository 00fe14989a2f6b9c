"""Iteration time and memory of a plan: compute, messages, collectives, and how they overlap.

The 1F1B schedule (PipeDream; Arena, section 3.4): the first micro-batch passes every stage, the
others follow at the pace of the slowest one, then gradients are reduced. Layers compute as
measured, else by the device model; the memory of a stage is summed term by term. Fully sharded
plans (FSDP, ZeRO-3) are interpolated between published throughputs (sharded.csv) instead.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

from schedmate.base import data
from schedmate.base.errors import InputError
from schedmate.base.terminal import counted
from schedmate.schedulers.parallelism import operators as ops
from schedmate.schedulers.parallelism.devices import DeviceSpec, canonical_name, find_device
from schedmate.schedulers.parallelism.models import ModelSpec, find_model
from schedmate.schedulers.parallelism.network import Network
from schedmate.schedulers.parallelism.operators import (
    LayerRole,
    PeakShares,
    Sizes,
    calibration,
    fit_shares,
    flops_per_sample,
    operator_times,
    output_bytes,
)
from schedmate.schedulers.parallelism.plan import Plan, Replica
from schedmate.schedulers.parallelism.profile import EMBEDDING, HEAD, LayerKey, Profiled

DATA_CENTRE_BANDWIDTH = 1.4e12
"""GPUs with more memory bandwidth than this load the larger libraries of kernels [bytes/s]."""


class Memory(NamedTuple):
    """Memory of one GPU [bytes]."""

    states: float
    """Weights, gradients, optimiser states and their copies."""
    activations: float
    """What the micro-batches in flight keep for their backward passes."""
    temporary: float
    context: float

    @property
    def total(self) -> float:
        """Sum of all parts [bytes]."""
        return self.states + self.activations + self.temporary + self.context

    def largest(self) -> str:
        """The term that takes most, in words."""
        terms = {
            "weights, gradients and optimiser states": self.states,
            "activations of the micro-batches in flight": self.activations,
            "temporary tensors": self.temporary,
            "the framework itself": self.context,
        }
        return max(terms, key=lambda term: terms[term])


def layer_role(spec: ModelSpec, layer: int) -> LayerRole:
    """What layer `layer` of a model is: 0 is the embedding, the last the head."""
    if layer == 0:
        return "embedding"
    return "head" if layer == spec.blocks + 1 else "block"


def layer_parameters(spec: ModelSpec, layer: int, tensor: int) -> float:
    """Parameters of a layer on one of `tensor` GPUs."""
    what = layer_role(spec, layer)
    if what == "embedding":
        divided, copied = spec.embedding_parameters()
    elif what == "head":
        divided, copied = spec.head_parameters()
    else:
        divided, copied = spec.block_parameters(layer - 1)
    return divided / tensor + copied


class LayerMemory(NamedTuple):
    """Memory that a layer adds to its stage's GPUs."""

    parameters: float
    saved: float
    """Kept by each micro-batch in flight [bytes]."""
    temporary: float
    """Needed for a moment [bytes]."""


def layer_memory(spec: ModelSpec, layer: int, sizes: Sizes, recompute: str) -> LayerMemory:
    """The memory of layer `layer` for a micro-batch, on one of `sizes.tensor` GPUs."""
    if spec.kind == "wide-resnet":
        convolutions = spec.convolution_layers()[layer]
        saved = convolutions.saved * sizes.micro_batch * sizes.element
        saved_bytes = saved if recompute != "full" else saved / 3
        return LayerMemory(convolutions.parameters / sizes.tensor, saved_bytes, saved)
    what = layer_role(spec, layer)
    saved = ops.saved_bytes(spec, what, sizes, recompute, layer - 1)
    constants = calibration()["memory"]
    copies = constants["score_copies"] + (constants["dropout_copies"] if spec.dropout else 0)
    temporary = copies * ops.score_bytes(spec, sizes) if what == "block" else 0.0
    if recompute != "none" and what == "block":
        temporary += ops.saved_bytes(spec, "block", sizes, "none", layer - 1)
    return LayerMemory(layer_parameters(spec, layer, sizes.tensor), saved, temporary)


def context_bytes(device: DeviceSpec) -> float:
    """Memory of the framework itself on a GPU [bytes]."""
    kind = "data-centre" if device.bandwidth > DATA_CENTRE_BANDWIDTH else "other"
    return float(calibration()["memory"]["context_bytes"][kind])


def stage_memory(
    plan: Plan, spec: ModelSpec, stage: int, tensor: int, device: DeviceSpec
) -> Memory:
    """The memory of stage `stage`, from 0, on each of its GPUs."""
    constants = calibration()["memory"]
    first = sum(one.layers for one in plan.stages[:stage])
    layers = range(first, first + plan.stages[stage].layers)
    sizes = Sizes(plan.micro_batch, plan.sequence, plan.precision, tensor)
    layers_memory = [layer_memory(spec, layer, sizes, plan.recompute) for layer in layers]
    parameters = sum(layer.parameters for layer in layers_memory)
    bytes_per_parameter = constants["bytes_per_parameter"][plan.precision]
    if plan.optimizer.lower() == "sgd":
        bytes_per_parameter -= 8  # no moments
    divided = constants["sharded"][plan.sharding].get(plan.precision, 0)
    if plan.optimizer.lower() == "sgd":
        divided = max(0, divided - 8)
    states = parameters * (bytes_per_parameter - divided + divided / plan.data)
    if plan.sharding == "zero-3":  # the layers that are gathered at a time
        states += 2 * sizes.element * max(layer.parameters for layer in layers_memory)
    in_flight = min(len(plan.stages) - stage, plan.micro_batches)
    saved = sum(layer.saved for layer in layers_memory)
    temporary = max(layer.temporary for layer in layers_memory)
    return Memory(states, saved * in_flight, temporary, context_bytes(device))


# Iteration time and memory of a plan: compute, messages, collectives, and how they overlap.
#
# The 1F1B schedule (PipeDream; Arena, section 3.4): the first micro-batch passes every stage, the
# others follow at the pace of the slowest one, then gradients are reduced and weights updated.


PREDICTION_SCHEMA = "schedmate.parallel-prediction/v1"
_UPDATE_BYTES = 28
"""What an Adam step reads and writes for each parameter: weight, gradient, two moments, in fp32."""


@dataclass(frozen=True)
class Prediction:
    """Predicted time and memory of a plan."""

    plan: Plan
    iteration_s: float
    parts: dict[str, float]
    """Where the time goes [s]: they add up to `iteration_s`."""
    memory: tuple[Memory, ...]
    """The memory of each stage, the largest among its replicas."""
    interval_s: tuple[float, float]
    """80 % of measured times are within it: from plans that were left out of the fit [s]."""
    bottleneck: int
    """The slowest stage, from 0."""
    notes: tuple[str, ...]
    source: str
    fits: bool
    why_not: str = ""

    @property
    def max_memory_bytes(self) -> float:
        """Memory of the fullest GPU [bytes]."""
        return max(memory.total for memory in self.memory)

    @property
    def samples_per_s(self) -> float:
        """Throughput [samples/s]."""
        return self.plan.global_batch / self.iteration_s

    def document(self) -> dict[str, Any]:
        """The prediction as JSON (schema `schedmate.parallel-prediction/v1`)."""
        return {
            "schema": PREDICTION_SCHEMA,
            **({"id": self.plan.id} if self.plan.id else {}),
            "iteration_s": self.iteration_s,
            "interval_s": list(self.interval_s),
            "max_memory_bytes": round(self.max_memory_bytes),
            "samples_per_s": self.samples_per_s,
            "parts": self.parts,
            "memory": [
                {**{name: round(value) for name, value in memory._asdict().items()}}
                for memory in self.memory
            ],
            "bottleneck_stage": self.bottleneck,
            "fits": self.fits,
            **({"why_not": self.why_not} if self.why_not else {}),
            "source": self.source,
            "notes": list(self.notes),
        }


class Predictor:
    """Predicts plans on one cluster; remembers times of layers from plan to plan."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.compute = Compute(network)

    def predict(self, plan: Plan) -> Prediction:
        """The prediction of a plan.

        Raises `InputError` for a plan whose layers do not add up, an unknown model or GPU type, or
        a profile without its GPU types.
        """

        spec, notes = plan.spec()
        self.compute.notes.clear()
        layout = _RankLayout(plan)
        if plan.sharding == "zero-3":
            parts, spread, unsure = sharded_parts(plan, spec, self.network)
            source, bottleneck = "fitted rows", 0
            within = math.exp(SPREAD_OF_80 * spread)
            notes = [*notes, *unsure]
        else:
            parts, source, bottleneck = self._pipeline(plan, spec, layout)
            within, unlike = likely_factor(plan, source)
            notes = [*notes, *self._lacking(plan, source), *unlike]
        memory, why_not = self._memory(plan, spec)
        iteration_s = sum(parts.values())
        return Prediction(
            plan,
            iteration_s,
            parts,
            memory,
            (iteration_s / within, iteration_s * within),
            bottleneck,
            (*notes, *sorted(self.compute.notes)),
            source,
            not why_not,
            why_not,
        )

    def _lacking(self, plan: Plan, source: str) -> list[str]:
        """Notes on GPU types that run the plan's precision as another one, or may."""
        if "device model" not in source:
            return []
        notes = []
        for gpu in sorted({replica.gpu_type for stage in plan.stages for replica in stage.kinds()}):
            device = self.network.spec(gpu)
            instead = device.runs_as(plan.precision)
            if plan.precision == "fp32" and "tf32" in device.peaks:
                notes.append(
                    f"{device.name} runs products of fp32 as tf32 where the framework lets it, "
                    "which is faster: then set precision to tf32"
                )
            if instead != plan.precision:
                other = "; fp16 is faster there" if "fp16" in device.peaks else ""
                notes.append(
                    f"{device.name} has no units for {plan.precision}: its matrix products are "
                    f"priced as {instead}{other if instead == 'fp32' else ''}"
                )
        return notes

    def _pipeline(
        self, plan: Plan, spec: ModelSpec, layout: _RankLayout
    ) -> tuple[dict[str, float], str, int]:
        compute, sources = [], set()
        for stage, stage_plan in enumerate(plan.stages):
            slowest = 0.0
            for replica in stage_plan.kinds():
                time, source = self._stage(plan, spec, stage, replica)
                slowest = max(slowest, time)
                sources.add(source)
            compute.append(slowest)
        messages = [self._messages(plan, spec, layout, stage) for stage in range(len(plan.stages))]
        total = [busy + sending for busy, sending in zip(compute, messages, strict=True)]
        slow = max(range(len(total)), key=lambda stage: total[stage])
        constants = calibration()["iteration"]
        parts = {
            "compute_s": plan.micro_batches * compute[slow],
            "messages_s": plan.micro_batches * messages[slow],
            "pipeline_fill_s": sum(total) - total[slow],
            "gradient_reduction_s": max(
                self._reduction(plan, spec, layout, stage) for stage in range(len(plan.stages))
            ),
            "update_s": max(self._update(plan, spec, stage) for stage in range(len(plan.stages))),
            "overhead_s": 0.0 if layout.one_node else float(constants["iteration_overhead_s"]),
        }
        return parts, " and ".join(sorted(sources)), slow

    def _stage(
        self, plan: Plan, spec: ModelSpec, stage: int, replica: Replica
    ) -> tuple[float, str]:
        """Forward and backward time of a micro-batch in a stage [s], and its source."""
        sizes = Sizes(plan.micro_batch, plan.sequence, plan.precision, replica.tensor)
        times = self.compute.layers(spec, replica.gpu_type, sizes, plan.gpus_per_node)
        first = sum(one.layers for one in plan.stages[:stage])
        forward, backward = times.stage(first, plan.stages[stage].layers)
        if plan.recompute == "full":
            backward += forward
        return forward + backward, times.source

    def _messages(self, plan: Plan, spec: ModelSpec, layout: _RankLayout, stage: int) -> float:
        """Time a stage waits for activations and gradients of a micro-batch [s]."""
        sizes = Sizes(plan.micro_batch, plan.sequence, plan.precision, 1)
        constants = calibration()["iteration"]
        each, factor = float(constants["message_s"]), float(constants["message_factor"])
        total = 0.0
        for neighbour in (stage - 1, stage + 1):
            if 0 <= neighbour < len(plan.stages):
                ends = [*plan.stages[stage].kinds(), *plan.stages[neighbour].kinds()]
                senders = max(replica.tensor for replica in ends)
                inside = layout.together(stage, neighbour)
                last = sum(one.layers for one in plan.stages[: max(stage, neighbour)]) - 1
                size = output_bytes(spec, last, sizes)
                names = [replica.gpu_type for replica in ends]
                wire = self.network.send(names, senders, size, inside=inside)
                total += each + factor * wire
        return total

    def _reduction(self, plan: Plan, spec: ModelSpec, layout: _RankLayout, stage: int) -> float:
        """All-reduce of a stage's gradients among its data-parallel replicas [s]."""
        kinds = plan.stages[stage].kinds()
        tensor = min(replica.tensor for replica in kinds)
        size = 4 * self._parameters(plan, spec, stage, tensor)
        names = [replica.gpu_type for replica in kinds]
        inside = layout.replicas_together(stage)
        at_once = min(tensor, plan.gpus_per_node)
        return self.network.all_reduce(names, plan.data, size, at_once, inside=inside)

    def _update(self, plan: Plan, spec: ModelSpec, stage: int) -> float:
        times = []
        for replica in plan.stages[stage].kinds():
            parameters = self._parameters(plan, spec, stage, replica.tensor)
            if plan.sharding != "none":
                parameters /= plan.data
            times.append(_UPDATE_BYTES * parameters / self.network.spec(replica.gpu_type).bandwidth)
        return max(times)

    def _parameters(self, plan: Plan, spec: ModelSpec, stage: int, tensor: int) -> float:
        first = sum(one.layers for one in plan.stages[:stage])
        layers = range(first, first + plan.stages[stage].layers)
        sizes = Sizes(plan.micro_batch, plan.sequence, plan.precision, tensor)
        return sum(layer_memory(spec, layer, sizes, "none").parameters for layer in layers)

    def _memory(self, plan: Plan, spec: ModelSpec) -> tuple[tuple[Memory, ...], str]:
        memories, why_not = [], ""
        for stage, stage_plan in enumerate(plan.stages):
            needs = [
                (stage_memory(plan, spec, stage, replica.tensor, device), device)
                for replica in stage_plan.kinds()
                for device in [self.network.spec(replica.gpu_type)]
            ]
            for memory, device in needs:
                if memory.total > device.memory_bytes and not why_not:
                    why_not = (
                        f"stage {stage + 1} needs {memory.total / 1e9:.0f} GB of the "
                        f"{device.memory_bytes / 1e9:.0f} GB of {device.name}, most of it for "
                        f"{memory.largest()}"
                    )
            memories.append(max((memory for memory, _ in needs), key=lambda memory: memory.total))
        return tuple(memories), why_not


def likely_factor(plan: Plan, source: str) -> tuple[float, list[str]]:
    """The factor that 80 % of measured times are within of predictions that rest on the same.

    With a note on what the plan has that no fitted plan had.
    """
    known = calibration()["interval"]
    factors: dict[str, float] = known["factors"]
    if "device model" in source:
        note = "without a profile of these GPUs, times follow from datasheets; give --profile"
        return factors["datasheet"], [note]
    types = {canonical_name(gpu) for gpu in plan.gpu_types()}
    named = [row for row in known["fitted"] if types <= {*map(canonical_name, row["types"])}]
    alike = [row for row in named if (len(plan.stages) > 1) in row["pipelined"]]
    if any(row["gpus"][0] <= plan.gpus <= row["gpus"][1] for row in alike):
        return factors["fitted"], []
    if not named:
        lacking = " and ".join(sorted(types))
    elif not alike:
        stages = "several stages" if len(plan.stages) > 1 else "one stage"
        lacking = f"{stages} on {' and '.join(sorted(types))}"
    else:
        lacking = f"{counted(plan.gpus, 'GPU')} of {' and '.join(sorted(types))}"
    return factors["unlike"], [f"no plan that the model was fitted to had {lacking}"]


class _RankLayout:
    """Which ranks share a node: tensor ranks are neighbours, then data, then pipeline ranks."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.types = {replica.gpu_type for stage in plan.stages for replica in stage.kinds()}

    @property
    def one_node(self) -> bool:
        """Whether all ranks are in one node."""
        return len(self.types) == 1 and self.plan.gpus <= self.plan.gpus_per_node

    def together(self, stage: int, other: int) -> bool:
        """Whether two neighbouring stages are in one node."""
        types = {
            replica.gpu_type for one in (stage, other) for replica in self.plan.stages[one].kinds()
        }
        return len(types) == 1 and self.plan.gpus <= self.plan.gpus_per_node

    def replicas_together(self, stage: int) -> bool:
        """Whether the data-parallel replicas of a stage are in one node."""
        one = self.plan.stages[stage]
        types = {replica.gpu_type for replica in one.kinds()}
        return len(types) == 1 and one.gpus <= self.plan.gpus_per_node


# How long the layers of a stage compute: by measured operators, else by the device model.


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
    def _fitted(self) -> dict[str, PeakShares]:
        """The share of datasheet peaks that GPU types reach, from the given kernel tables."""
        rows = self.network.tables.kernels
        if not rows:
            return {}
        names = {canonical_name(row.get("device") or "") for row in rows}
        return fit_shares(rows, {name: spec for name in names if (spec := self._spec(name))})

    def _spec(self, gpu: str) -> DeviceSpec | None:
        """A GPU type of a table, which may contain types that no plan uses."""
        try:
            return self.network.spec(gpu)
        except InputError:
            return None

    def layers(self, spec: ModelSpec, gpu: str, sizes: Sizes, per_node: int) -> LayerTimes:
        """The times of a model's layers on one GPU type, with `per_node` GPUs a node."""
        key = (spec, canonical_name(gpu), sizes, per_node)
        if key not in self._known:
            profiled = self._profiled(spec, gpu, sizes)
            self._known[key] = profiled or self._modelled(spec, gpu, sizes, per_node)
        return self._known[key]

    def _profiled(self, spec: ModelSpec, gpu: str, sizes: Sizes) -> LayerTimes | None:
        tables = self.network.tables
        if not tables.layers or spec.kind != "transformer":
            return None
        key = LayerKey(
            canonical_name(gpu), sizes.precision, spec.hidden, sizes.micro_batch, sizes.tensor
        )
        profiled = tables.layers.get(key)
        if profiled is None or not _has_model_shapes(profiled, spec, sizes):
            self._missing(gpu, spec, key)
            return None
        overhead = calibration()["iteration"]
        block = _timed_total(
            profiled,
            [name for name in profiled.operators if name not in {EMBEDDING, *HEAD}],
            overhead,
        )
        excess = 2 * self._excess(spec, gpu, sizes)
        block = block[0] - excess, block[1] - excess
        rows = spec.padded_vocabulary / profiled.vocabulary if profiled.vocabulary else 1.0
        ends = [_timed_total(profiled, [name], overhead) for name in (EMBEDDING, *HEAD)]
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
        large factor, and a geometric mean of them is used.
        """
        if sizes.tensor == 1 or not self.network.contended(gpu, sizes.tensor):
            return 0.0
        stream = sizes.tokens * spec.hidden * sizes.element
        timed = self.network.all_reduce([gpu], sizes.tensor, stream, 1, inside=True)
        by_links = self.network.ring([gpu], sizes.tensor, stream, 1, inside=True)
        weight = float(calibration()["iteration"]["contended_weight"])
        return max(0.0, timed - float(timed * (by_links / timed) ** weight))

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
        shares = self._fitted.get(canonical_name(gpu))
        times_of: dict[tuple[object, ...], Times] = {}
        times = []
        for layer, operators in enumerate(ops.layer_operators(spec, sizes)):
            kind = tuple(operators)
            if kind not in times_of:
                times_of[kind] = _summed_times(device, operators, sizes, shares)
            forward, backward = times_of[kind]
            there, back = ops.tensor_reduces(spec, layer)
            reduce = 0.0
            if sizes.tensor > 1:
                size = ops.output_bytes(spec, layer, sizes)
                reduce = self.network.tensor_reduce(gpu, sizes.tensor, size, per_node)
            times.append((forward + there * reduce, backward + back * reduce))
        source = "device model" if shares is None else "fitted device model"
        return LayerTimes(times[0], times[1:-1], times[-1], source)


def _summed_times(
    device: DeviceSpec, operators: Iterable[ops.Operator], sizes: Sizes, shares: PeakShares | None
) -> Times:
    times = [operator_times(device, operator, sizes.precision, shares) for operator in operators]
    return sum(one for one, _ in times), sum(one for _, one in times)


def _has_model_shapes(profiled: Profiled, spec: ModelSpec, sizes: Sizes) -> bool:
    """Whether a layer was timed with the shapes of this model: a table has plain ones only."""
    grouped = spec.kv_heads not in (0, spec.heads)
    plain = not (spec.gated or spec.experts or grouped)
    wide = profiled.feed_forward in (0, spec.feed_forward)
    return plain and wide and profiled.sequence == sizes.sequence


def _timed_total(profiled: Profiled, names: Iterable[str], constants: dict[str, float]) -> Times:
    """Times of timed operators within a stream of others: without what timing one alone adds."""
    forward = backward = 0.0
    overhead, least = constants["operator_overhead_s"], constants["least_share"]
    for name in names:
        forward_s, backward_s = profiled.operators.get(name, (0.0, 0.0))
        forward += max(forward_s - overhead, least * forward_s)
        backward += max(backward_s - overhead, least * backward_s)
    return forward, backward


# Fully sharded data parallelism (FSDP, ZeRO-3): fitted to published throughput.
#
# How much of the gathering of weights overlaps with computation depends on the model, the batch
# and the number of GPUs in ways that no sum of parts describes. So the utilisation is interpolated
# between measured rows: kriging (a Gaussian process) over the features below.


SPREAD_OF_80 = 1.2816
"""Standard deviations around the mean that hold 80 % of a normal distribution."""
SHARDED_UNSURE = 0.2
"""Spread of the logarithm of utilisation above which a note is added."""
SHARDED_ROWS = "schedulers/parallelism/sharded.csv"


class ShardedFeatures(NamedTuple):
    """What utilisation depends on, each as a number of about unit scale."""

    hidden: float
    sequence: float
    tokens: float
    gpus: float
    recompute: float
    peak: float
    memory: float
    precision: float


FEATURE_SCALES = ShardedFeatures(1.8, 4.0, 1.75, 37.0, 1.65, 0.92, 0.73, 1.08)
"""Distances over which utilisation changes, by the likelihood of the rows."""
FEATURE_NOISE = 0.037
"""Variance of the rows' own scatter, relative to the variance among them."""


def sharded_features(
    spec: ModelSpec,
    gpu: DeviceSpec,
    gpus: int,
    micro_batch: int,
    sequence: int,
    precision: str,
    *,
    recompute: bool,
) -> ShardedFeatures:
    """The features of a plan."""
    return ShardedFeatures(
        math.log(spec.hidden / 2048),
        math.log(sequence / 2048),
        math.log(micro_batch * sequence / 16384),
        math.log(gpus / 8),
        float(recompute),
        math.log(gpu.peak(precision) / 312e12),
        math.log(gpu.memory_bytes / 80e9),
        float(precision == "fp8"),
    )


@cache
def measured_rows() -> tuple[tuple[ShardedFeatures, float], ...]:
    """The measured rows: features, and log of the model FLOP utilisation."""
    rows = []
    text = (data.PACKAGE / SHARDED_ROWS).read_text("utf-8")
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        at = sharded_features(
            find_model(row["model"]),
            find_device(row["gpu"]),
            int(row["gpus"]),
            int(row["micro_batch"]),
            int(row["sequence"]),
            row["precision"],
            recompute=row["recompute"] == "full",
        )
        rows.append((at, math.log(float(row["mfu"]) / 100)))
    return tuple(rows)


def _likeness(one: ShardedFeatures, other: ShardedFeatures) -> float:
    distance = sum(
        ((a - b) / scale) ** 2 for a, b, scale in zip(one, other, FEATURE_SCALES, strict=True)
    )
    return math.exp(-distance / 2)


def flop_utilisation(at: ShardedFeatures, without: int | None = None) -> tuple[float, float]:
    """Model FLOP utilisation at features, and the spread (one standard deviation) of its logarithm.

    `without`: a row that is left out, for cross-validation.
    """
    import numpy as np

    rows = [row for place, row in enumerate(measured_rows()) if place != without]
    values = np.array([value for _, value in rows])
    mean, spread = values.mean(), values.std()
    among = np.array([[_likeness(one, other) for other, _ in rows] for one, _ in rows])
    among += FEATURE_NOISE * np.eye(len(rows))
    near = np.array([_likeness(at, other) for other, _ in rows])
    weights = np.linalg.solve(among, near)
    value = mean + float(weights @ (values - mean))
    variance = max(0.0, 1 + FEATURE_NOISE - float(weights @ near))
    return math.exp(value), float(spread * math.sqrt(variance))


def sharded_parts(
    plan: Plan, spec: ModelSpec, network: Network
) -> tuple[dict[str, float], float, list[str]]:
    """Where the time of an iteration of a fully sharded plan goes [s], its spread, and notes.

    The spread is one standard deviation of the time's logarithm.

    Weights are gathered twice and gradients scattered once in every micro-batch, which is the least
    that an iteration takes. Raises `InputError` for a plan with stages, or of no transformer.
    """
    if len(plan.stages) > 1:
        raise InputError(
            f"{plan.title()}: sharding zero-3 is over all GPUs of one stage, not {len(plan.stages)}"
        )
    if spec.kind != "transformer":
        raise InputError(f"{plan.title()}: zero-3 is predicted for transformers, not {spec.name}")
    slowest, ideal, widest, notes = 0.0, 0.0, 0.0, []
    work = flops_per_sample(spec, plan.sequence) * plan.global_batch
    inside = plan.gpus <= plan.gpus_per_node
    at_once = min(plan.gpus, plan.gpus_per_node)
    for replica in plan.stages[0].kinds():
        gpu = network.spec(replica.gpu_type)
        at = sharded_features(
            spec,
            gpu,
            plan.gpus,
            plan.micro_batch,
            plan.sequence,
            plan.precision,
            recompute=plan.recompute == "full",
        )
        share, spread = flop_utilisation(at)
        widest = max(widest, spread)
        if spread > SHARDED_UNSURE:
            notes.append(
                f"no measured FSDP run is near this plan on {gpu.name}: its time may be wrong by "
                f"{math.expm1(spread):.0%} and more"
            )
        peak = gpu.peak(plan.precision) * plan.gpus
        one = network.ring([gpu.name], plan.gpus, 2 * spec.parameters(), at_once, inside=inside)
        gathering = 1.5 * one / at_once * plan.micro_batches if plan.gpus > 1 else 0.0
        slowest = max(slowest, work / (peak * share), gathering)
        ideal = max(ideal, work / peak)
    parts = {"work_at_peak_s": ideal, "communication_and_stalls_s": slowest - ideal}
    return parts, widest, notes
