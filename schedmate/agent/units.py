"""What a length counts, and how many steps or epochs that is, with the formula shown.

Programs state how long they train in steps, epochs, tokens, samples, environment steps or rollouts.
A scheduler's history counts steps and epochs. Static analysis and the model's half both convert
here, so that one number means one thing whoever read it.
"""

from __future__ import annotations

from math import prod
from typing import Literal, NamedTuple

from schedmate.jobs import Evidence, WorkloadMetadata

Unit = Literal["epoch", "step", "token", "sample", "environment step", "rollout"]
EPOCH: Unit = "epoch"
STEP: Unit = "step"
TOKEN: Unit = "token"  # noqa: S105 - no password
SAMPLE: Unit = "sample"
ENVIRONMENT_STEP: Unit = "environment step"

ITERS, UNIT = "training_config.iters", "training_config.iter_type"
"""The fields of a length: how many, and of what."""
_AS_STEPS = (STEP, ENVIRONMENT_STEP, "rollout")
"""Units that a scheduler's history counts as steps: each is one turn of the program's own loop."""
_BATCHES = ("global_batch_size", "batch_size")
_LARGEST = 1e15
"""More than any batch or sequence has; beyond it is what nothing can be divided by."""
LONGEST = 1e15
"""More steps, samples or tokens than any training has: the largest have some 1e13 tokens."""


class Length(NamedTuple):
    """So many steps or epochs, and how they were computed where they were."""

    value: int | float
    unit: str
    formula: str | None = None


class Factor(NamedTuple):
    """What samples or tokens are divided by: its name, its value, and where that is said."""

    name: str
    value: float
    where: str


def as_length(value: float, unit: Unit | None, metadata: WorkloadMetadata) -> Length | str:
    """A length in steps or epochs, or the sentence that says what is missing for it.

    Tokens and samples are divided by the global batch (and the sequence length), as far as static
    analysis knows these.
    """
    names = [name for name in _BATCHES if name != "batch_size" or not _of_one_device(metadata)]
    batch = next((f for name in names if (f := _factor(metadata, name, "global batch"))), None)
    length = convert(value, unit, batch, _factor(metadata, "seq_length", "sequence length"))
    if isinstance(length, str) and length.endswith("not known"):
        return f"{length}; cite what makes the steps as terms of a formula"
    return length


def convert(
    value: float, unit: Unit | None, batch: Factor | None, sequence: Factor | None
) -> Length | str:
    """A length in steps or epochs, or the sentence that says what is missing for it.

    Args:
        value: the length as it is stated.
        unit: what it counts; None where that is not said.
        batch: samples of one optimiser step, over all devices; None where it is not known.
        sequence: tokens of a sample; None where it is not known.
    """
    if not abs(value) <= LONGEST:  # not a number is not either
        return "the length is more than any training has"
    if unit is None:
        return Length(_whole(value), "")
    if unit == EPOCH:
        return Length(_whole(value), EPOCH)
    if unit in _AS_STEPS:
        return Length(_whole(value), STEP, None if unit == STEP else f"counted in {unit}s")
    needed = {"global batch": batch}
    if unit == TOKEN:
        needed["sequence length"] = sequence
    factors = [one for one in needed.values() if one is not None and 1 <= one.value <= _LARGEST]
    missing = [name for name, factor in needed.items() if factor not in factors]
    if missing:
        return (
            f"{value:,.0f} {unit}s are no steps, and the {' and the '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not known"
        )
    divisor = prod(factor.value for factor in factors)
    steps = value / divisor
    if steps < 1:
        return f"{value:,.0f} {unit}s are less than one step of {divisor:,.0f}"
    shown = " x ".join(f"{one.value:,} {one.name} ({one.where})" for one in factors)
    return Length(round(steps), STEP, f"{value:,.0f} {unit}s / ({shown}) = {round(steps):,} steps")


def _factor(known: WorkloadMetadata, field: str, name: str) -> Factor | None:
    proof: Evidence | None = known.evidence.get(f"training_config.{field}")
    if proof is None or not isinstance(proof.value, int | float) or proof.value <= 0:
        return None
    return Factor(name, proof.value, proof.where())


def _of_one_device(metadata: WorkloadMetadata) -> bool:
    """Whether the batch size is that of one device of several, or of an unknown number."""
    batch, one = (
        metadata.evidence.get(f"training_config.{name}")
        for name in ("batch_size", "per_device_batch_size")
    )
    if batch is None or one is None or metadata.get("training_config.num_gpus") == 1:
        return False
    return (batch.value, batch.file, batch.line) == (one.value, one.file, one.line)


def _whole(value: float) -> int | float:
    return int(value) if float(value).is_integer() else value
