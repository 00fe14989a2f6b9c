"""How good are the advisor's estimates? SchedMate paper, section 5.4 and Figure 12.

    python benchmarks/advisor.py --data TRACES [--swf LOG.swf ...]

Every job of a trace is estimated from the jobs that had ended when it was submitted. The first
half of each trace chose the constants of schedmate/retrieval/advisor.py (`--half first`); what is
recorded is the second half. In real traces jobs that were cut short are no targets: nobody knows
how long they would have run, and so those that cut-short runs tell most about are missing. The
made-up trace knows, and every one of its jobs is a target. A relative error below 100 % is the
paper's figure; it forgives every estimate that is too low, which the log error does not.

Three more tables: the scaling exponents of schedmate/retrieval/run_time.py, measured from step
times, similarities of pairs of workloads, and what a similarity threshold lets through.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import random
import statistics
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import yaml
from _record import record
from advisor_traces import Trace, load
from estimation_traces import in_order

from schedmate.jobs import Estimate, JobRecord, WorkloadMetadata
from schedmate.retrieval import advisor
from schedmate.retrieval.embedders import Embedder, load_embedder
from schedmate.retrieval.history import Match, Quota
from schedmate.retrieval.run_time import (
    SPREAD_JOBS,
    UNLEARNED_SPREAD,
    Adjustment,
    LearnedSpread,
    Run,
    Spread,
    learn_spread,
)
from schedmate.retrieval.similarity import render

MOST = 2000
"""Jobs estimated a trace: evenly spread over the half."""


@dataclass
class Replay:
    """The part of `JobHistory` the advisor uses, for one process and one pass over a trace.

    Vectors are those of the real embedder over the real rendering; only storage is left out.
    """

    embedder: Embedder
    keyed: bool
    texts: list[str] = field(default_factory=list)
    vectors: list[Any] = field(default_factory=list)
    known: dict[str, Any] = field(default_factory=dict)
    by_text: dict[str, list[JobRecord]] = field(default_factory=lambda: defaultdict(list))
    by_print: dict[str, list[JobRecord]] = field(default_factory=lambda: defaultdict(list))
    latest: deque[tuple[str, float]] = field(default_factory=lambda: deque(maxlen=SPREAD_JOBS))

    learned: LearnedSpread = UNLEARNED_SPREAD
    size: int = 0

    def spread(self) -> Spread:
        if not self.learned.fits(self.size):
            self.learned = LearnedSpread(self.size, learn_spread(self.latest))
        return self.learned.spread

    def add(self, job: JobRecord) -> None:
        self.size += 1
        if not job.censored:
            self.latest.append((job.metadata.fingerprint(), job.duration_s or 0.0))
        self.by_print[job.metadata.fingerprint()].append(job)
        if not self.keyed:
            text = render(job.metadata)
            if text not in self.by_text:
                self.texts.append(text)
                self.vectors.append(self._vector(text))
            self.by_text[text].append(job)

    def by_fingerprint(self, fingerprint: str, *, before: float | None = None) -> list[JobRecord]:
        runs = self.by_print[fingerprint]  # added in the order they ended
        kinds = ([one for one in runs if one.censored is cut] for cut in (False, True))
        return [one for kind in kinds for one in kind[-advisor.RUNS :]]

    def search(
        self, metadata: WorkloadMetadata, k: int, threshold: float, *, before: float | None = None
    ) -> list[Match]:
        if self.keyed or not self.texts:
            return []
        left = Quota(k)
        scores = np.stack(self.vectors) @ self._vector(render(metadata))
        fingerprint = metadata.fingerprint()
        found: list[Match] = []
        for place in np.argsort(-scores, kind="stable"):
            for job in reversed(self.by_text[self.texts[place]]):
                exact = job.metadata.fingerprint() == fingerprint
                if not job.censored or left.cut_short > 0:
                    found.append(Match(job, float(scores[place]), exact))
                    left.take([job])
                if not left.completed:
                    return found
        return found

    def _vector(self, text: str) -> Any:
        if text not in self.known:
            self.known[text] = self.embedder.embed([text])[0]
        return self.known[text]


@contextmanager
def variant(name: str) -> Iterator[str]:
    """One way to estimate; gives the advisor's method."""
    with ExitStack() as stack:

        def swap(attribute: str, value: Any) -> None:
            stack.enter_context(patch.object(advisor, attribute, value))

        if name == "no recency":
            swap("HALF_LIFE", math.inf)
        elif name == "no correction":
            swap("adjust", lambda *_: Adjustment())
        elif name == "cut-short runs as completed":
            swap("Run", lambda time, weight, _, spread: Run(time, weight, spread=spread))
        elif name == "cut-short runs left out":
            swap("CUT_SHORT", 0)
        yield "mean" if name in ("mean", "median") else "weighted"


