"""Names of machines: which texts are one, which two are the same machine, and Slurm's lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

# A name by RFC 1123, with the underscore that Slurm allows besides; no option, no pattern, no list.
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*\Z")
# `scontrol` takes ALL for every node; the others name the machine that the command runs on.
_NO_NODE = frozenset({"all", "any", "none", "unknown", "localhost", "localhost.localdomain"})
_LOOPBACK = re.compile(r"127(?:\.\d+){3}|0\.0\.0\.0")


def host_name(text: str | None) -> str | None:
    """`text` if it may stand for one machine in a command, else None."""
    if text is None or not text.isascii() or _HOST.match(text) is None:
        return None
    if text.lower() in _NO_NODE or text.isdigit() or _LOOPBACK.fullmatch(text):
        return None
    return text


def same_host(one: str, other: str) -> bool:
    """Whether two names are of one machine: one may lack the domain."""
    one, other = one.lower(), other.lower()
    if one == other:
        return True
    if one.replace(".", "").isdigit() or other.replace(".", "").isdigit():
        return False  # addresses have no domain
    short = one.partition(".")[0] == other.partition(".")[0]
    return short and ("." not in one or "." not in other)


def listed(node: str | None, nodes: Iterable[str]) -> str | None:
    """The one of `nodes` that `node` is, as the caller spells it."""
    if node is None:
        return None
    return next((one for one in nodes if same_host(one, node)), None)


_LISTED = re.compile(r"(?:[^,\[\]]++|\[[^\[\]]*+\])++")
_BRACKETS = re.compile(r"\[([^\[\]]*+)\]")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


def expand_hostlist(text: str, most: int) -> Iterator[str]:
    """The names of a Slurm host list, `gpu[01-03,07],login`, in order, with the zeros of numbers.

    Several pairs of brackets in one name multiply. Names are made as they are drawn. Raises
    `ValueError` for what is not a list, and where one name of it stands for more than `most`.
    """
    names = _LISTED.findall(text)
    if ",".join(names) != text:
        raise ValueError(f"{text[:60]!r} is not a list of hosts")
    for name in names:
        size = 1
        choices: list[list[_Numbers]] = []
        fixed = _BRACKETS.split(name)
        for part in fixed[1::2]:
            choices.append([_numbers(one, text) for one in part.split(",")])
            size *= sum(len(numbers.span) for numbers in choices[-1])
            if size > most:
                raise ValueError(f"{text[:60]!r} names more than {most:,} hosts")
        yield from _names(fixed[::2], choices)


class _Numbers(NamedTuple):
    span: range
    width: int


def _numbers(text: str, whole: str) -> _Numbers:
    match = _RANGE.fullmatch(text)
    if match is None or int(match[1]) > int(match[2] or match[1]):
        raise ValueError(f"{whole[:60]!r} is not a list of hosts")
    return _Numbers(range(int(match[1]), int(match[2] or match[1]) + 1), len(match[1]))


def _names(fixed: Sequence[str], choices: Sequence[Sequence[_Numbers]]) -> Iterator[str]:
    """Names of fixed parts with numbers between them."""
    if not choices:
        yield fixed[0]
        return
    for numbers in choices[0]:
        for number in numbers.span:
            start = f"{fixed[0]}{number:0{numbers.width}}"
            for rest in _names(fixed[1:], choices[1:]):
                yield start + rest
