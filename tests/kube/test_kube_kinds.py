"""Every kind of training job, by the published shape of its objects: as an object of the stand-in,
which the real CustomResourceDefinition allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from api_schemas import check, resources
from kube_cluster import ECC, THEIRS, WATCHED, XID, Cluster, template
from kube_files import AgentFiles
from test_kube_agent import be_the_agent

from schedmate.base.errors import SettingsError
from schedmate.cluster.bounds import load_bounds
from schedmate.cluster.kubernetes.workloads import Workload, job_kinds, job_outcome

Json = dict[str, Any]
COMMAND = "python train.py --model resnet18 --epochs 3"
TRAINS = template(COMMAND, "registry/train:1", 4)
SERVES = template("/usr/sbin/sshd -De", "registry/train:1", 4)
LAUNCHES = template(COMMAND, "registry/train:1", 0)
KUBEFLOW = "training.kubeflow.org/job-name"

SPECS: dict[str, tuple[Json, dict[str, str], tuple[int, int]]] = {
    "job": (
        {"parallelism": 2, "template": TRAINS}, {}, (8, 2),
    ),
    "pytorchjob": (
        {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": TRAINS},
                                 "Worker": {"replicas": 2, "template": TRAINS}}},
        {KUBEFLOW: "train"}, (12, 3),
    ),
    "tfjob": (
        {"tfReplicaSpecs": {"PS": {"replicas": 2, "template": LAUNCHES},
                            "Worker": {"replicas": 3, "template": TRAINS}}},
        {KUBEFLOW: "train", "training.kubeflow.org/replica-type": "worker"}, (12, 3),
    ),
    "mpijob": (
        {"mpiReplicaSpecs": {"Launcher": {"replicas": 1, "template": LAUNCHES},
                             "Worker": {"replicas": 4, "template": SERVES}}},
        {KUBEFLOW: "train", "training.kubeflow.org/job-role": "worker"}, (16, 4),
    ),
    "jobset": (
        {"replicatedJobs": [
            {"name": "driver", "replicas": 1, "template": {"spec": {"template": LAUNCHES}}},
            {"name": "workers", "replicas": 2,
             "template": {"spec": {"parallelism": 4, "completions": 4, "template": TRAINS}}},
        ]},
        {"jobset.sigs.k8s.io/jobset-name": "train"}, (32, 8),
    ),
    "leaderworkerset": (
        {"replicas": 2, "leaderWorkerTemplate": {"size": 4, "workerTemplate": TRAINS,
                                                 "leaderTemplate": LAUNCHES}},
        {"leaderworkerset.sigs.k8s.io/name": "train"}, (24, 6),
    ),
    "volcanojob": (
        {"minAvailable": 2, "queue": "gpus",
         "tasks": [{"name": "worker", "replicas": 2, "template": TRAINS}]},
        {"volcano.sh/job-name": "train"}, (8, 2),
    ),
}  # fmt: skip
"""By kind: its specification, labels of its pods, and the GPUs and nodes that it asks for."""


def put(cluster: Cluster, kind: str, **more: Any) -> Json:
    """A watched job of a kind, as its schema allows it."""
    row = job_kinds()[kind]
    found = {
        "apiVersion": f"{row.group}/{row.version}",
        "kind": row.kind,
        "metadata": {
            "name": "train", "namespace": "team-a", "labels": dict(WATCHED),
            "annotations": {"schedmate.io/code": "train"},
        },
        "spec": SPECS[kind][0],
        **more,
    }  # fmt: skip
    check(resources()[row.group, row.version, row.plural], found)
    return cluster.put((row.group, row.plural, "team-a", "train"), found)


@pytest.mark.parametrize("kind", SPECS)
def test_a_kind_is_estimated_annotated_ordered_and_mended(
    kind: str, cluster: Cluster, files: AgentFiles
) -> None:
    be_the_agent(cluster.server, files, "base", "annotate", "recover")
    order = {
        "allowed": True, "lowest": -50, "highest": 50, "levels": 11, "shortest": 10,
        "longest": 60, "ageing": "1000d", "every": 0.001,
    }  # fmt: skip
    files.allow(
        recover=True, automatic=("isolate", "restart", "notify"),
        annotate={"where": "annotation"}, order=order, kubernetes={"lease_namespace": "schedmate"},
    )  # fmt: skip
    for name in ("gpu-1", "gpu-2", "gpu-3"):
        cluster.node(name, taints=[dict(THEIRS)], broken=XID if name == "gpu-2" else "")
    job = put(cluster, kind)
    workload = cluster.workload(job)
    files.begin_an_hour_ago()
    job_id = f"team-a/{kind}/train"
    with files.opened() as setup:
        first = setup.agent.once()
        assert first.problems == []
        (estimated,) = first.estimated
        assert estimated.job == job_id
        spec = setup.adapter.describe([job_id])[job_id].spec
        assert (spec.launch.gpus, spec.launch.nodes) == SPECS[kind][2]
        assert spec.command == f"bash -c '{COMMAND}'"
        row = job_kinds()[kind]
        noted = cluster.get(row.group, row.plural, "team-a", "train")["metadata"]["annotations"]
        assert noted["schedmate.io/estimate"].startswith("schedmate: about ")
        boost = cluster.annotations(workload)["kueue.x-k8s.io/priority-boost"]
        assert boost == "-50"  # each takes longer than the longest of the bounds
        # it begins, and fails on a node that says that it is broken
        labels = SPECS[kind][1] or {"batch.kubernetes.io/controller-uid": job["metadata"]["uid"]}
        failed = {"phase": "Failed", "exit_code": 1, "log": ECC}
        cluster.pod(job, "gpu-2", name="train-a", labels=labels, **failed)
        cluster.pod(job, "gpu-2", name="train-b", labels=labels)
        cluster.pod(job, "gpu-1", name="train-c", labels=labels)
        found = []
        for _ in range(60):
            report = setup.agent.once()
            found += report.failed
            if not {"train-b"} & set(cluster.pods()):
                break
            setup.adapter.wait(0.2)
    (failure,) = found
    assert failure.job == job_id
    assert failure.diagnosis is not None
    assert failure.diagnosis.error_name == "ECC Error"
    assert cluster.taints("gpu-2")[-1]["key"] == "schedmate.io/isolated"
    assert cluster.pods() == ["train-a", "train-c"]


@pytest.mark.parametrize(
    ("kind", "status", "state"),
    [
        ("jobset", {"conditions": [{"type": "Completed", "status": "True"}]}, "COMPLETED"),
        ("jobset", {"conditions": [{"type": "Failed", "status": "True"}]}, "FAILED"),
        ("jobset", {"conditions": [{"type": "Suspended", "status": "True"}]}, None),
        ("mpijob", {"conditions": [{"type": "Succeeded", "status": "True"}]}, "COMPLETED"),
        ("tfjob", {"conditions": [{"type": "Failed", "status": "True"}]}, "FAILED"),
        ("volcanojob", {"state": {"phase": "Completed"}}, "COMPLETED"),
        ("volcanojob", {"state": {"phase": "Aborted"}}, "CANCELLED"),
        ("volcanojob", {"state": {"phase": "Restarting"}}, None),
        ("volcanojob", {"state": {"phase": "a phase of next year"}}, None),
        ("leaderworkerset", {"conditions": [{"type": "Available", "status": "True"}]}, None),
    ],
)
def test_how_a_kind_ends(kind: str, status: Json, state: str | None) -> None:
    found = job_outcome(Workload(job_kinds()[kind], {"metadata": {}, "status": status}, ()))
    assert (found[0] if found else None) == state


def test_the_launcher_of_mpi_tells_the_progress(cluster: Cluster, files: AgentFiles) -> None:
    job = put(cluster, "mpijob")
    for name, role in (("a-worker", "worker"), ("z-launcher", "launcher")):
        labels = {KUBEFLOW: "train", "training.kubeflow.org/job-role": role}
        cluster.pod(job, "gpu-1", name=name, labels=labels, log="step 1\n")
    with files.opened() as setup:
        (live,) = setup.adapter.jobs()
        path = setup.adapter.log_path(live, "", setup.adapter.describe([live.id])[live.id].spec)
    assert path is not None
    assert [one.name for one in path.iterdir()] == ["z-launcher.train.log"]


def test_a_kind_that_no_row_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bounds.yaml"
    path.write_text("kubernetes: {kinds: [jobset, sparkjob]}")
    path.chmod(0o600)
    with pytest.raises(SettingsError, match="sparkjob"):
        load_bounds(path)
    path.write_text("kubernetes: {kinds: [jobset]}")
    assert load_bounds(path).kubernetes.kinds == ("jobset",)
    assert set(load_bounds(None).kubernetes.kinds) == set(job_kinds())
