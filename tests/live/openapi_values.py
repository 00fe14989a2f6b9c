"""Hypothesis strategies for what an OpenAPI document says that a server may answer."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]


def read(path: Path) -> Schema:
    """An OpenAPI document, also one packed with gzip."""
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def values(document: Schema, schema: Schema, only: frozenset[str] | None = None) -> Any:
    """Values that a schema allows; of the outermost object only the members in `only`."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return values(document, document["components"]["schemas"][name], only)
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type")
    if kind == "object":
        members = {
            name: st.deferred(lambda member=member: values(document, member))
            for name, member in schema.get("properties", {}).items()
            if only is None or name in only
        }
        return st.fixed_dictionaries({}, optional=members)
    if kind == "array":
        return st.lists(st.deferred(lambda: values(document, schema["items"])), max_size=3)
    if kind == "integer":
        return st.integers(-(2**31), 2**63 if schema.get("format") == "int64" else 2**32 - 2)
    if kind == "number":
        return st.floats(allow_nan=False, allow_infinity=False, width=32)
    if kind == "boolean":
        return st.booleans()
    return st.text(max_size=20)
