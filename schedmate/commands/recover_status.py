"""`schedmate recover status` and `reset`: what waits, what is isolated, and the circuit breaker."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from schedmate.commands.options import JsonOption
from schedmate.commands.recover_common import (
    RecordOption,
    RecoveryOption,
    answer,
    configured,
    person,
)
from schedmate.errors import NOT_TAKEN, UsageError
from schedmate.terminal import say


def status(
    id_: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Show this plan with its whole history.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Include finished plans, the newest 100.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the record's chain of hashes.")
    ] = False,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="N:HASH", help="With --verify: a head of the chain that was kept elsewhere."
        ),
    ] = None,
    recovery: RecoveryOption = None,
    record: RecordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show waiting and running plans, and isolated nodes.

    Also shows whether the circuit breaker is open and the kill switch on. With --verify, exits with
    7 when the record was changed.
    """
    from schedmate.recovery.document import (
        ChainDocument,
        RecoverDocument,
        isolated,
        plan_document,
    )
    from schedmate.recovery.guards import breaker_is_open, kill_switch_is_on
    from schedmate.schedulers.live.plans import OPEN, State
    from schedmate.schedulers.live.record import Record

    configuration = configured(recovery, record)
    known = _head(head)
    with Record(configuration.record, read_only=True) as kept:
        document = RecoverDocument()
        if id_ is not None:
            document.plans = [plan_document(kept, kept.plan(id_), whole=True)]
        else:
            states: set[State] | None = None if every else {*OPEN, "failed"}
            found = kept.plans(states=states, purpose="recovery")
            document = RecoverDocument(
                plans=[plan_document(kept, one) for one in found],
                counts={str(state): count for state, count in kept.counts().items()},
                breaker="open" if breaker_is_open(kept) else "closed",
                kill_switch=kill_switch_is_on(configuration.kill_switch),
                undetermined=len(kept.undetermined()),
                isolated=isolated(kept),
            )
        if verify or head is not None:
            document.chain = ChainDocument(**kept.verify(known)._asdict())
    answer(document, as_json=as_json, what="status")
    if document.chain is not None and document.chain.broken:
        raise typer.Exit(NOT_TAKEN)


def reset(
    note: Annotated[str, typer.Option(metavar="TEXT", help="What you found, kept in the record.")],
    recovery: RecoveryOption = None,
    record: RecordOption = None,
) -> None:
    """Close the circuit breaker.

    Use it after checking the isolated nodes; from then on they do not count.
    """
    from schedmate.recovery.guards import breaker_is_open, reset_breaker
    from schedmate.schedulers.live.record import Record

    with Record(configured(recovery, record).record) as kept:
        was_open = breaker_is_open(kept)
        reset_breaker(kept, by=person(), note=note)
    say("the circuit breaker is closed." if was_open else "the circuit breaker was closed already.")


def _head(text: str | None) -> tuple[int, str] | None:
    if text is None:
        return None
    number, _, digest = text.partition(":")
    if not number.isdecimal() or len(number) > 18 or not re.fullmatch("[0-9a-f]{64}", digest):
        raise UsageError("--head is the number and hash that `recover status --verify` printed.")
    return int(number), digest
