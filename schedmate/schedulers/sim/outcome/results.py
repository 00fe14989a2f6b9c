"""The results of a run: its numbers, a row for each job, and a row for each period of holding
GPUs.

Both tables are columns of equal length. They are kept in a folder, counted over time, told in words
for the terminal and the report, and drawn as a Chrome trace.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedmate.base.errors import InputError
from schedmate.base.files import open_output
from schedmate.base.reading import read_text
from schedmate.schedulers.model import Allocation, Cluster
from schedmate.schedulers.sim.record import KINDS, HeldGpus, HeldPieces
from schedmate.schedulers.sim.tables import (
    LazyTable,
    Table,
    parquet_is_there,
    read_csv,
    write_csv,
    write_parquet,
)
from schedmate.schedulers.sim.workload import Workload

if TYPE_CHECKING:
    from schedmate.schedulers.sim.runs import Run


JOBS: Mapping[str, type] = {
    "job_id": str,
    "vc": str,
    "user": str,
    "gpus": int,
    "submit_s": float,
    "start_s": float,  # of the first run, profiling included
    "end_s": float,
    "jct_s": float,
    "queue_s": float,
    "predicted_s": float,  # the last run time that the policy assumed; NaN: none
    "duration_s": float,  # alone on the requested GPUs
    "packed": int,  # 1: joined another job at least once
    "preemptions": int,
    "evictions": int,
    "failures": int,
}
"""Columns of `jobs.csv` and `jobs.parquet`, in order of submission; times in seconds."""

SEGMENTS: Mapping[str, type] = {
    "job": int,  # row of the table of jobs, from 0
    "kind": str,  # run, packed (it joined another job) or profile
    "start_s": float,
    "end_s": float,
    "node": int,  # position in the cluster
    "first_gpu": int,
    "gpus": float,  # from the first on; below 1: a part of that one
    "failed": int,  # 1: a failure of the job or its node ended it
    "useful_s": float,  # work done and kept, as seconds of the job alone; NaN: unknown
}
"""Columns of `segments.csv` and `segments.parquet`: the job, GPUs of one node, and times."""


@dataclass(frozen=True)
class Result:
    """One run of one policy; `numbers` is its part of the JSON document."""

    numbers: dict[str, Any]
    jobs: Table
    segments: Table


def result_of(run: Run, workload: Workload) -> Result:
    """Build the result from a simulation's record; columns are computed on first use."""
    return Result(run.numbers, _jobs(run, workload), _segments(run, workload))


def _jobs(run: Run, workload: Workload) -> Table:
    requests, outcome, per_job = workload.requests, run.outcome, run.per_job
    none = [""] * len(requests)
    columns: dict[str, Callable[[], Any]] = {
        "job_id": requests.names,
        "vc": lambda: workload.vcs or none,
        "user": lambda: requests.values("user") or none,
        "gpus": lambda: per_job.gpus,
        "submit_s": lambda: requests.submit_s,
        "start_s": lambda: outcome.first_start,
        "end_s": lambda: outcome.end,
        "jct_s": lambda: per_job.jct_s,
        "queue_s": lambda: per_job.queue_s,
        "predicted_s": lambda: _estimates(outcome.assumed_s),
        "duration_s": lambda: workload.duration_s,
        "packed": lambda: per_job.packed,
        "preemptions": lambda: per_job.preemptions,
        "evictions": lambda: outcome.counts.get("evictions", np.zeros(len(requests))),
        "failures": lambda: outcome.counts.get("failures", np.zeros(len(requests))),
    }

    def column(name: str) -> NDArray[Any]:
        values = columns[name]()
        return np.array(list(values) if isinstance(values, Sequence) else values, JOBS[name])

    return LazyTable({name: partial(column, name) for name in JOBS})


def _estimates(forecasts: Sequence[float]) -> NDArray[np.float64]:
    """Forecasts by job [s]; NaN for a job without one."""
    seconds = np.array(list(forecasts), np.float64)
    return np.where(np.isinf(seconds), np.nan, seconds)


