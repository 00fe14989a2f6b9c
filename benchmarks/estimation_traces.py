"""The public traces on which estimates are measured: jobs with what was known at their submission.

Nothing is made up and nothing sampled. Jobs that never ran (no run time) are left out. Long logs
are cut to their first jobs, which the table states.

No public trace has both source code and run times, so for estimates by similarity (`records`) what
a trace does have stands in. A job is the `exact` same as another where all of its columns that say
what was asked for agree, and `similar` where only those named here do:

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
import heapq
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from schedmate.jobs import FAILURE_STATES, JobRecord, WorkloadMetadata
from schedmate.retrieval.experts import Submission

DEVELOPMENT = (
    *("KTH-SP2-1996-2", "UniLu-Gaia-2014-1", "supercloud", "Venus, 2 VCs"),
    *("eagle", "METACENTRUM-2009-2"),
)
"""Traces on which designs and constants were chosen: four that were named before any was measured,
and two on which the first version failed."""


@dataclass(frozen=True, slots=True)
class Job:
    """What was known at submission, the end [s], the run time [s], and whether it was cut short, by
    a failure or otherwise (`failed` is None where the trace does not tell failures apart).
    `similar` and `exact` say what the trace has of the work."""

    asked: Submission
    ended: float
    run_s: float
    cut: bool
    failed: bool | None = None
    similar: str | None = None
    exact: Mapping[str, Any] = field(default_factory=dict)


def traces(data: Path) -> Iterator[tuple[str, Callable[[], list[Job]]]]:
    """The name of each trace below `data`, and what reads it in order of submission."""
    for path in sorted((data / "swf").glob("*.swf.gz")):
        yield path.name.removesuffix(".swf.gz"), lambda path=path: _ordered(_swf(path))
    files = {
        "computecanada cedar": ("computecanada/cedar_jobs.csv.gz", _compute_canada),
        "computecanada graham": ("computecanada/graham_jobs.csv.gz", _compute_canada),
        "supercloud": ("supercloud/slurm_sample.csv.gz", _supercloud),
        "xdmod pozidriv": ("xdmod/pozidriv_jobs.csv.gz", _xdmod),
        "xdmod phillips": ("xdmod/phillips_jobs.csv.gz", _xdmod),
        "eagle": ("eagle/sample_eagle_data.csv.gz", _eagle),
        "Venus, 2 VCs": ("helios/venus_2vc_september.csv", _venus),
        "Venus, whole": ("helios/venus_jobs.csv.gz", _venus_whole),
        "Philly": ("philly/philly.csv", _philly),
        "PAI, sample": ("alibaba/gpu-v2020/pai_sample.csv.gz", _pai),
        "openb": ("alibaba/gpu-v2023/openb_pod_list_default.csv", _openb),
        "image generation": ("alibaba/genai-v2026/lora_request_trace.csv.gz", _images),
    }
    for name, (place, reader) in files.items():
        if (data / place).exists():
            yield name, lambda reader=reader, path=data / place: _ordered(reader(path))


METADATA = ("Venus, 2 VCs", "image generation", "Philly", "openb")
"""Traces that say something of the work beside its size, on which estimates by similarity are
measured; workload logs with executables and sites are named on the command line."""


def chosen(
    data: Path, swf: list[Path] | None = None, names: tuple[str, ...] = METADATA
) -> Iterator[tuple[str, list[Job]]]:
    """Workload logs and traces by name, in order of submission."""
    for path in swf or ():
        name = path.name.removesuffix(".gz").removesuffix(".swf")
        yield name, _ordered(_swf(path))
    found = dict(traces(data))
    for name in names:
        if name in found:
            yield name, found[name]()


def jobs_of_log(data: Path, name: str) -> list[Job]:
    """All jobs of a workload log in order of submission, also those that never ran."""
    found = _swf(data / "swf" / f"{name}.swf.gz")
    return sorted(found, key=lambda job: job.asked.submitted)


def records(
    data: Path, swf: list[Path] | None = None, names: tuple[str, ...] = METADATA
) -> Iterator[tuple[str, list[JobRecord]]]:
    """Of each trace, its jobs as records with `similar` and `exact` as their metadata."""
    for name, jobs in chosen(data, swf, names):
        yield name, [_record(number, job) for number, job in enumerate(jobs)]


def _record(number: int, job: Job) -> JobRecord:
    cut_short = "FAILED" if job.failed is not False else "CANCELLED"
    return JobRecord(
        job_id=str(number),
        metadata=WorkloadMetadata.model_validate(
            {"model_config": {"model_name": job.similar}, "training_config": job.exact}
        ),
        state=cut_short if job.cut else "COMPLETED",
        submit_time=job.asked.submitted,
        start_time=job.ended - job.run_s,
        end_time=job.ended,
        duration_s=job.run_s,
    )


def in_order(jobs: Sequence[Job] | Sequence[JobRecord]) -> Iterator[tuple[int, list[int]]]:
    """Each job's number, with those of the jobs that ended before its submission, by their ends."""
    running: list[tuple[float, int]] = []
    for number, job in enumerate(jobs):
        whole = isinstance(job, JobRecord)
        submitted = (job.submit_time if whole else job.asked.submitted) or 0.0
        ended = []
        while running and running[0][0] <= submitted:
            ended.append(heapq.heappop(running)[1])
        yield number, ended
        heapq.heappush(running, ((job.end_time if whole else job.ended) or 0.0, number))


