"""What jobs use of their GPUs, by a command that measures them: Lucid's non-intrusive profiler."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Sequence

NVIDIA_SMI = (
    *("nvidia-smi", "--query-gpu=utilization.gpu,utilization.memory,memory.used"),
    *("--format=csv,noheader,nounits", "--id={gpus}"),
)
"""Measures NVIDIA's GPUs; a line for each: GPU [%], memory accesses [%], memory in use [MB]."""
EVERY_S = 2.0
PATIENCE_S = 10.0
"""How long one measurement may take [s]."""


def nvidia_smi() -> tuple[str, ...] | None:
    """The command for this node; None if there is no such program."""
    return NVIDIA_SMI if shutil.which("nvidia-smi") else None


class Meter:
    """Measures the GPUs of a runner while one run has them to itself.

    `command` prints three numbers separated by commas for each GPU; `{gpus}` in it stands for their
    ids. None: `nvidia-smi` if it is installed; empty: nothing is measured.
    """

    def __init__(
        self, command: tuple[str, ...] | None, gpus: Sequence[str], every_s: float = EVERY_S
    ) -> None:
        chosen = nvidia_smi() if command is None else command
        self._command = [word.replace("{gpus}", ",".join(gpus)) for word in chosen or ()]
        self._every_s = every_s
        self._alone: int | None = None
        self._sums: dict[int, list[float]] = {}
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, runs: list[int]) -> None:
        """These runs have the GPUs from now on."""
        self._alone = runs[0] if len(runs) == 1 else None
        self._changed.set()
        if self._command and self._thread is None:
            self._thread = threading.Thread(target=self._measure, daemon=True)
            self._thread.start()

    def use(self, run: int) -> dict[str, float] | None:
        """Means over the time of a run: `gpu_util` [%], `memory_util` [%], `memory_mb` of one GPU;
        None: it was never measured alone."""
        found = self._sums.get(run)
        if not found:
            return None
        count, gpu, memory, most = found
        return {"gpu_util": gpu / count, "memory_util": memory / count, "memory_mb": most}

    def _measure(self) -> None:
        while True:
            self._changed.clear()
            self._changed.wait(self._every_s)
            if self._changed.is_set():
                time.sleep(min(0.2, self._every_s))  # a command that has begun is not yet at work
                continue
            run = self._alone
            seen = None if run is None else self._look()
            if seen is None or run is None or self._alone != run:
                continue
            sums = self._sums.setdefault(run, [0.0, 0.0, 0.0, 0.0])
            sums[:] = [sums[0] + 1, sums[1] + seen[0], sums[2] + seen[1], max(sums[3], seen[2])]

    def _look(self) -> tuple[float, float, float] | None:
        try:
            done = subprocess.run(
                self._command, capture_output=True, text=True, timeout=PATIENCE_S, check=True
            )
            rows = [
                [float(one) for one in line.split(",")]
                for line in done.stdout.split("\n")
                if line.strip()
            ]
            columns = list(zip(*rows, strict=True))
            mean = [sum(column) / len(column) for column in columns]
            return mean[0], mean[1], max(columns[2])
        except (OSError, subprocess.SubprocessError, ValueError, IndexError):
            return None
