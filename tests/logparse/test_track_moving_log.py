"""`schedmate track` on a log that changes while it is read, or that may not be read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_runner import Cli
from processes import LONG_S

from schedmate.logparse.progress.tracker import track_log
from schedmate.logparse.reading import LogError, open_log


def steps(first: int, last: int, seconds: float = 0.5) -> str:
    return "".join(f"step {n} loss 2.5 step_time {seconds} s\n" for n in range(first, last + 1))


def cut(path: Path) -> None:
    os.truncate(path, len(steps(1, 40)))


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    path.unlink()
    path.write_text("another job\n")


def grow(path: Path) -> None:
    with path.open("a") as stream:
        stream.write(steps(20_001, 30_000))


@pytest.mark.parametrize("change", [cut, remove, replace, grow])
def test_what_happens_to_a_log_while_it_is_read_changes_no_answer(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    path = tmp_path / "job.out"
    path.write_text(steps(1, 20_000))
    with open_log(path) as log:
        change(path)
        progress, _ = track_log(log)

    assert progress.step_time_s == 0.5
    assert progress.iteration in (40, 20_000)


@contextmanager
def unprivileged() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_log_without_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text(steps(1, 60))
    path.chmod(0)
    with unprivileged(), pytest.raises(LogError, match="Permission denied"):
        open_log(path)


def test_lines_of_control_characters_reach_no_terminal(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    noise = "\x1b[2J\x1b]0;x\x07\x9b31m\b\b\x0e\x7f"
    path.write_text(
        "".join(f"{noise}step {n} loss 2.5{noise} step_time 0.5 s\n" for n in range(60))
    )
    done = cli("track", str(path))

    assert "500 ms per step" in done.out
    assert not any(ord(letter) < 32 and letter != "\n" for letter in done.out + done.err)
    assert "\x9b" not in done.out


def test_following_outlives_a_log_that_is_cut_or_away_for_a_while(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    before = "starting\n" * 50
    path.write_text(before + steps(1, 60))
    running = subprocess.Popen(
        [
            *(sys.executable, "-m", "schedmate", "track", str(path), "--follow", "--json"),
            *("--every", "0.1", "--since", str(len(before))),
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert running.stdout is not None
        assert json.loads(running.stdout.readline())["iteration"] == 60
        path.write_text(steps(1, 9, seconds=4.0))  # cut in place, shorter than what was left out
        assert json.loads(running.stdout.readline())["step_time_s"] == 4.0
        path.unlink()
        path.with_suffix(".new").write_text(steps(1, 300, seconds=7.0))
        path.with_suffix(".new").rename(path)
        assert json.loads(running.stdout.readline())["step_time_s"] == 7.0
        running.send_signal(signal.SIGINT)
        assert running.wait(LONG_S) == 130
    finally:
        running.kill()
        running.communicate()


def test_logs_that_cannot_be_compared_say_why(cli: Cli, tmp_path: Path) -> None:
    path, silent, empty = tmp_path / "a.out", tmp_path / "b.out", tmp_path / "c.out"
    path.write_text(steps(1, 60))
    silent.write_text("nothing of training\n" * 9)
    empty.write_text("")

    assert "no step time after the change" in cli("track", "--compare", str(path), str(silent)).out
    assert cli("track", "--compare", str(path), str(silent), "--fail-on-abstain").code == 4
    assert "it is empty" in cli("track", "--compare", str(path), str(empty)).err
