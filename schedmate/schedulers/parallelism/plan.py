"""Parallelism plans, and files of them: which layers are on which GPUs, how each stage is
divided.

The JSON is `schedmate.parallel-plan/v1`; a file has one plan, an array, or one on each line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from schedmate.base.errors import InputError, UsageError, reason_of
from schedmate.base.inputs import fault_meaning, first_fault
from schedmate.base.reading import read_text
from schedmate.schedulers.parallelism.models import ModelSpec, named_or_sized

PLAN_SCHEMA = "schedmate.parallel-plan/v1"
MOST_COUNT = 10**6

Count = Annotated[int, Field(ge=1, le=MOST_COUNT, strict=True)]


def _our_sharding(value: Any) -> Any:
    """Names of the same sharding in PyTorch, DeepSpeed and Megatron to ours."""
    if value is None or value is False:
        return "none"
    return _SHARDINGS.get(str(value).lower().replace("_", "-"), value)


_SHARDINGS = {
    "none": "none",
    "no-shard": "none",
    "ddp": "none",
    "0": "none",
    "zero-0": "none",
    "1": "zero-1",
    "zero1": "zero-1",
    "zero-1": "zero-1",
    "distributed-optimizer": "zero-1",
    "2": "zero-2",
    "zero2": "zero-2",
    "zero-2": "zero-2",
    "shard-grad-op": "zero-2",
    "3": "zero-3",
    "zero3": "zero-3",
    "zero-3": "zero-3",
    "fsdp": "zero-3",
    "full-shard": "zero-3",
    "hybrid-shard": "zero-3",
}


def _our_precision(value: Any) -> Any:
    """Names of the same precision in frameworks to ours."""
    return _PRECISIONS.get(str(value).lower(), value)


_PRECISIONS = {
    "fp32": "fp32",
    "float32": "fp32",
    "32": "fp32",
    "tf32": "tf32",
    "fp16": "fp16",
    "float16": "fp16",
    "16": "fp16",
    "amp_fp16": "fp16",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "amp_bf16": "bf16",
    "fp8": "fp8",
    "amp_fp8": "fp8",
}


def _our_recompute(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return "full" if value else "none"
    return value


class Replica(BaseModel):
    """One of the data-parallel replicas of a stage, on GPUs of one type."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    gpu_type: str
    tensor: Count = 1


class Stage(BaseModel):
    """Consecutive layers on one group of GPUs.

    `layers` counts the embedding and the head as one layer each, so that a model of 24 blocks
    has 26. `tensor` x `data` GPUs of `gpu_type` hold it, or `replicas` of several types.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    layers: Count
    tensor: Count = 1
    data: Count = 1
    gpu_type: str | None = None
    replicas: tuple[Replica, ...] = ()

    @model_validator(mode="after")
    def _types(self) -> Stage:
        if self.gpu_type is None and not self.replicas:
            raise ValueError("set gpu_type, or replicas with a gpu_type each")
        if self.replicas and len(self.replicas) != self.data:
            raise ValueError(f"{len(self.replicas)} replicas, but data is {self.data}")
        return self

    def kinds(self) -> tuple[Replica, ...]:
        """Its replicas without repetition."""
        if self.replicas:
            return tuple(dict.fromkeys(self.replicas))
        return (Replica(gpu_type=self.gpu_type or "", tensor=self.tensor),)

    @property
    def gpus(self) -> int:
        """GPUs of the stage."""
        return (
            sum(one.tensor for one in self.replicas) if self.replicas else self.tensor * self.data
        )


class Plan(BaseModel):
    """How one model is trained on given GPUs (JSON schema `schedmate.parallel-plan/v1`)."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    id: str = ""
    model: str | None = None
    model_sizes: dict[str, Any] | None = None
    gpus_per_node: Count = 8
    global_batch: Count
    micro_batch: Count
    sequence: Count = 2048
    precision: Annotated[
        Literal["fp32", "tf32", "fp16", "bf16", "fp8"], BeforeValidator(_our_precision)
    ] = "bf16"
    optimizer: str = "Adam"
    sharding: Annotated[
        Literal["none", "zero-1", "zero-2", "zero-3"], BeforeValidator(_our_sharding)
    ] = "none"
    recompute: Annotated[Literal["none", "selective", "full"], BeforeValidator(_our_recompute)] = (
        "none"
    )
    stages: Annotated[tuple[Stage, ...], Field(min_length=1, max_length=4096)]

    @model_validator(mode="after")
    def _divides(self) -> Plan:
        data = {stage.data for stage in self.stages}
        if len(data) > 1:
            raise ValueError(
                f"stages have {', '.join(map(str, sorted(data)))} data-parallel replicas: all "
                "stages of a plan need the same number"
            )
        share = self.micro_batch * self.data
        if self.global_batch % share:
            raise ValueError(
                f"global_batch {self.global_batch} is not divisible by micro_batch "
                f"{self.micro_batch} x {self.data} data-parallel replicas = {share}"
            )
        return self

    @property
    def data(self) -> int:
        """Data-parallel replicas of each stage."""
        return self.stages[0].data

    @property
    def gpus(self) -> int:
        """GPUs of all stages."""
        return sum(stage.gpus for stage in self.stages)

    def gpu_types(self) -> set[str]:
        """The names of the GPU types that it is for."""
        return {kind.gpu_type for stage in self.stages for kind in stage.kinds()}

    @property
    def micro_batches(self) -> int:
        """Micro-batches that each replica runs in an iteration."""
        return self.global_batch // (self.micro_batch * self.data)

    def spec(self) -> tuple[ModelSpec, list[str]]:
        """The model, and notes on it.

        Raises `InputError` where the layers do not add up to it, or a tensor degree does not divide
        its heads.
        """
        spec, notes = named_or_sized(self.model, self.model_sizes)
        layers = sum(stage.layers for stage in self.stages)
        if layers != spec.layers:
            made_of = f": {spec.blocks} blocks, embedding and head" if spec.blocks else ""
            raise InputError(
                f"{self.title()}: its stages have {layers} layers, but {spec.name} has "
                f"{spec.layers}{made_of}"
            )
        for replica in (replica for stage in self.stages for replica in stage.kinds()):
            if spec.kind == "transformer" and spec.heads % replica.tensor:
                raise InputError(
                    f"{self.title()}: the {spec.heads} attention heads of {spec.name} cannot be "
                    f"divided among {replica.tensor} tensor-parallel GPUs: choose a degree that "
                    "divides them"
                )
        return spec, notes

    def title(self) -> str:
        """How messages refer to the plan."""
        return f"plan {self.id}" if self.id else "the plan"


