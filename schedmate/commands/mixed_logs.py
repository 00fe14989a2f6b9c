"""What commands that read a directory as one job say where it looks like several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schedmate.logparse.reading import Log


def mixed_logs(path: str, log: Log, *, follow_links: bool) -> list[str]:
    """A warning where `path` is a directory whose files are hardly the ranks of one run."""
    if len(log.files) < 2:
        return []
    from schedmate.logparse.triage.mixed import mixed

    warning = mixed(Path(path), log, follow_links=follow_links)
    return [] if warning is None else [warning]
