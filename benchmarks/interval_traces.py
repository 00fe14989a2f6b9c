"""Real traces in which the same work comes again, for benchmarks/intervals.py.

No public trace has both source code and run times, so what a trace does have stands in. A job is
the `exact` same as another where all of its columns that say what was asked for agree, and
`similar` where only those named below do. No column is made up.

| trace | exact | similar |
|---|---|---|
| NASA iPSC/860, 1993 (CPU) | user, application, nodes | user, application |
| LCG grid, 2005 (CPU) | user, site | user |
| Helios Venus, two virtual clusters, 2020 | user, cluster, GPUs, nodes | user, cluster |
| Alibaba image generation, 2024 | all settings and owner | checkpoint and kind of request |
| Philly, 2017 | virtual cluster, GPUs | virtual cluster |
| Alibaba openb, 2023 | every resource asked for | |

Only the image generation requests say what is computed, and how many steps of it: there the
correction for length is measured as well. In LCG, Philly and openb even `exact` only means that the
same people ask for the same: it is the weakest evidence that an estimate rests on.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from schedmate.jobs import JobRecord, JobState, WorkloadMetadata

STATES: dict[str, JobState] = {
    "COMPLETED": "COMPLETED",
    "CANCELED": "CANCELLED",
    "NODE_FAIL": "NODE_FAIL",
}
"""Helios' words; any other is a failure."""


def traces(data: Path, swf: list[Path]) -> Iterator[tuple[str, list[JobRecord]]]:
    """Each trace that is there, its jobs in order of submission."""
    for path in swf:
        yield path.stem, _ordered(_standard_workload(path))
    readers = {
        "Venus, 2 VCs": ("helios/venus_2vc_september.csv", _venus),
        "image generation": ("alibaba/genai-v2026/lora_request_trace.csv.gz", _images),
        "philly": ("philly/philly.csv", _philly),
        "openb": ("alibaba/gpu-v2023/openb_pod_list_default.csv", _openb),
    }
    for name, (place, reader) in readers.items():
        if (data / place).exists():
            yield name, _ordered(reader(data / place))


def whole(data: Path) -> Iterator[tuple[str, list[JobRecord]]]:
    """Traces of all jobs of a cluster that say little of them: GPUs, of PAI also the role."""
    readers = {
        "Venus, whole": ("helios/venus_jobs.csv.gz", _venus_whole),
        "PAI, sample": ("alibaba/gpu-v2020/pai_sample.csv.gz", _pai),
    }
    for name, (place, reader) in readers.items():
        if (data / place).exists():
            yield name, _ordered(reader(data / place))


def _venus_whole(path: Path) -> Iterator[JobRecord]:
    for row in _rows(path):
        yield _clamped(row, f"{row['gpu_count']} GPUs")


def _pai(path: Path) -> Iterator[JobRecord]:
    for row in _rows(path):
        role = row["job_id"].partition("#")[0].rpartition("-")[2]
        yield _clamped(row, f"{role} with {row['gpu_count']} GPUs")


def _clamped(row: dict[str, str], similar: str) -> JobRecord:
    """A run time of 48 h means that or more: as a limit would, it cut the run short."""
    run = float(row["service_sec"])
    state: JobState = "TIMEOUT" if run >= 172_800 else "COMPLETED"
    return _job(row["job_id"], float(row["arrival_s"]), 0.0, run, similar, state)


def _standard_workload(path: Path) -> Iterator[JobRecord]:
    """A log of the Parallel Workloads Archive."""
    with path.open(encoding="latin-1") as lines:
        for line in lines:
            if not line.strip() or line.startswith(";"):
                continue
            one = line.split()
            submit, wait, run = (max(float(one[at]), 0.0) for at in (1, 2, 3))
            known = [f"user {one[11]}"] + [f"application {one[13]}"] * (one[13] != "1")
            yield _job(one[0], submit, wait, run, " ".join(known), processors=one[4], site=one[15])


def _venus(path: Path) -> Iterator[JobRecord]:
    for row in _rows(path):
        yield _job(
            row["job_id"],
            float(row["submit_time"]) / 1e6,
            0.0,
            float(row["duration_s"]),
            f"user {row['user']} in {row['tenant']}",
            STATES.get(row["final_status"], "FAILED"),
            gpus=row["num_chips"],
            nodes=row["num_nodes"],
        )


def _images(path: Path) -> Iterator[JobRecord]:
    for number, row in enumerate(_rows(path)):
        yield _job(
            str(number),
            _moment(row["gmt_create"]),
            0.0,
            float(row["exec_time_seconds"] or 0),
            f"{row['predict_type']} with {row['checkpoint_model_version_id']}",
            "COMPLETED" if row["predict_status"] == "SUCCEED" else "FAILED",
            iters=float(row["num_inference_steps"] or 0) or None,
            iter_type="step",
            owner=row["groupId"],
            batch_size=row["num_images_per_prompt"],
            adapters=row["num_lora"],
        )


def _philly(path: Path) -> Iterator[JobRecord]:
    for number, row in enumerate(_rows(path)):
        yield _job(
            str(number),
            _moment(row["timestamp"]),
            0.0,
            float(row["duration"]),
            f"virtual cluster {row['cluster']}",
            gpus=row["num_gpus"],
        )


def _openb(path: Path) -> Iterator[JobRecord]:
    asked = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos")
    for row in _rows(path):
        if row["scheduled_time"] and row["deletion_time"]:
            created, start, end = (
                float(row[name]) for name in ("creation_time", "scheduled_time", "deletion_time")
            )
            # A pod that still runs when the trace ends, or failed, ran at least this long.
            yield _job(
                row["name"],
                created,
                start - created,
                end - start,
                " ".join(row[name] for name in asked),
                "COMPLETED" if row["pod_phase"] == "Succeeded" else "FAILED",
            )


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="utf-8") as stream:
        yield from csv.DictReader(line for line in stream if not line.startswith("#"))


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _job(
    job_id: str,
    submit: float,
    wait: float,
    run: float,
    similar: str,
    state: JobState = "COMPLETED",
    **exact: Any,
) -> JobRecord:
    return JobRecord(
        job_id=job_id,
        metadata=WorkloadMetadata.model_validate(
            {"model_config": {"model_name": similar}, "training_config": exact}
        ),
        state=state,
        submit_time=submit,
        start_time=submit + wait,
        end_time=submit + wait + run,
        duration_s=run,
    )


def _ordered(jobs: Iterator[JobRecord]) -> list[JobRecord]:
    return sorted((job for job in jobs if job.duration_s), key=lambda job: job.submit_time or 0.0)
