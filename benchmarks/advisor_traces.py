"""Job traces for benchmarks/advisor.py, as job records in order of submission.

What is real in each is in its `Trace.real`. Durations of the Philly-derived traces were measured
on Microsoft's cluster; the models in them were assigned by later authors, at random or through
throughput tables, so how well a model predicts a duration there is partly theirs.
"""

from __future__ import annotations

import ast
import csv
import json
import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from schedmate.jobs import JobRecord, WorkloadMetadata


@dataclass(frozen=True)
class Trace:
    """Jobs in order of submission. `keyed`: the metadata is only a key, equal or not, no words."""

    name: str
    real: str
    made_up: str
    keyed: bool
    jobs: list[JobRecord]
    needed_s: dict[str, float] = field(default_factory=dict)
    """The time [s] each job would have taken whole; known for made-up jobs only."""

    def target_s(self, job: JobRecord) -> float | None:
        """What an estimate should say; None for a job that was cut short, in a real trace."""
        return self.needed_s.get(job.job_id, None if job.censored else job.duration_s)

    @property
    def kind(self) -> str:
        """Whether its columns are all real, some, or none."""
        if not self.made_up:
            return "real"
        return "mixed" if self.real else "synthetic"


def load(data: Path, swf: list[Path]) -> Iterator[Trace]:
    """Every trace that is there: under `data`, the `swf` files, and the synthetic one."""
    readers = {
        "philly/philly.csv": philly,
        "alibaba/gpu-v2023/openb_pod_list_default.csv": openb,
        "phillym/phillym.csv": phillym,
        "elasticflow/philly_103959.csv": elasticflow,
        "chronus/trace_job_Philly_MIX1.csv": chronus,
        "gavel/simulation_throughputs.json": gavel,
    }
    for path in swf:
        yield standard_workload(path)
    for name, reader in readers.items():
        if (data / name).exists():
            yield reader(data / name)
    yield resubmissions()


def standard_workload(path: Path) -> Trace:
    """A log of the Parallel Workloads Archive: who ran which application on how many nodes."""
    jobs = []
    for line in path.read_text(encoding="latin-1").splitlines():
        if not line.strip() or line.startswith(";"):
            continue
        fields = line.split()
        wait, run = max(float(fields[2]), 0.0), float(fields[3])
        key = f"user {fields[11]} application {fields[13]}"
        jobs.append(_job(fields[0], float(fields[1]), run, wait, key=key, gpus=int(fields[4])))
    return _trace(path.stem, "all columns (CPU nodes)", "", True, jobs)


def philly(path: Path) -> Trace:
    jobs = []
    for number, row in enumerate(_rows(path)):
        submit = datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC).timestamp()
        key = f"virtual cluster {row['cluster']}"
        gpus = int(row["num_gpus"])
        jobs.append(_job(str(number), submit, float(row["duration"]), key=key, gpus=gpus))
    return _trace("philly", "all columns; no user and no model", "", True, jobs)


def openb(path: Path) -> Trace:
    jobs = []
    for row in _rows(path):
        if not row["scheduled_time"] or not row["deletion_time"]:
            continue
        start, end = float(row["scheduled_time"]), float(row["deletion_time"])
        asked = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos")
        key = " ".join(f"{name}={row[name]}" for name in asked)
        # A pod still running when the trace ends, or failed, ran at least this long.
        state = "COMPLETED" if row["pod_phase"] == "Succeeded" else "FAILED"
        submit = float(row["creation_time"])
        jobs.append(_job(row["name"], submit, end - start, start - submit, key=key, state=state))
    return _trace("openb", "all columns; no user and no model", "", True, jobs)


