"""`schedmate triage`: many failed jobs at once, by root cause, in one report."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from schedmate.base.data import dumps
from schedmate.base.errors import InputError, UsageError
from schedmate.base.files import open_output, parquet_rows, write_output
from schedmate.base.terminal import Screen, outlasting, progress, say
from schedmate.commands import options

if TYPE_CHECKING:
    from schedmate.logparse.triage import Batch, JobVerdict, Strip, Triage
    from schedmate.settings import Settings


JOB_SCHEMA = "schedmate.triage-job/v1"
CONTEXT = {"allow_extra_args": True}
"""Extra words are accepted so that several paths get an error that says what to type."""


def triage(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="DIR|GLOB|CSV",
            help="A directory (each file is a job, and so are files that look like ranks of one "
            "run), a quoted glob, or a CSV list of jobs with the columns log, job_id, duration, "
            "gpus, nodes, workload, state, user (log is the one that must be there); each also in "
            "object storage (s3://, gs://, az://).",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--output", "--out", "-o", metavar="FILE", help="Write a report, one HTML file."
        ),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            metavar="FILE",
            help="Write the verdicts as a CSV table with one row per job.",
        ),
    ] = None,
    parquet: options.ParquetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    form: options.Format = "text",
    since: Annotated[
        Literal["last"] | None,
        typer.Option(help="last: show what is new since the previous batch in the ledger."),
    ] = None,
    as_lines: Annotated[
        bool,
        typer.Option("--jsonl", help="Print a JSON line for each job, in order of completion."),
    ] = False,
    recursive: options.RecursiveOption = False,
    job_per_file: options.JobPerFileOption = False,
    job_per_folder: Annotated[
        bool,
        typer.Option(
            "--one-job-per-folder",
            help=(
                "The files of a directory are one job, and each sub-directory with everything "
                "below it is another (with --recursive, each directory with files)."
            ),
        ),
    ] = False,
    follow_links: options.FollowLinks = False,
    processes: options.ProcessesOption = None,
    ray: options.RayOption = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "File that remembers earlier batches, to resume an interrupted one and to "
                "recognise new templates. Default: triage.sqlite beside the job history."
            ),
        ),
    ] = None,
    llm_base_url: options.LlmBaseUrl = None,
    llm_model: options.LlmModel = None,
    llm_timeout: options.LlmTimeout = None,
    llm_deadline: options.LlmDeadline = None,
    ask: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Groups of similar failures to ask a model about, the costliest first.",
        ),
    ] = 20,
) -> None:
    """Diagnose many jobs and group them by root cause.

    Reports the cost of each group, suspect nodes and new kinds of lines.

    A log that cannot be read is an error in its row; the exit code is 3 only if none could be read.
    An interrupted batch is resumed by running the same command again.

    Rules decide. If they leave the type of a failure open and a language model is named, it is
    asked once for each group of similar failures, and has to cite a line as proof.

    Examples:

      schedmate triage /var/log/slurm/failed --out report.html

      schedmate triage jobs.csv --out report.html --json > triage.json
    """
    from schedmate.logparse.triage import find_targets
    from schedmate.logparse.triage.summary import COLUMN_KINDS, table_row, write_csv
    from schedmate.settings import data_dir, load_settings

    if context.args:
        raise UsageError(_several_sources([source, *context.args]))
    settings = load_settings(
        llm_base_url=llm_base_url,
        llm_model=llm_model,
        llm_timeout_s=llm_timeout,
        llm_deadline_s=llm_deadline,
    )
    if as_json + as_lines + (form != "text") > 1:
        raise UsageError("--json, --jsonl and --format exclude each other; give one of them.")
    if job_per_file and job_per_folder:
        raise UsageError(
            "--one-job-per-file and --one-job-per-folder exclude each other; give one of them."
        )
    where = options.Workers(processes, ray)
    where.check(out, table, parquet)
    add_row: Callable[[Mapping[str, object]], None]
    batch = find_targets(
        source,
        job="file" if job_per_file else "folder" if job_per_folder else "run",
        recursive=recursive,
        follow_links=follow_links,
    )
    with ExitStack() as stack:
        write: Callable[[str], None] = partial(print, flush=True)
        if any((out, table, parquet)):  # they are written whoever reads the lines
            write = stack.enter_context(outlasting(sys.stdout))
        add_row = stack.enter_context(parquet_rows(parquet, COLUMN_KINDS))
        result = _batch(
            batch,
            ledger or data_dir() / "triage.sqlite",
            settings,
            ask=ask,
            where=where,
            since_last=since == "last",
            on_verdict=(lambda verdict: write(_line(verdict)))
            if as_lines
            else lambda _verdict: None,
        )
        for job in result.jobs:
            add_row(table_row(job))
        if table is not None:
            with open_output(table) as stream:
                write_csv(result, stream)
            say(f"table: {table}")
        if out is not None:
            from schedmate.report.triage import triage_page

            page = triage_page(result, partial(_strip_of, batch))
            write_output(out, page)
            say(f"report: {out}")
        for warning in result.warnings[:20]:
            say(f"note: {warning}")
    if as_json:
        typer.echo(dumps(result.document(), indent=2))
    elif form == "markdown":
        from schedmate.report.markdown import triage_markdown

        typer.echo(triage_markdown(result), nl=False)
    elif not as_lines:
        from schedmate.report.batch import show_triage

        show_triage(result, Screen(sys.stdout))
    if result.totals.unreadable == result.totals.jobs:
        raise InputError(
            f"none of the logs of {source} could be read; first: {result.jobs[0].error}"
        )


def _several_sources(paths: list[str]) -> str:
    """The error for several paths, which are most likely the files of a pattern."""
    folders, kinds = {Path(path).parent for path in paths}, {Path(path).suffix for path in paths}
    alike = len(folders) == len(kinds) == 1
    pattern = folders.pop() / f"*{kinds.pop()}" if alike else Path("DIR/*.log")
    return (
        f"triage takes one path and got {len(paths)}; put a pattern in quotes, so that the shell "
        f"does not expand it: schedmate triage {quote(str(pattern))}"
    )


def _batch(
    batch: Batch,
    ledger: Path,
    settings: Settings,
    *,
    ask: int,
    where: options.Workers,
    since_last: bool,
    on_verdict: Callable[[JobVerdict], None],
) -> Triage:
    """The whole batch; `on_verdict` gets each verdict when it is final."""
    from schedmate.base.objects import is_object
    from schedmate.llm import open_llm
    from schedmate.logparse.failure import load_rules, site_rules
    from schedmate.logparse.triage import Ledger, causes, summarise, triage
    from schedmate.logparse.triage.opinions import ask_model

    verdicts: list[JobVerdict] = []
    shown: Counter[int] = Counter()
    with ExitStack() as stack:
        stack.enter_context(site_rules(settings.rules_folder))
        load_rules()  # what is wrong in the site's is said once, not of each log
        llm = None if settings.mode == "static" or not ask else open_llm(settings)
        if llm is not None:
            stack.callback(llm.close)
        source = batch.source if is_object(batch.source) else str(Path(batch.source).absolute())
        store = stack.enter_context(Ledger(ledger, source))
        with progress("triage", len(batch.targets)) as advance:
            for verdict, templates in triage(
                batch.targets,
                store,
                processes=where.at_once,
                ray=where.ray,
                memory_mb=settings.memory_mb,
            ):
                verdicts.append(verdict)
                shown.update(templates)
                if llm is None:
                    on_verdict(verdict)
                advance(len(verdicts), f"{len(verdicts):,} of {len(batch.targets):,}")
        use = None
        if llm is not None:
            options.announce_model(settings, "logs")
            with progress("asking the model", ask) as advance:
                use = ask_model(
                    verdicts,
                    llm,
                    most=ask,
                    opened=lambda job: batch.opened(job.index),
                    on_progress=advance,
                )
            for verdict in verdicts:
                on_verdict(verdict)
        result = summarise(
            batch.source, verdicts, shown, store, batch.warnings, use, since_last=since_last
        )
        store.finish(causes(result))
    return result


def _line(verdict: JobVerdict) -> str:
    row = verdict.model_dump(mode="json", exclude={"group"})
    return dumps({"schema": JOB_SCHEMA, **row})


def _strip_of(batch: Batch, verdict: JobVerdict) -> Strip | None:
    """The overview strip of a job's log, or None if the log cannot be read any more."""
    from schedmate.logparse.triage.strip import strip

    if verdict.diagnosis is None:
        return None
    try:
        with batch.opened(verdict.index) as log:
            return strip(log, verdict.diagnosis)
    except InputError:
        return None
