"""`schedmate watch`: which running jobs hang, slow down, diverge or will not finish."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from schedmate.base.data import dumps
from schedmate.base.errors import ALARM, InputError, LimitError, UsageError
from schedmate.base.files import children
from schedmate.base.inputs import format_duration, parse_duration
from schedmate.base.terminal import Screen, say
from schedmate.commands.options import FollowLinks, JobPerFileOption, PlainOption, RecursiveOption

if TYPE_CHECKING:
    from schedmate.jobs.health import Health
    from schedmate.logparse.triage import Target
    from schedmate.logparse.watch.actions import Act
    from schedmate.logparse.watch.alarms import AlarmEvent, Alarms
    from schedmate.logparse.watch.health import WatchLimits

SCHEMA = "schedmate.watch/v1"
STATE = "watch.sqlite"


class Look(NamedTuple):
    """One job as it was found; `health` is None where its log could not be read, `problem` why."""

    job: str
    log: str
    health: Health | None
    problem: str | None = None


def watch(
    source: Annotated[
        str,
        typer.Argument(
            metavar="LOG|DIR|GLOB|CSV",
            help="The log of a running job, a directory (each file is a job, and so are files that "
            "look like ranks of one run), a quoted glob, or a CSV list of jobs with the columns "
            "log, job_id, gpus, ends (when the scheduler ends the job: ISO 8601, or seconds since "
            "the epoch); log is the one that must be there.",
        ),
    ],
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Keep watching; print each alarm when it begins and when it ends.",
        ),
    ] = False,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="Time between two looks of --follow.")
    ] = "30s",
    least: Annotated[
        str,
        typer.Option(metavar="TIME", help="A shorter time without progress is never a stall."),
    ] = "5m",
    patience: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Factor on the time without progress that a job's own log lets expect.",
        ),
    ] = 1.0,
    slower: Annotated[
        float,
        typer.Option(min=1.05, help="Report a slowdown when steps take this many times as long."),
    ] = 1.2,
    ends: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When the scheduler ends the job, from now, such as 90m: will it finish? For one "
            "LOG; a list has a column.",
            show_default=False,
        ),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(min=1, help="GPUs of a job, to count GPU hours that are lost."),
    ] = None,
    idle: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="In a directory or a glob: leave out logs that were not written to for this "
            "long; their jobs have ended.",
        ),
    ] = "1d",
    webhook: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Post each alarm as JSON (schedmate.alarm/v1) when it begins and when it is over.",
            show_default=False,
        ),
    ] = None,
    webhook_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with a key: requests are signed by it (HMAC-SHA256).",
            show_default=False,
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Run this then, with ALARM_JOB, ALARM_KIND, ALARM_STATE, ALARM_SUMMARY and "
            "ALARM_EVENT (JSON) in its environment; no shell reads it.",
            show_default=False,
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File that remembers alarms, so that each is told once, also after a restart. "
            f"Default with --follow, --webhook or --command: {STATE} beside the job history.",
            show_default=False,
        ),
    ] = None,
    recursive: RecursiveOption = False,
    job_per_file: JobPerFileOption = False,
    follow_links: FollowLinks = False,
    as_json: Annotated[
        bool, typer.Option("--json", help=f"One JSON document ({SCHEMA}); a line each to follow.")
    ] = False,
    exit_code: Annotated[
        bool,
        typer.Option("--exit-code", help="Exit with 8 if a job needs attention."),
    ] = False,
    plain: PlainOption = False,
) -> None:
    """Find running jobs that hang, slow down or diverge.

    Compares each job with its own past: the time since its last progress with how often its log
    shows progress (pauses for evaluation and checkpoints included), and its step times now with
    earlier ones. Prints a line for each job, the most urgent first. With --follow or a state file,
    each alarm is reported once when it begins and once when it ends.
    """
    from schedmate.logparse.watch.alarms import Alarms
    from schedmate.logparse.watch.health import WatchLimits
    from schedmate.settings import data_dir

    least_s, idle_s, every_s = parse_duration(least), parse_duration(idle), parse_duration(every)
    if every_s < 0.1:
        raise UsageError("--every takes a time of at least 0.1 s.")
    if follow and exit_code:
        raise UsageError("--exit-code is for one look; --follow goes on until it is stopped.")
    actions = _actions(webhook, webhook_key, command)
    if state is None and (follow or actions):
        state = data_dir() / STATE
    limits = WatchLimits(least_s=least_s, patience=patience, slower=slower, gpus=gpus)
    if ends is not None:
        limits = limits._replace(ends_at=time.time() + parse_duration(ends))
    screen = Screen(sys.stdout, plain=plain)
    with ExitStack() as stack:
        alarms = stack.enter_context(Alarms(state))
        seen: set[tuple[str, str]] = set()
        first = True
        while True:
            began = time.monotonic()
            targets, notes = _targets(
                source,
                recursive=recursive,
                job_per_file=job_per_file,
                follow_links=follow_links,
                idle_s=idle_s,
                missing_ok=not first,
            )
            for note in notes if first else ():
                say(f"note: {note}")
            looks = [_look(target, alarms, limits) for target in targets]
            events = _take(looks, alarms, list(actions), seen)
            seen = {(look.job, look.log) for look in looks}
            for failure in alarms.deliver(actions):
                say(f"warning: {failure}")
            if follow and not first:
                _print_events(events, screen, as_json=as_json)
            else:
                _print(source, looks, events, screen, as_json=as_json, line=follow)
            sys.stdout.flush()
            if not follow:
                break
            first = False
            time.sleep(max(0.0, every_s - (time.monotonic() - began)))
    if exit_code and any(look.health is not None and look.health.conditions for look in looks):
        raise typer.Exit(ALARM)


def _actions(url: str | None, key: Path | None, command: str | None) -> dict[str, Act]:
    """What is done about alarms, by a name that stays the same from run to run."""
    from schedmate.logparse.watch import actions

    found: dict[str, Act] = {}
    if key is not None and url is None:
        raise UsageError("--webhook-key signs the requests of --webhook; give both.")
    if url is not None:
        found["webhook"] = actions.webhook(url, actions.read_key(key) if key is not None else None)
    if command is not None:
        found["command"] = actions.command(command)
    return found


def _targets(
    source: str,
    *,
    recursive: bool,
    job_per_file: bool,
    follow_links: bool,
    idle_s: float,
    missing_ok: bool,
) -> tuple[list[Target], list[str]]:
    """The jobs to look at, and notes on what is left out.

    With `missing_ok` what has gone meanwhile has no jobs.
    """
    from schedmate.logparse.experiments import is_curve
    from schedmate.logparse.triage import Target, find_targets

    path = Path(source)
    if is_curve(path) or (path.is_file() and path.suffix.lower() != ".csv"):
        return [Target(0, path.stem, path, follow_links=follow_links)], []
    try:
        batch = find_targets(
            source,
            job="file" if job_per_file else "run",
            recursive=recursive,
            follow_links=follow_links,
        )
    except InputError:
        if missing_ok:
            return [], []
        raise
    if path.is_file():
        return batch.targets, batch.warnings
    now = time.time()
    running = [target for target in batch.targets if now - (_written(target) or now) <= idle_s]
    left_out = len(batch.targets) - len(running)
    notes = list(batch.warnings)
    if left_out:
        notes.append(f"{left_out:,} logs were not written for longer than --idle and are left out")
    return running, notes


def _written(target: Target) -> float | None:
    """When a job's log was written last [s since epoch]; None if that cannot be told."""
    times = []
    paths = target.files or (
        (target.log, *children(target.log)) if target.log.is_dir() else [target.log]
    )
    for path in paths:
        try:
            times.append(path.stat().st_mtime)
        except OSError:
            continue
    return max(times, default=None)


