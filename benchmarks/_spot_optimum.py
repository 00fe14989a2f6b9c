"""The optimal schedule of a small case: the program of the ASI paper's Appendix A, by HiGHS.

Time is in steps, with a checkpoint after every few of them. The program knows all jobs in advance,
and a job may change nodes between any two steps, as in the paper's constraints. Its first term, the
share of runs that ended by an eviction, is not linear; here it is the number of evictions over the
number of jobs. Jobs of high priority have fixed start times: only those of spot jobs are decided.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from schedmate.base.errors import InputError, require
from schedmate.schedulers.model import Cluster, Job

Row = tuple[dict[int, float], float, float]
MOST_VARIABLES = 50_000
"""Beyond it HiGHS takes hours."""


class Case(NamedTuple):
    """A case to be scheduled."""

    jobs: list[Job]
    blocks: list[int]
    """Of each job: checkpoints until it is done."""
    first: list[int]
    """Of each job: the step from which on it may run."""
    starts: Mapping[int, int]
    """By position: the step at which a job of high priority starts."""
    every: int
    """Steps between two checkpoints."""
    horizon: int
    """Steps."""


class Optimum(NamedTuple):
    """The optimal schedule of the integer program."""

    evictions: int
    """Runs of spot jobs but for the first of each."""
    kept: float
    """Checkpointed work of all jobs, as a share of the available GPU time."""
    objective: float
    """Evictions over jobs, less `alpha` times the kept work; smaller is better."""
    variables: int
    cpu_s: float


def optimal_schedule(
    case: Case, cluster: Cluster, alpha: float, time_limit_s: float = 60.0
) -> Optimum:
    """The schedule that minimises evictions over jobs less `alpha` times the kept work.

    Raises `MissingExtraError` without SciPy, and `InputError` for a case that is too large, or
    whose jobs of high priority cannot run as stated.
    """
    require("the program of Appendix A", "schedulers", "scipy")
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    began = time.process_time()
    model = _Model(case, cluster)
    count = len(model.cost)
    if count > MOST_VARIABLES:
        raise InputError(f"the program would have {count:,} variables; take a smaller case.")
    capacity = cluster.gpus * case.horizon
    cost = np.zeros(count)
    for column, evictions, gpu_steps in model.cost:
        cost[column] = evictions / len(case.jobs) - alpha * gpu_steps / capacity
    entries = [(r, c, v) for r, (row, _, _) in enumerate(model.rows) for c, v in row.items()]
    rows, columns, values = zip(*entries, strict=True)
    matrix = coo_array((values, (rows, columns)), shape=(len(model.rows), count)).tocsr()
    solution = milp(
        cost,
        integrality=np.ones(count),
        bounds=Bounds(np.zeros(count), np.array(model.most)),
        constraints=LinearConstraint(
            matrix, [row[1] for row in model.rows], [row[2] for row in model.rows]
        ),
        options={"time_limit": time_limit_s},
    )
    if solution.x is None:
        raise InputError("jobs of high priority cannot all run when they are said to.")
    evictions = kept_gpu_steps = 0.0
    for column, runs, gpu_steps in model.cost:
        evictions += runs * solution.x[column]
        kept_gpu_steps += gpu_steps * solution.x[column]
    return Optimum(
        round(evictions),
        kept_gpu_steps / capacity,
        float(solution.fun),
        count,
        time.process_time() - began,
    )


class _Model:
    """Columns and rows of the program."""

    def __init__(self, case: Case, cluster: Cluster) -> None:
        self.case = case
        self.most: list[float] = []
        self.cost: list[tuple[int, float, float]] = []
        """Each column, the evictions that it counts, and the GPU steps that it keeps."""
        self.rows: list[Row] = []
        self._cluster = cluster
        rows: dict[tuple[int, int], dict[int, float]] = {}
        for index in range(len(case.jobs)):
            self._job(index, rows)
        for (node, _), row in rows.items():
            self.rows.append((row, -np.inf, float(cluster.nodes[node].gpus)))

    def _column(self, most: float, evictions: float = 0.0, gpu_steps: float = 0.0) -> int:
        self.most.append(most)
        self.cost.append((len(self.cost), evictions, gpu_steps))
        return len(self.cost) - 1

    def _job(self, index: int, rows: dict[tuple[int, int], dict[int, float]]) -> None:
        case, job = self.case, self.case.jobs[index]
        every, wanted = case.every, case.blocks[index]
        pods = 1
        if job.constraints is not None and job.constraints.pods:
            pods = job.constraints.pods
        fixed = case.starts.get(index)
        # A block is the work between two checkpoints; work without a checkpoint is useless.
        blocks: dict[int, int] = {}
        for step in range(case.first[index], case.horizon - every + 1):
            if fixed is not None and step not in range(fixed, fixed + wanted * every, every):
                continue
            blocks[step] = self._column(1.0, 0.0, float(job.gpus * every))
        if fixed is not None:
            self.rows += [({column: 1.0}, 1.0, 1.0) for column in blocks.values()]
        else:
            self.rows.append((dict.fromkeys(blocks.values(), 1.0), -np.inf, float(wanted)))
            self._runs(blocks)
        for step in range(case.horizon):
            running = {blocks[at]: 1.0 for at in range(step - every + 1, step + 1) if at in blocks}
            if not running:
                continue
            if fixed is None:
                self.rows.append((running, -np.inf, 1.0))
            placed: dict[int, float] = {}
            for node in range(len(self._cluster.nodes)):
                kind = self._cluster.nodes[node].gpu_type
                if job.gpu_type and kind not in ("", job.gpu_type):
                    continue
                column = self._column(float(pods))
                placed[column] = 1.0
                rows.setdefault((node, step), {})[column] = job.gpus / pods
            self.rows.append((placed | {column: -float(pods) for column in running}, 0.0, 0.0))

    def _runs(self, blocks: dict[int, int]) -> None:
        """Each run but the first is one that follows an eviction."""
        begun: dict[int, float] = {}
        for step, block in blocks.items():
            run = self._column(1.0)
            begun[run] = 1.0
            row = {block: 1.0, run: -1.0}
            if (before := blocks.get(step - self.case.every)) is not None:
                row[before] = -1.0
            self.rows.append((row, -np.inf, 0.0))
        evicted = self._column(float(len(blocks)), evictions=1.0)
        self.rows.append((begun | {evicted: -1.0}, -np.inf, 1.0))
