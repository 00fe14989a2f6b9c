"""Runs Slurm's commands with a time limit and a fixed environment."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence

from schedmate.schedulers.live.slurm.reading.shapes import OutageError
from schedmate.terminal import clean

TIMEOUT_S = 30.0
"""Time limit of a command [s]. With the controller down, `squeue` gives up after about 9."""

_PASSED_ON = ("PATH", "SLURM_CONF", "TZ")


NOT_FOUND = 127
"""Exit code of `env` and shells if there is no such command."""


class CommandError(OutageError):
    """A command failed: `said` is its error output, `printed` its output."""

    def __init__(self, command: str, code: int, said: str, printed: str = "") -> None:
        shown = clean(said or printed, 300) or "no message"
        what = f"{command} ended with {code}: {shown}"
        if code == NOT_FOUND:
            what = (
                f"command not found: {command} here; run this on a host with Slurm's commands, or "
                "put them into PATH"
            )
        super().__init__(what)
        self.code, self.said, self.printed = code, said, printed


class Commands:
    """Runs commands. `through` is put before each: `sudo -n -u schedmate-agent`, `runuser -u agent
    --`."""

    def __init__(self, through: Sequence[str] = ()) -> None:
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment |= {"LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "%s"}
        # sudo does not pass on our environment
        words = [f"{name}={value}" for name, value in environment.items()]
        self._before = [*through, "env", "-i", *words]

    def run(self, *words: str, timeout_s: float = TIMEOUT_S) -> str:
        """What a command prints. Raises `CommandError`, or `OutageError` when it does not end."""
        return self._run([*self._before, *words], words[0], timeout_s)

    def run_directly(self, words: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> str:
        """Run a command as the agent's own user, without `through`: for the drain command."""
        return self._run(list(words), words[0], timeout_s)

    def _run(self, words: list[str], name: str, timeout_s: float) -> str:
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="surrogateescape",  # a directory's name may be any bytes
                start_new_session=True,  # Ctrl-C ends the agent, not a command halfway
            )
        except OSError as error:
            raise OutageError(
                f"cannot run {words[0]}: {error.strerror}; is it installed?"
            ) from None
        with process:
            try:
                printed, said = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                raise OutageError(f"{name} did not end within {timeout_s:g} s.") from None
        if process.returncode:
            raise CommandError(name, process.returncode, said, printed)
        return printed
