"""The same 60 jobs on a Ray cluster and in the simulator: how far apart are they?

    .venv/bin/python benchmarks/ray_fidelity.py calibrate
    .venv/bin/python benchmarks/ray_fidelity.py live [SEED:POLICY ...]
    .venv/bin/python benchmarks/ray_fidelity.py report

After Table 1 and section 5.2 of the SchedMate paper, whose simulator was within 3.7 % of its
cluster. Live: the queue actor of `schedmate ray` on a Ray cluster of four nodes with four GPUs
each, all on this machine. Jobs are real processes in seats of their own; GPUs are numbers, and
training is a sleep of a known length for each step, because two cores cannot drive sixteen GPUs. A
step beside a partner takes longer by factors that `calibrate` has measured once, on NumPy training
of three intensities, two processes pinned to one core. Progress is printed in six formats, and read
by the Metric Tracker; source code is read by the Scheduling Advisor; a fake `nvidia-smi` says what
a job uses.

Simulated: the same jobs and policies, the same metadata, formats and factors. How long jobs take to
start is drawn as `schedmate traces delays` measures it in the record of the other live runs, never
of the run that is predicted. Beside it stand what `calibrate` says of jobs that are none of the
sixty, one constant, and the run's own start of each job, which is no prediction.
"""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from _record import RESULTS, record, recorded

ROOT = Path(__file__).parent.parent
WORK = ROOT / "build" / "ray_fidelity"
CLUSTER = "4x4"
JOBS, ARRIVALS_S = 60, 110.0
SEEDS = (1, 2, 3)
LUCID = "profiler_nodes=1:profile_limit_s=10"
POLICIES = {
    "FIFO": "fifo:backfill=true",
    "SJF": "sjf:backfill=true",
    "Lucid": f"lucid:{LUCID}",
    "Lucid+SchedMate": f"lucid+schedmate:{LUCID}",
}
CALIBRATION = "ray_calibration"
INTENSITIES = (0.3, 0.6, 1.0)
"""Share of time in which the calibrating training computes."""
MODELS: dict[str, dict[str, Any]] = {
    "mobilenet_v2": {"step_s": 0.2, "intensity": 0.3, "layout": "deepspeed"},
    "resnet18": {"step_s": 0.25, "intensity": 0.3, "layout": "seconds-per-step"},
    "vit_b_16": {"step_s": 0.3, "intensity": 0.6, "layout": "json-lines"},
    "bert-base-uncased": {"step_s": 0.35, "intensity": 0.6, "layout": "megatron"},
    "resnet50": {"step_s": 0.3, "intensity": 1.0, "layout": "nanogpt"},
    "gpt2": {"step_s": 0.4, "intensity": 1.0, "layout": "key-value"},
}
KINDS = [
    # model, GPUs, run time alone [s], weight
    ("mobilenet_v2", 1, 24, 8),
    ("mobilenet_v2", 2, 60, 4),
    ("resnet18", 1, 32, 8),
    ("resnet18", 1, 90, 3),
    ("vit_b_16", 1, 45, 6),
    ("vit_b_16", 2, 75, 3),
    ("bert-base-uncased", 1, 28, 7),
    ("bert-base-uncased", 2, 100, 3),
    ("resnet50", 1, 40, 6),
    ("resnet50", 4, 55, 3),
    ("gpt2", 1, 140, 3),
    ("gpt2", 4, 36, 3),
]
EVERY = 2
"""Steps from one line of a log to the next."""
TRAIN = """\
import argparse

import torch
import torchvision
from torch.utils.data import DataLoader


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--max-steps", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-4)
    args = parser.parse_args()
    data = torchvision.datasets.CIFAR10("data", train=True)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)
    model = torchvision.models.get_model(args.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    step = 0
    while step < args.max_steps:
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step == args.max_steps:
                break


main()
"""


@dataclass(frozen=True)
class Planned:
    """One job of the workload."""

    submit: float
    model: str
    gpus: int
    steps: int
    limit_s: float

    @property
    def duration_s(self) -> float:
        return float(self.steps * MODELS[self.model]["step_s"])

    @property
    def command(self) -> str:
        return f"python train.py --model {self.model} --max-steps {self.steps}"


