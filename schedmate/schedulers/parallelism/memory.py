"""How much memory a stage needs on each of its GPUs, term by term."""

from __future__ import annotations

from typing import NamedTuple

from schedmate.schedulers.parallelism import operators as ops
from schedmate.schedulers.parallelism.devices import DeviceSpec
from schedmate.schedulers.parallelism.kernels import calibration
from schedmate.schedulers.parallelism.models import ModelSpec
from schedmate.schedulers.parallelism.operators import Role, Sizes
from schedmate.schedulers.parallelism.plan import Plan

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
        """All of it."""
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


def role(spec: ModelSpec, layer: int) -> Role:
    """What layer `layer` of a model is: 0 is the embedding, the last the head."""
    if layer == 0:
        return "embedding"
    return "head" if layer == spec.blocks + 1 else "block"


def layer_parameters(spec: ModelSpec, layer: int, tensor: int) -> float:
    """Parameters of a layer on one of `tensor` GPUs."""
    what = role(spec, layer)
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
        kept = saved if recompute != "full" else saved / 3
        return LayerMemory(convolutions.parameters / sizes.tensor, kept, saved)
    what = role(spec, layer)
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
    held = [layer_memory(spec, layer, sizes, plan.recompute) for layer in layers]
    parameters = sum(one.parameters for one in held)
    kept = constants["bytes_per_parameter"][plan.precision]
    if plan.optimizer.lower() == "sgd":
        kept -= 8  # no moments
    divided = constants["sharded"][plan.sharding].get(plan.precision, 0)
    if plan.optimizer.lower() == "sgd":
        divided = max(0, divided - 8)
    states = parameters * (kept - divided + divided / plan.data)
    if plan.sharding == "zero-3":  # the layers that are gathered at a time
        states += 2 * sizes.element * max(one.parameters for one in held)
    in_flight = min(len(plan.stages) - stage, plan.micro_batches)
    saved = sum(one.saved for one in held)
    temporary = max(one.temporary for one in held)
    return Memory(states, saved * in_flight, temporary, context_bytes(device))
