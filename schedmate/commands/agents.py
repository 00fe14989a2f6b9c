"""`schedmate KIND agent|doctor|plan`, for every kind of cluster: `cluster_app`.

`schedmate slurm` and `schedmate k8s` add what only they have. Here are their options and files, the
loop under the lease, and a pass or a plan printed for people.
"""

from __future__ import annotations

import inspect
import logging
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple

import typer

from schedmate.base.data import dumps
from schedmate.base.errors import InputError
from schedmate.base.inputs import format_duration
from schedmate.base.logs import AGENT, LogFormat, logged
from schedmate.base.reading import read_text
from schedmate.base.terminal import counted
from schedmate.base.terminal import say as _say
from schedmate.cluster import MEMORY_FILE, RECORD_FILE, SHADOW_FOLDER, A, Check, ClusterKind
from schedmate.cluster.metrics import metrics_at
from schedmate.commands.options import HistoryOption, JsonOption, LogFormatOption

if TYPE_CHECKING:
    from schedmate.base.terminal import Tone
    from schedmate.cluster.adapter import EndedRun
    from schedmate.cluster.bounds import Bounds
    from schedmate.cluster.loop import Agent
    from schedmate.cluster.memory import Memory
    from schedmate.cluster.metrics import AgentMetrics, Gauge
    from schedmate.cluster.record import Record
    from schedmate.cluster.recovery.recover import ClusterRecovery
    from schedmate.cluster.reloading import Reload
    from schedmate.cluster.report import Done, Pass
    from schedmate.cluster.summary import AgentSummary
    from schedmate.mate import SchedMate


BoundsOption = Annotated[
    Path | None,
    typer.Option(
        "--bounds",
        metavar="FILE",
        help="File of what schedmate may do on the cluster (YAML); without it, it only observes.",
    ),
]
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="Directory of the agent's memory and its record of actions.",
    ),
]
OnceOption = Annotated[bool, typer.Option("--once", help="Make one pass and exit.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done; change nothing.")
]
UndoOption = Annotated[
    bool, typer.Option("--undo", help="Undo the ordering that was applied, and exit.")
]

MetricsOption = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Address of Prometheus metrics, /healthz and /readyz, such as 0.0.0.0:9095.",
    ),
]

ShadowOption = Annotated[
    bool,
    typer.Option(
        "--shadow",
        help="Run with the bounds, but change nothing: note what would be done, for `report`.",
    ),
]

log = logging.getLogger(AGENT)


def cluster_app(kind: ClusterKind[Any], **options: Any) -> typer.Typer:
    """`schedmate KIND` with the commands that every kind of cluster has.

    `options`: those that select a cluster, `where` of `ClusterKind`, by name the annotation of an
    option whose default is None.
    """
    app = typer.Typer(
        help=f"Run schedmate's agent beside a {kind.title} cluster.", no_args_is_help=True
    )

    def agent(
        once: OnceOption = False,
        dry_run: DryRunOption = False,
        undo: UndoOption = False,
        shadow: ShadowOption = False,
        bounds: BoundsOption = None,
        state: StateOption = None,
        history: HistoryOption = None,
        metrics: MetricsOption = None,
        log_format: LogFormatOption = "text",
        as_json: JsonOption = False,
        **where: Any,
    ) -> None:
        def run(reload: Reload) -> None:
            how: dict[str, Any] = {"dry_run": dry_run, "shadow": shadow, **where}
            with (
                opened_agent(kind, bounds, state, history, **how) as setup,
                metrics_at(metrics, kind, setup.bounds.poll, setup.gauges) as served,
            ):
                how = {"once": once, "undo": undo, "as_json": as_json}
                run_agent(setup, **how, metrics=served, reload=reload)

        keep_running(run, bounds, log_format)

    def doctor(
        bounds: BoundsOption = None,
        state: StateOption = None,
        history: HistoryOption = None,
        as_json: JsonOption = False,
        **where: Any,
    ) -> None:
        examine(kind, bounds, state, history, as_json=as_json, **where)

    def plan(
        job: str,
        bounds: BoundsOption = None,
        state: StateOption = None,
        history: HistoryOption = None,
        as_json: JsonOption = False,
        **where: Any,
    ) -> None:
        where |= kind.where_of(job)
        plan_for(kind, job, bounds, state, history, as_json=as_json, **where)

    # `kind` is known here only, so that an annotation as text could not name it
    plan.__annotations__["job"] = Annotated[str, typer.Argument(metavar="JOB", help=kind.job_help)]
    helps = {"group": kind.group, "title": kind.title, "about": kind.about_agent}
    for command, text in ((agent, _AGENT_HELP), (doctor, _DOCTOR_HELP), (plan, _PLAN_HELP)):
        _take_options(command, options)
        app.command(help=text.format_map(helps))(command)
    add_report(app, kind)
    return app