def _look(target: Target, alarms: Alarms, limits: WatchLimits) -> Look:
    from schedmate.base.confine.limits import bounded
    from schedmate.logparse.experiments import curve_log
    from schedmate.logparse.watch.health import watch_log
    from schedmate.settings import load_settings

    if target.ends_at is not None:
        limits = limits._replace(ends_at=target.ends_at)
    if target.gpus is not None:
        limits = limits._replace(gpus=max(1, round(target.gpus)))
    name = target.name if target.objects else str(Path(target.name).absolute())
    try:
        with (
            bounded(f"the log {target.name}", load_settings().memory_mb),
            (None if target.objects else curve_log(target.log)) or target.open() as log,
        ):
            now = time.time()
            before = alarms.before(target.job_id, name)
            written = _written(target) or now
            health = watch_log(log, now, written, limits=limits, before=before)
    except (InputError, LimitError, OSError) as error:
        return Look(target.job_id, name, None, str(error))
    return Look(target.job_id, name, health)


def _take(
    looks: list[Look], alarms: Alarms, actions: list[str], seen: set[tuple[str, str]]
) -> list[AlarmEvent]:
    """What begins and what is over; jobs that were seen before and are gone have ended."""
    events = []
    for look in looks:
        if look.health is not None:
            events += alarms.take(look.job, look.log, look.health, actions)
    for job, name in sorted(seen - {(look.job, look.log) for look in looks}):
        events += alarms.end(job, name, time.time(), actions)
    return events


