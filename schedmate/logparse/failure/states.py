"""The scheduler's state of a run as evidence: it is the word of the node's side, not of the job.

A state says what a log cannot: that the node was lost, that memory ran out, that somebody ended the
job. `of_state` joins it with the diagnosis of the logs, or makes one without any log
(`states.yaml`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from schedmate.base.data import load
from schedmate.jobs import Diagnosis, EvidenceLine, Origin
from schedmate.logparse.failure.plans import ON_THE_NODE_S_SIDE, plan_for
from schedmate.logparse.failure.rules import load_rules

SCHEDULER = "scheduler"
"""The name that quotes of a scheduler's state have instead of a file's."""
_ORIGIN: Origin = "scheduler"


def of_state(
    diagnosis: Diagnosis | None,
    state: str,
    *,
    job: str | None = None,
    nodes: Sequence[str] = (),
    failed_nodes: Sequence[str] = (),
) -> Diagnosis | None:
    """The diagnosis of a run that ended in `state` (Slurm's terms), with a plan.

    `diagnosis` is that of its logs, None without any; `nodes` are those of the run and
    `failed_nodes` the ones of them that the scheduler lost. Unchanged where the logs say more than
    the state, and for states that say nothing.
    """
    row = _states().get(state)
    if row is None or not _counts(row, diagnosis):
        return diagnosis
    lost = tuple(failed_nodes) or (tuple(nodes) if len(nodes) == 1 else ())
    words = ", ".join(lost) or "a node of the job"
    on = f" on {', '.join(nodes[:8])}" + (" ..." if len(nodes) > 8 else "") if nodes else ""
    quote = f"job {job or ''}".rstrip() + f" ended {state}{on}"
    if row.get("component") == "node" and lost:
        quote += f"; lost: {', '.join(lost)}"
    quoted = EvidenceLine(file=SCHEDULER, line=1, text=quote, note="decided", origin=_ORIGIN)
    values: dict[str, Any] = {
        "error_type": row["type"],
        "error_name": row.get("name"),
        "faulty_component": row.get("component"),
        "node": lost[0] if row.get("component") == "node" and len(lost) == 1 else None,
        "job_nodes": list(nodes),
        "origin": _ORIGIN,
        "recoverable": row.get("recoverable"),
        "rule": row["rule"],
        "reason": row["reason"].format(nodes=words),
        "evidence": [quoted, *_seen(diagnosis)],
    }
    kept: dict[str, Any] = {}
    if diagnosis is not None:
        kept = {name: getattr(diagnosis, name) for name in _KEPT}
    joined = Diagnosis(**kept, **values)
    return joined.model_copy(update={"plan": plan_for(joined)})


_KEPT = ("checkpoint", "attempt", "attempts", "locator", "probes", "warnings", "ruled_out")
"""What of a diagnosis of logs stays true whatever ended the run."""


def _counts(row: dict[str, Any], diagnosis: Diagnosis | None) -> bool:
    """Whether a state decides over the verdict of the logs."""
    if diagnosis is None:
        return bool(row["over"] != "nothing")
    if diagnosis.origin in ON_THE_NODE_S_SIDE:  # it says why the node went
        return False
    if row["over"] == "text":
        return True
    if diagnosis.error_type == "none" and diagnosis.error_name is None:
        return True
    unsaid = diagnosis.error_type == "unknown" and (diagnosis.rule is None or diagnosis.undecided)
    silent = diagnosis.error_type == "none" or unsaid or _is_vague(diagnosis.rule)
    return silent and bool(row["over"] == "silence")


def _is_vague(rule: str | None) -> bool:
    if rule in _vague():
        return True
    known = load_rules().by_id.get(rule or "")
    return known is not None and known.role in ("exit", "stop")


def _seen(diagnosis: Diagnosis | None) -> list[EvidenceLine]:
    if diagnosis is None:
        return []
    return [one.model_copy(update={"note": "in its log"}) for one in diagnosis.evidence]


@cache
def _states() -> dict[str, dict[str, Any]]:
    states: dict[str, dict[str, Any]] = load("logparse/failure/states.yaml")["states"]
    return states


@cache
def _vague() -> frozenset[str]:
    return frozenset(load("logparse/failure/states.yaml")["vague"])
