"""The files of the benchmark: labelled jobs and answers about them, as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from schedmate.bench.verdicts import FIELDS, FURTHER
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
    **dict.fromkeys(FIELDS | FURTHER, (Value, None)),  # type: ignore[call-overload]
)


class Answer(BaseModel):
    """What somebody says of one job: a line of the file that `schedmate bench score` reads.

    A field that is left out or null says that the code does not tell.
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


class Label(BenchJob):
    """A job and the accepted answers; a field that was not labelled is left out."""

    expected: dict[str, Any]
    also: dict[str, Any] = Field(default_factory=dict)


def read_labels(path: Path) -> dict[str, Label]:
    """The labelled jobs of a file by id; raises `InputError` for what is none."""
    found: dict[str, Label] = {}
    for place, label in _lines(path, Label):
        if label.id in found:
            raise InputError(f"{place}: there are two jobs {label.id!r}; give each its own id.")
        for kind, known in ((label.expected, FIELDS), (label.also, FURTHER)):
            for name in kind.keys() - known.keys():
                raise InputError(f"{place}: there is no field {name!r}; see docs/benchmark.md.")
        found[label.id] = label
    if not found:
        raise InputError(f"{path} has no labelled job; name dev.jsonl or heldout.jsonl.")
    return found


def read_answers(path: Path, labels: dict[str, Label]) -> dict[str, dict[str, Any]]:
    """The answers of a file by job and field; raises `InputError` for what does not fit."""
    found: dict[str, dict[str, Any]] = {}
    for place, answer in _lines(path, Answer):
        if answer.id not in labels:
            meant = did_you_mean(answer.id, labels) or "; `schedmate bench jobs` prints them all."
            raise InputError(f"{place}: there is no labelled job {answer.id!r}{meant}")
        if answer.id in found:
            raise InputError(f"{place}: {answer.id!r} is answered twice; keep one of the two.")
        found[answer.id] = answer.answers.model_dump()
    return found


def _lines(path: Path, kind: type[Some]) -> Iterator[tuple[str, Some]]:
    """Each line of a file with where it is."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        hint = similar_file(path) or "; name a file of JSON lines."
        raise InputError(f"cannot read {str(path)!r}: {why}{hint}") from None
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            yield place, kind.model_validate_json(line)
        except ValidationError as error:
            fault = sentence(error, (*FIELDS, *FURTHER, "id", "answers"), place="it")
            raise InputError(f"{place}: {fault}") from None
