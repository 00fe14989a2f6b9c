"""How far a job lies outside of what the past runs behind its estimate did.

A run time is corrected for length and GPUs by exponents (`adjust.py`), whose doubt widens the
interval with the distance. Here it is said how far that is, and where there is no answer any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from schedmate.jobs import Extrapolation, LaunchConfig, WorkloadMetadata
from schedmate.retrieval.candidates import Candidate
from schedmate.terminal import counted

MENTIONED = 1.5
"""Least factor beyond the nearest run that is worth a sentence."""

FARTHEST = {"GPUs": 64.0, "epochs": 1000.0, "steps": 1000.0}
"""Largest factor beyond the nearest run at which there is still an estimate. No exponent was ever
measured between numbers of GPUs further apart (one model of the Sia artifact, 2 to 128 GPUs); of a
run a thousand times as long, what the short one mostly did, start, says nothing."""


def extrapolations(
    metadata: WorkloadMetadata, launch: LaunchConfig, candidates: Sequence[Candidate]
) -> list[Extrapolation]:
    """In what the job of this metadata and launch lies outside of the completed candidates."""
    completed = [item.record for item in candidates if not item.record.censored]
    found = [_beyond("GPUs", launch.gpus, [record.launch.gpus for record in completed])]
    unit = metadata.training.iter_type
    if unit is not None:
        lengths = [
            record.metadata.training.iters
            for record in completed
            if record.metadata.training.iter_type == unit
        ]
        found.append(_beyond(f"{unit}s", metadata.training.iters, lengths))
    return [one for one in found if one is not None]


def too_far(found: Sequence[Extrapolation]) -> Extrapolation | None:
    """The first that is beyond what an estimate can be made of."""
    return next((one for one in found if one.factor > FARTHEST[one.quantity]), None)


def _beyond(
    quantity: str, asked: float | None, seen: Sequence[float | None]
) -> Extrapolation | None:
    known = [number for number in seen if number is not None and number > 0]
    if not known or asked is None or asked <= 0:
        return None
    least, most = min(known), max(known)
    factor = max(asked / most, least / asked)
    if factor < MENTIONED:
        return None
    unit = quantity.removesuffix("s")
    span = counted(most, unit) if least == most else f"{least:,.12g} to {counted(most, unit)}"
    verb = "ran on" if quantity == "GPUs" else "ran for"
    times = f"{factor:,.0f}" if factor >= 100 else f"{factor:.3g}"
    far = f"1/{times} as many" if asked < least else f"{times} times as many"
    return Extrapolation.model_validate(
        {
            "quantity": quantity,
            "asked": asked,
            "least": least,
            "most": most,
            "factor": factor,
            "text": f"neighbours {verb} {span}, this job asks for {asked:,.12g}: {far}",
        }
    )
