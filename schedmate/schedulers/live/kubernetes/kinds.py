"""Kinds of training jobs (`kinds.yaml`), and what schedmate's own labels and annotations are."""

from __future__ import annotations

from functools import cache
from typing import Literal

from pydantic import BaseModel, ConfigDict

from schedmate.data import load
from schedmate.schedulers.live.kubernetes.fields import text_at

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


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Template(_Part):
    """Location of pod templates: at `path`, or in its field `template`; `count` beside it."""

    path: str
    template: str = ""
    count: str = ""


class Pods(_Part):
    """How the pods of a job are found."""

    selector: str
    label: str = ""
    annotation: str = ""
    owner: str

    def job_of(self, pod: object) -> str:
        """The job that a pod names as its own; empty if none."""
        place, name = ("labels", self.label) if self.label else ("annotations", self.annotation)
        found = pod.get("metadata", {}).get(place) if isinstance(pod, dict) else None
        value = found.get(name) if isinstance(found, dict) else None
        return value if isinstance(value, str) else ""


class Conditions(_Part):
    """Types of conditions which, when True, say that a job is over."""

    done: tuple[str, ...]
    failed: tuple[str, ...]


class Values(_Part):
    """Values of a field that say that a job is over."""

    path: str
    done: tuple[str, ...]
    failed: tuple[str, ...]
    cancelled: tuple[str, ...] = ()


class Kind(_Part):
    """One kind."""

    name: str
    group: str
    version: str
    plural: str
    kind: str
    templates: tuple[Template, ...] = ()
    prefer: str = ""
    command: str = ""
    suspended: str = ""
    started: str = ""
    queue: tuple[str, ...] = ()
    pods: tuple[Pods, ...]
    conditions: Conditions | None = None
    failed_reasons: tuple[str, ...] = ()
    values: Values | None = None

    def path(self, namespace: str | None, name: str = "") -> str:
        """The path of its list, or of one object."""
        return path_of(self.group, self.version, self.plural, namespace, name)

    def id_of(self, found: object) -> str:
        """A job's id: `team-a/job/train`."""
        return (
            f"{text_at(found, 'metadata.namespace')}/{self.name}/{text_at(found, 'metadata.name')}"
        )


Which = Literal["job", "pytorchjob", "rayjob", "workload", "volcano", "kai"]


@cache
def kinds() -> dict[str, Kind]:
    """All kinds, by the name that ids of jobs hold."""
    found = {}
    for name, says in load("schedulers/live/kubernetes/kinds.yaml").items():
        pods = [
            {
                "selector": f"{OPT_IN}=true" if one["selector"] == "OPT_IN" else one["selector"],
                "label": one.get("label", ""),
                "annotation": one.get("annotation", ""),
                "owner": one["from"],
            }
            for one in says["pods"]
        ]
        found[name] = Kind.model_validate({**says, "name": name, "pods": pods})
    return found


def path_of(group: str, version: str, plural: str, namespace: str | None, name: str = "") -> str:
    """The path of a list, or of one object, at the API server. Names come from the server, or were
    checked (`names.py`)."""
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    path += f"/namespaces/{namespace}" if namespace else ""
    return f"{path}/{plural}" + (f"/{name}" if name else "")
