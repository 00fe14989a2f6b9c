"""Times of events whose age stays correct when the clock is set.

The time of day jumps when an administrator sets it or a virtual machine resumes. The kernel also
counts seconds since boot, including sleep, which never jumps; with the boot's id this gives the age
of every event since then. Only across a reboot is the time of day used.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Instant(NamedTuple):
    """A point in time on this machine."""

    time: float
    """Time of day [s since epoch]."""
    boot: str
    """The boot that it belongs to; empty where the system does not say."""
    uptime: float
    """Time since that boot [s]."""

    def age(self, now: Instant) -> float:
        """How long ago this was [s], never less than zero."""
        if self.boot and self.boot == now.boot:
            return max(0.0, now.uptime - self.uptime)
        return max(0.0, now.time - self.time)


def now() -> Instant:
    """The present."""
    return Instant(time.time(), _boot(), time.clock_gettime(time.CLOCK_BOOTTIME))


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
