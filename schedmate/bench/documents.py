"""The files of the benchmark: labelled jobs or logs and answers about them, as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from schedmate.bench.verdicts import FAILURE, FIELDS, FURTHER
from schedmate.errors import InputError, did_you_mean, similar_file
from schedmate.jobs import LaunchConfig
from schedmate.plain import LARGEST
from schedmate.validation import sentence

ANSWER = "schedmate.bench-answer/v1"
LONGEST = 300
"""Characters of an answer: beyond every name of a model or data set."""

Some = TypeVar("Some", bound=BaseModel)


def _one_value(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        raise ValueError("has to be text, a number or null")
    if isinstance(value, str) and len(value) > LONGEST:
        raise ValueError(f"has to be at most {LONGEST} characters long")
    if isinstance(value, int | float) and not -LARGEST <= value <= LARGEST:
        raise ValueError("has to be a number of at most 64 bits")
    return value


Value = Annotated[str | int | float | None, BeforeValidator(_one_value)]

Answers: Any = create_model(
    "Answers",
    __config__=ConfigDict(extra="forbid"),
    **dict.fromkeys(FIELDS | FURTHER | FAILURE, (Value, None)),  # type: ignore[call-overload]
)


class Answer(BaseModel):
    """What somebody says of one job or log: a line of the file that `schedmate bench score` reads.

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

    fields: ClassVar = FIELDS
    further: ClassVar = FURTHER

    expected: dict[str, Any]
    also: dict[str, Any] = Field(default_factory=dict)


class LogLabel(BenchLog):
    """A log and the accepted answers; a field that is open is left out."""

    fields: ClassVar = FAILURE
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
            raise InputError(f"{path} labels launch commands; list them by `schedmate bench jobs`.")
        raise InputError(f"{path} labels logs; list them by `schedmate bench logs`.")
    return found


def read_labels(path: Path) -> dict[str, Label | LogLabel]:
    """The labelled jobs, or logs, of a file by id; raises `InputError` for what is neither."""
    found: dict[str, Label | LogLabel] = {}
    kind: type[Label | LogLabel] = LogLabel if '"sha256"' in _text(path)[:10_000] else Label
    for place, label in _lines(path, kind):
        if label.id in found:
            raise InputError(f"{place}: there are two labels {label.id!r}; give each its own id.")
        for labelled, known in ((label.expected, kind.fields), (label.also, kind.further)):
            for name in labelled.keys() - known.keys():
                raise InputError(f"{place}: there is no field {name!r}; see docs/benchmark.md.")
        found[label.id] = label
    if not found:
        names = "dev.jsonl, heldout.jsonl, unseen.jsonl or failures.jsonl"
        raise InputError(f"{path} has no labels; name {names}.")
    return found


def read_answers(path: Path, labels: dict[str, Label | LogLabel]) -> dict[str, dict[str, Any]]:
    """The answers of a file by id and field; raises `InputError` for what does not fit."""
    first = next(iter(labels.values()))
    known = first.fields | first.further
    command = "logs" if isinstance(first, LogLabel) else "jobs"
    found: dict[str, dict[str, Any]] = {}
    for place, answer in _lines(path, Answer):
        if answer.id not in labels:
            meant = did_you_mean(answer.id, labels)
            meant = meant or "; `schedmate bench jobs` and `schedmate bench logs` print them all."
            raise InputError(f"{place}: there is no label {answer.id!r}{meant}")
        if answer.id in found:
            raise InputError(f"{place}: {answer.id!r} is answered twice; keep one of the two.")
        for name in answer.answers.model_fields_set - known.keys():
            raise InputError(
                f"{place}: {command} have no field {name!r}; these have: {', '.join(known)}."
            )
        found[answer.id] = {name: getattr(answer.answers, name) for name in known}
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        hint = similar_file(path) or "; name a file of JSON lines."
        raise InputError(f"cannot read {str(path)!r}: {why}{hint}") from None


def _lines(path: Path, kind: type[Some]) -> Iterator[tuple[str, Some]]:
    """Each line of a file with where it is."""
    for number, line in enumerate(_text(path).split("\n"), 1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            yield place, kind.model_validate_json(line)
        except ValidationError as error:
            known = (*FIELDS, *FURTHER, *FAILURE, "id", "answers")
            raise InputError(f"{place}: {sentence(error, known, place='it')}") from None
