"""Files that an epilog writes when a run ends, so that the agent reacts before the next poll.

Their names are `JOB.RESTARTS`; nothing else in them or about them is believed: what ended, and how,
is asked of accounting.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from schedmate.paths import children

OLDEST_S = 600.0
"""After this time a file is removed whose run accounting does not know [s]."""


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