def _take_options(command: Callable[..., None], options: dict[str, Any]) -> None:
    """Have a command that ends in `**where` show these options in its place."""
    signature = inspect.signature(command, eval_str=True)
    *own, _ = signature.parameters.values()
    further = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in options.items()
    ]
    command.__signature__ = signature.replace(parameters=[*own, *further])  # type: ignore[attr-defined]


_AGENT_HELP = """\
Estimate pending jobs, follow running ones, diagnose failed ones.

{about}Without --bounds it changes nothing on the cluster. One agent works on a cluster at a time; a
second one waits for the first to end. With --json each pass is a line, with --once a document.
A change of the bounds, or SIGHUP, has them read anew; bounds with a fault are named, and those
from before stay. With --shadow nothing is changed whatever the bounds allow: `report --shadow`
says what would have been done.

Examples:

  schedmate {group} agent --once --dry-run

  schedmate {group} agent --shadow --bounds bounds.yaml

  schedmate {group} agent --bounds /etc/schedmate/bounds.yaml
"""
_DOCTOR_HELP = """\
Check {title} and the permissions that the agent needs.

Tests each permission that the bounds need with a command that changes nothing, and opens every
file that the agent would open. Without options, it uses those of the installed
schedmate-agent.service.

Exits with 1 when a check failed (✗); a warning (!) leaves the exit code at 0.
"""
_PLAN_HELP = """\
Show a recovery plan for a failed job, from its log.

Changes nothing. With recovery in the bounds, the plan is the one that the agent would propose.
"""


_REPORT_HELP = """\
Report what the agent did, and how its estimates compared with the truth.

Estimates of jobs that ended since, beside the limits that users set; plans and actions by kind and
state. With --shadow: what an agent that changes nothing would have done.

Examples:

  schedmate {group} report --since 30d --shadow
"""


@dataclass(frozen=True, slots=True)
class AgentSetup(Generic[A]):
    """An agent and what it works with; `record` is None in a dry run."""

    bounds: Bounds
    adapter: A
    mate: SchedMate
    memory: Memory
    record: Record | None
    agent: Agent
    recovery: ClusterRecovery | None
    """What carries out plans of recovery, where the bounds name a recovery.yaml."""
    lease: Callable[[], AbstractContextManager[object]]
    """As of `Reached`, like the next two."""
    pause: Callable[[float], object]
    goes_on: Callable[[], bool]
    gauges: Mapping[str, Gauge]


def state_dir(state: Path | None, bounds: Bounds) -> Path:
    """The directory of an agent's files: `state`, else that of the bounds, else the default in the
    user's data directory."""
    from schedmate.settings import data_dir

    return state or bounds.state or data_dir() / "agent"


