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
import heapq
import math
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
from _record import record
from advisor_pairs import similarity_rows
from advisor_scaling import scaling_rows
from advisor_traces import Trace, load

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
    running: list[tuple[float, int]] = []
    with variant(name) as method:
        answers = advisor.SchedulingAdvisor(
            history,  # type: ignore[arg-type]
            threshold=1.0 if trace.keyed else threshold,
            method=method,  # type: ignore[arg-type]
        )
        for at, job in enumerate(trace.jobs[:end]):
            while running and running[0][0] <= (job.submit_time or 0.0):
                history.add(trace.jobs[heapq.heappop(running)[1]])
            if at in chosen:
                target = job.model_copy(update={"duration_s": trace.target_s(job)})
                yield target, _answer(answers, name, job, history, trace.keyed)
            heapq.heappush(running, (job.end_time or 0.0, at))


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
    utils = [
        abs(one.gpu_util - job.gpu_util) / job.gpu_util
        for job, one in answered
        if one.gpu_util is not None and job.gpu_util
    ]
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
        "median_util_error_pct": round(100 * statistics.median(utils), 1) if utils else None,
    }


def _percent(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 1) if whole else None


def _rounded(values: list[float]) -> float | None:
    return round(statistics.median(values), 3) if values else None


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
        columns[trace.kind][trace.name] = (
            f"real: {trace.real or 'nothing'}; made up: {trace.made_up or 'nothing'}"
        )
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
