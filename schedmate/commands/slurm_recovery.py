"""Diagnostics of recovery.yaml as Slurm jobs."""

from __future__ import annotations

import math
from contextlib import suppress

from schedmate.schedulers.live.executor import ExecutorError, Ran
from schedmate.schedulers.live.slurm.commands import CommandError, Commands

START_S = 60.0
"""How long a diagnostic may wait for its nodes to be free [s]."""


class SlurmRunner:
    """Runs a diagnostic as a Slurm job of its own that has the nodes to itself."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def run(
        self, command: tuple[str, ...], nodes: tuple[str, ...], *, key: str, timeout_s: float
    ) -> Ran:
        """See `Runner.run`."""
        name = f"schedmate-{key}"
        words = (
            *("srun", f"--job-name={name}", f"--nodelist={','.join(nodes)}"),
            *(f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", "--exclusive", "--quiet"),
            *(f"--immediate={math.ceil(START_S)}", f"--time={math.ceil(timeout_s / 60.0)}"),
            *("--chdir=/", "--", *command),
        )
        run = self._commands.run
        try:
            return Ran(0, run(*words, timeout_s=timeout_s + START_S))
        except CommandError as error:
            if "srun: error: Unable to allocate" in error.said or "Immediate" in error.said:
                return Ran(None, error.said, f"{','.join(nodes)} could not be had for a test")
            return Ran(error.code, f"{error.printed}\n{error.said}")
        except ExecutorError as error:
            with suppress(ExecutorError):
                run("scancel", f"--name={name}")
            return Ran(None, "", f"{error}")
