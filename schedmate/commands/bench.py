"""`schedmate bench`: labelled launch commands and logs of failures, and scores on them."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schedmate.commands.options import JsonOption
from schedmate.plain import dumps
from schedmate.terminal import counted

if TYPE_CHECKING:
    from schedmate.bench.scoring import ScoreRow
    from schedmate.terminal.screen import Table

JOB = "schedmate.bench-job/v1"
LOG = "schedmate.bench-log/v1"

app = typer.Typer(
    short_help="Score answers on the public benchmark.",
    help="Score answers on the public benchmark: what does a training job run, by its code and "
    "launch command, and what made a job fail, by its log? The labels are in schedmate's "
    "source repository, benchmarks/labels/dev.jsonl, heldout.jsonl, unseen.jsonl and "
    "failures.jsonl, not in the installed package (1 MB).",
    no_args_is_help=True,
)

LabelsOption = Annotated[
    Path,
    typer.Option(
        "--labels",
        metavar="FILE",
        help="Labels: benchmarks/labels/heldout.jsonl, unseen.jsonl or dev.jsonl (jobs) or "
        "failures.jsonl (logs) of the source repository.",
        show_default=False,
    ),
]


@app.command("jobs")
def jobs(labels: LabelsOption) -> None:
    """Print the jobs to answer for, without their labels, as JSON lines.

    Each has an id, a repository on GitHub, a commit, the launch command and, where it is known,
    the GPUs and nodes that the scheduler gives.
    """
    from schedmate.bench.documents import BenchJob, job_labels

    for label in job_labels(labels).values():
        job = BenchJob.model_validate(label.model_dump(include=set(BenchJob.model_fields)))
        typer.echo(dumps({"schema": JOB, **job.model_dump(mode="json", exclude_none=True)}))


@app.command("logs")
def logs(
    labels: LabelsOption,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="Find the logs in the files below DIR: logs, notebooks, pages saved as text or "
            "Markdown, and JSON of an API. Needs --out.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="Write them there as ID.log.", show_default=False
        ),
    ] = None,
) -> None:
    """Print the logs to answer for, without their labels, as JSON lines.

    The benchmark holds no logs. Each line says where a log is public, and its SHA-256. With --from
    and --out, each log is found by its SHA-256 in the pages and files that you saved, and only the
    logs that were found are printed.
    """
    from schedmate.bench.documents import BenchLog, log_labels
    from schedmate.bench.finding import find_logs
    from schedmate.errors import UsageError
    from schedmate.terminal import progress

    if (source is None) != (out is None):
        raise UsageError("--from and --out go together: where to look, and where to write.")
    known = log_labels(labels)
    named = list(known)
    if source is not None and out is not None:
        with progress("reading") as advance:
            number = count(1)
            named = find_logs(source, known, out, lambda path: advance(next(number), path.name))
        typer.echo(f"{len(named):,} of {len(known):,} logs found", err=True)
    for name in named:
        log = BenchLog.model_validate(known[name].model_dump(include=set(BenchLog.model_fields)))
        typer.echo(dumps({"schema": LOG, **log.model_dump(mode="json")}))


@app.command("score")
def score_answers(
    answers: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help='Answers as JSON lines: {"id": "...", "answers": {"iters": 90, "valid": null}}, '
            'or of a log {"error_type": "script", "line": 7}.',
            show_default=False,
        ),
    ],
    labels: LabelsOption,
    answered: Annotated[
        bool,
        typer.Option(
            "--answered",
            help="Count only what FILE answers. Default: the others count as answered with null.",
        ),
    ] = False,
    cases: Annotated[
        bool, typer.Option("--cases", help="List the wrong and missing answers.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Score answers by field: right, wrong, missing, spurious.

    An answer of null is missing if the label has a value; a value is spurious if the label has
    none. The interval of the accuracy (95 %, Wilson) is clustered by repository.
    """
    from schedmate.bench.documents import LogLabel, read_answers, read_labels
    from schedmate.bench.scoring import SCORE, score
    from schedmate.terminal.screen import Screen

    known = read_labels(labels)
    made = score(
        known,
        read_answers(answers, known),
        names=(labels.name, answers.name),
        answered_only=answered,
        cases=cases,
    )
    if as_json:
        typer.echo(dumps({"schema": SCORE, **made}, indent=2))
        return
    screen = Screen(sys.stdout)
    for case in made.get("cases", ()):
        screen.line(
            f"{case['id']}: {case['field']} {case['verdict']}: got {dumps(case['got'])}, "
            f"expected {dumps(case['expected'])}"
        )
    screen.table(_table(made["fields"]))
    if made["further"]:
        screen.line()
        screen.line("Further fields, which some jobs have labels for:", "heading")
        screen.table(_table(made["further"]))
    screen.line()
    what = "log" if isinstance(next(iter(known.values())), LogLabel) else "job"
    jobs_counted = counted(made["jobs"], what)
    several = "repository" if made["repositories"] == 1 else "repositories"
    where = f"{made['labels']}: {jobs_counted} of {made['repositories']:,} {several}"
    without = counted(made["unanswered"], f"labelled {what}")
    how = "not counted" if answered else "counted as all null"
    rest = f"; {without} without a line in {made['answers']}, {how}" if made["unanswered"] else ""
    screen.line(f"{where}{rest}")


def _table(rows: list[ScoreRow]) -> Table:
    from schedmate.terminal.screen import Table

    numbers = ("right", "wrong", "missing", "spurious", "of", "accuracy")
    table = Table("field", *numbers, "95 % interval", right=numbers)
    for row in rows:
        shares = ("-", "-")
        if row["accuracy"] is not None:
            shares = (f"{row['accuracy']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}")
        counts = (row["right"], row["wrong"], row["missing"], row["spurious"], row["of"])
        table.add(row["field"], *(f"{count:,}" for count in counts), *shares)
    return table
