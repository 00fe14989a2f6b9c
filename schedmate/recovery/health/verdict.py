"""One answer for all tools: healthy, faulty or unclear, with the words that say so."""

from __future__ import annotations

from importlib import import_module
from typing import Literal, NamedTuple

from schedmate.jobs.diagnosis import FaultyComponent
from schedmate.schedulers.live.executor import Ran
from schedmate.terminal import clean

Reader = Literal["dcgm", "nvidia-smi", "nccl-tests", "kernel-log", "exit-code"]
"""Parser of the output: of `dcgmi diag -j`, `nvidia-smi -q -x`, `all_reduce_perf` and similar,
`dmesg` or `journalctl -k`, or of any command of which only the exit code counts."""

LONGEST_OUTPUT = 8 << 20
"""Characters of a tool's output that are read; a longer one is unclear."""


class Complaint(NamedTuple):
    """One fault that a tool reports."""

    part: str
    """Its subject: `GPU 3`, `0000:3b:00`; empty for the whole node."""
    words: str
    component: FaultyComponent | None
    blames: bool
    """Whether it is a fault of the hardware. Configuration, warnings and what programs bring about
    are not."""


class Health(NamedTuple):
    """Result of a test for the nodes that it ran on."""

    state: Literal["healthy", "faulty", "unclear"]
    detail: str
    complaints: tuple[Complaint, ...] = ()


class Expected(NamedTuple):
    """Values that the administrator expects of a healthy node."""

    gpus: int | None = None
    """GPUs per node."""
    min_busbw_gbps: float | None = None
    """Bus bandwidth of the largest message [GB/s]."""
    faulty_exit_codes: frozenset[int] = frozenset({1})
    """For `exit-code`: the codes that mean a faulty node; any other but 0 is unclear."""


NOT_RUN = frozenset({126, 127})
"""Exit codes of a shell for a command that does not exist, or may not be run."""


def assess(reader: Reader, ran: Ran, expected: Expected = Expected()) -> Health:  # noqa: B008 - frozen
    """The verdict of a command's output. It never raises: unreadable output is unclear."""
    if ran.exit_code is None:
        return Health("unclear", f"it did not end: {ran.detail or 'no answer in time'}")
    if ran.exit_code in NOT_RUN:
        said = clean(ran.output[-200:]) or f"exit code {ran.exit_code}"
        return Health("unclear", f"it could not be run: {said}")
    if len(ran.output) > LONGEST_OUTPUT:
        return Health("unclear", f"it printed over {LONGEST_OUTPUT >> 20} MiB")
    if reader == "exit-code":
        return _by_exit_code(ran, expected)
    module = import_module(f"schedmate.recovery.health.{reader.replace('-', '_')}")
    found: Health = module.assess(ran, expected)
    return found


def judged(complaints: list[Complaint], *, passed: int, otherwise: str) -> Health:
    """Faulty if any complaint blames the hardware, healthy if a test passed without complaints,
    else unclear."""
    found = tuple(complaints)
    blaming = [one for one in found if one.blames]
    if blaming:
        return Health("faulty", _said(blaming), found)
    if found:
        return Health("unclear", _said(list(found)), found)
    return Health("healthy", otherwise) if passed else Health("unclear", otherwise)


def _said(complaints: list[Complaint]) -> str:
    first = complaints[0]
    more = f" (and {len(complaints) - 1} more)" if len(complaints) > 1 else ""
    return f"{first.part + ': ' if first.part else ''}{first.words}{more}"


def _by_exit_code(ran: Ran, expected: Expected) -> Health:
    said = clean(ran.output.strip()[-300:]) or f"exit code {ran.exit_code}"
    if ran.exit_code == 0:
        return Health("healthy", said)
    if ran.exit_code in expected.faulty_exit_codes:
        return Health("faulty", said, (Complaint("", said, "node", True),))
    return Health("unclear", f"exit code {ran.exit_code}: {said}")
