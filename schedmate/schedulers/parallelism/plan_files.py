"""Files of parallelism plans: one plan, an array, or one on each line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from schedmate.errors import InputError, reason_of
from schedmate.schedulers.parallelism.plan import Plan, parse_plan


def read_plans(path: Path) -> Iterator[Plan]:
    """The plans of a file: one JSON object, an array of them, or JSON lines.

    Raises `InputError` for a file that cannot be read, and at the first entry that is not a plan.
    """
    for one in plans_in(path):
        if isinstance(one, NoPlan):
            raise one.error
        yield one


class NoPlan(NamedTuple):
    """An entry of a file that is not a valid plan."""

    place: str
    """`line 3`, or `plan 3` of an array."""
    error: InputError


def plans_in(path: Path) -> Iterator[Plan | NoPlan]:
    """The plans of a file, with `NoPlan` for invalid entries.

    Raises `InputError` for a file that cannot be read or holds nothing.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: cannot be read: {reason_of(error)}; `schedmate parallel plan --json` writes "
            "one"
        ) from error
    try:
        whole = json.loads(text)
    except ValueError:
        yield from _lines(text, path)
        return
    except RecursionError:
        raise InputError(f"{path}: nested too deep to be a plan") from None
    if not isinstance(whole, list):
        yield parse_plan(whole, str(path))
        return
    if not whole:
        raise InputError(f"{path}: no plans in it: a plan is a JSON object, or one on each line")
    for number, document in enumerate(whole, 1):
        yield _parsed(document, path, f"plan {number}")


def _lines(text: str, path: Path) -> Iterator[Plan | NoPlan]:
    found = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        found += 1
        place = f"line {number}"
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            yield NoPlan(place, InputError(f"{path}, {place}: not JSON"))
        else:
            yield _parsed(document, path, place)
    if not found:
        raise InputError(f"{path}: empty: a plan is a JSON object, or one on each line")


def _parsed(document: Any, path: Path, place: str) -> Plan | NoPlan:
    try:
        return parse_plan(document, f"{path}, {place}")
    except InputError as error:
        return NoPlan(place, error)
