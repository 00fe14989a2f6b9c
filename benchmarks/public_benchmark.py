"""The public benchmark: what jobs train, by their code; why they failed, by their logs.

    python benchmarks/public_benchmark.py jobs --labels benchmarks/labels/heldout.jsonl
    python benchmarks/public_benchmark.py logs --labels benchmarks/labels/failures.jsonl
    python benchmarks/public_benchmark.py score ANSWERS --labels FILE

Prints the jobs or logs to answer for, without their labels; finds labelled logs in files that the
user saved, by their checksums; and scores answers beside labels, with how sure their shares are.
Labels and answers are JSON lines; docs/benchmark.md describes both.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import count
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NotRequired, TypeVar

import typer
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from typing_extensions import TypedDict

from schedmate.base.data import LARGEST, dumps
from schedmate.base.errors import InputError, SchedmateError, UsageError, did_you_mean, similar_file
from schedmate.base.files import replaced
from schedmate.base.inputs import fault_sentence
from schedmate.base.terminal import Screen, Table, counted, progress, say
from schedmate.commands.options import JsonOption
from schedmate.jobs import LaunchConfig

# When an answer about a field of a job or a log is right, and the counts by field.
#
# A string is right when, letters and digits only and in lower case, it equals an accepted form, or
# an accepted form is a whole run of its `/`-separated parts: `data/cifar10/train` is right where
# `CIFAR-10` is accepted, `cifar100` is not. Numbers must be equal.


MANDATORY_FIELDS = {
    "model_name": "model_config.model_name",
    "task_type": "model_config.task_type",
    "iters": "training_config.iters",
    "iter_type": "training_config.iter_type",
    "train": "dataset_config.train",
    "valid": "dataset_config.valid",
}
"""The mandatory fields by their names in labels, with their paths in `WorkloadMetadata`."""

FURTHER_FIELDS = {
    name: f"training_config.{name}"
    for name in (
        "optimizer",
        "lr",
        "precision",
        "batch_size",
        "per_device_batch_size",
        "global_batch_size",
        "gradient_accumulation_steps",
        "tensor_parallel",
        "pipeline_parallel",
        "data_parallel",
        "num_gpus",
        "num_nodes",
    )
}
"""Fields that some jobs have labels for; they are counted apart."""

FAILURE_FIELDS = {name: name for name in ("error_type", "error_name", "line", "faulty_component")}
"""What is asked about a log, as in a `Diagnosis`; `line` is the first failing one, from 1."""

Verdict = Literal["right", "wrong", "missing", "spurious"]


class FieldRow(TypedDict):
    """Answers by verdict, `of` all of them; `accuracy` is the share that is right [0 to 1].

    `missing`: no answer where the code has one; `spurious`: an answer where the code has none.
    """

    field: str
    right: int
    wrong: int
    missing: int
    spurious: int
    of: int
    accuracy: float | None


def normal_form(text: str) -> str:
    """The text in lower case, letters and digits only."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def is_right(got: Any, accepted: Any) -> bool:
    """Whether an answer is one of the accepted forms; None says that the code does not tell."""
    options = accepted if isinstance(accepted, list) else [accepted]
    if got is None:
        return None in options
    if isinstance(got, int | float):
        return any(isinstance(o, int | float) and float(o) == float(got) for o in options)
    options = [option for option in options if option is not None]
    parts = str(got).split("/")
    runs = {
        normal_form("/".join(parts[i:j]))
        for i in range(len(parts))
        for j in range(i + 1, len(parts) + 1)
    }
    return any(normal_form(str(option)) in runs for option in options)


def verdict(got: Any, accepted: Any) -> Verdict:
    """What an answer is beside the accepted forms."""
    if is_right(got, accepted):
        return "right"
    if got is None:
        return "missing"
    return "spurious" if accepted is None else "wrong"


def rows_by_field(counts: Mapping[str, Counter[str]]) -> list[FieldRow]:
    """A row for each field, and one for all."""
    rows = [_field_row(field, counter) for field, counter in counts.items()]
    return [*rows, _field_row("all", sum(counts.values(), Counter()))]


