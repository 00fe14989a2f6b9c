"""Patterns that a model writes: checked, kept, doubted, and never asked for twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Cli
from hypothesis import given
from hypothesis import strategies as st
from openai_server import Raw, Server, completion, serve

from schedmate.logparse.progress.written import holds

LOG = "warming up the reactors\n" + "".join(
    f"<<{10 * n}>> xi={2.5 - n / 100:.4f} dt~{0.40 + n % 3 / 100:.3f} qq={n % 9}\n"
    + (f"held-out {n} score=0.{n} of 0.9\n" if n % 9 == 0 else "")
    for n in range(1, 80)
)
LINES = [line for line in reversed(LOG.splitlines()) if line.startswith("<<")]
GOOD = r"^<<(?P<iteration>\d+)>> xi=(?P<loss>[\d.]+) dt~(?P<step_time_s>[\d.]+)"


def written(*patterns: str) -> dict[str, Any]:
    found = [{"example": n, "pattern": pattern} for n, pattern in enumerate(patterns, 1)]
    return completion(json.dumps({"patterns": found}))


@pytest.fixture
def track(tmp_path: Path, cli: Cli) -> Callable[..., dict[str, Any]]:
    """Tracks the log with a server's model, or without any; gives the JSON document."""
    path = tmp_path / "odd.log"
    path.write_text(LOG)

    def run(server: Server | None = None) -> dict[str, Any]:
        model = () if server is None else ("--llm-base-url", server.url)
        result = cli("track", str(path), "--json", *model)
        assert result.code == 0, result.err
        found: dict[str, Any] = json.loads(result.out)
        return found

    return run


def test_a_pattern_is_asked_for_once_and_kept(track: Callable[..., dict[str, Any]]) -> None:
    assert track()["step_time_s"] is None
    with serve(lambda request: written(GOOD)) as server:
        found = track(server)
        again = track(server)
    assert (found["step_time_s"], found["iteration"]) == (0.41, 790)
    assert (found["source"], found["loss"]) == ("model", 1.71)
    assert again["step_time_s"] == 0.41
    assert len(server.requests) == 1, "a kind of line is asked about once"
    assert track()["step_time_s"] == 0.41, "what was written serves without a model"


def test_the_model_sees_one_line_of_each_kind(track: Callable[..., dict[str, Any]]) -> None:
    with serve(lambda request: written(GOOD)) as server:
        track(server)
    asked = server.requests[0]["messages"][1]["content"]
    assert asked.count("xi=") == 1
    assert asked.count("held-out") == 1
    assert "reactors" not in asked


def test_a_refusal_is_kept_too(track: Callable[..., dict[str, Any]]) -> None:
    with serve(lambda request: written()) as server:
        assert track(server)["step_time_s"] is None
        assert track(server)["step_time_s"] is None
    assert len(server.requests) == 1


@pytest.mark.parametrize("reply", [Raw(503, b"", {"retry-after": "0"}), completion("no"), Raw()])
def test_a_model_that_fails_is_asked_again_another_time(
    track: Callable[..., dict[str, Any]], reply: Any
) -> None:
    with serve(lambda request: reply) as server:
        found = track(server)
        assert found["step_time_s"] is None
        assert any("language model" in note for note in found["notes"])
        server.answer = lambda request: written(GOOD)
        assert track(server)["step_time_s"] == 0.41


@pytest.mark.parametrize(
    "pattern",
    [
        r"^<<(?P<iteration>\d+)",  # reads no time, and nothing else tells one
        r"qq=(?P<iteration>\d+)",  # counts back and forth
        r"<<(?P<step_time_s>\d+)>>",  # no iteration
        r"<<790>> xi=(?P<iteration>\d+)",  # this line only
        r"(?P<iteration>\d+)(?P<password>.*)",  # not a group that was asked for
        r"(?P<iteration>\d+)(?=>>)",  # look-around: not in a linear-time engine
        r"(?P<iteration>\d+",
        "x" * 500,
        "",
    ],
)
def test_what_does_not_hold_changes_nothing(
    track: Callable[..., dict[str, Any]], pattern: str
) -> None:
    with serve(lambda request: written(pattern)) as server:
        found = track(server)
    assert found["step_time_s"] is None
    assert found["source"] == "none"


def test_a_pattern_made_to_take_for_ever_does_not() -> None:
    evil = r"^<<(?P<iteration>(?:\d+\d*)+)(?:.*.*)*xi=(?:[\d.]+[\d.]*)*$"
    long = [line + "1" * 500 for line in LINES]
    assert not holds(evil, long), "the last field is not a number: nothing matches, and at once"


@given(st.text(max_size=60))
def test_any_text_is_a_pattern_or_is_not(text: str) -> None:
    assert not holds(text, LINES), "no text this short names an iteration by chance"
