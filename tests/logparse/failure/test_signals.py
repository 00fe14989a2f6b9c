"""What a shell says of a program that a signal ended, and of one that it did not find."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.jobs import Diagnosis
from schedmate.logparse.failure import diagnose
from schedmate.logparse.reading import open_log

STEPS = "".join(f"step {n}/5000 loss {3 - n / 1000:.3f}\n" for n in range(1, 13))


def of(path: Path, end: str) -> Diagnosis:
    path.write_text(STEPS + end + "\n")
    with open_log(path) as log:
        return diagnose(log)


@pytest.mark.parametrize("core", ["(core dumped) ", ""])
@pytest.mark.parametrize(
    ("signal", "rule"),
    [
        ("Aborted                 ", None),  # its reason stands elsewhere
        ("Bus error               ", "torchelastic-signal-bus"),
        ("Illegal instruction     ", "instruction-unknown"),
        ("Floating point exception", "torchelastic-signal-segv"),
        ("Segmentation fault      ", "torchelastic-signal-segv"),
        ("Killed                  ", "host-killed"),
    ],
)
def test_bash_names_the_signal(signal: str, rule: str | None, core: str, tmp_path: Path) -> None:
    line = f"train.sh: line 3:    12 {signal}{core or ' '}python train.py"
    found = of(tmp_path / "job.out", line)
    assert (found.error_type != "none", found.rule, found.line) == (True, rule, 13)


MISSING = "job.sh: line 2: nvidia-smi: command not found\n"


@pytest.mark.parametrize(
    "crash",
    [
        "Segmentation fault (core dumped)",
        "job.sh: line 3: 12 Aborted (core dumped) python train.py",
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\nKeyError: 3',
    ],
)
def test_a_command_that_was_missed_on_the_way_is_no_cause(crash: str, tmp_path: Path) -> None:
    found = of(tmp_path / "job.out", MISSING + "loading the model\n" + crash)
    assert (found.error_type != "none", found.rule != "shell-no-command") == (True, True)
    assert found.line != 13


@pytest.mark.parametrize("end", ["", "srun: error: n1: task 0: Exited with exit code 127"])
def test_a_command_that_is_missing_ends_the_job(end: str, tmp_path: Path) -> None:
    found = of(tmp_path / "job.out", MISSING.replace("nvidia-smi", "torchrun") + end)
    assert (found.rule, found.line) == ("shell-no-command", 13)


@pytest.mark.parametrize(
    "end",
    [
        "Killed",
        "main process exited with code 137",
        "subprocess.CalledProcessError: Command 'x' died with <Signals.SIGKILL: 9>.",
        "ERROR:api:failed (exitcode: -9) local_rank: 3 (pid: 8) of binary: python",
        "  exitcode  : -9 (pid: 8)",
    ],
)
def test_a_kill_is_looked_into_before_memory_is_blamed(end: str, tmp_path: Path) -> None:
    found = of(tmp_path / "job.out", end)
    assert found.plan is not None
    assert (found.plan.id, found.plan.steps[0].action) == ("killed", "check")
    assert "fails again" not in found.plan.summary
    assert any("dmesg" in command for command in found.plan.steps[0].commands)
    assert "{" not in found.plan.summary + str(found.plan.steps[0].commands)
