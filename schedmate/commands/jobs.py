"""`schedmate jobs`: one's running and waiting jobs, with progress, time left and health."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import BaseModel, ConfigDict, Field

from schedmate.base.data import dumps
from schedmate.base.errors import UsageError
from schedmate.base.inputs import format_duration
from schedmate.base.terminal import Screen, Table, counted, progress, say
from schedmate.commands.options import HistoryOption, JsonOption

if TYPE_CHECKING:
    from schedmate.cluster import ClusterKind
    from schedmate.cluster.adapter import ClusterAdapter, Description, LiveJob
    from schedmate.cluster.expected import Runs
    from schedmate.mate import SchedMate

SCHEMA = "schedmate.jobs/v1"
EACH_S = 10.0
"""Time spent on the code or log of one job at most [s]."""


class JobRow(BaseModel):
    """One job of the queue, as `schedmate jobs` shows it. What is unknown is null."""

    model_config = ConfigDict(extra="forbid")

    job: str
    name: str | None
    user: str
    state: Literal["PENDING", "RUNNING"]
    queues: list[str]
    nodes: list[str]
    waited_s: float | None = Field(description="From submission to start, or to now [s]")
    ran_s: float | None = Field(description="Since its start [s]")
    limit_s: float | None = Field(description="Time limit [s]")
    estimate_s: float | None = Field(description="Estimated run time, if it waits [s]")
    done: float | None = Field(
        description="Share of its iterations or epochs that are done [0 to 1]"
    )
    left_s: float | None = Field(description="Median of the time that it still takes [s]")
    left_p10_s: float | None = Field(description="10th percentile [s]")
    left_p90_s: float | None = Field(description="90th percentile [s]")
    starts_in_s: float | None = Field(description="Median of the time until it starts [s]")
    starts_in_p10_s: float | None = Field(description="10th percentile [s]")
    starts_in_p90_s: float | None = Field(description="90th percentile [s]")
    scheduler_in_s: float | None = Field(description="When the scheduler itself expects that [s]")
    no_start: str | None = Field(description="Why it is unknown when a waiting job starts")
    over_limit: bool | None = Field(description="Whether the median ends after the time limit")
    health: list[str] = Field(description="What is wrong with it by its log, the worst first")
    cpu: float | None = Field(description="CPU time over its CPUs' time so far [0 to 1]")
    gpu: float | None = Field(description="Mean utilisation of its GPUs so far [0 to 1]")
    gpu_memory_mb: float | None = Field(description="Most memory used of one of its GPUs [MiB]")
    memory: float | None = Field(description="Most memory used over memory asked for")
    log: str | None
    note: str | None = Field(description="Why it waits, or why its log says nothing")


def jobs(
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="KIND", help="slurm, kubernetes or ray. Default: that of this machine."
        ),
    ] = None,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another user's jobs. Default: your own.")
    ] = None,
    everybody: Annotated[bool, typer.Option("--all", "-a", help="Everybody's jobs.")] = False,
    bounds: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="bounds.yaml, which says how the cluster is reached."),
    ] = None,
    history: HistoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """List your jobs with progress and time left.

    Finds the log of each running job by the scheduler and reads how far it is, how long it still
    takes beside its time limit, and what is wrong with it. Waiting jobs have an estimate of their
    run time, the reason why they wait, and about when they start: by the queue as it is now, the
    estimates of all jobs in it and how long others waited, beside what the scheduler expects.
    Changes nothing.

    Example: schedmate jobs
    """
    from schedmate.cluster import cluster_kind, kind_here
    from schedmate.cluster.bounds import load_bounds
    from schedmate.mate import SchedMate
    from schedmate.settings import load_settings

    if everybody and user is not None:
        raise UsageError("--all and --user exclude each other; give one of them.")
    if cluster is not None:
        kind = cluster_kind(cluster)
    else:
        here = kind_here()
        if here is None:
            raise UsageError(
                "this machine belongs to no cluster that is known; name its kind with --cluster."
            )
        kind = here
    allowed = load_bounds(bounds)
    whose = None if everybody else user or kind.own_user()
    settings = load_settings(history=history or allowed.history, mode="static")
    with kind.visited(allowed, whose) as adapter, SchedMate(settings) as mate:
        rows = live_rows(kind, adapter, mate, whose, time.time())
        for problem in adapter.skipped():
            say(f"warning: {problem}")
        cluster = adapter.cluster
    if as_json:
        document = {"schema": SCHEMA, "cluster": cluster, "user": whose}
        typer.echo(dumps({**document, "jobs": [row.model_dump() for row in rows]}, indent=1))
        return
    _show(rows, whose, Screen(sys.stdout))


def live_rows(
    kind: ClusterKind[Any], adapter: ClusterAdapter, mate: SchedMate, user: str | None, now: float
) -> list[JobRow]:
    """The jobs of a user (None: of all) at a moment [s since epoch], running ones first."""
    from schedmate.cluster.adapter import Usage
    from schedmate.cluster.usage import Stretch, completed, shares_of

    queue = adapter.jobs()
    live = [job for job in queue if user is None or job.user == user]
    live.sort(key=lambda job: (job.state != "RUNNING", job.submitted or 0.0, job.id))
    described = adapter.describe([job.id for job in live]) if live else {}
    began = {job.id: job.started or now for job in live if job.state == "RUNNING"}
    running, server = list(began), mate.settings.prometheus
    used, problem = completed(
        kind.usage(adapter, running, running=True) if running else {},
        server,
        kind.name,
        adapter.measured_as(running) if running and server else {},
        {job: Stretch(start, now) for job, start in began.items()},
    )
    if problem:
        say(f"warning: {problem}")
    rows = []
    with progress("reading jobs", len(live)) as advance:
        for number, job in enumerate(live, 1):
            usage = used.get(job.id, Usage())
            row = _row(job, described.get(job.id), adapter, mate, now)
            rows.append(row.model_copy(update=shares_of(usage)))
            advance(number, f"{number:,} of {counted(len(live), 'job')}")
    if len(running) < len(live):
        of_ours = {row.job: row for row in rows}
        starts = _starts(kind, adapter, mate, queue, described, of_ours, now)
        rows = [row.model_copy(update=starts.get(row.job, {})) for row in rows]
    return rows


def _starts(
    kind: ClusterKind[Any],
    adapter: ClusterAdapter,
    mate: SchedMate,
    queue: list[LiveJob],
    described: dict[str, Description],
    rows: dict[str, JobRow],
    now: float,
) -> dict[str, dict[str, Any]]:
    """What the rows of waiting jobs say of their start."""
    from schedmate.cluster.expected import WAITS_S, Start, expected_starts, first_of

    waiting = [job for job in queue if job.state == "PENDING" and job.id in rows]
    if kind.why_no_start:
        starts = dict.fromkeys((job.id for job in waiting), Start(why=kind.why_no_start))
    else:
        first = {job.id for job in first_of(queue)} | rows.keys()
        modelled = [job for job in queue if job.id in first]
        runs = _runs(adapter, mate, modelled, described, rows, now)
        past = mate.started(now - WAITS_S)
        starts = expected_starts(modelled, runs, adapter.nodes(), now, past)
    return {
        job.id: {
            "starts_in_p10_s": starts[job.id].p10,
            "starts_in_s": starts[job.id].p50,
            "starts_in_p90_s": starts[job.id].p90,
            "scheduler_in_s": None if job.expected is None else max(0.0, job.expected - now),
            "no_start": starts[job.id].why or None,
        }
        for job in waiting
    }


def _runs(
    adapter: ClusterAdapter,
    mate: SchedMate,
    queue: list[LiveJob],
    described: dict[str, Description],
    rows: dict[str, JobRow],
    now: float,
) -> dict[str, Runs]:
    """How long each job of the queue runs; code is read of the jobs that have a row alone."""
    from schedmate.cluster.expected import Runs
    from schedmate.jobs import Remaining
    from schedmate.retrieval.remaining import remaining_time

    runs = {}
    others = [job.id for job in queue if job.id not in rows]
    if others:
        described = described | adapter.describe(others, scripts=False)
    with progress("running the queue forward", len(queue)) as advance:
        for number, job in enumerate(queue, 1):
            if job.id not in described:
                continue
            spec, row = described[job.id].spec, rows.get(job.id)
            ran = 0.0 if job.started is None else max(0.0, now - job.started)
            if row is not None and row.left_s is not None:
                left = Remaining(
                    elapsed_s=ran,
                    remaining_s=row.left_s,
                    remaining_p10_s=row.left_p10_s,
                    remaining_p90_s=row.left_p90_s,
                )
            else:
                blind = spec.model_copy(update={"repo": None, "command": None})
                left = remaining_time(ran, mate.on_submit(blind, deadline_s=EACH_S))
            runs[job.id] = Runs.of(spec, left)
            advance(number, f"{number:,} of {counted(len(queue), 'job')}")
    return runs


def _row(
    job: LiveJob,
    description: Description | None,
    adapter: ClusterAdapter,
    mate: SchedMate,
    now: float,
) -> JobRow:
    spec = None if description is None else description.spec
    limit = None if spec is None else spec.launch.time_limit_s
    until = now if job.started is None else job.started
    found: dict[str, Any] = {"note": job.reason or None}
    if spec is not None and description is not None and job.state == "RUNNING":
        found = _followed(job, description, adapter, mate, now)
    elif spec is not None:
        estimate = mate.on_submit(spec, deadline_s=EACH_S)
        found["estimate_s"] = None if estimate is None else estimate.duration_s
    left, ran = found.get("left_s"), None if job.started is None else max(0.0, now - job.started)
    over = None if left is None or ran is None or limit is None else ran + left > limit
    return JobRow.model_validate(
        {
            **dict.fromkeys(JobRow.model_fields),
            "job": job.id,
            "name": None if spec is None else spec.name,
            "user": job.user,
            "state": job.state,
            "queues": list(job.queues),
            "nodes": list(job.nodes),
            "waited_s": None if job.submitted is None else max(0.0, until - job.submitted),
            "ran_s": ran,
            "limit_s": limit,
            "over_limit": over,
            "health": [],
            **found,
        }
    )


def _followed(
    job: LiveJob, description: Description, adapter: ClusterAdapter, mate: SchedMate, now: float
) -> dict[str, Any]:
    """What the log of a running job says."""
    from schedmate.logparse.watch.health import WatchLimits
    from schedmate.retrieval.remaining import remaining_time

    spec = description.spec
    path = adapter.log_path(job, description.log, spec)
    if path is None:
        return {"note": "its log is unknown"}
    try:
        written = path.stat().st_mtime
    except OSError:
        return {"log": str(path), "note": "its log cannot be read here"}
    limit = spec.launch.time_limit_s
    ends_at = None if job.started is None or limit is None else job.started + limit
    health = mate.on_watch(
        spec,
        path,
        now=now,
        written=max(min(written, now), job.started or 0.0),
        limits=WatchLimits(ends_at=ends_at, gpus=spec.launch.gpus or None),
        deadline_s=EACH_S,
    )
    if health is None:
        return {"log": str(path), "note": "its log says nothing of its progress"}
    seen = health.progress
    estimate = mate.on_submit(spec, deadline_s=EACH_S)
    left = remaining_time(now - (job.started or now), estimate, seen)
    whole = None if seen.in_epoch else seen.total_iterations
    counts = ((seen.iteration, whole), (seen.epoch, seen.total_epochs))
    shares = (at / total for at, total in counts if total and at is not None)
    return {
        "log": str(path),
        "done": next(shares, None),
        "left_s": left.remaining_s,
        "left_p10_s": left.remaining_p10_s,
        "left_p90_s": left.remaining_p90_s,
        "health": [one.summary for one in health.conditions],
    }


def _show(rows: list[JobRow], user: str | None, screen: Screen) -> None:
    if not rows:
        screen.line(f"no running or waiting job{'' if user is None else f' of {user}'}.")
        return
    columns = ("job", "name", "state", "for", "done", "left", "80 % interval", "limit")
    measured = [
        name
        for name in ("cpu", "gpu", "memory")
        if any(getattr(row, name) is not None for row in rows)
    ]
    of_gpus = ["GPU memory"] if any(row.gpu_memory_mb is not None for row in rows) else []
    waiting = [row for row in rows if row.state == "PENDING"]
    begins = ["starts in", "by the scheduler"] if waiting else []
    table = Table(
        *(*columns, *begins, *measured, *of_gpus, "health"),
        right=(*columns[3:6], *measured, *of_gpus),
        below="health",
    )
    for row in rows:
        running = row.state == "RUNNING"
        left = row.left_s if running else row.estimate_s
        interval = ""
        if row.left_p10_s is not None and row.left_p90_s is not None:
            interval = f"{format_duration(row.left_p10_s)} to {format_duration(row.left_p90_s)}"
        words = row.health or ([row.note] if row.note else ["healthy"] if running else [])
        if row.over_limit:
            words = ["ends after its time limit", *row.health]
        table.add(
            row.job,
            row.name or "",
            row.state.lower(),
            _time(row.ran_s if running else row.waited_s),
            "" if row.done is None else f"{row.done:.0%}",
            _time(left),
            interval,
            _time(row.limit_s),
            *((_start(row), _time(row.scheduler_in_s)) if waiting else ()),
            *("" if (used := getattr(row, name)) is None else f"{used:.0%}" for name in measured),
            *("" if (mb := row.gpu_memory_mb) is None else f"{mb / 1024:.1f} GiB" for _ in of_gpus),
            "; ".join(words),
        )
    screen.table(table)


def _start(row: JobRow) -> str:
    if row.starts_in_s is None or row.starts_in_p10_s is None or row.starts_in_p90_s is None:
        return "" if row.state == "RUNNING" else "unknown"
    times = (row.starts_in_s, row.starts_in_p10_s, row.starts_in_p90_s)
    median, low, high = map(format_duration, times)
    return median if low == high else f"{median} ({low} to {high})"


def _time(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(seconds)