@contextmanager
def opened_agent(
    kind: ClusterKind[A],
    bounds: Path | None,
    state: Path | None,
    history: str | None,
    *,
    dry_run: bool = False,
    shadow: bool = False,
    watches: bool = True,
    mate: SchedMate | None = None,
    **where: Any,
) -> Iterator[AgentSetup[A]]:
    """An agent with everything that it needs, closed afterwards; a `mate` of one's own is not.

    `watches` and `where` are as of `ClusterKind.reached`. Raises `SchedmateError` when the cluster
    does not answer.
    """
    from schedmate.cluster.bounds import load_bounds
    from schedmate.cluster.loop import assembled
    from schedmate.cluster.recovery.recover import load_recovery
    from schedmate.mate import SchedMate
    from schedmate.settings import load_settings

    allowed = kind.limited(load_bounds(bounds), **where)
    folder = state_dir(state, allowed)
    if shadow:
        folder /= SHADOW_FOLDER
    with ExitStack() as stack:
        reached = stack.enter_context(kind.reached(allowed, folder, watches=watches, **where))
        adapter = reached.adapter
        # a language model takes longer than a pass may
        settings = load_settings(history=history or allowed.history, mode="static")
        if mate is None:
            mate = stack.enter_context(SchedMate(settings))
        parts = assembled(
            *(adapter, mate, allowed, folder, load_recovery(allowed, adapter.cluster)),
            *(reached.runner,),
            dry_run=dry_run,
            shadow=shadow,
        )
        memory, record, agent, healer = stack.enter_context(parts)
        yield AgentSetup(
            *(allowed, adapter, mate, memory, record, agent, healer),
            *(reached.lease, reached.pause, reached.goes_on, reached.gauges),
        )


def run_agent(
    setup: AgentSetup[A],
    *,
    once: bool,
    undo: bool,
    as_json: bool,
    metrics: AgentMetrics | None = None,
    reload: Reload | None = None,
) -> None:
    """Make passes, alone on the cluster, until Ctrl-C; one in a dry run. `metrics` counts each.

    Returns without a word when `reload` is due.
    """
    say, warn = (log.info, log.warning) if _logs_json() else (_say, _say)
    from schedmate.cluster.claims import ClaimedError
    from schedmate.cluster.loop import only_agent, watch

    def tell(result: Pass) -> None:
        if metrics is not None:
            metrics.seen(result)
        _tell_pass(result, once=once, as_json=as_json)

    if setup.record is None:
        tell(setup.agent.once())
        return
    waits = False
    while True:
        try:
            with only_agent(setup.record, setup.adapter.cluster), setup.lease():
                if undo:
                    say(f"{counted(setup.agent.take_back_order(), 'job')} put back.")
                    return
                if once:
                    tell(setup.agent.once())
                    return
                say(f"watching cluster {setup.adapter.cluster}; Ctrl-C ends it.")
                waits = False
                if metrics is not None:
                    metrics.stands_by(False)
                goes_on = setup.goes_on if reload is None else reload.until(setup.goes_on)
                watch(setup.agent, tell, warn, wait=setup.pause, goes_on=goes_on)
                if reload is not None and reload.due():
                    return
                say("another agent may work on this cluster now; waiting for its end.")
                waits = True
        except ClaimedError:
            if once or undo:
                raise
            if not waits:
                say("another agent works on this cluster; waiting for it to end.")
                waits = True
        if metrics is not None:
            metrics.stands_by(True)
        time.sleep(min(5.0, setup.bounds.poll))


def keep_running(run: Callable[[Reload], None], bounds: Path | None, form: LogFormat) -> None:
    """Run an agent, again each time when its bounds are to be read anew."""
    from schedmate.cluster.reloading import Reload

    with ExitStack() as stack:
        if form == "json":
            stack.enter_context(logged(form))
        reload = Reload(bounds, tell=log.warning if _logs_json() else _say)
        with suppress(ValueError):  # only the main thread hears signals
            before = signal.signal(signal.SIGHUP, reload.ask)
            stack.callback(signal.signal, signal.SIGHUP, before)
        run(reload)
        while reload.taken():
            run(reload)


def _tell_pass(result: Pass, *, once: bool, as_json: bool) -> None:
    if as_json:
        _print_pass_json(result, indent=2 if once else None)
    elif _logs_json():
        _log_pass(result)
    elif once or result.eventful:
        _print_pass(result)


def _logs_json() -> bool:
    """Whether the agents' log is `logged` as JSON in this process."""
    return log.isEnabledFor(logging.INFO)


def _log_pass(result: Pass) -> None:
    """A pass as one line of the log, with its numbers; what it names is in its problems."""
    fields: dict[str, Any] = result.model_dump(
        include={"cluster", "took_s", "pending", "running", "stalled", "unread", "undiagnosed"}
    )
    fields |= {
        name: len(getattr(result, name))
        for name in ("estimated", "actions", "failed", "waiting", "problems")
    }
    extra = {"fields": fields | {"unlearned": result.unlearned, "learned": result.learned}}
    log.info("pass", extra=extra)
    for problem in result.problems:
        log.warning("%s", problem)


