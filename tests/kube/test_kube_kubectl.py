"""kubectl, a client that is not ours, on the same stand-in: what one writes the other reads."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from api_rights import Rights
from api_server import ApiServer
from kube_cluster import AGENT, MANIFESTS, THEIRS, Cluster, manifests
from kube_files import AgentFiles

from schedmate.cluster.actions import Drain, Resume
from schedmate.cluster.bounds import KubernetesBounds
from schedmate.cluster.exports import read_snapshot
from schedmate.cluster.kubernetes.adapter import KubernetesAdapter
from schedmate.cluster.kubernetes.api import Api, connect

pytestmark = pytest.mark.live


class Kubectl:
    def __init__(self, folder: Path) -> None:
        self.words = [
            *("kubectl", "--kubeconfig", str(folder / "kubeconfig")),
            *("--cache-dir", str(folder / "cache"), "--request-timeout", "30s"),
        ]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.words, *words], capture_output=True, text=True, timeout=60, check=False
        )

    def __call__(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def kubectl(files: AgentFiles) -> Kubectl:
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl")
    return Kubectl(files.folder)


@pytest.fixture
def adapter(files: AgentFiles) -> KubernetesAdapter:
    api = Api(connect(str(files.folder / "kubeconfig")), qps=1000)
    return KubernetesAdapter(api, KubernetesBounds(isolate=True), files.folder / "logs")


def test_taints_of_both_stay(
    kubectl: Kubectl, adapter: KubernetesAdapter, cluster: Cluster
) -> None:
    cluster.node("gpu-1", taints=[dict(THEIRS)])
    kubectl("taint", "nodes", "gpu-1", "team=a:NoSchedule")
    drain = Drain(node="gpu-1", mark="ecc-error-0123456789ab")
    assert adapter.act(drain, key="k", timeout_s=30).outcome == "done"
    keys = {one["key"] for one in cluster.taints("gpu-1")}
    assert keys == {THEIRS["key"], "team", "schedmate.io/isolated"}
    kubectl("taint", "nodes", "gpu-1", "team-")
    assert adapter.probe(drain).state == "done"
    # an administrator may take it away by hand: then there is nothing to take back
    kubectl("taint", "nodes", "gpu-1", "schedmate.io/isolated-")
    assert adapter.probe(Resume(node="gpu-1", mark=drain.mark)).state == "moot"
    kubectl("cordon", "gpu-1")
    assert adapter.probe(drain).state == "moot"


def test_a_job_that_is_labelled_by_hand_is_seen(
    kubectl: Kubectl, cluster: Cluster, files: AgentFiles
) -> None:
    cluster.job("train", labels={})
    with files.opened() as setup:
        assert setup.adapter.jobs() == []
        kubectl("label", "job", "train", "-n", "team-a", "schedmate.io/watch=true")
        kubectl("annotate", "job", "train", "-n", "team-a", "schedmate.io/code=train")
        setup.adapter.wait(10.0)
        seen = {one.id for one in setup.adapter.jobs()}
    assert seen == {"team-a/job/train"}


def test_the_manifests_are_applied_and_grant_what_they_say(
    kubectl: Kubectl, server: ApiServer, files: AgentFiles
) -> None:
    for one in manifests("base", "annotate", "recover"):
        if one["kind"] in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"):
            path = files.folder / "one.json"
            path.write_text(json.dumps(one))
            kubectl("apply", "--server-side", "--validate=false", "-f", str(path))
    kept = [
        {**one, "kind": kind}
        for kind, plural in (
            ("ClusterRole", "clusterroles"), ("ClusterRoleBinding", "clusterrolebindings"),
            ("Role", "roles"), ("RoleBinding", "rolebindings"),
        )
        for _, one in server.store.select(lambda key, _, plural=plural: key[1] == plural)
    ]  # fmt: skip
    server.rights = Rights(kept)
    as_agent = ("--as", AGENT)
    assert "No resources found" in kubectl.run("get", "pods", "-n", "team-a", *as_agent).stderr
    for words in (("get", "secrets", "-A"), ("delete", "pod", "train-a", "-n", "team-a")):
        assert "forbidden" in kubectl.run(*words, *as_agent).stderr


ON_OTHERS = ("annotate", "recover")
"""Overlays of overlays, which kustomize can build since the one within kubectl 1.21."""


def test_kustomize_builds_the_overlays(kubectl: Kubectl) -> None:
    version = json.loads(kubectl("version", "--client", "-o", "json"))["clientVersion"]
    current = int(version["minor"].rstrip("+")) >= 21
    folders = ["base", "namespaced", "serve", "monitoring", *(ON_OTHERS if current else ())]
    built = {folder: kubectl("kustomize", str(MANIFESTS / folder)) for folder in folders}
    assert all("schedmate" in text for text in built.values())
    if current:
        assert built["recover"].count("isolate: true") == 1
        assert "kind: Deployment" in built["recover"]


def test_what_kubectl_exports_is_a_fleet(
    kubectl: Kubectl, cluster: Cluster, tmp_path: Path
) -> None:
    for name in ("gpu-1", "gpu-2"):
        cluster.node(name)
        cluster.change(
            ("", "nodes", "", name),
            lambda node: node["status"]["allocatable"].update(memory="64Gi"),
        )
    job = cluster.job("train")
    cluster.pod(job, "gpu-1", name="train-a")
    path = tmp_path / "cluster.json"
    path.write_text(kubectl("get", "nodes,pods", "-A", "-o", "json"))
    found = read_snapshot(path)
    assert len(found.nodes) == 2
    assert len(found.tasks) == 1
