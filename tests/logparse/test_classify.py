"""The Log Classifier: rules first, labelled examples for the rest, each template asked once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from schedmate.base.data import load
from schedmate.logparse.classify import CATEGORIES, LogClassifier
from schedmate.logparse.templates import TemplateStore, mask

if TYPE_CHECKING:
    from numpy.typing import NDArray

RULES = load("logparse/classify/rules.yaml")
EXAMPLES = load("logparse/classify/examples.yaml")


class Words:
    """An embedder that counts a few words, and its calls."""

    id = "words"
    dim = 4
    threshold = 0.5

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked += texts
        words = ("loss", "error", "checkpoint", "configuration")
        counts = np.array([[text.count(word) + 0.01 for word in words] for text in texts])
        return (counts / np.linalg.norm(counts, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule['category']}-{rule['name']}")
def test_every_rule_decides_its_example(rule: dict) -> None:
    verdict = LogClassifier(Words()).by_rule(rule["example"])

    assert verdict is not None
    assert verdict.rule == f"{rule['category']}: {rule['name']}"
    assert rule["category"] in CATEGORIES


def test_every_category_has_examples() -> None:
    assert tuple(sorted(EXAMPLES)) == tuple(sorted(CATEGORIES))
    texts = [text for texts in EXAMPLES.values() for text in texts]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    ("line", "category"),
    [
        ("step 10/100 loss 0.5 lr 1e-4 time 0.2s", "progress"),
        (" 42%|####      | 42/100 [00:10<00:14,  4.1it/s]", "progress"),
        ("{'loss': 0.5, 'learning_rate': 2e-05, 'epoch': 0.12}", "progress"),
        ("KeyError: 'input_ids'", "error"),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=12, GPU has fallen off the bus.", "error"),
        ("/opt/x.py:3: UserWarning: careful", "warning"),
        ("validation loss at iteration 100 | lm loss value: 2.1 |", "evaluation"),
        ("saving checkpoint at iteration 100 to /data/ckpt", "checkpoint"),
        ("slurmstepd: error: *** JOB 3 ON n1 CANCELLED AT 2024-01-01T00:00:00 ***", "system"),
        ("  hidden_size ......................... 4096", "init"),
        ("n1:10:12 [0] NCCL INFO Channel 00/02 : 0 1 2 3", "system"),
        ("wandb: View run at https://wandb.ai/x", "other"),
    ],
)
def test_plain_cases(line: str, category: str) -> None:
    (verdict,) = LogClassifier(Words()).classify([mask(line)])

    assert (verdict.category, verdict.by, verdict.confidence) == (category, "rule", 1.0)


def test_what_no_rule_decides_goes_to_the_examples() -> None:
    classifier = LogClassifier()
    first = [texts[1] for texts in EXAMPLES.values()]
    verdicts = classifier.classify([*first, *first])

    assert verdicts[: len(first)] == verdicts[len(first) :]
    embedded = [v for v in verdicts if v.by == "embedding"]
    assert embedded
    assert all(v.category in CATEGORIES and 0 <= v.confidence <= 1 for v in embedded)
    right = sum(v.category == c for v, c in zip(verdicts, EXAMPLES, strict=False))
    assert right >= len(first) - 1


def test_a_template_is_embedded_once_ever(tmp_path: Path) -> None:
    templates = ["xyzzy plugh", "loss loss loss", "xyzzy plugh"]
    words = Words()
    store = TemplateStore(tmp_path / "templates.sqlite")
    first = LogClassifier(words, store).classify(templates)
    assert words.asked.count("xyzzy plugh") == 1
    store.close()

    again = Words()
    store = TemplateStore(tmp_path / "templates.sqlite")
    assert LogClassifier(again, store).classify(templates) == first
    assert again.asked == []
    store.close()


def test_the_embedder_is_not_loaded_where_rules_suffice() -> None:
    words = Words()
    LogClassifier(words).classify(["Traceback (most recent call last):"] * 100)

    assert words.asked == []
