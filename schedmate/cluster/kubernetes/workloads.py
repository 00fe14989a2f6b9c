"""Training jobs on Kubernetes: their kinds, their pods, how their runs end, where their code is.

`kinds.yaml` says which objects are jobs; `Workload` is one with its pods. What others wrote into
objects is read as text that may be wrong or missing.
"""

from __future__ import annotations

import fnmatch
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from schedmate.base.data import LARGEST, LONGEST_S, MOST_GPUS, encodable, load
from schedmate.base.files import is_dir, resolved
from schedmate.cluster.adapter import Description, ExecutorError, LiveJob
from schedmate.cluster.bounds import CodeBounds, ImageCode
from schedmate.cluster.kubernetes.api import (
    device_count,
    list_at,
    mapping_at,
    number_at,
    object_at,
    text_at,
    time_at,
    value_at,
    values_at,
)
from schedmate.cluster.kubernetes.connection import Json
from schedmate.jobs import JobSpec, JobState, LaunchConfig

OPT_IN = "schedmate.io/watch"
"""Label, with the value `true`, of the objects that schedmate watches."""
ESTIMATE = "schedmate.io/estimate"
"""The annotation that an estimate is written to."""
CODE = "schedmate.io/code"
"""Annotation with the directory of a job's code, below one of the administrator's roots."""
COMMAND = "schedmate.io/command"
"""Annotation with the training command, if the pod's command does not show it."""
REQUEUED = "schedmate.io/requeued"
"""The annotation on a job whose pods were evicted: the run that this ended, and the pods."""
TAINT = "schedmate.io/isolated"
"""The key of our taint; its value is the mark of a plan."""
BOOST = "kueue.x-k8s.io/priority-boost"
"""Kueue's annotation on a Workload, added to its priority (feature gate PriorityBoost)."""


class _KindPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Template(_KindPart):
    """Location of pod templates: in the field `template` of what is at `path`.

    The product of the numbers at `count`, in the same place, is that of its pods; a template at
    `less` is for one of the last number.
    """

    path: str
    template: str
    count: tuple[str, ...] = ()
    less: str = ""


class Speaker(_KindPart):
    """The pods whose logs tell the progress of all: values of a label, the best first."""

    label: str
    values: tuple[str, ...]

    def place(self, pod: Json) -> int:
        """The place of a pod in the order; that of all others is the last."""
        value = mapping_at(pod, "metadata.labels").get(self.label, "").lower()
        return self.values.index(value) if value in self.values else len(self.values)


class Pods(_KindPart):
    """How the pods of a job are found."""

    selector: str
    label: str = ""
    annotation: str = ""
    owner: str

    def job_of(self, pod: object) -> str:
        """The job that a pod names as its own; empty if none."""
        place, name = ("labels", self.label) if self.label else ("annotations", self.annotation)
        fields = pod.get("metadata", {}).get(place) if isinstance(pod, dict) else None
        value = fields.get(name) if isinstance(fields, dict) else None
        return value if isinstance(value, str) else ""


class EndConditions(_KindPart):
    """Types of conditions which, when True, say that a job is over."""

    done: tuple[str, ...]
    failed: tuple[str, ...]


class EndValues(_KindPart):
    """Values of a field that say that a job is over."""

    path: str
    ended: str = "status.endTime"
    done: tuple[str, ...]
    failed: tuple[str, ...]
    cancelled: tuple[str, ...] = ()


class Kind(_KindPart):
    """A kind of object that is a training job, as `kinds.yaml` describes it."""

    name: str
    group: str
    version: str
    plural: str
    kind: str
    templates: tuple[Template, ...] = ()
    prefer: str = ""
    speaker: Speaker | None = None
    command: str = ""
    suspended: str = ""
    started: str = ""
    queue: tuple[str, ...] = ()
    pods: tuple[Pods, ...]
    conditions: EndConditions | None = None
    failed_reasons: tuple[str, ...] = ()
    values: EndValues | None = None

    def path(self, namespace: str | None, name: str = "") -> str:
        """The path at the API server of the list of these objects, or of one if `name` is given."""
        return path_of(self.group, self.version, self.plural, namespace, name)

    def id_of(self, manifest: object) -> str:
        """A job's id: `team-a/job/train`."""
        namespace = text_at(manifest, "metadata.namespace")
        return f"{namespace}/{self.name}/{text_at(manifest, 'metadata.name')}"


