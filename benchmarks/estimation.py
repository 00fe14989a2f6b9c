"""How good are run times predicted at submission, on every public trace?

    python benchmarks/estimation.py --data DATA [--first 5000] [--only NAME ...] [--workers 1]
        [--keep-baselines] [--metadata]

Jobs come in order of submission, a run time is learned at its true end, and jobs of the second half
that completed are scored (nobody knows how long the others would have run). Constants were chosen
on the four traces of `DEVELOPMENT` (estimation_traces.py); all others were not looked at.

    mixture          schedmate's experts, combined and calibrated online (retrieval/mixture.py)
    requested        the requested time
    median           the running median of all completed
    last two         the mean of the user's last two completed (Tsafrir, Etsion, Feitelson 2007)
    user mean, user geometric mean
    last             the last completed run of a like job (the finest group that the trace allows:
                     user, name, size, request; without users the queue, size, request)
    trees            quantile boosting (scikit-learn) on all columns and past run times, fitted anew
                     every day, or `FITS` times where a trace is longer

Where a baseline has nothing to say the running median stands in. Point predictions get the
distribution of their own last 400 errors, so that every method has a pinball loss and an interval.

Costs are CPU time. Pinball is the mean over 25 levels, on log seconds. "Best expert" is the lowest
pinball of a single expert of that trace in hindsight. With `--keep-baselines` the baselines' rows
are those that were recorded before: they do not depend on schedmate.

`--metadata` measures instead what is known of the work, on the traces that name it (`NAMED`, their
first `--first` jobs): `nothing` is the mixture without names, `names` with them as groups, `similar
jobs` with the Scheduling Advisor over the same names as one more expert, as in an estimate.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from _record import record, recorded
from estimation_traces import DEVELOPMENT, Job, coded, in_order, traces

from schedmate.jobs import JobRecord, WorkloadMetadata
from schedmate.retrieval.advisor import SchedulingAdvisor
from schedmate.retrieval.embedders import load_embedder
from schedmate.retrieval.experts import LEVELS, OWN_EXPERTS, P10, P50, P90, Errors, Submission
from schedmate.retrieval.history import MemoryHistory
from schedmate.retrieval.learning import SIMILAR
from schedmate.retrieval.mixture import Mixture

FITS = 6
WINDOW = 6_000
TREE_LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
COLD = ((0, 10), (10, 100), (100, 1000))
BASELINES = ("requested", "median", "last two", "user mean", "user geometric mean", "last", "trees")
METHODS = ("mixture", *BASELINES)
NAMED = {
    "LLNL-Atlas-2006-2.1-cln": "executable",
    "LLNL-Thunder-2007-1.1-cln": "executable",
    "NASA-iPSC-1993-3.1-cln": "executable",
    "UniLu-Gaia-2014-1": "executable",
    "supercloud": "kind of job, constraint, resources",
    "eagle": "job name",
    "openb": "all resources",
    "image generation": "kind, checkpoint, adapters",
}
"""What the name of a job's work is, on the traces that have one."""