def _ordered(jobs: Iterator[Job]) -> list[Job]:
    return sorted((job for job in jobs if job.run_s > 0), key=lambda job: job.asked.submitted)


def _swf(path: Path) -> Iterator[Job]:
    anonymous = "0" if "Theta" in path.name else "-1"  # Theta's user 0 is not recorded
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="latin-1") as lines:
        for line in lines:
            one = line.split()
            if not one or one[0].startswith(";"):
                continue
            submit, wait, run = float(one[1]), max(float(one[2]), 0.0), float(one[3])
            size = float(one[7]) if float(one[7]) > 0 else float(one[4])
            yield Job(
                Submission(
                    submit,
                    user=one[11] if one[11] not in ("-1", anonymous) else None,
                    name=one[13] if one[13] != "-1" else None,
                    size=size,
                    request_s=_positive(one[8]),
                    kind=f"{one[14]} {one[15]}",
                ),
                submit + wait + run,
                run,
                one[10] in ("0", "5"),
                one[10] == "0",
                f"user {one[11]}" + f" application {one[13]}" * (one[13] not in ("1", "-1")),
                {"processors": one[4], "site": one[15]},
            )


def _compute_canada(path: Path) -> Iterator[Job]:
    for row in _rows(path):
        asked = Submission(
            float(row["submit"]),
            user=row["user"],
            size=float(row["cpus"]) + 1000 * float(row["gpus"] or 0),
            request_s=_positive(row["time_limit_s"]),
            kind=row["partition"],
        )
        yield _of_slurm(asked, float(row["start"]) + float(row["run_s"]), row)


def _supercloud(path: Path) -> Iterator[Job]:
    for row in _rows(path):
        asked = Submission(
            float(row["submit"]),
            user=row["user"],
            size=float(row["cpus"]),
            request_s=_positive(row["time_limit_s"]),
            name=f"{row['job_type']} {row['constraint']} {row['tres_alloc']}",
            kind=row["partition"],
        )
        yield _of_slurm(asked, float(row["end"]), row)


def _xdmod(path: Path) -> Iterator[Job]:
    for row in _rows(path):
        asked = Submission(
            float(row["submit"]),
            user=row["user"],
            size=float(row["cpus"]) + 1000 * float(row["gpus"] or 0),
            request_s=_positive(row["time_limit_s"]),
            kind=f"{row['partition']} {row['qos']}",
        )
        yield _of_slurm(asked, float(row["end"]), row)


def _eagle(path: Path) -> Iterator[Job]:
    for row in _rows(path):
        asked = Submission(
            _moment(row["submit_time"]),
            user=row["user"],
            name=row["name"],
            size=float(row["processors_req"] or 0),
            request_s=_positive(row["wallclock_req"]),
            kind=f"{row['partition']} {row['qos']}",
        )
        yield _of_slurm(asked, _moment(row["end_time"]), row | {"run_s": row["run_time"]})


