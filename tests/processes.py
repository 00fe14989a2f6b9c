"""What became of the processes that a test started."""

from __future__ import annotations

import time
from pathlib import Path

LONG_S = 300.0
"""How long to wait for what is sure to come, on a machine that is busy elsewhere [s]."""


def all_ended(session: int) -> bool:
    """Whether the processes of a session, made by `start_new_session`, end by themselves."""
    until = time.monotonic() + LONG_S
    while any(_lives_in(stat, session) for stat in Path("/proc").glob("[1-9]*/stat")):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def ends(pid: int) -> bool:
    """Whether a process ends by itself; one that nobody collects has ended."""
    until = time.monotonic() + LONG_S
    while True:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX" or time.monotonic() > until:
            return state in "ZX"
        time.sleep(0.01)


def _lives_in(stat: Path, session: int) -> bool:
    try:
        state, _, _, its_session, *_ = stat.read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return False
    # where nobody collects orphans, as in some containers, those that ended stay as zombies
    return int(its_session) == session and state not in "ZX"
