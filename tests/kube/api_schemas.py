"""The published schemas in `schemas/`: which resources there are, what their objects may say."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

HERE = Path(__file__).with_name("schemas")
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_LIST = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>v\w+)"
    r"/(?P<place>namespaces/\{namespace\}/)?(?P<plural>[a-z]+)"
)


@dataclass(frozen=True)
class Resource:
    """One kind of objects."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    subresources: frozenset[str]
    custom: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}".lstrip("/")


class WrongError(ValueError):
    """An object that its schema does not allow."""


def published(name: str) -> Any:
    return json.loads(gzip.decompress((HERE / f"{name}.json.gz").read_bytes()))


def strict(schema: Any) -> Any:
    """A schema that refuses unknown fields, and takes null for what Go leaves out."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string", "null"]}
    found = {
        key: {name: strict(one) for name, one in value.items()}
        if key in ("properties", "definitions")
        else strict(value)
        for key, value in schema.items()
        if key != "format"
    }
    if "properties" in found and "additionalProperties" not in found:
        found["additionalProperties"] = bool(found.get("x-kubernetes-preserve-unknown-fields"))
    if found.get("type") in ("array", "object", "string"):
        found["type"] = [found["type"], "null"]
        if "enum" in found:
            found["enum"] = [*found["enum"], None]
    return found


@cache
def openapi() -> Any:
    return published("openapi")


@cache
def definitions() -> Any:
    found = strict(openapi()["definitions"])
    found[INT_OR_STRING] = {"type": ["integer", "string", "null"]}
    for name in ("io.k8s.apimachinery.pkg.api.resource.Quantity",):
        found[name] = {"type": ["integer", "number", "string"]}
    return found


@cache
def resources() -> dict[tuple[str, str, str], Resource]:
    """All resources, by group, version and plural."""
    found: dict[tuple[str, str, str], Resource] = {}
    paths = openapi()["paths"]
    for path, item in paths.items():
        match = _LIST.fullmatch(path.rstrip("/"))
        if match is None or "post" not in item:
            continue
        group, version, plural = match["group"] or "", match["version"], match["plural"]
        subresources = frozenset(
            other.removeprefix(f"{path}/{{name}}/")
            for other in paths
            if other.startswith(f"{path}/{{name}}/")
        )
        kind = item["post"]["x-kubernetes-group-version-kind"]["kind"]
        found[group, version, plural] = Resource(
            group, version, plural, kind, bool(match["place"]), subresources, False
        )
    for file in sorted(HERE.glob("*.json.gz")):
        if file.name == "openapi.json.gz":
            continue
        spec = published(file.name.removesuffix(".json.gz"))["spec"]
        for version in spec["versions"]:
            key = spec["group"], version["name"], spec["names"]["plural"]
            subresources = frozenset(version["subresources"])
            namespaced = spec["scope"] == "Namespaced"
            found[key] = Resource(*key, spec["names"]["kind"], namespaced, subresources, True)
    return found


@cache
def schema_of(resource: Resource) -> Any:
    """The published schema, for patches; `$ref`s point into `openapi()`."""
    if resource.custom:
        spec = published(f"{resource.plural}.{resource.group}")["spec"]
        version = next(one for one in spec["versions"] if one["name"] == resource.version)
        schema = version["schema"]["openAPIV3Schema"]
        meta = {"$ref": f"#/definitions/{OBJECT_META}"}
        return {**schema, "properties": {**schema["properties"], "metadata": meta}}
    for name, one in openapi()["definitions"].items():
        for gvk in one.get("x-kubernetes-group-version-kind", ()):
            if (gvk["group"], gvk["version"], gvk["kind"]) == (
                resource.group, resource.version, resource.kind,
            ):  # fmt: skip
                return {"$ref": f"#/definitions/{name}"}
    raise KeyError(resource)


def resolved(schema: Any) -> Any:
    """A schema, or the one that it refers to."""
    while "$ref" in schema:
        schema = openapi()["definitions"][schema["$ref"].rpartition("/")[2]]
    return schema


@cache
def _validator(resource: Resource) -> jsonschema.Draft7Validator:
    schema = strict(schema_of(resource))
    known = {"definitions": definitions()}
    whole = {"allOf": [schema], **known} if "$ref" in schema else {**schema, **known}
    return jsonschema.Draft7Validator(whole)


def check(resource: Resource, found: Any) -> None:
    """Raise `WrongError` for an object that the API server would refuse."""
    errors = sorted(_validator(resource).iter_errors(found), key=lambda one: len(one.path))
    if errors:
        place = ".".join(str(part) for part in errors[0].path)
        raise WrongError(f"{place or resource.kind}: {errors[0].message[:300]}")
    expected = (resource.api_version, resource.kind)
    if (found.get("apiVersion"), found.get("kind")) != expected:
        raise WrongError(f"this is no {' '.join(expected)}")


def merged(schema: Any, old: Any, new: Any) -> Any:
    """A strategic merge patch by the schema's own rules: lists are atomic unless it names a key."""
    schema = resolved(schema)
    if isinstance(new, dict) and isinstance(old, dict):
        found = dict(old)
        properties = schema.get("properties", {})
        for key, value in new.items():
            if key.startswith("$"):
                continue
            if value is None:
                found.pop(key, None)
                continue
            inner = properties.get(key, schema.get("additionalProperties") or {})
            inner = inner if isinstance(inner, dict) else {}
            found[key] = merged(inner, found.get(key), value)
        return found
    key = schema.get("x-kubernetes-patch-merge-key")
    if isinstance(new, list) and key and schema.get("x-kubernetes-patch-strategy") == "merge":
        items = {one[key]: one for one in old or ()}
        for one in new:
            if one.get("$patch") == "delete":
                items.pop(one[key], None)
            elif key in one:
                items[one[key]] = merged(schema["items"], items.get(one[key], {}), one)
        return list(items.values())
    return new
