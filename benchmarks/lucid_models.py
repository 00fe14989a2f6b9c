"""Lucid's models against common ones on the same data (the paper's Table 7), and fit times.

    python benchmarks/lucid_models.py DATA

DATA is a directory with lucid/data/Venus/cluster_throughput.csv, lucid/single_data.csv,
philly/philly.csv, alibaba/gpu-v2023/openb_pod_list_default.csv and phillym/phillym.csv.

The throughput table is the paper's own task on its own cluster: Venus, submissions in ten minutes,
tested on September. Run times cannot be: no Venus job log is public. They are tested on what is,
always on the last third of the jobs by time, with models fitted on the jobs that had ended before.
No trace at hand has job names and users; a virtual cluster or a QoS class stands in for the user.
"""

from __future__ import annotations

import csv
import math
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from _record import record
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from schedmate.schedulers.estimators import BIN_S
from schedmate.schedulers.learned import LOAD_FEATURES as SERIES
from schedmate.schedulers.learned import RUN_TIME_FEATURES, Ga2m, Learned, load_features
from schedmate.schedulers.sim.explain import replay
from schedmate.schedulers.sim.traces import read_trace
from schedmate.schedulers.sim.workload import Workload

Array = NDArray[np.float64]

PAPER_MAE = {"random forest": 4.607, "boosting": 4.491, "neural network": 5.132, "GA2M": 4.125}
"""Venus, Table 7; its boosting is LightGBM's (XGBoost had 5.807)."""

SEED = 0


def models(names: list[str], **ga2m: Any) -> dict[str, Callable[[], Any]]:
    """Each model with its package's defaults, as the paper does."""
    return {
        "linear": LinearRegression,
        "random forest": lambda: RandomForestRegressor(n_jobs=1, random_state=SEED),
        "boosting": lambda: HistGradientBoostingRegressor(random_state=SEED),
        "neural network": lambda: make_pipeline(StandardScaler(), MLPRegressor(random_state=SEED)),
        "GA2M": lambda: Ga2m(names, **ga2m),
    }


def fitted(make: Callable[[], Any], rows: Array, targets: Array) -> tuple[Any, float]:
    """The model, and the CPU seconds that fitting took."""
    began = time.process_time()
    model = make().fit(rows, targets)
    return model, time.process_time() - began


