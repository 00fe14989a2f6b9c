"""Defines the options that commands of several groups share, and what their values become.

Nothing here imports more than typer and the ground floor: every command imports it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from schedmate.base.errors import InputError, UsageError
from schedmate.base.files import write_output
from schedmate.base.terminal import counted, say

if TYPE_CHECKING:
    from schedmate.base.journal import Journal
    from schedmate.base.terminal import Screen
    from schedmate.logparse.reading import Log
    from schedmate.report.charts import Figure
    from schedmate.schedulers.sim.workload import Workload
    from schedmate.settings import Settings


HistoryOption = Annotated[
    str | None,
    typer.Option(
        "--history",
        metavar="DIR|URL",
        help="Directory of the job history, or postgresql://USER@HOST/DATABASE.",
    ),
]
Format = Annotated[
    Literal["text", "markdown"],
    typer.Option("--format", help="markdown: short, for a ticket or a chat."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
HtmlOption = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="Also write the answer as a web page: one file, to send on."
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to FILE, which appears only when it is complete; - is standard output.",
    ),
]
LogFormatOption = Annotated[
    Literal["json", "text"], typer.Option("--log-format", help="Format of the log's lines.")
]
PlainOption = Annotated[bool, typer.Option("--plain", help="No colour, like NO_COLOR=1.")]
FollowLinks = Annotated[
    bool,
    typer.Option(
        "--follow-links",
        help="Follow links that lead out of a directory. Default: skip and report them.",
    ),
]


# Options of commands that take many logs, or a list of jobs.


NodesOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NODE,...", help="The nodes that the job ran on, such as gpu[01-04]. Repeatable."
    ),
]
NodeLogsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[NODE=]FILE",
        help="Kernel log (dmesg, syslog) of a node of the job. Repeatable.",
    ),
]
RecursiveOption = Annotated[
    bool, typer.Option("--recursive", "-r", help="Include logs at any depth of sub-directories.")
]
JobPerFileOption = Annotated[
    bool,
    typer.Option(
        "--one-job-per-file", help="Each file is a job, even if several look like ranks of one."
    ),
]
ColumnsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="FIELD=COLUMN[:UNIT]",
        help="For csv: which column holds a field, as duration=hours:h or model=net. Repeatable. "
        "COLUMN # is the number of the row.",
    ),
]


# Options of commands that may ask a language model.


LlmBaseUrl = Annotated[
    str | None,
    typer.Option(
        "--llm-base-url",
        metavar="URL",
        help="OpenAI-compatible server, for example http://127.0.0.1:8000/v1.",
    ),
]
LlmModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="Model name at that server (default: the first it serves), or scripted:FILE.",
    ),
]
LlmTimeout = Annotated[
    float | None,
    typer.Option(
        "--llm-timeout", metavar="S", min=0.1, help="Time limit of one request, in total [s]."
    ),
]
LlmDeadline = Annotated[
    float | None,
    typer.Option(
        "--llm-deadline", metavar="S", min=0.1, help="Time limit of all requests for one job [s]."
    ),
]


def check_format(form: str, *, as_json: bool) -> None:
    """Raise `UsageError` if two forms of an answer are asked for."""
    if as_json and form != "text":
        raise UsageError("--json and --format exclude each other; give one of them.")


def write_page(
    page: Path | None,
    command: str,
    about: str,
    show: Callable[[Screen], None],
    figures: Sequence[Figure] = (),
) -> None:
    """Write the page of what `show` prints (`report.answer.answer_page`), if --html names one."""
    if page is None:
        return
    from schedmate.report.answer import answer_page

    write_output(page, answer_page(command, about, show, figures))
    say(f"page: {page}")


def is_job_id(word: str) -> bool:
    """Whether a word can be an id of a job of some cluster, and no file of that name is here."""
    if not re.fullmatch(r"\d[\d_+]*|[^/]+/[a-z]+/[^/]+", word) or Path(word).exists():
        return False
    from schedmate.cluster import clusters

    return any(kind.is_job_id(word) for kind in clusters())


def named_logs(words: list[str]) -> tuple[list[str], list[str]]:
    """The logs that are named, or those of the job whose id is named instead; and its nodes."""
    job = words[0] if len(words) == 1 else ""
    if not is_job_id(job):
        return words, []
    from schedmate.cluster.finding import logs_of_job

    found = logs_of_job(job, time.time())
    logs = [str(path) for path in found.paths]
    say(f"note: job {job} writes to {', '.join(logs)}.")
    if found.efficiency:
        say(f"note: it used {found.efficiency}.")
    return logs, found.spec.node_names


def announce_model(settings: Settings, what: str) -> None:
    """Print a note if parts of `what` will be sent to a model on another machine."""
    from schedmate.llm.endpoint import endpoint

    where = endpoint(settings.llm_base_url, settings.llm_model)
    if where is not None and not where.local:
        say(f"note: parts of {what}, without secrets, go to {where.place}")


# Options of commands that do much independent work: processes or Ray, and the journal.


RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help=(
            "Run on a Ray cluster (auto, HOST:PORT, ray://HOST:PORT or local) whose nodes "
            "see the inputs under the same paths. Needs schedmate[ray]."
        ),
    ),
]
ProcessesOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "--processes",
        "-j",
        min=1,
        metavar="N",
        help="How many are worked on at once on this machine. Default: one per core.",
    ),
]
JournalOption = Annotated[
    Path | None,
    typer.Option(
        "--journal",
        metavar="FILE",
        help=(
            "Record progress in this file, so that an interrupted command can be resumed "
            "by running it again."
        ),
    ),
]
ParquetOption = Annotated[
    Path | None,
    typer.Option(
        "--parquet",
        metavar="FILE",
        help="Also write the results as Parquet. Needs schedmate[parquet].",
    ),
]


@dataclass(frozen=True)
class Workers:
    """Where work is done: in a number of processes on this machine, or on a Ray cluster."""

    processes: int | None
    ray: str | None
    journal_file: Path | None = None

    @property
    def at_once(self) -> int:
        """Number of processes on this machine: the option's, else one per core."""
        return self.processes or len(os.sched_getaffinity(0))

    def check(self, *outputs: Path | None) -> None:
        """Raise `UsageError` for options that exclude each other, or when Ray is not installed.

        And `InputError` for an output in a directory that does not exist.
        """
        if self.ray is not None:
            if self.processes is not None:
                raise UsageError(
                    "--jobs is for this machine and --ray for a cluster; give one of them."
                )
            from schedmate.base.pool import require_ray_tasks

            require_ray_tasks()
        for path in outputs:
            if path is not None and not path.absolute().parent.is_dir():
                raise InputError(f"cannot write {path}: there is no such directory; make it first.")

    @contextmanager
    def journal(self, what: str) -> Iterator[Journal | None]:
        """The journal that --journal names, or None; for `what` see `Journal`."""
        if self.journal_file is None:
            yield None
            return
        from schedmate.base.journal import Journal

        with Journal(self.journal_file, what) as journal:
            yield journal


