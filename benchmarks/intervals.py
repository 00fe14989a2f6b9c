"""Do eight of ten jobs end within p10 to p90, and how wide is that?

    python benchmarks/intervals.py DATA [--swf LOG.swf ...] [--half first] [--strange | --spread]

Every job of a real trace (`estimation_traces.py` says what stands in for code) is estimated from
the jobs that had ended when it was submitted. Targets completed: nobody knows how long another
would have run. Constants were chosen on the first half of each trace; the second is recorded.
With `--strange` nothing is learned from the trace: neither its own jobs nor its line in
schedmate/retrieval/spread.yaml say how far runs lie apart, as on a new cluster. With `--spread`
it is measured instead how far they do, which is what that file holds (`interval_spread`).

`covered` should be 80 %; the range after it is Wilson's of 95 %, as if jobs were independent, which
runs of one user are not. `below` and `above` are the targets that ended before p10 or after p90.
`width` is the median of p90 / p10. `score` is the mean interval score of log run times (Gneiting
and Raftery, 2007): log(p90 / p10), plus ten times how far outside the target was; less is better.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from _record import record
from estimation_traces import in_order, records

from schedmate.base.data import load
from schedmate.jobs import Estimate, JobRecord
from schedmate.retrieval import run_time
from schedmate.retrieval.advisor import SchedulingAdvisor, workload_fingerprint
from schedmate.retrieval.history import MemoryHistory
from schedmate.retrieval.run_time import adjust, grouped_quantile

LINES = {
    "NASA": "NASA iPSC/860, 1993",
    "LCG": "LCG grid, 2005",
    "Venus": "Helios Venus, two virtual clusters, 2020",
    "image": "Alibaba image generation, 2024",
}
"""Line of spread.yaml by how a trace's name begins."""

MOST = 10_000
"""Jobs estimated a trace: evenly spread over the half."""

BANDS = ((1, 1), (2, 2), (3, 5), (6, 99))
"""Numbers of completed past runs."""

AGREEING = 1.1
"""Past runs of which the longest took at most so many times as long as the shortest agree."""


class Same:
    """Texts are alike or not: a user is not like another because their names are."""

    id, dim, threshold = "same", 64, 0.9

    def embed(self, texts: list[str]) -> Any:
        rows = np.array(
            [np.random.default_rng(list(text.encode())).normal(size=self.dim) for text in texts]
        )
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


class Case(NamedTuple):
    """One target. Logarithms of its run time and of p10 and p90."""

    recurrence: str
    runs: int
    agree: bool
    truth: float
    low: float
    high: float
    error: float


def cases(jobs: list[JobRecord], half: str) -> Iterator[Case]:
    """What the advisor says of the targets of a half."""
    middle = len(jobs) // 2
    begin, end = (0, middle) if half == "first" else (middle, len(jobs))
    targets = [at for at in range(begin, end) if not jobs[at].censored]
    chosen = set(targets[:: max(1, math.ceil(len(targets) / MOST))])
    history = MemoryHistory(Same())
    history.prepare(job.metadata for job in jobs)
    advisor = SchedulingAdvisor(history)
    known = {job.job_id: job for job in jobs}
    for at, ended in in_order(jobs[:end]):
        job = jobs[at]
        for one in ended:
            history.add(jobs[one])
        if at in chosen:
            estimate = advisor.estimate(job.metadata, job.launch, job.submit_time)
            if not estimate.abstained:
                yield _case(job, estimate, known)


def _case(job: JobRecord, estimate: Estimate, known: dict[str, JobRecord]) -> Case:
    completed = [one for one in estimate.neighbours if not one.censored]
    times = [one.adjusted_duration_s for one in completed]
    if any(one.exact for one in completed):
        recurrence = "exact"
    else:
        same = workload_fingerprint(job.metadata)
        like = [workload_fingerprint(known[one.job_id].metadata) == same for one in completed]
        recurrence = "length" if any(like) else "similar"
    low, high = estimate.duration_p10_s, estimate.duration_p90_s
    assert low is not None
    assert high is not None
    assert job.duration_s is not None
    assert estimate.duration_s is not None
    return Case(
        recurrence,
        len(completed),
        max(times) <= AGREEING * min(times),
        math.log(job.duration_s),
        math.log(low),
        math.log(high),
        abs(math.log(estimate.duration_s / job.duration_s)),
    )


