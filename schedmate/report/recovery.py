"""Recovery plans as text for a person: their actions and their state."""

from __future__ import annotations

from schedmate.base.inputs import format_duration, moment_of
from schedmate.base.terminal import Screen, Table, Tone, counted, say
from schedmate.cluster.record import PlanState
from schedmate.cluster.recovery.document import PlanDocument, RecoverDocument

TONES: dict[PlanState, Tone] = {"applied": "good", "failed": "bad", "applying": "doubtful"}


def show_recovery(
    document: RecoverDocument, screen: Screen, *, what: str, stored: bool = True
) -> None:
    """Print the answer of `schedmate recover WHAT`, with the next steps if a plan is `stored`."""
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
    if stored:
        _next(document, what)


def _plan(screen: Screen, document: PlanDocument, *, whole: bool) -> None:
    plan = document.plan
    screen.line(f"{plan.id} · {document.state}", TONES.get(document.state))
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
    if document.note:
        screen.line(document.note, label=f"{document.by}: ")
    for attempt in document.attempts:
        outcome = attempt.outcome or "unknown: the next `recover apply` checks it"
        undone = "undo " if attempt.undo else ""
        detail = f"; {attempt.detail}" if attempt.detail else ""
        screen.line(
            f"{_when(attempt.time)} {undone}{attempt.kind} {attempt.target}: {outcome}{detail}"
        )
        for node, node_state in attempt.data.get("nodes", {}).items():
            screen.line(
                f"{node_state.get('state')}: {node_state.get('detail')}", label=f"    {node} "
            )


def _overview(screen: Screen, document: RecoverDocument) -> None:
    if document.plans:
        table = Table("Plan", "State", "Since", "By", "What")
        for status in document.plans:
            table.add(
                status.plan.id,
                status.state,
                _when(status.since),
                status.by,
                status.plan.reason.summary,
            )
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
    """Name on standard error the commands with which the user can proceed."""
    if what not in ("plan", "apply", "approve"):
        return
    for status in document.plans:
        if status.state == "proposed":
            say(f"`schedmate recover approve {status.plan.id}` lets it be carried out.")
        elif status.state == "approved":
            say(
                f"`schedmate recover apply {status.plan.id}`, or the cluster's agent, "
                "carries it out."
            )
        elif status.state == "applied" and any(step.undo() for step in status.plan.actions):
            say(f"`schedmate recover undo {status.plan.id}` takes it back.")


def _when(time: float) -> str:
    return moment_of(time).strftime("%Y-%m-%d %H:%M:%SZ")
