"""The table of nccl-tests (`all_reduce_perf` and similar), of one collective over some nodes.

A run is evidence against its nodes as a group: wrong values, a bandwidth below the expected one, an
error of NCCL or CUDA. `halving.py` finds the faulty node of the group. Columns by release: `error`
(a difference, before 2.13) or `#wrong` (a count), and `root` since then.
"""

from __future__ import annotations

import re

from schedmate.recovery.health.verdict import Complaint, Expected, Health, judged
from schedmate.schedulers.live.executor import Ran
from schedmate.terminal import clean

# prefixes of mpirun, srun and pdsh
_PREFIX = re.compile(r"(?:\[\d{1,9}+,\d{1,9}+\]<std(?:out|err)>: ?|[\w.-]{1,64}+: (?= *+[\d#]))")
_AVERAGE = re.compile(r"# {0,8}+Avg bus bandwidth")
_BOUNDS = re.compile(r"# {0,8}+Out of bounds values {0,8}+: {0,8}+(\d{1,18}+) {1,8}+(\w{1,20}+)")
_FAILED = re.compile(
    r"Test (?:NCCL|CUDA|timeout)|NCCL failure|CUDA (?:failure|error)"
    r"|remote process exited or there was a network error"
)
_WARNED = re.compile(r"(?i:error|timed ?out|time-?out)")


def assess(ran: Ran, expected: Expected) -> Health:
    """Faulty where values are wrong, the bandwidth is too low, or NCCL failed; a run without a
    table and without a failure of NCCL or CUDA is unclear."""
    complaints: list[Complaint] = []
    largest, bandwidth, rows = -1, 0.0, 0
    for raw in ran.output.splitlines():
        line = _PREFIX.sub("", raw, count=1)
        words = line.split()
        if _is_row(words):
            rows += 1
            wrong, speed = _numbers(words[4:])
            size = int(words[0][:18])
            if wrong:
                said = f"{wrong:g} wrong values at a size of {size} bytes"
                complaints.append(Complaint("", said, "network", True))
            if size >= largest:
                largest, bandwidth = size, max(speed, bandwidth if size == largest else 0.0)
        elif (bounds := _BOUNDS.search(line)) and bounds[2].upper() != "OK":
            said = f"{bounds[1]} values out of bounds"
            complaints.append(Complaint("", said, "network", True))
        elif _FAILED.search(line) or ("NCCL WARN" in line and _WARNED.search(line)):
            complaints.append(Complaint("", clean(line, 300), "network", True))
    least = expected.min_busbw_gbps
    if least is not None and rows and bandwidth < least:
        said = f"bus bandwidth {bandwidth:g} GB/s at {largest} bytes, {least:g} expected"
        complaints.append(Complaint("", said, "network", True))
    if ran.exit_code and not complaints:
        said = clean(ran.output.strip()[-200:])
        return Health("unclear", f"exit code {ran.exit_code} without a failure of NCCL: {said}")
    whole = any(_AVERAGE.search(line) for line in ran.output.splitlines())
    if rows and not whole and not complaints:
        return Health("unclear", "the table was cut off")
    otherwise = f"bus bandwidth {bandwidth:g} GB/s at {largest} bytes" if rows else "no table"
    return judged(complaints, passed=rows, otherwise=otherwise)


def _is_row(words: list[str]) -> bool:
    """Size, count, type, operation, and at least one group of numbers."""
    return (
        len(words) >= 8
        and all(one.isascii() and one.isdigit() for one in words[:2])
        and (words[2].isidentifier() and words[3].isidentifier())
    )


def _numbers(values: list[str]) -> tuple[float, float]:
    """Wrong values, and the best bus bandwidth, of `[root] (time algbw busbw wrong) x 2`."""
    if len(values) in (5, 9):  # the column `root` comes first
        values = values[1:]
    wrong = speed = 0.0
    for start in range(0, len(values) - 3, 4):
        group = values[start : start + 4]
        speed = max(speed, _number(group[2]))
        # an `error` below one is a rounding difference of a release without counts
        found = _number(group[3])
        wrong += found if found >= 1 else 0
    return wrong, speed


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if value == value and abs(value) < 1e18 else 0.0
