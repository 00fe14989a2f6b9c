"""How probable it is that a job fails before its end, by user, command and age.

Of the runs of each group (`Submission.groups`: this work, this user, this kind, all) that had run
for an age, the share that failed after it, recent runs counting more. The share of a group is
shrunk to that of the next wider one (hierarchical beta-binomial), and what comes out is corrected
by what became of the runs of which the same was said (histogram binning: Zadrozny, Elkan, Obtaining
calibrated probability estimates, ICML 2001). Where too few runs tell, or where what was said of the
latest ones does not hold, nothing is said.

Failures are ends for which neither the user nor the scheduler decided: a program that failed, a
node that was lost, memory that ran out. A run that was cancelled or reached its limit did not fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from schedmate.jobs import FAILURE_AGES_S, FAILURE_STATES, JobRecord
from schedmate.retrieval.experts import Part, Parts, Submission

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

AGES = np.array(FAILURE_AGES_S)
FADE = 0.96
"""What a run of a group counts when the next one has ended: 25 runs count in all."""
PARENT = 3.0
"""Runs that the wider group counts as."""
BINS = 10
"""Of probabilities, equally wide, each with a correction of its own at each age."""
CHECK_FADE = 0.998
"""What a run counts for the correction when the next one has ended."""
LATEST_FADE = 0.98
"""The same for whether it holds: 50 runs count in all."""
WRONG = 0.1
"""Distance of what was said of the latest runs from what became of them, from which on it does not
hold, where it is also more than two standard errors."""
CHECKED = 30.0
"""Runs of which about the same was said, and whose end is known, from which on it is said again."""


class Fates(Part):
    """Ended runs of one group by age: how many had run for each, and how many of these failed."""

    __slots__ = ("counts",)
    NUMBERS = ("counts",)

    def __init__(self) -> None:
        self.counts = np.zeros((2, len(AGES)))

    def add(self, run_s: float, failed: bool) -> None:
        """Take in a run that ended."""
        self.counts *= FADE
        self.counts[:, run_s >= AGES] += [[1.0], [float(failed)]]


class Checks(Part):
    """By age and bin: runs of which that was said and how many failed; of the latest ones the same,
    and the sum of the corrected probabilities."""

    __slots__ = ("counts",)
    NUMBERS = ("counts",)

    def __init__(self) -> None:
        self.counts = np.zeros((5, len(AGES), BINS))

    def corrected(self, said: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """By age, the probability, and whether it holds."""
        runs, failed, latest, fell, sums = self.counts[:, range(len(AGES)), _bins(said)]
        corrected = (failed + PARENT * said) / (runs + PARENT)
        most = np.maximum(latest, 1.0)
        share = sums / most
        doubt = 2 * np.sqrt(np.maximum(share * (1 - share), 0.0) / most)
        apart = np.abs(share - fell / most)
        return corrected, (runs >= CHECKED) & (apart <= np.maximum(WRONG, doubt))

    def learn(self, said: Floats, reached: NDArray[np.intp], failed: bool) -> None:
        """Take in a run of which that was said, at the ages that it reached."""
        corrected, _ = self.corrected(said)
        self.counts[:2] *= CHECK_FADE
        self.counts[2:] *= LATEST_FADE
        new = np.ones((5, len(reached)))
        new[[1, 3]] = float(failed)
        new[4] = corrected[reached]
        self.counts[:, reached, _bins(said)[reached]] += new


class Odds:
    """The probability of failure; `parts` is where what ended runs taught is kept."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def failing(self, job: Submission) -> list[float | None]:
        """For each age of `FAILURE_AGES_S`, the probability that the job fails once it has run for
        that long; None where too few runs tell, and an empty list where they do at no age."""
        checks: Checks | None = self._parts.get(("checks",))
        if checks is None:
            return []
        corrected, holds = checks.corrected(self._said(job))
        if not holds.any():
            return []
        return [float(one) if ok else None for one, ok in zip(corrected, holds, strict=True)]

    def learn(self, job: Submission, run_s: float, failed: bool) -> None:
        """Take in a run that ended, before which this object has not seen it."""
        reached = np.flatnonzero(run_s >= AGES)
        checks: Checks | None = self._parts.get(("checks",))
        if checks is None:
            checks = self._parts[("checks",)] = Checks()
        checks.learn(self._said(job), reached, failed)
        for key in _keys(job):
            part: Fates | None = self._parts.get(key)
            if part is None:
                part = self._parts[key] = Fates()
            part.add(run_s, failed)

    def _said(self, job: Submission) -> Floats:
        """Before the correction."""
        said = np.full(len(AGES), 0.5)
        for key in _keys(job):
            part: Fates | None = self._parts.get(key)
            if part is not None:
                runs, failed = part.counts
                said = (failed + PARENT * said) / (runs + PARENT)
        return said


def failed(record: JobRecord) -> bool:
    """Whether a run that ended failed."""
    return record.state in FAILURE_STATES


def _keys(job: Submission) -> Iterator[tuple[object, ...]]:
    """From all jobs to the finest group."""
    yield ("fates",)
    for _, key in reversed(job.groups()):
        yield ("fates", *key)


def _bins(said: Floats) -> NDArray[np.intp]:
    return np.minimum((said * BINS).astype(np.intp), BINS - 1)
