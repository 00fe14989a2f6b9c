"""A small cluster behind the stand-in: nodes, jobs and pods, and what their controllers do."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from api_server import ApiServer
from api_store import Key

Json = dict[str, Any]
WATCHED = {"schedmate.io/watch": "true"}
TRAIN = """\
import argparse

import torch
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="resnet18")
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()
data = torchvision.datasets.CIFAR10("data", train=True)
loader = torch.utils.data.DataLoader(data, batch_size=64)
model = torchvision.models.get_model(args.model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(args.epochs):
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
"""
XID = "NVRM: Xid (PCI:0000:3b:00): 48, pid=4242, name=python, DBE (double bit error) ECC error"
"""What a node says of itself whose GPU is broken."""
MANIFESTS = Path(__file__).parents[2] / "examples" / "kubernetes"
AGENT = "schedmate/schedmate-agent"
"""The service account of the manifests."""
THEIRS = {"key": "team.example/maintenance", "value": "soon", "effect": "NoSchedule"}
ECC = """\
Epoch [1/3], Loss: 2.30, time: 1.0 s
Traceback (most recent call last):
  File "train.py", line 21, in <module>
    loss.backward()
torch.cuda.CudaError: CUDA error: uncorrectable ECC error encountered
"""


def manifests(*folders: str) -> list[Json]:
    """The objects of some folders of the example, as they stand there."""
    paths = [
        path
        for folder in folders
        for path in sorted((MANIFESTS / folder).glob("*.yaml"))
        if path.name not in ("kustomization.yaml", "bounds.yaml", "recovery.yaml")
    ]
    return [one for path in paths for one in yaml.safe_load_all(path.read_text()) if one]


def stamp(ago_s: float = 0.0) -> str:
    return datetime.fromtimestamp(time.time() - ago_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def until(what: str, limit_s: float, ready: Callable[[], Any]) -> Any:
    end = time.monotonic() + limit_s
    while not (found := ready()):
        assert time.monotonic() < end, f"{what}: not within {limit_s:g} s"
        time.sleep(0.02)
    return found


class Cluster:
    """Writes what users, kubelets and controllers would write."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.store = server.store

    def put(self, key: Key, found: Json) -> Json:
        about = found["metadata"]
        about.setdefault("uid", str(uuid.uuid4()))
        about.setdefault("creationTimestamp", stamp(3600.0))
        return self.store.put(key, found)

    def get(self, *key: str) -> Json:
        found = self.store.get(key)  # type: ignore[arg-type]
        assert found is not None, key
        return found

    def change(self, key: Key, change: Callable[[Json], object]) -> Json:
        with self.store.changed:
            found = self.get(*key)
            change(found)
            return self.store.put(key, found)

    # -- nodes -------------------------------------------------------------

    def node(self, name: str, *, taints: list[Json] | None = None, broken: str = "") -> Json:
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": stamp(9e4)}]
        if broken:
            conditions.append({
                "type": "XIDCriticalError", "status": "True", "reason": "Xid79",
                "message": broken, "lastTransitionTime": stamp(700.0),
            })  # fmt: skip
        spec: Json = {"taints": taints} if taints else {}
        status = {"conditions": conditions, "allocatable": {"nvidia.com/gpu": "4", "cpu": "8"}}
        about = {"name": name, "labels": {"schedmate.io/pool": "train"}}
        found = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": about,
            "spec": spec,
            "status": status,
        }
        return self.put(("", "nodes", "", name), found)

    def taints(self, node: str) -> list[Json]:
        found = self.get("", "nodes", "", node)["spec"].get("taints") or []
        return [{k: one.get(k) for k in ("key", "value", "effect")} for one in found]

    # -- jobs --------------------------------------------------------------

    def job(
        self, name: str, command: str = "python train.py --model resnet18 --epochs 3", *,
        namespace: str = "team-a", annotations: Json | None = None, labels: Json | None = None,
        queue: str = "", image: str = "registry/train:1", gpus: int = 4, status: Json | None = None,
        age_s: float = 3600.0,
    ) -> Json:  # fmt: skip
        labels = dict(WATCHED if labels is None else labels)
        if queue:
            labels["kueue.x-k8s.io/queue-name"] = queue
        found = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name, "namespace": namespace, "labels": labels,
                "annotations": annotations or {}, "creationTimestamp": stamp(age_s),
            },
            "spec": {
                "parallelism": 1, "backoffLimit": 4, "suspend": bool(queue),
                "template": template(command, image, gpus),
            },
            "status": status or {},
        }  # fmt: skip
        return self.put(("batch", "jobs", namespace, name), found)

    def pytorchjob(self, name: str, workers: int, command: str, namespace: str = "team-a") -> Json:
        part = {"restartPolicy": "OnFailure", "template": template(command, "registry/train:1", 4)}
        specs = {"Master": {"replicas": 1, **part}, "Worker": {"replicas": workers, **part}}
        about = {"name": name, "namespace": namespace, "labels": dict(WATCHED)}
        spec = {"pytorchReplicaSpecs": specs}
        found = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": about,
            "spec": spec,
        }
        return self.put(("kubeflow.org", "pytorchjobs", namespace, name), found)

    def rayjob(self, name: str, entrypoint: str, namespace: str = "team-a") -> Json:
        pod = template("ray start", "registry/ray:1", 4)
        group = {"groupName": "gpus", "replicas": 3, "rayStartParams": {}, "template": pod}
        head = {"rayStartParams": {}, "template": template("ray start", "registry/ray:1", 0)}
        spec = {
            "entrypoint": entrypoint,
            "rayClusterSpec": {"headGroupSpec": head, "workerGroupSpecs": [group]},
        }
        about = {"name": name, "namespace": namespace, "labels": dict(WATCHED)}
        found = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": about, "spec": spec}
        return self.put(("ray.io", "rayjobs", namespace, name), found)

    def workload(
        self, owner: Json, *, name: str = "", boost: str = "", labels: Json | None = None
    ) -> Json:
        about = owner["metadata"]
        name = name or f"{owner['kind'].lower()}-{about['name']}"
        pods = template("python train.py --epochs 3", "registry/train:1", 4)
        found = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": name, "namespace": about["namespace"], "labels": labels or {},
                "annotations": {"kueue.x-k8s.io/priority-boost": boost} if boost else {},
                "ownerReferences": [{
                    "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": about["name"],
                    "uid": about["uid"], "controller": True,
                }],
            },
            "spec": {
                "queueName": "gpus",
                "podSets": [{"name": "main", "count": 1, "template": pods}],
            },
        }  # fmt: skip
        return self.put(("kueue.x-k8s.io", "workloads", about["namespace"], name), found)

    # -- pods --------------------------------------------------------------

    def pod(
        self, job: Json, node: str, *, name: str = "", phase: str = "Running",
        exit_code: int | None = None,
        reason: str = "Error", log: str = "", labels: Json | None = None, ended_s: float = 60.0,
        began_s: float = 600.0, again: bool = False,
    ) -> Json:  # fmt: skip
        """A pod of a job; with an `exit_code` its container has ended; `again`: it runs anew."""
        about = job["metadata"]
        namespace, name = about["namespace"], name or f"{about['name']}-{uuid.uuid4().hex[:5]}"
        key = {
            "Job": ("batch.kubernetes.io/controller-uid", about["uid"]),
            "PyTorchJob": ("training.kubeflow.org/job-name", about["name"]),
            "RayJob": ("ray.io/cluster", f"{about['name']}-cluster"),
        }.get(job["kind"], ("app", about["name"]))
        running = {"running": {"startedAt": stamp(began_s)}}
        container: Json = {
            "name": "train",
            "image": "i",
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "state": running,
        }
        if exit_code is not None:
            end = {"terminated": {
                "exitCode": exit_code, "reason": reason, "startedAt": stamp(began_s),
                "finishedAt": stamp(ended_s),
            }}  # fmt: skip
            container |= {"lastState": end, "restartCount": 1} if again else {"state": end}
        found = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name, "namespace": namespace, "labels": {key[0]: key[1], **(labels or {})},
                "creationTimestamp": stamp(began_s + 5.0),
            },
            "spec": {**template("python train.py", "i", 4)["spec"], "nodeName": node},
            "status": {
                "phase": phase, "startTime": stamp(began_s), "containerStatuses": [container],
            },
        }  # fmt: skip
        self.server.logs[namespace, name, "train", again] = log
        return self.put(("", "pods", namespace, name), found)

    def event(self, pod: Json, reason: str, message: str, kind: str = "Warning") -> Json:
        """What a kubelet says of a pod."""
        about = pod["metadata"]
        name = f"{about['name']}.{uuid.uuid4().hex[:12]}"
        found = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": about["namespace"]},
            "type": kind,
            "reason": reason,
            "message": message,
            "count": 2,
            "source": {"component": "kubelet"},
            "lastTimestamp": stamp(60.0),
            "involvedObject": {
                "kind": "Pod",
                **{key: about[key] for key in ("name", "namespace", "uid")},
            },
        }
        return self.put(("", "events", about["namespace"], name), found)

    def pods(self, namespace: str = "team-a") -> list[str]:
        return [k[3] for k, _ in self.store.select(lambda k, _: k[:3] == ("", "pods", namespace))]

    def budget(self, name: str, labels: Json, allowed: int, namespace: str = "team-a") -> None:
        about = {"name": name, "namespace": namespace}
        spec = {"minAvailable": 1, "selector": {"matchLabels": labels}}
        status = {
            "disruptionsAllowed": allowed,
            "currentHealthy": 1,
            "desiredHealthy": 1,
            "expectedPods": 1,
        }
        found = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": about,
            "spec": spec,
            "status": status,
        }
        self.put(("policy", "poddisruptionbudgets", namespace, name), found)

    def annotations(self, job: Json) -> Json:
        group, _, _ = job["apiVersion"].rpartition("/")
        about, plural = job["metadata"], f"{job['kind'].lower()}s"
        found = self.get(group, plural, about["namespace"], about["name"])
        return found["metadata"].get("annotations") or {}


def template(command: str, image: str, gpus: int) -> Json:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    container = {
        "name": "train",
        "image": image,
        "command": ["bash", "-c", command],
        "resources": resources,
    }
    return {
        "metadata": {"labels": {"app": "training"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
