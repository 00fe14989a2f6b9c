"""`schedmate history`: puts past jobs in, looks at them, takes them out.

The metadata of accounting rows is read from their repositories by `history_analysis.py`.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schedmate.base.data import dumps, encodable
from schedmate.base.errors import INPUT, INTERRUPTED, UsageError
from schedmate.base.files import open_output
from schedmate.base.inputs import parse_duration
from schedmate.base.terminal import Screen, counted, progress, say
from schedmate.commands.options import (
    ColumnsOption,
    HistoryOption,
    JournalOption,
    JsonOption,
    OutputOption,
    ProcessesOption,
    RayOption,
    Workers,
)

if TYPE_CHECKING:
    from schedmate.commands.history_analysis import RepositoryAnalysis, Workdirs
    from schedmate.jobs import JobRecord, JobState
    from schedmate.retrieval.history import JobHistory
    from schedmate.retrieval.sacct import ImportReport


IMPORT_SCHEMA = "schedmate.history-import/v1"
IMPORT_BATCH = 1000
"""Records stored in one transaction."""


def import_history(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File to read, also .gz; - is standard input.")
    ],
    file_format: Annotated[
        str,
        typer.Option(
            "--format",
            help="auto, sacct-json (also squeue --json), sacct (--parsable2), csv, jsonl (an "
            "export), kubectl-json or ray-json.",
        ),
    ] = "auto",
    mapping: ColumnsOption = None,
    map_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The same from a YAML file of FIELD: COLUMN[:UNIT]."),
    ] = None,
    prefix: Annotated[
        str, typer.Option(help="Prefix of every job id, to keep two clusters apart.")
    ] = "",
    analyze: Annotated[
        bool,
        typer.Option(
            "--analyze",
            help=(
                "Read the code in each job's working directory if it exists on this machine. "
                "Without it, accounting rows take no part in estimates."
            ),
        ),
    ] = False,
    processes: ProcessesOption = None,
    ray: RayOption = None,
    journal: JournalOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 when any row could not be used.")
    ] = False,
    history: HistoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import past jobs from accounting, a list of jobs, or an export.

    Slurm's accounting, kubectl's and Ray's lists as JSON, CSV as `triage` reads it. Jobs already
    in the history, by job id, are replaced. Rows that cannot be used are counted and the first few
    reported with their line; the rest is imported and the exit code is 0. It is 3 when rows were
    read and none was usable, and 130 after Ctrl-C, which keeps what was stored.

    Examples:

      sacct -a -S 2024-01-01 --json | schedmate history import -

      schedmate history import jobs.csv --map job_id=id --map duration=hours:h --map model=net
    """
    from schedmate.base.objects import local_copy
    from schedmate.commands.history_analysis import Workdirs
    from schedmate.retrieval.importers import formats, open_source, parse_mapping, read_mapping
    from schedmate.retrieval.sacct import ImportReport

    where = Workers(processes, ray, journal)
    if not analyze and where != Workers(None, None):
        raise UsageError("--jobs, --ray and --journal are for --analyze; give it, too.")
    where.check()
    wanted = None if file_format == "auto" else file_format
    if wanted is not None and wanted not in formats():
        raise UsageError(f"--format {file_format} is not auto, {', '.join(formats())}.")
    columns = {**(read_mapping(map_file) if map_file else {}), **parse_mapping(mapping or [])}
    if columns and wanted not in (None, "csv"):
        raise UsageError(f"--map is for csv; the columns of {wanted} are known.")
    report = ImportReport()
    stored, interrupted, replaced, timed, untimed, waiting = 0, False, 0, 0, 0, 0
    synthetic: Counter[str] = Counter()
    with ExitStack() as stack:
        analysis = stack.enter_context(_repository_analysis(where)) if analyze else None
        source = stack.enter_context(open_source(stack.enter_context(local_copy(file))))
        store = stack.enter_context(settings_history(history, create=True, embed=True))
        before = len(store)
        workdirs = Workdirs()
        records = source.records(wanted, columns, report, workdirs)
        records = _prefixed(records, encodable(prefix))
        batches = _batches(analysis(_placed(records, workdirs)) if analysis else records)
        try:
            with progress("importing", source.size) as advance:
                for batch in batches:
                    store.add_many(batch)
                    synthetic.update(one.synthetic for one in batch if one.synthetic)
                    timed += sum(one.duration_s is not None for one in batch)
                    untimed += sum(
                        one.duration_s is None and one.state == "COMPLETED" for one in batch
                    )
                    waiting += sum(map(_has_not_ended, batch))
                    stored += len(batch)
                    advance(source.position(), counted(stored, "job"))
            learn_run_times(store)
        except KeyboardInterrupt:
            interrupted = True
        if not timed:  # also those of which the file does not say how they ended
            untimed = stored - waiting
        replaced = max(0, stored - (len(store) - before))
        stored += analysis.overtaken if analysis else 0
    _report_import(
        *(stored, replaced, untimed, waiting, report, analysis, synthetic),
        interrupted=interrupted,
        as_json=as_json,
    )
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if (report.rows and not stored) or (strict and report.bad):
        raise typer.Exit(INPUT)