VARIANTS = (
    "weighted",
    "mean",
    "median",
    "no recency",
    "no correction",
    "cut-short runs as completed",
    "cut-short runs left out",
)


def replay(
    trace: Trace, name: str, half: str, embedder: Embedder, threshold: float, cache: dict[str, Any]
) -> Iterator[tuple[JobRecord, Estimate]]:
    """Each target job of a half, its duration what it needed, and the estimate at submission."""
    first, last = {"first": (0.0, 0.5), "second": (0.5, 1.0)}[half]
    begin, end = int(first * len(trace.jobs)), int(last * len(trace.jobs))
    targets = [at for at in range(begin, end) if trace.target_s(trace.jobs[at]) is not None]
    chosen = set(targets[:: max(1, math.ceil(len(targets) / MOST))])
    history = Replay(embedder, trace.keyed, known=cache)
    with variant(name) as method:
        answers = advisor.SchedulingAdvisor(
            history,  # type: ignore[arg-type]
            threshold=1.0 if trace.keyed else threshold,
            method=method,  # type: ignore[arg-type]
        )
        for at, ended in in_order(trace.jobs[:end]):
            job = trace.jobs[at]
            for one in ended:
                history.add(trace.jobs[one])
            if at in chosen:
                target = job.model_copy(update={"duration_s": trace.target_s(job)})
                yield target, _answer(answers, name, job, history, trace.keyed)


def _answer(
    answers: advisor.SchedulingAdvisor, name: str, job: JobRecord, history: Replay, keyed: bool
) -> Estimate:
    if keyed and name in ("mean", "median"):
        # Without words there is nothing to search; the paper's mean then takes the last three
        # completed jobs of the same key.
        past = [
            one for one in history.by_fingerprint(job.metadata.fingerprint()) if not one.censored
        ][-3:]
        estimate = Estimate(abstained=not past)
        times = [one.duration_s or 0.0 for one in past]
    else:
        estimate = answers.estimate(job.metadata, job.launch, job.submit_time)
        times = [one.duration_s for one in estimate.neighbours]
        if name not in ("mean", "median"):
            return estimate
    if estimate.abstained:
        return estimate
    middle = statistics.fmean(times) if name == "mean" else statistics.median(times)
    return estimate.model_copy(update={"duration_s": middle})


def score(pairs: list[tuple[JobRecord, Estimate]]) -> dict[str, Any]:
    """Figures of one variant on one trace."""
    answered = [(job, one) for job, one in pairs if not one.abstained]
    errors = [abs(math.log(one.duration_s / job.duration_s)) for job, one in answered]  # type: ignore[operator]
    relative = [abs(one.duration_s - job.duration_s) / job.duration_s for job, one in answered]  # type: ignore[operator]
    spans = [(job.duration_s, one) for job, one in answered if one.duration_p10_s is not None]
    return {
        "jobs": len(pairs),
        "abstained_pct": _percent(len(pairs) - len(answered), len(pairs)),
        "within_100_pct": _percent(sum(one < 1 for one in relative), len(relative)),
        "median_abs_log_error": _rounded(errors),
        "mean_abs_log_error": round(statistics.fmean(errors), 3) if errors else None,
        "covered_pct": _percent(
            sum(one.duration_p10_s <= truth <= one.duration_p90_s for truth, one in spans),  # type: ignore[operator]
            len(spans),
        ),
        "median_p90_over_p10": _rounded(
            [one.duration_p90_s / one.duration_p10_s for _, one in spans]  # type: ignore[operator]
        ),
    }


def _percent(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 1) if whole else None


def _rounded(values: list[float]) -> float | None:
    return round(statistics.median(values), 3) if values else None


# Similarities of pairs of workloads, and the threshold that separates like from unlike.

