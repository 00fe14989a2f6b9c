"""Facts that a log states once at its beginning: run length, samples and tokens of a step."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from schedmate.data import load
from schedmate.logparse.reading import LogFile

HEAD = 1 << 18
"""Bytes of the beginning that are searched (256 KiB)."""

ENDLESS = 1 << 40
"""A number at least this large means that there is no limit."""
SILENT = 10
"""Fewer words than this mean that a log has only bars, as the standard error of a job."""
_SURE = frozenset(["plain_batch", "devices", "accumulation", "length"])
"""Facts that count only if all statements of them agree."""
_WORD = re.compile(rb"[A-Za-z]{4,}")


@dataclass
class Facts:
    """Facts about a whole run; None if the log does not state them."""

    total_iterations: int | None = None
    total_epochs: int | None = None
    batch: int | None = None
    """Samples of a step, over all devices."""
    device_batch: int | None = None
    devices: int | None = None
    accumulation: int | None = None
    """Micro-batches of a step."""
    plain_batch: int | None = None
    """A batch size that may be that of a step, as nothing indicates several devices."""
    parallel: int | None = None
    """Devices that share one copy of the model."""
    distributed: bool = False
    """Whether anything at its beginning indicates several processes."""
    length: int | None = None
    """Tokens of a sample, if all samples have the same number."""
    tokens: int | None = None
    first_epoch: int = 1
    speaks: bool = False
    """Whether the log's beginning or end mentions training, or the log has no words at all."""


@cache
def _patterns() -> dict[str, Any]:
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.case_sensitive = False
    joined = {
        name: "|".join(f"(?:{one['pattern']})" for one in entries)
        for name, entries in load("logparse/progress/facts.yaml").items()
    }
    return {
        name: re2.compile(f"(?m){pattern}".encode(), options) for name, pattern in joined.items()
    }


def read_facts(file: LogFile) -> Facts:
    """The facts that the beginning of a log states; the first statement counts."""
    head = file.read(0, HEAD)
    facts = Facts()
    for name, pattern in _patterns().items():
        if name == "speaks":
            tail = file.read(max(0, file.size - HEAD), HEAD)
            silent = len(_WORD.findall(head)) < SILENT
            facts.speaks = silent or bool(pattern.search(head) or pattern.search(tail))
        elif name == "distributed":
            facts.distributed = pattern.search(head) is not None
        elif name in _SURE:
            found = {_number(match) for match in pattern.finditer(head)}
            setattr(facts, name, found.pop() if len(found) == 1 else None)
        elif match := pattern.search(head):
            setattr(facts, name, _number(match))
    _work_out(facts)
    return facts


def _number(match: Any) -> int | None:
    digits = next(group for group in match.groups() if group).replace(b",", b"")
    return int(digits) if len(digits) < len(str(ENDLESS)) else None


def _work_out(facts: Facts) -> None:
    """The batch of a step from that of each device; None if the number of devices is unknown."""
    one = facts.devices in (None, 1) and (facts.devices == 1 or not facts.distributed)
    if not one or (facts.accumulation or 1) > 1:
        facts.plain_batch = None
    if facts.batch is None and facts.device_batch and facts.devices and not facts.parallel:
        facts.batch = facts.device_batch * facts.devices * (facts.accumulation or 1)
    samples = facts.batch or facts.plain_batch
    if facts.tokens is None and samples and facts.length:
        facts.tokens = samples * facts.length
