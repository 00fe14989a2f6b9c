"""Which rank others waited for: the one that reports no timeout."""

from __future__ import annotations

import re
from collections.abc import Iterable

from schedmate.logparse.failure.events import Event

_LAGGING = re.compile(
    r"\[(\d{1,6})\] (?:finished collective #\d+, but didn't join|joined but didn't)"
)
_NOT_PASSED = re.compile(r"Ranks? ([\d, ]+) failed to pass monitoredBarrier")
_TASKS = re.compile(r"[Tt]imed out tasks?[^\n]{0,400}?task:(\d{1,6})\b")
_WORK = re.compile(r"WorkNCCL\(SeqNum=(\d{1,18}), OpType=(\w+)")
_GROUP = re.compile(r"PG (?:ID|GUID) (\w+)")
_ENQUEUED = re.compile(r"last enqueued (?:NCCL )?work: (\d{1,18})\b")
_SEQUENCE = re.compile(r"timeout: WorkNCCL\(SeqNum=(\d{1,18}), OpType=")


def missing_ranks(symptoms: list[Event], ranks: Iterable[int | None] = ()) -> list[int]:
    """The ranks that the others waited for, lowest first; none if unknown.

    They are those that the message names; else, if they are few, those below the highest rank that
    reported no timeout, or those of `ranks` (ranks with files of their own) that noticed nothing;
    else those whose count of collectives is behind.
    """
    named: set[int] = set()
    waiting: dict[int, int] = {}
    for event in symptoms:
        for line in event.lines:
            named.update(int(found) for found in _LAGGING.findall(line.text))
            named.update(int(found) for found in _TASKS.findall(line.text))
            for group in _NOT_PASSED.findall(line.text):
                named.update(int(one) for one in re.findall(r"\b\d{1,6}\b", group))
            match = _ENQUEUED.search(line.text) or _SEQUENCE.search(line.text)
            if match is not None and event.rank is not None:
                rank, sequence = event.rank, int(match[1])
                waiting[rank] = min(sequence, waiting.get(rank, sequence))
    if named:
        return sorted(named)
    if len(waiting) < 2:
        noticed = {event.rank for event in symptoms}
        silent = sorted(rank for rank in ranks if rank is not None and rank not in noticed)
        return silent if len(noticed) > 1 and len(silent) <= len(noticed) // 2 else []
    absent = sorted(set(range(max(waiting) + 1)) - set(waiting))
    if absent and len(absent) <= len(waiting) // 2:
        return absent
    behind = min(waiting.values())
    late = sorted(rank for rank, sequence in waiting.items() if sequence == behind)
    return late if behind != max(waiting.values()) and len(late) <= len(waiting) // 2 else []


def mismatch(symptoms: list[Event]) -> str | None:
    """How ranks wait in different collectives under one sequence number, or None if they do not."""
    waiting: dict[tuple[str, str], dict[str, int]] = {}
    for event in symptoms:
        if event.rank is None:
            continue
        for line in event.lines:
            match = _WORK.search(line.text)
            if match is not None:
                group = _GROUP.search(line.text)
                key = (group[1] if group else "", match[1])
                waiting.setdefault(key, {}).setdefault(match[2], event.rank)
    for (_, number), kinds in waiting.items():
        if len(kinds) > 1:
            who = " and ".join(f"rank {rank} in {kind}" for kind, rank in sorted(kinds.items()))
            return f"under number {number}, {who}"
    return None