def phillym(path: Path) -> Trace:
    jobs = [
        _job(
            row["job_id"],
            float(row["submit_s"]),
            float(row["duration_s"]),
            gpus=int(row["gpus"]),
            gpu_util=float(row["gpu_util_pct"]),
            gpu_mem_mb=float(row["gmem_mb"]),
            model=row["model"],
            train=row["dataset"],
            batch_size=int(row["batchsize"]),
            precision="amp" if row["amp"] == "1" else "fp32",
        )
        for row in _rows(path)
    ]
    made_up = "model, dataset and batch assigned; utilisation measured once a configuration"
    return _trace("phillym", "submission, duration, GPUs", made_up, False, jobs)


def elasticflow(path: Path) -> Trace:
    jobs = [
        _job(
            row["job_id"],
            float(row["submit_time"]),
            float(row["real_duration"]),
            gpus=int(row["num_gpu"]),
            model=row["model_name"],
            iters=int(row["real_iteration"]),
            iter_type="step",
            batch_size=int(row["batch_size"]),
        )
        for row in _rows(path)
    ]
    made_up = "model and batch assigned; iterations computed from duration, without noise"
    return _trace("elasticflow", "submission, duration, GPUs", made_up, False, jobs)


def chronus(path: Path) -> Trace:
    jobs = [
        _job(
            row["job_id"],
            float(row["submit_time"]),
            float(row["duration"]),
            gpus=int(row["num_gpu"]),
            model=row["model_name"],
            iters=int(row["iterations"]),
            iter_type="step",
        )
        for row in _rows(path)
        if int(row["num_gpu"]) > 0
    ]
    made_up = "model and iterations assigned, unrelated to the duration"
    return _trace("chronus MIX1", "GPUs, duration's shape", made_up, False, jobs)


def gavel(path: Path) -> Trace:
    rates = {
        ast.literal_eval(key): pairs["null"]
        for key, pairs in json.loads(path.read_text())["v100"].items()
    }
    jobs = []
    for trace in sorted((path.parent / "msr_seed0").glob("*.trace")):
        for number, line in enumerate(trace.read_text().splitlines()):
            name, command, _, _, steps, arrival, gpus = line.split("\t")
            model, _, rest = name.partition(" (batch size ")
            data = re.search(r"data/(?:translation/)?([\w-]+)", command)
            rate = rates.get((name, int(gpus)), 0.0)
            if rate:
                jobs.append(
                    _job(
                        f"{trace.stem}-{number}",
                        float(arrival),
                        int(steps) / rate,
                        gpus=int(gpus),
                        model=model,
                        train=data[1] if data else None,
                        batch_size=int(rest.rstrip(")") or 0) or None,
                        iters=int(steps),
                        iter_type="step",
                    )
                )
    made_up = "model assigned; duration = steps / measured V100 throughput, without noise"
    return _trace("gavel msr", "arrival, GPUs", made_up, False, jobs)


WORKLOADS = {
    "CV": (
        ["resnet18", "resnet50", "vgg16", "vit_base_patch16_224", "mobilenet_v2", "convnext_tiny"],
        ["cifar10", "cifar100", "imagenet", "tiny-imagenet"],
    ),
    "NLP": (
        ["bert-base-uncased", "bert-large-uncased", "roberta-base", "gpt2", "gpt2-medium", "t5"],
        ["wikitext-103", "squad", "glue/sst2", "openwebtext", "imdb"],
    ),
    "Audio": (["wav2vec2-base", "conformer", "whisper-small"], ["librispeech", "common_voice"]),
    "Graph": (["gcn", "gat", "graphsage"], ["ogbn-arxiv", "ogbn-products", "cora"]),
}


