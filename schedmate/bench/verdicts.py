"""When an answer about a field of a job or a log is right, and the counts by field.

A string is right when, letters and digits only and in lower case, it equals an accepted form, or
an accepted form is a whole run of its `/`-separated parts: `data/cifar10/train` is right where
`CIFAR-10` is accepted, `cifar100` is not. Numbers must be equal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from typing_extensions import TypedDict

FIELDS = {
    "model_name": "model_config.model_name",
    "task_type": "model_config.task_type",
    "iters": "training_config.iters",
    "iter_type": "training_config.iter_type",
    "train": "dataset_config.train",
    "valid": "dataset_config.valid",
}
"""The mandatory fields by their names in labels, with their paths in `WorkloadMetadata`."""

FURTHER = {
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

FAILURE = {name: name for name in ("error_type", "error_name", "line", "faulty_component")}
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


def normal(text: str) -> str:
    """The text in lower case, letters and digits only."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def right(got: Any, accepted: Any) -> bool:
    """Whether an answer is one of the accepted forms; None says that the code does not tell."""
    options = accepted if isinstance(accepted, list) else [accepted]
    if got is None:
        return None in options
    if isinstance(got, int | float):
        return any(isinstance(o, int | float) and float(o) == float(got) for o in options)
    options = [option for option in options if option is not None]
    parts = str(got).split("/")
    runs = {
        normal("/".join(parts[i:j]))
        for i in range(len(parts))
        for j in range(i + 1, len(parts) + 1)
    }
    return any(normal(str(option)) in runs for option in options)


def verdict(got: Any, accepted: Any) -> Verdict:
    """What an answer is beside the accepted forms."""
    if right(got, accepted):
        return "right"
    if got is None:
        return "missing"
    return "spurious" if accepted is None else "wrong"


def by_field(counts: Mapping[str, Counter[str]]) -> list[FieldRow]:
    """A row for each field, and one for all."""
    rows = [_row(field, counter) for field, counter in counts.items()]
    return [*rows, _row("all", sum(counts.values(), Counter()))]


def _row(field: str, counter: Counter[str]) -> FieldRow:
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