def parse_plan(document: Any, where: str) -> Plan:
    """A plan from parsed JSON; raises `InputError` with one sentence for an invalid one."""
    if isinstance(document, dict) and isinstance(document.get("best"), dict):
        document = document["best"].get("plan")  # what `schedmate parallel plan --json` prints
    if not isinstance(document, dict):
        raise InputError(f"{where}: a plan is a JSON object, not {type(document).__name__}")
    try:
        return Plan.model_validate(document)
    except ValidationError as error:
        raise InputError(f"{where}: {first_fault(error, Plan.model_fields)}") from None


def check_settings(**values: str) -> tuple[str, ...]:
    """Precisions, shardings and recomputations under our names, in the given order.

    Raises `UsageError` for an invalid one.
    """
    checked = []
    for name, value in values.items():
        field = Plan.model_fields[name]
        try:
            kind: Any = Annotated[field.annotation, *field.metadata]
            checked.append(TypeAdapter(kind).validate_python(value))
        except ValidationError as error:
            raise UsageError(f"--{name}: {fault_meaning(error.errors()[0])}.") from None
    return tuple(checked)


# Files of parallelism plans: one plan, an array, or one on each line.


def read_plans(path: Path) -> Iterator[Plan]:
    """The plans of a file: one JSON object, an array of them, or JSON lines.

    Raises `InputError` for a file that cannot be read, and at the first entry that is not a plan.
    """
    for plan in plans_in(path):
        if isinstance(plan, InvalidPlan):
            raise plan.error
        yield plan


class InvalidPlan(NamedTuple):
    """An entry of a file that is not a valid plan."""

    place: str
    """`line 3`, or `plan 3` of an array."""
    error: InputError


def plans_in(path: Path) -> Iterator[Plan | InvalidPlan]:
    """The plans of a file, with `InvalidPlan` for invalid entries.

    Raises `InputError` for a file that cannot be read or holds nothing.
    """
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: cannot be read: {reason_of(error)}; `schedmate parallel plan --json` writes "
            "one"
        ) from error
    try:
        whole = json.loads(text)
    except ValueError:
        yield from _plans_in_lines(text, path)
        return
    except RecursionError:
        raise InputError(f"{path}: nested too deep to be a plan") from None
    if not isinstance(whole, list):
        yield parse_plan(whole, str(path))
        return
    if not whole:
        raise InputError(f"{path}: no plans in it: a plan is a JSON object, or one on each line")
    for number, document in enumerate(whole, 1):
        yield _plan_or_fault(document, path, f"plan {number}")


def _plans_in_lines(text: str, path: Path) -> Iterator[Plan | InvalidPlan]:
    count = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        count += 1
        place = f"line {number}"
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            yield InvalidPlan(place, InputError(f"{path}, {place}: not JSON"))
        else:
            yield _plan_or_fault(document, path, place)
    if not count:
        raise InputError(f"{path}: empty: a plan is a JSON object, or one on each line")


def _plan_or_fault(document: Any, path: Path, place: str) -> Plan | InvalidPlan:
    try:
        return parse_plan(document, f"{path}, {place}")
    except InputError as error:
        return InvalidPlan(place, error)
