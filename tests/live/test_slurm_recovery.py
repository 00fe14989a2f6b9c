"""Recovery on the real Slurm by what its states say, with undo, retry, guards and people told."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from agents import RECOVERY, AgentFiles
from cli_runner import Cli
from slurm_testbed import Testbed, until
from test_slurm_live import failed_job, one_pass

from schedmate.cluster.record import isolations
from schedmate.cluster.recovery.guards import breaker_is_open
from schedmate.cluster.report import Failed, Pass

pytestmark = [pytest.mark.live, pytest.mark.slow]

NO_SPACE = (
    "echo 'Epoch [1/9], Loss: 0.1'; "
    'echo "OSError: [Errno 28] No space left on device: /scratch/step-1.pt"; exit 1'
)


def allow(files: AgentFiles, **recovery: Any) -> None:
    """Allow recovery as `recovery.yaml` with these sections says; people are told in `mail`."""
    files.allow(recover=True)
    stop = {"record": str(files.record), "kill_switch": str(files.stop)}
    told = {"commands": {"notify": ["sh", "-c", f'echo "$1: $2" >>{mail(files)}', "sh", "{to}"]}}
    told["commands"]["notify"].append("{text}")
    files._write(files.recovery, {**RECOVERY, **stop, **told, **recovery})


def mail(files: AgentFiles) -> Path:
    return files.folder / "mail"


def passes_until_failed(files: AgentFiles) -> tuple[Failed, Pass]:
    """Make passes until one reports a failure."""
    seen: list[Pass] = []

    def has_failed() -> bool:
        with files.opened() as setup:
            seen.append(setup.agent.once())
        return bool(seen[-1].failed)

    until("the verdict", 60, has_failed)
    (failed,) = seen[-1].failed
    return failed, seen[-1]


def approve(files: AgentFiles, plan: str | None) -> str:
    assert plan is not None
    with files.kept() as record:
        record.approve(plan, by="operator")
    return plan


def test_a_lost_node_is_a_verdict_and_a_plan_without_any_log(
    slurm: Testbed, files: AgentFiles
) -> None:
    allow(files, rules=None, commands=None)  # no command tells anybody
    one_pass(files)
    job = slurm.submit("sleep 300", "-o", "/dev/null")
    until("its start", 30, lambda: [job, "RUNNING"] in slurm.queue("%A %T"))
    node = slurm.show("job", job)["NodeList"]
    slurm.stop("slurmd", node, signal.SIGKILL)  # it cannot come back by itself
    try:
        slurm.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost")
        failed, _ = passes_until_failed(files)
        assert (failed.job, failed.state) == (job, "NODE_FAIL")
        diagnosis = failed.diagnosis
        assert diagnosis is not None
        assert (diagnosis.error_name, diagnosis.node) == ("Node Failure", node)
        assert diagnosis.origin == "scheduler"
        assert f"job {job} ended NODE_FAIL on {node}" in diagnosis.evidence[0].text
        approve(files, failed.plan)
        with files.opened() as setup:
            found = setup.agent.once()
    finally:
        slurm.start("slurmd", node)
    states = {one.action.kind: one.state for one in found.actions}
    # Slurm has taken the node out of service itself, and nobody can be told: neither is called done
    expected = {"drain": "skipped", "requeue": "applied", "notify": "skipped"}
    assert states == expected, found.actions
    assert "names no command `notify`" in str([one.detail for one in found.actions])
    assert slurm.show("job", job)["NodeList"] != node


def test_a_plan_is_tried_again_and_undone_by_the_commands(
    cli: Cli, slurm: Testbed, files: AgentFiles, repository: Path
) -> None:
    allow(files)
    drain = files.drain
    files.drain = Path("/bin/false")
    allow(files)
    one_pass(files)
    job, node, mark = failed_job(slurm, repository)
    try:
        failed, _ = passes_until_failed(files)
        plan = approve(files, failed.plan)
        with files.opened() as setup:
            setup.agent.once()
        with files.kept() as record:
            assert record.plan(plan).state == "failed"
        assert f"job {job}" in mail(files).read_text()  # what stops a plan stops no news of it
        files.drain = drain
        allow(files)
        done = cli("recover", "apply", plan, "--retry", "--bounds", str(files.bounds))
        assert done.code == 0, done.err
        assert "DRAIN" in slurm.show("node", node)["State"]
        assert slurm.show("job", job)["ExcNodeList"] == node
        done = cli("recover", "undo", plan, "--bounds", str(files.bounds))
        assert done.code == 0, done.err
        assert "DRAIN" not in slurm.show("node", node)["State"]
        with files.kept() as record:
            assert record.plan(plan).state == "undone"
            assert isolations(record) == {}
    finally:
        mark.unlink()


def test_the_breaker_tells_people_and_a_resume_by_hand_ends_the_isolation(
    cli: Cli, slurm: Testbed, files: AgentFiles, repository: Path
) -> None:
    allow(files, isolation={**RECOVERY["isolation"], "at_most": 0})
    one_pass(files)
    job, node, mark = failed_job(slurm, repository)
    try:
        failed, _ = passes_until_failed(files)
        plan = approve(files, failed.plan)
        with files.opened() as setup:
            setup.agent.once()
        with files.kept() as record:
            assert breaker_is_open(record)
            assert record.plan(plan).state == "failed"
        told = mail(files).read_text().splitlines()
        assert any(line.startswith(f"operator: job {job}") for line in told)
        assert any(f"plan {plan} stopped: circuit breaker" in line for line in told)
        allow(files)
        done = cli("recover", "reset", "--note", "one is fine", "--recovery", str(files.recovery))
        assert done.code == 0, done.err
        assert plan in done.err
        with files.opened() as setup:
            setup.agent.once()
        assert "DRAIN" in slurm.show("node", node)["State"]
        with files.kept() as record:
            assert record.plan(plan).state == "applied"
            assert list(isolations(record)) == [node]
        slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        one_pass(files)
        with files.kept() as record:
            assert isolations(record) == {}
            (entry,) = record.entries(kind="isolation ended")
            assert node in entry.body["detail"]
            assert record.verify().broken is None
    finally:
        mark.unlink()


def test_a_full_disk_awaits_a_person_and_is_not_restarted_twice(
    slurm: Testbed, files: AgentFiles
) -> None:
    allow(files, rules=None, automatic=["notify", "restart"], restarts={"back_off": 0})
    one_pass(files)
    job = slurm.submit(NO_SPACE, "-o", "full-%j.out", "--open-mode=append")
    until("its failure", 30, lambda: slurm.ended_as(job) == "FAILED")
    failed, _ = passes_until_failed(files)
    one_pass(files)
    assert slurm.show("job", job)["Restarts"] == "0"
    plan = approve(files, failed.plan)
    one_pass(files)
    until("its second failure", 60, lambda: len(slurm.accounting(job)) == 2)
    until("its end", 60, lambda: slurm.ended_as(job) == "FAILED")
    again, _ = passes_until_failed(files)
    assert again.plan not in (None, plan)
    with files.kept() as record:
        second = record.plan(str(again.plan)).plan
    assert [action.kind for action in second.actions] == ["notify"]
    assert f"restarted after the same failure (plan {plan})" in second.reason.summary
    one_pass(files)
    assert slurm.show("job", job)["Restarts"] == "1"


def test_a_diagnostic_is_no_failed_job(slurm: Testbed, files: AgentFiles, repository: Path) -> None:
    test = {"gpu": {"command": ["sh", "-c", "echo GPU 3 is broken; exit 1"], "reads": "exit-code"}}
    rules = [{"when": {"component": "gpu"}, "diagnose": ["gpu"]}]
    allow(files, automatic=["notify", "diagnose"], diagnostics=test, rules=rules)
    one_pass(files)
    _, node, mark = failed_job(slurm, repository)
    try:
        passes_until_failed(files)
        with files.opened() as setup:
            setup.agent.once()
        with files.kept() as record:
            (run,) = record.attempts(kind="diagnose")
        assert run.data["nodes"][node]["state"] == "faulty"

        def rows() -> list[list[str]]:
            words = ("sacct", "-X", "-n", "-P", "--name", f"schedmate-{run.key}-0")
            printed = slurm.run(*words, "-o", "State,End").stdout
            return [line.split("|") for line in printed.splitlines()]

        until("its row", 30, lambda: [row[0] for row in rows()] == ["FAILED"])
        with files.opened() as setup:
            for _ in range(3):
                found = setup.agent.once()
                assert found.failed == []
                assert found.learned == 0 or found.learned == 1
        with files.kept() as record:
            assert len(list(record.entries(kind="failure"))) == 1
    finally:
        mark.unlink()


def test_a_private_directory_is_one_sentence_and_the_job_goes_on(
    slurm: Testbed, files: AgentFiles
) -> None:
    private = slurm.jobs_folder / "private"
    slurm.run("install", "-d", "-m", "700", "-o", "schedmate-user", str(private))
    job = slurm.submit("python train.py", "--hold", f"--chdir={private}")
    # root without the right to read everything: the agent's own user has none either
    caps = "-dac_override,-dac_read_search"
    without = ["setpriv", f"--bounding-set={caps}", f"--inh-caps={caps}"]
    done = subprocess.run(
        [*without, *files.command("--once", "--json")],
        env={**slurm.environment, "HOME": str(files.folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["problems"] == []
    (reason,) = [one["estimate"]["reason"] for one in document["estimated"] if one["job"] == job]
    assert f"cannot read {private}: Permission denied" in reason
    assert "internal error" not in done.stdout + done.stderr