@cache
def job_kinds() -> dict[str, Kind]:
    """All kinds, by the name that ids of jobs hold."""
    kinds = {}
    for name, settings in load("cluster/kubernetes/kinds.yaml").items():
        pods = [
            {
                "selector": f"{OPT_IN}=true"
                if pod_settings["selector"] == "OPT_IN"
                else pod_settings["selector"],
                "label": pod_settings.get("label", ""),
                "annotation": pod_settings.get("annotation", ""),
                "owner": pod_settings["from"],
            }
            for pod_settings in settings["pods"]
        ]
        kinds[name] = Kind.model_validate({**settings, "name": name, "pods": pods})
    return kinds


def path_of(group: str, version: str, plural: str, namespace: str | None, name: str = "") -> str:
    """The path of a list, or of one object, at the API server. Names come from the server, or were
    checked."""
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    path += f"/namespaces/{namespace}" if namespace else ""
    return f"{path}/{plural}" + (f"/{name}" if name else "")


# Training jobs as the reconcile loop sees them, from objects of the API server.


GPU_TYPES = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator")
"""Labels of nodes that pods select a type of GPU by."""
DROPPED = ("managedFields", "selfLink")
"""Parts of an object's metadata that are dropped: long, and not needed here."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation that holds the whole object once more."""

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
        """The namespace of the job's object."""
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


def slim_object(manifest: Json) -> Json:
    """The fields of an object that are kept while it is watched."""
    about = {key: one for key, one in object_at(manifest, "metadata").items() if key not in DROPPED}
    annotations = about.get("annotations")
    if isinstance(annotations, dict) and LAST_APPLIED in annotations:
        kept = {name: text for name, text in annotations.items() if name != LAST_APPLIED}
        about["annotations"] = kept
    return {**manifest, "metadata": about}


def job_outcome(job: Workload) -> tuple[JobState, float | None] | None:
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
        phase = text_at(job.found, values.path)
        when = time_at(job.found, values.ended)
        for state, words in (
            ("COMPLETED", values.done),
            ("FAILED", values.failed),
            ("CANCELLED", values.cancelled),
        ):
            if phase in words:
                return state, when  # type: ignore[return-value]
    return None


def live_job(job: Workload) -> LiveJob | None:
    """A job as one that is pending or running; None when it is over."""
    if job_outcome(job) is not None or text_at(job.found, "metadata.deletionTimestamp"):
        return None
    pods = [pod for pod in job.pods if is_live(pod)]
    running = [pod for pod in pods if text_at(pod, "status.phase") == "Running"]
    state: Literal["PENDING", "RUNNING"] = "RUNNING" if running else "PENDING"
    suspended = bool(job.kind.suspended) and value_at(job.found, job.kind.suspended) is True
    queue = queue_of(job)
    return LiveJob(
        id=job.id,
        group=job.id,
        state=state,
        user=job.namespace,
        queues=(queue,) if queue else (),
        submitted=job.created,
        started=job_began(job),
        nodes=nodes_of(running),
        held=suspended and not queue,  # in a queue it waits to be admitted
        reason="suspended" if suspended else "" if running else _why_pending(pods),
    )


def _why_pending(pods: Sequence[Json]) -> str:
    for pod in pods:
        for condition in list_at(pod, "status.conditions"):
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return text_at(condition, "reason") or "Unschedulable"
    return "no pods yet" if not pods else "its pods have not started"


def queue_of(job: Workload) -> str:
    """The queue of a job, by its kind's definition; empty if it is in none."""
    for path in job.kind.queue:
        if path.startswith(_LABELS):
            queue = mapping_at(job.found, "metadata.labels").get(path[len(_LABELS) :], "")
        else:
            queue = text_at(job.found, path)
        if queue:
            return queue
    return ""


def job_began(job: Workload) -> float | None:
    """When its first pod began [s since epoch]; None: unknown."""
    started = time_at(job.found, job.kind.started) if job.kind.started else None
    moments = [time_at(pod, "status.startTime") for pod in job.pods]
    return started or min((one for one in moments if one is not None), default=None)


def nodes_of(pods: Sequence[Json]) -> tuple[str, ...]:
    """The nodes of pods, each once."""
    names = (text_at(pod, "spec.nodeName") for pod in pods)
    return tuple(dict.fromkeys(name for name in names if name))


class _PodTemplate(NamedTuple):
    """A pod template, and the number of its pods."""

    name: str
    spec: Json
    pods: int