def _segments(run: Run, workload: Workload) -> Table:
    """A row for each run of GPUs of each segment."""
    outcome = run.outcome
    share = workload.requests.values("share")

    @cache
    def pieces() -> tuple[HeldGpus, NDArray[np.int64], list[NDArray[np.int64]]]:
        holdings = HeldGpus.of(outcome.segments)
        return holdings, *HeldPieces(holdings, _runs).rows()

    def gpus() -> NDArray[np.float64]:
        holdings, segment, (_, _, count) = pieces()
        if share is None:
            return count.astype(float)
        part = np.array(share, float)[holdings.jobs[segment]]
        return np.where(part < 1, part, count)

    def useful() -> NDArray[np.float64]:
        holdings, segment, _ = pieces()
        kept = np.full(len(holdings.jobs), np.nan) if run.spent is None else run.spent.useful
        return kept[segment]

    def of(name: str) -> NDArray[Any]:
        holdings, segment, (node, first, _) = pieces()
        if name == "kind":
            kinds = np.frombuffer(bytes(outcome.segments.kinds), np.uint8)
            return np.array(KINDS)[kinds[segment]]
        if name == "failed":
            failed = np.zeros(len(holdings.jobs), np.int64)
            failed[list(outcome.failures)] = 1
            return failed[segment]
        if name in ("node", "first_gpu"):
            return node if name == "node" else first
        return {"job": holdings.jobs, "start_s": holdings.starts, "end_s": holdings.ends}[name][
            segment
        ]

    own: dict[str, Callable[[], NDArray[Any]]] = {"gpus": gpus, "useful_s": useful}
    return LazyTable({name: own.get(name, partial(of, name)) for name in SEGMENTS})


def _runs(allocation: Allocation) -> Iterator[tuple[int, ...]]:
    return ((node, *run) for node, mask in allocation for run in gpu_runs(mask))


def gpu_runs(mask: int) -> list[tuple[int, int]]:
    """The runs of consecutive GPUs in a bit mask, as (first, how many)."""
    runs, position = [], 0
    while mask:
        skip = (mask & -mask).bit_length() - 1
        mask >>= skip
        count = (~mask & (mask + 1)).bit_length() - 1
        runs.append((position + skip, count))
        mask >>= count
        position += skip + count
    return runs


# A run in a folder: its tables, its numbers, and a trace to look at.


