"""The text of a job that is embedded, and the similarity from which two jobs are "the same
work".

`render` writes one line of model, dataset and task: only what a job *is* takes part, since raw
JSON drowns that in hyperparameters that most jobs share (see benchmarks/embedding.py for what
each part is worth).

`calibrate` measures the threshold with an embedder. `labelled.yaml` names workloads, other
spellings and other names of the same work, and the most similar workloads that are other work.
The run time of a wrong workload is worse than none, since a scheduler has a fallback; so the
threshold is the lowest that accepts 1 % of those near misses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from schedmate.base.data import load
from schedmate.jobs import WorkloadMetadata
from schedmate.jobs.metadata import LONGEST_NAME

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from schedmate.retrieval.embedders import Embedder


RENDERING_VERSION = 2
"""Raised when the text of the same metadata changes: stored vectors then need a rebuild."""

_FILE_ENDING = re.compile(
    r"\.(?:pth?|ckpt|bin|safetensors|onnx|h5|pkl|npz?|py|ya?ml|jsonl?|csv|tsv|txt|parquet|arrow"
    r"|tar|gz|zip)$"
)
_PART = re.compile(
    r"[a-z]{2}(?:[-_][a-z]{2})?|main|default|plain_text|train|all|full|small|large|raw|v?\d[\d.]*k?"
)
"""Subsets that say nothing without their dataset: languages, versions, sizes."""
_OWNER = re.compile(rf"^[\w.-]+/(?!(?:{_PART.pattern})$)(?=[\w.-]+$)")
_PACKAGE = re.compile(
    r"^(?:(?:[a-z_]\w*\.){2,}|(?:models?|nn|nets?|networks?|modules|backbones|datasets|torchvision"
    r"|timm|transformers|keras)\.)(?=[a-z_])"
)
"""Several dotted words, or one that only packages are called: timm's `resnet50.a1_in1k` is none."""


def render(metadata: WorkloadMetadata) -> str:
    """One line: `model resnet50; dataset cifar10; task cv`.

    That of a job that is no training begins with its kind, and has the data or tasks of that kind:
    `kind evaluation; model gpt j 6b; dataset hellaswag; task nlp`.
    """
    parts = (
        ("kind", "" if metadata.family == "training" else metadata.job_kind),
        ("model", spell(metadata.model.model_name)),
        ("dataset", spell(metadata.data_name)),
        ("task", spell(metadata.model.task_type)),
    )
    return "; ".join(f"{name} {text}" for name, text in parts if text)


def spell(name: str | None) -> str:
    """A name without its hub owner, package or file ending, in lower case, its words set apart.

    `google/vit-base`, `timm.models.vit_base` and `ViT-Base.pth` all come out as `vit base`.
    """
    text = (name or "")[:LONGEST_NAME].strip().lower()
    for superfluous in (_FILE_ENDING, _OWNER, _PACKAGE):
        text = superfluous.sub("", text)
    return re.sub(r"[^a-z0-9]+", " ", text).strip()


def with_doubt(closeness: float, asked: WorkloadMetadata, past: WorkloadMetadata) -> float:
    """A closeness of two jobs, 0 to 1, in which names that are unsure count by their confidence.

    What two jobs agree in says less where either of them may be misread, and so does what they
    differ in: a field that is 60 % sure counts 0.6 either way. Whether two jobs are similar at all
    is not decided by this, but by the cosine similarity of what is read.
    """
    if not (_doubted(asked) or _doubted(past)):
        return closeness
    agreeing: list[float] = []
    differing: list[float] = []
    for field, past_field, name, past_name in _compared(asked, past):
        trust = min(_trust(asked, field), _trust(past, past_field))
        (agreeing if spell(name) == spell(past_name) else differing).append(trust)
    apart = (1.0 - closeness) * (fmean(differing) if differing else 1.0)
    return (1.0 - apart) * (fmean(agreeing) if agreeing else 1.0)


_NAMES = ("model_config.model_name", "model_config.task_type")


def _doubted(metadata: WorkloadMetadata) -> bool:
    """Whether a name that jobs are compared by is unsure."""
    return any(_trust(metadata, field) < 1.0 for field in (*_NAMES, metadata.data_field))