Pair = tuple[WorkloadMetadata, WorkloadMetadata]

KINDS = ("other training", "other spelling", "other model", "other dataset", "unrelated")
"""What differs in a pair; only the first two may count as similar."""


def similarity_rows(embedder: Embedder, half: str, seed: int = 3) -> list[dict[str, Any]]:
    """Quantiles of cosine similarity by kind of pair, and what the threshold lets through.

    The names are dealt into two halves: the strict threshold is always chosen on the first, so
    the second checks it on names that it has not seen.
    """
    scores = _scores(embedder, half, seed)
    strict = _strict_threshold(_scores(embedder, "first", seed))
    return [
        {
            "pair": kind,
            "pairs": len(values),
            **{
                f"p{level}": round(float(np.quantile(values, level / 100)), 3)
                for level in (1, 10, 50, 90, 99)
            },
            "threshold": embedder.threshold,
            "accepted_pct": round(100 * float((values >= embedder.threshold).mean()), 1),
            "strict_threshold": strict,
            "accepted_at_strict_pct": round(100 * float((values >= strict).mean()), 1),
        }
        for kind, values in scores.items()
    ]


def _scores(embedder: Embedder, half: str, seed: int) -> dict[str, Any]:
    pairs = _pairs(half, random.Random(seed))
    return {kind: _cosines(embedder, pairs[kind]) for kind in KINDS}


def _strict_threshold(scores: dict[str, Any]) -> float:
    """The least threshold that lets through 1 % of either kind of conflicting pair.

    A wrong model's run time is worse than none: the scheduler has a fallback. So what counts is
    how little gets through that conflicts, and then how much passes that should.
    """
    conflicts = (scores["other model"], scores["other dataset"])
    return math.ceil(max(float(np.quantile(values, 0.99)) for values in conflicts) * 1000) / 1000


def _pairs(
    half: str, draw: random.Random
) -> dict[str, list[tuple[WorkloadMetadata, WorkloadMetadata]]]:
    text = Path(__file__).with_name("workloads.yaml").read_text(encoding="utf-8")
    groups = yaml.safe_load(text)
    spellings = groups.pop("spellings")
    keep = slice(0, None, 2) if half == "first" else slice(1, None, 2)
    names = {
        task: (group["models"][keep], group["datasets"][keep]) for task, group in groups.items()
    }
    found: dict[str, list[Pair]] = {kind: [] for kind in KINDS}
    for task, (models, datasets) in names.items():
        for model, data in itertools.product(models, datasets):
            one = _workload(task, model, data, draw)
            found["other training"].append((one, _workload(task, model, data, draw)))
            for respelt in (
                (spellings.get(model, model), data),
                (model, spellings.get(data, data)),
            ):
                if respelt != (model, data):
                    found["other spelling"].append((one, _workload(task, *respelt, draw)))
            found["other model"].extend(
                (one, _workload(task, other, data, draw)) for other in models if other > model
            )
            found["other dataset"].extend(
                (one, _workload(task, model, other, draw)) for other in datasets if other > data
            )
            far, (far_models, far_data) = draw.choice(
                [item for item in names.items() if item[0] != task]
            )
            found["unrelated"].append(
                (one, _workload(far, draw.choice(far_models), draw.choice(far_data), draw))
            )
    return found


def _workload(task: str, model: str, data: str, draw: random.Random) -> WorkloadMetadata:
    iters, unit = draw.choice([(3, "epoch"), (90, "epoch"), (300, "epoch"), (20_000, "step")])
    return WorkloadMetadata.model_validate(
        {
            "model_config": {"model_name": model, "task_type": task},
            "training_config": {
                "iters": iters,
                "iter_type": unit,
                "batch_size": draw.choice([8, 32, 128, 1024]),
                "lr": draw.choice([1e-5, 3e-4, 0.1]),
                "optimizer": draw.choice(["adamw", "sgd"]),
                "precision": draw.choice(["fp32", "bf16"]),
            },
            "dataset_config": {"train": data, "valid": draw.choice([data, None])},
        }
    )