def _of_slurm(asked: Submission, ended: float, row: dict[str, str]) -> Job:
    return Job(
        asked,
        ended,
        float(row["run_s"] or 0),
        row["state"] != "COMPLETED",
        row["state"] in FAILURE_STATES,
    )


def _venus(path: Path) -> Iterator[Job]:
    for row in _rows(path):
        submit, run = float(row["submit_time"]) / 1e6, float(row["duration_s"])
        asked = Submission(
            submit, user=row["user"], size=float(row["num_chips"]), kind=row["tenant"]
        )
        status = row["final_status"]
        yield Job(
            *(asked, submit + run, run, status != "COMPLETED", status in FAILURE_STATES),
            similar=f"user {row['user']} in {row['tenant']}",
            exact={"gpus": row["num_chips"], "nodes": row["num_nodes"]},
        )


def _venus_whole(path: Path) -> Iterator[Job]:
    for row in _rows(path):
        yield _clamped(row)


def _pai(path: Path) -> Iterator[Job]:
    for row in _rows(path):
        yield _clamped(row, row["job_id"].partition("#")[0].rpartition("-")[2])


def _clamped(row: dict[str, str], kind: str | None = None) -> Job:
    """A run time of 48 h means that or more: as a limit would, it cut the run short."""
    submit, run = float(row["arrival_s"]), float(row["service_sec"])
    asked = Submission(submit, size=float(row["gpu_count"]), kind=kind)
    similar = f"{kind} with {row['gpu_count']} GPUs" if kind else f"{row['gpu_count']} GPUs"
    return Job(asked, submit + run, run, run >= 172_800, similar=similar)


def _philly(path: Path) -> Iterator[Job]:
    for row in _rows(path):
        submit, run = _moment(row["timestamp"]), float(row["duration"])
        asked = Submission(submit, size=float(row["num_gpus"]), kind=row["cluster"])
        similar = f"virtual cluster {row['cluster']}"
        yield Job(asked, submit + run, run, False, None, similar, {"gpus": row["num_gpus"]})


def _openb(path: Path) -> Iterator[Job]:
    spec = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos")
    for row in _rows(path):
        if row["scheduled_time"] and row["deletion_time"]:
            start, end = float(row["scheduled_time"]), float(row["deletion_time"])
            work = " ".join(row[field] for field in spec)
            asked = Submission(
                float(row["creation_time"]),
                name=work,
                size=float(row["num_gpu"]),
                kind=row["qos"],
            )
            # A pod that still runs when the trace ends, or failed, ran at least this long.
            cut = row["pod_phase"] != "Succeeded"
            yield Job(asked, end, end - start, cut, similar=work)


def _images(path: Path) -> Iterator[Job]:
    for row in _rows(path):
        submit, run = _moment(row["gmt_create"]), float(row["exec_time_seconds"] or 0)
        asked = Submission(
            submit,
            user=row["groupId"],
            name=f"{row['predict_type']} {row['checkpoint_model_version_id']} {row['num_lora']}",
            size=float(row["num_inference_steps"] or 0) * float(row["num_images_per_prompt"] or 1),
            kind=row["predict_type"],
        )
        yield Job(
            *(asked, submit + run, run, row["predict_status"] != "SUCCEED"),
            similar=f"{row['predict_type']} with {row['checkpoint_model_version_id']}",
            exact={
                "iters": float(row["num_inference_steps"] or 0) or None,
                "iter_type": "step",
                "owner": row["groupId"],
                "batch_size": row["num_images_per_prompt"],
                "adapters": row["num_lora"],
            },
        )


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="utf-8") as stream:
        yield from csv.DictReader(line for line in stream if not line.startswith("#"))


def _positive(text: str) -> float | None:
    number = float(text or 0)
    return number if number > 0 else None


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def coded(value: Any) -> float:
    """A text as a number for trees: the same for the same text in every run."""
    return float(zlib.crc32(str(value).encode()) % 1009)
