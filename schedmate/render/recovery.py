"""Recovery plans as text for a person: their actions and their state."""

from __future__ import annotations

from datetime import UTC, datetime

from schedmate.durations import format_duration
from schedmate.recovery.document import PlanDocument, RecoverDocument
from schedmate.schedulers.live.plans import State
from schedmate.terminal import counted, say
from schedmate.terminal.layout import Tone
from schedmate.terminal.screen import Screen, Table

TONES: dict[State, Tone] = {"applied": "good", "failed": "bad", "applying": "doubtful"}


def show(document: RecoverDocument, screen: Screen, *, what: str, kept: bool = True) -> None:
    """Print the answer of `schedmate recover WHAT`, with the next steps if the plan is stored."""
    if document.counts is not None:
        _overview(screen, document)
    else:
        for number, plan in enumerate(document.plans):
            if number:
                screen.line()
            # the rest was shown when it was proposed
            _plan(screen, plan, whole=plan.state == "proposed" or what in ("plan", "status"))
    if not document.plans and what in ("plan", "apply"):
        screen.line(document.why or "No plan is approved; nothing was done.")
    for text in document.forbidden:
        screen.line(text, "doubtful", label="forbidden now: ")
    if document.stopped is not None:
        screen.line(document.stopped, "bad", label="stopped: ")
        if document.wait_s is not None:
            screen.line(f"allowed again in {format_duration(document.wait_s)}")
    if document.chain is not None:
        _chain(screen, document)
    if kept:
        _next(document, what)


def _plan(screen: Screen, found: PlanDocument, *, whole: bool) -> None:
    plan = found.plan
    screen.line(f"{plan.id} · {found.state}", TONES.get(found.state))
    screen.line(plan.reason.summary)
    for number, action in enumerate(plan.actions if whole else (), 1):
        screen.line(action.in_words, label=f"  {number}. ")
        if action.precondition:
            screen.line(f"only if {action.precondition}", label="     ")
        back = action.undo()
        if back is not None:
            screen.line(f"taken back by: {back.in_words}", label="     ")
    for line in plan.reason.evidence if whole else ():
        mark = ">" if line.note == "decided" else " "
        screen.line(line.text, label=f"  {mark} {line.file}:{line.line} ")
    if found.note:
        screen.line(found.note, label=f"{found.by}: ")
    for attempt in found.attempts:
        outcome = attempt.outcome or "unknown: the next `recover apply` checks it"
        undone = "undo " if attempt.undo else ""
        detail = f"; {attempt.detail}" if attempt.detail else ""
        screen.line(
            f"{_when(attempt.time)} {undone}{attempt.kind} {attempt.target}: {outcome}{detail}"
        )
        for node, said in attempt.data.get("nodes", {}).items():
            screen.line(f"{said.get('state')}: {said.get('detail')}", label=f"    {node} ")


def _overview(screen: Screen, document: RecoverDocument) -> None:
    if document.plans:
        table = Table("Plan", "State", "Since", "By", "What")
        for one in document.plans:
            table.add(one.plan.id, one.state, _when(one.since), one.by, one.plan.reason.summary)
        screen.table(table)
    else:
        screen.line("No plan waits or runs.")
    for node, plan in (document.isolated or {}).items():
        screen.line(f"{node} (plan {plan})", label="isolated: ")
    if document.breaker == "open":
        screen.line("circuit breaker: open; nothing is isolated before `recover reset`", "bad")
    if document.kill_switch:
        screen.line("kill switch: on; nothing is done", "bad")
    if document.undetermined:
        many = counted(document.undetermined, "action")
        screen.line(f"{many} begun without an answer; `recover apply` looks", "doubtful")


def _chain(screen: Screen, document: RecoverDocument) -> None:
    chain = document.chain
    assert chain is not None
    if chain.broken:
        screen.line(f"The record was changed: {chain.broken}.", "bad")
    else:
        screen.line(f"The record is whole: {counted(chain.entries, 'row')}.", "good")
        screen.line(f"{chain.entries}:{chain.head}", label="head: ")


def _next(document: RecoverDocument, what: str) -> None:
    """Say what the reader can do now."""
    if what not in ("plan", "apply", "approve"):
        return
    for one in document.plans:
        if one.state == "proposed":
            say(f"`schedmate recover approve {one.plan.id}` lets it be carried out.")
        elif one.state == "approved":
            say(f"`schedmate recover apply {one.plan.id}`, or the cluster's agent, carries it out.")
        elif one.state == "applied" and any(step.undo() for step in one.plan.actions):
            say(f"`schedmate recover undo {one.plan.id}` takes it back.")


def _when(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