def row(found: list[Case]) -> dict[str, Any]:
    """Figures of some targets."""
    below = sum(one.truth < one.low - 1e-9 for one in found)
    above = sum(one.truth > one.high + 1e-9 for one in found)
    inside = len(found) - below - above
    least, most = _wilson(inside, len(found))
    return {
        "targets": len(found),
        "covered": f"{inside / len(found):.0%}",
        "95 %": f"{least:.0%} to {most:.0%}",
        "below": f"{below / len(found):.0%}",
        "above": f"{above / len(found):.0%}",
        "width": round(math.exp(statistics.median(one.high - one.low for one in found)), 2),
        "score": round(statistics.fmean(map(_score, found)), 3),
        "median error": round(statistics.median(one.error for one in found), 3),
    }


def _score(one: Case) -> float:
    outside = max(one.low - one.truth, one.truth - one.high, 0.0)
    return one.high - one.low + 10 * outside


def _wilson(part: int, whole: int, z: float = 1.96) -> tuple[float, float]:
    share = part / whole
    middle = (share + z * z / (2 * whole)) / (1 + z * z / whole)
    half = z / (1 + z * z / whole) * math.sqrt(share * (1 - share) / whole + (z / whole / 2) ** 2)
    return middle - half, middle + half


def rows(trace: str, found: list[Case]) -> Iterable[dict[str, Any]]:
    """All targets of a trace; then by recurrence and number of past runs, where there are ten."""
    parts: dict[tuple[str, str, str], list[Case]] = {("all", "", ""): found}
    for kind in ("exact", "length", "similar"):
        for least, most in BANDS:
            band = f"{least}" if least == most else f"{least}+" if most > 32 else f"{least}-{most}"
            here = [one for one in found if one.recurrence == kind and least <= one.runs <= most]
            parts[kind, band, ""] = here
            if least > 1:
                parts[kind, band, "yes"] = [one for one in here if one.agree]
    for (kind, band, agree), some in parts.items():
        if len(some) >= 10:
            yield {"trace": trace, "recurrence": kind, "runs": band, "agree": agree, **row(some)}


@contextmanager
def strange(trace: str) -> Iterator[None]:
    """As if nobody had ever looked at the trace."""
    line = next((name for start, name in LINES.items() if trace.startswith(start)), None)
    table = {
        what: {name: factor for name, factor in factors.items() if name != line}
        for what, factors in load("retrieval/spread.yaml").items()
    }
    run_time.measured_spreads.cache_clear()
    with (
        patch.object(run_time, "load", lambda _: table),
        patch.object(run_time, "MEASURED_WORTH", 1e12),
    ):
        yield
    run_time.measured_spreads.cache_clear()


# How far apart are runs of the same work? What schedmate/retrieval/spread.yaml holds.


