"""The agent on a real Slurm: what it sees, orders, writes, learns and mends."""

from __future__ import annotations

import getpass
import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from agents import EXAMPLES, AgentFiles
from cli_runner import Cli
from slurm_testbed import USER, Testbed, until
from training_jobs import TrainingJob, submit

from schedmate.cluster.report import Pass
from schedmate.commands import agents
from schedmate.jobs import Estimate
from schedmate.mate import SchedMate
from schedmate.settings import load_settings

pytestmark = [pytest.mark.live, pytest.mark.slow]


def factors(bed: Testbed) -> dict[str, int]:
    printed = bed.run("sprio", "-h", "-o", "%i|%S").stdout
    return {line.split("|")[0].strip(): int(line.split("|")[1]) for line in printed.splitlines()}


def one_pass(files: AgentFiles, *, dry_run: bool = False) -> Pass:
    with files.opened(dry_run=dry_run) as setup:
        found = setup.agent.once()
    assert not found.problems
    return found


# what it sees


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(
    cli: Cli, slurm: Testbed, files: AgentFiles, repository: Path, blocker: str
) -> None:
    files.know(repository)
    short = submit(slurm, repository, TrainingJob("resnet18", 5))
    long = submit(slurm, repository, TrainingJob("gpt2", 90))
    done = cli("slurm", "agent", "--once", "--dry-run", "--json", *files.options)
    assert done.code == 0, done.err
    document: dict[str, Any] = json.loads(done.out)
    assert document["schema"] == "schedmate.agent-pass/v1"
    estimates = {one["job"]: one["estimate"] for one in document["estimated"]}
    assert 0.1 < estimates[short]["duration_s"] < 1.0
    assert 15 < estimates[long]["duration_s"] < 60
    assert estimates[blocker]["abstained"]
    (order,) = [one for one in document["actions"] if one["action"]["kind"] == "order"]
    assert order["state"] == "would"
    assert order["action"]["values"] == {short: 3000, long: -3000}
    assert set(factors(slurm).values()) == {0}
    assert not files.state.exists()
    shown = cli("slurm", "agent", "--once", "--dry-run", *files.options)
    assert "would be set: 1 job at +3000, 1 job at -3000" in shown.out


def test_the_doctor_tests_each_right(
    cli: Cli, slurm: Testbed, files: AgentFiles, repository: Path, blocker: str
) -> None:
    submit(slurm, repository, TrainingJob("gpt2", 90))
    files.allow(recover=True, annotate={"where": "comment"})
    files.know(repository)
    done = cli("slurm", "doctor", "--json", *files.options)
    checks = {one["name"]: one for one in json.loads(done.out)["checks"]}
    assert done.code == 0, done.out
    # the testbed gives each job its priority by the partition, which orders nobody before another
    assert {name for name, one in checks.items() if one["status"] != "ok"} == {"priority"}
    assert "besides the partition's: it decides alone" in checks["priority"]["fact"]
    assert set(checks) >= {"right to order", "right to annotate", "right to requeue"}
    assert "16 GPUs" in checks["nodes"]["fact"]
    assert set(factors(slurm).values()) == {0}
    # the same as a user who is no Operator
    files.allow(through=USER, annotate={"where": "comment"}, recover=True)
    done = cli("slurm", "doctor", "--json", "--bounds", str(files.bounds))
    checks = {one["name"]: one for one in json.loads(done.out)["checks"]}
    assert done.code == 1
    assert checks["right to order"]["status"] == "failed"
    assert checks["right to requeue"]["status"] == "failed"
    assert "AdminLevel=Operator" in checks["right to order"]["fix"]


