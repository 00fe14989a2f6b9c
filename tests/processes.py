"""What became of the processes that a test started."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LONG_S = 300.0
"""How long to wait for what is sure to come, on a machine that is busy elsewhere [s]."""


@contextmanager
def ended_in_time(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Kill a process when the test is done with it, or after `LONG_S`.

    What the test is reading from it then ends, so that the test fails instead of waiting for ever.
    """
    timer = threading.Timer(LONG_S, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with process:
            process.kill()


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