def _field_row(field: str, counter: Counter[str]) -> FieldRow:
    total = sum(counter.values())
    return {
        "field": field,
        "right": counter["right"],
        "wrong": counter["wrong"],
        "missing": counter["missing"],
        "spurious": counter["spurious"],
        "of": total,
        "accuracy": round(counter["right"] / total, 3) if total else None,
    }


# Answers beside labels: counts by field, and how sure their shares are.
#
# Jobs of one repository share code and are right or wrong together, so intervals are clustered by
# repository: Wilson's interval for the effective sample size, which is the number of answers over
# the design effect (Dean and Pagano, J. Survey Stat. Methodol. 3, 2015), the variance of the share
# between repositories over that of as many independent answers.

SCORE_SCHEMA = "schedmate.bench-score/v1"
Z = 1.96


class ScoreRow(FieldRow):
    """A field's counts, with the 95 % interval of the accuracy, clustered by repository."""

    low: float | None
    high: float | None


class Case(TypedDict):
    """One answer and its verdict; `expected` are the accepted forms."""

    id: str
    field: str
    verdict: str
    got: Any
    expected: Any


class BenchScore(TypedDict):
    """Output of `public_benchmark.py score --json`.

    `jobs` (or logs) and `repositories` are those counted, `unanswered` the labelled jobs that the
    file has no line for: they count as answered with null, unless `answered_only`. `fields` are the
    six mandatory fields of jobs or the four of logs, `further` those that some jobs have labels
    for. With `--cases`, `cases` are the answers that are not right.
    """

    labels: str
    answers: str
    answered_only: bool
    jobs: int
    repositories: int
    unanswered: int
    fields: list[ScoreRow]
    further: list[ScoreRow]
    cases: NotRequired[list[Case]]


def judge(
    labels: Iterable[Label | LogLabel], answers: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, Case]]:
    """The repository of each labelled field of each job or log, and the verdict on its answer."""
    judged = []
    for label in labels:
        given = answers.get(label.id, {})
        for field, accepted in (label.expected | label.also).items():
            got = given.get(field)
            outcome = verdict(got, accepted)
            case = Case(id=label.id, field=field, verdict=outcome, got=got, expected=accepted)
            judged.append((label.repo, case))
    return judged


def score_table(judged: Iterable[tuple[str, Case]], fields: Iterable[str]) -> list[ScoreRow]:
    """A row for each of the fields that has labels, and one for all of them, if any has."""
    wanted = list(fields)
    verdicts: dict[str, list[tuple[str, str]]] = {name: [] for name in wanted}
    for repo, case in judged:
        if case["field"] in verdicts:
            verdicts[case["field"]].append((repo, case["verdict"]))
    verdicts = {name: found for name, found in verdicts.items() if found}
    if not verdicts:
        return []
    rows = rows_by_field({name: Counter(v for _, v in found) for name, found in verdicts.items()})
    verdicts["all"] = [one for found in verdicts.values() for one in found]
    scored = []
    for row in rows:
        low, high = share_interval((repo, v == "right") for repo, v in verdicts[row["field"]])
        scored.append(ScoreRow(**row, low=low, high=high))
    return scored


def share_interval(outcomes: Iterable[tuple[str, bool]]) -> tuple[float | None, float | None]:
    """The 95 % interval of a share from (cluster, success) pairs; (None, None) of nothing."""
    clusters: dict[str, list[bool]] = defaultdict(list)
    for cluster, success in outcomes:
        clusters[cluster].append(success)
    total = sum(map(len, clusters.values()))
    if not total:
        return None, None
    share = sum(map(sum, clusters.values())) / total
    if 0 < share < 1:
        between = sum((sum(each) - share * len(each)) ** 2 for each in clusters.values())
        effective = total / max(1.0, between / (share * (1 - share) * total))
    else:  # no variance to see: as if each repository were one answer
        effective = len(clusters)
    middle = (share + Z * Z / (2 * effective)) / (1 + Z * Z / effective)
    spread = math.sqrt(share * (1 - share) / effective + (Z / effective / 2) ** 2)
    half = Z / (1 + Z * Z / effective) * spread
    return round(max(0.0, middle - half), 3), round(min(1.0, middle + half), 3)


