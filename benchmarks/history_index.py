"""From how many workloads on does an approximate index pay, and what does it miss?

    python benchmarks/history_index.py [--vectors 1000000]

The vectors are the bundled embedder's, of made-up workloads that are all different: known names
with what users append to them. Queries are vectors near stored ones, as a spelling is that has not
been seen before. Each kind of index is searched on one thread, as a scheduler's hook would, for 38
candidates; the best of them are compared again exactly, as schedmate/retrieval/index.py does.
Recall@3 is the share of the truly three nearest that comes out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from _record import record
from numpy.typing import NDArray

from schedmate.retrieval import index
from schedmate.retrieval.embedders import load_embedder
from schedmate.retrieval.similarity import spell

Rows = NDArray[np.float32]

SEED = 0
QUERIES = 200
CANDIDATES = 38
SIZES = (10_000, 50_000, 100_000, 200_000, 1_000_000)
GRAPH_UP_TO = 100_000
"""A larger graph takes minutes to build on two cores."""
MODEL_WORDS = (
    *("small", "base", "large", "tiny", "v2", "v3", "finetuned", "lora", "7b", "13b", "350m"),
    *("224", "384", "pretrain", "distilled", "sparse", "moe", "wide", "patch8", "chat", "exp"),
)
DATA_WORDS = (
    *("train", "clean", "subset", "mini", "2023", "2024", "v1", "v2", "filtered", "tokenized"),
    *("en", "de", "fr", "zh", "100k", "1m", "10k", "user", "internal", "shuffled"),
)


def renderings(count: int) -> Iterator[str]:
    """Distinct renderings of made-up workloads."""
    text = Path(__file__).with_name("workloads.yaml").read_text(encoding="utf-8")
    groups = {task: group for task, group in yaml.safe_load(text).items() if "models" in group}
    draw = np.random.default_rng(SEED)
    tasks = list(groups)
    seen: set[str] = set()
    while len(seen) < count:
        task = tasks[draw.integers(len(tasks))]
        model = _varied(draw, groups[task]["models"], MODEL_WORDS)
        data = _varied(draw, groups[task]["datasets"], DATA_WORDS)
        one = f"model {spell(model)}; dataset {spell(data)}; task {task.lower()}"
        if one not in seen:
            seen.add(one)
            yield one


def _varied(draw: np.random.Generator, names: Sequence[str], words: Sequence[str]) -> str:
    parts = [names[draw.integers(len(names))]]
    parts += [words[draw.integers(len(words))] for _ in range(draw.integers(3))]
    if draw.random() < 0.4:
        parts.append(str(draw.integers(1000)))
    return "_".join(parts)


def embedded(count: int) -> Rows:
    """Vectors of that many workloads."""
    embedder = load_embedder()
    rows = np.empty((count, embedder.dim), dtype=np.float32)
    texts = list(renderings(count))
    for start in range(0, count, 10_000):
        part = texts[start : start + 10_000]
        rows[start : start + len(part)] = embedder.embed(part)
        if start % 100_000 == 0:
            print(f"{start:,} of {count:,} embedded", file=sys.stderr, flush=True)
    return rows


def queries(vectors: Rows) -> Rows:
    """Vectors with a cosine similarity of about 0.95 to stored ones."""
    draw = np.random.default_rng(SEED)
    chosen = vectors[draw.choice(len(vectors), QUERIES, replace=False)]
    noise = draw.standard_normal(chosen.shape) / chosen.shape[1] ** 0.5
    near = chosen + 0.3 * noise
    return np.asarray(near / np.linalg.norm(near, axis=1, keepdims=True), dtype=np.float32)


def nearest(vectors: Rows, asked: Rows) -> Rows:
    """The three best similarities of each query, the best first."""
    best = np.full((len(asked), 3), -1.0, dtype=np.float32)
    for start in range(0, len(vectors), 100_000):
        scores = asked @ vectors[start : start + 100_000].T
        best = np.sort(np.concatenate([best, np.partition(scores, -3)[:, -3:]], axis=1))[:, -3:]
    return best[:, ::-1]


def indexes(size: int, dim: int) -> Iterator[tuple[str, Any]]:
    """The kinds that are compared at a size, empty."""
    import faiss

    metric = faiss.METRIC_INNER_PRODUCT
    yield "all compared (flat)", faiss.IndexFlatIP(dim)
    if size < SIZES[1]:
        return
    lists = index.list_count(size)
    quantizer = faiss.IndexFlatIP(dim)
    inverted = faiss.IndexIVFScalarQuantizer(
        quantizer, dim, lists, faiss.ScalarQuantizer.QT_8bit, metric
    )
    inverted.cp.niter = 10
    yield f"inverted file, {lists} lists, 8-bit codes", inverted
    if size <= GRAPH_UP_TO:
        graph = faiss.IndexHNSWFlat(dim, 32, metric)
        graph.hnsw.efSearch = 64
        yield "graph (HNSW), 32 links", graph


def measured(vectors: Rows, asked: Rows) -> Iterator[dict[str, Any]]:
    """Time to build and to search each kind of index, and what it misses."""
    import faiss

    size = len(vectors)
    truth = nearest(vectors, asked)
    for name, made in indexes(size, vectors.shape[1]):
        began = time.perf_counter()
        if not made.is_trained:
            made.train(vectors[:: max(1, size // (index.SAMPLE * made.nlist))])
        for start in range(0, size, 100_000):
            made.add(vectors[start : start + 100_000])
        built = time.perf_counter() - began
        for probes in (8, 32, 128) if hasattr(made, "nprobe") else (0,):
            if probes:
                made.nprobe = probes
            threads = faiss.omp_get_max_threads()
            faiss.omp_set_num_threads(1)
            times, right = [], 0
            for row, best in zip(asked, truth, strict=True):
                began = time.perf_counter()
                found = made.search(row.reshape(1, -1), CANDIDATES)[1][0]
                times.append(1000 * (time.perf_counter() - began))
                scores = np.sort(vectors[found[found >= 0]] @ row)[-3:]
                right += int((scores >= best[-1] - 1e-5).sum())
            faiss.omp_set_num_threads(threads)
            yield {
                "vectors": size,
                "index": name,
                "probes": probes or "",
                "build_s": round(built, 1),
                "search_median_ms": round(float(np.median(times)), 2),
                "search_p95_ms": round(float(np.quantile(times, 0.95)), 2),
                "recall_at_3": round(right / (3 * len(asked)), 4),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vectors", type=int, default=SIZES[-1])
    count = parser.parse_args().vectors
    vectors = embedded(count)
    rows = []
    for size in (size for size in SIZES if size <= count):
        rows += measured(vectors[:size], queries(vectors[:size]))
    facts = {"seed": SEED, "exact_up_to": index.EXACT_UP_TO, "probes": index.PROBES}
    record("history_index", rows, **facts)


if __name__ == "__main__":
    main()
