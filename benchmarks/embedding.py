"""Which embedder finds the right past job, from what text, and how fast is each?

    python benchmarks/embedding.py [--tokenizer tokenizer.json] [--embedder bge=DIRECTORY ...]

schedmate/retrieval/labelled.yaml has queries, the job each should find, and jobs that are only
almost right. A hit among `hard` is the right one being nearer than the query's own near misses;
`history` is the same over all jobs of the set. The share of meaning and spelling in the bundled
embedder was chosen on every other query (`chosen`) and is checked on the rest (`checked`). Other
rows were not tuned. The table of thresholds says what `schedmate history calibrate` finds for each
embedder, and what the embedder's default lets through, on queries that it was not chosen on.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from _record import record
from embedding_peers import Mixed, Ngrams, Words, minilm

from schedmate.jobs import WorkloadMetadata
from schedmate.retrieval.embedders import Embedder, load_embedder
from schedmate.retrieval.similarity import (
    LabelledQuery,
    WorkName,
    calibrate,
    labelled_queries,
    render,
)

Render = Callable[[WorkloadMetadata], str]


def all_jobs(queries: Sequence[LabelledQuery]) -> list[WorkName]:
    """What the history holds."""
    return sorted({job for query in queries for job in (query.right, *query.wrong)})


def metadata(job: WorkName, draw: np.random.Generator | None = None) -> WorkloadMetadata:
    """Metadata as extraction gives it; hyperparameters are drawn, since they vary on their own."""
    task, model, data = job
    training: dict[str, Any] = {}
    if draw is not None:
        training = {
            "iters": int(draw.choice([3, 90, 300, 20_000])),
            "iter_type": "epoch",
            "batch_size": int(draw.choice([8, 32, 128, 1024])),
            "lr": float(draw.choice([1e-5, 3e-4, 0.1])),
            "optimizer": str(draw.choice(["adamw", "sgd"])),
            "precision": str(draw.choice(["fp32", "bf16"])),
            "num_gpus": int(draw.choice([1, 8, 64])),
        }
    return WorkloadMetadata.model_validate(
        {
            "model_config": {"model_name": model, "task_type": task},
            "training_config": training,
            "dataset_config": {"train": data, "valid": data},
        }
    )


def scores(
    embedder: Embedder, queries: Sequence[LabelledQuery], text: Render = render
) -> dict[str, Any]:
    """Percentages of queries that find the right job, and the mean reciprocal rank."""
    draw = np.random.default_rng(0)
    jobs = all_jobs(queries)
    place = {job: i for i, job in enumerate(jobs)}
    held = embedder.embed([text(metadata(job, draw)) for job in jobs])
    asked = embedder.embed([text(metadata(query.asked, draw)) for query in queries])
    similarity = asked @ held.T
    hard, rank = [], []
    for query, row in zip(queries, similarity, strict=True):
        best = row[place[query.right]]
        # a near miss that is exactly as near counts as found first
        hard.append(all(row[place[job]] < best for job in query.wrong))
        rank.append(int((row >= best).sum()))
    hits, ranks = np.array(hard), np.array(rank)
    kinds = np.array([query.kind for query in queries])
    half = np.arange(len(queries)) % 2
    percent = {str(kind): hits[kinds == kind] for kind in dict.fromkeys(kinds)}
    percent |= {"hard": hits, "history": ranks == 1}
    percent |= {"chosen": hits[half == 0], "checked": hits[half == 1]}
    found = {name: round(100 * float(values.mean()), 1) for name, values in percent.items()}
    return {**found, "mrr": round(float((1 / ranks).mean()), 3)}


def as_json(job: WorkloadMetadata) -> str:
    return json.dumps(job.sections(), sort_keys=True)


def as_spelt(job: WorkloadMetadata) -> str:
    """The same parts as `render`, with names as they were written."""
    parts = (job.model.model_name, job.dataset.train, job.model.task_type)
    return "; ".join(f"{k} {v}" for k, v in zip(("model", "dataset", "task"), parts, strict=True))


def without(part: str) -> Render:
    return lambda job: "; ".join(
        each for each in render(job).split("; ") if not each.startswith(part)
    )


def with_training(job: WorkloadMetadata) -> str:
    told = job.training.model_dump(exclude_none=True)
    return render(job) + "; training " + " ".join(f"{k} {v}" for k, v in told.items())


TEXTS: dict[str, Render] = {
    "model; dataset; task (as shipped)": render,
    "names as they were written": as_spelt,
    "with training parameters": with_training,
    "without the task": without("task"),
    "raw JSON": as_json,
}


def speed(embedder: Embedder, queries: Sequence[LabelledQuery]) -> float:
    """Texts a second, over texts that are all different."""
    jobs = all_jobs(queries)
    texts = [render(metadata(job)) for job in jobs]
    texts += [text.replace("model ", f"model v{i} ") for i in range(3) for text in texts]
    embedder.embed(texts[:64])
    rates = []
    for _ in range(3):
        began = time.perf_counter()
        embedder.embed(texts)
        rates.append(len(texts) / (time.perf_counter() - began))
    return float(np.median(rates))


def thresholds(embedder: Embedder) -> list[dict[str, Any]]:
    """What the measured and the default threshold let through, in percent."""
    found = {"calibrated": calibrate(embedder), "default": calibrate(embedder, embedder.threshold)}
    return [
        {"embedder": embedder.id, "which": which}
        | {
            key: value if key == "threshold" else round(100 * value, 1)
            for key, value in asdict(one).items()
        }
        for which, one in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json of all-MiniLM-L6-v2")
    parser.add_argument("--embedder", action="append", default=[], metavar="NAME[=MODEL]")
    parser.add_argument("--only", action="store_true", help="only those of --embedder")
    options = parser.parse_args()
    queries = labelled_queries()
    embedders: list[Embedder] = []
    for given in options.embedder:
        name, _, model = given.partition("=")
        embedders.append(load_embedder(name, model=model or None))
    if not options.only:
        bundled, words, ngrams = load_embedder(), Words(), Ngrams(256)
        mixed = [Mixed(words, ngrams, share / 10) for share in range(1, 10)]
        peer = minilm(options.tokenizer)
        peers = [peer, Mixed(peer, ngrams, 0.3), Mixed(peer, ngrams, 0.5)] if peer else []
        embedders = [bundled, words, ngrams, Ngrams(512), Ngrams(1024), *peers, *embedders]
        facts = {"seed": 0, "queries": len(queries), "embedder": bundled.id}
        shares = [
            {"share of meaning": s / 10, **scores(e, queries)} for s, e in enumerate(mixed, 1)
        ]
        record("embedding_share", shares, **facts)
        kept = [bundled, words, *peers[:1]]
        texts = [
            {"embedder": e.id, "text": name, **scores(e, queries, text)}
            for e in kept
            for name, text in TEXTS.items()
        ]
        record("embedding_text", texts, **facts)
    rows = [
        {
            "embedder": embedder.id,
            "dim": embedder.dim,
            **scores(embedder, queries),
            "texts_per_s": round(speed(embedder, queries)),
        }
        for embedder in embedders
    ]
    name = "embedding_peers" if options.only else "embedding"
    record(f"{name}_threshold", [row for each in embedders for row in thresholds(each)])
    record(
        name,
        rows,
        seed=0,
        queries=len(queries),
        jobs=len({job for q in queries for job in q.wrong}),
    )


if __name__ == "__main__":
    main()
