"""Commands that print, run or leave processes behind without end."""

from __future__ import annotations

import resource
import sys

import pytest
from processes import ends

from schedmate.base import running
from schedmate.base.running import CutOffError, Running, run
from schedmate.cluster.adapter import ExecutorError
from schedmate.cluster.recovery import local
from schedmate.cluster.recovery.local import run_command
from schedmate.cluster.slurm import adapter as slurm
from schedmate.cluster.slurm.reading import LONGEST_ROW, ShapeError, parse_rows, read_queued

ENDLESS = (sys.executable, "-c", "import sys\nwhile True: sys.stdout.write('x' * 65536)")
SLOWER_AND_SLOWER_S = (0.3, 1.0, 5.0, 60.0)
"""Deadlines for commands that run until then; on a busy machine they take long to begin."""
NOISY = (sys.executable, "-c", "import sys\nwhile True: sys.stderr.write('x' * 65536)")


def test_output_without_end_is_cut_off_at_its_bytes() -> None:
    done = run(ENDLESS, timeout_s=60, most=1 << 20)
    assert (done.code, done.cut_off) == (None, "size")
    assert len(done.output) <= 1 << 20


def test_errors_without_end_are_dropped_until_the_deadline() -> None:
    for timeout_s in SLOWER_AND_SLOWER_S:
        done = run(NOISY, timeout_s=timeout_s)
        assert (done.code, done.cut_off, done.output) == (None, "time", b"")
        if len(done.errors) == running.MOST_ERRORS:
            return
    pytest.fail(f"{len(done.errors)} bytes of errors")


def test_what_a_command_leaves_behind_is_killed_with_it() -> None:
    for timeout_s in SLOWER_AND_SLOWER_S:
        done = run(["sh", "-c", "sleep 3600 & exec echo $!"], timeout_s=timeout_s)
        assert done.cut_off == "time"
        if done.output:
            assert ends(int(done.output))
            return
    pytest.fail("nothing was printed")


def test_a_command_s_exit_code_and_output_are_what_they_are() -> None:
    done = run(["sh", "-c", "printf 'a\\377'; echo b >&2; exit 7"], timeout_s=20)
    assert (done.code, done.text(), done.errors, done.cut_off) == (7, "a\udcff", b"b\n", "")
    together = run(["sh", "-c", "echo a; echo b >&2"], timeout_s=20, together=True)
    assert sorted(together.output.split()) == [b"a", b"b"]
    with pytest.raises(FileNotFoundError):
        run(["/no/such/command"], timeout_s=1)


def test_a_stream_that_is_cut_off_says_so_at_its_end() -> None:
    with Running(ENDLESS, timeout_s=60, most=1 << 20) as endless:
        pieces = endless.text()
        assert len(next(pieces)) > 0
        with pytest.raises(CutOffError, match="printed more than 1 MiB"):
            assert sum(map(len, pieces)) <= 1 << 20


def test_slurm_s_commands_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    # `env` runs what comes after its variables, so that any program stands for Slurm's
    monkeypatch.setattr(slurm, "run", lambda words, **how: run(words, **{**how, "most": 1 << 20}))
    commands = slurm.Commands()
    with pytest.raises(ExecutorError, match="printed more than"):
        commands.run(*ENDLESS)
    with pytest.raises(ExecutorError, match="did not end within"):
        commands.run("sleep", "60", timeout_s=0.3)
    with (
        pytest.raises(ExecutorError, match="did not end within"),
        commands.streamed("sleep", "60", timeout_s=0.3) as text,
    ):
        list(text)
    with (
        pytest.raises(slurm.CommandError, match="ended with 3: no"),
        commands.streamed("sh", "-c", "echo a; echo no >&2; exit 3") as text,
    ):
        list(text)


def test_recovery_s_commands_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "LONGEST_OUTPUT", 1 << 20)
    assert run_command(("sh", "-c", "echo a >&2; exit 4"), 20.0)[:2] == (4, "a\n")
    for timeout_s in SLOWER_AND_SLOWER_S:
        ran = run_command(ENDLESS, timeout_s)  # it is not ended halfway for what it prints
        assert ran.exit_code is None
        if len(ran.output) == 1 << 20:
            return
    pytest.fail(f"{len(ran.output)} bytes")


def test_a_long_queue_is_read_as_a_stream() -> None:
    program = "for n in range(200_000): print(f'{n}|{n}|N/A|PENDING|1|1795362348|N/A|u|p||None')"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Running([sys.executable, "-c", program], timeout_s=300) as squeue:
        assert (
            sum(1 for _ in map(read_queued, running.lines_of(squeue.text()))) == 200_000
        )  # 190 MB as a list
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10


def test_a_row_of_accounting_that_does_not_end_is_refused() -> None:
    pieces = ("x" * 65_536 for _ in range(2 * LONGEST_ROW // 65_536))
    with pytest.raises(ShapeError, match="does not end"):
        list(parse_rows(pieces, ("JobID",), "|"))
