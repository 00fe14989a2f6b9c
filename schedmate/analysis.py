"""What schedmate says about one job before it runs."""

from __future__ import annotations

import time
import uuid
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from schedmate.jobs import (
    Estimate,
    JobRecord,
    JobSpec,
    LaunchConfig,
    ModelUse,
    WorkloadMetadata,
)
from schedmate.plain import plain

SCHEMA = "schedmate.analyze/v1"


class Analysis(BaseModel):
    """Everything schedmate can say about one job before it runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: JobSpec
    metadata: WorkloadMetadata
    launch: LaunchConfig = Field(description="`spec.launch`, completed from command and scripts")
    estimate: Estimate
    history_size: int = Field(ge=0, description="Records in the history that was asked")
    source: Literal["static", "hybrid", "agent"] = Field(
        "static", description="Who decided the metadata: static analysis, it and a model, a model"
    )
    model: ModelUse | None = Field(None, description="What a language model was asked, if any was")
    timing_s: dict[str, float] = Field(description="Wall time of each part [s]")
    warnings: list[str] = Field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """The JSON document `schedmate.analyze/v1` (docs/schemas/analyze-v1.schema.json)."""
        whole = plain(self.model_dump(mode="json", by_alias=True))
        metadata, estimate = whole["metadata"], whole["estimate"]
        evidence = metadata.pop("evidence")
        neighbours = estimate.pop("neighbours")
        return {
            "schema": SCHEMA,
            "job": {
                key: whole["spec"][key] for key in ("job_id", "name", "user", "repo", "command")
            },
            "metadata": metadata,
            "evidence": evidence,
            "fingerprint": self.metadata.fingerprint(),
            "launch": whole["launch"],
            "estimate": estimate,
            "neighbours": neighbours,
            "history_size": self.history_size,
            "source": self.source,
            "model": whole["model"],
            "timing_s": {name: round(value, 6) for name, value in self.timing_s.items()},
            "warnings": whole["warnings"],
        }

    def record(self) -> JobRecord:
        """The job as a pending record of the history; without a job id, a new one."""
        return JobRecord(
            job_id=self.spec.job_id or f"job-{uuid.uuid4().hex[:12]}",
            name=self.spec.name,
            user=self.spec.user,
            command=self.spec.command,
            launch=self.launch,
            metadata=self.metadata,
            submit_time=time.time() if self.spec.submit_time is None else self.spec.submit_time,
        )
