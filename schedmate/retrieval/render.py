"""The short text of a job's metadata that is embedded.

Only what a job *is* takes part: model, dataset and task. Raw JSON drowns that in hyperparameters
that most jobs share (see benchmarks/embedding.py for what each part is worth).
"""

from __future__ import annotations

import re

from schedmate.jobs import WorkloadMetadata

RENDERING_VERSION = 1
"""Raised when the text of the same metadata changes: stored vectors then need a rebuild."""


def render(metadata: WorkloadMetadata) -> str:
    """One line: `model resnet50; dataset cifar10; task cv`."""
    parts = (
        ("model", spell(metadata.model.model_name)),
        ("dataset", spell(metadata.dataset.train)),
        ("task", spell(metadata.model.task_type)),
    )
    return "; ".join(f"{name} {text}" for name, text in parts if text)


def spell(name: str | None) -> str:
    """A name without its hub owner or package, in lower case, its words set apart by spaces.

    `google/vit-base`, `timm.models.vit_base` and `ViT-Base` all come out as `vit base`.
    """
    if not name:
        return ""
    text = re.sub(r"^[\w.-]+/(?=[\w.-]+$)", "", name.strip())
    text = re.sub(r"^(?:[a-z_]\w*\.)+(?=[A-Za-z])", "", text)
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()
