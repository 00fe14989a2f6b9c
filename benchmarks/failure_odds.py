"""How well is it known before the end that a job will fail, and do the probabilities hold?

    python benchmarks/failure_odds.py --data DATA [--first 5000]

The first jobs of every public trace that tells failures from other ends, in order of submission;
ends are learned when they have happened. Scored is the second half, at submission and, of those
that ran for so long, after an hour: the Brier score (mean squared error of the probability; lower
is better) of `schedmate.retrieval.fates` where it says something, beside what the last like job
came to, the user's own share of failures, and the share of all jobs so far, on the same jobs.
`calibration` is the mean distance of what was said from what happened, in tenths of the scale,
weighted by jobs (expected calibration error).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _record import record
from estimation_traces import DEVELOPMENT, Job, in_order, traces

from schedmate.jobs import FAILURE_AGES_S
from schedmate.retrieval.experts import Submission
from schedmate.retrieval.fates import Odds

AGES = {"at submission": 0.0, "after an hour": 3600.0}
LEAST = 50
"""Failures, other ends, and jobs of which something is said: without so many, nothing is scored."""

OURS, BASELINES = "odds", ("last like job", "this user", "all jobs")


class Simple:
    """The baselines."""

    def __init__(self) -> None:
        self._last: dict[object, bool] = {}
        self._shares: dict[object, list[int]] = {}

    def said(self, job: Submission) -> tuple[float, ...]:
        everybody = self._share(None, 0.5)
        like = next((self._last[key] for _, key in job.groups() if key in self._last), None)
        return (
            everybody if like is None else float(like),
            self._share(("user", job.user), everybody),
            everybody,
        )

    def learn(self, job: Job) -> None:
        for _, key in job.asked.groups():
            self._last[key] = bool(job.failed)
        for key in (None, ("user", job.asked.user)):
            share = self._shares.setdefault(key, [0, 0])
            share[0] += 1
            share[1] += bool(job.failed)

    def _share(self, key: object, otherwise: float) -> float:
        runs, failed = self._shares.get(key, (0, 0))
        return (failed + otherwise) / (runs + 1)


def scored(name: str, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """A line for each age."""
    ages = [FAILURE_AGES_S.index(age) for age in AGES.values()]
    odds, simple = Odds({}), Simple()
    said = np.full((len(jobs), len(ages), 1 + len(BASELINES)), np.nan)
    for number, ended in in_order(list(jobs)):
        for one in ended:
            odds.learn(jobs[one].asked, jobs[one].run_s, bool(jobs[one].failed))
            simple.learn(jobs[one])
        ours = odds.failing(jobs[number].asked)
        for row, age in enumerate(ages):
            one = ours[age] if ours else None
            said[number, row, 0] = np.nan if one is None else one
            said[number, row, 1:] = simple.said(jobs[number].asked)
    failed = np.array([bool(job.failed) for job in jobs])
    ran = np.array([job.run_s for job in jobs])
    lines = []
    for row, (when, age_s) in enumerate(AGES.items()):
        reached = (np.arange(len(jobs)) >= len(jobs) // 2) & (ran >= age_s)
        count, happened = int(reached.sum()), int(failed[reached].sum())
        spoke = reached & ~np.isnan(said[:, row, 0])
        if min(happened, count - happened) < LEAST or spoke.sum() < LEAST:
            continue
        part, truth = said[spoke, row], failed[spoke]
        briers = ((part - truth[:, None]) ** 2).mean(axis=0)
        lines.append(
            {
                "trace": name + " (development)" * (name in DEVELOPMENT),
                "when": when,
                "jobs": count,
                "failed": f"{happened / count:.0%}",
                "said of": f"{spoke.sum() / count:.0%}",
                OURS: f"{briers[0]:.3f}",
                **{base: f"{one:.3f}" for base, one in zip(BASELINES, briers[1:], strict=True)},
                "calibration": f"{_calibration(part[:, 0], truth):.3f}",
                "calibration, this user": f"{_calibration(part[:, 2], truth):.3f}",
            }
        )
    return lines


def _calibration(said: np.ndarray, truth: np.ndarray) -> float:
    bins = np.minimum((said * 10).astype(int), 9)
    apart = [abs(said[bins == one].mean() - truth[bins == one].mean()) for one in np.unique(bins)]
    weights = [(bins == one).mean() for one in np.unique(bins)]
    return float(np.dot(apart, weights))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--first", type=int, default=5000)
    asked = parser.parse_args()
    lines: list[dict[str, Any]] = []
    for name, read in traces(asked.data):
        jobs = read()[: asked.first]
        if jobs and jobs[0].failed is not None:
            lines += scored(name, jobs)
    record("failure_odds", lines, jobs=f"the first {asked.first} of each trace")


if __name__ == "__main__":
    main()
