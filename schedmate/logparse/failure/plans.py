"""The recovery plan: a table chooses it from what is known of the failure, never a model."""

from __future__ import annotations

from functools import cache
from typing import Any

from schedmate.data import load
from schedmate.jobs import Diagnosis, Recovery


def plan_for(diagnosis: Diagnosis) -> Recovery:
    """The first row of `plans.yaml` that fits."""
    facts = {
        "type": diagnosis.error_type,
        "name": diagnosis.error_name,
        "component": diagnosis.faulty_component,
        "recoverable": diagnosis.recoverable,
        "source": diagnosis.source,
        "rule": diagnosis.rule,
        "finished": diagnosis.finished,
    }
    row = next(row for row in _table() if _fits(row["when"], facts))
    fields = {
        key: row[key] for key in ("id", "diagnose", "isolate", "restart", "notify") if key in row
    }
    if fields.get("isolate") == "node" and diagnosis.node:
        fields["isolate"] = f"node {diagnosis.node}"
    return Recovery(summary=row["summary"].format(**_words(diagnosis)), **fields)


def _fits(wanted: dict[str, Any], facts: dict[str, Any]) -> bool:
    return all(
        facts[key] in value if isinstance(value, list) else facts[key] == value
        for key, value in wanted.items()
    )


def _words(diagnosis: Diagnosis) -> dict[str, str]:
    saved = diagnosis.checkpoint
    if saved is None:
        checkpoint = "(no checkpoint is mentioned in the log)"
    else:
        where = f" at {saved.path}" if saved.path else ""
        step = f" of step {saved.step}" if saved.step is not None else ""
        checkpoint = f"from the checkpoint{step}{where}"
    missing = ", ".join(map(str, diagnosis.missing_ranks[:8]))
    if len(diagnosis.missing_ranks) > 1:
        missing = f"Ranks {missing} were missing"
    elif missing:
        missing = f"Rank {missing} was missing"
    return {
        "node": f"node {diagnosis.node}" if diagnosis.node else "the node of the failure",
        "named": f" (the log names node {diagnosis.node})" if diagnosis.node else "",
        "missing": missing or "Find out which rank was missing",
        "checkpoint": checkpoint,
    }


@cache
def _table() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = load("logparse/failure/plans.yaml")["plans"]
    return rows