def _has_not_ended(record: JobRecord) -> bool:
    """Whether the file says that the job was waiting or running."""
    return "state" in record.model_fields_set and not record.ended


@contextmanager
def _repository_analysis(where: Workers) -> Iterator[RepositoryAnalysis]:
    from schedmate import __version__
    from schedmate.commands.history_analysis import RepositoryAnalysis
    from schedmate.settings import load_settings

    with where.journal(f"history import --analyze with schedmate {__version__}") as journal:
        memory_mb = load_settings().memory_mb
        with RepositoryAnalysis(
            memory_mb, at_once=where.at_once, ray=where.ray, journal=journal
        ) as analysis:
            yield analysis


def _placed(
    records: Iterator[JobRecord], workdirs: Workdirs
) -> Iterator[tuple[JobRecord, str | None]]:
    for record in records:
        yield record, workdirs.last


def _prefixed(records: Iterator[JobRecord], prefix: str) -> Iterator[JobRecord]:
    for record in records:
        yield record.model_copy(update={"job_id": prefix + record.job_id}) if prefix else record


def _batches(records: Iterator[JobRecord]) -> Iterator[list[JobRecord]]:
    """The records in batches that are stored together; Ctrl-C loses at most one of them."""
    while batch := list(islice(records, IMPORT_BATCH)):
        yield batch


def _report_import(
    stored: int,
    replaced: int,
    untimed: int,
    waiting: int,
    report: ImportReport,
    analysis: RepositoryAnalysis | None,
    synthetic: Counter[str],
    *,
    interrupted: bool,
    as_json: bool,
) -> None:
    if as_json:
        document = {
            "schema": IMPORT_SCHEMA,
            "imported": stored,
            "replaced": replaced,
            "without_run_time": untimed,
            "bad": report.bad,
            "problems": report.problems,
            "analysed": analysis.analysed if analysis else None,
            "interrupted": interrupted,
            "synthetic": synthetic.total(),
        }
        typer.echo(dumps(document, indent=2))
    for problem in report.problems:
        say(f"warning: {problem}")
    more = report.bad - len(report.problems)
    if more:
        say(f"warning: and {counted(more, 'more row')} that could not be used")
    if synthetic:
        what = ", ".join(recipe for recipe, _ in synthetic.most_common(3))
        say(
            f"warning: {counted(synthetic.total(), 'synthetic job')} ({what}): what is estimated "
            "from them says nothing of a real cluster."
        )
    if report.guessed:
        read = ", ".join(f"{column} as {name}" for column, name in report.guessed.items())
        unit = "; a run time without a unit is in seconds" if "duration_s" in read else ""
        say(f"note: read {read}{unit}; another reading goes by --map FIELD=COLUMN[:UNIT].")
    if untimed:
        say(
            f"warning: {counted(untimed, 'job')} without a run time, which no estimate can use: "
            "export it (sacct: Start, End and ElapsedRaw), or name its column (CSV: --map "
            "duration=COLUMN:UNIT), and import again."
        )
    if waiting:
        say(
            f"note: {counted(waiting, 'job')} of the file had not ended; an estimate can use a job "
            "after its end: import again then."
        )
    if analysis:
        say(f"analysed {counted(analysis.analysed, 'job')}; {analysis.skipped:,} had no code here.")
    if replaced:
        say(
            f"warning: {counted(replaced, 'job')} replaced one of the same id; --prefix keeps jobs "
            "of several sources apart."
        )
    summary = f"{counted(stored, 'job')} imported, {counted(report.bad, 'row')} left out"
    say(f"interrupted: {summary}; what was imported is kept." if interrupted else f"{summary}.")


# `schedmate history rebuild` and `calibrate`: vectors and threshold, which the embedder sets.


CALIBRATION_SCHEMA = "schedmate.calibration/v1"


def rebuild(
    index: Annotated[
        bool, typer.Option("--index", help="Rebuild only the index, from the stored vectors.")
    ] = False,
    history: HistoryOption = None,
) -> None:
    """Recompute vectors, index and what was learned of run times.

    Needed after a change of the embedder. Records are not changed, so it can be interrupted and run
    again.
    """
    with settings_history(history, embed=not index) as store:
        if index:
            store.rebuild_index()
        else:
            with progress("embedding", len(store)) as advance:
                store.rebuild(lambda done, total: advance(done, f"{done:,} of {total:,} jobs"))
            learn_run_times(store, anew=True)
    say(f"rebuilt the {'index' if index else 'vectors and the index'}.")


