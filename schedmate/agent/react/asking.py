"""Which fields a model is asked for, each with the reason.

Asking only where static analysis is unsure would leave out confident mistakes: mostly names, which
look right to a reader who does not know what they mean.
"""

from __future__ import annotations

from schedmate.agent.extraction import Extraction
from schedmate.agent.fields.candidates import EXPLICIT
from schedmate.jobs import WorkloadMetadata
from schedmate.settings import Settings

DOUBTFUL: float = Settings.model_fields["agent_ask_below"].default
"""Static values with a lower confidence are asked about: one in ten or more is wrong."""
ALWAYS = ("model_config.model_name", "dataset_config.train", "dataset_config.valid")
"""Names, whose mistakes show only to a reader who knows what they mean."""
ITERS, UNIT = "training_config.iters", "training_config.iter_type"
BATCH = "training_config.batch_size"
ASKED = (*WorkloadMetadata.MANDATORY, BATCH)


def questions(static: Extraction, below: float = DOUBTFUL, *, names: bool = True) -> dict[str, str]:
    """The fields to ask for, in the order of `ASKED`, with reasons.

    `below` is the static confidence from which on a field is not asked about; `names` is whether
    `ALWAYS` applies.
    """
    metadata = static.metadata
    reasons: dict[str, str] = {}
    for field in ASKED:
        proof = metadata.evidence.get(field)
        if metadata.get(field) is None:
            reasons[field] = "static analysis found nothing"
        elif proof is not None and proof.confidence < below:
            reasons[field] = f"static analysis is {proof.confidence:.0%} sure"
        elif static.cut_off and proof is not None and proof.source not in EXPLICIT:
            reasons[field] = "static analysis was cut off"
        elif names and field in ALWAYS:
            reasons[field] = "always asked"
    for one, other in ((ITERS, UNIT), (UNIT, ITERS)):
        if one in reasons and other not in reasons:
            reasons[other] = "goes with the length"
    if list(reasons) == [BATCH]:
        return {}  # worth a place in a question, not a question of its own
    return {field: reasons[field] for field in ASKED if field in reasons}
