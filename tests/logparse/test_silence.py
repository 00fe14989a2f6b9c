"""How long a log may be silent, by its own rhythm, and when its job counts as stalled."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.jobs import Progress
from schedmate.logparse.progress.silence import (
    LONGEST_TIMES,
    PAUSE_TIMES,
    SURVIVED_TIMES,
    USUAL_TIMES,
    with_silence,
)
from schedmate.logparse.progress.tracker import track_log
from schedmate.logparse.reading import open_log


def progress_of(folder: Path, text: str) -> Progress:
    path = folder / "job.out"
    path.write_text(text)
    with open_log(path) as log:
        return track_log(log)[0]


def dated(seconds: int, step: int) -> str:
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"2026-11-23 {clock} INFO step {step}/1000 loss 0.{900 - step} lr 0.001\n"


def test_the_longest_pause_of_a_dated_log_is_to_be_expected_again(tmp_path: Path) -> None:
    times = [*range(0, 100, 2), *range(190, 250, 2)]  # after 50 steps 90 s of evaluation
    progress = progress_of(tmp_path, "".join(dated(at, n) for n, at in enumerate(times, 1)))
    assert progress.line_every_s == 2
    assert progress.silence_limit_s == LONGEST_TIMES * 92


def test_without_dates_the_step_time_counts(tmp_path: Path) -> None:
    lines = "".join(f"step {n * 10}/9000, loss 0.5, 0.250 s/step\n" for n in range(1, 40))
    progress = progress_of(tmp_path, lines)
    assert progress.line_every_s == pytest.approx(2.5)
    assert progress.silence_limit_s == pytest.approx(USUAL_TIMES * 2.5)
    paused = progress_of(tmp_path, f"{lines}Evaluating on 5000 samples\n")
    assert paused.silence_limit_s == pytest.approx(PAUSE_TIMES * USUAL_TIMES * 2.5)
    # what is written in blocks is silent between them
    blocks = progress_of(tmp_path, f"{lines}step 400/9000, lo")
    assert blocks.silence_limit_s is not None
    assert blocks.silence_limit_s > 8192 / len(lines) * 39 * 2.5


def test_a_log_that_counts_nothing_has_no_limit(tmp_path: Path) -> None:
    progress = progress_of(tmp_path, "hello\n" * 20)
    assert progress.silence_limit_s is None
    assert not with_silence(progress, None, 0.0, 1e6, least_s=1.0).stalled


def test_a_stalled_job_has_no_time_left_until_it_goes_on() -> None:
    log = Progress(step_time_s=1.0, eta_s=50.0, line_every_s=1.0, silence_limit_s=20.0, log_bytes=9)
    first = with_silence(log, None, 1000.0, 1010.0, least_s=60.0)
    assert (first.eta_s, first.silent_since, first.stalled) == (50.0, 1000.0, False)
    second = with_silence(log, first, 1000.0, 1050.0, least_s=60.0)
    assert not second.stalled  # shorter than any silence that counts
    third = with_silence(log, second, 1000.0, 1061.0, least_s=60.0)
    assert (third.eta_s, third.silent_since, third.stalled) == (None, 1000.0, True)
    # a clock that is fast on the file server changes nothing
    assert with_silence(log, second, 2000.0, 1061.0, least_s=60.0).stalled
    grown = log.model_copy(update={"log_bytes": 10})
    fourth = with_silence(grown, third, 1100.0, 1120.0, least_s=60.0)
    assert (fourth.eta_s, fourth.silent_since, fourth.stalled) == (50.0, 1100.0, False)
    # such a silence is no news any more
    survived = 61.0
    assert fourth.longest_silence_s == survived
    assert not with_silence(
        grown, fourth, 0.0, 1100 + SURVIVED_TIMES * survived, least_s=60
    ).stalled
    assert with_silence(grown, fourth, 0.0, 1101 + SURVIVED_TIMES * survived, least_s=60.0).stalled


def test_a_run_that_says_it_has_finished_is_not_stalled() -> None:
    log = Progress(step_time_s=1.0, ended="finished", line_every_s=1.0, silence_limit_s=20.0)
    assert not with_silence(log, None, 0.0, 1e5, least_s=60.0).stalled
