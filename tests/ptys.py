"""A command at a terminal of some width, as whoever sits before it sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping


def at_terminal(*arguments: str, columns: int, env: Mapping[str, str | None] | None = None) -> str:
    """What `schedmate` with these arguments shows, colours included.

    `env` adds variables, and takes those away that are None.
    """
    changes: dict[str, str | None] = {"COLUMNS": None, "TERM": "xterm-256color", **(env or {})}
    variables = {**os.environ, **changes}
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-m", "schedmate", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={name: value for name, value in variables.items() if value is not None},
    ):
        os.close(theirs)
        seen = b""
        while block := _read(ours):
            seen += block
    os.close(ours)
    return seen.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # nobody is at the other end any more
        return b""
