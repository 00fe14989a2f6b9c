"""Which of the model's findings enter the metadata.

A finding enters if its citation is valid and its field was asked for; it then overrides the static
value. If that value was proved equally well, both lines are reported as a conflict and the value
counts as doubtful. Without valid findings nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from schedmate.agent.react.answer import Finding
from schedmate.agent.react.asking import DOUBTFUL, ITERS, UNIT
from schedmate.agent.react.citations import Citations, Rejection
from schedmate.agent.react.names import normal
from schedmate.jobs import Evidence, WorkloadMetadata

AGREED = 0.9
"""Confidence of a value that static analysis and a model determined independently."""
CONFLICT = 0.5
"""Confidence of a value that another one contradicts with equal proof."""
WEAK = 0.6
"""Static values with a lower confidence give way to a line that shows that there is none."""


@dataclass(slots=True)
class Combined:
    """The metadata, and the disagreements of static analysis and the model."""

    metadata: WorkloadMetadata
    conflicts: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    """Fields that a line shows to have no value."""


def proved(
    findings: Iterable[Finding], citations: Citations
) -> tuple[dict[str, Evidence], list[Rejection]]:
    """The first valid finding for each field, and the rejected ones.

    A length reported with its unit proves both.
    """
    kept: dict[str, Evidence] = {}
    units: dict[str, Evidence] = {}
    dropped: list[Rejection] = []
    for finding in findings:
        if finding.field in kept:
            continue
        checked = citations.check(finding)
        if isinstance(checked, Rejection):
            dropped.append(checked)
            continue
        kept[finding.field] = checked
        if finding.field == ITERS and (unit := citations.unit(finding, checked)) is not None:
            units[UNIT] = unit
    return {**kept, **units}, dropped


def combine(
    metadata: WorkloadMetadata, found: dict[str, Evidence], asked: Iterable[str]
) -> Combined:
    """`metadata` with the proved values for the fields that were asked for."""
    sections: dict[str, dict[str, Any]] = metadata.sections()
    evidence = dict(metadata.evidence)
    combined = Combined(metadata)
    asked = set(asked)
    for name, proof in _paired(metadata, found, asked).items():
        before = evidence.get(name)
        after = _decided(name, before, proof, name in asked, combined)
        section, _, key = name.partition(".")
        sections[section][key] = None if after is None else after.value
        if after is None:
            evidence.pop(name, None)
        else:
            evidence[name] = after
    combined.metadata = WorkloadMetadata.model_validate({**sections, "evidence": evidence})
    return combined


def _decided(
    name: str, before: Evidence | None, proof: Evidence, asked: bool, combined: Combined
) -> Evidence | None:
    """The static value or the model's, whichever stands; None if the field has no value."""
    if proof.value is None:
        combined.absent.append(f"{name}: {proof.where()} shows that there is none")
        if before is None or (asked and before.confidence < WEAK):
            return None
    if before is None or before.value is None:
        return proof if asked else None
    if proof.value is not None and alike(before.value, proof.value):
        return before.model_copy(update={"confidence": max(before.confidence, AGREED)})
    claim = f"static analysis says {before.value!r} ({before.where()})"
    if not asked or proof.value is None:
        said = "that there is none" if proof.value is None else repr(proof.value)
        combined.conflicts.append(f"{name}: {claim}, the model {said} ({proof.where()})")
        return before.model_copy(update={"confidence": min(before.confidence, CONFLICT)})
    notes = [note for note in (proof.note, claim) if note]
    if before.confidence < DOUBTFUL:
        return proof.model_copy(update={"note": "; ".join(notes)})
    combined.conflicts.append(f"{name}: {claim}, the model {proof.value!r} ({proof.where()})")
    return proof.model_copy(update={"note": "; ".join(notes), "confidence": CONFLICT})


def alike(one: object, other: object) -> bool:
    """Whether two values are equal except for case, punctuation and number format."""
    if isinstance(one, int | float) and isinstance(other, int | float):
        return float(one) == float(other)
    return normal(str(one)) == normal(str(other))


def _paired(
    metadata: WorkloadMetadata, found: dict[str, Evidence], asked: set[str]
) -> dict[str, Evidence]:
    """The findings that may enter: never the model's number with static analysis' unit.

    1,000 from one and `epoch` from the other would make a length that no source states.
    """
    entering = dict(found)
    for one, other in ((ITERS, UNIT), (UNIT, ITERS)):
        changes = one in entering and entering[one].value != metadata.get(one)
        if changes and other not in entering and metadata.get(other) is not None:
            del entering[one]
    return entering