def _print_pass_json(result: Pass, indent: int | None) -> None:
    from schedmate.cluster.report import REPORT_SCHEMA

    document = {"schema": REPORT_SCHEMA, **result.model_dump(mode="json")}
    typer.echo(dumps(document, indent=indent))
    sys.stdout.flush()


def _print_pass(result: Pass) -> None:
    from schedmate.base.terminal import Screen

    screen = Screen(sys.stdout)
    for line, tone in pass_lines(result):
        screen.line(line, tone)
    sys.stdout.flush()


# Whether schedmate may do on a cluster what its bounds ask for.


def examine(
    kind: ClusterKind[Any],
    bounds: Path | None,
    state: Path | None = None,
    history: str | None = None,
    *,
    as_json: bool,
    **where: Any,
) -> None:
    """Print every check of a cluster; ends the command with 1 when one failed.

    Without any of the three, it checks what the unit of the agent on this machine is started with.
    """
    from schedmate.commands.doctor import print_checks

    service = installed_service(kind.group)
    if service is not None and bounds is None and state is None and history is None:
        bounds, state, history = service.bounds, service.state, service.history
    checks = list(_examine_agent(kind, bounds, state, history, **where))
    if service is not None:
        checks.append(_check_service(service, bounds, history))
    print_checks(checks, f"schedmate.{kind.name}-doctor/v1", as_json=as_json)


def _examine_agent(
    kind: ClusterKind[Any],
    bounds: Path | None,
    state: Path | None,
    history: str | None,
    **where: Any,
) -> Iterator[Check]:
    """The checks of the cluster, and whether an agent with the same options would start."""
    from schedmate.base.errors import SchedmateError
    from schedmate.cluster.bounds import load_bounds

    reached = True
    for check in examine_cluster(kind, kind.limited(load_bounds(bounds), **where), **where):
        reached = reached and not (check.name == kind.contact and check.status == "failed")
        yield check
    if not reached:
        return
    try:
        with opened_agent(
            kind, bounds, state, history, dry_run=True, watches=False, **where
        ) as setup:
            yield Check("agent", "ok", f"it would start on cluster {setup.adapter.cluster}")
            yield _check_history(kind, setup, bounds)
    except (SchedmateError, OSError) as error:
        fix = "the agent ends with this message; correct what it names"
        yield Check("agent", "failed", str(error), fix)


def _check_history(kind: ClusterKind[A], setup: AgentSetup[A], bounds: Path | None) -> Check:
    from schedmate.base.errors import SchedmateError
    from schedmate.base.files import is_remote, without_query
    from schedmate.retrieval.shared import open_history

    place = setup.mate.settings.history
    shown = without_query(str(place)) if is_remote(place) else place
    named = f" --bounds {bounds}" if bounds is not None else ""
    fill = f"schedmate {kind.group} import --since 90d{named}"
    if kind.name != "slurm":
        fill = "put past jobs into it with `schedmate history import`, or let the agent learn"
    try:
        if not is_remote(place) and not Path(place).exists():
            fact = f"there is no history at {shown} yet: no job gets an estimate"
            return Check("history", "warning", fact, fill)
        with open_history(place, create=False, read_only=True) as history:
            count = len(history)
    except (SchedmateError, OSError) as error:
        return Check("history", "failed", str(error), "let the user of the agent read and write it")
    if not count:
        return Check("history", "warning", f"{shown} is empty: no job gets an estimate", fill)
    return Check("history", "ok", f"{counted(count, 'job')} in {shown}")


