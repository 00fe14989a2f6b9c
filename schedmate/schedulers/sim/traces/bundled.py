"""Recipes and calibrations by name: bundled ones, or a YAML file."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml

from schedmate.data import parse
from schedmate.errors import InputError, UsageError, did_you_mean, similar_file

T = TypeVar("T")
TRACES = Path(__file__).parent


@cache
def names(folder: str) -> tuple[str, ...]:
    """The YAML files of a folder here, without their ending."""
    return tuple(sorted(path.stem for path in (TRACES / folder).glob("*.yaml")))


def choose(what: str, folder: str, name: str, make: Callable[[str, Any], T]) -> T:
    """`make(name, document)` for the bundled document `name`, or for a file.

    Bundled are the YAML files of a folder here; `what` is one of them in words. Raises `UsageError`
    for neither, `InputError` for an invalid file.
    """
    path = TRACES / folder / f"{name}.yaml" if name in names(folder) else Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise UsageError(
            f"no {what} {name!r}; there are {', '.join(names(folder))}, or a YAML file of your own "
            f"with the same keys{did_you_mean(name, names(folder)) or similar_file(name) or '.'}"
        ) from None
    try:
        return make(path.stem, parse(text))
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{name} is not a {what}: {type(error).__name__} {reason}; see docs/traces.md."
        ) from None
