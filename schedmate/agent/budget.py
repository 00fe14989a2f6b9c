"""The time that reading a repository may take."""

from __future__ import annotations

import time

PATIENCE = 20.0
"""Wall time to CPU time after which a loaded machine is waited for no longer.

So many that a machine with twenty times as much to do as it has processors gives the same answer as
an idle one; who cannot wait gives a limit.
"""


class Budget:
    """CPU time of the calling thread, so that a loaded machine reads as much as an idle one.

    Wall time is limited as well, for what waits without working, such as a file system that hangs.

    Args:
        cpu_s: CPU time from now on [s].
        wall_s: wall time from now on [s]; None for `PATIENCE` times the CPU time.
    """

    __slots__ = ("_cpu_end", "_earliest", "_wall_end")

    def __init__(self, cpu_s: float, wall_s: float | None = None) -> None:
        now = time.monotonic()
        self._cpu_end = time.thread_time() + cpu_s
        self._earliest = now + cpu_s
        self._wall_end = now + (PATIENCE * cpu_s if wall_s is None else wall_s)

    def spent(self) -> bool:
        """Whether either time is over."""
        now = time.monotonic()
        if now > self._wall_end:
            return True
        # the clock of a thread is slow to read, and no thread works longer than time passes
        return now > self._earliest and time.thread_time() > self._cpu_end