def examine_cluster(kind: ClusterKind[Any], bounds: Bounds, **where: Any) -> Iterator[Check]:
    """Every check, in the order in which a fault would be looked for."""
    from schedmate.base.errors import MissingExtraError, SchedmateError, installing
    from schedmate.cluster.bounds import kill_switch_is_on

    try:
        yield from kind.checks(bounds, **where)
    except MissingExtraError as error:
        packages = ", ".join(error.packages)
        yield Check(kind.contact, "failed", f"{packages} is not installed", installing(error.extra))
        return
    except SchedmateError as error:
        yield Check(kind.contact, "failed", str(error), kind.contact_hint)
        return
    stop = bounds.kill_switch
    if kill_switch_is_on(stop):
        yield Check("kill switch", "warning", f"{stop} is there: nothing is changed", f"rm {stop}")
    else:
        yield Check("kill switch", "ok", f"`touch {stop}` stops every change at once")


# The unit that starts the agent on this machine, as examples/slurm has it.


UNIT = "schedmate-agent.service"
UNIT_FOLDERS = (
    Path("/etc/systemd/system"),
    Path("/run/systemd/system"),
    Path("/usr/local/lib/systemd/system"),
    Path("/usr/lib/systemd/system"),
)
"""Where systemd looks for units, the first one that has it counts."""


class Service(NamedTuple):
    """What a unit starts the agent with; None what it does not say."""

    place: Path
    user: str | None
    bounds: Path | None
    state: Path | None
    history: str | None


def installed_service(group: str) -> Service | None:
    """The unit of the agent `schedmate GROUP agent`, with its drop-ins; None if there is none."""
    place = next((file for one in UNIT_FOLDERS if (file := one / UNIT).is_file()), None)
    if place is None:
        return None
    command: list[str] = []
    settings: dict[str, str] = {}
    for file in [place, *sorted(place.with_name(f"{UNIT}.d").glob("*.conf"))]:
        with suppress(OSError, UnicodeDecodeError, InputError):
            for line in read_text(file).replace("\\\n", " ").splitlines():
                name, _, value = (part.strip() for part in line.partition("="))
                if name == "ExecStart":
                    with suppress(ValueError):
                        command = shlex.split(value)
                elif name == "User":
                    settings["user"] = value
                elif name == "Environment":
                    with suppress(ValueError):
                        settings |= dict(
                            word.split("=", 1) for word in shlex.split(value) if "=" in word
                        )
    if group not in command or "agent" not in command:
        return None
    options = _named_options(command)
    history = options.get("--history") or settings.get("SCHEDMATE_HISTORY")
    return Service(
        place,
        settings.get("user"),
        Path(options["--bounds"]) if "--bounds" in options else None,
        Path(options["--state"]) if "--state" in options else None,
        history,
    )


def _named_options(words: Sequence[str]) -> dict[str, str]:
    """`--name value` and `--name=value` of a command line."""
    options = {}
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            options[name] = value if equals else (words[at + 1] if at + 1 < len(words) else "")
    return options


def _check_service(service: Service, bounds: Path | None, history: str | None) -> Check:
    """Whether what was checked is what the unit starts, and as whom."""
    import getpass

    fact = f"{service.place} starts the agent"
    if service.user is not None:
        fact += f" as {service.user}"
    fact += f" with {service.bounds or 'no bounds'}"
    if (bounds, history) != (service.bounds, service.history):
        fix = "leave out --bounds, --state and --history to check what it starts"
        return Check("service", "warning", f"{fact}: other options than checked here", fix)
    if service.user is not None and getpass.getuser() != service.user:
        fix = f"run this as its user: sudo -u {service.user} schedmate slurm doctor"
        return Check("service", "warning", f"{fact}; checked as {getpass.getuser()}", fix)
    return Check("service", "ok", fact)


# The plan for a failed job, shown without carrying it out, for every kind of cluster.


def plan_for(
    kind: ClusterKind[Any],
    job: str,
    bounds: Path | None,
    state: Path | None,
    history: str | None,
    *,
    as_json: bool,
    **where: Any,
) -> None:
    """Print the verdict and the plan for the last run of a job that failed; nothing is done."""
    from schedmate.base.errors import InputError

    with opened_agent(kind, bounds, state, history, dry_run=True, **where) as setup:
        now = time.time()
        runs = kind.runs_of(setup.adapter, job, now)
        if not runs:
            raise InputError(kind.no_run.format(job=job))
        show_plan(setup, runs[-1], now, f"schedmate.{kind.name}-plan/v1", as_json=as_json)