def resubmissions(seed: int = 7, count: int = 8000) -> Trace:
    """People working on projects: runs again and again, longer, on more GPUs, cut short.

    From published statistics (Acme's Kalos cluster): a median of minutes with a heavy tail, and
    6.2 % cancelled and 39.7 % failed of those that no time limit ends. Assumed: a run's noise (log
    sd 0.15), a change of speed now and then as the code changes, a failure's uniform share of the
    whole run, and for each project a time limit that some of its runs hit.
    """
    draw = random.Random(seed)
    projects = [_project(draw) for _ in range(150)]
    popularity = [1 / (rank + 1) ** 0.8 for rank in range(len(projects))]
    now = 0.0
    jobs = []
    needed_s = {}
    for number in range(count):
        now += draw.expovariate(1 / 300)
        project = draw.choices(projects, popularity)[0]
        if draw.random() < 0.08:
            project["speed"] *= math.exp(draw.gauss(0, 0.35))
        if draw.random() < 0.2:
            project["iters"] = max(1, round(project["iters"] * draw.choice([0.1, 0.5, 2, 3])))
        if draw.random() < 0.1:
            project["gpus"] = draw.choice([1, 2, 4, 8])
        if draw.random() < 0.15:
            project["lr"] = draw.choice([1e-4, 3e-4, 1e-3, 3e-3])
        whole = project["speed"] * project["iters"] / project["gpus"] ** project["scaling"]
        whole *= math.exp(draw.gauss(0, 0.15))
        state = draw.choices(["COMPLETED", "CANCELLED", "FAILED"], [0.541, 0.062, 0.397])[0]
        run = whole if state == "COMPLETED" else whole * draw.random()
        if run > project["limit"]:
            run, state = project["limit"], "TIMEOUT"
        needed_s[f"r{number}"] = whole
        fields = {name: project[name] for name in ("task", "model", "train", "iters", "lr")}
        jobs.append(
            _job(
                f"r{number}",
                now,
                run,
                gpus=project["gpus"],
                state=state,
                iter_type="epoch",
                **fields,
            )
        )
    made_up = "everything: calibrated to Acme Kalos outcome rates"
    return replace(_trace("resubmissions", "", made_up, False, jobs), needed_s=needed_s)


def _project(draw: random.Random) -> dict[str, Any]:
    task = draw.choice(list(WORKLOADS))
    models, datasets = WORKLOADS[task]
    project: dict[str, Any] = {
        "task": task,
        "model": draw.choice(models),
        "train": draw.choice(datasets),
        "iters": draw.choice([3, 10, 30, 90]),
        "lr": 1e-3,
        "gpus": draw.choice([1, 1, 2, 4, 8]),
        "speed": math.exp(draw.gauss(2.5, 1.6)),
        "scaling": draw.uniform(0.6, 1.0),
    }
    whole = project["speed"] * project["iters"] / project["gpus"] ** project["scaling"]
    project["limit"] = whole * draw.choice([0.9, 1.2, 2, 5, 20])
    return project


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        yield from csv.DictReader(stream)


def _job(
    job_id: str,
    submit: float,
    run: float,
    wait: float = 0.0,
    *,
    key: str | None = None,
    gpus: int | None = None,
    state: str = "COMPLETED",
    gpu_util: float | None = None,
    gpu_mem_mb: float | None = None,
    model: str | None = None,
    task: str | None = None,
    train: str | None = None,
    **training: Any,
) -> JobRecord:
    if key is not None:
        model = f"{key}, {gpus} GPUs"
    return JobRecord.model_validate(
        {
            "job_id": job_id,
            "launch": {"gpus": gpus or None},
            "metadata": WorkloadMetadata.model_validate(
                {
                    "model_config": {"model_name": model, "task_type": task},
                    "training_config": training,
                    "dataset_config": {"train": train},
                }
            ),
            "state": state,
            "submit_time": submit,
            "start_time": submit + wait,
            "end_time": submit + wait + max(run, 0.0),
            "duration_s": max(run, 0.0),
            "gpu_util": gpu_util,
            "gpu_mem_mb": gpu_mem_mb,
        }
    )


def _trace(name: str, real: str, made_up: str, keyed: bool, jobs: list[JobRecord]) -> Trace:
    ran = [job for job in jobs if job.duration_s and job.submit_time is not None]
    ran.sort(key=lambda job: (job.submit_time or 0.0, job.job_id))
    return Trace(name, real, made_up, keyed, ran)