def write_result(result: Result, folder: Path, cluster: Cluster, inputs: str) -> None:
    """Write the tables, `trace.json` (for Perfetto) and, last, `summary.json` to `folder`.

    `inputs` is a digest of everything that the result depends on, and becomes part of the summary.
    Raises `InputError` if the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make {folder}: {error.strerror}; choose another --out.") from None
    for name, table in (("jobs", result.jobs), ("segments", result.segments)):
        write_csv(folder / f"{name}.csv", table)
        if parquet_is_there():
            write_parquet(folder / f"{name}.parquet", table)
    with open_output(folder / "trace.json") as stream:
        # event by event, as a long run does not fit into memory
        stream.write('{"traceEvents": [')
        for number, event in enumerate(chrome_events(result, cluster)):
            stream.write(",\n" * (number > 0) + json.dumps(event))
        stream.write("]}\n")
    with open_output(folder / "summary.json") as stream:
        json.dump({"inputs": inputs, **result.numbers}, stream, indent=1)


def read_result(folder: Path) -> Result | None:
    """The result that `write` has stored; None if missing, broken or of another version."""
    try:
        numbers = json.loads(read_text(folder / "summary.json"))
        return Result(
            numbers,
            read_csv(folder / "jobs.csv", JOBS),
            read_csv(folder / "segments.csv", SEGMENTS),
        )
    except (OSError, ValueError, KeyError, RecursionError, csv.Error):
        return None


# A run over time: GPUs held, and jobs waiting.


Floats = NDArray[np.float64]


class StepFunction(NamedTuple):
    """A function of time that is constant between changes: `value[i]` holds from `time[i]` on."""

    time: Floats
    """Ascending [s]."""
    value: Floats

    def mean(self, edges: Floats) -> Floats:
        """The exact mean between each two of `edges` (ascending, distinct)."""
        whole = np.concatenate(([0.0], np.cumsum(np.diff(self.time) * self.value[:-1])))
        upto = np.interp(edges, self.time, whole)
        # after the last change the value stays; before the first it is zero
        upto += np.maximum(0.0, edges - self.time[-1]) * self.value[-1]
        return np.diff(upto) / np.diff(edges)


def gpus_held(segments: Table) -> StepFunction:
    """GPUs held by some job; those that two share count once, a part of a GPU as that part."""
    start, end, gpus = segments["start_s"], segments["end_s"], segments["gpus"]
    own = start.copy()
    joined = segments["kind"] == "packed"
    if joined.any():
        # a job that joined holds the very GPUs of its partner, and may outlive it
        place = [segments[name] for name in ("node", "first_gpu", "gpus")]
        shared = set(zip(*(one[joined].tolist() for one in place), strict=True))
        taken: dict[Any, float] = {}
        order = np.argsort(start, kind="stable")
        keys = zip(*(one[order].tolist() for one in place), strict=True)
        for row, key in zip(order.tolist(), keys, strict=True):
            if key in shared and key[2] >= 1:
                until = taken.get(key, own[row])
                own[row] = min(max(own[row], until), end[row])
                taken[key] = max(until, end[row])
    return _running_total(own, end, gpus)


def jobs_waiting(jobs: Table, segments: Table) -> StepFunction:
    """Jobs that are submitted, not done, and hold no GPU."""
    # over several nodes or runs of GPUs a job still runs once
    waits = np.unique(
        np.stack((segments["job"].astype(float), segments["start_s"], segments["end_s"])), axis=1
    )
    ones, others = np.ones(len(jobs["submit_s"])), np.ones(waits.shape[1])
    return _steps(
        np.concatenate((jobs["submit_s"], jobs["end_s"], waits[1], waits[2])),
        np.concatenate((ones, -ones, -others, others)),
    )


def work_kept(segments: Table) -> tuple[StepFunction, StepFunction]:
    """GPUs in use over time, by work that was kept and time that was not; of a pair, both jobs
    count.

    The use of a segment is spread evenly over it.
    """
    start, end = segments["start_s"], segments["end_s"]
    length = end - start
    rate = np.divide(segments["useful_s"], length, out=np.ones_like(length), where=length > 0)
    kept = segments["gpus"] * rate
    return _running_total(start, end, kept), _running_total(start, end, segments["gpus"] - kept)


def _running_total(start: Floats, end: Floats, value: Floats) -> StepFunction:
    return _steps(np.concatenate((start, end)), np.concatenate((value, -value)))


def _steps(time: Floats, change: Floats) -> StepFunction:
    happens = np.isfinite(time)  # a job that never ends waits or runs on
    time, change = time[happens], change[happens]
    distinct, where = np.unique(time, return_inverse=True)
    return StepFunction(
        distinct, np.cumsum(np.bincount(where, weights=change, minlength=len(distinct)))
    )


# A comparison in words, the same for the terminal and the report.


Numbers = dict[str, Any]

SETTINGS = ("cluster", "estimator", "seed")
"""Settings of a run besides its policy."""
MOST_NAMED = 4
"""Runs of the same average JCT that are all named."""

ORIGINS = {
    "recorded": "a recorded trace",
    "synthetic": "a synthetic trace, not a recorded one",
    "unstated": "a trace of unstated origin",
}


def varied_settings(runs: Sequence[Numbers]) -> list[str]:
    """The keys of `SETTINGS` in which the runs differ."""
    return [key for key in SETTINGS if len({run[key] for run in runs}) > 1]


def run_label(run: Numbers, keys: Sequence[str]) -> str:
    """The run's policy, with what distinguishes it from other runs of the same policy."""
    more = ", ".join(f"seed {run[key]}" if key == "seed" else str(run[key]) for key in keys)
    return f"{run['policy']} ({more})" if more else str(run["policy"])


def estimator_names(runs: Sequence[Numbers]) -> str:
    """Which estimators the policies used; oracles are marked."""
    sources = {run["estimator"]: run["oracle"] for run in runs}
    return ", ".join(
        name + " (an oracle: true run times, which no scheduler can know)" * oracle
        for name, oracle in sources.items()
    )


