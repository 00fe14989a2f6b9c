"""`schedmate recover`: plans for failed jobs, their approval, and carrying them out."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from schedmate.commands.options import JsonOption
from schedmate.commands.recover_common import (
    NoteOption,
    PlanId,
    RecordOption,
    RecoveryOption,
    answer,
    configured,
    person,
    service_of,
    to_read,
)
from schedmate.commands.recover_status import reset, status
from schedmate.commands.recover_tools import check, checkpoint
from schedmate.errors import NOT_TAKEN, UsageError
from schedmate.terminal import clean

MOST_RESTARTS = 10**9
"""No scheduler counts further, and a record of plans takes no larger number."""

app = typer.Typer(
    help="Plan, approve, apply and undo recovery from failures.",
    no_args_is_help=True,
)


@app.command()
def plan(
    logs: Annotated[
        list[str],
        typer.Argument(metavar="LOG...", help="The failed job's log, as for `schedmate diagnose`."),
    ],
    job: Annotated[str, typer.Option(metavar="ID", help="The scheduler's id of the job.")],
    run: Annotated[
        int,
        typer.Option(
            min=0, max=MOST_RESTARTS, help="Restarts of the job before the run that failed."
        ),
    ] = 0,
    nodes: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE,...", help="The nodes that it ran on, such as gpu[01-04]."),
    ] = None,
    node_logs: Annotated[
        list[str] | None,
        typer.Option(metavar="[NODE=]FILE", help="Kernel log of a node of the job. Repeatable."),
    ] = None,
    confirmed_by: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Confirms that you found the node faulty; state how."),
    ] = None,
    checkpoints: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the job saves its checkpoints.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan; store nothing.")
    ] = False,
    recovery: RecoveryOption = None,
    record: RecordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Diagnose a failed job and propose a recovery plan.

    The steps are confirm, isolate, restart and notify, as far as recovery.yaml allows. Nothing is
    carried out. The same failed run always gives the same plan.
    """
    from schedmate.commands.diagnose import node_log, node_names
    from schedmate.confine.limits import bounded
    from schedmate.logparse.failure import diagnose, open_job
    from schedmate.recovery.document import RecoverDocument, plan_document
    from schedmate.recovery.proposing import Case
    from schedmate.schedulers.live.executor import ExecutorError
    from schedmate.settings import load_settings

    configuration = configured(recovery, record)
    names = node_names(nodes or ())
    with ExitStack() as stack:
        stack.enter_context(bounded(f"the log {logs[0]}", load_settings().memory_mb))
        found = diagnose(
            stack.enter_context(open_job(logs)),
            node_logs=[stack.enter_context(node_log(one)) for one in node_logs or ()],
            nodes=names,
        )
    case = Case(
        job=_job(job),
        run=run,
        diagnosis=found,
        nodes=tuple(names),
        confirmed_by=confirmed_by,
        resume=_resume(checkpoints) if checkpoints is not None else None,
    )
    with ExitStack() as stack:
        kept = stack.enter_context(to_read(configuration, dry_run))
        service = service_of(configuration, kept)
        proposal, status = service.preview(case) if dry_run else service.plan(case)
        document = RecoverDocument(why=proposal.why)
        if status is not None:
            document.plans = [plan_document(kept, status)]
            if status.state in ("proposed", "approved"):
                try:
                    forbidden = service.forbidden(status)
                    document.forbidden = [f"{one.rule}: {one}" for one in forbidden]
                except ExecutorError as error:
                    document.forbidden = [f"the cluster cannot be asked: {error}"]
    answer(document, as_json=as_json, what="plan", kept=not dry_run)


@app.command()
def approve(
    id_: PlanId,
    note: NoteOption = "",
    recovery: RecoveryOption = None,
    record: RecordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Approve a proposed plan."""
    _move(id_, "approve", note, recovery, record, as_json)


@app.command()
def reject(
    id_: PlanId,
    note: NoteOption = "",
    recovery: RecoveryOption = None,
    record: RecordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reject a plan; it is not proposed again."""
    _move(id_, "reject", note, recovery, record, as_json)


def _move(
    id_: str, what: str, note: str, recovery: Path | None, record: Path | None, as_json: bool
) -> None:
    from schedmate.recovery.document import RecoverDocument, plan_document
    from schedmate.schedulers.live.record import Record

    with Record(configured(recovery, record).record) as kept:
        status = getattr(kept, what)(id_, by=person(), note=note)
        document = RecoverDocument(plans=[plan_document(kept, status)])
    answer(document, as_json=as_json, what=what)


@app.command()
def apply(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID...]", help="Plans to apply. Default: all approved ones."),
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Retry items that failed.")] = False,
    recovery: RecoveryOption = None,
    record: RecordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Apply approved plans, subject to the guards.

    Run again, or after a crash, it continues with the remaining steps. Exits with 7 when a plan was
    not carried out completely.
    """
    from schedmate.recovery.document import RecoverDocument, plan_document
    from schedmate.schedulers.live.record import Record

    configuration = configured(recovery, record)
    if retry and not ids:
        raise UsageError(
            "--retry needs the ids of plans to try again; `schedmate recover status` lists them."
        )
    complete = True
    with Record(configuration.record) as kept:
        service = service_of(configuration, kept)
        wanted = ids or [
            one.plan.id
            for one in reversed(kept.plans(states=("approved", "applying"), purpose="recovery"))
        ]
        document = RecoverDocument()
        for id_ in wanted:
            applied = service.apply(id_, retry=retry)
            document.plans.append(plan_document(kept, applied.result.status, whole=True))
            if applied.result.stopped is not None:
                complete = False
                document.stopped = f"{applied.result.stopped}: {applied.result.detail}"
                document.wait_s = applied.result.wait_s
            if applied.next is not None:
                document.plans.append(plan_document(kept, applied.next))
                document.why = applied.why
    answer(document, as_json=as_json, what="apply")
    if not complete:
        raise typer.Exit(NOT_TAKEN)


@app.command()
def undo(
    id_: PlanId,
    recovery: RecoveryOption = None,
    record: RecordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Undo the steps of a plan.

    Nodes that it isolated return to service. Anything that somebody else has changed since is left
    alone; a restarted job stays restarted.
    """
    from schedmate.recovery.document import RecoverDocument, plan_document
    from schedmate.schedulers.live.record import Record

    configuration = configured(recovery, record)
    with Record(configuration.record) as kept:
        result = service_of(configuration, kept).undo(id_)
        document = RecoverDocument(plans=[plan_document(kept, result.status, whole=True)])
        if result.stopped is not None:
            document.stopped = f"{result.stopped}: {result.detail}"
    answer(document, as_json=as_json, what="undo")
    if result.stopped is not None:
        raise typer.Exit(NOT_TAKEN)


def _job(text: str) -> str:
    from pydantic import ValidationError

    from schedmate.schedulers.live.actions import Hold

    try:
        return Hold(job=text).job
    except ValidationError:
        raise UsageError(
            f"--job {clean(text, 40)!r} cannot be the id of one job; give it as squeue prints it."
        ) from None


def _resume(folder: Path) -> str:
    from schedmate.recovery.checkpoints import newest

    found = newest(folder)
    if found is None:
        return f"no checkpoint was found in {folder}, it starts from the beginning"
    step = f" of step {found.step}" if found.step is not None else ""
    return f"from the checkpoint{step} at {found.path}"


app.command()(status)
app.command()(reset)
app.command()(checkpoint)
app.command()(check)