def score(
    labels: Mapping[str, Label | LogLabel],
    answers: Mapping[str, Mapping[str, Any]],
    *,
    names: tuple[str, str],
    answered_only: bool = False,
    cases: bool = False,
) -> BenchScore:
    """Score answers against labels; `names` are what the two files are called."""
    chosen = [one for one in labels.values() if one.id in answers or not answered_only]
    judged = judge(chosen, answers)
    first = next(iter(labels.values()))
    made = BenchScore(
        labels=names[0],
        answers=names[1],
        answered_only=answered_only,
        jobs=len(chosen),
        repositories=len({one.repo for one in chosen}),
        unanswered=len(labels) - len(answers),
        fields=score_table(judged, first.fields),
        further=score_table(judged, first.further),
    )
    if cases:
        made["cases"] = [case for _, case in judged if case["verdict"] != "right"]
    return made


# The files of the benchmark: labelled jobs or logs and answers about them, as JSON lines.


ANSWER_SCHEMA = "schedmate.bench-answer/v1"
LONGEST_ANSWER = 300
"""Characters of an answer: beyond every name of a model or data set."""

Some = TypeVar("Some", bound=BaseModel)


def _one_value(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        raise ValueError("has to be text, a number or null")
    if isinstance(value, str) and len(value) > LONGEST_ANSWER:
        raise ValueError(f"has to be at most {LONGEST_ANSWER} characters long")
    if isinstance(value, int | float) and not -LARGEST <= value <= LARGEST:
        raise ValueError("has to be a number of at most 64 bits")
    return value


Value = Annotated[str | int | float | None, BeforeValidator(_one_value)]

Answers: Any = create_model(
    "Answers",
    __config__=ConfigDict(extra="forbid"),
    **dict.fromkeys(MANDATORY_FIELDS | FURTHER_FIELDS | FAILURE_FIELDS, (Value, None)),  # type: ignore[call-overload]
)


class Answer(BaseModel):
    """What somebody says of one job or log: a line of what `public_benchmark.py score` reads.

    A field that is left out or null says that the code or the log does not tell.
    """

    model_config = ConfigDict(extra="forbid")

    document: Literal["schedmate.bench-answer/v1"] | None = Field(None, alias="schema")
    id: str
    answers: Answers


class BenchJob(BaseModel):
    """A job to answer for: its repository on GitHub, the commit, and its launch command."""

    id: str
    repo: str
    commit: str
    command: str
    launch: LaunchConfig = Field(default_factory=LaunchConfig)


class BenchLog(BaseModel):
    """A log to answer for, which is not part of the benchmark: where it is, and its SHA-256.

    `source` is the address of a public page that quotes the log, or OWNER/REPO@COMMIT:PATH of a
    file on GitHub; `repo` is the repository of either.
    """

    id: str = Field(pattern=r"^\w[\w.-]*$")
    repo: str
    source: str
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Label(BenchJob):
    """A job and the accepted answers; a field that was not labelled is left out."""

    fields: ClassVar = MANDATORY_FIELDS
    further: ClassVar = FURTHER_FIELDS

    expected: dict[str, Any]
    also: dict[str, Any] = Field(default_factory=dict)


class LogLabel(BenchLog):
    """A log and the accepted answers; a field that is open is left out."""

    fields: ClassVar = FAILURE_FIELDS
    further: ClassVar[dict[str, str]] = {}

    expected: dict[str, Any]
    also: dict[str, Any] = Field(default_factory=dict, max_length=0)


def job_labels(path: Path) -> dict[str, Label]:
    """The labelled jobs of a file by id; raises `InputError` for what is none."""
    return _of_kind(path, Label)


def log_labels(path: Path) -> dict[str, LogLabel]:
    """The labelled logs of a file by id; raises `InputError` for what is none."""
    return _of_kind(path, LogLabel)


def _of_kind(path: Path, kind: type[Some]) -> dict[str, Some]:
    labels = read_labels(path)
    found: dict[str, Some] = {name: one for name, one in labels.items() if isinstance(one, kind)}
    if not found:
        if kind is LogLabel:
            raise InputError(
                f"{path} labels launch commands; list them by `public_benchmark.py jobs`."
            )
        raise InputError(f"{path} labels logs; list them by `public_benchmark.py logs`.")
    return found


def read_labels(path: Path) -> dict[str, Label | LogLabel]:
    """The labelled jobs, or logs, of a file by id; raises `InputError` for what is neither."""
    found: dict[str, Label | LogLabel] = {}
    kind: type[Label | LogLabel] = LogLabel if '"sha256"' in _text_of_file(path)[:10_000] else Label
    for place, label in _numbered_lines(path, kind):
        if label.id in found:
            raise InputError(f"{place}: there are two labels {label.id!r}; give each its own id.")
        for labelled, known in ((label.expected, kind.fields), (label.also, kind.further)):
            for name in labelled.keys() - known.keys():
                raise InputError(f"{place}: there is no field {name!r}; see docs/benchmark.md.")
        found[label.id] = label
    if not found:
        names = "dev.jsonl, heldout.jsonl, unseen.jsonl, unread.jsonl or failures.jsonl"
        raise InputError(f"{path} has no labels; name {names}.")
    return found


def read_answers(path: Path, labels: dict[str, Label | LogLabel]) -> dict[str, dict[str, Any]]:
    """The answers of a file by id and field; raises `InputError` for what does not fit."""
    first = next(iter(labels.values()))
    known = first.fields | first.further
    command = "logs" if isinstance(first, LogLabel) else "jobs"
    found: dict[str, dict[str, Any]] = {}
    for place, answer in _numbered_lines(path, Answer):
        if answer.id not in labels:
            meant = did_you_mean(answer.id, labels)
            meant = (
                meant
                or "; `public_benchmark.py jobs` and `public_benchmark.py logs` print them all."
            )
            raise InputError(f"{place}: there is no label {answer.id!r}{meant}")
        if answer.id in found:
            raise InputError(f"{place}: {answer.id!r} is answered twice; keep one of the two.")
        for name in answer.answers.model_fields_set - known.keys():
            raise InputError(
                f"{place}: {command} have no field {name!r}; these have: {', '.join(known)}."
            )
        found[answer.id] = {name: getattr(answer.answers, name) for name in known}
    return found


def _text_of_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        hint = similar_file(path) or "; name a file of JSON lines."
        raise InputError(f"cannot read {str(path)!r}: {why}{hint}") from None


def _numbered_lines(path: Path, kind: type[Some]) -> Iterator[tuple[str, Some]]:
    """Each line of a file with where it is."""
    for number, line in enumerate(_text_of_file(path).split("\n"), 1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            yield place, kind.model_validate_json(line)
        except ValidationError as error:
            known = (*MANDATORY_FIELDS, *FURTHER_FIELDS, *FAILURE_FIELDS, "id", "answers")
            raise InputError(f"{place}: {fault_sentence(error, known, place='it')}") from None


# Labelled logs in files that the user saved, found by their checksums.
#
# The benchmark holds no log, only where each one is and its SHA-256. A log is a whole file, or
# what a notebook's cell printed, or lines of a public page: of the page saved as text or Markdown,
# or of the answer of an API in JSON, whose texts are looked through one by one.


LARGEST_PAGE = 1 << 20
MOST_PAGE_LINES = 3000
"""The largest text of which all runs of lines are tried: work grows with the square of them."""
LARGEST_JSON = 64 << 20


def find_logs(
    folder: Path, labels: Mapping[str, LogLabel], out: Path, each: Callable[[Path], None]
) -> list[str]:
    """Write each labelled log that a file below `folder` holds to `out`/ID.log.

    `each` is called with each file before it is read. Gives the ids that were found, in the order
    of the labels. Raises `InputError` where `folder` is none or `out` cannot be written.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no directory; name the one with the pages and files.")
    wanted: dict[str, list[str]] = {}
    for label in labels.values():
        wanted.setdefault(label.sha256, []).append(label.id)
    found: set[str] = set()
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path in sorted(one for one in folder.rglob("*") if one.is_file()):
            each(path)
            for checksum, text in logs_in(path, wanted.keys()):
                for name in wanted[checksum]:
                    with replaced(out / f"{name}.log") as target:
                        target.write_bytes(text)
                    found.add(name)
    except OSError as error:
        raise InputError(
            f"{error.filename or folder}: {error.strerror}; check its rights."
        ) from None
    return [name for name in labels if name in found]


def logs_in(path: Path, wanted: AbstractSet[str]) -> Iterator[tuple[str, bytes]]:
    """The wanted logs that a file holds: their SHA-256 and text."""
    with path.open("rb") as file:
        whole = hashlib.file_digest(file, "sha256").hexdigest()
    if whole in wanted:
        yield whole, path.read_bytes()
        return
    length = path.stat().st_size
    if path.suffix in (".json", ".ipynb") and length <= LARGEST_JSON:
        try:
            document = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            return
        for text in _texts_of_json(document):
            yield from _matching_runs(text, wanted)
    elif length <= LARGEST_PAGE:
        yield from _matching_runs(path.read_bytes().decode(errors="replace"), wanted)


def _texts_of_json(document: Any) -> Iterator[str]:
    """The texts of a JSON document; a list of nothing but lines is one, as in notebooks."""
    open_ones = [document]
    while open_ones:
        one = open_ones.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            open_ones += one.values()
        elif isinstance(one, list) and all(isinstance(part, str) for part in one):
            yield "".join(one)
        elif isinstance(one, list):
            open_ones += one


def _matching_runs(text: str, wanted: AbstractSet[str]) -> Iterator[tuple[str, bytes]]:
    """Runs of lines with a wanted checksum, with and without the last line's end."""
    lines = [line.encode(errors="surrogatepass") for line in text.replace("\r\n", "\n").split("\n")]
    if len(text) > LARGEST_PAGE or len(lines) > MOST_PAGE_LINES:
        return
    for first in range(len(lines)):
        so_far = hashlib.sha256()
        for last in range(first, len(lines)):
            so_far.update(lines[last])
            bare = so_far.hexdigest()
            so_far.update(b"\n")
            for checksum, end in ((bare, b""), (so_far.hexdigest(), b"\n")):
                if checksum in wanted:
                    yield checksum, b"\n".join(lines[first : last + 1]) + end


# The command line.


JOB = "schedmate.bench-job/v1"
LOG = "schedmate.bench-log/v1"

app = typer.Typer(
    help="Score answers on the public benchmark: what does a training job run, by its code and "
    "launch command, and what made a job fail, by its log? The labels are in benchmarks/labels: "
    "dev.jsonl, heldout.jsonl, unseen.jsonl, unread.jsonl and failures.jsonl.",
    no_args_is_help=True,
)

LabelsOption = Annotated[
    Path,
    typer.Option(
        "--labels",
        metavar="FILE",
        help="Labels: benchmarks/labels/heldout.jsonl, unseen.jsonl or dev.jsonl (jobs) or "
        "failures.jsonl (logs).",
        show_default=False,
    ),
]


@app.command("jobs")
def jobs(labels: LabelsOption) -> None:
    """Print the jobs to answer for, without their labels, as JSON lines.

    Each has an id, a repository on GitHub, a commit, the launch command and, where it is known,
    the GPUs and nodes that the scheduler gives.
    """
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
    known = read_labels(labels)
    made = score(
        known,
        read_answers(answers, known),
        names=(labels.name, answers.name),
        answered_only=answered,
        cases=cases,
    )
    if as_json:
        typer.echo(dumps({"schema": SCORE_SCHEMA, **made}, indent=2))
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
    numbers = ("right", "wrong", "missing", "spurious", "of", "accuracy")
    table = Table("field", *numbers, "95 % interval", right=numbers)
    for row in rows:
        shares = ("-", "-")
        if row["accuracy"] is not None:
            shares = (f"{row['accuracy']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}")
        counts = (row["right"], row["wrong"], row["missing"], row["spurious"], row["of"])
        table.add(row["field"], *(f"{count:,}" for count in counts), *shares)
    return table


def main() -> None:
    """Run the command line; wrong input is one sentence and schedmate's exit code for it."""
    try:
        app()
    except SchedmateError as error:
        say(f"error: {error}")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