class Past:
    """What the baselines and the trees know: completed run times of groups, in order of ends."""

    def __init__(self) -> None:
        self.last: dict[Any, deque[float]] = defaultdict(lambda: deque(maxlen=16))
        self.sums: dict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        self.all = Errors()

    def learn(self, job: Job) -> None:
        if job.cut:
            return
        log_s = math.log(job.run_s)
        for _, key in job.asked.groups():
            self.last[key].append(log_s)
        sums = self.sums[job.asked.user]
        sums[0] += 1
        sums[1] += job.run_s
        sums[2] += log_s
        self.all.add(log_s, job.ended)

    def points(self, asked: Submission) -> dict[str, float]:
        """Baselines' predictions [log s]; those with nothing to say give the running median."""
        middle = float(self.all.of(math.inf)[1][P50]) if self.all.count else math.log(3600.0)
        count, total, logs = self.sums.get(asked.user, (0.0, 0.0, 0.0))
        of_user = self.last.get((asked.user,)) if asked.user is not None else None
        like = self.last.get(asked.groups()[0][1])
        points = dict.fromkeys(BASELINES[:-1], middle)
        if asked.request_s:
            points["requested"] = math.log(asked.request_s)
        if of_user:
            two = list(of_user)[-2:]
            points["last two"] = math.log(sum(map(math.exp, two)) / len(two))
        if count and asked.user is not None:
            points["user mean"] = math.log(total / count)
            points["user geometric mean"] = logs / count
        if like:
            points["last"] = like[-1]
        return points

    def features(self, asked: Submission) -> list[float]:
        groups = [self.last.get(key) for _, key in asked.groups()]
        groups += [None] * (8 - len(groups))
        row = [asked.size or math.nan, math.log(asked.request_s) if asked.request_s else math.nan]
        row += [asked.submitted / 3600 % 24, asked.submitted // 86400 % 7]
        row += [coded(asked.kind), coded(asked.user), coded(asked.name)]
        for group in groups[:8]:
            if group:
                before = group[-2] if len(group) > 1 else group[-1]
                row += [group[-1], before, sum(group) / len(group), min(group), max(group)]
            else:
                row += [math.nan] * 5
        return row


def baselines(
    jobs: list[Job],
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]:
    """Quantiles [jobs, levels] and points of each baseline, and the features of every job."""
    past = Past()
    errors = {name: Errors() for name in BASELINES[:-1]}
    quantiles = {name: np.zeros((len(jobs), len(LEVELS)), np.float32) for name in errors}
    features = np.zeros((len(jobs), 47), np.float32)
    points: list[dict[str, float]] = []
    for number, ended in in_order(jobs):
        for one in ended:
            if not jobs[one].cut:
                for name, point in points[one].items():
                    errors[name].add(math.log(jobs[one].run_s) - point, jobs[one].ended)
            past.learn(jobs[one])
        points.append(past.points(jobs[number].asked))
        features[number] = past.features(jobs[number].asked)
        for name, point in points[number].items():
            own = errors[name]
            quantiles[name][number] = point + (own.of(math.inf)[1] if own.count else 0.0)
    raw = {name: np.array([one[name] for one in points]) for name in errors}
    return quantiles, raw, features


def boosted(jobs: list[Job], features: np.ndarray) -> tuple[np.ndarray, int]:
    """Quantiles [jobs, levels] of the trees (NaN before the first fit), and the number of fits."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    submitted = np.array([job.asked.submitted for job in jobs])
    ended = np.array([job.ended for job in jobs])
    logs = np.log([job.run_s for job in jobs])
    done = np.array([not job.cut for job in jobs])
    quantiles = np.full((len(jobs), len(LEVELS)), np.nan, np.float32)
    days = max(1, round((submitted[-1] - submitted[0]) / 86400))
    starts = [200, *np.linspace(0, len(jobs), min(days, FITS) + 1).astype(int)[:-1]]
    starts = sorted({int(start) for start in starts if start >= 200})
    fits = 0
    for start, stop in zip(starts, [*starts[1:], len(jobs)], strict=True):
        known = np.flatnonzero((ended <= submitted[start]) & done)[-WINDOW:]
        if len(known) < 50:
            continue
        # what is the same of all, or said of none, teaches nothing
        of = features[:, [len(np.unique(column)) > 1 for column in features[known].T]]
        told = []
        for level in TREE_LEVELS:
            trees = HistGradientBoostingRegressor(
                loss="quantile",
                quantile=level,
                max_iter=50,
                learning_rate=0.15,
                max_leaf_nodes=24,
                min_samples_leaf=15,
                early_stopping=False,
                random_state=0,
            )
            trees.fit(of[known], logs[known])
            told.append(trees.predict(of[start:stop]))
        fits += 1
        rows = np.sort(np.stack(told, axis=1), axis=1)
        quantiles[start:stop] = [_all_levels(row) for row in rows]
    return quantiles, fits


def _all_levels(row: np.ndarray) -> np.ndarray:
    """From the trees' levels to all, the ends with the slope of the last two."""
    low = row[0] - (row[1] - row[0]) * 0.7
    high = row[-1] + (row[-1] - row[-2]) * 0.7
    return np.interp(LEVELS, (0.02, *TREE_LEVELS, 0.98), (low, *row, high))


class Online:
    """A mixture driven through a trace, and what it and its experts said; `similar` are quantiles
    [jobs, levels] of similar jobs, as one more expert."""

    def __init__(self, jobs: list[Job], similar: np.ndarray | None = None) -> None:
        self.jobs = jobs
        self.similar = similar
        self.quantiles = np.full((len(jobs), len(LEVELS)), math.log(3600.0), np.float32)
        self.points = np.full(len(jobs), math.log(3600.0))
        self.experts = np.full((len(OWN_EXPERTS) + (similar is not None), len(jobs)), np.nan)
        self.learn_s = self.predict_s = 0.0
        self._run()

    def asked(self, number: int) -> Submission:
        asked = self.jobs[number].asked
        if self.similar is None:
            return asked
        return replace(asked, extra={SIMILAR: self.similar[number]})

    def _run(self) -> None:
        mixture = Mixture()
        learned = predicted = 0
        for number, ended in in_order(self.jobs):
            timed = number % 50 == 0  # reading the clock may take as long as a prediction
            began = time.thread_time() if timed else 0.0
            for one in ended:
                job = self.jobs[one]
                mixture.learn(self.asked(one), job.ended, math.log(job.run_s), job.cut)
            middle = time.thread_time() if timed else 0.0
            forecast = mixture.predict(self.asked(number))
            if timed:
                self.predict_s += time.thread_time() - middle
                self.learn_s += middle - began
                learned += len(ended)
                predicted += 1
            if forecast is None:
                continue
            self.quantiles[number] = forecast.quantiles
            self.points[number] = forecast.point
            rows = forecast.opinions.quantiles
            fallback = rows[OWN_EXPERTS.index("global")]
            truth = math.log(self.jobs[number].run_s)
            spoken = np.where(np.isnan(rows[:, :1]), fallback, rows)
            self.experts[:, number] = pinball(spoken, np.full(len(spoken), truth))
        self.predict_s /= max(1, predicted)
        self.learn_s /= max(1, learned)


def pinball(quantiles: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The mean over `LEVELS`, for each row."""
    off = truth[:, None] - quantiles
    return np.maximum(LEVELS * off, (LEVELS - 1) * off).mean(axis=1)


def measured(jobs: list[Job], with_baselines: bool) -> Iterator[dict[str, Any]]:
    """A row for each method."""
    truth = np.log([job.run_s for job in jobs])
    done = np.array([not job.cut for job in jobs])
    scored = np.flatnonzero(done & (np.arange(len(jobs)) >= len(jobs) // 2))
    if not len(scored):
        return
    online = Online(jobs)
    losses = online.experts[:, scored].mean(axis=1)
    best = int(np.nanargmin(losses)) if np.isfinite(losses).any() else 0
    own = scores(online.quantiles[scored].astype(float), online.points[scored], truth[scored])
    yield {
        "method": "mixture",
        **own,
        "best expert": f"{OWN_EXPERTS[best]} {losses[best]:.4f}",
        "over best": round(float(own["pinball"] / losses[best] - 1), 4),
        "ms learn": round(online.learn_s * 1e3, 3),
        "ms predict": round(online.predict_s * 1e3, 3),
        **cold(online.quantiles.astype(float), truth, done, jobs),
    }
    if not with_baselines:
        return
    quantiles, points, features = baselines(jobs)
    trees, fits = boosted(jobs, features)
    quantiles["trees"] = np.where(np.isnan(trees[:, :1]), quantiles["median"], trees)
    points["trees"] = quantiles["trees"][:, P50].astype(float)
    for name in BASELINES:
        rows = quantiles[name].astype(float)
        yield {
            "method": name,
            **scores(rows[scored], points[name][scored], truth[scored]),
            "fits": fits if name == "trees" else "",
            **cold(rows, truth, done, jobs),
        }


def similar(jobs: list[Job]) -> np.ndarray:
    """What the Scheduling Advisor says at each submission: quantiles [jobs, levels] of log seconds,
    NaN where it abstains."""
    records = [
        JobRecord.model_validate(
            {
                "job_id": str(number),
                "metadata": WorkloadMetadata.model_validate(
                    {
                        "model_config": {"model_name": job.asked.name},
                        "training_config": {"user": job.asked.user, "size": job.asked.size},
                    }
                ),
                "state": "FAILED" if job.cut else "COMPLETED",
                "submit_time": job.asked.submitted,
                "end_time": job.ended,
                "duration_s": job.run_s,
            }
        )
        for number, job in enumerate(jobs)
    ]
    history = MemoryHistory(load_embedder())
    history.prepare(record.metadata for record in records)
    advisor = SchedulingAdvisor(history)
    told = np.full((len(jobs), len(LEVELS)), np.nan)
    for number, ended in in_order(jobs):
        for one in ended:
            history.add(records[one])
        asked = records[number]
        estimate = advisor.estimate(asked.metadata, asked.launch, asked.submit_time, explain=False)
        if estimate.quantiles_s and not estimate.abstained:
            told[number] = np.log(np.maximum(estimate.quantiles_s, 1.0))
    return told


def known_work(name: str, jobs: list[Job]) -> Iterator[dict[str, Any]]:
    """A row for each that may be known of the work, on a trace that names it."""
    truth = np.log([job.run_s for job in jobs])
    done = np.array([not job.cut for job in jobs])
    scored = np.flatnonzero(done & (np.arange(len(jobs)) >= len(jobs) // 2))
    nameless = [replace(job, asked=replace(job.asked, name=None)) for job in jobs]
    for known, online in (
        ("nothing", Online(nameless)),
        ("names", Online(jobs)),
        ("similar jobs", Online(jobs, similar(jobs))),
    ):
        rows = online.quantiles[scored].astype(float)
        yield {
            "trace": name,
            "jobs": len(jobs),
            "name": NAMED[name],
            "known": known,
            **scores(rows, online.points[scored], truth[scored]),
        }


def scores(rows: np.ndarray, point: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Of scored jobs: pinball loss, within 2x, coverage (also by tenth), width, interval score."""
    low, high = rows[:, P10], rows[:, P90]
    inside = (truth >= low - 1e-6) & (truth <= high + 1e-6)
    tenths = [float(part.mean()) for part in np.array_split(inside, 10) if len(part)]
    misses = np.maximum(low - truth, 0) + np.maximum(truth - high, 0)
    return {
        "scored": len(truth),
        "pinball": round(float(pinball(rows, truth).mean()), 4),
        "within 2x": round(float((abs(point - truth) <= math.log(2) + 1e-6).mean()), 4),
        "covers": round(float(inside.mean()), 4),
        "tenths": f"{min(tenths):.2f} to {max(tenths):.2f}",
        "width": round(float(np.exp(min(np.median(high - low), 30))), 2),
        "interval score": round(float((high - low + 10 * misses).mean()), 3),
    }


def cold(
    rows: np.ndarray, truth: np.ndarray, done: np.ndarray, jobs: list[Job]
) -> dict[str, float]:
    """Pinball of the first jobs of the trace, and of users' first ten jobs in the second half."""
    losses = pinball(rows, truth)
    result = {}
    for start, stop in COLD:
        part = losses[start:stop][done[start:stop]]
        result[f"jobs {start} to {stop}"] = round(float(part.mean()), 3) if len(part) else math.nan
    seen: dict[str | None, int] = defaultdict(int)
    new = []
    for number, job in enumerate(jobs):
        seen[job.asked.user] += 1
        recent = job.asked.user is not None and seen[job.asked.user] <= 10
        new.append(recent and number >= len(jobs) // 2 and done[number])
    result["new users"] = round(float(losses[new].mean()), 3) if any(new) else math.nan
    return result


def means(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Mean over traces, for each method; development traces apart."""
    for title, chosen in (
        ("mean, all traces", lambda name: True),
        ("mean, untouched traces", lambda name: name not in DEVELOPMENT),
    ):
        for method in METHODS:
            own = [row for row in rows if row["method"] == method and chosen(row["trace"])]
            if own:
                yield {"trace": title, "jobs": len(own), "method": method} | {
                    key: round(float(np.mean([row[key] for row in own])), 4)
                    for key in ("pinball", "within 2x", "covers", "interval score")
                }


def of_trace(data: Path, name: str, first: int, with_baselines: bool) -> list[dict[str, Any]]:
    """The rows of one trace, of its first jobs."""
    import sklearn.ensemble  # noqa: F401 - its threads are known once it is loaded
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
    began = time.process_time()
    jobs = dict(traces(data))[name]()
    about = {"trace": name, "jobs": f"{min(first, len(jobs))} of {len(jobs)}"}
    rows = [{**about, **row} for row in measured(jobs[:first], with_baselines)]
    for row in rows:  # a long run that is stopped has shown what it had
        print(row, flush=True)
    print(name, f"{time.process_time() - began:.0f} CPU s", flush=True)
    return rows


def main() -> None:
    """A row for each trace and method, then the means; or what knowing the work adds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the traces")
    parser.add_argument("--first", type=int, default=5000, help="jobs of a trace that are used")
    parser.add_argument("--only", nargs="*", help="names of traces (default: all)")
    parser.add_argument("--workers", type=int, default=1, help="traces at a time")
    parser.add_argument("--keep-baselines", action="store_true", help="take their recorded rows")
    parser.add_argument("--metadata", action="store_true", help="what knowing the work adds")
    given = parser.parse_args()
    readers = dict(traces(given.data))
    if given.metadata:
        named: list[dict[str, Any]] = []
        for name in given.only or NAMED:
            named += known_work(name, readers[name]()[: given.first])
            print(*named[-3:], sep="\n", flush=True)
        record("estimation_metadata", named, first=given.first, embedder=load_embedder().id)
        return
    names = given.only or list(readers)
    before = recorded("estimation")
    if given.keep_baselines and before.get("first") != given.first:
        parser.error(f"the recorded baselines are of the first {before.get('first')} jobs")
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(given.workers) as pool:
        each = pool.map(
            *(of_trace, repeat(given.data), names, repeat(given.first)),
            repeat(not given.keep_baselines),
        )
        for name, of_one in zip(names, each, strict=True):
            rows += of_one
            if given.keep_baselines:
                kept = [row for row in before["rows"] if row["trace"] == name]
                rows += [row for row in kept if row["method"] in BASELINES]
    meta = {"first": given.first, "development": list(DEVELOPMENT)}
    if given.keep_baselines:
        meta["baselines"] = before.get("baselines") or f"of commit {before['commit']}"
    record("estimation", [*rows, *means(rows)], **meta)


if __name__ == "__main__":
    main()
