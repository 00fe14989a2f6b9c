"""The values of findings in the types of their fields."""

from __future__ import annotations

import re
from typing import get_args

from schedmate.agent.react.answer import Finding
from schedmate.agent.react.numerals import number
from schedmate.jobs import TaskType
from schedmate.llm.redact import PLACEHOLDER

ITERS = "training_config.iters"
NUMERIC = frozenset(
    {
        ITERS,
        "training_config.batch_size",
        "training_config.lr",
        "model_config.d_model",
        "model_config.n_layer",
        "dataset_config.num_workers",
    }
)
_MAY_BE_ZERO = frozenset({"dataset_config.num_workers"})
UNITS = {
    "epoch": re.compile(r"epoch", re.IGNORECASE),
    "step": re.compile(r"step|iter|update|batch|round|episode|token|sample|frame", re.IGNORECASE),
}


def typed(finding: Finding) -> str | int | float | None:
    """The value converted to the type of its field, or None if that is impossible."""
    value = finding.value
    if finding.field in NUMERIC:
        found = number(str(value))
        if found is None or found < 0 or (found == 0 and finding.field not in _MAY_BE_ZERO):
            return None
        return int(found) if found.is_integer() and finding.field != "training_config.lr" else found
    text = str(value).strip()
    if finding.field == "model_config.task_type":
        return next((one for one in get_args(TaskType) if one.lower() == text.lower()), None)
    if finding.field == "training_config.iter_type":
        unit = text.lower().rstrip("s")
        return unit if unit in UNITS else None
    text = text.rstrip("_-./ ") or text
    if not text or len(text) > 200 or "\n" in text or PLACEHOLDER.search(text):
        return None
    return text
