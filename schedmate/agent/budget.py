"""The time that reading a repository may take."""

from __future__ import annotations

import time

PATIENCE = 4.0
"""Wall time to CPU time after which a loaded machine is waited for no longer."""


class Budget:
    """CPU time of the calling thread, so that a loaded machine reads as much as an idle one.

    Wall time is limited as well, for what waits without working, such as a file system that hangs.

    Args:
        cpu_s: CPU time from now on [s].
        wall_s: wall time from now on [s]; None for `PATIENCE` times the CPU time.
    """

    __slots__ = ("_cpu_end", "_wall_end")

    def __init__(self, cpu_s: float, wall_s: float | None = None) -> None:
        self._cpu_end = time.thread_time() + cpu_s
        self._wall_end = time.monotonic() + (PATIENCE * cpu_s if wall_s is None else wall_s)

    def spent(self) -> bool:
        """Whether either time is over."""
        return time.thread_time() > self._cpu_end or time.monotonic() > self._wall_end
