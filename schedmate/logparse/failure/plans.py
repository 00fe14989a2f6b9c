"""The recovery plan, chosen by a table from the type of failure, never by a model.

A plan takes a node out of service only on evidence from the node's own side. A job can print any
text, so on that alone the first step is to confirm, with the commands to run, and nothing is
isolated before a person has confirmed it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from schedmate.base.data import load
from schedmate.base.inputs import host_name, matching_host
from schedmate.jobs import Diagnosis, Isolation, Origin, PlanStep, Recovery

ON_THE_NODE_S_SIDE = frozenset({"node_log", "exporter", "scheduler"})
"""Origins of evidence that a job cannot write."""

_SEARCH = re.compile(r"(?P<source>[^|]+?) \| grep -iE '(?P<words>[^'()]+)'")


class _IsolationDoubt(NamedTuple):
    """Whether a rule's text is proof against a node, and the other possible explanations."""

    proof: bool
    causes: tuple[str, ...]
    check: str | None


def plan_for(diagnosis: Diagnosis, *, given_as: str | None = None) -> Recovery:
    """The plan of the first row of `plans.yaml` that matches, with its steps in order.

    `given_as` is the node for whose log the caller gave the file, if its lines name another node.
    Which of the two it is has to be confirmed first.
    """
    facts = {
        "type": diagnosis.error_type,
        "likely": diagnosis.likely,
        "name": diagnosis.error_name,
        "component": diagnosis.faulty_component,
        "recoverable": diagnosis.recoverable,
        "source": diagnosis.source,
        "rule": diagnosis.rule,
        "finished": diagnosis.finished,
        "undecided": diagnosis.undecided,
        "meanwhile": diagnosis.meanwhile,
    }
    row = next(row for row in _table() if _fits(row["when"], facts))
    words = _words(diagnosis)
    summary = row["summary"].format(**words)
    part: dict[str, Any]
    if row.get("isolate") == "node":
        part = _isolation(summary, diagnosis, row, given_as)
    else:
        part = {
            "summary": summary,
            "innocent": list(isolation_doubt(diagnosis.rule).causes),
            "steps": _checks(row.get("diagnose"), words["host"], diagnosis.origin),
        }
    part["steps"] += [
        PlanStep(action=action, detail=row[action])
        for action, nothing in (("restart", "no"), ("notify", "nobody"))
        if row[action] != nothing
    ]
    return Recovery(
        **part,
        **{
            key: row[key] for key in ("id", "diagnose", "restart", "awaits", "notify") if key in row
        },
    )


def _checks(commands: str | None, host: str, origin: Origin) -> list[PlanStep]:
    """The step that runs the diagnostic of a row without isolation, if it has one."""
    if not commands:
        return []
    node = host if host != _NO_HOST else None
    return [PlanStep(action="check", node=node, commands=_commands(commands), origin=origin)]


def limit_plan(plan: Recovery, by: Recovery) -> Recovery:
    """`plan` with no more rights than `by`: it isolates and restarts nothing that `by` does not.

    It limits the plan for a language model's answer; `by` is then the plan for the verdict of the
    rules. Checks stay, since they change nothing.
    """
    isolates = any(step.action == "isolate" for step in by.steps)
    isolation = min(plan.isolation, by.isolation, key=_ISOLATION.index)
    less_certain = isolation != plan.isolation
    restart = min(plan.restart, by.restart, key=_RESTART.index)
    less_restart = restart != plan.restart
    dropped = {"isolate"} if not isolates else set()
    changed: dict[str, dict[str, str]] = {}
    if less_certain:  # what was to be done at once waits for somebody
        changed["isolate"] = {"only_if": "confirmed"}
    if less_restart:
        dropped |= {"restart"} if restart == "no" else set()
        changed["restart"] = {"detail": restart}
    steps = [
        step.model_copy(update=changed.get(step.action, {}))
        for step in plan.steps
        if step.action not in dropped
    ]
    by_hand = less_restart and restart == "no"
    return plan.model_copy(
        update={
            "summary": f"{plan.summary} {_BY_HAND}" if by_hand else plan.summary,
            "isolate": plan.isolate if isolates and not less_certain else None,
            "isolation": isolation,
            "restart": restart,
            "steps": steps,
        }
    )


_ISOLATION: tuple[Isolation, ...] = ("none", "needs confirmation", "confirmed")
_RESTART = ("no", "same", "from checkpoint", "elsewhere", "elsewhere from checkpoint")
_BY_HAND = "On a language model's word alone nothing is restarted: do that by hand."