def calibrate(as_json: JsonOption = False) -> None:
    """Measure which similarity means "the same work".

    With the embedder of the settings, embeds a bundled set of labelled workloads, chooses on one
    half the lowest threshold that accepts 1 % of near misses, and checks it on the other. Prints
    the setting `threshold`; changes nothing.
    """
    from dataclasses import asdict

    from schedmate.mate import embedder_of
    from schedmate.retrieval.similarity import calibrate as measure
    from schedmate.settings import load_settings

    embedder = embedder_of(load_settings())
    measured = measure(embedder)
    if as_json:
        document = {"schema": CALIBRATION_SCHEMA, "embedder": embedder.id, **asdict(measured)}
        typer.echo(dumps(document, indent=2))
        return
    typer.echo(f"threshold = {measured.threshold}")
    say(f"for {embedder.id}; of pairs that it was not chosen on it lets through:")
    say(f"{measured.other_model:.1%} of near misses with another model")
    say(f"{measured.other_dataset:.1%} of near misses with another dataset")
    say(f"{measured.same_spelt_otherwise:.1%} of the same work spelt otherwise")
    say(f"{measured.same_named_otherwise:.1%} of the same work under another name")
    say(f"its default is {embedder.threshold}; the line above is for config.toml.")


# Helpers shared by the commands of `schedmate history`.


def learn_run_times(store: JobHistory, *, anew: bool = False) -> None:
    """Have the experts learn from what has ended since, or from all, with a progress bar."""
    from schedmate.retrieval.learning import RunTimes
    from schedmate.settings import load_settings

    times = RunTimes.of(store, load_settings())
    if anew:
        times.forget()
    if waiting := store.count_unlearned():
        with progress("learning run times", waiting) as advance:
            times.learn(
                on_progress=lambda done: advance(done, f"{done:,} of {counted(waiting, 'run')}")
            )


@contextmanager
def settings_history(
    place: str | None,
    *,
    create: bool = False,
    read_only: bool = False,
    embed: bool = False,
) -> Iterator[JobHistory]:
    """The history of the settings; reading it only, nobody who writes is waited for.

    The embedder is loaded only with `embed`, since it may be slow, or a server that is down.
    """
    from schedmate.mate import embedder_of
    from schedmate.retrieval.shared import open_history
    from schedmate.settings import load_settings

    settings = load_settings(history=place)
    embedder = embedder_of(settings) if embed else None
    with open_history(settings.history, embedder, create=create, read_only=read_only) as store:
        yield store


# `schedmate history`: put past jobs in, look at them, take them out.


app = typer.Typer(no_args_is_help=True, help="Import, list and maintain past jobs.")

SCHEMA = "schedmate.history/v1"

app.command("import")(import_history)


@app.command()
def add(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB", help="Id of the job; with --from, that of the run if left out."
        ),
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FIELD=VALUE...",
            help=(
                "Fields of the record, such as model=resnet50 gpus=8 duration=2h "
                "state=COMPLETED. FIELD is a short name or a dotted field, as for import "
                "--map."
            ),
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="A finished run to read the job from: its log, trainer_state.json, or a run of "
            "TensorBoard, W&B, MLflow, Lightning or Keras; also a folder of runs.",
        ),
    ] = None,
    repo: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --from: the code of the run, read as by `analyze`."),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option("--command", "-c", help="With --repo: the run's launch command."),
    ] = None,
    history: HistoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add one job, or replace it; or the jobs of finished runs.

    Examples:

      schedmate history add 17 model=resnet50 dataset=imagenet iters=90 iter_type=epoch gpus=8
      duration=7h30m

      schedmate history add --from train.log --repo . --command "python train.py" gpus=8
    """
    from schedmate.retrieval.importers import parse_assignments

    given = fields or []
    if run is None:
        if repo is not None or command is not None:
            raise UsageError("--repo and --command say what the run of --from was; give it, too.")
        if job is None or not given:
            raise UsageError(
                "give the job's id and its fields, as in 17 model=resnet50 duration=2h, or a "
                "finished run with --from."
            )
        added = [(parse_assignments([*given, f"job_id={job}"]), list[str]())]
    else:
        from schedmate.commands.history_runs import records_of_runs, say_added

        if job is not None and "=" in job:
            given, job = [job, *given], None
        if command is not None and repo is None:
            raise UsageError("--command is read with the code; name its folder with --repo.")
        added = records_of_runs(run, job=job, repo=repo, command=command, fields=given)
    records = [record for record, _ in added]
    with settings_history(history, create=True, embed=True) as store:
        store.add_many(records)
    if run is not None:
        say_added(added)
    if len(records) == 1:
        _show_job(records[0], as_json)
    elif as_json:
        jobs = [record.model_dump(mode="json", by_alias=True) for record in records]
        typer.echo(dumps({"schema": SCHEMA, "jobs": jobs}, indent=2))


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
    with settings_history(history, read_only=True) as store:
        records = store.list(
            limit=limit, offset=offset, state=_parse_state(state), user=user, text=text
        )
    if as_json:
        jobs = [record.model_dump(mode="json", by_alias=True) for record in records]
        typer.echo(dumps({"schema": SCHEMA, "jobs": jobs}, indent=2))
        return
    from schedmate.report.jobs import show_jobs

    show_jobs(records, Screen(sys.stdout))


@app.command()
def show(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")],
    history: HistoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show all that is stored of one job."""
    with settings_history(history, read_only=True) as store:
        record = _get_job(store, job)
    _show_job(record, as_json)


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
    ended = _parse_state(state)
    assert ended is not None
    if ended in ("PENDING", "RUNNING"):
        raise UsageError(
            f"--state {ended} is not how a job ends; use one such as COMPLETED, FAILED or "
            "CANCELLED."
        )
    with settings_history(history) as store:
        if duration is None and _get_job(store, job).start_time is None:
            raise UsageError(f"job {job} has no start time; say how long it ran with --duration.")
        record = store.finish(
            job,
            duration_s=None if duration is None else parse_duration(duration),
            end_time=_parse_end(end),
            state=ended,
            gpu_util=gpu_util,
            sm_util=sm_util,
            gpu_mem_mb=gpu_mem_mb,
        )
    _show_job(record, as_json)


