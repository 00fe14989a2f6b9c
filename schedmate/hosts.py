"""Names of machines: which texts are one, and which two are the same machine."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