# Options of commands that read a trace, and the reading of it.


TraceArgument = Annotated[
    Path, typer.Argument(metavar="TRACE", help="CSV, Parquet or sacct file of jobs.")
]
MapOption = Annotated[
    str | None,
    typer.Option(
        "--map",
        metavar="FIELD=COLUMN,...",
        help=(
            "Columns of a trace of unknown format: submit=t0,duration=len:h,gpus=n; units "
            "of time are s, m, h or d."
        ),
    ),
]
SkipBadOption = Annotated[
    bool, typer.Option("--skip-bad", help="Skip bad rows instead of refusing the trace.")
]
OriginOption = Annotated[
    str | None,
    typer.Option(
        metavar="recorded|synthetic:WHAT",
        help=(
            "Origin of the jobs, if the trace does not state it: recorded on a cluster, "
            "or synthetic, such as 'synthetic: durations scaled'."
        ),
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "--out",
        "-o",
        metavar="FILE",
        help="CSV or .parquet file. Default: CSV to standard output.",
    ),
]
WorkloadsOption = Annotated[
    str | None,
    typer.Option(
        metavar="RECIPE[:SETTING=V,...]",
        help=(
            "Add synthetic workloads to the jobs: lucid:recurrence=0.8,spread=0.3,seed=1. "
            "Recipes: lucid, schedmate, or a YAML file."
        ),
    ),
]