@app.command()
def stats(history: HistoryOption = None, as_json: JsonOption = False) -> None:
    """Count what the history holds."""
    with settings_history(history, read_only=True) as store:
        numbers = store.stats()
    if as_json:
        typer.echo(dumps({"schema": SCHEMA, "stats": numbers}, indent=2))
        return
    from schedmate.report.jobs import show_stats

    show_stats(numbers, Screen(sys.stdout))


app.command()(rebuild)
app.command()(calibrate)


@app.command()
def prune(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="TIME", help="Age of a job's end, such as 730d.")
    ],
    history: HistoryOption = None,
) -> None:
    """Delete jobs that ended long ago.

    What was learned of run times stays; `schedmate history export` or `schedmate backup` keeps the
    jobs. In PostgreSQL they are gone for every machine.
    """
    with settings_history(history, embed=True) as store:
        count = store.prune(time.time() - parse_duration(older_than))
        left = len(store)
    say(f"{counted(count, 'job')} deleted, {left:,} left.")


@app.command()
def export(
    output: OutputOption = None,
    history: HistoryOption = None,
) -> None:
    """Export every record as a line of JSON.

    `history import` reads the file.
    """
    with settings_history(history, read_only=True) as store, open_output(output) as stream:
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
    from schedmate.mate import embedder_of
    from schedmate.retrieval.shared import open_history
    from schedmate.settings import load_settings

    target = load_settings(history=to)
    if target.history == load_settings(history=history).history:
        raise UsageError("a history cannot be copied into itself; name another one.")
    with (
        settings_history(history, read_only=True) as source,
        open_history(target.history, embedder_of(target)) as store,
        progress("copying", len(source)) as advance,
    ):
        total = len(source)
        done = store.add_many(
            source.export(), lambda count: advance(count, f"{count:,} of {total:,} jobs")
        )
    with open_history(target.history, embedder_of(target)) as store:
        learn_run_times(store)
    if as_json:
        typer.echo(dumps({"schema": SCHEMA, "copied": done}))
    say(f"{counted(done, 'job')} copied; set `history` to use them.")


def _get_job(store: JobHistory, job: str) -> JobRecord:
    from schedmate.retrieval.table import unknown_job

    record = store.get(job)
    if record is None:
        raise unknown_job(job)
    return record


def _parse_state(text: str | None) -> JobState | None:
    from schedmate.retrieval.sacct import parse_state

    try:
        return None if text is None else parse_state(text)
    except ValueError as error:
        raise UsageError(f"{error}; use one such as COMPLETED, FAILED or CANCELLED.") from None


def _parse_end(text: str | None) -> float:
    from schedmate.retrieval.sacct import parse_time

    try:
        return parse_time(text) or time.time()
    except ValueError as error:
        raise UsageError(f"--end {error}.") from None


def _show_job(record: JobRecord, as_json: bool) -> None:
    if as_json:
        document = record.model_dump(mode="json", by_alias=True)
        document["fingerprint"] = record.metadata.fingerprint()
        typer.echo(dumps({"schema": SCHEMA, "job": document}, indent=2))
        return
    from schedmate.report.jobs import show_job

    show_job(record, Screen(sys.stdout))
