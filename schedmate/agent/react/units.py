"""A length in whatever unit a program states it, as steps or epochs, with the formula shown."""

from __future__ import annotations

from typing import NamedTuple

from schedmate.agent.react.answer import Unit
from schedmate.jobs import Evidence, WorkloadMetadata

EPOCH, STEP = "epoch", "step"
_AS_STEPS = ("step", "environment step", "rollout")
"""Units that a scheduler's history counts as steps: each is one turn of the program's own loop."""


class Length(NamedTuple):
    """So many steps or epochs, and how they were computed where they were."""

    value: int | float
    unit: str
    formula: str | None = None


def as_length(value: float, unit: Unit | None, known: WorkloadMetadata) -> Length | str:
    """A length in steps or epochs, or the sentence that says what is missing for it.

    Tokens and samples are divided by the global batch (and the sequence length), as far as static
    analysis knows these.
    """
    if unit is None:
        return Length(_whole(value), "")
    if unit == EPOCH:
        return Length(_whole(value), EPOCH)
    if unit in _AS_STEPS:
        return Length(_whole(value), STEP, None if unit == STEP else f"counted in {unit}s")
    factors = [("global batch", _proof(known, "global_batch_size") or _proof(known, "batch_size"))]
    if unit == "token":
        factors.append(("sequence length", _proof(known, "seq_length")))
    missing = [name for name, proof in factors if proof is None]
    if missing:
        return (
            f"{value:,.0f} {unit}s are no steps, and the {' and the '.join(missing)} "
            f"is not known; cite what makes the steps as terms of a formula"
        )
    divisor = 1.0
    parts = []
    for name, proof in factors:
        assert proof is not None
        divisor *= proof.value
        parts.append(f"{proof.value:,} {name} ({proof.where()})")
    steps = value / divisor
    if steps < 1:
        return f"{value:,.0f} {unit}s are less than one step of {divisor:,.0f}"
    return Length(
        round(steps), STEP, f"{value:,.0f} {unit}s / ({' x '.join(parts)}) = {round(steps):,} steps"
    )


def _proof(known: WorkloadMetadata, name: str) -> Evidence | None:
    proof = known.evidence.get(f"training_config.{name}")
    usable = proof is not None and isinstance(proof.value, int | float) and proof.value > 0
    return proof if usable else None


def _whole(value: float) -> int | float:
    return int(value) if float(value).is_integer() else value