def load_trace(
    trace: Path,
    columns: str | None,
    skip_bad: bool,
    workloads: str | None = None,
    tables: Path | None = None,
    origin: str | None = None,
) -> Workload:
    """The workload in a file, with what the reader noticed said on standard error.

    With `workloads`, its jobs are given types by that recipe.
    """
    from schedmate.base.objects import local_copy
    from schedmate.schedulers.sim.traces import read_trace

    recipe = None
    if workloads is not None:
        from schedmate.schedulers.sim.traces.assign import assign
        from schedmate.schedulers.sim.traces.recipe import parse_recipe

        recipe = parse_recipe(workloads)
    mapping = None
    if columns is not None:
        pairs = [part.partition("=") for part in columns.split(",")]
        if not all(field.strip() and column.strip() for field, _, column in pairs):
            raise UsageError(f"--map {columns!r}: write FIELD=COLUMN,FIELD=COLUMN.")
        mapping = {field.strip(): column.strip() for field, _, column in pairs}
    with local_copy(trace) as path:
        workload = read_trace(
            path, columns=mapping, skip_bad=skip_bad, tables=tables, origin=origin
        )
    if tables is not None and workload.tables is None:
        raise UsageError(
            f"--tables is for workloads of elastic jobs, and {trace} is not one; leave it out."
        )
    if recipe is not None:
        workload = assign(workload, *recipe)
    for note in workload.notes:
        say(f"note: {trace.name}: {note}.")
    return workload


def trace_origin(workload: Workload) -> dict[str, Any]:
    """What every document about a trace says of where its jobs come from."""
    return {
        "origin": workload.origin,
        "synthetic": workload.synthetic,
        "made_up": list(workload.made_up),
    }


def say_trace_written(workload: Workload, out: Path | None) -> None:
    """Say what was written to a file, and that it is synthetic if it is."""
    if out is not None:
        label = f", synthetic: {'; '.join(workload.made_up)}" * workload.synthetic
        say(f"{counted(len(workload), 'job')} written to {out}{label}")


# Completions that a shell offers for values: names of policies, estimators, placements.


def complete_policy(incomplete: str) -> list[str]:
    """Names of policies that begin with `incomplete`."""
    from schedmate.schedulers.registry import names

    return _beginning_with(names(), incomplete)


def complete_policies(incomplete: str) -> list[str]:
    """Completions of the last name in a comma-separated list of policies."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in complete_policy(last)]


def complete_estimators(incomplete: str) -> list[str]:
    """Names of estimators that begin so, up to where an argument of theirs is due."""
    from schedmate.schedulers.sim.runs import ESTIMATORS

    return _beginning_with((one.partition(":")[0] for one in ESTIMATORS), incomplete)


def complete_placements(incomplete: str) -> list[str]:
    """Names of placements that begin with `incomplete`."""
    from schedmate.schedulers.sim.runs import PLACEMENTS

    return _beginning_with(PLACEMENTS, incomplete)


def _beginning_with(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


# The warning of commands that read a directory as one job if it looks like several.


_LOG_ENDINGS = ("", ".log", ".out", ".err", ".txt", ".gz", ".zst")


def mixed_logs_warnings(path: str, log: Log, *, follow_links: bool) -> list[str]:
    """A warning where `path` is a directory whose files are hardly the ranks of one run, or a file
    of another format."""
    if len(log.files) == 1 and path != "-" and Path(path).suffix.lower() not in _LOG_ENDINGS:
        from schedmate.logparse.experiments import kind_of
        from schedmate.logparse.triage.recognise import why_no_log
        from schedmate.logparse.triage.targets import may_be_log

        if kind_of(Path(path)) is not None:
            return []
        why = why_no_log(log.files[0], named_otherwise=not may_be_log(Path(path)))
        return [] if why is None else [f"{path} is hardly a job's log: {why}."]
    if len(log.files) < 2:
        return []
    from schedmate.logparse.triage.runs import warn_if_mixed

    warning = warn_if_mixed(Path(path), log, follow_links=follow_links)
    return [] if warning is None else [warning]
