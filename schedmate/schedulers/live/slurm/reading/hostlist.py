"""Slurm's lists of hosts: `gpu[01-04,07],login2`."""

from __future__ import annotations

from schedmate.hosts import expand_hostlist, host_name
from schedmate.schedulers.live.slurm.reading.shapes import ShapeError
from schedmate.terminal import clean

MOST = 100_000
"""Hosts of one list at most."""

_NONE = frozenset({"", "(null)", "None assigned", "none", "n/a", "N/A"})


def expand(hostlist: str) -> tuple[str, ...]:
    """The hosts in order, with zero-padded numbers.

    Several pairs of brackets in one name multiply. Raises `ShapeError` if it is not a list of
    hosts, or has more than `MOST`.
    """
    text = hostlist.strip()
    if text in _NONE:
        return ()
    found: list[str] = []
    try:
        for host in expand_hostlist(text, MOST):
            if host_name(host) is None:
                raise ShapeError(f"{clean(hostlist, 60)!r} is not a list of hosts.")
            found.append(host)
            if len(found) > MOST:
                raise ShapeError(f"the list of hosts {clean(hostlist, 60)!r} has over {MOST:,}.")
    except ValueError as error:
        raise ShapeError(f"{clean(error)}.") from None
    return tuple(found)
