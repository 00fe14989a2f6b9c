"""Merge patches, fields and selectors, as an API server understands them."""

from __future__ import annotations

import re
from typing import Any


def json_merged(old: Any, new: Any) -> Any:
    """RFC 7386."""
    if not isinstance(new, dict):
        return new
    found = dict(old) if isinstance(old, dict) else {}
    for key, value in new.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = json_merged(found.get(key), value)
    return found


def leaves(found: Any, path: tuple[str, ...] = ()) -> Any:
    for key, value in found.items():
        if (path, key) in (
            ((), "apiVersion"),
            ((), "kind"),
            (("metadata",), "name"),
            (("metadata",), "namespace"),
        ):
            continue
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def leaf(found: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def selected(text: str, labels: dict[str, str]) -> bool:
    """Whether labels fit a selector as it stands in a query."""
    for term in filter(None, re.split(r",(?![^(]*\))", text)):
        if match := re.fullmatch(r"\s*([^\s!=]+)\s+(in|notin)\s+\((.*)\)\s*", term):
            inside = labels.get(match[1]) in [one.strip() for one in match[3].split(",")]
            if inside != (match[2] == "in"):
                return False
        elif match := re.fullmatch(r"\s*([^!=\s]+)\s*(!?)==?\s*(.*?)\s*", term):
            if (labels.get(match[1]) == match[3]) == bool(match[2]):
                return False
        elif (term.strip().lstrip("!") in labels) == term.strip().startswith("!"):
            return False
    return True


def selected_by(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether labels fit a selector as it stands in an object."""
    terms = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    return selected(",".join(terms), labels)
