"""`SchedMate.on_failure`: a diagnosis in time or None, never an exception."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from schedmate.jobs import JobSpec
from schedmate.mate import SchedMate
from schedmate.settings import load_settings

JOB = JobSpec(job_id="17")
FAULT = "Traceback (most recent call last):\n  File 'a.py', line 1\n"


def test_a_scheduler_learns_what_to_do(tmp_path: Path) -> None:
    first, second, kernel = tmp_path / "rank0.log", tmp_path / "rank1.log", tmp_path / "dmesg"
    first.write_text(FAULT + "ConnectionResetError: [Errno 104] Connection reset by peer\n")
    second.write_text(FAULT + "RuntimeError: CUDA error: unspecified launch failure\n")
    kernel.write_text("NVRM: Xid (PCI:0000:44:00): 48, pid=1, An uncorrectable double bit error\n")
    with SchedMate(load_settings(deadline_s=60.0)) as mate:
        one = mate.on_failure(JOB, second)
        assert one is not None
        assert (one.error_name, one.rank) == ("CUDA Error", None)
        two = mate.on_failure(JOB, [first, second])
        assert two is not None
        assert (two.error_name, two.rank) == ("CUDA Error", 1)
        both = mate.on_failure(JOB, [first, str(second)], node_logs=[kernel])
        assert both is not None
        assert (both.error_name, both.file) == ("ECC Error", str(kernel))
        assert both.plan is not None
        assert both.plan.restart == "elsewhere from checkpoint"


def test_none_and_a_word_in_the_log_for_what_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(os.urandom(3000))
    with (
        SchedMate(load_settings(deadline_s=60.0)) as mate,
        caplog.at_level(logging.WARNING, "schedmate"),
    ):
        assert mate.on_failure(JOB, tmp_path / "nothing") is None
        assert mate.on_failure(JOB, binary) is None
        assert mate.on_failure(JOB, []) is None
        assert mate.on_failure(JOB, binary, deadline_s=0) is None
    assert mate.on_failure(JOB, binary) is None
    assert "no diagnosis for job 17" in caplog.text
