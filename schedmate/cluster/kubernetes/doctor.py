"""Checks a Kubernetes cluster: may schedmate do on it what its bounds ask for?

Rights are checked by the API server (SelfSubjectAccessReview), isolation by a dry run there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from schedmate.base.errors import SchedmateError
from schedmate.base.terminal import counted
from schedmate.cluster import Check
from schedmate.cluster.bounds import Bounds
from schedmate.cluster.kubernetes.api import (
    JSON_PATCH,
    Api,
    own_namespace,
    text_at,
)
from schedmate.cluster.kubernetes.connection import Json, KubernetesError
from schedmate.cluster.kubernetes.nodes import isolation_patch, our_mark, slim_node
from schedmate.cluster.kubernetes.workloads import OPT_IN, job_kinds, path_of

Right = tuple[str, str, str]
"""Verb, group, resource with its subresource."""


def kubernetes_checks(bounds: Bounds, api: Api) -> Iterator[Check]:
    """Every check, in the order in which a fault would be looked for."""
    version = api.get("/version")
    yield Check("API server", "ok", f"{api.server}, {version.get('gitVersion')}")
    yield from _rights(bounds, api)
    yield from _kinds(bounds, api)
    yield from _code(bounds)
    if bounds.kubernetes.isolate:
        yield from _isolation(api)


def _rights(bounds: Bounds, api: Api) -> Iterator[Check]:
    section = bounds.kubernetes
    kinds = [job_kinds()[name] for name in section.kinds]
    looks = ("get", "list", "watch")
    modes: dict[str, list[Right]] = {
        "look": [
            *((verb, kind.group, kind.plural) for kind in kinds for verb in looks),
            *((verb, "", "pods") for verb in looks),
            ("get", "", "pods/log"),
            ("list", "", "events"),
        ]
    }
    patches = [(verb, kind.group, kind.plural) for kind in kinds for verb in ("get", "patch")]
    if bounds.annotate.where == "annotation":
        modes["annotate"] = patches
    if bounds.order.allowed:
        group = job_kinds()["workload"].group
        modes["order"] = [(verb, group, "workloads") for verb in ("get", "list", "patch")]
    if section.isolate:
        modes["recover"] = [*patches, ("create", "", "pods/eviction")]
    for mode, rights in modes.items():
        yield from _right(api, mode, rights, section.namespaces or ("",))
    if section.isolate or not section.namespaces:
        verbs = ("get", "list", "patch") if section.isolate else ("get", "list")
        yield from _right(api, "nodes", [(verb, "", "nodes") for verb in verbs], ("",))
    place = section.lease_namespace or own_namespace()
    verbs = ("create", "get", "update")
    lease: list[Right] = [(verb, "coordination.k8s.io", "leases") for verb in verbs]
    yield from _right(api, "lease", lease, (place,), name=section.lease)


def _right(
    api: Api, mode: str, rights: list[Right], namespaces: tuple[str, ...], name: str = ""
) -> Iterator[Check]:
    missing = [
        f"{verb} {resource}" + (f".{group}" if group else "") + (f" in {place}" if place else "")
        for place in namespaces
        for verb, group, resource in dict.fromkeys(rights)
        if not _allowed(api, verb, group, resource, place, name)
    ]
    what = (
        f"right to {mode}" if mode in ("look", "annotate", "order", "recover") else f"right: {mode}"
    )
    if missing:
        fix = "apply the overlay of examples/kubernetes that the bounds need"
        shown = ", ".join(missing[:4]) + (
            f" and {len(missing) - 4} more" if len(missing) > 4 else ""
        )
        yield Check(what, "failed", f"not allowed: {shown}", fix)
    else:
        yield Check(what, "ok", f"{counted(len(dict.fromkeys(rights)), 'right')} granted")


def _allowed(api: Api, verb: str, group: str, resource: str, place: str, name: str) -> bool:
    plural, _, sub = resource.partition("/")
    asked = {"verb": verb, "group": group, "resource": plural, "namespace": place, "name": name}
    body: Json = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked | ({"subresource": sub} if sub else {})},
    }
    answer = api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    return bool((answer.get("status") or {}).get("allowed"))


def _kinds(bounds: Bounds, api: Api) -> Iterator[Check]:
    counts: dict[str, int] = {}
    absent = []
    for name in bounds.kubernetes.kinds:
        for place in bounds.kubernetes.namespaces or (None,):
            try:
                items, _ = api.list(job_kinds()[name].path(place), labelSelector=f"{OPT_IN}=true")
            except KubernetesError as error:
                if error.code == 403:
                    continue  # told above
                if error.code != 404:
                    raise
                absent.append(job_kinds()[name].kind)
                continue
            counts[name] = counts.get(name, 0) + len(items)
    summary = ", ".join(
        f"{count} {job_kinds()[name].kind}" for name, count in counts.items() if count
    )
    if absent:
        yield Check("kinds", "ok", f"not installed here: {', '.join(dict.fromkeys(absent))}")
    if summary:
        yield Check("jobs", "ok", f"{summary} carry the label {OPT_IN}=true")
    else:
        fix = f"kubectl label job NAME {OPT_IN}=true"
        yield Check("jobs", "warning", f"nothing carries the label {OPT_IN}=true", fix)


def _code(bounds: Bounds) -> Iterator[Check]:
    code = bounds.kubernetes.code
    folders = [
        *(root for root in code.roots if "{namespace}" not in str(root)),
        *(one.path for one in code.images),
    ]
    if not code.roots and not code.images:
        fix = (
            "mount the code, and name it in the bounds (kubernetes: code), or nothing is estimated"
        )
        yield Check("code", "warning", "the bounds say nowhere where jobs' code is", fix)
        return
    unread = [str(one) for one in folders if not os.access(one, os.R_OK | os.X_OK)]
    if unread:
        fix = "mount them, readable by this user"
        yield Check("code", "failed", f"cannot be read: {', '.join(unread[:4])}", fix)
    else:
        yield Check(
            "code", "ok", f"{counted(len(code.roots) + len(code.images), 'place')} to look at"
        )


def _isolation(api: Api) -> Iterator[Check]:
    """Whether a node could be tainted, tried as a dry run that the server throws away."""
    try:
        nodes, _ = api.list(path_of("", "v1", "nodes", None), slim=slim_node)
        free = [node for node in nodes if not our_mark(node)]
        if not free:
            yield Check("isolation", "warning", "no node without our taint: not tested")
            return
        name = text_at(free[0], "metadata.name")
        path = path_of("", "v1", "nodes", None, name)
        api.patch(path, isolation_patch(free[0], "doctor-dry-run"), JSON_PATCH, dry_run=True)
    except SchedmateError as error:
        fix = "apply examples/kubernetes/recover; look at admission policies for nodes"
        yield Check("isolation", "failed", str(error), fix)
    else:
        fact = f"{counted(len(nodes), 'node')}; {name} could be tainted (dry run)"
        yield Check("isolation", "ok", fact)