def headlines(runs: Sequence[Numbers]) -> list[str]:
    """The policies with the least average JCT, and what the comparison rests on."""
    best = min(runs, key=lambda run: float(run["avg_jct_h"]))
    jct, queue, jobs = best["avg_jct_h"], best["avg_queue_h"], best["jobs"]
    keys, sources = varied_settings(runs), estimator_names(runs)
    first = [run_label(run, keys) for run in runs if run["avg_jct_h"] == jct]
    if len(first) > MOST_NAMED:
        first[1:] = [f"{len(first) - 1} others"]
    name = first[0] if len(first) == 1 else f"{', '.join(first[:-1])} and {first[-1]} alike"
    return [
        f"best average JCT: {name}, {jct:.2f} h over {jobs:,} jobs ({queue:.2f} h queueing)",
        f"run times estimated by {sources}; {best['mode']} costs; {ORIGINS[best['origin']]}",
    ]


def fault_warnings(runs: Sequence[Numbers]) -> list[str]:
    """Faults that were worked around, with their counts."""
    keys = varied_settings(runs)
    return [
        f"{run_label(run, keys)}: {what}" + (f" ({count:,} times)" if count > 1 else "")
        for run in runs
        for what, count in sorted(run.get("warnings", {}).items())
    ]


OPPOSITE = "; in the opposite direction for "
"""Before the sizes that a policy serves worse although it serves the mean better, or vice versa."""


def differences_in_words(runs: Sequence[Numbers]) -> list[str]:
    """Each run against the first policy under the same plan; sizes with the opposite effect."""
    lines = []
    keys = varied_settings(runs)
    first = runs[0]
    for run in runs:
        if "jct_less_first_h" not in run:
            first = run
            continue
        mean, low, high = run["jct_less_first_h"]
        line = (
            f"{run_label(run, keys)} against {first['policy']}: mean JCT "
            f"{mean:+.2f} h (95 % interval {low:+.2f} to {high:+.2f})"
        )
        shift = [
            f"{size} {part['avg_jct_h'] - first['by_size'][size]['avg_jct_h']:+.2f} h"
            for size, part in run["by_size"].items()
            if (part["avg_jct_h"] - first["by_size"][size]["avg_jct_h"]) * mean < 0
        ]
        lines.append(f"{line}{OPPOSITE}{', '.join(shift)}" if shift else line)
    return lines


def service_by_class(runs: Sequence[Numbers]) -> list[str]:
    """Service of high-priority (HP) and spot (LP) jobs, if there are both."""
    lines = []
    keys = varied_settings(runs)
    for run in runs:
        classes = run.get("by_class", {})
        if not {"high", "low"} <= set(classes):
            continue
        high, low = classes["high"], classes["low"]
        line = (
            f"{run_label(run, keys)}: HP: {high['avg_queue_h']:.2f} h waiting (p99 "
            f"{high['p99_queue_h']:.2f} h); LP: JCT {low['avg_jct_h']:.2f} h, "
            f"{low['evictions']:,} evictions that lost "
            f"{run.get('evicted_lost_gpu_h', 0):,.0f} GPU h (who is preempted loses none)"
        )
        if lent := run.get("lent_gpu_h"):
            line += f"; {run['borrowed_gpu_h'] / lent:.0%} of {lent:,.0f} lent GPU h used"
        lines.append(line)
    return lines


# A run as a Chrome trace, which Perfetto (https://ui.perfetto.dev) opens: one track a GPU.


def chrome_events(result: Result, cluster: Cluster) -> Iterator[dict[str, Any]]:
    """Trace events: nodes are processes, GPUs threads; times count from the first submission."""
    for position, node in enumerate(cluster.nodes):
        name = f"{node.name} {node.gpu_type}".strip()
        yield {"ph": "M", "pid": position, "name": "process_name", "args": {"name": name}}
    origin = float(result.jobs["submit_s"][0])
    ids, asked = result.jobs["job_id"].tolist(), result.jobs["gpus"].tolist()
    columns = (values.tolist() for values in result.segments.values())
    for job, kind, start, end, node, first, count, failed, _ in zip(*columns, strict=True):
        for gpu in range(first, first + max(1, int(count))):
            yield {
                "ph": "X",
                "pid": node,
                # A job that shares another's GPUs gets a separate track.
                "tid": 2 * gpu + (kind == "packed"),
                "ts": round((start - origin) * 1e6),
                "dur": round((end - start) * 1e6),
                "name": ids[job],
                "cat": kind,
                "args": {"gpus": asked[job], "failed": bool(failed)},
            }
