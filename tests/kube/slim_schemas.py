"""Makes `schemas/` from the published documents: `slim_schemas.py FOLDER`.

FOLDER holds, as they are published: swagger.json (Kubernetes' OpenAPI document) and any number of
CustomResourceDefinitions as YAML or JSON. What is kept is all that checks an object; descriptions
are dropped, and pod templates inside of custom resources are those of the OpenAPI document.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).with_name("schemas")
PATHS = re.compile(
    r"/api/(v1/((namespaces/\{namespace\}/)?"
    r"(configmaps|events|pods|services|serviceaccounts|persistentvolumeclaims|secrets)"
    r"(/\{name\}(/(status|log|eviction))?)?|namespaces(/\{name\})?|nodes(/\{name\}(/status)?)?))?"
    r"|/apis/(|apps/v1/(namespaces/\{namespace\}/)?deployments(/\{name\})?"
    r"|authorization.k8s.io/v1/selfsubjectaccessreviews"
    r"|batch/v1/(namespaces/\{namespace\}/)?jobs(/\{name\}(/status)?)?"
    r"|coordination.k8s.io/v1/(namespaces/\{namespace\}/)?leases(/\{name\})?"
    r"|networking.k8s.io/v1/(namespaces/\{namespace\}/)?networkpolicies(/\{name\})?"
    r"|policy/v1/(namespaces/\{namespace\}/)?poddisruptionbudgets(/\{name\}(/status)?)?"
    r"|rbac.authorization.k8s.io/v1/(namespaces/\{namespace\}/)?"
    r"(roles|rolebindings|clusterroles|clusterrolebindings)(/\{name\})?)|/version/"
)
POD_TEMPLATE = "io.k8s.api.core.v1.PodTemplateSpec"
VERBS = ("get", "post", "put", "patch", "delete")


def bare(value: Any, *, inside: str = "") -> Any:
    """Without descriptions; `inside` the mapping of that name keys are names of fields."""
    if isinstance(value, dict):
        named = inside in ("properties", "definitions")
        return {
            key: bare(one, inside="" if named else key)
            for key, one in value.items()
            if named or key not in ("description", "x-kubernetes-validations", "default")
        }
    return [bare(one) for one in value] if isinstance(value, list) else value


def with_pod_templates(schema: Any) -> Any:
    """A custom resource's schema in which pod templates are references."""
    if isinstance(schema, list):
        return [with_pod_templates(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    spec = schema.get("properties", {}).get("spec", {})
    if "containers" in spec.get("properties", {}) and "nodeSelector" in spec["properties"]:
        return {"$ref": f"#/definitions/{POD_TEMPLATE}"}
    return {key: with_pod_templates(one) for key, one in schema.items()}


def references(value: Any) -> set[str]:
    """The definitions that a document refers to."""
    return set(re.findall(r'"#/definitions/([^"]+)"', json.dumps(value)))


def slim_openapi(document: dict[str, Any]) -> dict[str, Any]:
    paths = {
        path: {verb: {"x-kubernetes-group-version-kind": item[verb][gvk]}
               for verb in VERBS if verb in item
               for gvk in ("x-kubernetes-group-version-kind",) if gvk in item[verb]}
        for path, item in document["paths"].items()
        if PATHS.fullmatch(path)
    }  # fmt: skip
    kinds = {
        tuple(one["x-kubernetes-group-version-kind"].values())
        for item in paths.values()
        for one in item.values()
    }
    everything = bare(document["definitions"], inside="definitions")
    wanted = {POD_TEMPLATE} | {
        name
        for name, one in everything.items()
        for gvk in one.get("x-kubernetes-group-version-kind", ())
        if tuple(gvk.values()) in kinds
    }
    kept: dict[str, Any] = {}
    while wanted:
        kept |= {name: everything[name] for name in wanted}
        wanted = references([kept[name] for name in wanted]) - set(kept)
    return {"info": document["info"], "paths": paths, "definitions": dict(sorted(kept.items()))}


def slim_crd(document: dict[str, Any]) -> dict[str, Any]:
    spec = document["spec"]
    versions = [
        {
            **{key: one[key] for key in ("name", "served", "storage")},
            "subresources": one.get("subresources", {}),
            "schema": {
                "openAPIV3Schema": with_pod_templates(bare(one["schema"]["openAPIV3Schema"]))
            },
        }
        for one in spec["versions"]
        if one["served"]
    ]
    return {
        "metadata": {"name": document["metadata"]["name"]},
        "spec": {**{key: spec[key] for key in ("group", "scope", "names")}, "versions": versions},
    }


def write(name: str, document: Any) -> None:
    text = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
    (HERE / f"{name}.json.gz").write_bytes(gzip.compress(text, mtime=0))


def main(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        if path.name == "swagger.json":
            write("openapi", slim_openapi(json.loads(path.read_text())))
        elif path.suffix in (".yaml", ".json"):
            document = yaml.safe_load(path.read_text())
            write(document["metadata"]["name"], slim_crd(document))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
