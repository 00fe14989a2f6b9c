"""Numbers and times that no job has: a user's log breaks neither the tracker nor a report."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schedmate import cli
from schedmate.base.data import LONGEST_S
from schedmate.base.inputs import moment_of
from schedmate.logparse.numbers import (
    LARGEST,
    LATEST_S,
    bounded_time,
    read_clock,
    read_count,
    read_number,
)
from schedmate.logparse.progress.line import Sample, read_line
from schedmate.logparse.progress.words import labelled_numbers, shared_time
from schedmate.logparse.reading.lines import dated, parse_time, seconds_apart
from schedmate.report.charts import date_labels, round_moments

_DIGITS = st.one_of(
    st.integers(0, 10**9).map(str),
    st.integers(1, 5_000).map(lambda size: "9" * size),
    st.tuples(st.integers(0, 10**6), st.integers(1, 700)).map(lambda p: f"{p[0]}.{'3' * p[1]}"),
    st.sampled_from(["nan", "inf", "-inf", "1e400", "1e-400", "0", "-0", ".", "1.2.3", "1,2,3"]),
)
_WORDS = st.sampled_from(
    ["loss: {}", "loss={}k", "loss {}M", "step {}", "step {}/{}", "epoch [{}/{}]", "lr={}", "{}k",
     "{} steps in {} s", "{}/{} [{}:00<{}:00, {}it/s]", "{}%|##| {}k/{}M [{}:{}<{}:{}, {}s/it]",
     "eta: {} days, {}:02:03", "time {}ms", "{} tokens/s", "iteration {} of {}", "took {}m {}s",
     "{{'loss': {}, 'epoch': {}}}", "elapsed {}s{}ms", "{}-12-01 {}:00:00", "samples: {}B"]
)  # fmt: skip


@st.composite
def _lines(draw: st.DrawFn) -> str:
    parts = draw(st.lists(_WORDS, min_size=1, max_size=3))
    return " ".join(
        part.format(*(draw(_DIGITS) for _ in range(part.count("{}")))) for part in parts
    )


@given(_lines())
@example(f"loss: 0.{'9' * 330}k step 1")
@example(f"{'9' * 400}/{'9' * 400} [00:01<00:02, 1.0it/s]")
def test_no_digits_break_the_reading_of_a_line(line: str) -> None:
    for number in labelled_numbers(line):
        assert number.total is None or number.total <= LARGEST
    time = shared_time(line)
    assert time is None or math.isfinite(time)
    sample = read_line(line)
    if not isinstance(sample, Sample):
        return
    for name in ("iteration", "total", "epoch", "total_epochs", "elapsed_s", "eta_s"):
        value = getattr(sample, name)
        assert value is None or abs(value) <= LARGEST, (name, value)


@given(_DIGITS)
def test_a_number_is_read_as_it_is_or_not_at_all(text: str) -> None:
    try:
        value = read_number(text)
    except ValueError:
        return
    assert value == float(text.replace(",", "")) or (math.isnan(value) and text == "nan")
    assert math.isfinite(value) or text in ("nan", "inf", "-inf")
    assert read_count(text) is None or read_count(text) == value


@given(st.lists(_DIGITS, min_size=1, max_size=4).map(":".join))
def test_a_clock_is_no_longer_than_any_job(text: str) -> None:
    with suppress(ValueError):
        assert math.isnan(seconds := read_clock(text)) or seconds <= LONGEST_S


@given(
    st.integers(0, 9999), st.integers(0, 99), st.integers(0, 99),
    st.sampled_from("-/. "), st.sampled_from([":", "."]),
)  # fmt: skip
@example(9792, 12, 31, "-", ":")
def test_times_are_those_that_a_log_may_be_from(
    year: int, month: int, day: int, between: str, clock: str
) -> None:
    text = f"{year:04}{between}{month:02}{between}{day:02} 23{clock}59{clock}59,999 loss"
    time = parse_time(text)
    assert time is None or time <= LATEST_S
    if time is not None:
        for other in (0.0, 86_400.0, 946_684_800.0, 4e9, LATEST_S):
            seconds_apart(time, other)
            seconds_apart(other, time)
            assert dated(time, [other]) is None or bounded_time(time) == time


@given(st.floats(-LONGEST_S, LONGEST_S), st.floats(0, 2 * LONGEST_S))
@example(2.4e11, 2.5e11)
def test_an_axis_of_any_two_times_has_labels(low: float, span: float) -> None:
    ticks = round_moments(low, low + span + 1.0)
    assert len(date_labels(ticks)) == len(ticks)
    assert moment_of(low).year


LINES = (
    f"2024-01-01 00:00:00 step 1/100 loss: 0.{'9' * 330}k 1.0 s/it\n",
    f"2024-01-01 00:00:10 step {'7' * 500}/{'8' * 500} loss 1e999\n",
    f"{'9' * 400}k/{'9' * 400}M [{'9' * 30}:00<{'9' * 30}:00, {'9' * 300}kit/s]\n",
    "9792-12-31 23:59:59 step 3/100 loss 2\n",
    "9999-12-31 23:59:59 RuntimeError: CUDA error: device-side assert triggered\n",
    "Traceback (most recent call last):\nValueError: x\n",
)


@pytest.mark.parametrize("command", ["track", "diagnose", "triage"])
def test_a_log_of_such_lines_is_answered(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    (tmp_path / "job.log").write_text("".join(LINES * 20))
    (tmp_path / "jobs.csv").write_text("log,start\njob.log,9792-01-01\n")
    monkeypatch.chdir(tmp_path)
    target = "jobs.csv" if command == "triage" else "job.log"
    more = ["--out", "r.html"] if command == "triage" else []
    monkeypatch.setattr("sys.argv", ["schedmate", command, target, "--json", *more])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0
    json.loads(capsys.readouterr().out, parse_constant=_refuse)
    assert command != "triage" or (tmp_path / "r.html").stat().st_size > 1_000


def _refuse(name: str) -> None:
    raise AssertionError(name)