def _compared(
    asked: WorkloadMetadata, past: WorkloadMetadata
) -> Iterator[tuple[str, str, str | None, str | None]]:
    """The fields that two jobs are compared by, and their names there."""
    for field in _NAMES:
        yield field, field, asked.get(field), past.get(field)
    yield asked.data_field, past.data_field, asked.data_name, past.data_name


def _trust(metadata: WorkloadMetadata, field: str) -> float:
    """How much a field counts: all of it where it is sure or not known how sure it is."""
    proof = metadata.evidence.get(field)
    return 1.0 if proof is None or not proof.unsure else proof.confidence


# The cosine similarity from which two jobs are "the same work" with an embedder, measured.
#
# `labelled.yaml` names workloads, other spellings and other names of the same work, and the most
# similar workloads that are other work. The run time of a wrong workload is worse than none, since
# a scheduler has a fallback; so the threshold is the lowest that accepts 1 % of those near misses.


WorkName = tuple[str, str, str]
"""Task, model and dataset."""

ACCEPTED_MISSES = 0.01
"""Accepted share of near misses of either kind, another model or another dataset."""


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    """A new job's name for its work, the past job that is the same work, and near misses."""

    kind: str
    asked: WorkName
    right: WorkName
    wrong: tuple[WorkName, ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    """A threshold, and the share of pairs [0 to 1] that it accepts.

    It is chosen on every second query of the labelled set; the shares are those of the others.
    """

    threshold: float
    same_spelt_otherwise: float
    same_named_otherwise: float
    other_model: float
    other_dataset: float


def labelled_queries() -> list[LabelledQuery]:
    """The labelled set."""
    return [
        LabelledQuery(
            kind,
            (task, *asked),
            (task, *right),
            (
                *((task, model, right[1]) for model in models),
                *((task, right[0], data) for data in datasets),
            ),
        )
        for kind, task, asked, right, models, datasets in load("retrieval/labelled.yaml")
    ]


def calibrate(embedder: Embedder, threshold: float | None = None) -> Calibration:
    """The threshold that this embedder needs, or what a given one accepts.

    Embeds about a thousand short texts. Raises what the embedder raises.
    """
    # the right job of a variant is only the nearest one, not the same work
    queries = [query for query in labelled_queries() if query.kind != "variant"]
    jobs = {job for query in queries for job in (query.asked, query.right, *query.wrong)}
    texts = {job: _rendered_job(job) for job in sorted(jobs)}
    distinct = sorted(set(texts.values()))
    by_text = dict(zip(distinct, embedder.embed(distinct), strict=True))
    vectors = {job: by_text[text] for job, text in texts.items()}
    if threshold is None:
        misses = _similarities(queries[::2], vectors)
        threshold = max(_letting_through(misses["model"]), _letting_through(misses["dataset"]))
    passed = {
        kind: sum(value >= threshold for value in values) / len(values)
        for kind, values in _similarities(queries[1::2], vectors).items()
    }
    return Calibration(
        threshold, passed["spelling"], passed["alias"], passed["model"], passed["dataset"]
    )


def _similarities(
    queries: Sequence[LabelledQuery], vectors: dict[WorkName, NDArray[float32]]
) -> dict[str, list[float]]:
    """Cosine similarities by kind of pair."""
    by_kind: dict[str, list[float]] = {"spelling": [], "alias": [], "model": [], "dataset": []}
    for query in queries:
        asked, right = vectors[query.asked], vectors[query.right]
        by_kind[query.kind].append(float(asked @ right))
        for miss in query.wrong:
            differs = "model" if miss[1] != query.right[1] else "dataset"
            by_kind[differs] += [float(asked @ vectors[miss]), float(right @ vectors[miss])]
    return by_kind


def _letting_through(values: Sequence[float]) -> float:
    """The least threshold, in thousandths, at or above which at most `ALLOWED` of these lie."""
    over = sorted(values, reverse=True)[int(ACCEPTED_MISSES * len(values))]
    # rounding may put equal texts a little below 1, and they are always the same work
    return min((math.floor(1000 * over) + 1) / 1000, 0.999)


def _rendered_job(job: WorkName) -> str:
    task, model, data = job
    return render(
        WorkloadMetadata.model_validate(
            {
                "model_config": {"model_name": model, "task_type": task},
                "dataset_config": {"train": data, "valid": data},
            }
        )
    )
