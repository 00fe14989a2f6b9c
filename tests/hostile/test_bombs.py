"""Programs and files that describe more than a machine holds are read within limits all the same.

Each case of bombs.yaml is read in a process of its own, whose CPU time and memory are limited by
the kernel: it must end, and say what it found or one sentence.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext
from pathlib import Path

import bombs
import pytest

CASES = bombs.cases()
WALL_S = 240
"""For a machine that many share; the limit that counts is that of the CPU time [s]."""


@pytest.fixture(scope="module")
def server() -> ForkServerContext:
    """Processes that have loaded what they need already, and nothing else of the tests."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bombs", "schedmate.agent.static"])
    return context


@pytest.mark.parametrize("name", CASES)
def test_a_bomb_is_read_within_its_limits(
    name: str, server: ForkServerContext, tmp_path: Path
) -> None:
    case = CASES[name]
    root = tmp_path / "repo"
    bombs.write(case, root)
    command = bombs.pumped(case["command"]) if "command" in case else None
    process = server.Process(target=bombs.read, args=(str(root), command, case.get("read")))
    process.start()
    process.join(WALL_S)
    assert process.exitcode == 0, "killed at its limits, or ended by an error"
