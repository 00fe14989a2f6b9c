"""The manifests of examples/kubernetes are what the published schemas allow, and grant no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from api_rights import Request, Rights
from api_schemas import check, resources
from kube_cluster import AGENT, MANIFESTS, manifests

from schedmate.cluster.bounds import load_bounds
from schedmate.cluster.kubernetes.workloads import job_kinds
from schedmate.cluster.recovery.configuration import load_configuration

FOLDERS = ("base", "annotate", "recover", "namespaced", "monitoring")
EVERY = [
    pytest.param(one, id=f"{folder}-{one['kind']}-{one['metadata']['name']}")
    for folder in FOLDERS
    for one in manifests(folder)
]
MODELS = {
    "Deployment": "V1Deployment",
    "NetworkPolicy": "V1NetworkPolicy",
    "PersistentVolumeClaim": "V1PersistentVolumeClaim",
    "Service": "V1Service",
}
"""Kinds that are checked by the official client's models, which are made of the same document."""
WRITES = ("create", "update", "patch", "delete", "deletecollection", "escalate", "bind", "*")


@pytest.mark.parametrize("manifest", EVERY)
def test_a_manifest_is_what_its_schema_allows(manifest: dict[str, Any]) -> None:
    if manifest["kind"] in MODELS:
        from kubernetes import client

        model = getattr(client, MODELS[manifest["kind"]])
        read = client.ApiClient().sanitize_for_serialization(model.from_dict(manifest))
        assert read == manifest  # a field that it does not know would be missing
        return
    group, _, version = manifest["apiVersion"].rpartition("/")
    (resource,) = [
        one
        for one in resources().values()
        if (one.group, one.version, one.kind) == (group, version, manifest["kind"])
    ]
    check(resource, manifest)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_kustomization_names_files_that_are_there(folder: str) -> None:
    found = yaml.safe_load((MANIFESTS / folder / "kustomization.yaml").read_text())
    assert found["kind"] == "Kustomization"
    named = set(found["resources"])
    for generator in found.get("configMapGenerator", ()):
        named |= set(generator["files"])
    for name in named:
        assert (MANIFESTS / folder / name).exists(), name
    there = {path.name for path in (MANIFESTS / folder).glob("*.yaml")} - {"kustomization.yaml"}
    assert there == {name for name in named if not name.startswith("..")}


@pytest.mark.parametrize("folder", ["base", "annotate", "recover"])
def test_the_bounds_of_an_overlay_are_read_and_ask_for_no_more(folder: str, tmp_path: Path) -> None:
    for path in (MANIFESTS / folder).glob("*.yaml"):
        (tmp_path / path.name).write_text(path.read_text())
        (tmp_path / path.name).chmod(0o644)
    bounds = load_bounds(tmp_path / "bounds.yaml")
    assert (bounds.annotate.where == "annotation") == (folder != "base")
    assert bounds.kubernetes.isolate == (folder == "recover")
    assert (bounds.recovery is not None) == (folder == "recover")
    if bounds.recovery is not None:
        found = load_configuration(bounds.recovery)
        assert found.automatic == {"notify"}
        assert found.cluster == bounds.kubernetes.cluster


def granted(*folders: str) -> set[tuple[str, str, str]]:
    """Verb, group and resource of every rule."""
    return {
        (verb, group, resource)
        for one in manifests(*folders)
        if one["kind"] in ("Role", "ClusterRole")
        for rule in one["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_who_looks_may_change_nothing_but_its_lease() -> None:
    written = {one for one in granted("base") if one[0] in WRITES}
    lease = ("coordination.k8s.io", "leases")
    assert written == {("create", *lease), ("update", *lease)}


def test_each_mode_adds_what_it_needs_and_no_more() -> None:
    patches = {("patch", kind.group, kind.plural) for kind in job_kinds().values()}
    assert granted("annotate") == patches
    assert granted("recover") == {("patch", "", "nodes"), ("create", "", "pods/eviction")}
    every = granted(*FOLDERS)
    assert not {one for one in every if "*" in one}
    assert not {one for one in every if one[2] in ("secrets", "configmaps", "pods/exec")}
    assert not {one for one in every if one[0].startswith("delete")}


def test_every_kind_that_is_watched_may_be() -> None:
    rights = Rights(manifests("base"))
    for kind in job_kinds().values():
        for verb in ("list", "watch"):
            assert rights.allow(AGENT, Request(verb, kind.group, kind.plural, "", "")), kind.name
    assert not rights.allow("schedmate/somebody-else", Request("list", "", "pods", "", ""))
    its = Request("update", "coordination.k8s.io", "leases", "schedmate", "schedmate-agent")
    assert rights.allow(AGENT, its)
    assert not rights.allow(AGENT, its._replace(name="kube-controller-manager"))
    assert not rights.allow(AGENT, its._replace(namespace="kube-system"))


def test_the_agents_pod_has_no_privileges() -> None:
    (deployment,) = [one for one in manifests("base") if one["kind"] == "Deployment"]
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
