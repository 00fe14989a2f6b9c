"""`schedmate site-report`: what a site's own accounting says for and against schedmate."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from schedmate.base.data import dumps
from schedmate.base.errors import UsageError
from schedmate.base.files import write_output
from schedmate.base.terminal import Screen, counted, progress, say
from schedmate.commands.options import ColumnsOption, HistoryOption, JsonOption

if TYPE_CHECKING:
    from schedmate.retrieval.sacct import ImportReport
    from schedmate.site.accounting import AccountedJob
    from schedmate.site.report import Advance


def site_report(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="List of jobs, also .gz; - is standard input. Without it: the job history.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "--out", "-o", metavar="FILE", help="Write one HTML page."),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write Markdown.")
    ] = None,
    as_json: JsonOption = False,
    job_format: Annotated[
        str,
        typer.Option(
            "--format",
            help="auto, sacct-json, sacct (--parsable2), csv, jsonl (an export of a history), "
            "kubectl-json (kubectl get -o json), ray-json (/api/jobs/), or swf.",
        ),
    ] = "auto",
    mapping: ColumnsOption = None,
    logs: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="Where logs of failed jobs are, with Slurm's symbols: /logs/%u/slurm-%j.out.",
        ),
    ] = None,
    no_logs: Annotated[
        bool, typer.Option("--no-logs", help="Read no logs, not even those that the list names.")
    ] = False,
    anonymize: Annotated[
        bool,
        typer.Option(
            "--anonymize",
            help="Replace names of users, groups, partitions, jobs and nodes by pseudonyms, and "
            "leave out dates.",
        ),
    ] = False,
    replay: Annotated[
        int | None,
        typer.Option(
            min=100,
            metavar="N",
            help="Latest jobs that estimates are replayed on. Default: 150,000, a minute or two.",
        ),
    ] = None,
    history: HistoryOption = None,
) -> None:
    """Report on all past jobs of a site.

    Reads accounting records and contacts no cluster. Reports how well run times could have been
    predicted (beside requested times and the last run), whether the queue can be modelled and what
    estimates would have changed in it, what failures cost, and what to switch on first.

    Examples:

      sacct -a -S 2026-01-01 --json | schedmate site-report - --output report.html

      schedmate site-report jobs.swf.gz --anonymize -o report.html --markdown report.md
    """
    from schedmate.report.site import show_site, site_markdown, site_page
    from schedmate.retrieval.sacct import ImportReport
    from schedmate.site.accounting import parse_columns
    from schedmate.site.predictability import REPLAYED
    from schedmate.site.report import Request
    from schedmate.site.report import site_report as make

    columns = parse_columns(mapping or [])
    wanted = None if job_format == "auto" else job_format
    report = ImportReport()
    for path in (output, markdown):
        if path is not None and not path.parent.is_dir():
            raise UsageError(f"there is no directory {path.parent} to write {path.name} to.")
    with ExitStack() as stack:
        jobs, cluster = open_jobs(stack, source, history, report, wanted, columns)
        request = Request(
            source="the history" if source is None else source.name,
            anonymize=anonymize,
            logs=logs,
            read_logs=not no_logs,
            replayed=replay or REPLAYED,
            cluster=cluster,
        )
        with _stages() as stage:
            found = make(jobs, request, report, stage)
        for path, made in ((output, site_page), (markdown, site_markdown)):
            if path is not None:
                text = made(found)
                write_output(path, text)
    if report.bad:
        say(f"warning: {counted(report.bad, 'row')} could not be used; {report.problems[0]}")
    if as_json:
        typer.echo(dumps(found.document(), indent=1))
    else:
        show_site(found, Screen(sys.stdout))


CLUSTERS: dict[str, Literal["slurm", "kubernetes", "ray"]] = {
    "kubectl-json": "kubernetes",
    "ray-json": "ray",
}
"""Kinds of clusters by the format of their list; the others are taken for Slurm's."""


def open_jobs(
    stack: ExitStack,
    source: Path | None,
    history: str | None,
    report: ImportReport,
    wanted: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> tuple[Iterable[AccountedJob], Literal["slurm", "kubernetes", "ray"]]:
    """The jobs of a list, or without one of the history; and the kind of their cluster."""
    from schedmate.base.objects import local_copy
    from schedmate.commands.history import settings_history
    from schedmate.retrieval.importers import open_source
    from schedmate.site.accounting import detect, of_records, read_jobs

    if source is not None and history is not None:
        raise UsageError("FILE and --history exclude each other; give one of them.")
    if source is None:
        store = stack.enter_context(settings_history(history, read_only=True))
        return of_records(store.export()), "slurm"
    opened = stack.enter_context(open_source(stack.enter_context(local_copy(source))))
    kind = wanted or ("csv" if columns else detect(opened.head))
    return read_jobs(opened, wanted, columns or {}, report), CLUSTERS.get(kind, "slurm")


@contextmanager
def _stages() -> Iterator[Callable[[str, int | None], Advance]]:
    """A function that begins the next stage, with a progress bar of its own."""
    with ExitStack() as stack:

        def begin(what: str, total: int | None) -> Advance:
            stack.close()
            return stack.enter_context(progress(what, total))

        yield begin