def workload(seed: int) -> list[Planned]:
    """Sixty jobs: recurring kinds, Poisson arrivals, and the generous time limits of users."""
    draw = random.Random(f"ray fidelity {seed}")
    submits = sorted(draw.uniform(0.0, ARRIVALS_S) for _ in range(JOBS))
    kinds = draw.choices(KINDS, [kind[3] for kind in KINDS], k=JOBS)
    return [
        Planned(
            submit - submits[0],
            model,
            gpus,
            round(length / MODELS[model]["step_s"]),
            round(length * draw.choice((3, 4, 6, 10))),
        )
        for submit, (model, gpus, length, _) in zip(submits, kinds, strict=True)
    ]


def util(model: str) -> float:
    return 95.0 * float(MODELS[model]["intensity"])


# -- calibration -------------------------------------------------------------------


def calibrate() -> None:
    """Slow-downs of pairs, by NumPy training pinned to one core; costs of starting a job."""
    rows: list[dict[str, Any]] = []
    table: dict[str, float] = {}
    alone = {one: statistics.median(times(one)[0] for _ in range(TIMES)) for one in INTENSITIES}
    for first in INTENSITIES:
        for second in INTENSITIES:
            if second < first:
                continue
            both = [times(first, second) for _ in range(TIMES)]
            mine, theirs = (
                max(1.0, statistics.median(one[n] for one in both) / alone[share])
                for n, share in enumerate((first, second))
            )
            if first == second:
                mine = theirs = (mine + theirs) / 2
            table[f"{first}/{second}"], table[f"{second}/{first}"] = mine, theirs
            rows.append({"pair": f"{first}/{second}", "slower by": f"{mine:.3f}, {theirs:.3f}"})
    print(rows, flush=True)
    jobs = [
        Planned(2.5 * n, model, gpus, round(5 / MODELS[model]["step_s"]), 60.0)
        for n, (model, gpus) in enumerate([(model, gpus) for model in MODELS for gpus in (1, 2, 1)])
    ]
    ran = run_live(jobs, POLICIES["Lucid+SchedMate"].replace("limit_s=10", "limit_s=1"), table)
    starts = [one["started"] - one["decided"] for one in ran["runs"]]
    estimates = [one for one in ran["advised"] if one is not None]
    rest = [
        one["ended"] - one["started"] - jobs[one["index"]].duration_s
        for one in ran["runs"]
        if one["outcome"] == "COMPLETED" and one["kind"] == "run"
    ]
    found = {
        "start_s": statistics.mean(starts),
        "median_start_s": statistics.median(starts),
        "advice_s": statistics.mean(estimates),
        "process_s": statistics.mean(rest) if rest else 0.0,
    }
    rows += [{"pair": name, "slower by": f"{value:.3f} s"} for name, value in found.items()]
    record("ray_calibration", rows, slow=table, **found)


TRAINING = """
import os, sys, time
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
import numpy as np
os.sched_setaffinity(0, {int(sys.argv[1])})
share, work_s = float(sys.argv[2]), 0.01
rng = np.random.default_rng(0)
x, w = rng.normal(size=(128, 128)), rng.normal(size=(128, 128)) * 0.01
def step():
    global w
    began = time.thread_time()
    while time.thread_time() - began < work_s:
        w -= 1e-4 * (x.T @ (np.tanh(x @ w) - x))
print("ready", flush=True)
sys.stdin.readline()
try:
    os.setpriority(os.PRIO_PROCESS, 0, -20)  # others that use the core are not what is measured
except PermissionError:
    pass
count, began = 0, time.time()
while time.time() < began + 2.0:
    step(); count += 1
    time.sleep(work_s * (1 - share) / share)
print((time.time() - began) / count)
"""
"""Steps of equal work, the same for all; what is shared is the core and its caches."""
TIMES = 3