def _isolation(
    summary: str, diagnosis: Diagnosis, row: dict[str, Any], given_as: str | None
) -> dict[str, Any]:
    """The steps that take a node out of service, at once or after confirmation."""
    doubt = isolation_doubt(diagnosis.rule)
    node = host_name(diagnosis.node)
    mine = matching_host(node, diagnosis.job_nodes)
    of_the_job = not diagnosis.job_nodes or node is None or mine is not None
    by_node = diagnosis.origin in ON_THE_NODE_S_SIDE
    certain = by_node and of_the_job and given_as is None
    if diagnosis.origin == "scheduler" and node is None:
        certain = False  # it lost one of several, and does not say which
    if certain and doubt.proof and diagnosis.source == "rules":
        return {
            "summary": summary,
            "isolation": "confirmed",
            "isolate": f"node {mine or node}"
            if node
            else f"the node whose log is {diagnosis.file}",
            "steps": [PlanStep(action="isolate", node=mine or node, origin=diagnosis.origin)],
        }
    checks = [
        check.format(host=node or _NO_HOST) for check in (doubt.check, row["confirm"]) if check
    ]
    why = _why(diagnosis, by_node=by_node, of_the_job=of_the_job, given_as=given_as)
    steps = [
        PlanStep(
            action="confirm",
            node=node,
            commands=_without_repetition(
                [command for check in checks for command in _commands(check)]
            ),
            origin=diagnosis.origin,
            detail=why,
        )
    ]
    # a node of which only the text says that it was the job's is not even proposed
    if mine is not None or certain:
        steps.append(
            PlanStep(
                action="isolate", node=mine or node, only_if="confirmed", origin=diagnosis.origin
            )
        )
    elsewhere = f"restart elsewhere {_words(diagnosis)['checkpoint']}."
    then = summary[:1].lower() + summary[1:]
    if given_as is not None:
        then = f"give the log under that name with --node-logs; {elsewhere}"
    elif node is not None and mine is None and not by_node:
        # whose node that is, only the text says
        then = f"give its log with --node-logs; {elsewhere}"
    return {
        "summary": f"Confirm on {_words(diagnosis)['node']} first; nothing is isolated yet, "
        f"because {why}. If it is confirmed, {then}",
        "isolation": "needs confirmation",
        "innocent": list(doubt.causes),
        "steps": steps,
    }


def _why(diagnosis: Diagnosis, *, by_node: bool, of_the_job: bool, given_as: str | None) -> str:
    if given_as is not None:
        return f"the log was given as that of {given_as}, but its lines name {diagnosis.node}"
    if diagnosis.origin == "scheduler" and diagnosis.node is None:
        return "the scheduler does not say which of the job's nodes it lost"
    if by_node and not of_the_job:
        return f"{diagnosis.node} is not one of the job's nodes"
    if by_node:
        return "the node's log says so in words that also have innocent causes"
    if not of_the_job:
        return f"the only evidence is text of the job, and {diagnosis.node} is not one of its nodes"
    return "the only evidence is text that a job can print"


def _commands(text: str) -> list[str]:
    return [one.strip() for one in text.split(";") if one.strip()]


def _without_repetition(commands: list[str]) -> list[str]:
    """The commands without repetition; searches in one place become a single one."""
    words: dict[str, list[str]] = {}
    for command in commands:
        search = _SEARCH.fullmatch(command)
        alternatives = words.setdefault(search["source"] if search else command, [])
        alternatives += search["words"].split("|") if search else []
    return [
        f"{source} | grep -iE '{'|'.join(dict.fromkeys(alternatives))}'" if alternatives else source
        for source, alternatives in words.items()
    ]


def isolation_doubt(rule: str | None) -> _IsolationDoubt:
    """Reasons against isolating a node on a rule's text; see `innocent.yaml`."""
    return _isolation_doubts().get(rule or "", _IsolationDoubt(False, (), None))


def _fits(wanted: dict[str, Any], facts: dict[str, Any]) -> bool:
    return all(
        facts[key] in value if isinstance(value, list) else facts[key] == value
        for key, value in wanted.items()
    )


_NO_HOST = "NODE"


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
    node = host_name(diagnosis.node)
    return {
        "host": node or _NO_HOST,
        "node": f"node {node}" if node else "the node of the failure",
        "named": f" (the log names node {node})" if node else "",
        "waited": diagnosis.meanwhile or "at something else",
        "missing": missing or "Find out which rank was missing",
        "checkpoint": checkpoint,
    }


@cache
def _table() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = load("logparse/failure/plans.yaml")["plans"]
    return rows


@cache
def _isolation_doubts() -> dict[str, _IsolationDoubt]:
    data = load("logparse/failure/innocent.yaml")
    doubts = {
        rule: _IsolationDoubt(False, tuple(group["causes"]), group.get("check"))
        for group in data["innocent"]
        for rule in group["rules"]
    }
    return doubts | {rule: _IsolationDoubt(True, (), None) for rule in data["proof"]}
