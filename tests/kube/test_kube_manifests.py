"""The manifests of examples/kubernetes are what the published schemas allow, and grant no more."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_rights import Request, Rights
from api_schemas import check, resources
from kube_cluster import AGENT, MANIFESTS, manifests

from schedmate.base.reading import is_secret
from schedmate.cluster.bounds import Bounds, load_bounds
from schedmate.cluster.kubernetes.doctor import _rights
from schedmate.cluster.kubernetes.workloads import job_kinds
from schedmate.cluster.recovery.configuration import load_configuration

OVERLAYS = ("annotate", "recover")
FOLDERS = ("base", *OVERLAYS, "namespaced", "serve", "monitoring")
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


class Reviews:
    """The part of `Api` that asks whether a right is granted, answered by RBAC's rules."""

    def __init__(self, rights: Rights) -> None:
        self._rights = rights

    def create(self, _: str, body: dict[str, Any]) -> dict[str, Any]:
        asked = dict(body["spec"]["resourceAttributes"])
        sub = asked.pop("subresource", "")
        asked["resource"] += f"/{sub}" if sub else ""
        return {"status": {"allowed": self._rights.allow(AGENT, Request(**asked))}}


@pytest.mark.parametrize("folders", [("base",), ("base", "annotate"), ("base", *OVERLAYS)])
def test_doctor_names_each_right_that_is_taken_away(folders: tuple[str, ...]) -> None:
    section: dict[str, Any] = {"lease_namespace": "schedmate", "isolate": "recover" in folders}
    bounds = Bounds.model_validate(
        {
            "kubernetes": section,
            "annotate": {"where": "annotation" if "annotate" in folders else "off"},
        }
    )

    def missing(objects: list[dict[str, Any]]) -> list[str]:
        checks = _rights(bounds, Reviews(Rights(objects)))  # type: ignore[arg-type]
        return [check.fact for check in checks if check.status == "failed"]

    assert missing(manifests(*folders)) == []
    for taken in sorted(granted(*folders)):
        objects = manifests(*folders)
        for one in objects:
            one["rules"] = [
                {**rule, "apiGroups": [group], "resources": [resource], "verbs": [verb]}
                for rule in one.get("rules", ())
                for verb, group, resource in product(
                    rule["verbs"], rule["apiGroups"], rule["resources"]
                )
                if (verb, group, resource) != taken
            ]
        verb, group, resource = taken
        right = f"{verb} {resource}" + (f".{group}" if group else "")
        told = missing(objects)
        assert told, f"{right} is granted and not needed"
        assert all(right in fact for fact in told)


@pytest.mark.parametrize("folder", ["base", "serve"])
def test_a_pod_has_no_privileges_and_is_probed(folder: str) -> None:
    (deployment,) = [one for one in manifests(folder) if one["kind"] == "Deployment"]
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    (port,) = container["ports"]
    assert container["readinessProbe"]["httpGet"]["port"] == port["name"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_service_takes_its_token_as_it_is_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    (deployment,) = [one for one in manifests("serve") if one["kind"] == "Deployment"]
    spec = deployment["spec"]["template"]["spec"]
    (secret,) = [one["secret"] for one in spec["volumes"] if "secret" in one]
    user, group = (spec["securityContext"][name] for name in ("runAsUser", "runAsGroup"))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(os, "getegid", lambda: group)

    def mounted(mode: int, owner: int = 0, its: int = spec["securityContext"]["fsGroup"]) -> bool:
        return is_secret(os.stat_result((mode, 0, 0, 1, owner, its, 32, 0, 0, 0)))

    assert mounted(secret["defaultMode"])
    assert not any((mounted(0o460), mounted(0o444), mounted(0o440, owner=7)))
    assert not any((mounted(0o440, owner=user), mounted(0o440, its=100)))
    assert mounted(0o400, owner=user)
