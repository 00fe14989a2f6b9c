"""How far apart are runs of the same work? What schedmate/retrieval/spread.yaml holds.

    python benchmarks/interval_spread.py DATA [--swf LOG.swf ...]

On the first half of each trace of `interval_traces.py`, completed jobs alone: the factor within
which 80 % of run times lie of the one before them, for the same work (`exact`) and for work that is
only similar, every group of such jobs counting the same; for requests of another number of
steps, after the correction for length; and, from Gavel's throughputs, between types of GPU.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

from _record import record
from interval_traces import traces

from schedmate.jobs import JobRecord
from schedmate.retrieval.advisor import workload_fingerprint
from schedmate.retrieval.run_time import adjust, grouped_quantile

LEVEL = 0.8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="directory of the traces")
    parser.add_argument("--swf", type=Path, action="append", default=[], help="a workload log")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, jobs in traces(options.data, options.swf):
        done = [job for job in jobs[: len(jobs) // 2] if not job.censored]
        rows.append(_row(name, "exact", _pairs(done, lambda job: job.metadata.fingerprint())))
        similar = _pairs(done, lambda job: str(job.metadata.model.model_name))
        others = [
            (group, one, other)
            for group, one, other in similar
            if workload_fingerprint(one.metadata) != workload_fingerprint(other.metadata)
        ]
        rows.append(_row(name, "similar", others))
        longer = _pairs(done, lambda job: workload_fingerprint(job.metadata))
        longer = [
            pair
            for pair in longer
            if pair[1].metadata.training.iters != pair[2].metadata.training.iters
        ]
        for least, most in ((1.0, 1.5), (1.5, 3.0), (3.0, math.inf)):
            part = [pair for pair in longer if least < _correction(*pair[1:]) <= most]
            rows.append(_row(name, f"length, {least} to {most} times", part))
    rows = [row for row in rows if row["pairs"] >= 10]
    throughputs = options.data / "gavel/simulation_throughputs.json"
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


def _row(trace: str, what: str, pairs: list[Pair]) -> dict[str, Any]:
    logs: dict[Hashable, list[float]] = defaultdict(list)
    for group, new, old in pairs:
        assert new.duration_s
        assert old.duration_s
        factor = adjust(new.metadata, new.launch, old).factor
        logs[group].append(abs(math.log(new.duration_s / (old.duration_s * factor))))
    distance = grouped_quantile(logs.values(), LEVEL)
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
    distance = grouped_quantile(logs, LEVEL)
    assert distance is not None
    return {
        "trace": "Gavel's throughputs",
        "pairs of": "types of GPU",
        "pairs": len(logs),
        "groups": len(logs),
        "80 % within a factor of": round(math.exp(distance), 2),
    }


if __name__ == "__main__":
    main()
