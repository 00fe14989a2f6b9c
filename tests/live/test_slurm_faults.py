"""Agents that are killed, daemons that are down, two agents at once: nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents import AgentFiles
from dying_agent import POINTS
from slurm_testbed import Testbed, until
from test_slurm_live import factors, failed_job, one_pass
from training_jobs import TrainingJob, submit

from schedmate.cluster.adapter import ExecutorError
from schedmate.cluster.loop import watch

pytestmark = [pytest.mark.live, pytest.mark.slow]

ORDER = [point for point in POINTS if point.startswith(("order", "estimate", "values"))]
LEARN = [point for point in POINTS if point.startswith(("run",))]
MEND = [point for point in POINTS if point not in ORDER + LEARN]


def killed_at(point: str, files: AgentFiles) -> None:
    """One pass of an agent that is killed at a point."""
    script = Path(__file__).with_name("dying_agent.py")
    words = [sys.executable, str(script), point, files.bounds, files.state, files.history]
    environment = {**os.environ, "HOME": str(files.folder)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, f"{point}: {done.stdout}{done.stderr}"


def test_an_agent_that_is_killed_while_it_orders_goes_on_where_it_was(
    slurm: Testbed, files: AgentFiles, repository: Path, blocker: str
) -> None:
    files.know(repository)
    wanted: dict[str, int] = {}
    for point in ORDER:
        model, value = (("gpt2", -3000), ("resnet18", 3000))[len(wanted) % 2]
        job = submit(slurm, repository, TrainingJob(model, 200 if value < 0 else 2))
        wanted[job] = value
        killed_at(point, files)
        assert set(factors(slurm)) == set(wanted)
        one_pass(files)
        assert factors(slurm) == wanted, point
    with files.kept() as record:
        assert not record.undetermined()
        assert record.verify().broken is None
        assert set(record.counts()) <= {"applied", "expired"}
        done = [one for one in record.attempts(kind="order") if one.outcome == "done"]
        # each job got its value by one plan and no other
        given = Counter(job for one in done for job in one.action.values)  # type: ignore[union-attr]
    assert set(given) == set(wanted)
    assert not one_pass(files).actions


def test_an_agent_that_is_killed_while_it_learns_learns_each_run_once(
    slurm: Testbed, files: AgentFiles, repository: Path
) -> None:
    one_pass(files)
    for point in LEARN:
        job = submit(slurm, repository, TrainingJob("resnet18", 2))
        until("its end", 30, lambda job=job: slurm.ended_as(job) == "COMPLETED")
        until("its row", 30, lambda job=job: slurm.settled(job))
        killed_at(point, files)
        with files.opened() as setup:
            assert setup.agent.once().learned == 1
            assert setup.agent.once().learned == 0
            opened = setup.mate._advice.open(create=False)
            assert opened is not None
            stored = [one.job_id.partition("@")[0] for one in opened[0].export()]
        assert stored.count(f"testbed/{job}") == 1


def test_an_agent_that_is_killed_at_each_step_of_mending_does_nothing_twice(
    slurm: Testbed, files: AgentFiles, repository: Path
) -> None:
    files.allow(recover=True)
    one_pass(files)
    job, node, mark = failed_job(slurm, repository)
    try:
        until("its row", 30, lambda: slurm.settled(job))
        for point in MEND[:2]:  # while it looks into the failure
            killed_at(point, files)
        one_pass(files)
        with files.kept() as record:
            (plan,) = record.plans(states={"proposed"})
            record.approve(plan.plan.id, by="operator")
        for point in MEND[2:]:  # each in the pass that the one before has cut off
            killed_at(point, files)
        one_pass(files)
        with files.kept() as record:
            assert record.plan(plan.plan.id).state == "applied"
            assert not record.undetermined()
            assert len(record.plans()) == 1
            assert len(list(record.entries(kind="failure"))) == 1
            assert record.verify().broken is None
        assert "DRAIN" in slurm.show("node", node)["State"]
        until("its end", 60, lambda: slurm.ended_as(job) == "COMPLETED")
        assert [state for state, _ in slurm.accounting(job)] == ["REQUEUED", "COMPLETED"]
        assert slurm.accounting(job)[-1][1] != node
    finally:
        mark.unlink()


def test_the_controller_is_down_and_comes_back(
    slurm: Testbed, files: AgentFiles, repository: Path, blocker: str
) -> None:
    files.know(repository)
    before = submit(slurm, repository, TrainingJob("gpt2", 200))
    one_pass(files)
    told: list[str] = []
    passes: list[int] = []
    with files.opened() as setup:
        slurm.stop("slurmctld")
        with pytest.raises(ExecutorError):
            setup.agent.once()

        def wait(_seconds: float) -> None:
            if len(told) == 1 and not passes:
                slurm.start("slurmctld")

        watch(
            setup.agent,
            lambda found: passes.append(found.pending),
            told.append,
            wait=wait,
            goes_on=lambda: not passes,
        )
    assert len(told) == 2
    assert "answers again" in told[1]
    assert factors(slurm)[before] == -3000  # it survives the restart
    after = submit(slurm, repository, TrainingJob("resnet18", 2))
    one_pass(files)
    assert factors(slurm)[after] == 3000


def test_the_database_is_down_and_what_ended_meanwhile_is_learned(
    slurm: Testbed, files: AgentFiles, repository: Path
) -> None:
    files.know(repository)
    one_pass(files)
    slurm.stop("slurmdbd")
    try:
        job = submit(slurm, repository, TrainingJob("resnet18", 2))
        until("its end", 30, lambda: job not in [cells[0] for cells in slurm.queue("%A")])
        waiting = submit(slurm, repository, TrainingJob("gpt2", 200), "--begin=now+1hour")
        with files.opened() as setup:
            found = setup.agent.once()
            (problem,) = found.problems
            assert problem.startswith("read ended runs: ")
            assert found.learned == 0
            # what needs no database goes on
            assert waiting in [one.job for one in found.estimated]
    finally:
        slurm.start("slurmdbd")
    until("accounting", 60, lambda: slurm.ended_as(job) == "COMPLETED")
    with files.opened() as setup:
        until("the run", 60, lambda: setup.agent.once().learned)


def test_of_two_agents_one_works_and_the_other_takes_over(
    slurm: Testbed, files: AgentFiles, repository: Path, blocker: str
) -> None:
    files.know(repository)
    first = files.start()
    try:
        assert first.stderr is not None
        assert "watching cluster testbed" in first.stderr.readline()
        once = subprocess.run(
            files.command("--once"), capture_output=True, text=True, timeout=60, env=os.environ
        )
        assert once.returncode == 7
        assert "another process" in once.stderr
        second = files.start()
        try:
            assert second.stderr is not None
            assert "another agent works on this cluster" in second.stderr.readline()
            first.kill()
            first.wait()
            assert "watching cluster testbed" in second.stderr.readline()
            job = submit(slurm, repository, TrainingJob("gpt2", 200))
            until("its order", 60, lambda: factors(slurm).get(job) == -3000)
            second.terminate()
            assert second.wait(60) == 143
        finally:
            second.kill()
            second.communicate()
    finally:
        first.kill()
        first.communicate()
    with files.kept() as record:
        assert record.verify().broken is None


def test_a_pass_over_a_full_queue_costs_one_command(
    slurm: Testbed, files: AgentFiles, repository: Path, blocker: str
) -> None:
    script = repository / "train.sh"
    several = f"for n in $(seq 100); do sbatch -Q --gres=gpu:4 {script} resnet18 3; done"
    slurm.run("sh", "-c", several, user="schedmate-user", timeout=120)
    files.know(repository)
    with files.opened() as setup:
        first = setup.agent.once()
        assert first.pending == 100
        commands: list[str] = []
        for name in ("run", "streamed"):
            real = getattr(setup.adapter.commands, name)

            def counted(*words: str, real: Callable[..., Any] = real, **options: float) -> Any:
                commands.append(" ".join(words[:2]))
                return real(*words, **options)

            setattr(setup.adapter.commands, name, counted)
        setup.agent._due["learn"] = float("inf")
        found = setup.agent.once()
    assert not found.actions
    assert commands == ["squeue -h"]
    assert set(factors(slurm).values()) == {2500} or len(set(factors(slurm).values())) == 1