# Output.


def _urgency(look: Look) -> tuple[int, str]:
    from schedmate.jobs.health import URGENCY

    if look.health is None:
        return len(URGENCY), look.job
    ranks = [URGENCY[condition.kind] for condition in look.health.conditions]
    return min(ranks, default=len(URGENCY) + 1), look.job


def _print(
    source: str,
    looks: list[Look],
    events: list[AlarmEvent],
    screen: Screen,
    *,
    as_json: bool,
    line: bool,
) -> None:
    """All jobs, the most urgent first, a line each."""
    ranked = sorted(looks, key=_urgency)
    if as_json:
        document = _document(source, ranked, events)
        sys.stdout.write(dumps(document, indent=None if line else 2) + "\n")
        return
    for look in ranked:
        if look.health is None:
            screen.line(f"{look.job}: cannot be read: {look.problem}", "doubtful")
        elif look.health.conditions:
            first, *more = look.health.conditions
            also = f" (also {', '.join(one.kind for one in more)})" if more else ""
            screen.line(f"{look.job}: {first.kind}: {first.summary}{also}", "bad")
        else:
            screen.line(f"{look.job}: {_state(look.health)}", "good")


def _state(health: Health) -> str:
    """A healthy job in words."""
    progress = health.progress
    if progress.ended is not None:
        return progress.ended
    if health.progress_at is None:
        return "its log shows no progress, so nothing can be said"
    parts = [f"last progress {format_duration(health.read_at - health.progress_at)} ago"]
    if progress.iteration is not None:
        of = f" of {progress.total_iterations:,}" if progress.total_iterations else ""
        parts.append(f"iteration {progress.iteration:,}{of}")
    if progress.eta_s is not None:
        parts.append(f"{format_duration(progress.eta_s)} left")
    return f"goes on: {', '.join(parts)}"


def _document(source: str, looks: list[Look], events: list[AlarmEvent]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "source": source,
        "jobs": [
            {
                "job": look.job,
                "log": look.log,
                "health": None if look.health is None else look.health.model_dump(mode="json"),
                "problem": look.problem,
            }
            for look in looks
        ],
        "events": [event.model_dump(mode="json") for event in events],
    }


def _print_events(events: list[AlarmEvent], screen: Screen, *, as_json: bool) -> None:
    from schedmate.logparse.watch.actions import event_body

    for event in events:
        if as_json:
            sys.stdout.write(event_body(event).decode("utf-8") + "\n")
        else:
            clock = time.strftime("%H:%M:%S", time.localtime(event.at))
            screen.line(f"{clock} {event.summary}", "bad" if event.state == "began" else "good")
