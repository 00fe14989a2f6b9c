"""How well the Log Classifier tells kinds of lines, on logs that were not used to make it.

    python benchmarks/log_classifier.py LOGS     # a directory with index.csv, see real_logs.py
    python benchmarks/log_classifier.py --wild MIRRORS     # public logs, see wild_logs.py
    python benchmarks/log_classifier.py --wild MIRRORS --flagembedding MODEL_DIRECTORY

Up to four templates of each log of the report half were labelled by hand after rules and examples
were fixed; labels/log_templates.json keeps them by hash, so that no log is copied. Recorded: the
confusion matrix, and what rules, embedding and both give.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from _record import record
from real_logs import real_logs
from wild_logs import LABELS as WILD_LOGS
from wild_logs import fetch

from schedmate.logparse.classify import CATEGORIES, LogClassifier, Verdict
from schedmate.logparse.reading import open_log
from schedmate.logparse.templates import Templates
from schedmate.retrieval.embedders import Embedder, load_embedder

LABELS = Path(__file__).parent / "labels" / "log_templates.json"
SHOWN = 300
"""Characters of a template that its hash is made of."""


def main() -> None:
    """Classify the labelled templates and record what was right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", type=Path, nargs="?", help="directory with index.csv")
    parser.add_argument("--wild", type=Path, help="directory of snapshots")
    parser.add_argument(
        "--flagembedding", help="local directory of a model, instead of the bundled one"
    )
    options = parser.parse_args()
    model = options.flagembedding
    embedder = None if model is None else load_embedder("bge", model=model)
    if options.wild is not None:
        _wild(options.wild, embedder)
        return
    logs = options.logs
    if logs is None:
        print("give a directory of logs with an index.csv; nothing was measured")
        return
    labels: dict[str, str] = json.loads(LABELS.read_text())
    found = _labelled(logs, labels)
    texts, wanted = [text for text, _ in found], [label for _, label in found]
    classifier = LogClassifier()
    began = time.perf_counter()
    verdicts = classifier.classify(texts)
    seconds = time.perf_counter() - began
    pairs = list(zip(wanted, verdicts, strict=True))
    _record_confusion(pairs)
    rows = [_accuracy("rules, then embedding", pairs)]
    rows += [
        _accuracy(f"of these by {by}", [pair for pair in pairs if pair[1].by == by])
        for by in ("rule", "embedding")
    ]
    alone = classifier._embedded(texts)  # noqa: SLF001 - what the rules spare is measured here
    rows.append(
        _accuracy("embedding alone", [(w, alone[t]) for w, t in zip(wanted, texts, strict=True)])
    )
    most = Counter(wanted).most_common(1)[0]
    rows.append({"how": f"always {most[0]}", "templates": len(wanted), "right": most[1],
                 "accuracy": round(most[1] / len(wanted), 3)})  # fmt: skip
    record("log_classifier", rows, labelled=len(labels), seconds=round(seconds, 2))


def _wild(mirrors: Path, embedder: Embedder | None) -> None:
    """Templates of public logs, by the batch of wild_logs.py that they are of.

    Those of batch 1 were labelled before any rule was made for them. Of batches 2 and 3 two of each
    log were labelled: half `look` is what rules and examples were then worked on with, half `first`
    had been read by the same person, but was not worked on.
    """
    logs = json.loads(WILD_LOGS.read_text())
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, batches, half in (
            ("wild_templates.json", (1,), "first"),
            ("fresh_templates.json", (2, 3), "first"),
            ("fresh_templates.json", (2, 3), "look"),
        ):
            labels = json.loads(LABELS.with_name(name).read_text())
            chosen = [one for one in logs if one["batch"] in batches and one["half"] == half]
            pairs = _found(mirrors, chosen, labels, Path(scratch) / f"{name} {half}")
            verdicts = LogClassifier(embedder).classify([text for _, text in pairs])
            judged = [(wanted, v) for (wanted, _), v in zip(pairs, verdicts, strict=True)]
            where = {"batches": " and ".join(map(str, batches)), "half": half}
            rows.append(where | _accuracy("rules, then embedding", judged))
            for by in ("rule", "embedding"):
                some = [pair for pair in judged if pair[1].by == by]
                rows.append(where | _accuracy(f"of these by {by}", some))
            if (batches, half) == ((2, 3), "first") and embedder is None:
                _record_confusion(judged, "log_classifier_wild_confusion")
    name = "log_classifier_wild" if embedder is None else "log_classifier_flagembedding"
    record(name, rows, embedder="bundled" if embedder is None else embedder.id,
           first_sight="batches 2 and 3: 109 of 170 and 124 of 197 at 190f1c1")  # fmt: skip


def _found(
    mirrors: Path, logs: list[dict[str, Any]], labels: dict[str, str], scratch: Path
) -> list[tuple[str, str]]:
    """The label and the text of every labelled template that stands in the logs."""
    pairs: dict[str, tuple[str, str]] = {}
    scratch.mkdir()
    for number, log in enumerate(logs):
        templates = Templates()
        with open_log(fetch(mirrors, log, scratch / str(number))) as opened:
            for chunk in opened.files[0].chunks():
                templates.numbers(chunk.data)
        for text in templates.texts:
            key = hashlib.sha256(text[:SHOWN].encode()).hexdigest()[:16]
            if key in labels:
                pairs[key] = labels[key], text
    return list(pairs.values())


def _labelled(logs: Path, labels: dict[str, str]) -> list[tuple[str, str]]:
    templates = Templates()
    for log in real_logs(logs, "report"):
        with open_log(log.path) as opened:
            for chunk in opened.files[0].chunks():
                templates.numbers(chunk.data)
    hashes = {
        hashlib.sha256(text[:SHOWN].encode()).hexdigest()[:16]: text for text in templates.texts
    }
    return [(hashes[key], label) for key, label in labels.items() if key in hashes]


def _accuracy(how: str, pairs: list[tuple[str, Verdict]]) -> dict[str, Any]:
    right = sum(wanted == verdict.category for wanted, verdict in pairs)
    share = round(right / max(1, len(pairs)), 3)
    return {"how": how, "templates": len(pairs), "right": right, "accuracy": share}


def _record_confusion(
    pairs: list[tuple[str, Verdict]], name: str = "log_classifier_confusion"
) -> None:
    table = Counter((wanted, verdict.category) for wanted, verdict in pairs)
    rows: list[dict[str, Any]] = []
    for wanted in CATEGORIES:
        total = sum(table[wanted, found] for found in CATEGORIES)
        said = sum(table[other, wanted] for other in CATEGORIES)
        right = table[wanted, wanted]
        rows.append(
            {
                "labelled": wanted,
                **{found: table[wanted, found] for found in CATEGORIES},
                "recall": round(right / total, 2) if total else "",
                "precision": round(right / said, 2) if said else "",
            }
        )
    record(name, rows, columns="what the classifier said")


if __name__ == "__main__":
    main()
