"""Many jobs at once on a real Slurm: failures are found behind them, newcomers do not wait."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import AgentFiles
from slurm_testbed import USER, Testbed, missing, until
from storm import MORE, Storm, measure
from training_jobs import NODE_FAULT, TrainingJob, make_repository, submit

from schedmate.cluster.report import Pass
from schedmate.commands.agents import pass_lines
from schedmate.jobs import JobSpec

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    """A Slurm of its own, since its controller is made to forget its jobs."""
    why = missing()
    if why is not None:
        pytest.skip(why)
    root = Path(tempfile.mkdtemp(prefix="schedmate-storm-"))
    root.rmdir()
    with Testbed(root, more=MORE, slurmd_timeout=8) as testbed:
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


def test_a_newcomer_does_not_wait_behind_the_backlog(bed: Testbed, files: AgentFiles) -> None:
    """One user's hundreds of variants are read in parts, and the newest job always comes next."""
    repository = bed.jobs_folder / "training"
    files.know(repository)
    files.allow(advise={"seconds": 0.5})
    path = f"--export=ALL,PATH={repository / 'bin'}:/usr/bin:/bin"
    line = f"for n in $(seq 150); do sbatch -QH --gres=gpu:4 -N1 {path} train.sh gpt2 $n; done"
    bed.run("sh", "-c", f"cd {repository}; {line}", user=USER, timeout=300)
    with files.opened() as setup:
        first = setup.agent.once()
        assert first.pending == 150
        assert first.unread > 0
        time.sleep(1.0)  # submission times have whole seconds
        newcomer = submit(bed, repository, TrainingJob("resnet18", 30), "-H")
        second = setup.agent.once()
        assert newcomer == second.estimated[0].job
        assert second.estimated[0].estimate.duration_s == pytest.approx(1.5, rel=0.2)


def test_jobs_with_the_same_command_share_one_reading(
    bed: Testbed, files: AgentFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = bed.jobs_folder / "training"
    files.know(repository)
    jobs = [submit(bed, repository, TrainingJob("gpt2", 30), "-H") for _ in range(12)]
    jobs += [submit(bed, repository, TrainingJob("gpt2", 10 * n), "-H") for n in range(4, 10)]
    read: list[int] = []
    with files.opened() as setup:
        real = setup.mate._readers.extract_variants

        def counted(specs: Sequence[JobSpec], budget_s: float) -> Any:
            read.append(len(specs))
            return real(specs, budget_s)

        monkeypatch.setattr(setup.mate._readers, "extract_variants", counted)
        found = setup.agent.once()
    estimates = {one.job: one.estimate.duration_s for one in found.estimated}
    assert set(estimates) == set(jobs)
    assert len({estimates[job] for job in jobs[:12]}) == 1
    assert len(set(estimates.values())) == 7
    # seven variants, most of them in one process
    assert sum(read) == 7
    assert len(read) < 7


def test_a_job_that_goes_silent_is_noticed_and_one_that_goes_on_is_cleared(
    bed: Testbed, files: AgentFiles
) -> None:
    files.allow(follow={"every": 0.001, "silence": 4, "seconds": 30}, annotate={"where": "comment"})
    hang = bed.jobs_folder / "hang"
    say = 'echo "Epoch [$n/1000], Loss: 0.5, time: 0.2 s"; sleep 0.2'
    script = f"for n in $(seq 1000); do {say}; while [ -e {hang} ]; do sleep 0.1; done; done"
    job = bed.submit(script, "-o", str(bed.jobs_folder / "hang-%j.out"), gpus=1)
    log = bed.jobs_folder / f"hang-{job}.out"

    def comment() -> str:
        return bed.queue("%k")[0][0]

    with files.opened() as setup:
        until("its log", 60, lambda: log.exists() and "[20/" in log.read_text())
        passes: list[Pass] = [setup.agent.once()]
        (followed,) = passes[0].followed
        assert followed.progress.eta_s is not None
        assert not passes[0].stalled
        hang.touch()

        def passed(done: Callable[[Pass], bool]) -> bool:
            passes.append(setup.agent.once())
            return done(passes[-1])

        until("it is noticed", 60, lambda: passed(lambda one: one.newly_stalled == [job]))
        (followed,) = passes[-1].followed
        assert followed.progress.stalled
        assert followed.progress.eta_s is None
        assert "stalled? no progress since" in comment()
        (again,) = [setup.agent.once()]
        assert again.stalled == 1
        assert not again.newly_stalled
        assert not again.actions
        assert any("stalled: last progress" in text for text, _ in pass_lines(again))
        hang.unlink()
        until("it goes on", 60, lambda: passed(lambda one: one.stalled == 0))
        assert passes[-1].followed[0].progress.eta_s is not None
        assert "its log goes on" in comment()
    bed.run("scancel", job)
    with files.kept() as record:
        assert len(list(record.entries(kind="stalled"))) == 1


def test_a_storm_hides_no_failure_loses_no_estimate_and_nothing_is_done_twice(
    bed: Testbed, files: AgentFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The benchmark `slurm_storm.py` in small, with an agent that looks more often."""
    monkeypatch.setitem(bed.environment, "SLURM_TIME_FORMAT", "%s")
    often = {"poll": 1, "learn": {"every": 2}, "follow": {}, "advise": {}}
    storm = Storm(jobs=240, cancelled=200, failed=10, waiting=10)
    rows = measure(bed, files.folder, storm, {"order": {"allowed": True}, **often})
    assert [one for one in rows if one["holds"] == "no"] == []
    assert sum(one["holds"] == "yes" for one in rows) == 7
