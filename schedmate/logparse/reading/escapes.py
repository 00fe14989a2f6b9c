"""Removes colour escape sequences from the bytes of a log, and maps positions back.

Without this, patterns that look at the beginning of a line or at neighbouring words would miss
coloured ones.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable

# As in `schedmate.terminal`, within a line.
_SEQUENCE = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]"
)


def uncoloured(data: bytes) -> tuple[bytes, Callable[[int], int]]:
    """`data` without escape sequences, and the index in `data` of each index in that."""
    if b"\x1b" not in data:
        return data, _same
    kept: list[int] = []  # index in the result of what follows each sequence
    taken: list[int] = [0]  # bytes left out before it
    for match in _SEQUENCE.finditer(data):
        kept.append(match.start() - taken[-1])
        taken.append(taken[-1] + match.end() - match.start())

    def origin(index: int) -> int:
        return index + taken[bisect_right(kept, index)]

    return _SEQUENCE.sub(b"", data), origin


def _same(index: int) -> int:
    return index
