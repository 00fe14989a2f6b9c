"""`schedmate history`: put past jobs in, look at them, take them out."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schedmate.commands.history_common import opened
from schedmate.commands.history_import import import_history
from schedmate.commands.history_vectors import calibrate, rebuild
from schedmate.commands.options import HistoryOption, JsonOption
from schedmate.durations import parse_duration
from schedmate.errors import UsageError
from schedmate.plain import dumps
from schedmate.terminal import counted, progress, say

if TYPE_CHECKING:
    from schedmate.jobs import JobRecord, JobState
    from schedmate.retrieval.history import JobHistory

app = typer.Typer(no_args_is_help=True, help="Import, list and maintain past jobs.")

SCHEMA = "schedmate.history/v1"

app.command("import")(import_history)


@app.command()
def add(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")],
    fields: Annotated[
        list[str],
        typer.Argument(
            metavar="FIELD=VALUE...",
            help=(
                "Fields of the record, such as model=resnet50 gpus=8 duration=2h "
                "state=COMPLETED. FIELD is a short name or a dotted field, as for import "
                "--map."
            ),
        ),
    ],
    history: HistoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add one job, or replace it.

    Example: schedmate history add 17 model=resnet50 dataset=imagenet iters=90 iter_type=epoch
    gpus=8 duration=7h30m
    """
    from schedmate.retrieval.importers import parse_assignments

    record = parse_assignments([*fields, f"job_id={job}"])
    with opened(history, create=True, embed=True) as store:
        store.add(record)
    _show(record, as_json)


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Most jobs to show.")] = 20,
    offset: Annotated[int, typer.Option(min=0, help="Jobs to skip.")] = 0,
    state: Annotated[
        str | None, typer.Option(help="Only jobs in this state, such as COMPLETED.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="Only jobs of this user.")] = None,
    text: Annotated[
        str | None,
        typer.Option(help="Only jobs with this text in their name, command or metadata."),
    ] = None,
    history: HistoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs of the history."""
    with opened(history, read_only=True) as store:
        records = store.list(limit=limit, offset=offset, state=_state(state), user=user, text=text)
    if as_json:
        jobs = [record.model_dump(mode="json", by_alias=True) for record in records]
        typer.echo(dumps({"schema": SCHEMA, "jobs": jobs}, indent=2))
        return
    from schedmate.render.history import show_jobs
    from schedmate.terminal.screen import Screen

    show_jobs(records, Screen(sys.stdout))


@app.command()
def show(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")],
    history: HistoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show all that is stored of one job."""
    with opened(history, read_only=True) as store:
        record = _get(store, job)
    _show(record, as_json)


@app.command()
def finish(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")],
    duration: Annotated[
        str | None,
        typer.Option(
            help="Run time: 7200, 2h, 1d12h or 1-12:00:00. Default: from its start to its end."
        ),
    ] = None,
    state: Annotated[
        str,
        typer.Option(
            help="Final state. For any state but COMPLETED the duration is a lower bound."
        ),
    ] = "COMPLETED",
    end: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="When it ended, ISO 8601 or epoch seconds. Default: now."
        ),
    ] = None,
    gpu_util: Annotated[
        float | None, typer.Option(min=0, max=100, help="Mean GPU utilisation [%].")
    ] = None,
    sm_util: Annotated[
        float | None, typer.Option(min=0, max=100, help="Mean SM activity [%].")
    ] = None,
    gpu_mem_mb: Annotated[
        float | None, typer.Option(min=0, help="Peak memory of one GPU [MB].")
    ] = None,
    history: HistoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Close a recorded job: how it ended and what it used.

    The job is one that `analyze --record` stored.

    Example: schedmate history finish 17 --duration 2h --gpu-util 91
    """
    ended = _state(state)
    assert ended is not None
    if ended in ("PENDING", "RUNNING"):
        raise UsageError(
            f"--state {ended} is not how a job ends; use one such as COMPLETED, FAILED or "
            "CANCELLED."
        )
    with opened(history) as store:
        if duration is None and _get(store, job).start_time is None:
            raise UsageError(f"job {job} has no start time; say how long it ran with --duration.")
        record = store.finish(
            job,
            duration_s=None if duration is None else parse_duration(duration),
            end_time=_end_time(end),
            state=ended,
            gpu_util=gpu_util,
            sm_util=sm_util,
            gpu_mem_mb=gpu_mem_mb,
        )
    _show(record, as_json)


@app.command()
def stats(history: HistoryOption = None, as_json: JsonOption = False) -> None:
    """Count what the history holds."""
    with opened(history, read_only=True) as store:
        numbers = store.stats()
    if as_json:
        typer.echo(dumps({"schema": SCHEMA, "stats": numbers}, indent=2))
        return
    from schedmate.render.history import show_stats
    from schedmate.terminal.screen import Screen

    show_stats(numbers, Screen(sys.stdout))


app.command()(rebuild)
app.command()(calibrate)


@app.command()
def export(
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write to FILE, which appears only when it is complete; - is standard output.",
        ),
    ] = Path("-"),
    history: HistoryOption = None,
) -> None:
    """Export every record as a line of JSON.

    `history import` reads the file.
    """
    from schedmate.files import open_output

    with opened(history, read_only=True) as store, open_output(output) as stream:
        for record in store.export():
            stream.write(record.model_dump_json(by_alias=True, exclude_none=True) + "\n")


@app.command()
def copy(
    to: Annotated[
        str,
        typer.Argument(
            metavar="DIR|URL", help="Another directory, or postgresql://USER@HOST/DATABASE."
        ),
    ],
    history: HistoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy every job into another history, created if missing.

    From a directory into PostgreSQL, or back with --history postgresql://... Jobs of the same id
    are replaced in the target; the source is not changed. An interrupted copy can be run again.
    """
    from schedmate.advice import embedder_of
    from schedmate.retrieval.stores import open_history
    from schedmate.settings import load_settings

    target = load_settings(history=to)
    if target.history == load_settings(history=history).history:
        raise UsageError("a history cannot be copied into itself; name another one.")
    with (
        opened(history, read_only=True) as source,
        open_history(target.history, embedder_of(target)) as store,
        progress("copying", len(source)) as advance,
    ):
        total = len(source)
        done = store.add_many(
            source.export(), lambda count: advance(count, f"{count:,} of {total:,} jobs")
        )
    if as_json:
        typer.echo(dumps({"schema": SCHEMA, "copied": done}))
    say(f"{counted(done, 'job')} copied; set `history` to use them.")


def _get(store: JobHistory, job: str) -> JobRecord:
    from schedmate.retrieval.table import unknown_job

    record = store.get(job)
    if record is None:
        raise unknown_job(job)
    return record


def _state(text: str | None) -> JobState | None:
    from schedmate.retrieval.importers.values import parse_state

    try:
        return None if text is None else parse_state(text)
    except ValueError as error:
        raise UsageError(f"{error}; use one such as COMPLETED, FAILED or CANCELLED.") from None


def _end_time(text: str | None) -> float:
    from schedmate.retrieval.importers.values import parse_time

    try:
        return parse_time(text) or time.time()
    except ValueError as error:
        raise UsageError(f"--end {error}.") from None


def _show(record: JobRecord, as_json: bool) -> None:
    if as_json:
        document = record.model_dump(mode="json", by_alias=True)
        document["fingerprint"] = record.metadata.fingerprint()
        typer.echo(dumps({"schema": SCHEMA, "job": document}, indent=2))
        return
    from schedmate.render.history import show_job
    from schedmate.terminal.screen import Screen

    show_job(record, Screen(sys.stdout))
