"""Which processes hold the memory of a full GPU, by the numbers in the error message."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from schedmate.logparse.failure.events import Event
from schedmate.logparse.failure.rules import Rule, RuleSet
from schedmate.logparse.failure.scan import FileScan

TAKEN, FITS = "gpu-memory-taken", "cuda-oom"
SHARE = 0.1
"""Share of a GPU's memory that a driver, a display and other contexts may take."""
HEAD = 2000
"""Lines at the beginning of an attempt that may state how full the GPU was then."""
_UNITS = {"": 1.0, "B": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40}
_SIZE = r"(\d+(?:\.\d+)?) ?([KMGT]?)i?B?"
_ASKED = re.compile(rf"(?i:tried to allocate|trying to allocate|allocate request for) {_SIZE}")
_TOTAL = re.compile(rf"total capacity of {_SIZE}|; {_SIZE} total capacity")
_FREE = re.compile(rf"of which {_SIZE} is free|; {_SIZE} free")
_OWN = re.compile(rf"this process has {_SIZE}|; {_SIZE} reserved in total")
_ALLOCATED = re.compile(rf"; {_SIZE} already allocated")
_OTHERS = re.compile(rf"Process \d+ has {_SIZE} memory in use")
# TensorFlow when it opens the card, and the table of nvidia-smi
_AT_FIRST = re.compile(rf"(?i)total_?memory: {_SIZE},? free_?memory: {_SIZE}")
_TABLE = re.compile(r"\| +(\d+)MiB +/ +(\d+)MiB +\|")


class MemoryUse(NamedTuple):
    """Memory of one GPU [bytes]; `others` is the memory of processes besides this one."""

    total: float
    others: float
    lacking: float

    @property
    def taken(self) -> bool:
        """Whether the job would have fitted without the other processes."""
        return self.others > SHARE * self.total and self.lacking <= self.others


def judged(event: Event, one: FileScan | None, rules: RuleSet) -> Rule | None:
    """The rule for a GPU memory error, according to which process holds the memory."""
    rule = event.rule
    if rule is None or rule.name != "Out of Memory":
        return rule
    use = stated_use(" ".join(line.text for line in event.lines))
    if use is None and one is not None and "alloc" in event.text.lower():
        first = one.attempt.first_line
        last = min(first + HEAD, event.number)
        use = initial_use(line.text for line in one.file.lines(first, last))
    if use is None:
        return rule
    if use.taken:
        return rules.by_id[TAKEN]
    return rules.by_id[FITS] if rule.id == TAKEN else rule


def stated_use(text: str) -> MemoryUse | None:
    """The numbers in a message of PyTorch, or None if some are missing."""
    total, free, asked = _first(_TOTAL, text), _first(_FREE, text), _first(_ASKED, text)
    if total is None or free is None:
        return None
    others = sum(_bytes(*sizes) for sizes in _OTHERS.findall(text))
    if not others:
        own = _first(_OWN, text)
        own = own if own is not None else _first(_ALLOCATED, text)
        others = max(0.0, total - free - own) if own is not None else 0.0
    return MemoryUse(total, others, max(0.0, (asked or 0.0) - free))


def initial_use(texts: Iterable[str]) -> MemoryUse | None:
    """How full the GPU was when the program opened it, or None if unknown."""
    for text in texts:
        match = _AT_FIRST.search(text)
        if match is not None:
            total, free = _bytes(match[1], match[2]), _bytes(match[3], match[4])
            return MemoryUse(total, total - free, 0.0)
        match = _TABLE.search(text)
        if match is not None:
            used, total = float(match[1]), float(match[2])
            return MemoryUse(total, used, 0.0) if used > total / 2 else None
    return None


def _first(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    if match is None:
        return None
    number, unit = [group for group in match.groups() if group is not None][:2]
    return _bytes(number, unit)


def _bytes(number: str, unit: str) -> float:
    return float(number) * _UNITS[unit.upper()]
