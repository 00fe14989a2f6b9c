"""What a check of `schedmate doctor` finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: what was looked at, how it is, and what to do about it."""

    name: str
    status: Literal["ok", "warning", "failed"]
    fact: str
    fix: str | None = None
