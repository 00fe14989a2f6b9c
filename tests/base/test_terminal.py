"""Text of others cannot control the terminal."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from cli_runner import Cli
from hypothesis import given
from hypothesis import strategies as st

from schedmate.base.terminal import Screen, clean, counted, progress, say


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("resnet50", "resnet50"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\x1b]0;new title\x07b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink"),
        ("a\x1bPq#0\x1b\\b", "ab"),
        ("a\x1bcb", "ab"),
        ("unfinished \x1b]0;title", "unfinished"),
        ("one\ntwo\r\tthree", "one two three"),
        ("\x9b31mraw C1", "31mraw C1"),
        ("abc\u202edef\u2066", "abc def"),
        ("naïve 模型", "naïve 模型"),
        (None, "None"),
    ],
)
def test_clean(text: str | None, expected: str) -> None:
    assert clean(text) == expected


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 jobs"), (1, "1 job"), (1.0, "1 job"), (2.5, "2.5 jobs"), (1_000_000, "1,000,000 jobs")],
)
def test_counted(number: float, text: str) -> None:
    assert counted(number, "job") == text


def test_talk_is_cleaned(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\x1b]0;title\x07b\nc")
    assert capsys.readouterr() == ("", "ab c\n")


def test_long_text_is_cut() -> None:
    assert clean("x" * 100, limit=10) == "x" * 9 + "…"


@given(st.text(st.characters()))
def test_what_is_clean_is_printable_and_stays_clean(text: str) -> None:
    once = clean(text)
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in once)
    assert clean(once) == once


def test_what_is_printed_holds_no_markup() -> None:
    stream = io.StringIO()
    Screen(stream).line("[bold]x[/bold] :smile: \x1b[31m[/nothing]")
    assert stream.getvalue() == "[bold]x[/bold] :smile: [/nothing]\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("total", [3, None])
def test_progress_is_drawn_for_somebody_who_looks(
    monkeypatch: pytest.MonkeyPatch, total: int | None
) -> None:
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen)
    with progress("reading", total) as advance:
        advance(2, "2 \x1b]0;logs\x07[b]of 3")
    assert "reading" in screen.getvalue()
    assert "2 [b]of 3" in screen.getvalue()


def test_long_work_says_in_a_log_how_far_it_is(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "trace.csv"
    rows = "".join(f"j{n},{n},60,1\n" for n in range(300))
    trace.write_text(f"job_id,submit_s,duration_s,gpus\n{rows}")
    command = ["simulate", str(trace), "--policy", "lucid", "--cluster", "1x8", "--no-check"]
    assert "simulating" not in cli(*command).err
    monkeypatch.setattr("schedmate.base.terminal.PROGRESS_EVERY_S", 0.0)
    done = cli(*command)
    said = [line for line in done.err.splitlines() if line.startswith("simulating: ")]
    assert said
    assert all(re.fullmatch(r"simulating: \d+%, lucid, for .+", line) for line in said)
    assert "simulating" not in done.out


def test_progress_leaves_a_file_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("reading", 3) as advance:
        advance(2, "x")
    assert capsys.readouterr() == ("", "")