def test_the_doctor_checks_what_the_unit_starts(
    cli: Cli, slurm: Testbed, files: AgentFiles, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As installed by the examples: the import, the doctor and the agent use one history."""
    units = files.folder / "units"
    units.mkdir()
    etc = files.folder / "etc"
    etc.mkdir()
    monkeypatch.setattr(agents, "UNIT_FOLDERS", (units,))
    moved = {"/etc/schedmate": str(etc), "/var/lib/schedmate": str(files.folder / "var")}
    moved |= {"User=schedmate": f"User={getpass.getuser()}"}

    def install(name: str, folder: Path) -> Path:
        text = (EXAMPLES / name).read_text()
        for old, new in moved.items():
            text = text.replace(old, new)
        (folder / name).write_text(text)
        return folder / name

    bounds = install("bounds.yaml", etc)
    install("schedmate-agent.service", units)
    recovery = install("recovery.yaml", etc)

    def checks() -> dict[str, Any]:
        return {one["name"]: one for one in json.loads(done.out)["checks"]}

    done = cli("slurm", "doctor", "--json")
    assert done.code == 1
    # what the agent says, in its words
    refused = cli("slurm", "agent", "--once", "--bounds", str(bounds))
    assert refused.code != 0
    assert checks()["agent"]["status"] == "failed"
    assert "is for cluster 'alpha'" in checks()["agent"]["fact"]
    assert checks()["agent"]["fact"] in refused.err.replace("\n", " ")
    recovery.write_text(recovery.read_text().replace("cluster: alpha", "cluster: testbed"))
    done = cli("slurm", "doctor", "--json")
    assert checks()["agent"]["status"] == "ok"
    assert checks()["service"]["status"] == "ok"
    assert checks()["history"]["status"] == "warning"
    job = submit(slurm, repository, TrainingJob("resnet18", 40))
    until("its end", 30, lambda: slurm.ended_as(job) == "COMPLETED")
    until("its row", 30, lambda: slurm.settled(job))
    assert cli("slurm", "import", "--since", "1h", "--bounds", str(bounds)).code == 0
    done = cli("slurm", "doctor", "--json")
    assert checks()["history"]["status"] == "ok"
    assert str(files.folder / "var" / "history") in checks()["history"]["fact"]
    waiting = submit(slurm, repository, TrainingJob("resnet18", 40), "--hold")
    passed = cli("slurm", "agent", "--once", "--dry-run", "--json", "--bounds", str(bounds))
    slurm.run("scancel", waiting)
    estimates = {one["job"]: one["estimate"] for one in json.loads(passed.out)["estimated"]}
    assert not estimates[waiting]["abstained"]
    done = cli("slurm", "doctor", "--json", *files.options)
    assert checks()["service"]["status"] == "warning"


def test_past_runs_are_imported_from_accounting(
    cli: Cli, slurm: Testbed, files: AgentFiles, repository: Path
) -> None:
    job = submit(slurm, repository, TrainingJob("resnet18", 5))
    until("its row", 30, lambda: slurm.settled(job))
    until("its end", 30, lambda: slurm.ended_as(job) == "COMPLETED")
    options = ("--history", str(files.history), "--bounds", str(files.bounds))
    for _ in range(2):  # a second time replaces
        done = cli("slurm", "import", "--since", "1h", "--json", *options)
        assert done.code == 0, done.err
    assert json.loads(done.out)["analysed"] >= 1
    listed = cli("history", "list", "--json", "--history", str(files.history))
    mine = [
        one for one in json.loads(listed.out)["jobs"] if one["job_id"].startswith(f"testbed/{job}@")
    ]
    assert len(mine) == 1
    assert mine[0]["metadata"]["model_config"]["model_name"] == "resnet18"
    assert mine[0]["metadata"]["training_config"]["iters"] == 5


def test_metrics_of_an_agent_are_served(slurm: Testbed, files: AgentFiles, blocker: str) -> None:
    waiting = slurm.submit("true", "-H", gpus=1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    process = files.start("--metrics", f"127.0.0.1:{port}")
    scraped = ""

    def has_passed() -> bool:
        nonlocal scraped
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            scraped = answer.read().decode()
        return "schedmate_agent_passes_total" in scraped and "passes_total 0.0" not in scraped

    try:
        until("a pass", 60, has_passed)
    finally:
        process.kill()
        process.communicate()
    assert 'schedmate_agent_jobs{state="pending"} 1.0' in scraped
    assert 'schedmate_agent_jobs{state="running"} 1.0' in scraped
    assert 'schedmate_agent_jobs{state="stalled"} 0.0' in scraped
    assert 'schedmate_agent_left{work="undiagnosed"} 0.0' in scraped
    assert "schedmate_agent_leader" not in scraped  # Slurm has no Lease
    slurm.run("scancel", waiting)


def test_jobs_cancelled_while_they_waited_erase_no_estimate(
    cli: Cli, slurm: Testbed, files: AgentFiles, repository: Path
) -> None:
    # longer than a second each: accounting has whole seconds
    done = [submit(slurm, repository, TrainingJob("resnet18", 40)) for _ in range(10)]
    until("their ends", 120, lambda: all(slurm.ended_as(job) == "COMPLETED" for job in done))
    waiting = TrainingJob("resnet18", 40)
    never = [submit(slurm, repository, waiting, "--hold") for _ in range(70)]
    slurm.run("scancel", *never)
    until("accounting", 60, lambda: all(slurm.ended_as(j).startswith("CANCELLED") for j in never))
    until("their rows", 60, lambda: all(slurm.settled(job) for job in (done[-1], never[-1])))
    options = ("--history", str(files.history), "--bounds", str(files.bounds))
    imported = cli("slurm", "import", "--since", "1h", "--json", *options)
    assert imported.code == 0, imported.err
    with SchedMate(load_settings(history=files.history)) as mate:
        opened = mate._advice.open(create=False)
        assert opened is not None
        cancelled = [one for one in opened[0].export() if one.state == "CANCELLED"]
        assert len(cancelled) >= 70
        # what a later pass of an agent learns is no different
        mate.learn([one.model_copy(update={"job_id": f"{one.job_id} again"}) for one in cancelled])
    new = submit(slurm, repository, waiting, "--hold")
    try:
        estimates = {one.job: one.estimate for one in one_pass(files).estimated}
    finally:
        slurm.run("scancel", new)
    assert not estimates[new].abstained, estimates[new].reason
    neighbours = {one.job_id.partition("@")[0] for one in estimates[new].neighbours}
    assert neighbours >= {f"testbed/{job}" for job in done}
    assert not neighbours & {f"testbed/{job}" for job in never}


def test_a_job_without_an_estimate_gets_one_when_the_history_has_come(
    cli: Cli, slurm: Testbed, files: AgentFiles, repository: Path, blocker: str
) -> None:
    waiting = submit(slurm, repository, TrainingJob("resnet18", 30))

    def estimate() -> Estimate:
        return {one.job: one.estimate for one in setup.agent.once().estimated}[waiting]

    with files.opened() as setup:
        assert estimate().abstained
        assert not setup.agent.once().estimated
        files.know(repository)  # by another process, as an import is
        assert not estimate().abstained
        assert not setup.agent.once().estimated
    files.state.joinpath("memory.db").unlink()
    files.history.rename(files.folder / "away")
    with files.opened() as setup:
        assert estimate().abstained
    # it comes while no agent runs
    files.folder.joinpath("away").rename(files.history)
    with files.opened() as setup:
        assert not estimate().abstained
    slurm.run("scancel", waiting)


# order and notes


def test_an_array_is_ordered_and_noted_as_one(
    slurm: Testbed, files: AgentFiles, repository: Path, blocker: str
) -> None:
    files.know(repository)
    files.allow(annotate={"where": "comment"})
    array = submit(slurm, repository, TrainingJob("resnet18", 5), "--array=1-9%2")
    ordered = []

    def is_ordered() -> bool:  # on a busy machine not in the first pass
        ordered.extend(one.action for one in one_pass(files).actions if one.action.kind == "order")
        return factors(slurm) == {array: 3000}

    until("the array has its place", 60, is_ordered)
    assert [one.model_dump()["values"] for one in ordered] == [{array: 3000}]
    assert slurm.queue("%F|%k")[0] != blocker
    comments = {job: text for job, text in slurm.queue("%A %k") if job == array}
    assert comments[array].startswith("schedmate: about ")
    assert not one_pass(files).actions


def test_a_note_goes_to_accounting_where_the_comment_is_the_user_s(
    slurm: Testbed, files: AgentFiles, repository: Path, blocker: str
) -> None:
    files.know(repository)
    job = submit(slurm, repository, TrainingJob("gpt2", 90), "--comment=my own")
    files.allow(annotate={"where": "comment"})
    one_pass(files)
    assert slurm.show("job", job)["Comment"] == "my"  # the first of its words
    files.allow(annotate={"where": "admin_comment"})
    until("the job in accounting", 30, lambda: slurm.accounting(job))
    files.state.joinpath("memory.db").unlink()
    one_pass(files)
    assert slurm.accounting(job, "AdminComment")[0][0].startswith("schedmate: about ")


def test_what_an_administrator_set_is_left_alone_and_all_can_be_taken_back(
    cli: Cli, slurm: Testbed, files: AgentFiles, repository: Path, blocker: str
) -> None:
    files.know(repository)
    mine, theirs, held = (submit(slurm, repository, TrainingJob("gpt2", 90)) for _ in range(3))
    slurm.run("scontrol", "update", f"JobId={theirs}", "SiteFactor=77")
    slurm.run("scontrol", "hold", held)
    one_pass(files)
    assert factors(slurm)[mine] == -3000
    assert factors(slurm)[theirs] == 77
    done = cli("slurm", "agent", "--undo", *files.options)
    assert done.code == 0, done.err
    assert factors(slurm)[mine] == 0
    assert factors(slurm)[theirs] == 77


def test_the_kill_switch_stops_every_change(
    slurm: Testbed, files: AgentFiles, repository: Path, blocker: str
) -> None:
    files.know(repository)
    files.allow(annotate={"where": "comment"})
    job = submit(slurm, repository, TrainingJob("gpt2", 90))
    files.stop.touch()
    found = one_pass(files)
    assert found.stopped
    assert found.estimated
    assert not found.actions
    assert factors(slurm) == {job: 0}
    files.stop.unlink()
    assert one_pass(files).actions
    assert factors(slurm) == {job: -3000}


MODELS = ["gpt2", "resnet18", "bert-base-uncased"] * 10
EPOCHS = [
    *(36, 15, 60, 6, 120, 9, 24, 30, 18, 12, 90, 30, 3, 60, 45),
    *(27, 18, 6, 15, 36, 75, 9, 150, 21, 30, 24, 3, 6, 75, 36),
]
WORKLOAD = [TrainingJob(*one) for one in zip(MODELS, EPOCHS, strict=True)]
"""Thirty jobs of some seconds, in no order."""


def waits(bed: Testbed, repository: Path, files: AgentFiles | None) -> tuple[float, list[str]]:
    """The mean time until the jobs began once the GPUs were free, and the order in which they did.

    The queue is full before the first can start, with and without an agent alike.
    """
    bed.clear()
    blocker = bed.submit("sleep 600", nodes=4)
    until("the blocker", 30, lambda: [blocker, "RUNNING"] in bed.queue("%A %T"))
    jobs = [submit(bed, repository, job) for job in WORKLOAD]
    if files is not None:
        assert len([one for one in one_pass(files).estimated if one.estimate.duration_s]) == 30
    bed.run("scancel", blocker)
    until("all jobs", 120, lambda: not bed.queue())
    rows: dict[str, list[str]] = {}

    def all_known() -> bool:
        fields = "JobIDRaw,State,Start,End"
        rows.update({row[0]: row for row in bed.accounting(",".join([*jobs, blocker]), fields)})
        return all(rows[job][1] == "COMPLETED" for job in jobs) and "Un" not in rows[blocker][3]

    until("accounting", 30, all_known)
    times = {job: float(rows[job][2]) for job in jobs}
    free = float(rows[blocker][3])
    began = sorted(jobs, key=times.__getitem__)
    return sum(times.values()) / len(times) - free, began


def test_thirty_jobs_wait_less_and_start_in_the_order_of_their_estimates(
    cluster: Testbed, slurm: Testbed, files: AgentFiles, repository: Path
) -> None:
    cluster.environment["SLURM_TIME_FORMAT"] = "%s"
    try:
        files.know(repository)
        without, _ = waits(slurm, repository, None)
        with_us, began = waits(slurm, repository, files)
    finally:
        del cluster.environment["SLURM_TIME_FORMAT"]
    numbers = sorted(began, key=int)
    lengths = {job: WORKLOAD[at].duration_s for at, job in enumerate(numbers)}
    first, last = began[:10], began[-10:]
    assert max(lengths[job] for job in first) < min(lengths[job] for job in last)
    assert with_us < without


def test_a_waiting_job_has_an_expected_start(
    cli: Cli, slurm: Testbed, files: AgentFiles, tmp_path: Path
) -> None:
    holds = slurm.submit("sleep 600", "--time=10", nodes=4)
    until("the GPUs", 30, lambda: [holds, "RUNNING"] in slurm.queue("%A %T"))
    waits = slurm.submit("true", "--time=5")
    until("a plan of the controller", 60, lambda: [waits, "N/A"] not in slurm.queue("%A %S"))
    done = cli("jobs", "--all", "--json", "--history", str(tmp_path / "none"))
    rows = {row["job"]: row for row in json.loads(done.out)["jobs"]}
    found = rows[waits]
    assert found["no_start"] is None, done.err
    assert 0 < found["starts_in_p10_s"] <= found["starts_in_s"] <= found["starts_in_p90_s"] <= 600
    assert 0 < found["scheduler_in_s"] <= 660  # the backfill plans whole minutes
    assert rows[holds]["scheduler_in_s"] is None
    with files.opened() as setup:
        began = setup.agent.once().time
        noted = setup.memory.mark("starts")[waits]  # for the dashboard
    assert began < noted["p50"] <= began + 600
    assert began < noted["scheduler"] <= began + 660
    slurm.run("scancel", holds, waits)


# what runs and what has ended


def test_running_jobs_are_followed_and_ended_ones_learned_from(
    cli: Cli, slurm: Testbed, files: AgentFiles, repository: Path
) -> None:
    running = submit(slurm, repository, TrainingJob("gpt2", 2000))
    until("its log", 30, lambda: list(repository.glob(f"log-*-{running}.out")))
    one_pass(files)  # the agent began
    log = next(repository.glob(f"log-*-{running}.out"))
    until("some epochs", 30, lambda: log.read_text().count("Epoch") > 4)
    (followed,) = one_pass(files).followed
    assert followed.job == running
    assert followed.log == str(log)
    assert 2000 in (followed.progress.total_epochs, followed.progress.total_iterations)
    # the history knows nothing of it, so its log alone says how long it takes
    assert followed.remaining is not None
    assert followed.remaining.sources == ["log"]
    assert followed.remaining.elapsed_s > 0
    tracked = cli("track", running, "--json")
    assert json.loads(tracked.out)["log"] == str(log), tracked.err
    (row,) = json.loads(cli("jobs", "--all", "--json").out)["jobs"]
    assert (row["job"], row["log"], row["health"]) == (running, str(log), [])
    assert 0 < row["done"] < 1
    looked_at = cli("diagnose", running)
    assert "note: it used" not in looked_at.err  # no time limit, and Slurm gathers nothing here
    again = cli("analyze", running, "--json")
    assert again.code == 0, again.err
    analysis = json.loads(again.out)
    assert analysis["metadata"]["training_config"]["iters"] == 2000, again.err
    done = submit(slurm, repository, TrainingJob("resnet18", 20))
    until("accounting", 30, lambda: slurm.ended_as(done) == "COMPLETED")
    with files.opened() as setup:
        until("the run", 30, lambda: setup.agent.once().learned)
        for _ in range(2):
            assert setup.agent.once().learned == 0
    # the next job like it has an estimate
    again = submit(slurm, repository, TrainingJob("resnet18", 20), "--hold")
    estimates = {one.job: one.estimate for one in one_pass(files).estimated}
    assert [one.job_id.partition("@")[0] for one in estimates[again].neighbours] == [
        f"testbed/{done}"
    ]
    slurm.run("scancel", running, again)


def break_node(repository: Path, node: str) -> Path:
    mark = repository / f"broken-{node}"
    mark.touch()
    return mark


def failed_job(slurm: Testbed, repository: Path) -> tuple[str, str, Path]:
    """A job that fails on a node with a fault: its id, the node, and what breaks the node."""
    job = submit(slurm, repository, TrainingJob("gpt2", 2), "--hold")
    mark = break_node(repository, "gpu01")
    slurm.run("scontrol", "release", job)
    until("its failure", 30, lambda: slurm.ended_as(job) == "FAILED")
    assert slurm.accounting(job)[-1][1] == "gpu01"
    return job, "gpu01", mark


def test_a_node_fault_ends_with_the_job_done_elsewhere(
    cli: Cli, slurm: Testbed, files: AgentFiles, repository: Path
) -> None:
    files.allow(recover=True)
    one_pass(files)
    job, node, mark = failed_job(slurm, repository)
    try:
        until("its row", 30, lambda: slurm.settled(job))
        shown = cli("slurm", "plan", job, "--json", *files.options)
        assert shown.code == 0, shown.err
        document = json.loads(shown.out)
        assert document["failure"]["diagnosis"]["error_name"] == "ECC Error"
        diagnosed = json.loads(cli("diagnose", job, "--json").out)
        assert (diagnosed["error_name"], diagnosed["node"]) == ("ECC Error", node)
        assert [one["kind"] for one in document["plan"]["actions"]][:2] == ["drain", "requeue"]

        with files.opened() as setup:
            passes: list[Pass] = []

            def has_failed() -> bool:
                passes.append(setup.agent.once())
                return bool(passes[-1].failed)

            until("the verdict", 30, has_failed)
            (failure,) = passes[-1].failed
            assert failure.diagnosis is not None
            assert failure.diagnosis.error_name == "ECC Error"
            assert failure.diagnosis.node == node
            (waiting,) = passes[-1].waiting
            assert failure.plan == waiting == document["plan"]["id"]
            # nothing happens before somebody approves
            setup.agent.once()
            assert "DRAIN" not in slurm.show("node", node)["State"]
            assert setup.record is not None
            setup.record.approve(waiting, by="operator")
            found = setup.agent.once()
            assert {one.action.kind: one.state for one in found.actions} == {
                "drain": "applied", "requeue": "applied", "notify": "skipped",
            }  # fmt: skip
            # and once only
            assert not setup.agent.once().actions
        state = slurm.show("node", node)
        assert "DRAIN" in state["State"]
        assert state["Reason"] == "schedmate:"  # the first of its words
        assert slurm.show("job", job)["ExcNodeList"] == node
        until("its end", 60, lambda: slurm.ended_as(job) == "COMPLETED")
        assert [state for state, _ in slurm.accounting(job)] == ["REQUEUED", "COMPLETED"]
        assert slurm.accounting(job)[-1][1] != node
    finally:
        mark.unlink()


def test_only_schedmate_s_own_drains_are_taken_back(slurm: Testbed, files: AgentFiles) -> None:
    def drain(*words: str) -> int:
        return slurm.run(str(files.drain), *words, check=False).returncode

    assert drain("check") == 0
    assert drain("drain", "gpu02", "ecc-error-1") == 0
    assert drain("drain", "gpu02", "ecc-error-1") == 0  # twice is once
    assert "schedmate: ecc-error-1" in slurm.run("sinfo", "-h", "-R", "-o", "%E").stdout
    assert drain("resume", "gpu02", "another-1") == 1
    assert "DRAIN" in slurm.show("node", "gpu02")["State"]
    assert drain("resume", "gpu02", "ecc-error-1") == 0
    assert "DRAIN" not in slurm.show("node", "gpu02")["State"]
    slurm.run("scontrol", "update", "NodeName=gpu03", "State=DRAIN", "Reason=fan")
    assert drain("drain", "gpu03", "ecc-error-1") == 1
    assert drain("resume", "gpu03", "ecc-error-1") == 1
    for odd in ("ALL", "gpu[01-04]", "gpu01,gpu02", "-a", "gpu01 State=DOWN", "", "nope"):
        assert drain("drain", odd, "ecc-error-1") == 1
    for odd in ("", "Reason", "a b", "x" * 80, "$(id)"):
        assert drain("drain", "gpu04", odd) == 1
    assert drain("reboot", "gpu04", "ecc-error-1") == 1
    assert "DRAIN" not in slurm.show("node", "gpu04")["State"]


def test_the_command_may_not_drain_more_nodes_than_it_says(
    slurm: Testbed, files: AgentFiles
) -> None:
    files.drain.write_text(files.drain.read_text().replace("MOST=4", "MOST=1"))
    assert slurm.run(str(files.drain), "drain", "gpu01", "one-1").returncode == 0
    done = slurm.run(str(files.drain), "drain", "gpu02", "two-2", check=False)
    assert done.returncode == 1
    assert "1 nodes are out of service by schedmate" in done.stderr
    assert "DRAIN" not in slurm.show("node", "gpu02")["State"]
