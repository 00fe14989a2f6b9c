"""`schedmate history import`: past jobs from files that clusters already have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schedmate.commands.history_common import opened
from schedmate.commands.options import HistoryOption, JsonOption
from schedmate.commands.scale_options import JournalOption, RayOption, Where
from schedmate.errors import INPUT, INTERRUPTED, UsageError
from schedmate.plain import dumps, encodable
from schedmate.terminal import counted, progress, say

if TYPE_CHECKING:
    from schedmate.commands.history_analysis import RepositoryAnalysis, Workdirs
    from schedmate.jobs import JobRecord
    from schedmate.retrieval.importers import ImportReport

SCHEMA = "schedmate.history-import/v1"
BATCH = 1000
"""Records stored in one transaction."""


def import_history(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File to read, also .gz; - is standard input.")
    ],
    file_format: Annotated[
        str,
        typer.Option(
            "--format", help="auto, sacct-json, sacct (--parsable2), csv, or jsonl (an export)."
        ),
    ] = "auto",
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="FIELD=COLUMN[:UNIT]",
            help="For csv: which column holds a field, as duration=hours:h or "
            "model=net. Repeat it. COLUMN # is the number of the row.",
        ),
    ] = None,
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
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Directories that --analyze reads at the same time. Default: one per core.",
        ),
    ] = None,
    ray: RayOption = None,
    journal: JournalOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 when any row could not be used.")
    ] = False,
    history: HistoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import past jobs from Slurm's accounting, CSV or an export.

    Jobs already in the history, by job id, are replaced. Rows that cannot be used are counted and
    the first few reported with their line; the rest is imported and the exit code is 0. It is 3
    when rows were read and none was usable, and 130 after Ctrl-C, which keeps what was stored.

    Examples:

      sacct -a -S 2024-01-01 --json | schedmate history import -

      schedmate history import jobs.csv --map job_id=id --map duration=hours:h --map model=net
    """
    from schedmate.commands.history_analysis import Workdirs
    from schedmate.retrieval.importers import (
        FORMATS,
        ImportReport,
        open_source,
        parse_mapping,
        read_mapping,
    )
    from schedmate.scale.objects import local

    where = Where(processes, ray, journal)
    if not analyze and where != Where(None, None):
        raise UsageError("--processes, --ray and --journal are for --analyze; give it, too.")
    where.check()
    wanted = next((name for name in FORMATS if name == file_format), None)
    if wanted is None and file_format != "auto":
        raise UsageError(f"--format {file_format} is not auto, {', '.join(FORMATS)}.")
    columns = {**(read_mapping(map_file) if map_file else {}), **parse_mapping(mapping or [])}
    if columns and wanted not in (None, "csv"):
        raise UsageError(f"--map is for csv; the columns of {wanted} are known.")
    report = ImportReport()
    stored, interrupted, replaced, timed, untimed, waiting = 0, False, 0, 0, 0, 0
    synthetic: Counter[str] = Counter()
    with ExitStack() as stack:
        analysis = stack.enter_context(_analysis(where)) if analyze else None
        source = stack.enter_context(open_source(stack.enter_context(local(file))))
        store = stack.enter_context(opened(history, create=True, embed=True))
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
def _analysis(where: Where) -> Iterator[RepositoryAnalysis]:
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
    """What is stored together, and so what Ctrl-C can lose."""
    while batch := list(islice(records, BATCH)):
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
            "schema": SCHEMA,
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
        what = ", ".join(one for one, _ in synthetic.most_common(3))
        say(
            f"warning: {counted(synthetic.total(), 'synthetic job')} ({what}): what is estimated "
            "from them says nothing of a real cluster."
        )
    if report.ignored:
        first = report.ignored[0]
        say(
            f"note: columns not read, as no field has that very name: {', '.join(report.ignored)}; "
            f"read one that holds what it says with --map, as in --map {first}={first}."
        )
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
    kept = f"{counted(stored, 'job')} imported, {counted(report.bad, 'row')} left out"
    say(f"interrupted: {kept}; what was imported is kept." if interrupted else f"{kept}.")
