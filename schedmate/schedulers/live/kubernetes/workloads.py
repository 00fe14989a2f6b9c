"""Training jobs as the reconcile loop sees them, from objects of the API server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from schedmate.jobs import JobSpec, JobState, LaunchConfig
from schedmate.plain import LONGEST_S, MOST_GPUS, encodable
from schedmate.schedulers.live.adapter import Description, LiveJob
from schedmate.schedulers.live.bounds import CodeBounds
from schedmate.schedulers.live.kubernetes.api import Json
from schedmate.schedulers.live.kubernetes.code import command_of, folder_of
from schedmate.schedulers.live.kubernetes.fields import (
    at,
    every,
    list_at,
    mapping_at,
    number_at,
    part,
    text_at,
    time_at,
)
from schedmate.schedulers.live.kubernetes.kinds import CODE, COMMAND, Kind
from schedmate.schedulers.live.kubernetes.pods import (
    annotation,
    gpus_of,
    is_live,
    main_container,
)

GPU_TYPES = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator")
"""Labels of nodes that pods select a type of GPU by."""
DROPPED = ("managedFields", "selfLink")
"""Parts of an object's metadata that are dropped: long, and not needed here."""

_LABELS = "metadata.labels."


class Workload(NamedTuple):
    """One job, with its pods."""

    kind: Kind
    found: Json
    pods: tuple[Json, ...]

    @property
    def id(self) -> str:
        """`team-a/job/train`."""
        return self.kind.id_of(self.found)

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return text_at(self.found, "metadata.namespace")

    @property
    def uid(self) -> str:
        """The uid, unique among objects of the same name."""
        return text_at(self.found, "metadata.uid")

    @property
    def created(self) -> float:
        """When it was created [s since epoch]."""
        return time_at(self.found, "metadata.creationTimestamp") or 0.0

    @property
    def path(self) -> str:
        """Its path at the API server."""
        return self.kind.path(self.namespace, text_at(self.found, "metadata.name"))


def slim(found: Json) -> Json:
    """The fields of an object that are kept while it is watched."""
    about = {key: one for key, one in part(found, "metadata").items() if key not in DROPPED}
    return {**found, "metadata": about}


def outcome(job: Workload) -> tuple[JobState, float | None] | None:
    """How a job ended, and when; None while it has not."""
    for condition in list_at(job.found, "status.conditions"):
        if job.kind.conditions is None or condition.get("status") != "True":
            continue
        type_, when = text_at(condition, "type"), time_at(condition, "lastTransitionTime")
        if type_ in job.kind.conditions.failed:
            late = text_at(condition, "reason") == "DeadlineExceeded"
            return ("TIMEOUT" if late else "FAILED"), when
        if type_ in job.kind.conditions.done:
            failed = text_at(condition, "reason") in job.kind.failed_reasons
            return ("FAILED" if failed else "COMPLETED"), when
    values = job.kind.values
    if values is not None:
        says = text_at(job.found, values.path)
        when = time_at(job.found, "status.endTime")
        for state, words in (
            ("COMPLETED", values.done),
            ("FAILED", values.failed),
            ("CANCELLED", values.cancelled),
        ):
            if says in words:
                return state, when  # type: ignore[return-value]
    return None


def live(job: Workload) -> LiveJob | None:
    """A job as one that is pending or running; None when it is over."""
    if outcome(job) is not None or text_at(job.found, "metadata.deletionTimestamp"):
        return None
    pods = [pod for pod in job.pods if is_live(pod)]
    running = [pod for pod in pods if text_at(pod, "status.phase") == "Running"]
    state: Literal["PENDING", "RUNNING"] = "RUNNING" if running else "PENDING"
    suspended = bool(job.kind.suspended) and at(job.found, job.kind.suspended) is True
    queue = queue_of(job)
    return LiveJob(
        id=job.id,
        group=job.id,
        state=state,
        user=job.namespace,
        queues=(queue,) if queue else (),
        submitted=job.created,
        started=started(job),
        nodes=nodes_of(running),
        held=suspended and not queue,  # in a queue it waits to be admitted
        reason="suspended" if suspended else "" if running else _why(pods),
    )


