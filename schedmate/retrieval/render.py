"""The short text of a job's metadata that is embedded.

Only what a job *is* takes part: model, dataset and task. Raw JSON drowns that in hyperparameters
that most jobs share (see benchmarks/embedding.py for what each part is worth).
"""

from __future__ import annotations

import re

from schedmate.jobs import WorkloadMetadata

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
    """One line: `model resnet50; dataset cifar10; task cv`."""
    parts = (
        ("model", spell(metadata.model.model_name)),
        ("dataset", spell(metadata.dataset.train)),
        ("task", spell(metadata.model.task_type)),
    )
    return "; ".join(f"{name} {text}" for name, text in parts if text)


def spell(name: str | None) -> str:
    """A name without its hub owner, package or file ending, in lower case, its words set apart.

    `google/vit-base`, `timm.models.vit_base` and `ViT-Base.pth` all come out as `vit base`.
    """
    text = (name or "").strip().lower()
    for superfluous in (_FILE_ENDING, _OWNER, _PACKAGE):
        text = superfluous.sub("", text)
    return re.sub(r"[^a-z0-9]+", " ", text).strip()
