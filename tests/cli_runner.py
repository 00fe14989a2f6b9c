"""The command line as a fixture gives it to tests; see `cli` in conftest.py."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Output(NamedTuple):
    """What one run of the command line came to."""

    code: int
    out: str
    err: str


class Cli(Protocol):
    """Runs `schedmate` with these arguments."""

    def __call__(self, *arguments: str) -> Output: ...
