"""How good are estimates by similarity on real metadata and real seconds (Figure 12)?

    python benchmarks/estimation_real.py --data DATA

Every estimator is asked at submission and knows what had ended by then; what is counted is the
second half of each trace (completed jobs only: nobody knows how long the others would have run).
The advisor's constants were chosen on the first halves. What a trace says of its jobs is in
estimation_traces.py. The image generation requests are the only ones that say what is computed; the
others say who asked for how many GPUs, or no more than how many.

    advisor           the Scheduling Advisor as it is, by SchedulingAdvisor and the bundled embedder
    advisor, mean     the paper's mean of the three nearest
    group mean        the mean of the past completed jobs of which the trace says exactly the same
    global median     of all that completed
    boosted tree      scikit-learn's, fitted eight times to the whole past: all columns that are
                      numbers, hour and weekday, and of jobs of the same kind and of like ones their
                      number, mean and last run time

Where the advisor or the group has no answer, the global median stands in for it.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _figure import save
from _record import RESULTS, record
from estimation_traces import METADATA, in_order, records

from schedmate.jobs import JobRecord
from schedmate.report import charts
from schedmate.retrieval.advisor import SchedulingAdvisor
from schedmate.retrieval.embedders import load_embedder
from schedmate.retrieval.history import MemoryHistory

MOST = 2000
"""Jobs that are estimated of a trace: evenly spread over its second half."""
FITS = 8
TITLES = ("advisor", "advisor, mean", "group mean", "global median", "boosted tree")


class Past:
    """What has ended so far: completed run times of all, of each kind and of like ones."""

    def __init__(self) -> None:
        self.logs: list[float] = []
        self.of: dict[str, list[float]] = defaultdict(list)

    def add(self, job: JobRecord) -> None:
        if job.censored or not job.duration_s:
            return
        value = math.log(job.duration_s)
        self.logs.append(value)
        for key in (job.metadata.fingerprint(), _like(job)):
            self.of[key].append(value)

    def features(self, job: JobRecord) -> list[float]:
        assert job.submit_time is not None
        training = job.metadata.sections()["training_config"]
        numbers = [_number(training.get(name)) for name in COLUMNS]
        seen = []
        for key in (job.metadata.fingerprint(), _like(job)):
            before = self.of[key][-32:]
            seen += [len(self.of[key]), *_of(before)]
        day = job.submit_time / 86_400
        gpus = _number(job.metadata.model.model_name)
        return [*numbers, gpus, *seen, day % 1 * 24, math.floor(day) % 7]


COLUMNS = ("iters", "batch_size", "adapters", "gpus", "nodes")


def _of(before: list[float]) -> tuple[float, float]:
    return (statistics.fmean(before), before[-1]) if before else (math.nan, math.nan)


def _like(job: JobRecord) -> str:
    return f"like {job.metadata.model.model_name}"


def _number(value: Any) -> float:
    """A number, or the first in a text such as `8 GPUs`."""
    for word in str(value).split():
        try:
            return float(word)
        except ValueError:
            continue
    return math.nan


class Tree:
    """Gradient-boosted trees over the past, fitted anew now and then."""

    def __init__(self) -> None:
        self.rows: list[list[float]] = []
        self.targets: list[float] = []
        self.model: Any = None
        self.columns: list[int] = []

    def learn(self) -> None:
        from sklearn.ensemble import HistGradientBoostingRegressor

        rows = np.array(self.rows)
        # What is the same of all jobs, or said of none, teaches nothing.
        self.columns = [n for n in range(rows.shape[1]) if len(np.unique(rows[:, n])) > 1]
        self.model = HistGradientBoostingRegressor(random_state=0, max_iter=200)
        self.model.fit(rows[:, self.columns], np.array(self.targets))

    def seconds(self, row: list[float]) -> float:
        return math.exp(float(self.model.predict(np.array([row])[:, self.columns])[0]))


def answers(jobs: list[JobRecord]) -> Iterator[tuple[float, dict[str, float | None]]]:
    """Of each target its run time [s] and what each estimator said."""
    embedder = load_embedder()
    history = MemoryHistory(embedder)
    history.prepare(job.metadata for job in jobs)
    advisors = {
        "advisor": SchedulingAdvisor(history),
        "advisor, mean": SchedulingAdvisor(history, method="mean"),
    }
    past, tree = Past(), Tree()
    begin = len(jobs) // 2
    targets = [at for at in range(begin, len(jobs)) if not jobs[at].censored]
    chosen = set(targets[:: max(1, math.ceil(len(targets) / MOST))])
    fits = set(np.linspace(begin, len(jobs), FITS + 1).astype(int)[:-1].tolist())
    described: dict[int, list[float]] = {}
    for at, ended in in_order(jobs):
        job = jobs[at]
        for one in ended:
            row = described.pop(one)
            if not jobs[one].censored:
                tree.rows.append(row)
                tree.targets.append(math.log(jobs[one].duration_s or 1.0))
            past.add(jobs[one])
            history.add(jobs[one])
        described[at] = past.features(job)
        if at in fits:
            tree.learn()
        if at in chosen:
            same = past.of[job.metadata.fingerprint()]
            told: dict[str, float | None] = {
                "group mean": statistics.fmean(map(math.exp, same)) if same else None,
                "global median": math.exp(statistics.median(past.logs)),
                "boosted tree": tree.seconds(described[at]),
            }
            for title, advisor in advisors.items():
                told[title] = advisor.estimate(job.metadata, job.launch, job.submit_time).duration_s
            assert job.duration_s is not None
            yield job.duration_s, told


def main() -> None:
    """A row a trace and estimator; the error CDF of the image generation requests."""
    import sklearn.ensemble  # noqa: F401 - its threads are known once it is loaded
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)  # a row at a time, threads cost a thousand times what they save
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    rows: list[dict[str, Any]] = []
    for name, jobs in records(data, names=(*METADATA, "Venus, whole", "PAI, sample")):
        began = time.process_time()
        found = list(answers(jobs))
        took = time.process_time() - began
        truth = np.array([seconds for seconds, _ in found])
        middle = np.array([told["global median"] for _, told in found], dtype=float)
        errors = {}
        for title in TITLES:
            told = np.array([one[title] for _, one in found], dtype=float)
            answered = ~np.isnan(told)
            told = np.where(answered, told, middle)
            errors[title] = abs(told / truth - 1)
            rows.append(
                {"trace": name, "jobs": len(found), "estimator": title}
                | {"answers": f"{answered.mean():.0%}", **_scored(told, truth)}
            )
        for row in rows[-len(TITLES) :]:
            row["nearer than the tree"] = _nearer(errors, row["estimator"])
            print(row, flush=True)
        print(name, f"{took:.0f} CPU s", flush=True)
        if name == "image generation":
            _figure(errors)
    record("estimation_real", rows, embedder=load_embedder().id, half="second")


def _scored(told: np.ndarray, truth: np.ndarray) -> dict[str, str]:
    errors, logs = abs(told / truth - 1), abs(np.log(told / truth))
    return {
        "error < 25 %": f"{(errors < 0.25).mean():.1%}",
        "error < 50 %": f"{(errors < 0.5).mean():.1%}",
        "error < 100 %": f"{(errors < 1).mean():.1%}",
        "within 2x": f"{(logs < math.log(2)).mean():.1%}",
        "median error": f"{np.median(errors):.2f}",
        "mean |log|": f"{logs.mean():.3f}",
        "p90 factor": f"{math.exp(np.percentile(logs, 90)):.2f}",
    }


def _nearer(errors: dict[str, np.ndarray], title: str) -> str:
    """Share of jobs of which the estimate is nearer than the tree's."""
    if title == "boosted tree":
        return ""
    return f"{(errors[title] < errors['boosted tree']).mean():.1%}"


def _figure(errors: dict[str, np.ndarray]) -> None:
    at = np.linspace(0.0, 2.0, 101)
    curves = [
        charts.Series(title, n, at, np.array([(values <= x).mean() for x in at]))
        for n, (title, values) in enumerate(errors.items())
    ]
    save(
        RESULTS / "estimation_real.svg",
        "Relative error of run times at submission, image generation requests",
        curves,
        (charts.linear_axis("relative error", 0.0, 2.0, "ratio"),
         charts.linear_axis("share of requests", 0.0, 1.0, "share")),
    )  # fmt: skip


if __name__ == "__main__":
    main()
