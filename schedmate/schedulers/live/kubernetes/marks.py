"""Names of jobs, and schedmate's annotations on objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schedmate.plain import LARGEST
from schedmate.schedulers.live.executor import ExecutorError
from schedmate.schedulers.live.kubernetes.api import Json
from schedmate.schedulers.live.kubernetes.fields import list_at, text_at
from schedmate.schedulers.live.kubernetes.kinds import BOOST, REQUEUED, kinds
from schedmate.schedulers.live.kubernetes.pods import annotation
from schedmate.schedulers.live.kubernetes.workloads import Workload


def parts_of(job: str) -> tuple[str, str, str]:
    """Namespace, kind and name of `team-a/job/train`; raises `ExecutorError` for any other id."""
    namespace, _, rest = job.partition("/")
    kind, _, name = rest.partition("/")
    if not namespace or kind not in kinds() or not name or "/" in name or ".." in job:
        raise ExecutorError(f"{job!r} is not a Kubernetes job id: NAMESPACE/KIND/NAME.")
    return namespace, kind, name


def job_ids(workload: Json) -> list[str]:
    """Ids of the job of a Kueue Workload: its owner's, if that is of a known kind, and its own."""
    namespace = text_at(workload, "metadata.namespace")
    owners = [
        f"{namespace}/{kind.name}/{text_at(owner, 'name')}"
        for owner in list_at(workload, "metadata.ownerReferences")
        for kind in kinds().values()
        if owner.get("kind") == kind.kind
        and text_at(owner, "apiVersion").partition("/")[0] == kind.group
    ]
    return [*owners, kinds()["workload"].id_of(workload)]


def mark_of(job: Workload) -> tuple[int | None, frozenset[str]]:
    """The run that our annotation on a job names as ended, and the pods to be evicted."""
    run, *uids = annotation(job.found, REQUEUED).split() or [""]
    known = run.isdecimal() and len(run) <= len(str(LARGEST))  # seconds, which fit into 64 bits
    return (int(run) if known else None), frozenset(uids)


def boost_of(workload: Json) -> int | None:
    """The boost of a Workload, 0 without one; None if it is not a number."""
    said = annotation(workload, BOOST) or "0"
    try:
        return int(said) if len(said) <= len(str(-LARGEST)) else None
    except ValueError:
        return None


def annotating(found: Json, name: str, text: str) -> Json:
    """The merge patch that sets an annotation, or removes it, of an object as it was read."""
    return {
        "metadata": {
            "uid": uid_of(found),
            "resourceVersion": version_of(found),
            "annotations": {name: text or None},
        }
    }


def waits(workload: Mapping[str, Any]) -> bool:
    """Whether Kueue has not admitted a Workload, and may."""
    over = ("QuotaReserved", "Admitted", "Finished")
    conditions = list_at(workload, "status.conditions")
    return not any(one.get("type") in over and one.get("status") == "True" for one in conditions)


def version_of(found: Json) -> str:
    return text_at(found, "metadata.resourceVersion")


def uid_of(found: Json) -> str:
    return text_at(found, "metadata.uid")
