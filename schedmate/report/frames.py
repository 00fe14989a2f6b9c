"""Results as pandas data frames, for notebooks (extra `notebooks`).

A function whose name ends in `columns` needs no extra: it returns the same as plain lists by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedmate.base.errors import InputError, UsageError, require
from schedmate.jobs import Estimate, Neighbour

if TYPE_CHECKING:
    import pandas as pd

    from schedmate.schedulers.sim.outcome.results import Result


Columns = dict[str, list[Any]]
"""Columns of equal length by name."""


def simulate(
    trace: str | Path,
    policies: str | Sequence[str],
    cluster: str,
    *,
    estimator: str = "user-mean",
    seed: int = 0,
) -> list[Result]:
    """The result of each policy over a trace, as `schedmate simulate` finds it.

    `policies` are names with settings, as `["fifo", "tiresias:threshold_gpu_s=7200"]`; `cluster` is
    nodes x GPUs, as `"108x8"`. Raises `InputError` for a trace that cannot be read and `UsageError`
    for an unknown policy, cluster or estimator.
    """
    from schedmate.schedulers.model import Cluster
    from schedmate.schedulers.sim.comparison import compare
    from schedmate.schedulers.sim.parameters import HONEST
    from schedmate.schedulers.sim.runs import Plan
    from schedmate.schedulers.sim.traces import read_trace

    names = (policies,) if isinstance(policies, str) else tuple(policies)
    if not names:
        raise UsageError("no policy is named; `schedmate policies` lists them.")
    plan = Plan(names, Cluster.parse(cluster), estimator, HONEST, seed=seed, cluster_name=cluster)
    return list(compare(read_trace(Path(trace)), [plan]))


def jobs_columns(results: Iterable[Result]) -> Columns:
    """A row for each job of each run: `policy`, `seed`, and the columns of `jobs.csv`.

    Times are in seconds; `jct_s` is submission to end, `queue_s` the part of it spent waiting.
    """
    from schedmate.schedulers.sim.outcome.results import JOBS

    return _tables([(one, one.jobs) for one in results], JOBS)


def segments_columns(results: Iterable[Result]) -> Columns:
    """A row for each stretch of GPUs held on a node: `policy`, `seed`, columns of `segments.csv`.

    `job` is the position of the job in its run, from 0; times are in seconds.
    """
    from schedmate.schedulers.sim.outcome.results import SEGMENTS

    return _tables([(one, one.segments) for one in results], SEGMENTS)


def neighbours_columns(estimate: Estimate | None) -> Columns:
    """A row for each past job that an estimate is based on, by descending weight.

    Columns are the fields of `schedmate.Neighbour`: similarity (cosine, at most 1), weight (they
    add up to 1), run time as observed and rescaled to the new job [s]. No rows without an estimate.
    """
    by_weight = sorted(
        estimate.neighbours if estimate else [], key=lambda neighbour: -neighbour.weight
    )
    rows = [neighbour.model_dump() for neighbour in by_weight]
    return {name: [row[name] for row in rows] for name in Neighbour.model_fields}


def jobs(results: Iterable[Result]) -> pd.DataFrame:
    """`jobs_columns` as a data frame. Raises `MissingExtraError` without pandas."""
    return _frame(jobs_columns(results))


def segments(results: Iterable[Result]) -> pd.DataFrame:
    """`segments_columns` as a data frame. Raises `MissingExtraError` without pandas."""
    return _frame(segments_columns(results))


def neighbours(estimate: Estimate | None) -> pd.DataFrame:
    """`neighbours_columns` as a data frame. Raises `MissingExtraError` without pandas."""
    return _frame(neighbours_columns(estimate))


def read_run(folder: str | Path) -> Result:
    """One run that `schedmate simulate --out` has written. Raises `InputError` where none is."""
    from schedmate.schedulers.sim.outcome.results import read_result

    result = read_result(Path(folder))
    if result is None:
        raise InputError(
            f"{folder} holds no whole run; `schedmate simulate --out DIR` writes one each."
        )
    return result


def _tables(parts: Sequence[tuple[Result, Any]], names: Iterable[str]) -> Columns:
    columns: Columns = {name: [] for name in ("policy", "seed", *names)}
    for result, table in parts:
        for name in names:
            columns[name] += table[name].tolist()
        added = len(columns["start_s"]) - len(columns["policy"])
        columns["policy"] += [result.numbers["policy"]] * added
        columns["seed"] += [result.numbers["seed"]] * added
    return columns


def _frame(columns: Columns) -> pd.DataFrame:
    require("a data frame", "notebooks", "pandas")
    import pandas as pd

    return pd.DataFrame(columns)