def _why(pods: Sequence[Json]) -> str:
    for pod in pods:
        for one in list_at(pod, "status.conditions"):
            if one.get("type") == "PodScheduled" and one.get("status") == "False":
                return text_at(one, "reason") or "Unschedulable"
    return "no pods yet" if not pods else "its pods have not started"


def queue_of(job: Workload) -> str:
    """The queue of a job, by its kind's definition; empty if it is in none."""
    for path in job.kind.queue:
        if path.startswith(_LABELS):
            found = mapping_at(job.found, "metadata.labels").get(path[len(_LABELS) :], "")
        else:
            found = text_at(job.found, path)
        if found:
            return found
    return ""


def started(job: Workload) -> float | None:
    """When its first pod began [s since epoch]; None: unknown."""
    known = time_at(job.found, job.kind.started) if job.kind.started else None
    moments = [time_at(pod, "status.startTime") for pod in job.pods]
    return known or min((one for one in moments if one is not None), default=None)


def nodes_of(pods: Sequence[Json]) -> tuple[str, ...]:
    """The nodes of pods, each once."""
    names = (text_at(pod, "spec.nodeName") for pod in pods)
    return tuple(dict.fromkeys(name for name in names if name))


class _Part(NamedTuple):
    """A pod template, and the number of its pods."""

    name: str
    spec: Json
    pods: int


def _parts(job: Workload) -> Iterator[_Part]:
    for one in job.kind.templates:
        for name, parent in every(job.found, one.path):
            template = at(parent, one.template) if one.template else parent
            above = at(job.found, one.path.rpartition(".")[0]) if not one.template else parent
            count = number_at(above, one.count, 1) if one.count else 1
            spec = at(template, "spec")
            if isinstance(spec, dict):
                yield _Part(name, spec, max(0, count))
    if not job.kind.templates:
        for pod in job.pods:
            yield _Part("", part(pod, "spec"), 1)


def describe(job: Workload, code: CodeBounds) -> Description:
    """The owner's description of a job; with the reason if its code is unknown."""
    parts = list(_parts(job))
    preferred = [one for one in parts if one.name == job.kind.prefer]
    asking = [one for one in parts if gpus_of(main_container(one.spec))]
    main = next(iter([*preferred, *asking, *parts]), _Part("", {}, 1))
    container = main_container(main.spec)
    path, entry, why = folder_of(
        code, job.namespace, annotation(job.found, CODE), text_at(container, "image")
    )
    said = annotation(job.found, COMMAND) or (
        text_at(job.found, job.kind.command) if job.kind.command else ""
    )
    command = encodable(said or command_of(container, entry, path))
    spec = JobSpec(
        job_id=job.id,
        name=text_at(job.found, "metadata.name"),
        user=job.namespace,
        repo=str(path) if path else None,
        command=command or None,
        launch=_launch(parts, job),
        submit_time=job.created,
    )
    return Description(spec, "", no_code=encodable(why))


def _launch(parts: Sequence[_Part], job: Workload) -> LaunchConfig:
    gpus = sum(
        gpus_of(one) * part.pods for part in parts for one in list_at(part.spec, "containers")
    )
    training = [part for part in parts if gpus_of(main_container(part.spec))] or parts
    types = [
        mapping_at(part.spec, "nodeSelector").get(label, "")
        for part in parts
        for label in GPU_TYPES
    ]
    limit = number_at(job.found, "spec.activeDeadlineSeconds") or number_at(
        job.found, "spec.maximumExecutionTimeSeconds"
    )
    nodes = sum(part.pods for part in training)
    # values that no cluster can have are ignored
    return LaunchConfig(
        gpus=int(gpus) if 0 < gpus <= MOST_GPUS else None,
        nodes=nodes if 0 < nodes <= MOST_GPUS else None,
        gpu_type=next(filter(None, types), None),
        time_limit_s=float(limit) if 0 < limit <= LONGEST_S else None,
    )
