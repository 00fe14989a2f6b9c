"""Run several policies over one trace, and keep what is finished."""

from __future__ import annotations

import csv
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedmate.errors import InputError, UsageError
from schedmate.files import open_output
from schedmate.schedulers import registry
from schedmate.schedulers.estimators import Estimator, Table, TimeLimit, UserMean, noisy
from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.audit import audit
from schedmate.schedulers.sim.engine import Outcome, Simulation
from schedmate.schedulers.sim.metrics import HOUR, PerJob, paired_difference, summary
from schedmate.schedulers.sim.parameters import Parameters
from schedmate.schedulers.sim.workload import Workload

ESTIMATORS = {
    "oracle": "the true duration and utilisation: an upper bound, nobody can know it",
    "noisy:SIGMA": "the true duration times a log-normal factor: an oracle of known quality",
    "column:NAME": "a column of the trace with predicted seconds",
    "limit": "the time limit that the user gave",
    "user-mean": "the mean of the user's finished jobs of as many GPUs; learns while it runs",
    "boosting": "gradient-boosted trees over the past, fitted every week (QSSF)",
    "ga2m": "an additive model with interactions over the past, fitted every week (Lucid)",
    "none": "nothing is known",
}


def make_estimator(text: str, workload: Workload, seed: int = 0) -> Estimator | None:
    """The estimator called `text`, one of `ESTIMATORS`. Raises `UsageError` for another."""
    name, _, argument = text.partition(":")
    if name == "oracle" and not argument:
        return Table(workload.duration_s, workload.profiles, method="oracle", oracle=True)
    if name == "noisy":
        try:
            durations = noisy(workload.duration_s, float(argument), seed)
        except ValueError:
            raise UsageError(f"--estimator {text}: write it like noisy:1.0.") from None
        return Table(durations, workload.profiles, method=text, oracle=True)
    if name == "column":
        if argument not in workload.columns:
            has = ", ".join(workload.columns) or "none"
            raise UsageError(f"the trace has no column {argument!r} of numbers; it has {has}.")
        return Table(workload.columns[argument], workload.profiles, method=text)
    if text == "limit":
        return TimeLimit()
    if text == "user-mean":
        return UserMean()
    if text in ("boosting", "ga2m"):
        from schedmate.schedulers.learned import Learned

        return Learned(text)
    if text == "none":
        return None
    raise UsageError(f"no estimator {text!r}; there are {', '.join(ESTIMATORS)}.")


@dataclass(frozen=True)
class Plan:
    """What to run: everything that the result depends on besides the trace."""

    policies: tuple[str, ...]
    cluster: Cluster
    estimator: str
    parameters: Parameters
    seed: int = 0
    check: bool = True


@dataclass(frozen=True)
class Run:
    """One policy's result."""

    policy: str
    numbers: dict[str, Any]
    per_job: PerJob
    outcome: Outcome
    cluster: Cluster


def run_policy(
    workload: Workload,
    plan: Plan,
    policy: str,
    progress: Callable[[int], None] | None = None,
) -> Run:
    """Simulate one policy; with `plan.check`, prove that the run could have happened."""
    settings = plan.parameters.settings.get(policy, policy)
    told = "oracle" if policy in plan.parameters.oracles else plan.estimator
    estimator = make_estimator(told, workload, plan.seed)
    began = time.process_time()
    simulation = Simulation(
        workload,
        registry.make(settings),
        plan.cluster,
        estimator=estimator,
        parameters=plan.parameters,
        seed=plan.seed,
    )
    outcome = simulation.run(progress)
    cpu_s = time.process_time() - began
    if plan.check:
        audit(workload, simulation.cluster, outcome)
    numbers = {
        "policy": policy,
        "settings": settings,
        "estimator": told,
        "oracle": estimator is not None and estimator.oracle,
        "mode": plan.parameters.name,
        "cpu_s": round(cpu_s, 3),
        **summary(workload, simulation.cluster, outcome),
    }
    return Run(policy, numbers, PerJob.of(workload, outcome), outcome, simulation.cluster)


def run_all(
    workload: Workload,
    plan: Plan,
    out: Path | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """The numbers of each policy in turn; from the second on also `jct_less_first_h`.

    That is the mean over jobs of the JCT less that of the same job under the first policy, and its
    95 % bootstrap interval [h].

    With `out`, every finished run is written there, whole or not at all, and a run that is already
    there with the same inputs is not repeated: a killed comparison goes on where it was.
    """
    for policy in plan.policies:
        registry.make(policy)
        make_estimator(plan.estimator, workload, plan.seed)
    first: NDArray[np.float64] | None = None
    for policy in plan.policies:
        folder = None if out is None else out / _safe(policy)
        inputs = _fingerprint(workload, plan, policy)
        if folder is not None and (kept := _kept(folder, inputs)) is not None:
            numbers, jct = kept
        else:
            run = run_policy(
                workload, plan, policy, None if progress is None else _bound(progress, policy)
            )
            if folder is not None:
                write(run, workload, folder, inputs)
            numbers, jct = run.numbers, run.per_job.jct_s
        if first is None:
            first = jct
        else:
            numbers["jct_less_first_h"] = paired_difference(jct / HOUR, first / HOUR, plan.seed)
        yield numbers


def write(run: Run, workload: Workload, folder: Path, inputs: str) -> None:
    """Put `jobs.csv`, `trace.json` (for Perfetto) and, last, `summary.json` into `folder`."""
    from schedmate.schedulers.sim.chrome import events

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make {folder}: {error.strerror}.") from None
    outcome, per_job = run.outcome, run.per_job
    with open_output(folder / "jobs.csv") as stream:
        table = csv.writer(stream, lineterminator="\n")
        table.writerow(
            ("job_id", "vc", "user", "gpus", "submit_s", "start_s", "end_s", "jct_s", "queue_s")
        )
        for job in workload.jobs:
            row = (job.submit_time, outcome.first_start[job.index], outcome.end[job.index])
            times = (*row, per_job.jct_s[job.index], per_job.queue_s[job.index])
            vc = workload.vcs[job.index] if workload.vcs else ""
            table.writerow((job.id, vc, job.user, job.gpus, *(f"{t:.3f}" for t in times)))
    with open_output(folder / "trace.json") as stream:
        json.dump({"traceEvents": list(events(workload, run.cluster, outcome))}, stream)
    with open_output(folder / "summary.json") as stream:
        json.dump({"inputs": inputs, **run.numbers}, stream, indent=1)


def _kept(folder: Path, inputs: str) -> tuple[dict[str, Any], NDArray[np.float64]] | None:
    try:
        document = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        if document.pop("inputs", None) != inputs:
            return None
        with (folder / "jobs.csv").open(encoding="utf-8", newline="") as stream:
            jct = np.array([float(row["jct_s"]) for row in csv.DictReader(stream)])
    except (OSError, ValueError, KeyError):
        return None
    return document, jct


def _fingerprint(workload: Workload, plan: Plan, policy: str) -> str:
    from schedmate import __version__

    digest = hashlib.sha256(
        repr(
            (__version__, policy, plan.cluster, plan.estimator, plan.parameters, plan.seed)
        ).encode()
    )
    for job, duration in zip(workload.jobs, workload.duration_s, strict=True):
        digest.update(f"{job.id} {job.submit_time} {job.gpus} {duration}\n".encode())
    return digest.hexdigest()[:16]


def _bound(progress: Callable[[str, int], None], policy: str) -> Callable[[int], None]:
    return lambda done: progress(policy, done)


def _safe(policy: str) -> str:
    return "".join(one if one.isalnum() or one in "-=." else "_" for one in policy)
