"""Lengths as a history counts them, in steps or epochs, whatever the program counts."""

from __future__ import annotations

from dataclasses import replace

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import Candidate
from schedmate.agent.units import EPOCH, LONGEST, SAMPLE, STEP, TOKEN, Factor, Unit, convert
from schedmate.agent.values import Origin


def in_steps(
    length: Candidate, unit: Unit, batch: Candidate | None, sequence: Candidate | None
) -> tuple[Candidate, Candidate] | str:
    """A length and its unit, in steps or epochs, or the sentence that says why there is none.

    Args:
        length: the number that the program states.
        unit: what it counts.
        batch: samples of one optimiser step, over all devices; None where it is not known.
        sequence: tokens of a sample; None where it is not known.
    """
    if not length.data <= LONGEST:
        where = length.evidence().where()
        return f"{length.data:g} is more than any training has: no length is given ({where})"
    if unit not in (SAMPLE, TOKEN):
        note = None if unit in (STEP, EPOCH) else f"{unit}s"
        kind = EPOCH if unit == EPOCH else STEP
        return length, replace(length, data=kind, note=note)
    result = convert(
        length.data, unit, _factor(batch, "global batch"), _factor(sequence, "sequence length")
    )
    if isinstance(result, str):
        return f"{result}: no length is given ({length.evidence().where()})"
    used = (batch, sequence if unit == TOKEN else None)
    score = min([length.score, *(part.score for part in used if part is not None)])
    origin = (length.origin or Origin("code"))._replace(computed=result.formula)
    steps = replace(length, data=result.value, origin=origin, score=score)
    return steps, replace(steps, data=STEP, note=f"computed from {unit}s")


def _factor(candidate: Candidate | None, name: str) -> Factor | None:
    if candidate is None or not isinstance(candidate.data, int | float) or candidate.data <= 0:
        return None
    if candidate.score < prior.length["divisor"]:
        return None
    return Factor(name, candidate.data, candidate.evidence().where())
