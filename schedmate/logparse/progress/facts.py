"""What a log says once at its beginning: the length of the run and the global batch size."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from schedmate.logparse.data import load
from schedmate.logparse.reading import LogFile, plain

HEAD = 1 << 18
"""Bytes of the beginning that are searched (256 KiB)."""


@dataclass
class Facts:
    """Facts of a whole run; None where the log does not say."""

    total_iterations: int | None = None
    total_epochs: int | None = None
    batch: int | None = None
    first_epoch: int = 1


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    return {
        name: re.compile("|".join(f"(?:{one['pattern']})" for one in entries), re.IGNORECASE)
        for name, entries in load("progress/facts.yaml").items()
    }


def read_facts(file: LogFile) -> Facts:
    """The facts that the beginning of a log states; the first statement counts."""
    text = plain_text(file.read(0, HEAD))
    facts = Facts()
    for name, pattern in _patterns().items():
        if match := pattern.search(text):
            number = next(group for group in match.groups() if group)
            setattr(facts, name, int(number.replace(",", "")))
    return facts


def plain_text(data: bytes) -> str:
    """Bytes as text, lines kept."""
    return "\n".join(plain(line) for line in data.split(b"\n"))
