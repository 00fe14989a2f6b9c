"""Pods: the fields that are kept, how containers ended, and which ends belong to one run.

A job fails when its first container does; what ends while or after that, and began before it, is
the same run, whichever pods it is in. A container that began later belongs to the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from schedmate.jobs import JobState
from schedmate.schedulers.live.kubernetes.api import Json
from schedmate.schedulers.live.kubernetes.fields import (
    at,
    count_of,
    list_at,
    mapping_at,
    number_at,
    part,
    text_at,
    time_at,
)

KEPT = ("name", "namespace", "uid", "labels", "annotations", "creationTimestamp")
"""Of a pod's metadata."""
GONE_WITH_NODE = frozenset(
    {
        "DeletionByTaintManager",
        "DeletionByPodGC",
        "TerminationByKubelet",
        "NodeLost",
        "NodeShutdown",
    }
)
"""Reasons of pods that ended since their node did."""
GIVEN_UP = frozenset({"PreemptionByScheduler", "EvictionByEvictionAPI", "Preempted", "Preempting"})
"""Reasons of pods that had to make room."""


class Ended(NamedTuple):
    """One end of a container that had begun."""

    pod: str
    uid: str
    container: str
    node: str
    began: float
    ended: float
    exit_code: int
    state: JobState
    previous: bool
    """Whether the container runs again: its log is that of the previous one."""


class Attempt(NamedTuple):
    """One run of a job that failed."""

    began: float
    ended: float
    state: JobState
    failures: tuple[Ended, ...]
    """What failed in it, first end first."""


def number_of(attempt: Attempt, created: float) -> int:
    """The number of a run: seconds from the job's creation to the run's beginning.

    Kubernetes does not count runs and deletes pods: the third failure of an hour ago may be the
    first that is visible now.
    """
    return max(0, int(attempt.began - created))


def slim_pod(pod: Json) -> Json:
    """The fields of a pod that are kept while it is watched."""
    about, spec, status = (part(pod, one) for one in ("metadata", "spec", "status"))
    kept = {
        name: about[name]
        for name in (*KEPT, "deletionTimestamp", "resourceVersion")
        if name in about
    }
    return {
        "metadata": kept,
        "spec": {name: spec[name] for name in ("nodeName", "containers") if name in spec},
        "status": {
            name: status[name]
            for name in ("phase", "reason", "conditions", "containerStatuses", "startTime")
            if name in status
        },
    }


def is_live(pod: Json) -> bool:
    """Whether a pod is on a node, or may be put on one, and is not being deleted."""
    phase = text_at(pod, "status.phase")
    return phase not in ("Succeeded", "Failed") and not text_at(pod, "metadata.deletionTimestamp")


def ends(pod: Json) -> list[Ended]:
    """How the containers of a pod have ended, each at most twice: the last time and before."""
    found = []
    for one in list_at(pod, "status.containerStatuses"):
        for place, previous in (("state", False), ("lastState", True)):
            end = at(one, f"{place}.terminated")
            ended = time_at(end, "finishedAt")
            if not isinstance(end, dict) or ended is None:
                continue
            code = number_at(end, "exitCode")
            found.append(
                Ended(
                    pod=text_at(pod, "metadata.name"),
                    uid=text_at(pod, "metadata.uid"),
                    container=text_at(one, "name"),
                    node=text_at(pod, "spec.nodeName"),
                    began=time_at(end, "startedAt") or ended,
                    ended=ended,
                    exit_code=code,
                    state=_state(pod, text_at(end, "reason"), code),
                    # lastState is of a container that was started again, or waits to be
                    previous=previous and at(one, "state.terminated") is None,
                )
            )
            if previous and not found[-1].previous:
                found.pop()  # its log is gone: only one previous container is kept
    if not found and text_at(pod, "status.phase") == "Failed":
        found.append(_unstarted(pod))
    return found


def _unstarted(pod: Json) -> Ended:
    """A pod that failed without telling how its containers did: its node is gone, or refused it."""
    began = time_at(pod, "status.startTime") or time_at(pod, "metadata.creationTimestamp") or 0.0
    moments = [time_at(one, "lastTransitionTime") for one in list_at(pod, "status.conditions")]
    ended = max((one for one in moments if one is not None), default=began)
    names = [text_at(one, "name") for one in list_at(pod, "spec.containers")]
    return Ended(
        pod=text_at(pod, "metadata.name"),
        uid=text_at(pod, "metadata.uid"),
        container=names[0] if names else "",
        node=text_at(pod, "spec.nodeName"),
        began=began,
        ended=max(began, ended),
        exit_code=-1,
        state=_state(pod, "", -1),
        previous=False,
    )


def _state(pod: Json, reason: str, code: int) -> JobState:
    disrupted = [
        text_at(one, "reason")
        for one in list_at(pod, "status.conditions")
        if one.get("type") == "DisruptionTarget" and one.get("status") == "True"
    ]
    reasons = {reason, text_at(pod, "status.reason"), *disrupted}
    if code == 0:
        return "COMPLETED"
    if reasons & GONE_WITH_NODE:
        return "NODE_FAIL"
    if reasons & GIVEN_UP:
        return "PREEMPTED"
    if "OOMKilled" in reasons:
        return "OUT_OF_MEMORY"
    if "DeadlineExceeded" in reasons:
        return "TIMEOUT"
    if text_at(pod, "metadata.deletionTimestamp") and code in (137, 143):
        return "CANCELLED"
    return "FAILED"


def attempts(pods: Iterable[Json]) -> list[Attempt]:
    """The runs of one job that failed, oldest first."""
    failures = sorted(
        (one for pod in pods for one in ends(pod) if one.state not in ("COMPLETED", "CANCELLED")),
        key=lambda one: (one.ended, one.pod, one.container),
    )
    runs: list[list[Ended]] = []
    for one in failures:
        if runs and one.began <= runs[-1][0].ended:
            runs[-1].append(one)
        else:
            runs.append([one])
    return [
        Attempt(
            began=min(one.began for one in run),
            ended=run[0].ended,
            state=_worst(run),
            failures=tuple(run),
        )
        for run in runs
    ]


def _worst(run: Sequence[Ended]) -> JobState:
    """A node that went away explains what its pods did, and memory what the others lost."""
    order: tuple[JobState, ...] = ("NODE_FAIL", "OUT_OF_MEMORY", "FAILED", "TIMEOUT", "PREEMPTED")
    states = {one.state for one in run}
    return next(state for state in order if state in states)


def main_container(spec: Any) -> Json:
    """The container of a pod that trains: the first that requests GPUs, else the first."""
    containers = list_at(spec, "containers")
    with_gpus = [one for one in containers if gpus_of(one)]
    return (with_gpus or containers or [{}])[0]


def gpus_of(container: Json) -> float:
    """GPUs that a container requests, of any vendor."""
    asked = {**part(container, "resources.requests"), **part(container, "resources.limits")}
    total = 0.0
    for name, amount in asked.items():
        if name.endswith("/gpu") or name.rpartition("/")[2].startswith(("gpu.", "mig-")):
            total += count_of(amount)
    return total


def annotation(found: Json, name: str) -> str:
    """An annotation, or an empty text."""
    return mapping_at(found, "metadata.annotations").get(name, "")
