"""Files of experiment trackers beside a job's logs."""

from __future__ import annotations

import re
from pathlib import Path

# Weights & Biases: wandb/run-20240131_101112-abcd1234, below it logs/, files/ and a database.
_RUN = re.compile(r"(?:offline-)?run-\d{8}_\d{6}-\w+")
_OUTPUT = "output.log"
"""The output of the job as the tracker stored it."""


def of_tracker(path: Path) -> bool:
    """Whether a file is a tracker's own log or record, which says nothing about the job.

    The job's output as stored by the tracker does not count; see
    https://docs.wandb.ai/guides/track/log/log-summary#files-in-the-run-directory.
    """
    folders = path.parts[:-1]
    if any(_RUN.fullmatch(folder) for folder in folders):
        return path.name != _OUTPUT
    return (
        bool(folders)
        and folders[-1] == "wandb"
        and re.match(r"debug[\w-]*\.log", path.name) is not None
    )