def _pod_templates(job: Workload) -> Iterator[_PodTemplate]:
    for place in job.kind.templates:
        for name, parent in values_at(job.found, place.path):
            counts = [max(0, number_at(parent, count, 1)) for count in place.count]
            if place.less and isinstance(value_at(parent, place.less), dict):
                counts[-1] -= 1
            spec = value_at(parent, f"{place.template}.spec")
            if isinstance(spec, dict):
                yield _PodTemplate(name, spec, max(0, min(math.prod(counts), LARGEST)))
    if not job.kind.templates:
        for pod in job.pods:
            yield _PodTemplate("", object_at(pod, "spec"), 1)


def describe_job(job: Workload, code: CodeBounds) -> Description:
    """The owner's description of a job; with the reason if its code is unknown."""
    parts = list(_pod_templates(job))
    preferred = [one for one in parts if one.name == job.kind.prefer]
    asking = [one for one in parts if gpus_of(main_container(one.spec))]
    main = next(iter([*preferred, *asking, *parts]), _PodTemplate("", {}, 1))
    container = main_container(main.spec)
    path, entry, why = code_folder(
        code, job.namespace, annotation(job.found, CODE), text_at(container, "image")
    )
    annotated = annotation(job.found, COMMAND) or (
        text_at(job.found, job.kind.command) if job.kind.command else ""
    )
    command = encodable(annotated or container_command(container, entry, path))
    spec = JobSpec(
        job_id=job.id,
        name=text_at(job.found, "metadata.name"),
        user=job.namespace,
        repo=str(path) if path else None,
        command=command or None,
        launch=_launch_of(parts, job),
        submit_time=job.created,
    )
    return Description(spec, "", no_code=encodable(why))


def _launch_of(parts: Sequence[_PodTemplate], job: Workload) -> LaunchConfig:
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


# Pods: the fields that are kept, how containers ended, and which ends belong to one run.
#
# A job fails when its first container does; what ends while or after that, and began before it, is
# the same run, whichever pods it is in. A container that began later belongs to the next one.


KEPT_OF_POD = ("name", "namespace", "uid", "labels", "annotations", "creationTimestamp")
"""Fields of a pod's metadata that are kept."""
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


class ContainerEnd(NamedTuple):
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


class FailedRun(NamedTuple):
    """One run of a job that failed."""

    began: float
    ended: float
    state: JobState
    failures: tuple[ContainerEnd, ...]
    """What failed in it, first end first."""


def run_number(attempt: FailedRun, created: float) -> int:
    """The number of a run: seconds from the job's creation to the run's beginning.

    Kubernetes does not count runs and deletes pods: the third failure of an hour ago may be the
    first that is visible now.
    """
    return max(0, int(attempt.began - created))


