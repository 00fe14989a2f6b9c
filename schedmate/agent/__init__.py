"""Turns a repository and its launch command into metadata: static analysis, then a model for the
rest.

`Extraction` is the answer of static analysis; `static.extract` gives it without running the job,
and `react` has a model read on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from schedmate.jobs import LaunchConfig, WorkloadMetadata


@dataclass(slots=True)
class Extraction:
    """What static extraction found.

    `launch` is the given launch configuration, completed from the command and its scripts.
    `entry` is the file that the command runs, relative to the repository root.
    `cut_off` says that a limit ended it, so that what it did not see may contradict it.
    `contradicted` are the fields whose answer is not what the command states, each with that.
    `timing_s` is the wall time of the extraction [s].
    """

    metadata: WorkloadMetadata
    launch: LaunchConfig
    warnings: list[str] = field(default_factory=list)
    timing_s: float = 0.0
    entry: str | None = None
    cut_off: bool = False
    contradicted: dict[str, str] = field(default_factory=dict)
