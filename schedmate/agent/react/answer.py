"""What the model is asked to return."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator

from schedmate.agent.units import Unit
from schedmate.jobs import WorkloadMetadata

OPTIONAL: tuple[str, ...] = (
    "training_config.batch_size",
    "training_config.lr",
    "training_config.optimizer",
    "training_config.precision",
    "model_config.d_model",
    "model_config.n_layer",
    "dataset_config.num_workers",
)
"""Fields beside the mandatory ones that are asked for when the model reads alone (Figure 6)."""
ASKABLE = WorkloadMetadata.MANDATORY + OPTIONAL
MAX_FINDINGS = 200
MAX_TERMS = 6


class Term(BaseModel):
    """A number of a formula, and the line that is said to hold it."""

    model_config = ConfigDict(extra="forbid")

    value: float
    file: str
    line: int


class Finding(BaseModel):
    """One value, and the line that is said to hold it.

    `value` is None where the line shows that there is none. A length that several numbers make is
    given as `terms` and a `formula` over their letters, `a / (b * c)`, which is computed here.
    """

    model_config = ConfigDict(extra="forbid")

    field: str
    value: str | int | float | None
    file: str
    line: int
    unit: Unit | None = None
    formula: str | None = Field(None, max_length=80)
    terms: list[Term] = Field(default_factory=list, max_length=MAX_TERMS)


class Findings(BaseModel):
    """All that the model reports; several findings of one field are tried in order."""

    model_config = ConfigDict(extra="forbid")

    findings: list[Finding]

    @field_validator("findings", mode="before")
    @classmethod
    def _only_whole_ones(cls, found: Any) -> Any:
        # One finding without a value or a line must not cost the others.
        if not isinstance(found, list):
            return found
        return [one for one in found[:MAX_FINDINGS] if _whole(one)]


def _whole(found: Any) -> bool:
    try:
        Finding.model_validate(found)
    except ValidationError:
        return False
    return True


def schema(fields: tuple[str, ...]) -> type[Findings]:
    """`Findings` whose JSON schema knows only the fields asked for.

    Validation accepts any: what was not asked for is ignored later, and costs nothing else.
    """
    asked = Field(json_schema_extra={"enum": list(fields)})
    finding = create_model("Finding", __base__=Finding, field=(str, asked))
    return create_model("Findings", __base__=Findings, findings=(list[finding], ...))
