"""Jobs from the lists that other schedulers print: `kubectl get jobs -o json` and Ray's.

What they print as text or YAML is refused by name, with what to export instead (`lists.yaml`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from shlex import join
from typing import IO, Any

from schedmate.base.errors import InputError
from schedmate.base.reading import MOST_TABLE, parse_json
from schedmate.base.terminal import clean
from schedmate.jobs import JobRecord, JobState, LaunchConfig
from schedmate.retrieval.sacct import Analyse, ImportReport, unusable_reason, value_table

_DEEPEST = 12
"""Levels of an object that are looked through for replicas."""


def refuse_other_lists(head: str) -> None:
    """Raise `InputError` for a list that is known and not read, with what to export instead."""
    for one in value_table("lists")["refused"]:
        if re.match(one["starts"], head):
            raise InputError(
                f"this is {one['what']}, which says too little; import {one['instead']}."
            )


def import_kubernetes(
    stream: IO[str], report: ImportReport | None = None, analyse: Analyse | None = None
) -> Iterator[JobRecord]:
    """Job records from `kubectl get jobs,pytorchjobs,pods -o json`: a list, or one object.

    The run time is from `startTime` to the end; GPUs are those of all pods together. Raises
    `InputError` when the text is no such document.
    """
    document = _document(stream, "kubectl")
    items = document.get("items", [document]) if isinstance(document, dict) else document
    yield from _records(items, _kubernetes_record, report, analyse)


def import_ray(
    stream: IO[str], report: ImportReport | None = None, analyse: Analyse | None = None
) -> Iterator[JobRecord]:
    """Job records from `ray list jobs --format json`, or `GET /api/jobs/` of its dashboard."""
    yield from _records(_document(stream, "ray list jobs"), _ray_record, report, analyse)


def _document(stream: IO[str], what: str) -> Any:
    text = stream.read(MOST_TABLE + 1)
    if len(text) > MOST_TABLE:
        raise InputError(f"the list of {what} is too long to be read; export it in parts.")
    return parse_json(text.lstrip("\ufeff"), f"the list of {what}")


def _records(
    items: Any,
    read: Callable[[dict[str, Any]], JobRecord],
    report: ImportReport | None,
    analyse: Analyse | None,
) -> Iterator[JobRecord]:
    report = report or ImportReport()
    if not isinstance(items, list):
        raise InputError("the document holds no list of jobs; export it again.")
    for number, item in enumerate(items, start=1):
        report.rows += 1
        try:
            record = read(item)
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
            report.reject(f"item {number}", unusable_reason(error))
            continue
        yield analyse(record, None) if analyse else record


def _moment(text: Any) -> float | None:
    return datetime.fromisoformat(text).timestamp() if isinstance(text, str) and text else None


def _kubernetes_record(item: dict[str, Any]) -> JobRecord:
    about, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    state, ended = _kubernetes_end(status)
    started = _moment(status.get("startTime"))
    over = state not in ("PENDING", "RUNNING")
    pods = list(_pods(spec, 1, _DEEPEST))
    labels = about.get("labels") or {}
    kind = str(item.get("kind") or "job").lower()
    return JobRecord(
        job_id=f"{about.get('namespace') or 'default'}/{kind}/{about['name']}",
        name=str(about["name"]),
        user=labels.get("user") or None,
        command=next((command for _, pod in pods if (command := _command(pod))), None),
        launch=LaunchConfig(
            gpus=sum(count * _gpus(pod) for count, pod in pods) or None,
            nodes=sum(count for count, _ in pods) or None,
            gpu_type=next((found for _, pod in pods if (found := _gpu_type(pod))), None),
            time_limit_s=spec.get("activeDeadlineSeconds"),
        ),
        state=state,
        submit_time=_moment(about.get("creationTimestamp")),
        start_time=started,
        end_time=ended if over else None,
        duration_s=max(0.0, ended - started) if over and started and ended else None,
    )


def _kubernetes_end(status: Mapping[str, Any]) -> tuple[JobState, float | None]:
    """How it stands and when it ended [s since epoch], by its conditions or its pod's phase."""
    states = value_table("lists")["kubernetes"]
    ended = _moment(status.get("completionTime"))
    for condition in status.get("conditions") or []:
        state = states.get(condition.get("type"))
        if state in ("COMPLETED", "FAILED") and str(condition.get("status")) == "True":
            if condition.get("reason") == "DeadlineExceeded":
                state = "TIMEOUT"
            return state, ended or _moment(condition.get("lastTransitionTime"))
    finished = [
        at
        for one in status.get("containerStatuses") or []
        if (at := _moment(((one.get("state") or {}).get("terminated") or {}).get("finishedAt")))
    ]
    if (phase := status.get("phase")) is not None:
        return states.get(phase, "PENDING"), max(finished, default=None)
    return "RUNNING" if status.get("active") or status.get("startTime") else "PENDING", None


def _pods(spec: Any, count: int, depth: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The specifications of pods below a job's, each with how many there are of it."""
    if not isinstance(spec, dict) or depth == 0:
        return
    number = spec.get("replicas", spec.get("parallelism", 1))
    count *= number if isinstance(number, int) and 0 <= number < 1_000_000 else 1
    if isinstance(spec.get("containers"), list):
        yield count, spec
        return
    for value in spec.values():
        if isinstance(value, list):
            for one in value:
                yield from _pods(one, count, depth - 1)
        else:
            yield from _pods(value, count, depth - 1)


def _gpus(pod: Mapping[str, Any]) -> int:
    total = 0
    for container in pod["containers"]:
        resources = container.get("resources") or {}
        asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        total += sum(int(value) for name, value in asked.items() if name.endswith("/gpu"))
    return total


def _gpu_type(pod: Mapping[str, Any]) -> str | None:
    selector = pod.get("nodeSelector") or {}
    return selector.get("nvidia.com/gpu.product") or selector.get(
        "cloud.google.com/gke-accelerator"
    )


def _command(pod: Mapping[str, Any]) -> str | None:
    words = [
        *(pod["containers"][0].get("command") or []),
        *(pod["containers"][0].get("args") or []),
    ]
    return join(map(str, words)) if words else None


def _ray_record(item: dict[str, Any]) -> JobRecord:
    state = value_table("lists")["ray"].get(str(item.get("status")).upper())
    if state is None:
        raise ValueError(f"{clean(item.get('status'), 40)!r} is no status of a Ray job")
    start, end = (
        float(item[name]) / 1000 if item.get(name) else None for name in ("start_time", "end_time")
    )
    over = state not in ("PENDING", "RUNNING")
    gpus = item.get("entrypoint_num_gpus")
    return JobRecord(
        job_id=str(item.get("submission_id") or item["job_id"]),
        command=item.get("entrypoint") or None,
        launch=LaunchConfig(gpus=int(gpus) if gpus else None),
        state=state,
        submit_time=start,
        start_time=start,
        end_time=end if over else None,
        duration_s=max(0.0, end - start) if over and start and end else None,
    )
