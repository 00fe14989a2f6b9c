"""What clients ask an API server first: versions, groups and resources."""

from __future__ import annotations

import re
from typing import Any

from api_schemas import resources


def discovery(path: str) -> Any:
    """The answer, or None for any other path."""
    versions = sorted({(one.group, one.version) for one in resources().values()})
    if path.rstrip("/") == "/version":
        return {
            "major": "1",
            "minor": "36",
            "gitVersion": "v1.36.0-stand-in",
            "gitCommit": "",
            "gitTreeState": "",
            "buildDate": "",
            "goVersion": "",
            "compiler": "",
            "platform": "linux/amd64",
        }
    if path.rstrip("/") == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path.rstrip("/") == "/apis":
        groups = []
        for group in sorted({one for one, _ in versions if one}):
            mine = [{"groupVersion": f"{g}/{v}", "version": v} for g, v in versions if g == group]
            groups.append({"name": group, "versions": mine, "preferredVersion": mine[-1]})
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    match = re.fullmatch(r"/(?:api/(v1)|apis/([^/]+)/([^/]+))/?", path)
    if match is None:
        return None
    group, version = match[2] or "", match[1] or match[3]
    found = [one for one in resources().values() if (one.group, one.version) == (group, version)]
    if not found:
        return None
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    listed: list[dict[str, Any]] = []
    for one in found:
        listed.append(
            {
                "name": one.plural,
                "singularName": one.kind.lower(),
                "namespaced": one.namespaced,
                "kind": one.kind,
                "verbs": verbs,
            }
        )
        for sub in sorted(one.subresources):
            entry = {
                "name": f"{one.plural}/{sub}",
                "singularName": "",
                "namespaced": one.namespaced,
                "kind": one.kind,
                "verbs": ["create", "get", "patch", "update"],
            }
            listed.append(
                entry
                | (
                    {"kind": "Eviction", "group": "policy", "version": "v1"}
                    if sub == "eviction"
                    else {}
                )
            )
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}".lstrip("/"),
        "resources": listed,
    }
