"""The table of nccl-tests (`all_reduce_perf` and its like), of one collective over some nodes.

A run speaks against its nodes as a group: values that came out wrong, a bandwidth below what is
expected, an error of NCCL or CUDA. Which node of the group it is, `halving.py` finds. Columns by
release: `error` (a difference, before 2.13) or `#wrong` (a count), and `root` since then.
"""

from __future__ import annotations

import re

from schedmate.recovery.health.verdict import Complaint, Expected, Health, judged
from schedmate.schedulers.live.executor import Ran
from schedmate.terminal import clean

# what mpirun, srun and pdsh put before a line
_PREFIX = re.compile(r"^(?:\[\d+,\d+\]<std(?:out|err)>: ?|\d+: |[\w.-]+: (?=\s*[\d#]))")
_ROW = re.compile(r"\s*(?P<size>\d+)\s+\d+\s+[a-z]\w*\s+\w+\s+(?P<numbers>[-+\d.eNA/ infa]+)$")
_AVERAGE = re.compile(r"# *Avg bus bandwidth *: *([\d.]+)")
_BOUNDS = re.compile(r"# *Out of bounds values *: *(\d+) +(\w+)")
_FAILED = re.compile(
    r"Test (?:NCCL|CUDA|timeout)\b.*|.*\b(?:NCCL (?:failure|WARN .*(?:[Ee]rror|[Tt]imed? ?out).*)"
    r"|CUDA (?:failure|error)).*|.*\bremote process exited or there was a network error.*",
)


def read(ran: Ran, expected: Expected) -> Health:
    """Faulty where values are wrong, the bandwidth is too low, or NCCL failed; a run without a
    table that names no failure of NCCL or CUDA says nothing of the nodes."""
    complaints: list[Complaint] = []
    largest, bandwidth, rows = -1, 0.0, 0
    for raw in ran.output.splitlines():
        line = _PREFIX.sub("", raw)
        if row := _ROW.match(line):
            rows += 1
            wrong, speed = _numbers(row["numbers"].split())
            size = int(row["size"][:18])
            if wrong:
                words = f"{wrong:g} wrong values at a size of {size} bytes"
                complaints.append(Complaint("", words, "network", True))
            if size >= largest:
                largest, bandwidth = size, max(speed, bandwidth if size == largest else 0.0)
        elif (bounds := _BOUNDS.search(line)) and bounds[2].upper() != "OK":
            words = f"{bounds[1]} values out of bounds"
            complaints.append(Complaint("", words, "network", True))
        elif failed := _FAILED.match(line):
            complaints.append(Complaint("", clean(failed[0], 300), "network", True))
    least = expected.min_busbw_gbps
    if least is not None and rows and bandwidth < least:
        words = f"bus bandwidth {bandwidth:g} GB/s at {largest} bytes, {least:g} expected"
        complaints.append(Complaint("", words, "network", True))
    if ran.exit_code and not complaints:
        said = clean(ran.output.strip()[-200:])
        return Health("unclear", f"exit code {ran.exit_code} without a failure of NCCL: {said}")
    whole = any(_AVERAGE.search(line) for line in ran.output.splitlines())
    if rows and not whole and not complaints:
        return Health("unclear", "the table was cut off")
    otherwise = f"bus bandwidth {bandwidth:g} GB/s at {largest} bytes" if rows else "no table"
    return judged(complaints, passed=rows, otherwise=otherwise)


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
