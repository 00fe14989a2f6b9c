"""Files that an epilog writes when a run ends, so that the agent reacts before the next poll.

Their names are `JOB.RESTARTS`; nothing else about them is trusted: how the run ended is read from
accounting.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from schedmate.paths import children

OLDEST_S = 600.0
"""Age at which a file is removed if accounting does not know its run [s]."""


def waiting(spool: Path) -> list[Path]:
    """The complete files; names that begin with a dot are still being written."""
    return [path for path in children(spool) if not path.name.startswith(".")]


def remove(dropped: Iterable[Path], known: set[str], now: float) -> None:
    """Remove the files of jobs that are known to have ended, and old ones."""
    for path in dropped:
        with suppress(OSError):
            job = path.name.partition(".")[0]
            if job in known or now - path.lstat().st_mtime > OLDEST_S:
                path.unlink()
