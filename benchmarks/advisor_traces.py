"""Job traces for benchmarks/advisor.py, as job records in order of submission: real ones, in which
a key stands for the work, and one that is synthetic, with words."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from estimation_traces import chosen

from schedmate.jobs import JobRecord, WorkloadMetadata


@dataclass(frozen=True)
class Trace:
    """Jobs in order of submission."""

    name: str
    kind: str
    """`real`, where the metadata is only a key, equal or not, no words; or `synthetic`."""
    about: str
    jobs: list[JobRecord]
    needed_s: dict[str, float] = field(default_factory=dict)
    """The time [s] each job would have taken whole; known for synthetic jobs only."""

    @property
    def keyed(self) -> bool:
        return self.kind == "real"

    def target_s(self, job: JobRecord) -> float | None:
        """What an estimate should say; None for a job that was cut short, in a real trace."""
        return self.needed_s.get(job.job_id, None if job.censored else job.duration_s)


def load(data: Path, swf: list[Path]) -> Iterator[Trace]:
    """Every trace that is there: under `data`, the `swf` files, and the synthetic one."""
    for name, jobs in chosen(data, swf, ("Philly", "openb")):
        records = [
            _job(
                str(number),
                job.asked.submitted,
                job.run_s,
                job.ended - job.run_s - job.asked.submitted,
                gpus=int(job.asked.size or 0),
                state="FAILED" if job.cut else "COMPLETED",
                model=f"{job.similar}, {job.asked.size} GPUs",
            )
            for number, job in enumerate(jobs)
        ]
        yield Trace(name, "real", "all columns; no model", records)
    yield resubmissions()


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
    jobs = [job for job in jobs if job.duration_s]
    return Trace("resubmissions", "synthetic", "calibrated to Acme Kalos' rates", jobs, needed_s)


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


def _job(
    job_id: str,
    submit: float,
    run: float,
    wait: float = 0.0,
    *,
    gpus: int | None = None,
    state: str = "COMPLETED",
    model: str | None = None,
    task: str | None = None,
    train: str | None = None,
    **training: Any,
) -> JobRecord:
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
        }
    )