def distances(data: Path, swf: list[Path]) -> None:
    """On the first half of each trace, completed jobs alone: the factor within which 80 % of run
    times lie of the one before them, for the same work (`exact`) and for work that is only similar,
    every group of such jobs counting the same; for requests of another number of steps, after the
    correction for length; and, from Gavel's throughputs, between types of GPU."""
    rows: list[dict[str, Any]] = []
    for name, jobs in records(data, swf):
        done = [job for job in jobs[: len(jobs) // 2] if not job.censored]
        rows.append(_distance(name, "exact", _pairs(done, lambda job: job.metadata.fingerprint())))
        similar = _pairs(done, lambda job: str(job.metadata.model.model_name))
        others = [
            (group, one, other)
            for group, one, other in similar
            if workload_fingerprint(one.metadata) != workload_fingerprint(other.metadata)
        ]
        rows.append(_distance(name, "similar", others))
        longer = _pairs(done, lambda job: workload_fingerprint(job.metadata))
        longer = [
            pair
            for pair in longer
            if pair[1].metadata.training.iters != pair[2].metadata.training.iters
        ]
        for least, most in ((1.0, 1.5), (1.5, 3.0), (3.0, math.inf)):
            part = [pair for pair in longer if least < _correction(*pair[1:]) <= most]
            rows.append(_distance(name, f"length, {least} to {most} times", part))
    rows = [row for row in rows if row["pairs"] >= 10]
    throughputs = data / "gavel/simulation_throughputs.json"
    if throughputs.exists():
        rows.append(_gpu_types(throughputs))
    record("interval_spread", rows, half="first", seed="none: nothing is drawn")


Pair = tuple[Hashable, JobRecord, JobRecord]


def _pairs(jobs: Iterable[JobRecord], key: Any) -> list[Pair]:
    """Group, a job, and the one of its group that was submitted before it."""
    groups: dict[Hashable, list[JobRecord]] = defaultdict(list)
    for job in jobs:
        groups[key(job)].append(job)
    return [
        (name, new, old) for name, one in groups.items() for old, new in itertools.pairwise(one)
    ]


def _correction(new: JobRecord, old: JobRecord) -> float:
    factor = adjust(new.metadata, new.launch, old).factor
    return max(factor, 1 / factor)


def _distance(trace: str, what: str, pairs: list[Pair]) -> dict[str, Any]:
    logs: dict[Hashable, list[float]] = defaultdict(list)
    for group, new, old in pairs:
        assert new.duration_s
        assert old.duration_s
        factor = adjust(new.metadata, new.launch, old).factor
        logs[group].append(abs(math.log(new.duration_s / (old.duration_s * factor))))
    distance = grouped_quantile(logs.values(), 0.8)
    return {
        "trace": trace,
        "pairs of": what,
        "pairs": len(pairs),
        "groups": len(logs),
        "80 % within a factor of": None if distance is None else round(math.exp(distance), 2),
    }


def _gpu_types(path: Path) -> dict[str, Any]:
    """Gavel measured each model alone on a K80, a P100 and a V100."""
    rates: dict[str, dict[Any, float]] = {
        gpu: {ast.literal_eval(key): one["null"] for key, one in table.items()}
        for gpu, table in json.loads(path.read_text()).items()
        if gpu in ("k80", "p100", "v100")
    }
    logs = [
        [abs(math.log(rates[one][key] / rates[other][key]))]
        for one, other in itertools.combinations(rates, 2)
        for key in rates[one]
        if key[1] == 1 and rates[one][key] and rates[other].get(key)
    ]
    distance = grouped_quantile(logs, 0.8)
    assert distance is not None
    return {
        "trace": "Gavel's throughputs",
        "pairs of": "types of GPU",
        "pairs": len(logs),
        "groups": len(logs),
        "80 % within a factor of": round(math.exp(distance), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="directory of the traces")
    parser.add_argument("--swf", type=Path, action="append", default=[], help="a workload log")
    parser.add_argument("--half", choices=("first", "second"), default="second")
    parser.add_argument("--name", default="intervals", help="what to call the result")
    parser.add_argument("--strange", action="store_true", help="learn nothing from the trace")
    parser.add_argument("--spread", action="store_true", help="how far apart runs lie")
    options = parser.parse_args()
    if options.spread:
        distances(options.data, options.swf)
        return
    table: list[dict[str, Any]] = []
    timing = {}
    for name, jobs in records(options.data, options.swf):
        began = time.perf_counter()
        with strange(name) if options.strange else nullcontext():
            found = list(cases(jobs, options.half))
        timing[name] = round(time.perf_counter() - began, 1)
        table += rows(name, found)
        for line in table[-1:]:
            print(name, timing[name], line, flush=True)
    suffix = "_strange" if options.strange else ""
    suffix += "" if options.half == "second" else "_first_half"
    record(
        options.name + suffix,
        table,
        working=options.half != "second",
        half=options.half,
        seed="none: nothing is drawn",
        agree=f"the longest of the past runs took at most {AGREEING} times the shortest",
        seconds=timing,
    )


if __name__ == "__main__":
    main()