def _cosines(embedder: Embedder, pairs: list[Pair], most: int = 3000) -> Any:
    texts = [(render(one), render(other)) for one, other in pairs[:: max(1, len(pairs) // most)]]
    distinct = sorted({text for pair in texts for text in pair})
    vectors = dict(zip(distinct, np.asarray(embedder.embed(distinct)), strict=True))
    return np.array([float(vectors[one] @ vectors[other]) for one, other in texts])


# How much faster a job is on more GPUs, from measured step times (the Sia artifact's traces).

Steps = dict[str, tuple[int, dict[float, float]]]
"""By placement or size: GPUs, and step time [s] by the batch size of one GPU."""


def scaling_rows(data: Path) -> list[dict[str, Any]]:
    """Exponents a of samples per second ~ GPUs ** a, by what stays fixed; empty without traces."""
    weak: list[float] = []
    strong: list[float] = []
    for pattern, read in (("placements*.csv", _placements), ("scalability*.csv", _replicas)):
        for path in sorted(data.glob(f"sia/traces/*/{pattern}")):
            steps = read(path)
            least, base = min(steps.values(), key=lambda item: item[0])
            for gpus, times in steps.values():
                if gpus == least:
                    continue
                more = gpus / least
                for batch, step_s in times.items():
                    if batch in base:
                        weak.append(_exponent(more * base[batch] / step_s, more))
                    if batch * more in base:
                        strong.append(_exponent(base[batch * more] / step_s, more))
    return [
        {"fixed": fixed, "pairs": len(values), **_quantiles(values)}
        for fixed, values in (("batch of each GPU", weak), ("global batch", strong))
        if values
    ]


def _exponent(speedup: float, gpus: float) -> float:
    return math.log(speedup) / math.log(gpus)


def _quantiles(values: list[float]) -> dict[str, float]:
    tenths = statistics.quantiles(values, n=10)
    return {"p10": round(tenths[0], 2), "p50": round(tenths[4], 2), "p90": round(tenths[8], 2)}


def _placements(path: Path) -> Steps:
    """A placement is one digit a node: its GPUs."""
    steps: Steps = {}
    for row in _rows(path):
        placement = row["placement"].strip()
        gpus = sum(int(digit) for digit in placement)
        _, times = steps.setdefault(placement, (gpus, {}))
        times.setdefault(float(row["local_bsz"]), float(row["step_time"]))
    return steps


def _replicas(path: Path) -> Steps:
    """The best step time of each number of GPUs, over the nodes they were spread on."""
    steps: Steps = {}
    for row in _rows(path):
        gpus = int(float(row["num_replicas"]))
        _, times = steps.setdefault(str(gpus), (gpus, {}))
        batch, step_s = float(row["local_bsz"]), float(row["step_time"])
        times[batch] = min(times.get(batch, math.inf), step_s)
    return steps


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory of the traces")
    parser.add_argument("--swf", type=Path, action="append", default=[], help="a workload log")
    parser.add_argument("--half", choices=("first", "second"), default="second")
    parser.add_argument("--embedder", default="bundled")
    parser.add_argument("--trace", help="only traces with this in their name")
    options = parser.parse_args()
    embedder = load_embedder(options.embedder)
    suffix = "" if options.half == "second" else "_first_half"
    pairs = similarity_rows(embedder, options.half)
    record(f"advisor_similarity{suffix}", pairs, working=bool(suffix), embedder=embedder.id)
    scaling = scaling_rows(options.data)
    if scaling:
        record("advisor_scaling", scaling)
    tables: dict[str, list[dict[str, Any]]] = defaultdict(list)
    columns: dict[str, dict[str, str]] = defaultdict(dict)
    for trace in load(options.data, options.swf):
        if options.trace and options.trace not in trace.name:
            continue
        cache: dict[str, Any] = {}
        columns[trace.kind][trace.name] = trace.about
        for name in VARIANTS:
            began = time.perf_counter()
            found = list(replay(trace, name, options.half, embedder, embedder.threshold, cache))
            row = {
                "trace": trace.name,
                "method": name,
                **score(found),
                "seconds": round(time.perf_counter() - began, 1),
            }
            tables[trace.kind].append(row)
            print(row, flush=True)
    for kind, rows in tables.items():
        record(
            f"advisor_{kind}{suffix}",
            rows,
            working=bool(suffix),
            embedder=embedder.id,
            **columns[kind],
        )


if __name__ == "__main__":
    main()
