"""Sia's integer program as a matrix, for the general solver and for its linear relaxation."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import numpy as np

_CLOSE = 40
"""Most jobs that the linear program leaves open, besides those that it splits."""
_WHOLE = 1e-6


class Choice(NamedTuple):
    """One configuration that a job could get."""

    kind: int
    """Which capacity it uses."""
    gpus: int
    cost: float
    """Its cost in the objective; a job without GPUs adds 0."""


class ProgramError(Exception):
    """The solver found no assignment, or none in time."""


class Relaxed(NamedTuple):
    """A part of an assignment, by a linear program."""

    chosen: list[int | None]
    """Position of the choice of each job; None if it waits or is left open."""
    open_jobs: list[int]
    left: list[int]
    """GPUs of each kind for those."""
    bound: float
    """No assignment costs less."""


class Table:
    """The program as a matrix: a column for each choice, a row for each job and each kind."""

    def __init__(
        self,
        choices: Sequence[Sequence[Choice]],
        useful: list[list[int]],
        capacity: Sequence[int],
    ) -> None:
        from scipy.sparse import csr_array

        self.choices, self.capacity = choices, capacity
        self.columns = [(job, one) for job, row in enumerate(useful) for one in row]
        items = [choices[job][one] for job, one in self.columns]
        self.jobs, count = len(choices), len(items)
        self.rows = np.array([job for job, _ in self.columns])
        self.kinds = np.array([one.kind for one in items])
        self.gpus = np.array([one.gpus for one in items], dtype=float)
        self.costs = np.array([one.cost for one in items])
        where = (
            np.concatenate([self.rows, self.jobs + self.kinds]),
            np.tile(np.arange(count), 2),
        )
        self.matrix = csr_array(
            (np.concatenate([np.ones(count), self.gpus]), where),
            shape=(self.jobs + len(capacity), count),
        )
        self.most = np.concatenate([np.ones(self.jobs), np.array(capacity, dtype=float)])

    def relaxed(self, time_limit_s: float) -> Relaxed | None:
        """The choices of the linear program and the jobs that it leaves open; None without a
        solution.

        It splits at most as many jobs as there are kinds. Those are left open, with the jobs for
        which at its prices of GPUs a second choice is nearly as good.
        """
        from scipy.optimize import linprog

        with _off_standard_output():
            found = linprog(
                self.costs,
                A_ub=self.matrix,
                b_ub=self.most,
                method="highs-ipm",
                options={"time_limit": time_limit_s},
            )
        if found.x is None or found.status != 0:
            return None
        prices = -found.ineqlin.marginals[self.jobs :]
        reduced = self.costs + prices[self.kinds] * self.gpus
        best = np.zeros((self.jobs, 2))  # the two least of each job, waiting being one
        for job, value in zip(self.rows.tolist(), reduced.tolist(), strict=True):
            if value < best[job, 0]:
                best[job] = value, best[job, 0]
            elif value < best[job, 1]:
                best[job, 1] = value
        split = (found.x > _WHOLE) & (found.x < 1 - _WHOLE)
        close = np.argsort(best[:, 1] - best[:, 0], kind="stable")[:_CLOSE]
        open_jobs = {*self.rows[split].tolist(), *close.tolist()}
        chosen: list[int | None] = [None] * self.jobs
        left = list(self.capacity)
        for (job, one), value in zip(self.columns, found.x, strict=True):
            if value > 0.5 and job not in open_jobs:
                chosen[job] = one
                left[self.choices[job][one].kind] -= self.choices[job][one].gpus
        return (
            Relaxed(chosen, sorted(open_jobs), left, float(found.fun)) if min(left) >= 0 else None
        )

    def optimum(self, time_limit_s: float, gap: float) -> list[int | None]:
        """Solve with the general solver. Raises `ProgramError` if it finds no solution."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        chosen: list[int | None] = [None] * self.jobs
        if not self.columns:
            return chosen
        with _off_standard_output():
            result = milp(
                self.costs,
                integrality=np.ones(len(self.columns)),
                bounds=Bounds(0, 1),
                constraints=LinearConstraint(self.matrix, ub=self.most),
                options={"time_limit": time_limit_s, "mip_rel_gap": gap},
            )
        if result.x is None:
            raise ProgramError(str(result.message).partition(" (")[0])
        for (job, one), value in zip(self.columns, result.x, strict=True):
            if value > 0.5:
                chosen[job] = one
        return chosen


@contextmanager
def _off_standard_output() -> Iterator[None]:
    """Redirect what C code prints to standard error meanwhile.

    HiGHS prints some messages despite the option that silences it, and these would end up in JSON
    on standard output.
    """
    try:
        output = os.dup(1)
    except OSError:  # closed, so that nothing can be written there
        yield
        return
    standard = ctypes.CDLL(None)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
        standard.fflush(None)
        with suppress(OSError):  # closed too
            os.dup2(2, 1)
        yield
    finally:
        standard.fflush(None)  # it is buffered in C, and would come out later
        os.dup2(output, 1)
        os.close(output)
