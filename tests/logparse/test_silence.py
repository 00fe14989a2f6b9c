"""How long a log may be silent, by its own rhythm."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.jobs import Progress
from schedmate.logparse.progress.silence import (
    LONGEST_TIMES,
    PAUSE_TIMES,
    USUAL_TIMES,
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