def throughput(data: Path) -> None:
    """MAE of the submissions in the next ten minutes of September, Venus."""
    with (data / "lucid/data/Venus/cluster_throughput.csv").open(newline="") as stream:
        table = list(csv.DictReader(stream))
    moments = [datetime.fromisoformat(row["time"]).replace(tzinfo=UTC) for row in table]
    counts = np.array([float(row["submit_job_all"]) for row in table])
    rows = load_features(counts, int(moments[0].timestamp() // BIN_S))[:-1]
    test = next(i for i, moment in enumerate(moments) if moment.month == 9)
    train, truth = slice(1008, test), counts[test:]
    answers = {
        "as the last ten minutes": (rows[test:, SERIES.index("last")], 0.0),
        "as the last hour": (rows[test:, SERIES.index("mean_1h")], 0.0),
    }
    for name, make in models(list(SERIES), objective="poisson_deviance").items():
        model, cpu_s = fitted(make, rows[train], counts[train])
        answers[name] = (model.predict(rows[test:]), cpu_s)
    record(
        "lucid_models_throughput",
        [
            {
                "model": name,
                "MAE": f"{np.abs(answer - truth).mean():.3f}",
                "paper's MAE": PAPER_MAE.get(name, ""),
                "R2": f"{r2(answer, truth):.3f}",
                "fit CPU s": f"{cpu_s:.1f}",
            }
            for name, (answer, cpu_s) in answers.items()
        ],
        data="Venus, all jobs submitted in ten minutes; real; April to August against September",
        mean=f"{truth.mean():.2f} jobs in ten minutes",
        seed=SEED,
    )


def run_times(data: Path) -> None:
    """R2 of run times on the last third of each trace."""
    traces = {
        "Philly (real; VC as user, no names)": ("philly/philly.csv", True),
        "openb (real; QoS as user, no names)": (
            "alibaba/gpu-v2023/openb_pod_list_default.csv",
            True,
        ),
        "PhillyM (partly synthetic; with profiles)": ("phillym/phillym.csv", False),
    }
    table = []
    for title, (path, vc_as_user) in traces.items():
        workload = read_trace(data / path, skip_bad=True)
        if vc_as_user:
            for job, vc in zip(workload.jobs, workload.vcs or [""] * len(workload), strict=True):
                job.user = job.user or vc
        rows, ended = described(workload)
        cut = len(rows) * 2 // 3
        past = [i for i in range(cut) if ended[i] <= workload.jobs[cut].submit_time]
        varies = [c for c in range(rows.shape[1]) if len(set(rows[past, c])) > 1]
        names = [RUN_TIME_FEATURES[column] for column in varies]
        logs = np.log1p(np.array(workload.duration_s))
        mean = np.full(len(rows) - cut, logs[past].mean())
        answers: dict[str, tuple[Array, float]] = {"the mean of the past": (mean, 0.0)}
        for name, make in models(names, increasing=["gpus"]).items():
            model, cpu_s = fitted(make, rows[past][:, varies], logs[past])
            answers[name] = (np.clip(model.predict(rows[cut:, varies]), 0, 20), cpu_s)
        for name, (answer, cpu_s) in answers.items():
            table.append(
                {
                    "trace": title,
                    "model": name,
                    "R2 of log s": f"{r2(answer, logs[cut:]):.3f}",
                    "R2 of s": f"{r2(np.expm1(answer), np.expm1(logs[cut:])):.3f}",
                    "median factor": f"{math.exp(np.median(np.abs(answer - logs[cut:]))):.2f}",
                    "fitted on": f"{len(past):,}",
                    "fit CPU s": f"{cpu_s:.1f}",
                    "features": len(varies),
                }
            )
    record(
        "lucid_models_run_times",
        table,
        seed=SEED,
        paper="R2 on Venus: forest 0.101, LightGBM 0.230, XGBoost 0.332, DNN 0.181, Lucid 0.413",
        lacking="user and job names, the features that Lucid's and QSSF's models live on",
    )


def described(workload: Workload) -> tuple[Array, list[float]]:
    """What is known of each job at its submission, when every job starts at once; and its end."""
    learned = Learned("ga2m", least=len(workload) + 1)
    matrix = np.array([learned.describe(job) for job in replay(workload, learned)], dtype=float)
    ends = [
        job.submit_time + duration
        for job, duration in zip(workload.jobs, workload.duration_s, strict=True)
    ]
    return np.where(np.isnan(matrix), -1.0, matrix), ends


def packing(data: Path) -> None:
    """Accuracy of the Sharing Score, five-fold, over the measured jobs."""
    with (data / "lucid/single_data.csv").open(newline="") as stream:
        table = list(csv.DictReader(stream))
    rows = np.array(
        [[float(r[k]) for k in ("gpu_util", "gmem_util", "gmem", "amp")] for r in table]
    )
    labels = np.array([int(r["label"]) for r in table])
    folds = StratifiedKFold(5, shuffle=True, random_state=SEED)
    choices = {
        "the most frequent": np.bincount(labels).max() / len(labels),
        "GPU utilisation alone, tree of depth 2": accuracy(
            DecisionTreeClassifier(max_depth=2, random_state=SEED), rows[:, :1], labels, folds
        ),
        "tree, pruned (Lucid's)": accuracy(
            DecisionTreeClassifier(ccp_alpha=0.01, random_state=SEED), rows, labels, folds
        ),
    }
    record(
        "lucid_models_packing",
        [{"model": name, "accuracy": f"{share:.3f}"} for name, share in choices.items()],
        data=f"{len(labels)} measured jobs, five folds",
        paper="0.941, on more configurations than are public",
        seed=SEED,
    )


def accuracy(model: Any, rows: Array, labels: Array, folds: Any) -> float:
    return float(cross_val_score(model, rows, labels, cv=folds).mean())


def r2(answer: Array, truth: Array) -> float:
    return float(1 - ((answer - truth) ** 2).sum() / ((truth - truth.mean()) ** 2).sum())


if __name__ == "__main__":
    for part in (throughput, packing, run_times):
        part(Path(sys.argv[1]))
