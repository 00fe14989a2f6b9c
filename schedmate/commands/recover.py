"""`schedmate recover`: plans recovery of failed jobs, has it approved, carries it out."""

from __future__ import annotations

import os
import pwd
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schedmate.base.data import dumps
from schedmate.base.errors import ABSTAINED, NOT_TAKEN, ActionError, UsageError
from schedmate.base.inputs import parse_duration
from schedmate.base.terminal import Screen, clean, say
from schedmate.commands.options import JsonOption, NodeLogsOption, NodesOption

if TYPE_CHECKING:
    from schedmate.cluster import ClusterKind
    from schedmate.cluster.record import Record
    from schedmate.cluster.recovery.checkpoints import Checkpoint
    from schedmate.cluster.recovery.configuration import Configuration
    from schedmate.cluster.recovery.document import RecoverDocument
    from schedmate.cluster.recovery.recover import Recovery


def status(
    id_: Annotated[
        str | None, typer.Argument(metavar="ID", help="Show this plan with its whole history.")
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
    from schedmate.cluster.bounds import kill_switch_is_on
    from schedmate.cluster.record import OPEN, PlanState, Record
    from schedmate.cluster.recovery.document import (
        ChainDocument,
        RecoverDocument,
        isolated,
        plan_document,
    )
    from schedmate.cluster.recovery.guards import breaker_is_open

    configuration = configuration_of(recovery, record)
    known_head = _head(head)
    with Record(configuration.record, read_only=True) as recovery_record:
        document = RecoverDocument()
        if verify or head is not None:
            document.chain = ChainDocument(**recovery_record.verify(known_head)._asdict())
            if document.chain.broken:  # what it says about plans is not to be shown either
                print_answer(document, as_json=as_json, what="verify")
                raise typer.Exit(NOT_TAKEN)
        chain = document.chain
        if id_ is not None:
            document.plans = [plan_document(recovery_record, recovery_record.plan(id_), whole=True)]
        else:
            states: set[PlanState] | None = None if every else {*OPEN, "failed"}
            statuses = recovery_record.plans(states=states, purpose="recovery")
            document = RecoverDocument(
                plans=[plan_document(recovery_record, one) for one in statuses],
                counts={str(state): count for state, count in recovery_record.counts().items()},
                breaker="open" if breaker_is_open(recovery_record) else "closed",
                kill_switch=kill_switch_is_on(configuration.kill_switch),
                undetermined=len(recovery_record.undetermined()),
                isolated=isolated(recovery_record),
                chain=chain,
            )
    print_answer(document, as_json=as_json, what="status")


def reset(
    note: Annotated[str, typer.Option(metavar="TEXT", help="What you found, kept in the record.")],
    recovery: RecoveryOption = None,
    record: RecordOption = None,
) -> None:
    """Close the circuit breaker.

    Use it after checking the isolated nodes; from then on they do not count. Plans that it had
    stopped are approved again: the agent, or `recover apply`, carries them out.
    """
    from schedmate.cluster.record import Record
    from schedmate.cluster.recovery.guards import breaker_is_open, reset_breaker

    with Record(configuration_of(recovery, record).record) as recovery_record:
        was_open = breaker_is_open(recovery_record)
        again = reset_breaker(recovery_record, by=invoking_user(), note=note)
    say("the circuit breaker is closed." if was_open else "the circuit breaker was closed already.")
    for id_ in again:
        say(f"plan {id_}, which it had stopped, is approved again.")


def rotate(
    keep: Annotated[
        str, typer.Option(metavar="TIME", help="What is younger stays, such as 90d.")
    ] = "90d",
    recovery: RecoveryOption = None,
    record: RecordOption = None,
) -> None:
    """Move old entries of the record into an archive beside it.

    Safe while the agent runs. Plans with more to come, isolated nodes and an open circuit breaker
    keep their entries. The archive is a record: `recover status --verify --record ARCHIVE` proves
    it. Agents do so by themselves (`record` in the bounds).
    """
    from schedmate.cluster.record import Record
    from schedmate.cluster.recovery.guards import least_kept_s, needed_from

    configuration = configuration_of(recovery, record)
    keep_s, least = parse_duration(keep), least_kept_s(configuration)
    if keep_s < least:
        raise UsageError(
            f"--keep {keep} is less than {least / 86_400:.0f}d, which limits on recovery look back."
        )
    with Record(configuration.record) as recovery_record:
        archive = recovery_record.rotate(keep_s, by=invoking_user(), needed=needed_from)
    say("nothing is that old." if archive is None else f"older entries are in {archive}.")


def _head(text: str | None) -> tuple[int, str] | None:
    if text is None:
        return None
    number, _, digest = text.partition(":")
    if not number.isdecimal() or len(number) > 18 or not re.fullmatch("[0-9a-f]{64}", digest):
        raise UsageError("--head is the number and hash that `recover status --verify` printed.")
    return int(number), digest


# `schedmate recover checkpoint` and `check`: a job's newest checkpoint, and recovery.yaml.


CHECKPOINT_SCHEMA, FILE_SCHEMA = "schedmate.checkpoint/v1", "schedmate.recovery-file/v1"


def checkpoint(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where a job saves checkpoints.")],
    command: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="The command that started the job.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find a job's newest complete checkpoint.

    With --command, print the command that resumes from it. Nothing is loaded. Layouts of torch,
    torch.distributed.checkpoint, DeepSpeed, Megatron, Lightning and Hugging Face are known. Exits
    with 4 when there is none.
    """
    from schedmate.cluster.recovery.checkpoints import newest_checkpoint, resume_command

    newest = newest_checkpoint(folder)
    again = resume_command(command, newest) if newest is not None and command is not None else None
    if as_json:
        typer.echo(dumps(_checkpoint_document(newest, again), indent=2))
    else:
        screen = Screen(sys.stdout)
        if newest is None:
            screen.line(f"{folder} has no checkpoint of a layout that is known.", "doubtful")
        else:
            step = f"step {newest.step}" if newest.step is not None else "no step in its name"
            screen.line(f"{newest.path} · {newest.layout} · {step}", "good")
            for passed in newest.passed_over:
                screen.line(passed, label="passed over: ")
        if again is not None:
            screen.line(again[0])
            say(f"note: {again[1]}.")
    if newest is None:
        raise typer.Exit(ABSTAINED)


def check(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A recovery.yaml.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a recovery.yaml and print it with all defaults."""
    from schedmate.cluster.recovery.configuration import load_configuration

    place = recovery_file(file)
    configuration = load_configuration(place)
    document = configuration.model_dump(mode="json")
    if as_json:
        typer.echo(dumps({"schema": FILE_SCHEMA, **document}, indent=2))
        return
    import yaml

    sys.stdout.write(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    say(f"{place} is in order." if place else "there is no recovery.yaml; these are the defaults.")


def _checkpoint_document(
    newest: Checkpoint | None, again: tuple[str, str] | None
) -> dict[str, object]:
    document: dict[str, object] = {"schema": CHECKPOINT_SCHEMA, "found": newest is not None}
    if newest is not None:
        document |= {
            "path": str(newest.path),
            "layout": newest.layout,
            "step": newest.step,
            "time": newest.time,
            "load": str(newest.load),
            "passed_over": list(newest.passed_over),
        }
    if again is not None:
        document |= {"command": again[0], "note": again[1]}
    return document


# Shared by the commands of `schedmate recover`: options, the user, recovery.yaml, the record.


RECOVERY_VARIABLE = "SCHEDMATE_RECOVERY"

RecoveryOption = Annotated[
    Path | None,
    typer.Option(
        "--recovery",
        metavar="FILE",
        help=f"The administrator's recovery.yaml. Default: ${RECOVERY_VARIABLE}, else "
        "/etc/schedmate/recovery.yaml if it is there. Without one, plans can be made but not "
        "carried out.",
    ),
]
RecordOption = Annotated[
    Path | None,
    typer.Option("--record", metavar="FILE", help="Record file, instead of recovery.yaml's."),
]
NoteOption = Annotated[str, typer.Option(metavar="TEXT", help="Reason, kept in the record.")]
PlanId = Annotated[str, typer.Argument(metavar="ID", help="Id of a plan, as in `recover status`.")]


def print_answer(
    document: RecoverDocument, *, as_json: bool, what: str, stored: bool = True
) -> None:
    """Print the answer of `schedmate recover WHAT`; `stored` is false for a plan that is not."""
    from schedmate.cluster.recovery.document import SCHEMA
    from schedmate.report.recovery import show_recovery

    if as_json:
        typer.echo(dumps({"schema": SCHEMA, **document.model_dump(mode="json")}, indent=2))
    else:
        show_recovery(document, Screen(sys.stdout), what=what, stored=stored)


_FIRST_PERSON = 1000
"""User ids below are those of the system and its services (login.defs: UID_MIN)."""
_NOBODY = 0xFFFFFFFF
"""The kernel's login id of a process that no login led to."""


def invoking_user() -> str:
    """The account that runs this, and the person who logged in, where that is another one."""
    account, person = _user_name(os.geteuid()), invoking_person()
    return f"{person} (as {account})" if person and person != account else account


def invoking_person() -> str | None:
    """Who runs this: by the kernel's login id, which no program can change, else by sudo's word,
    else the account itself unless it is the system's or a service's."""
    login = login_id()
    if login:
        return _user_name(login)
    asked = os.environ.get("SUDO_USER", "")
    if asked and asked != "root":
        return asked
    return _user_name(os.geteuid()) if os.geteuid() >= _FIRST_PERSON else None


def login_id() -> int | None:
    """The kernel's user id of the login that led to this process, None where none did."""
    try:
        login = int(Path("/proc/self/loginuid").read_text())
    except (OSError, ValueError):
        return None
    return None if login == _NOBODY else login


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def recovery_file(named: Path | None) -> Path | None:
    """The recovery.yaml that counts: the one that is named, else the site's, if there is one."""
    if named is not None:
        return named
    if os.environ.get(RECOVERY_VARIABLE):
        return Path(os.environ[RECOVERY_VARIABLE])
    from schedmate.settings import site_dir

    site = site_dir() / "recovery.yaml"
    return site if site.is_file() else None


def configuration_of(
    named: Path | None, record: Path | None, bounds: Path | None = None
) -> Configuration:
    """The administrator's configuration, with another record where one is named.

    Where `bounds` are named and no recovery.yaml is, it is the one that the bounds name.
    """
    from schedmate.cluster.bounds import load_bounds
    from schedmate.cluster.recovery.configuration import load_configuration

    if named is None and bounds is not None:
        named = load_bounds(bounds).recovery
    configuration = load_configuration(recovery_file(named))
    return (
        configuration
        if record is None
        else configuration.model_copy(update={"record": record.absolute()})
    )


@contextmanager
def record_to_read(configuration: Configuration, dry_run: bool) -> Iterator[Record]:
    """The record; for a dry run only to be read, or an empty one where there is none."""
    from schedmate.cluster.record import Record

    with ExitStack() as stack:
        place = configuration.record
        if dry_run and not place.exists():
            place = Path(stack.enter_context(TemporaryDirectory())) / "record.db"
            Record(place).close()
        yield stack.enter_context(Record(place, read_only=dry_run))


BoundsOption = Annotated[
    Path | None,
    typer.Option(
        "--bounds",
        metavar="FILE",
        help="The bounds of the cluster's agent, to act through its scheduler. Default: "
        "/etc/schedmate/bounds.yaml if it is there and recovery.yaml has no commands for nodes and "
        "jobs.",
    ),
]


def bounds_file(named: Path | None, configuration: Configuration) -> Path | None:
    """The bounds through which a cluster is reached; None: the commands of recovery.yaml."""
    if named is not None:
        return named
    commands = configuration.commands
    if commands is not None and (commands.nodes is not None or commands.job is not None):
        return None
    from schedmate.settings import site_dir

    site = site_dir() / "bounds.yaml"
    return site if site.is_file() else None


@contextmanager
def acting_service(
    configuration: Configuration, record: Record, bounds: Path | None
) -> Iterator[Recovery]:
    """Recovery that acts: through the scheduler of the bounds, else by commands of recovery.yaml.

    Raises `SchedmateError` when the scheduler does not answer, or is that of another cluster.
    """
    place = bounds_file(bounds, configuration)
    if place is None:
        yield recovery_service(configuration, record)
        return
    from schedmate.cluster.bounds import kill_switch_is_on, load_bounds
    from schedmate.cluster.recovery.recover import ClusterExecutor, Recovery, of_cluster
    from schedmate.commands.agents import state_dir

    allowed = load_bounds(place)
    if kill_switch_is_on(allowed.kill_switch):
        raise ActionError(f"{allowed.kill_switch} is there; nothing is done until it is removed.")
    with present_kind().reached(allowed, state_dir(None, allowed), watches=False) as reached:
        present = of_cluster(configuration, reached.adapter.cluster)
        executor = ClusterExecutor(reached.adapter, present, reached.runner)
        yield Recovery(present, record, executor, by=invoking_user())


def present_kind() -> ClusterKind[Any]:
    """The kind of cluster that the settings name, else the one that this machine belongs to."""
    from schedmate.cluster import cluster_kind, kind_here
    from schedmate.settings import load_settings

    named = load_settings().scheduler
    if named is not None:
        return cluster_kind(named)
    if (here := kind_here()) is not None:
        return here
    raise UsageError(
        "this machine belongs to no cluster that schedmate knows; run this where the agent runs, "
        "or name its kind with SCHEDMATE_SCHEDULER."
    )


def recovery_service(configuration: Configuration, record: Record) -> Recovery:
    """Recovery through the commands of recovery.yaml, if it names any."""
    from schedmate.cluster.recovery.local import LocalExecutor
    from schedmate.cluster.recovery.recover import Recovery

    folder = record.path.with_name(record.path.name + ".claims")
    commands = configuration.commands
    executor = LocalExecutor(commands, folder) if commands is not None else None
    return Recovery(configuration, record, executor, by=invoking_user())


# `schedmate recover`: plans for failed jobs, their approval, and carrying them out.


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
        typer.Argument(metavar="LOG", help="The failed job's log, as for `schedmate diagnose`."),
    ],
    job: Annotated[str, typer.Option(metavar="ID", help="The scheduler's id of the job.")],
    run: Annotated[
        int,
        typer.Option(
            min=0, max=MOST_RESTARTS, help="Restarts of the job before the run that failed."
        ),
    ] = 0,
    nodes: NodesOption = None,
    node_logs: NodeLogsOption = None,
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
    from schedmate.base.confine.limits import bounded
    from schedmate.cluster.adapter import ExecutorError
    from schedmate.cluster.recovery.document import RecoverDocument, plan_document
    from schedmate.cluster.recovery.recover import Case
    from schedmate.commands.diagnose import node_log, node_names
    from schedmate.logparse.failure import diagnose, open_job, site_rules
    from schedmate.settings import load_settings

    configuration = configuration_of(recovery, record)
    names = node_names(nodes or ())
    with ExitStack() as stack:
        settings = load_settings()
        stack.enter_context(bounded(f"the log {logs[0]}", settings.memory_mb))
        stack.enter_context(site_rules(settings.rules_folder))
        diagnosis = diagnose(
            stack.enter_context(open_job(logs)),
            node_logs=[stack.enter_context(node_log(one)) for one in node_logs or ()],
            nodes=names,
        )
    case = Case(
        job=_job(job),
        run=run,
        diagnosis=diagnosis,
        nodes=tuple(names),
        confirmed_by=confirmed_by,
        resume=_resume(checkpoints) if checkpoints is not None else None,
    )
    with ExitStack() as stack:
        recovery_record = stack.enter_context(record_to_read(configuration, dry_run))
        service = recovery_service(configuration, recovery_record)
        proposal, status = service.preview(case) if dry_run else service.plan(case)
        document = RecoverDocument(why=proposal.why)
        if status is not None:
            document.plans = [plan_document(recovery_record, status)]
            if status.state in ("proposed", "approved"):
                try:
                    forbidden = service.forbidden(status)
                    document.forbidden = [f"{one.rule}: {one}" for one in forbidden]
                except ExecutorError as error:
                    document.forbidden = [f"the cluster cannot be asked: {error}"]
    print_answer(document, as_json=as_json, what="plan", stored=not dry_run)


@app.command()
def approve(
    id_: PlanId,
    note: NoteOption = "",
    recovery: RecoveryOption = None,
    record: RecordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Approve a proposed plan."""
    _decide(id_, "approve", note, recovery, record, as_json)


@app.command()
def reject(
    id_: PlanId,
    note: NoteOption = "",
    recovery: RecoveryOption = None,
    record: RecordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reject a plan; it is not proposed again."""
    _decide(id_, "reject", note, recovery, record, as_json)


def _decide(
    id_: str, what: str, note: str, recovery: Path | None, record: Path | None, as_json: bool
) -> None:
    from schedmate.cluster.record import Record
    from schedmate.cluster.recovery.document import RecoverDocument, plan_document

    configuration = configuration_of(recovery, record)
    if configuration.decides == "person" and invoking_person() is None:
        raise UsageError(
            f"recovery.yaml (decides: person) wants a person's name, and {invoking_user()} is an "
            "account of the system: log in as yourself, and use sudo."
        )
    with Record(configuration.record) as recovery_record:
        recovery_record.ensure_intact()
        status = getattr(recovery_record, what)(id_, by=invoking_user(), note=note)
        document = RecoverDocument(plans=[plan_document(recovery_record, status)])
    print_answer(document, as_json=as_json, what=what)


@app.command()
def apply(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="Plans to apply. Default: all approved ones."),
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Retry items that failed.")] = False,
    bounds: BoundsOption = None,
    recovery: RecoveryOption = None,
    record: RecordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Apply approved plans, subject to the guards.

    Run again, or after a crash, it continues with the remaining steps. Exits with 7 when a plan was
    not carried out completely.
    """
    from schedmate.cluster.record import Record
    from schedmate.cluster.recovery.document import RecoverDocument, plan_document

    configuration = configuration_of(recovery, record, bounds)
    if retry and not ids:
        raise UsageError(
            "--retry needs the ids of plans to try again; `schedmate recover status` lists them."
        )
    complete = True
    with ExitStack() as stack:
        recovery_record = stack.enter_context(Record(configuration.record))
        recovery_record.ensure_intact()
        service = stack.enter_context(acting_service(configuration, recovery_record, bounds))
        wanted = ids or [
            one.plan.id
            for one in reversed(
                recovery_record.plans(states=("approved", "applying"), purpose="recovery")
            )
        ]
        document = RecoverDocument()
        for id_ in wanted:
            applied = service.apply(id_, retry=retry)
            document.plans.append(plan_document(recovery_record, applied.result.status, whole=True))
            if applied.result.stopped is not None:
                complete = False
                document.stopped = f"{applied.result.stopped}: {applied.result.detail}"
                document.wait_s = applied.result.wait_s
            if applied.next is not None:
                document.plans.append(plan_document(recovery_record, applied.next))
                document.why = applied.why
    print_answer(document, as_json=as_json, what="apply")
    if not complete:
        raise typer.Exit(NOT_TAKEN)


@app.command()
def undo(
    id_: PlanId,
    bounds: BoundsOption = None,
    recovery: RecoveryOption = None,
    record: RecordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Undo the steps of a plan.

    Nodes that it isolated return to service. Anything that somebody else has changed since is left
    alone; a restarted job stays restarted.
    """
    from schedmate.cluster.record import Record
    from schedmate.cluster.recovery.document import RecoverDocument, plan_document

    configuration = configuration_of(recovery, record, bounds)
    with ExitStack() as stack:
        recovery_record = stack.enter_context(Record(configuration.record))
        recovery_record.ensure_intact()
        service = stack.enter_context(acting_service(configuration, recovery_record, bounds))
        result = service.undo(id_)
        document = RecoverDocument(
            plans=[plan_document(recovery_record, result.status, whole=True)]
        )
        if result.stopped is not None:
            document.stopped = f"{result.stopped}: {result.detail}"
    print_answer(document, as_json=as_json, what="undo")
    if result.stopped is not None:
        raise typer.Exit(NOT_TAKEN)


def _job(text: str) -> str:
    from pydantic import ValidationError

    from schedmate.cluster.actions import Hold

    try:
        return Hold(job=text).job
    except ValidationError:
        raise UsageError(
            f"--job {clean(text, 40)!r} cannot be the id of one job; give it as squeue prints it."
        ) from None


def _resume(folder: Path) -> str:
    from schedmate.cluster.recovery.checkpoints import newest_checkpoint

    newest = newest_checkpoint(folder)
    if newest is None:
        return f"no checkpoint was found in {folder}, it starts from the beginning"
    step = f" of step {newest.step}" if newest.step is not None else ""
    return f"from the checkpoint{step} at {newest.path}"


app.command()(status)
app.command()(reset)
app.command()(rotate)
app.command()(checkpoint)
app.command()(check)
