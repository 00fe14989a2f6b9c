"""`SchedMate.on_progress`: an answer in time or None, never an exception."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from schedmate.jobs import JobSpec
from schedmate.logparse.progress.ratio import throughput_ratio
from schedmate.mate import SchedMate
from schedmate.settings import load_settings

JOB = JobSpec(job_id="17")


def write(path: Path, seconds: float, first: int, last: int) -> None:
    with path.open("a") as stream:
        stream.writelines(
            f"step {n} loss 1.5 step_time {seconds} s\n" for n in range(first, last + 1)
        )


def test_a_scheduler_sees_a_job_slow_down(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    with SchedMate(load_settings(deadline_s=60.0)) as mate:
        write(log, 0.5, 1, 100)
        before = mate.on_progress(JOB, log)
        assert before is not None
        assert before.step_time_s == 0.5
        assert mate.on_progress(JOB, log, since=before.log_bytes) is None
        write(log, 1.0, 101, 110)
        early = mate.on_progress(JOB, log, since=before.log_bytes)
        assert early is not None
        assert throughput_ratio(before, early).slowed is None
        write(log, 1.0, 111, 200)
        after = mate.on_progress(JOB, str(log), since=before.log_bytes)
        assert after is not None
        assert throughput_ratio(before, after).slowed


def test_none_and_a_word_in_the_log_for_what_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(os.urandom(3000))
    with (
        SchedMate(load_settings(deadline_s=60.0)) as mate,
        caplog.at_level(logging.WARNING, "schedmate"),
    ):
        assert mate.on_progress(JOB, tmp_path / "nothing") is None
        assert mate.on_progress(JOB, binary) is None
        assert mate.on_progress(JOB, binary, deadline_s=0) is None
    assert mate.on_progress(JOB, binary) is None
    assert "no progress for job 17" in caplog.text
    assert "does not exist" in caplog.text


def test_samples_a_second_with_the_batch_size_of_the_job(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text("".join(f"batch {n} speed: 100 samples/s loss 1.0\n" for n in range(60)))
    with SchedMate(load_settings(deadline_s=60.0)) as mate:
        assert mate.on_progress(JOB, log) is None
        progress = mate.on_progress(JOB, log, batch_size=50)
    assert progress is not None
    assert progress.step_time_s == 0.5
