"""Iteration time and memory of a plan: compute, messages, collectives, and how they overlap.

The 1F1B schedule (PipeDream; Arena, section 3.4): the first micro-batch passes every stage, the
others follow at the pace of the slowest one, then gradients are reduced and weights updated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from schedmate.schedulers.parallelism.compute import Compute
from schedmate.schedulers.parallelism.kernels import calibration
from schedmate.schedulers.parallelism.memory import Memory, layer_memory, stage_memory
from schedmate.schedulers.parallelism.models import ModelSpec
from schedmate.schedulers.parallelism.network import Network
from schedmate.schedulers.parallelism.operators import Sizes, output_bytes
from schedmate.schedulers.parallelism.plan import Plan, Replica

SCHEMA = "schedmate.parallel-prediction/v1"
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
            "schema": SCHEMA,
            **({"id": self.plan.id} if self.plan.id else {}),
            "iteration_s": self.iteration_s,
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
        from schedmate.schedulers.parallelism.sharded import sharded_parts

        spec, said = plan.spec()
        self.compute.notes.clear()
        layout = _Layout(plan)
        if plan.sharding == "zero-3":
            parts, unsure = sharded_parts(plan, spec, self.network)
            source, bottleneck = "fitted rows", 0
            said = [*said, *unsure]
        else:
            parts, source, bottleneck = self._pipeline(plan, spec, layout)
            said = [*said, *self._lacking(plan, source)]
        memory, why_not = self._memory(plan, spec)
        return Prediction(
            plan,
            sum(parts.values()),
            parts,
            memory,
            bottleneck,
            (*said, *sorted(self.compute.notes)),
            source,
            not why_not,
            why_not,
        )

    def _lacking(self, plan: Plan, source: str) -> list[str]:
        """Notes on GPU types that have no units for the plan's precision."""
        if "device model" not in source:
            return []
        found = []
        for gpu in sorted({one.gpu_type for stage in plan.stages for one in stage.kinds()}):
            device = self.network.spec(gpu)
            instead = device.runs_as(plan.precision)
            if instead != plan.precision:
                other = "; fp16 is faster there" if "fp16" in device.peaks else ""
                found.append(
                    f"{device.name} has no units for {plan.precision}: its matrix products are "
                    f"priced as {instead}{other if instead == 'fp32' else ''}"
                )
        return found

    def _pipeline(
        self, plan: Plan, spec: ModelSpec, layout: _Layout
    ) -> tuple[dict[str, float], str, int]:
        compute, sources = [], set()
        for stage, one in enumerate(plan.stages):
            slowest = 0.0
            for replica in one.kinds():
                time, source = self._stage(plan, spec, stage, replica)
                slowest = max(slowest, time)
                sources.add(source)
            compute.append(slowest)
        messages = [self._messages(plan, spec, layout, stage) for stage in range(len(plan.stages))]
        total = [one + other for one, other in zip(compute, messages, strict=True)]
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
            "overhead_s": float(constants["iteration_overhead_s"]),
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

    def _messages(self, plan: Plan, spec: ModelSpec, layout: _Layout, stage: int) -> float:
        """Time a stage waits for activations and gradients of a micro-batch [s]."""
        sizes = Sizes(plan.micro_batch, plan.sequence, plan.precision, 1)
        constants = calibration()["iteration"]
        each, factor = float(constants["message_s"]), float(constants["message_factor"])
        total = 0.0
        for other in (stage - 1, stage + 1):
            if 0 <= other < len(plan.stages):
                ends = [*plan.stages[stage].kinds(), *plan.stages[other].kinds()]
                senders = max(replica.tensor for replica in ends)
                inside = layout.together(stage, other)
                last = sum(one.layers for one in plan.stages[: max(stage, other)]) - 1
                size = output_bytes(spec, last, sizes)
                names = [replica.gpu_type for replica in ends]
                wire = self.network.send(names, senders, size, inside=inside)
                total += each + factor * wire
        return total

    def _reduction(self, plan: Plan, spec: ModelSpec, layout: _Layout, stage: int) -> float:
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
        found, why_not = [], ""
        for stage, one in enumerate(plan.stages):
            needs = [
                (stage_memory(plan, spec, stage, replica.tensor, device), device)
                for replica in one.kinds()
                for device in [self.network.spec(replica.gpu_type)]
            ]
            for memory, device in needs:
                if memory.total > device.memory_bytes and not why_not:
                    why_not = (
                        f"stage {stage + 1} needs {memory.total / 1e9:.0f} GB of the "
                        f"{device.memory_bytes / 1e9:.0f} GB of {device.name}, most of it for "
                        f"{memory.largest()}"
                    )
            found.append(max((memory for memory, _ in needs), key=lambda memory: memory.total))
        return tuple(found), why_not


class _Layout:
    """Which ranks share a node: tensor ranks are neighbours, then data, then pipeline ranks."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.types = {replica.gpu_type for stage in plan.stages for replica in stage.kinds()}

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
