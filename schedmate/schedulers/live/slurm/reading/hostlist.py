"""Slurm's lists of hosts: `gpu[01-04,07],login2`."""

from __future__ import annotations

import re
from itertools import product

from schedmate.hosts import host_name
from schedmate.schedulers.live.slurm.reading.shapes import ShapeError
from schedmate.terminal import clean

MOST = 100_000
"""Hosts of one list at most."""

_NAME = re.compile(r"(?:[^,\[\]]++|\[[^\[\]]*+\])++")
_PART = re.compile(r"\[([^\[\]]*+)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_NONE = frozenset({"", "(null)", "None assigned", "none", "n/a", "N/A"})


def expand(hostlist: str) -> tuple[str, ...]:
    """The hosts in order, with the zeros that their numbers are padded with.

    Several pairs of brackets in one name multiply. Raises `ShapeError` for what is no list of
    hosts, and for more than `MOST`.
    """
    text = hostlist.strip()
    if text in _NONE:
        return ()
    found: list[str] = []
    names = _NAME.findall(text)
    if ",".join(names) != text:
        raise ShapeError(f"{clean(hostlist, 60)!r} is no list of hosts.")
    for name in names:
        found += _one(name, hostlist)
        if len(found) > MOST:
            raise ShapeError(f"the list of hosts {clean(hostlist, 60)!r} has over {MOST:,}.")
    return tuple(found)


def _one(name: str, whole: str) -> list[str]:
    fixed = _PART.split(name)
    choices = [_numbers(part, whole) if at % 2 else [part] for at, part in enumerate(fixed)]
    size = 1
    for choice in choices:
        size *= len(choice)
    if size > MOST:
        raise ShapeError(f"the list of hosts {clean(whole, 60)!r} has over {MOST:,}.")
    hosts = ["".join(parts) for parts in product(*choices)]
    if any(host_name(host) is None for host in hosts):
        raise ShapeError(f"{clean(whole, 60)!r} is no list of hosts.")
    return hosts


def _numbers(ranges: str, whole: str) -> list[str]:
    found: list[str] = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ShapeError(f"{clean(whole, 60)!r} is no list of hosts.")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + MOST:
            raise ShapeError(f"{clean(whole, 60)!r} is no list of hosts.")
        found += [str(one).zfill(len(match[1])) for one in range(first, last + 1)]
    return found
