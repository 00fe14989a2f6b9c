"""How a proved answer of a language model changes the diagnosis by rules.

The plan comes from the table, and an answer never gives it more rights than the verdict of the
rules. If both are proved equally well, a conflict is reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from schedmate.errors import ModelError
from schedmate.jobs import Diagnosis, ErrorType, EvidenceLine, FaultyComponent, Reading
from schedmate.logparse.failure.doubts import COMPONENT, UNKNOWN
from schedmate.logparse.failure.plans import limited, plan_for
from schedmate.logparse.failure.proof import Cited, Standing

DISPUTED = "a language model reads it otherwise, with equal proof"


@dataclass(frozen=True)
class Proved:
    """A model's answer with valid citations, and how it compares with the verdict of the rules.

    `component_at` is the line cited for the component, None if the answer names none.
    """

    error_type: ErrorType
    error_name: str
    faulty_component: FaultyComponent | None
    at: Cited
    component_at: Cited | None
    standing: Standing


def reading(diagnosis: Diagnosis) -> Reading:
    """The classification of a failure in a diagnosis, and the line that decided."""
    decided = next((one for one in diagnosis.evidence if one.note == "decided"), None)
    return Reading(
        error_type=diagnosis.error_type,
        error_name=diagnosis.error_name,
        faulty_component=diagnosis.faulty_component,
        rule=diagnosis.rule,
        file=diagnosis.file,
        line=diagnosis.line,
        text=decided.text if decided is not None else "",
    )


def reconciled(diagnosis: Diagnosis, proved: Proved, model: str) -> Diagnosis:
    """The `diagnosis` by rules with what an answer of `model` proves."""
    said = _reading_of(proved)
    cited = [_cited(proved.at, "the model cites this for the type")]
    if proved.component_at is not None:
        cited.append(_cited(proved.component_at, "the model cites this for the component"))
    diagnosis = diagnosis.model_copy(update={"evidence": [*diagnosis.evidence, *cited]})
    if proved.standing == "conflicts":
        return diagnosis.model_copy(
            update={
                "conflict": [reading(diagnosis), said],
                "doubts": [*diagnosis.doubts, DISPUTED],
                "reason": f"{diagnosis.reason} {model} reads line {said.line} otherwise.",
            }
        )
    if proved.standing == "agrees":
        return _agreed(diagnosis, proved)
    return _replaced(diagnosis, proved, said, model)


def _reading_of(proved: Proved) -> Reading:
    """An answer as a reading; a rule that matches the line says what the error is called."""
    rule, at = proved.at.rule, proved.at
    name = rule.name if rule is not None and not rule.general else None
    return Reading(
        error_type=proved.error_type,
        error_name=name or proved.error_name,
        faulty_component=proved.faulty_component,
        file=at.one.file.name,
        line=at.line.number,
        text=at.line.text[:500],
    )


def _agreed(diagnosis: Diagnosis, proved: Proved) -> Diagnosis:
    """The verdict of the rules, with the component that they could not name."""
    if diagnosis.faulty_component is None and proved.faulty_component is not None:
        return _planned(
            diagnosis,
            {
                "by_rules": reading(diagnosis),
                "faulty_component": proved.faulty_component,
                "source": "model",
                "doubts": [],
            },
        )
    left = [one for one in diagnosis.doubts if one == COMPONENT]
    return diagnosis.model_copy(update={"doubts": left})


def _replaced(diagnosis: Diagnosis, proved: Proved, said: Reading, model: str) -> Diagnosis:
    """The verdict of the model; that of the rules is kept in `by_rules`."""
    ruled = reading(diagnosis)
    changed: dict[str, Any] = {
        "by_rules": ruled,
        "error_type": said.error_type,
        "error_name": diagnosis.error_name or said.error_name,
        "faulty_component": said.faulty_component,
        "source": "model",
        "doubts": [],
        "reason": f"{model} read it so; rules alone say {_in_words(ruled)}",
        **dict.fromkeys(("rule", "reference", "recoverable", "finished", "meanwhile")),
    }
    nothing_known = (
        diagnosis.error_type == "none" or UNKNOWN in diagnosis.doubts or diagnosis.undecided
    )
    rule = proved.at.rule
    named = rule is not None and bool(rule.name) and not rule.general
    if nothing_known or (ruled.rule is not None and named):
        changed |= {
            "file": said.file,
            "line": said.line,
            "rank": proved.at.at().rank,
            "node": None,
            "undecided": False,
            "time": None,
            "error_name": said.error_name,
        }
    return _planned(diagnosis, changed)


def alike(diagnosis: Diagnosis, opinion: Diagnosis, of: str) -> Diagnosis:
    """`diagnosis` of another job with the same failure, with a model's answer about job `of`.

    Citations stay with job `of`.
    """
    names = ("error_type", "faulty_component", "rule", "reference", "recoverable", "source")
    return _planned(
        diagnosis,
        {
            **{name: getattr(opinion, name) for name in names},
            "by_rules": reading(diagnosis),
            "error_name": diagnosis.error_name or opinion.error_name,
            "doubts": [],
            "reason": f"as in job {of}, which failed in the same way: {opinion.reason}",
        },
    )


def unsettled(diagnosis: Diagnosis, error: ModelError) -> Diagnosis:
    """`diagnosis` with a warning that the model could not settle it."""
    warning = f"the language model did not settle it: {error}"
    return diagnosis.model_copy(update={"warnings": [*diagnosis.warnings, warning]})


def _planned(diagnosis: Diagnosis, changed: dict[str, Any]) -> Diagnosis:
    """The changed diagnosis, with a plan that has no more rights than the one before."""
    assert diagnosis.plan is not None
    found = diagnosis.model_copy(update=changed)
    return found.model_copy(update={"plan": limited(plan_for(found), diagnosis.plan)})


def _in_words(ruled: Reading) -> str:
    if ruled.error_type == "none":
        return "that nothing failed"
    return f"{ruled.error_name or 'that it failed'} ({ruled.error_type})"


def _cited(cited: Cited, note: str) -> EvidenceLine:
    return EvidenceLine(
        file=cited.one.file.name, line=cited.line.number, text=cited.line.text[:500], note=note
    )