def show_plan(
    setup: AgentSetup[Any], run: EndedRun, now: float, schema: str, *, as_json: bool
) -> None:
    """Read the logs of a run that failed and print the verdict and the plan; nothing is done."""
    from schedmate.base.terminal import Screen
    from schedmate.cluster.report import Pass

    failed, proposed = setup.agent.look_into(run, now)
    if as_json:
        document = {
            "schema": schema,
            "cluster": setup.adapter.cluster,
            "failure": failed.model_dump(mode="json"),
            "plan": None if proposed is None else proposed.model_dump(mode="json"),
        }
        typer.echo(dumps(document, indent=2))
        return
    screen = Screen(sys.stdout)
    result = Pass(cluster=setup.adapter.cluster, time=now, failed=[failed])
    for line, tone in list(pass_lines(result))[1:]:
        screen.line(line, tone)
    if failed.diagnosis is not None:
        for evidence in failed.diagnosis.evidence[:5]:
            screen.line(evidence.text, label=f"  {evidence.file}:{evidence.line}: ")
    if proposed is not None:
        screen.line(f"plan {proposed.id}:", "heading")
        for step, action in enumerate(proposed.actions, 1):
            screen.line(
                f"{action.kind} {action.target}, if {action.precondition}", label=f"  {step}. "
            )
    elif setup.bounds.recovery is None:
        screen.line("No plan: the bounds name no recovery.yaml.")


# What an agent did in some weeks, or would have done.


def add_report(
    app: typer.Typer, kind: ClusterKind[Any], default: Callable[[], Path] | None = None
) -> None:
    """Add `report` to the commands of a kind of cluster, whose files are in `default` unless the
    command or the bounds name another directory."""

    def report(
        since: Annotated[
            str, typer.Option(metavar="TIME", help="How far back to go, for example 30d.")
        ] = "30d",
        shadow: Annotated[
            bool, typer.Option("--shadow", help="Of the agent that ran with --shadow.")
        ] = False,
        bounds: BoundsOption = None,
        state: StateOption = None,
        as_json: JsonOption = False,
    ) -> None:
        from schedmate.cluster.bounds import load_bounds

        allowed = load_bounds(bounds)
        if state is None and allowed.state is None and default is not None:
            state = default()
        folder = state_dir(state, allowed)
        report_agent(folder, since, shadow=shadow, as_json=as_json)

    app.command(help=_REPORT_HELP.format(group=kind.group))(report)


def report_agent(folder: Path, since: str, *, shadow: bool, as_json: bool) -> None:
    """Print the report of the agent that keeps its files in a folder."""
    from schedmate.base.inputs import parse_duration
    from schedmate.base.terminal import Screen
    from schedmate.cluster.summary import SUMMARY_SCHEMA, summary_of_folder

    until = time.time()
    summary = summary_of_folder(
        folder / SHADOW_FOLDER if shadow else folder,
        memory=MEMORY_FILE,
        record=RECORD_FILE,
        since=until - parse_duration(since),
        until=until,
        shadow=shadow,
    )
    if as_json:
        document = {"schema": SUMMARY_SCHEMA, **summary.model_dump(mode="json")}
        typer.echo(dumps(document, indent=2))
        return
    screen = Screen(sys.stdout)
    for line, tone in _summary_lines(summary, since):
        screen.line(line, tone)


def _summary_lines(summary: AgentSummary, since: str) -> Iterator[Line]:
    told = summary.estimates
    yield f"Estimates of {counted(told.ended, 'job')} that ended within {since}", "heading"
    yield f"{told.estimated:,} had an estimate, {told.completed:,} of them completed.", None
    if told.within_2x is not None:
        line = f"within a factor of 2: {told.within_2x:.0%} of the estimates"
        if told.limit_within_2x is not None:
            line += f", {told.limit_within_2x:.0%} of {counted(told.limited, 'time limit')}"
        yield line, None
    if told.within_interval is not None:
        yield f"within the 80 % interval: {told.within_interval:.0%} of the run times", None
    yield "What it would have done" if summary.shadow else "What it did", "heading"
    if summary.raised or summary.lowered:
        yield (
            f"{counted(summary.raised, 'job')} placed before others, {summary.lowered:,} after",
            None,
        )
    for done in summary.done:
        times, about = counted(done.actions, "time"), counted(done.targets, "target")
        yield f"{done.kind.replace('_', ' ')}: {times}, {about} ({done.state})", None
    for planned in summary.planned:
        line = f"{counted(planned.plans, 'plan')} after {planned.verdict} ({planned.state})"
        if planned.isolates:
            line += f": isolates {', '.join(planned.isolates[:8])}"
        yield f"{line}; {counted(planned.restarts, 'restart')}", None
    if not summary.done and not summary.planned:
        yield "nothing.", None


