"""schedmate: run-time estimates, progress and failure diagnosis for GPU cluster schedulers.

The public names, imported on first use so that the command line starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from schedmate.base.errors import InputError, SchedmateError, SettingsError, UsageError
    from schedmate.jobs import (
        Diagnosis,
        Estimate,
        Evidence,
        JobRecord,
        JobSpec,
        LaunchConfig,
        Neighbour,
        Progress,
        WorkloadMetadata,
    )
    from schedmate.mate import Analysis, SchedMate
    from schedmate.settings import Settings, load_settings


__version__ = "0.1.0"


_HOMES = {
    "Analysis": "schedmate.mate",
    "Diagnosis": "schedmate.jobs",
    "Estimate": "schedmate.jobs",
    "Evidence": "schedmate.jobs",
    "InputError": "schedmate.base.errors",
    "JobRecord": "schedmate.jobs",
    "JobSpec": "schedmate.jobs",
    "LaunchConfig": "schedmate.jobs",
    "Neighbour": "schedmate.jobs",
    "Progress": "schedmate.jobs",
    "SchedMate": "schedmate.mate",
    "SchedmateError": "schedmate.base.errors",
    "Settings": "schedmate.settings",
    "SettingsError": "schedmate.base.errors",
    "UsageError": "schedmate.base.errors",
    "WorkloadMetadata": "schedmate.jobs",
    "load_settings": "schedmate.settings",
}

__all__ = [
    "Analysis",
    "Diagnosis",
    "Estimate",
    "Evidence",
    "InputError",
    "JobRecord",
    "JobSpec",
    "LaunchConfig",
    "Neighbour",
    "Progress",
    "SchedMate",
    "SchedmateError",
    "Settings",
    "SettingsError",
    "UsageError",
    "WorkloadMetadata",
    "__version__",
    "load_settings",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'schedmate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