def times(*shares: float) -> list[float]:
    """The mean time of a step of each, all at once on one core [s]."""
    core = str(max(os.sched_getaffinity(0)))
    running = [
        subprocess.Popen(
            [sys.executable, "-c", TRAINING, core, str(share)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for share in shares
    ]
    for one in running:
        assert one.stdout is not None
        one.stdout.readline()
    for one in running:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    return [float(one.communicate()[0]) for one in running]


# -- live --------------------------------------------------------------------------


def prepare(folder: Path, table: dict[str, float]) -> tuple[Path, tuple[str, ...]]:
    """The repository of all jobs, and the command that measures GPUs."""
    from schedmate.schedulers.adapters.simulated import log_formats

    layouts = {one.name: one for one in log_formats()}
    repository = folder / "repository"
    (repository / "bin").mkdir(parents=True)
    (folder / "jobs").mkdir()
    (repository / "train.py").write_text(TRAIN)
    (repository / "bin" / "training.py").write_text(
        (Path(__file__).parent / "_ray_training.py").read_text()
    )
    python = repository / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {repository}/bin/training.py "$@"\n')
    python.chmod(0o755)
    models = {
        name: {
            "step_s": one["step_s"],
            "util": util(name),
            "memory_mb": 4000,
            "head": layouts[one["layout"]].head.format(tokens=32768, clock="", batch=32, total=0)
            if layouts[one["layout"]].head
            else "",
            "line": layouts[one["layout"]].line,
            "every": EVERY,
        }
        for name, one in MODELS.items()
    }
    slow = {
        one: {
            other: table[f"{MODELS[one]['intensity']}/{MODELS[other]['intensity']}"]
            for other in MODELS
        }
        for one in MODELS
    }
    (repository / "bin" / "models.json").write_text(json.dumps({"models": models, "slow": slow}))
    return repository, ("sh", "-c", f"head -qn 1 {folder}/jobs/gpus-$PPID/*")


def run_live(
    jobs: list[Planned], policy: str, table: dict[str, float], cluster: Any = None
) -> dict[str, Any]:
    """Run the jobs by a queue actor of its own; what became of each."""
    from schedmate.cluster.ray.backend import prepare as prepare_ray

    prepare_ray()
    import ray

    from schedmate.cluster.ray.backend import connect
    from schedmate.cluster.ray.local import LocalCluster
    from schedmate.cluster.ray.store import Request, Store
    from schedmate.commands.ray_service import QueueActor, QueueSetup
    from schedmate.jobs import JobSpec, LaunchConfig
    from schedmate.schedulers.model import Cluster

    if cluster is None:
        with LocalCluster(Cluster.parse(CLUSTER)) as made:
            connect(made.address)
            return run_live(jobs, policy, table, made)
    folder = Path(tempfile.mkdtemp(prefix="ray-fidelity-"))
    repository, meter = prepare(folder, table)
    setup = QueueSetup(
        name=f"q{uuid4().hex[:6]}",
        state=str(folder / "state"),
        policy=policy,
        folder=str(folder / "shared"),
        estimate="schedmate" in policy,
        meter=meter,
        keep_s=600.0,
    )
    actor = (
        ray.remote(QueueActor)
        .options(num_cpus=0, max_concurrency=8, name=setup.name, resources={"head": 0.01})
        .remote(setup)
    )
    ray.get(actor.ping.remote())
    env = {
        "PATH": f"{repository}/bin:/usr/bin:/bin",
        "STATE": str(folder / "jobs"),
    }
    began = time.time()
    for one in jobs:
        time.sleep(max(0.0, began + one.submit - time.time()))
        launch = LaunchConfig(gpus=one.gpus, time_limit_s=one.limit_s)
        spec = JobSpec(repo=str(repository), command=one.command, launch=launch, name=one.model)
        request = Request(spec=spec, gpus=one.gpus, env=env)
        ray.get(actor.submit.remote(uuid4().hex, request.model_dump_json()))
    advised: dict[int, float] = {}
    with Store(folder / "state" / "queue.db") as store:
        while any(state in store.counts() for state in ("PENDING", "RUNNING")):
            time.sleep(1.0)
            if time.time() - began > 1500:
                sys.exit(f"{policy}: not done in time; see {folder}")
        seen = ray.get(actor.look.remote())
        tracked = ray.get(actor.counted.remote())
        ray.get(actor.close.remote())
        ray.kill(actor)
        found = [store.job(id_ + 1) for id_ in range(len(jobs))]
        runs = [run for id_ in range(len(jobs)) for run in store.runs_of(id_ + 1)]
    import sqlite3

    memory = sqlite3.connect(folder / "state" / "memory.db")
    for key, at in memory.execute("SELECT key, at FROM known"):
        advised[int(key.split("@")[0])] = at
    return {
        "policy": policy,
        "began": began,
        "problems": seen["problems"],
        "tracked": tracked,
        "jobs": [{"submitted": one.submitted, "state": one.state} for one in found],
        "advised": [
            advised[one.id] - one.submitted if one.id in advised else None for one in found
        ],
        "runs": [
            {
                "index": run.job - 1,
                "number": run.number,
                "kind": run.kind,
                "outcome": run.outcome,
                "decided": run.decided,
                "started": run.started or run.decided,
                "ended": run.ended,
                "gpus": sum(place.gpus for place in run.places),
                "places": [(place.name, place.gpus) for place in run.places],
                "id": run.id,
                "beside": run.beside,
            }
            for run in runs
        ],
    }


def live(wanted: list[str]) -> None:
    """Run what is asked for one after another on one cluster, and keep what came of it."""
    from schedmate.cluster.ray.backend import connect
    from schedmate.cluster.ray.local import LocalCluster
    from schedmate.schedulers.model import Cluster

    table = recorded(CALIBRATION)["slow"]
    WORK.mkdir(parents=True, exist_ok=True)
    every = [f"{seed}:{name}" for seed in SEEDS for name in POLICIES]
    with LocalCluster(Cluster.parse(CLUSTER)) as cluster:
        connect(cluster.address)
        for one in wanted or every:
            seed, _, name = one.partition(":")
            load = os.getloadavg()[0]
            found = run_live(workload(int(seed)), POLICIES[name], table, cluster)
            found |= {"load": [load, os.getloadavg()[0]]}
            (WORK / f"{name}-{seed}.json").write_text(json.dumps(found))
            print(one, measures_of_live(workload(int(seed)), found), flush=True)


# -- simulated ---------------------------------------------------------------------


def delays_of(runs: list[dict[str, Any]]) -> Any:
    """The start delays in live runs, as `schedmate traces delays` reads them in a queue's file."""
    from schedmate.schedulers.sim.starts import Begun, StartDelays, samples_of_queue

    samples = [
        sample
        for ran in runs
        for sample in samples_of_queue(
            Begun(one["decided"], one["started"], one["ended"], tuple(map(tuple, one["places"])))
            for one in ran["runs"]
            if one["outcome"] != "REFUSED" and one["beside"] is None
        )
    ]
    return StartDelays.fit(samples, f"{len(runs)} live runs")


def simulate(
    seed: int,
    name: str,
    ran: dict[str, Any] | None = None,
    delays: Any = None,
    advice_s: float | None = None,
) -> dict[str, float]:
    """The same jobs and policy in the simulator. How long starts take is drawn from `delays`, or is
    that of each job in `ran`, a live run, or else what `calibrate` says."""
    from schedmate.jobs import JobSpec, LaunchConfig
    from schedmate.mate import SchedMate
    from schedmate.schedulers import registry
    from schedmate.schedulers.adapters.modules import PackingTracker, WithSchedMate
    from schedmate.schedulers.adapters.simulated import JobLog, SimulatedLogs, log_formats
    from schedmate.schedulers.model import Cluster, Job, Profile
    from schedmate.schedulers.sim.engine import Simulation
    from schedmate.schedulers.sim.outcome.audit import audit
    from schedmate.schedulers.sim.parameters import HONEST
    from schedmate.schedulers.sim.starts import Runners
    from schedmate.schedulers.sim.workload import Workload
    from schedmate.schedulers.sim.world import Equipment, TracePhysics, World
    from schedmate.settings import load_settings

    measured = recorded(CALIBRATION)
    table, start_s = measured["slow"], measured["start_s"] + measured["process_s"]
    advice_s = measured["advice_s"] if advice_s is None else advice_s
    left: dict[int, list[float]] = {}
    counts: dict[int, int] = {}
    runners = Runners()
    if ran is not None:
        runs = [one for one in ran["runs"] if one["outcome"] != "REFUSED"]
        start_s = statistics.median(one["started"] - one["decided"] for one in runs)
        start_s += measured["process_s"]
        for one in sorted(runs, key=lambda one: one["decided"]):
            took = one["started"] - one["decided"] + measured["process_s"]
            left.setdefault(one["index"], []).append(took)
        seen = [one for one in ran["advised"] if one is not None]
        advice_s = statistics.median(seen) if seen else advice_s
    planned = workload(seed)
    layouts = {one.name: one for one in log_formats()}
    intensity = {util(model): one["intensity"] for model, one in MODELS.items()}

    class Pairs:
        def speeds(self, first: Any, second: Any, _configs: Any) -> tuple[float, float]:
            one, two = intensity[first.gpu_util], intensity[second.gpu_util]
            return 1 / table[f"{one}/{two}"], 1 / table[f"{two}/{one}"]

    class Starting(TracePhysics):
        def restart_s(self, job: int, allocation: Any, previous: Any) -> float:
            if delays is not None:
                count = counts[job] = counts.get(job, 0) + 1
                gpus, kept = planned[job].gpus, runners.kept(allocation)
                return measured["process_s"] + delays.takes_s(str(job), count, gpus, kept)
            return left[job].pop(0) if left.get(job) else start_s

    @dataclass(frozen=True)
    class Logs(JobLog):
        @property
        def every(self) -> int:
            return EVERY

    class SameLogs(SimulatedLogs):
        def _log(self, job: Job) -> JobLog:
            one = planned[job.index]
            layout = layouts[MODELS[one.model]["layout"]]
            return Logs(layout, MODELS[one.model]["step_s"], one.steps, f"{seed}/{job.id}")

    metadata: list[Any] = []
    folder = Path(tempfile.mkdtemp(prefix="ray-fidelity-"))
    repository, _ = prepare(folder, table)
    known: dict[str, Any] = {}
    with SchedMate(load_settings(history=str(folder / "history"), mode="static")) as mate:
        for one in planned:
            if one.command not in known:
                spec = JobSpec(repo=str(repository), command=one.command)
                launch = LaunchConfig(gpus=one.gpus)
                known[one.command] = mate.analyze(
                    spec.model_copy(update={"launch": launch})
                ).metadata
            metadata.append(known[one.command])
    jobs = [
        Job(str(n), n, one.submit, one.gpus, name=one.model, time_limit_s=one.limit_s)
        for n, one in enumerate(planned)
    ]
    profiles: list[Profile | None] = [
        Profile(util(one.model), util(one.model) / 2, 4000.0) for one in planned
    ]
    made = Workload("ray", jobs, [one.duration_s for one in planned], profiles, metadata=metadata)
    parameters = replace(
        HONEST, restart_s=start_s, restart_large_s=start_s, checkpoint_s=5.0, interference=Pairs()
    )
    policy = registry.make(POLICIES[name])
    parts = Equipment()
    if isinstance(policy, WithSchedMate):
        policy.latency_s = advice_s
        parts = policy.equip(World(made, None, None, seed))
        logs = SameLogs(made, seed)
        observers = [
            one for one in parts.observers if not isinstance(one, SimulatedLogs | PackingTracker)
        ]
        tracker = PackingTracker(logs, baseline=policy.baseline, seed=seed)
        parts = parts._replace(observers=(*observers, logs, tracker))
    simulation = Simulation(
        made,
        policy,
        Cluster.parse(CLUSTER),
        estimator=parts.estimator,
        parameters=parameters,
        physics=Starting(made, parameters),
        observers=parts.observers,
        seed=seed,
    )
    outcome = simulation.run()
    audit(made, simulation.cluster, outcome)
    first: dict[int, float] = {}
    held: dict[tuple[int, int], list[tuple[float, float]]] = {}
    end = {}
    for one in outcome.segments:
        first[one.job] = min(first.get(one.job, math.inf), one.start)
        end[one.job] = max(end.get(one.job, 0.0), one.end)
        for node, mask in one.allocation:
            for gpu in range(mask.bit_length()):
                if mask >> gpu & 1:
                    held.setdefault((node, gpu), []).append((one.start, one.end))
    kinds = [one.kind for one in outcome.segments]
    return {
        **summed(
            [end[n] - one.submit for n, one in enumerate(planned)],
            [first[n] - one.submit for n, one in enumerate(planned)],
            sum(union(some) for some in held.values()),
            max(end.values()),
        ),
        "profiled": kinds.count("profile"),
        "packed": kinds.count("packed"),
        "evicted": sum(job.evictions for job in jobs),
    }


# -- both --------------------------------------------------------------------------


def measures_of_live(planned: list[Planned], found: dict[str, Any]) -> dict[str, float]:
    """What is compared, of a live run."""
    runs = [one for one in found["runs"] if one["outcome"] != "REFUSED"]
    runs.sort(key=lambda one: float(one["id"]))
    began = found["jobs"][0]["submitted"]
    submitted = [one["submitted"] for one in found["jobs"]]
    first: dict[int, float] = {}
    end: dict[int, float] = {}
    root = {}
    groups: dict[int, list[tuple[float, float]]] = {}
    for one in runs:
        index = one["index"]
        first[index] = min(first.get(index, math.inf), one["decided"])
        end[index] = max(end.get(index, 0.0), one["ended"])
        root[one["id"]] = root.get(one["beside"], one["id"]) if one["beside"] else one["id"]
        groups.setdefault(root[one["id"]], []).append((one["decided"], one["ended"]))
    size = {one["id"]: one["gpus"] for one in runs}
    return {
        **summed(
            [end[n] - submitted[n] for n in range(len(planned))],
            [first[n] - submitted[n] for n in range(len(planned))],
            sum(union(some) * size[id_] for id_, some in groups.items()),
            max(end.values()) - began,
        ),
        "profiled": sum(one["kind"] == "profile" for one in runs),
        "packed": sum(one["beside"] is not None for one in runs),
        "evicted": sum(one["outcome"] == "EVICTED" for one in runs),
    }


def union(spans: list[tuple[float, float]]) -> float:
    """Length of what is covered [s]."""
    total, until = 0.0, -math.inf
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def summed(jcts: list[float], waits: list[float], busy: float, end: float) -> dict[str, float]:
    """Averages over the jobs."""
    return {
        "jct": statistics.mean(jcts),
        "queueing": statistics.mean(waits),
        "makespan": end,
        "utilisation": busy / (16 * end),
    }


NAMES = {"jct": "JCT", "queueing": "queueing", "makespan": "makespan", "utilisation": "util"}


def report() -> None:
    """The table and the plot."""
    rows: list[dict[str, Any]] = []
    errors: dict[str, list[float]] = {name: [] for name in NAMES}
    means: dict[str, dict[str, list[float]]] = {}
    curves: list[tuple[str, float, float, float, float]] = []
    every = {
        (name, seed): json.loads(place.read_text())
        for name in POLICIES
        for seed in SEEDS
        if (place := WORK / f"{name}-{seed}.json").exists()
    }
    for name in POLICIES:
        of_policy: dict[str, list[float]] = {}
        for seed in SEEDS:
            if (name, seed) not in every:
                continue
            ran = every[name, seed]
            others = [one for key, one in every.items() if key != (name, seed)]
            asked = [one for other in others for one in other["advised"] if one is not None]
            advice = statistics.mean(asked) if asked else None
            real = measures_of_live(workload(seed), ran)
            told = simulate(seed, name, delays=delays_of(others), advice_s=advice)
            constant = simulate(seed, name)
            knowing = simulate(seed, name, ran)
            starts = [one["started"] - one["decided"] for one in ran["runs"]]
            row: dict[str, Any] = {"policy": name, "workload": seed}
            for key, title in NAMES.items():
                form = "{:.1%}" if key == "utilisation" else "{:.1f}"
                row[f"{title} live"] = form.format(real[key])
                row[f"{title} sim"] = form.format(told[key])
                if key in ("jct", "makespan", "utilisation"):
                    row[f"{title} error"] = f"{told[key] / real[key] - 1:+.1%}"
                errors[key].append(abs(told[key] / real[key] - 1) if real[key] else 0.0)
                of_policy.setdefault(f"live {key}", []).append(real[key])
                of_policy.setdefault(f"sim {key}", []).append(told[key])
            for title, found in (("constant start", constant), ("its starts", knowing)):
                row[f"JCT sim, {title}"] = f"{found['jct']:.1f}"
                row[f"error, {title}"] = f"{found['jct'] / real['jct'] - 1:+.1%}"
                errors.setdefault(f"jct, {title}", []).append(abs(found["jct"] / real["jct"] - 1))
                of_policy.setdefault(title, []).append(found["jct"])
            curves.append((f"{name.replace('SchedMate', 'SM')} {seed}", real["jct"],
                           told["jct"], constant["jct"], knowing["jct"]))  # fmt: skip
            row["start mean, longest"] = f"{statistics.mean(starts):.1f}, {max(starts):.1f}"
            row["load"] = f"{ran['load'][0]:.0f} to {ran['load'][1]:.0f}"
            for key in ("profiled", "packed", "evicted"):
                row[key] = f"{real[key]:.0f} / {told[key]:.0f}"
            rows.append(row)
        means[name] = of_policy
    for name, found in means.items():
        if not found:
            continue
        row = {"policy": f"{name}, mean", "workload": f"{len(found['live jct'])} runs"}
        for key, title in NAMES.items():
            real, told = statistics.mean(found[f"live {key}"]), statistics.mean(found[f"sim {key}"])
            form = "{:.1%}" if key == "utilisation" else "{:.1f}"
            row[f"{title} live"], row[f"{title} sim"] = form.format(real), form.format(told)
            if key in ("jct", "makespan", "utilisation"):
                row[f"{title} error"] = f"{told / real - 1:+.1%}"
        real = statistics.mean(found["live jct"])
        for title in ("constant start", "its starts"):
            told = statistics.mean(found[title])
            row[f"JCT sim, {title}"] = f"{told:.1f}"
            row[f"error, {title}"] = f"{told / real - 1:+.1%}"
        rows.append(row)
    draw(curves)
    calibration = recorded(CALIBRATION)
    record(
        "ray_fidelity",
        rows,
        origin="synthetic workload, sleeping jobs on logical GPUs",
        mean_error={key: f"{statistics.mean(some):.1%}" for key, some in errors.items() if some},
        worst_error={key: f"{max(some):.1%}" for key, some in errors.items() if some},
        start_s=round(calibration["start_s"], 3),
        advice_s=round(calibration["advice_s"], 3),
        cluster=CLUSTER,
        units="seconds; profiled, packed, evicted: live / simulated",
    )


def draw(points: list[tuple[str, float, float, float, float]]) -> None:
    """The mean JCT of each run, live and simulated."""
    import numpy as np
    from _figure import save

    from schedmate.report.charts import Axis, Series

    places = np.arange(len(points), dtype=float)
    names = (
        "on the Ray cluster",
        "simulated, starts as in other runs",
        "simulated, one constant",
        "simulated, its start times",
    )
    series = [
        Series(name, style, places, np.array([one[1 + style] for one in points]))
        for style, name in enumerate(names)
    ]
    x = Axis(
        "policy and workload",
        0.0,
        max(1.0, len(points) - 1.0),
        tuple(float(place) for place in places),
        "count",
        names=tuple(one[0] for one in points),
    )
    y = Axis("mean JCT [s]", 0.0, 200.0, (0.0, 50.0, 100.0, 150.0, 200.0), "count")
    save(RESULTS / "ray_fidelity.svg", "Mean JCT of sixty jobs", series, (x, y))


def main() -> None:
    """What is asked for."""
    what, *rest = sys.argv[1:] or ["report"]
    if what == "calibrate":
        calibrate()
    elif what == "live":
        live(rest)
    elif what == "simulate":
        for seed in SEEDS:
            for name in POLICIES:
                print(seed, name, {k: round(v, 3) for k, v in simulate(seed, name).items()})
    else:
        report()


if __name__ == "__main__":
    main()
