"""Logs of simulated jobs are read by the real tracker and the real handler."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schedmate.logparse.failure.handler import diagnose
from schedmate.logparse.progress.ratio import throughput_ratio
from schedmate.logparse.progress.tracker import track
from schedmate.logparse.reading import Log, LogFile
from schedmate.logparse.reading.storage import Memory
from schedmate.schedulers.adapters.simulated import (
    JobLog,
    LogEnding,
    LogFormat,
    Stretch,
    draw_ending,
    draw_log,
    log_endings,
    log_formats,
)

START = 1_700_000_000.0


def file_of(text: str) -> LogFile:
    return LogFile("job.out", Memory(text.encode()))


@pytest.mark.parametrize("layout", log_formats(), ids=lambda one: one.name)
@pytest.mark.parametrize("step_s", [0.07, 2.3])
@pytest.mark.parametrize("speed", [0.5, 0.9])
def test_tracker_finds_the_simulated_speed_or_abstains(
    layout: LogFormat, step_s: float, speed: float
) -> None:
    log = JobLog(layout, step_s, 200_000, f"{layout.name}/{step_s}")
    text = log.head(START) + log.lines(Stretch(START, 1, 5000, step_s, fresh=True))
    before = track(file_of(text))
    steps = int(1200 * speed / step_s)
    packed = Stretch(START + 5000 * step_s, 5001, 5000 + steps, step_s / speed)
    after = track(file_of(text + log.lines(packed)), since=before.log_bytes)
    ratio = throughput_ratio(before, after).ratio
    if layout.says:
        assert before.step_time_s == pytest.approx(step_s, rel=0.1)
        assert ratio == pytest.approx(speed, rel=0.1)
    else:
        assert ratio is None


@given(
    seed=st.text(max_size=8),
    duration=st.floats(1.0, 1e6),
    first=st.integers(1, 10_000),
    steps=st.integers(0, 10_000),
)
@example(seed="000000", duration=1.0, first=1, steps=619)
@settings(max_examples=20)
def test_a_log_is_text_in_order_and_the_same_for_the_same_seed(
    seed: str, duration: float, first: int, steps: int
) -> None:
    log = draw_log(seed, duration)
    first = min(first, log.total)
    stretch = Stretch(START, first, min(first + steps, log.total), log.step_s)
    text = log.head(START) + log.lines(stretch)
    again = draw_log(seed, duration)
    assert again.head(START) + again.lines(stretch) == text
    assert len(text) < 100_000
    assert log.total >= 1


def test_first_steps_are_slow_and_the_reader_is_not_misled() -> None:
    layout = next(one for one in log_formats() if one.name == "json-lines")
    log = JobLog(layout, 3.0, 1000, "warm")
    warm = track(file_of(log.lines(Stretch(START, 1, 15, 3.0, fresh=True))))
    steady = track(file_of(log.lines(Stretch(START, 1, 600, 3.0, fresh=True))))
    assert warm.step_time_s is not None
    assert warm.step_time_s > 1.5 * 3.0
    assert steady.step_time_s == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize("ending", log_endings(), ids=lambda one: one.name)
def test_endings_are_read_and_some_mislead(ending: LogEnding) -> None:
    log = JobLog(log_formats()[0], 0.4, 20_000, "x")
    text = log.lines(Stretch(START, 1, 5000, 0.4)) + ending.write("a", 5000)
    verdict = diagnose(Log("job", [file_of(text)]))
    assert verdict.plan is not None
    right = (verdict.plan.restart != "no") == (ending.type == "infrastructure")
    # What even an expert could not tell from the log alone.
    misleading = {
        "node without power, and without a word",
        "faulty GPU that looks like a bug",
        "CUDA error of the hardware",  # a launch failure is as often the program's
        "silent data corruption",
        "ranks that disagree, seen as a timeout only",
    }
    assert right or ending.name in misleading


def test_draws_follow_the_cause_that_was_asked_for() -> None:
    drawn = {draw_ending(True, str(n)).name for n in range(300)}
    assert all(one.name in drawn for one in log_endings() if one.type == "infrastructure")
    assert all(draw_ending(False, str(n)).type != "infrastructure" for n in range(50))
    assert draw_ending(True, "7") == draw_ending(True, "7")