# The lines in which a pass of an agent is printed.


Line = tuple[str, "Tone | None"]


def pass_lines(result: Pass) -> Iterator[Line]:
    """What a pass found and did, most important first."""
    head = f"{result.cluster}: {result.pending:,} pending, {result.running:,} running"
    if result.unread:
        head += f", {result.unread:,} still to be read"
    yield f"{head} ({result.took_s:.1f} s)", "heading"
    if result.stopped:
        yield "The kill switch is set: nothing is changed.", "doubtful"
    for problem in result.problems:
        yield f"! {problem}", "doubtful"
    for failure in result.failed:
        yield from _failure_lines(failure.model_dump())
    for estimated in result.estimated:
        estimate = estimated.estimate
        if estimate.abstained or estimate.duration_s is None:
            yield f"job {estimated.job} ({estimated.user}): no estimate: {estimate.reason}", None
            continue
        text = (
            f"job {estimated.job} ({estimated.user}): about {format_duration(estimate.duration_s)}"
        )
        if estimate.duration_p10_s is not None and estimate.duration_p90_s is not None:
            low, high = estimate.duration_p10_s, estimate.duration_p90_s
            text += f", {format_duration(low)} to {format_duration(high)}"
        yield f"{text}, from {counted(len(estimate.neighbours), 'past run')}", None
    for done in result.actions:
        yield from _action_lines(done)
    if result.learned:
        yield f"learned from {counted(result.learned, 'ended run')}", None
    for followed in result.followed:
        progress = followed.progress
        eta = "" if progress.eta_s is None else f", {format_duration(progress.eta_s)} left"
        step = "" if progress.step_time_s is None else f"{progress.step_time_s:.3g} s a step"
        for condition in followed.conditions:
            yield f"job {followed.job} {condition.kind}: {condition.summary}", "bad"
        if progress.stalled:
            continue
        yield f"job {followed.job}: {step}{eta}", None
    if result.waiting:
        yield (
            f"{counted(len(result.waiting), 'plan')} to approve: {', '.join(result.waiting)}",
            None,
        )


def _failure_lines(failed: dict[str, object]) -> Iterator[Line]:
    text = f"job {failed['job']} ended {failed['state']}"
    diagnosis = failed["diagnosis"]
    if isinstance(diagnosis, dict):
        name = diagnosis["error_name"] or diagnosis["error_type"]
        text += f": {name}"
        if diagnosis["line"]:
            text += f" ({diagnosis['file']}:{diagnosis['line']})"
        if diagnosis["plan"]:
            text += f". {diagnosis['plan']['summary']}"
    else:
        text += ": its log cannot be read" + (f" ({failed['log']})" if failed["log"] else "")
    yield text, "bad"
    if failed["plan"]:
        yield f"  plan {failed['plan']} is proposed", None


def _action_lines(done: Done) -> Iterator[Line]:
    from schedmate.cluster.actions import Annotate, Order

    action, state = done.action, done.state
    verb = {"would": "would be", "applied": "is"}.get(state, f"({state})")
    if isinstance(action, Order):
        levels = Counter(action.values.values())
        text = ", ".join(
            f"{counted(count, 'job')} at {value:+d}"
            for value, count in sorted(levels.items())[::-1]
        )
        yield f"the order {verb} set: {text}", None
    elif isinstance(action, Annotate):
        yield f"an estimate {verb} written beside {action.target}", None
    else:
        yield f"{action.kind} of {action.target}: {state}", None
    if done.detail and state not in ("applied", "would"):
        yield f"  {done.detail}", "doubtful"