def slim_pod(pod: Json) -> Json:
    """The fields of a pod that are kept while it is watched."""
    about, spec, status = (object_at(pod, one) for one in ("metadata", "spec", "status"))
    metadata = {
        name: about[name]
        for name in (*KEPT_OF_POD, "deletionTimestamp", "resourceVersion")
        if name in about
    }
    return {
        "metadata": metadata,
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


def container_ends(pod: Json) -> list[ContainerEnd]:
    """How the containers of a pod have ended, each at most twice: the last time and before."""
    ends = []
    for container_status in list_at(pod, "status.containerStatuses"):
        for place, previous in (("state", False), ("lastState", True)):
            end = value_at(container_status, f"{place}.terminated")
            ended = time_at(end, "finishedAt")
            if not isinstance(end, dict) or ended is None:
                continue
            code = number_at(end, "exitCode")
            ends.append(
                ContainerEnd(
                    pod=text_at(pod, "metadata.name"),
                    uid=text_at(pod, "metadata.uid"),
                    container=text_at(container_status, "name"),
                    node=text_at(pod, "spec.nodeName"),
                    began=time_at(end, "startedAt") or ended,
                    ended=ended,
                    exit_code=code,
                    state=_pod_state(pod, text_at(end, "reason"), code),
                    # lastState is of a container that was started again, or waits to be
                    previous=previous and value_at(container_status, "state.terminated") is None,
                )
            )
            if previous and not ends[-1].previous:
                ends.pop()  # its log is gone: only one previous container is kept
    if not ends and text_at(pod, "status.phase") == "Failed":
        ends.append(_unstarted(pod))
    return ends


def _unstarted(pod: Json) -> ContainerEnd:
    """A pod that failed without telling how its containers did: its node is gone, or refused it."""
    began = time_at(pod, "status.startTime") or time_at(pod, "metadata.creationTimestamp") or 0.0
    moments = [time_at(one, "lastTransitionTime") for one in list_at(pod, "status.conditions")]
    ended = max((one for one in moments if one is not None), default=began)
    names = [text_at(one, "name") for one in list_at(pod, "spec.containers")]
    return ContainerEnd(
        pod=text_at(pod, "metadata.name"),
        uid=text_at(pod, "metadata.uid"),
        container=names[0] if names else "",
        node=text_at(pod, "spec.nodeName"),
        began=began,
        ended=max(began, ended),
        exit_code=-1,
        state=_pod_state(pod, "", -1),
        previous=False,
    )


def _pod_state(pod: Json, reason: str, code: int) -> JobState:
    disrupted = [
        text_at(condition, "reason")
        for condition in list_at(pod, "status.conditions")
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True"
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


def failed_runs(pods: Iterable[Json]) -> list[FailedRun]:
    """The runs of one job that failed, oldest first."""
    failures = sorted(
        (
            end
            for pod in pods
            for end in container_ends(pod)
            if end.state not in ("COMPLETED", "CANCELLED")
        ),
        key=lambda end: (end.ended, end.pod, end.container),
    )
    runs: list[list[ContainerEnd]] = []
    for end in failures:
        if runs and end.began <= runs[-1][0].ended:
            runs[-1].append(end)
        else:
            runs.append([end])
    return [
        FailedRun(
            began=min(end.began for end in run),
            ended=run[0].ended,
            state=_worst_end(run),
            failures=tuple(run),
        )
        for run in runs
    ]


def _worst_end(run: Sequence[ContainerEnd]) -> JobState:
    """A node that went away explains what its pods did, and memory what the others lost."""
    order: tuple[JobState, ...] = ("NODE_FAIL", "OUT_OF_MEMORY", "FAILED", "TIMEOUT", "PREEMPTED")
    states = {one.state for one in run}
    return next(state for state in order if state in states)


def main_container(spec: Any) -> Json:
    """The container of a pod that trains: the first that requests GPUs, else the first."""
    containers = list_at(spec, "containers")
    with_gpus = [one for one in containers if gpus_of(one)]
    return (with_gpus or containers or [{}])[0]


@cache
def _gpu_resources() -> frozenset[str]:
    return frozenset(load("cluster/kubernetes/snapshot.yaml")["gpu_resources"])


def is_gpu(resource: str) -> bool:
    """Whether a resource's amount is one of whole GPUs, of any vendor."""
    return resource.endswith("/gpu") or resource in _gpu_resources()


def gpus_of(container: Json) -> float:
    """GPUs that a container requests, of any vendor; a slice of one counts as one."""
    asked = {
        **object_at(container, "resources.requests"),
        **object_at(container, "resources.limits"),
    }
    total = 0.0
    for name, amount in asked.items():
        if is_gpu(name) or name.rpartition("/")[2].startswith(("gpu.", "mig-")):
            total += device_count(amount)
    return total


def annotation(manifest: Json, name: str) -> str:
    """An annotation, or an empty text."""
    return mapping_at(manifest, "metadata.annotations").get(name, "")


# Names of jobs, and schedmate's annotations on objects.


def parse_job_id(job: str) -> tuple[str, str, str]:
    """Namespace, kind and name of `team-a/job/train`; raises `ExecutorError` for any other id."""
    namespace, _, rest = job.partition("/")
    kind, _, name = rest.partition("/")
    if not namespace or kind not in job_kinds() or not name or "/" in name or ".." in job:
        raise ExecutorError(f"{job!r} is not a Kubernetes job id: NAMESPACE/KIND/NAME.")
    return namespace, kind, name


def owners_of(workload: Json) -> list[str]:
    """Ids of the jobs of known kinds that an object was made for."""
    namespace = text_at(workload, "metadata.namespace")
    return [
        f"{namespace}/{kind.name}/{text_at(owner, 'name')}"
        for owner in list_at(workload, "metadata.ownerReferences")
        for kind in job_kinds().values()
        if owner.get("kind") == kind.kind
        and text_at(owner, "apiVersion").partition("/")[0] == kind.group
    ]


def job_ids(workload: Json) -> list[str]:
    """Ids of the job of a Kueue Workload: its owner's, if that is of a known kind, and its own."""
    return [*owners_of(workload), job_kinds()["workload"].id_of(workload)]


def mark_of(job: Workload) -> tuple[int | None, frozenset[str]]:
    """The run that our annotation on a job names as ended, and the pods to be evicted."""
    run, *uids = annotation(job.found, REQUEUED).split() or [""]
    is_number = run.isdecimal() and len(run) <= len(str(LARGEST))  # seconds, which fit into 64 bits
    return (int(run) if is_number else None), frozenset(uids)


def boost_of(workload: Json) -> int | None:
    """The boost of a Workload, 0 without one; None if it is not a number."""
    text = annotation(workload, BOOST) or "0"
    try:
        return int(text) if len(text) <= len(str(-LARGEST)) else None
    except ValueError:
        return None


def annotation_patch(manifest: Json, name: str, text: str) -> Json:
    """The merge patch that sets an annotation, or removes it, of an object as it was read."""
    return {
        "metadata": {
            "uid": uid_of(manifest),
            "resourceVersion": version_of(manifest),
            "annotations": {name: text or None},
        }
    }


def waits_in_kueue(workload: Mapping[str, Any]) -> bool:
    """Whether Kueue has not admitted a Workload, and may."""
    over = ("QuotaReserved", "Admitted", "Finished")
    conditions = list_at(workload, "status.conditions")
    return not any(
        condition.get("type") in over and condition.get("status") == "True"
        for condition in conditions
    )


def version_of(manifest: Json) -> str:
    return text_at(manifest, "metadata.resourceVersion")


def uid_of(manifest: Json) -> str:
    return text_at(manifest, "metadata.uid")


# The directory of a job's code on this machine, and the command that starts it.
#
# A job's owner may name a directory below one of the administrator's roots only, after links were
# resolved. Otherwise the administrator's map from images to directories applies. The code is read
# in confined processes, and never run.


_VARIABLE = re.compile(r"\$(\$|\((?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\))")
LONGEST_COMMAND = 1 << 16
"""Characters of a command that is read."""


def code_folder(
    bounds: CodeBounds, namespace: str, annotated: str, image: str
) -> tuple[Path | None, ImageCode | None, str]:
    """The directory of a job's code, its entry of the map, and why there is none.

    `annotated` is the owner's annotation (empty: none); it takes precedence over the map.
    """
    if annotated:
        roots = [Path(str(root).replace("{namespace}", namespace)) for root in bounds.roots]
        folder = folder_below(roots, annotated)
        return folder, None, "" if folder else _why_refused(roots, annotated)
    for one in bounds.images:
        if fnmatch.fnmatchcase(image, one.image):
            return one.path, one, "" if is_dir(one.path) else f"{one.path} is not a directory"
    return (
        None,
        None,
        f"neither its annotation {CODE} nor kubernetes: code: images says where its code is",
    )


def _why_refused(roots: Sequence[Path], path: str) -> str:
    """Why a directory named by an owner is not read; nothing is revealed about directories outside
    the roots."""
    if not roots:
        return f"{CODE} names {path!r}, and the bounds allow no directory (kubernetes: code: roots)"
    places = ", ".join(map(str, roots))
    inside = "\0" not in path and any(
        resolved(root / path).is_relative_to(resolved(root)) for root in roots
    )
    what = "not a directory below" if inside else "outside"
    return f"{CODE} names {path!r}, which is {what} {places} (kubernetes: code: roots)"


def folder_below(roots: Sequence[Path], path: str) -> Path | None:
    """The directory that a text names, absolute or below a root, if it is in one after all links
    were followed; else None."""
    if "\0" in path or len(path) > 4096:
        return None
    for root in roots:
        base = resolved(root)
        folder = resolved(base / path)
        if folder.is_relative_to(base) and is_dir(folder):
            return folder
    return None


def container_command(
    container: Mapping[str, Any], entry: ImageCode | None, path: Path | None
) -> str:
    """A container's command as one would type it in the directory of its code.

    `$(NAME)` is replaced by the container's plain variables, as Kubernetes does; values from
    secrets and config maps stay names. If the map has the place of the code in the image (`at`),
    paths below it become paths of the directory.
    """
    words = [
        word
        for part in ("command", "args")
        for word in _list_or_empty(container.get(part))
        if isinstance(word, str)
    ]
    variables = {
        text_at(one, "name"): one["value"] for one in list_at(container, "env") if "value" in one
    }
    words = [_expand_variables(word, variables) for word in words]
    if entry is not None and entry.at is not None and path is not None:
        place = str(entry.at).rstrip("/")
        words = [_moved_path(word, place, str(path)) for word in words]
    return shlex.join(words)[:LONGEST_COMMAND]


def _list_or_empty(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _expand_variables(word: str, variables: Mapping[str, Any]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        text = variables.get(match["name"])
        return text if isinstance(text, str) else match[0]

    return _VARIABLE.sub(value, word)


def _moved_path(word: str, place: str, path: str) -> str:
    pattern = rf"(?<![\w./-]){re.escape(place)}(?=/|[\s\"';)&|]|$)"
    return re.sub(pattern, lambda _: path, word)
