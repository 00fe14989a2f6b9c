"""How long a running job still takes: one posterior of its estimate and its log."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from cli_runner import Cli
from hypothesis import given
from hypothesis import strategies as st

from schedmate.jobs import Estimate, JobRecord, JobSpec, Progress, Remaining
from schedmate.mate import SchedMate
from schedmate.retrieval.remaining import remaining_time
from schedmate.settings import load_settings

SCALE = 0.5


def estimate(median: float = 3600.0, scale: float = SCALE) -> Estimate:
    """A Laplace distribution of the logarithm, as far as an estimate states it."""
    factor = math.exp(scale * math.log(5))
    return Estimate(
        duration_s=median,
        duration_p10_s=median / factor,
        duration_p50_s=median,
        duration_p90_s=median * factor,
        abstained=False,
    )


def progress(eta_s: float | None, spread: float = 0.0) -> Progress:
    step = None if eta_s is None else 1.0
    return Progress(
        eta_s=eta_s,
        step_time_s=step,
        step_time_p10_s=step and math.exp(-spread),
        step_time_p90_s=step and math.exp(spread),
    )


def times(answer: Remaining) -> tuple[float, float, float]:
    assert answer.remaining_p10_s is not None
    assert answer.remaining_s is not None
    assert answer.remaining_p90_s is not None
    return answer.remaining_p10_s, answer.remaining_s, answer.remaining_p90_s


durations = st.floats(1.0, 1e7)
shares = st.floats(0.0, 30.0)


def test_at_the_start_it_is_the_estimate() -> None:
    answer = remaining_time(0.0, estimate())
    past = estimate()
    expected = (past.duration_p10_s, past.duration_p50_s, past.duration_p90_s)
    assert times(answer) == pytest.approx(expected, rel=0.03)
    assert answer.sources == ["estimate"]
    assert answer.outlived == pytest.approx(0.0)


def test_eight_of_ten_jobs_that_still_run_end_within_the_interval() -> None:
    """Against the definition: jobs are drawn, those that ended are left out."""
    draw = random.Random(1)
    drawn = [
        3600.0 * math.exp(SCALE * draw.choice((-1, 1)) * draw.expovariate(1.0))
        for _ in range(40_000)
    ]
    for elapsed in (900.0, 3600.0, 8000.0, 20_000.0):
        low, median, high = times(remaining_time(elapsed, estimate()))
        left = [one - elapsed for one in drawn if one > elapsed]
        assert len(left) > 500
        within = sum(low <= one <= high for one in left) / len(left)
        assert within == pytest.approx(0.8, abs=0.03), elapsed
        assert sum(one <= median for one in left) / len(left) == pytest.approx(0.5, abs=0.03)


@given(durations, shares, st.one_of(st.none(), st.floats(1.0, 1e8)), st.floats(0.0, 2.0))
def test_whatever_is_known_the_answer_is_in_order(
    median: float, share: float, eta_s: float | None, spread: float
) -> None:
    elapsed = median * share
    answer = remaining_time(elapsed, estimate(median), progress(eta_s, spread))
    low, middle, high = times(answer)
    assert 0.0 <= low <= middle <= high < math.inf
    assert answer.outlived is not None
    assert 0.0 <= answer.outlived <= 1.0
    assert answer.unusual is (answer.outlived >= 0.99)


@given(durations, st.floats(0.0, 5.0), st.floats(0.0, 5.0))
def test_the_longer_it_runs_the_more_such_jobs_had_ended(
    median: float, share: float, more: float
) -> None:
    earlier = remaining_time(median * share, estimate(median)).outlived
    later = remaining_time(median * (share + more), estimate(median)).outlived
    assert earlier is not None
    assert later is not None
    assert earlier <= later + 1e-9


def test_the_log_narrows_the_estimate_and_decides_late_in_the_run() -> None:
    alone = remaining_time(3000.0, estimate())
    both = remaining_time(3000.0, estimate(), progress(1000.0))
    by_log = remaining_time(3000.0, None, progress(1000.0))
    assert both.sources == ["estimate", "log"]
    assert by_log.sources == ["log"]

    def width(answer: Remaining) -> float:
        low, _, high = times(answer)
        return math.log(high / low)

    assert width(both) <= min(width(alone), width(by_log)) * 1.02
    assert times(both)[1] == pytest.approx(1000.0, rel=0.15)
    # readings far apart say less
    doubtful = remaining_time(3000.0, estimate(), progress(1000.0, spread=1.5))
    assert width(doubtful) > width(both)


def test_what_the_estimate_held_for_impossible_follows_the_log() -> None:
    answer = remaining_time(100_000.0, estimate(60.0, scale=0.05), progress(50_000.0))
    assert times(answer)[1] == pytest.approx(50_000.0, rel=0.3)
    assert answer.unusual


def test_a_job_that_outlived_its_estimate_says_so() -> None:
    answer = remaining_time(3600.0 * 20, estimate())
    assert answer.unusual
    assert "longer than 99" in str(answer.reason)
    assert times(answer)[1] > 0
    assert not remaining_time(3600.0, estimate()).unusual


def test_all_quantiles_of_an_estimate_are_used() -> None:
    levels = [(at + 0.5) / 25 for at in range(25)]
    quantiles = [100.0 if level < 0.6 else 10_000.0 * (1 + level) for level in levels]
    two = estimate()
    object.__setattr__(two, "quantiles_s", quantiles)
    # of jobs that run for 150 s, only the long kind is left
    assert times(remaining_time(150.0, two))[0] > 5_000.0


def test_nothing_known_is_no_answer() -> None:
    answer = remaining_time(10.0, Estimate(reason="no similar job"), progress(None))
    assert answer.remaining_s is None
    assert answer.reason == "no similar job"
    stalled = remaining_time(10.0, None, Progress(stalled=True))
    assert "may hang" in str(stalled.reason)


def test_a_run_that_is_over_takes_no_longer() -> None:
    assert times(remaining_time(10.0, estimate(), Progress(ended="finished"))) == (0.0, 0.0, 0.0)


def test_an_old_reading_of_the_log_counts_from_then() -> None:
    fresh = remaining_time(5_000.0, None, progress(1_000.0))
    aged = remaining_time(5_000.0, None, progress(1_000.0), progress_age_s=900.0)
    assert times(aged)[1] < times(fresh)[1] / 5


LOG = "".join(f"Epoch [{n}/100], Loss: 0.{n}, time: 10.0 s\n" for n in range(1, 31))


@pytest.fixture
def known(tmp_path: Path) -> SchedMate:
    """A history with past runs of a net, and a job of it that runs now."""
    mate = SchedMate(load_settings(history=tmp_path / "history", mode="static"))
    document = {
        "metadata": {
            "model_config": {"model_name": "resnet50"},
            "training_config": {"iters": 100, "iter_type": "epoch"},
        }
    }
    for number in range(8):
        ended = {
            "job_id": f"past-{number}", "state": "COMPLETED", "submit_time": 1e9 + number,
            "end_time": 1e9 + 2000, "duration_s": 1000.0 + number,
        }  # fmt: skip
        mate.store(JobRecord.model_validate(document | ended))
    now = {"job_id": "now", "state": "RUNNING", "submit_time": 1.1e9, "start_time": 1.1e9}
    mate.store(JobRecord.model_validate(document | now))
    return mate


def test_the_hook_asks_the_history_and_the_log(known: SchedMate, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(LOG)
    with known as mate:
        alone = mate.estimate_remaining(JobSpec(job_id="now"), 300.0, deadline_s=30)
        both = mate.estimate_remaining(JobSpec(job_id="now"), 300.0, log=log, deadline_s=30)
        nothing = mate.estimate_remaining(JobSpec(job_id="nobody's"), 300.0, deadline_s=30)
    assert alone is not None
    assert both is not None
    assert nothing is not None
    assert alone.remaining_s == pytest.approx(700.0, rel=0.1)
    assert both.remaining_s == pytest.approx(700.0, rel=0.1)
    assert both.sources == ["estimate", "log"]
    assert nothing.remaining_s is None


def test_track_says_how_long_a_job_still_takes(cli: Cli, known: SchedMate, tmp_path: Path) -> None:
    known.close()
    log = tmp_path / "train.log"
    log.write_text(LOG)
    words = ("track", str(log), "--job", "now", "--history", str(tmp_path / "history"))
    done = cli(*words, "--elapsed", "5m", "--json")
    assert done.code == 0, done.err
    remaining = json.loads(done.out)["remaining"]
    assert remaining["remaining_s"] == pytest.approx(700.0, rel=0.1)
    assert remaining["sources"] == ["estimate", "log"]
    shown = cli(*words, "--elapsed", "5m")
    assert "left: about 11 min" in shown.out
    long_ago = cli(*words)
    assert "longer than 99" in long_ago.out
    assert cli("track", str(log), "--elapsed", "5m").code == 2
    assert cli(*words[:3], "nobody", *words[4:]).code != 0
