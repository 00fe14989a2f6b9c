"""What of the model's findings enters the metadata.

A finding enters when its citation holds, and only where static analysis has no answer or a doubtful
one: what it is sure of is never overridden. Where nothing of the model's holds, nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from schedmate.agent.react.answer import Finding
from schedmate.agent.react.citations import Citations, Rejection
from schedmate.jobs import Evidence, WorkloadMetadata

DOUBTFUL = 0.6
"""Static values of less confidence are put to the model: two of three are right, where 97 % of the
others are (benchmarks/results/extraction_confidence_dev.md)."""


def doubtful(metadata: WorkloadMetadata) -> tuple[str, ...]:
    """Mandatory fields that static analysis has no answer to, or a doubtful one."""
    return tuple(
        field
        for field in WorkloadMetadata.MANDATORY
        if metadata.get(field) is None
        or (field in metadata.evidence and metadata.evidence[field].confidence < DOUBTFUL)
    )


def proved(
    findings: Iterable[Finding], citations: Citations
) -> tuple[dict[str, Evidence], list[Rejection]]:
    """The first finding of each field that holds, and those that do not."""
    kept: dict[str, Evidence] = {}
    dropped: list[Rejection] = []
    for finding in findings:
        if finding.field in kept:
            continue
        checked = citations.check(finding)
        if isinstance(checked, Rejection):
            dropped.append(checked)
        else:
            kept[finding.field] = checked
    return kept, dropped


def combine(
    metadata: WorkloadMetadata, found: dict[str, Evidence], asked: tuple[str, ...]
) -> WorkloadMetadata:
    """`metadata` with the proved values of the fields that were asked for."""
    sections: dict[str, dict[str, Any]] = metadata.sections()
    evidence = dict(metadata.evidence)
    for field, proof in _paired(metadata, found, asked).items():
        section, _, key = field.partition(".")
        before = evidence.get(field)
        sections[section][key] = proof.value
        evidence[field] = proof
        if before is not None and before.value not in (None, proof.value):
            note = f"static analysis doubtfully said {before.value!r} ({before.where()})"
            evidence[field] = proof.model_copy(update={"note": note})
    return WorkloadMetadata.model_validate({**sections, "evidence": evidence})


_ITERS, _UNIT = "training_config.iters", "training_config.iter_type"


def _paired(
    metadata: WorkloadMetadata, found: dict[str, Evidence], asked: tuple[str, ...]
) -> dict[str, Evidence]:
    """The findings that may enter: never the model's number with static analysis' unit.

    1,000 of the one and `epoch` of the other would make a length that nobody stated.
    """
    entering = {field: proof for field, proof in found.items() if field in asked}
    for one, other in ((_ITERS, _UNIT), (_UNIT, _ITERS)):
        changes = one in entering and entering[one].value != metadata.get(one)
        if changes and other not in entering and metadata.get(other) is not None:
            del entering[one]
    return entering
