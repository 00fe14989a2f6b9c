"""Many jobs at once on a real Slurm: failures are found behind them, newcomers do not wait."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from agents import AgentFiles
from slurm_testbed import USER, Testbed, missing, until
from training_jobs import NODE_FAULT, make_repository

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    """A Slurm of its own, since its controller is made to forget its jobs."""
    why = missing()
    if why is not None:
        pytest.skip(why)
    root = Path(tempfile.mkdtemp(prefix="schedmate-storm-"))
    root.rmdir()
    with Testbed(root) as testbed:
        make_repository(testbed.jobs_folder / "training")
        yield testbed
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def files(bed: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentFiles:
    """An agent's files; this process's commands find the testbed."""
    bed.clear()
    monkeypatch.setenv("SLURM_CONF", str(bed.conf))
    monkeypatch.setenv("PATH", f"{bed.environment['PATH']}")
    return AgentFiles(bed, tmp_path)


def submit_many(bed: Testbed, count: int, *words: str) -> list[str]:
    """Submit jobs as fast as the controller takes them."""
    line = f"for n in $(seq {count}); do sbatch --parsable {' '.join(words)}; done"
    return bed.run("sh", "-c", line, user=USER, timeout=300).stdout.split()


def forget(bed: Testbed) -> None:
    """Make the controller forget all jobs, as it does after MinJobAge; accounting keeps them."""
    bed.stop("slurmctld")
    for file in (bed.root / "state").glob("job_state*"):
        file.unlink()
    bed.start("slurmctld")


def test_failures_are_diagnosed_before_anything_is_learned(bed: Testbed, files: AgentFiles) -> None:
    files.allow(learn={"every": 0.001, "seconds": 0.001}, advise={"seconds": 0.001})
    with files.opened() as setup:
        setup.agent.once()
        waiting = submit_many(bed, 300, "-H", "--gres=gpu:4", "--wrap", "true")
        ended = submit_many(bed, 30, "--wrap", "true")
        log = bed.jobs_folder / "fault.txt"
        log.write_text(NODE_FAULT)
        wrap = f"cat {log} >&2; exit 1"
        failed = bed.submit(wrap, "-o", "../jobs/disk-%j.out", "-e", "../jobs/disk-%j.err", gpus=1)
        bed.run("scancel", *waiting)
        for job in (*ended, failed):
            until("its row", 60, lambda job=job: bed.settled(job))
        first = setup.agent.once()
        assert [one.job for one in first.failed] == [failed]
        (verdict,) = first.failed
        assert verdict.diagnosis is not None
        assert verdict.diagnosis.error_name == "ECC Error"
        assert verdict.diagnosis.file.endswith(f"disk-{failed}.err")
        # jobs that never ran cost nothing, the others come later
        assert first.learned + first.unlearned == 31
        assert first.unlearned > 0
    # whoever comes after does not do it again
    learned = first.learned
    while True:
        with files.opened() as setup:
            found = setup.agent.once()
        assert not found.failed
        learned += found.learned
        if not found.unlearned:
            break
    assert learned == 31
    with files.kept() as record:
        assert len(list(record.entries(kind="failure"))) == 1


def test_the_log_of_a_job_that_the_controller_has_forgotten_is_found(
    bed: Testbed, files: AgentFiles
) -> None:
    repository = bed.jobs_folder / "training"
    script = repository / "fails.sh"
    lines = ("#!/bin/bash", "#SBATCH -o in-script-%A_%a.out", "cat failure.txt", "exit 1")
    script.write_text("\n".join(lines))
    script.chmod(0o755)
    with files.opened() as setup:
        setup.agent.once()
        by_line = bed.submit("cat training/failure.txt; exit 1", "-o", "../jobs/%x/log-%6j.out",
                             "-J", "training", gpus=1)  # fmt: skip
        by_script = bed.submit_file(script, options=("--array=7",))
        by_default = bed.submit("cat training/failure.txt; exit 1", gpus=1)
        for job in (by_line, by_script, by_default):
            until("its row", 60, lambda job=job: bed.settled(job))
        forget(bed)
        found = setup.agent.once()
    logs = {one.job: one.log for one in found.failed}
    folder = bed.jobs_folder
    assert logs == {
        by_line: f"{folder}/../jobs/training/log-{by_line.zfill(6)}.out",
        f"{by_script}_7": f"{repository}/in-script-{by_script}_7.out",
        by_default: f"{folder}/slurm-{by_default}.out",
    }
    assert {one.diagnosis and one.diagnosis.error_name for one in found.failed} == {"ECC Error"}
