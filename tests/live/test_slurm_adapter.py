"""Slurm's adapter on commands that print what newer versions print, or fail.

The commands are shell scripts on PATH: what a real Slurm does is in `test_slurm_live.py`.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from schedmate.cluster.actions import Diagnose, Drain, Order, Requeue, Resume
from schedmate.cluster.adapter import EndedRun, ExecutorError
from schedmate.cluster.slurm.adapter import (
    CommandError,
    Commands,
    SlurmAdapter,
    by_value,
    launch_command,
)
from schedmate.cluster.slurm.reading import OutageError, parse_config
from schedmate.jobs import JobRecord

FIXTURES = Path(__file__).parent / "fixtures"


class Fake:
    """A folder of commands that print files and write down how they were called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.called = folder / "called"
        self.says("squeue", "slurm 24.11.3\n", when="--version")

    def says(self, command: str, text: str, *, when: str = "", code: int = 0) -> None:
        """Let a command print a text (and fail) when its arguments contain `when`."""
        cases = self.folder / f"{command}.cases"
        cases.mkdir(exist_ok=True)
        number = len(list(cases.iterdir()))
        (cases / f"{number:03d}").write_text(text)
        stream = " >&2" if code else ""
        body = [
            "#!/bin/sh",
            f"printf '%s\\n' \"{command} $*\" >> {self.called}",
            *(
                line
                for line in (self.folder / command).read_text().splitlines()[2:-1]
                if (self.folder / command).exists()
            ),
        ] if (self.folder / command).exists() else [
            "#!/bin/sh", f"printf '%s\\n' \"{command} $*\" >> {self.called}",
        ]  # fmt: skip
        body.append(
            f'case "{command} $*" in *{shlex.quote(when)}*) '
            f"cat {cases}/{number:03d}{stream}; exit {code};; esac"
        )
        body.append("exit 0")
        (self.folder / command).write_text("\n".join(body) + "\n")
        (self.folder / command).chmod(0o755)

    def calls(self) -> list[str]:
        return self.called.read_text().splitlines()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return Fake(tmp_path)


@pytest.fixture
def adapter(fake: Fake) -> SlurmAdapter:
    return SlurmAdapter(Commands(), cluster="alpha", drain=[str(fake.folder / "drain")])


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text(encoding="utf-8")


def one_job(**changes: Any) -> str:
    document = json.loads(fixture("squeue-25.11.json"))
    return json.dumps({"jobs": [document["jobs"][3] | changes], "errors": []})


def test_exporters_know_each_task_of_an_array_by_its_own_number(
    fake: Fake, adapter: SlurmAdapter
) -> None:
    assert adapter.measured_as(["4"]) == {"4": {"job": "4"}}
    fake.says("squeue", "3_0|7\n3_1|3\n9|9\nodd\n", when="-j 3_0,3_1,3_2")
    named = adapter.measured_as(["4", "3_0", "3_1", "3_2", "3_[5-9]"])
    assert named == {job: {"job": raw} for job, raw in (("4", "4"), ("3_0", "7"), ("3_1", "3"))}


def test_a_new_version_is_asked_for_one_job_and_an_old_one_for_all(
    fake: Fake, adapter: SlurmAdapter
) -> None:
    fake.says("scontrol", one_job(), when="show job 4 --json")
    job = adapter.job("4")
    assert job is not None
    assert job.state == "FAILED"
    old = SlurmAdapter(Commands(), cluster="alpha")
    old._version = (22, 5)
    fake.says("squeue", fixture("squeue-22.05.json"), when="--json")
    task = old.job("3_0")
    assert task is not None
    assert task.job == "7"
    assert old.job("999") is None


def test_nodes_of_a_new_version(fake: Fake, adapter: SlurmAdapter) -> None:
    fake.says("scontrol", fixture("scontrol-nodes-25.11.json"), when="show nodes --json")
    nodes = {node.name: node for node in adapter.nodes()}
    assert nodes["gpu01"].healthy
    assert nodes["gpu02"].drained
    assert nodes["gpu02"].queues == ("batch", "urgent")
    assert not nodes["gpu03"].healthy


def test_an_outage_is_no_empty_queue(fake: Fake, adapter: SlurmAdapter) -> None:
    down = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    fake.says("squeue", down, when="-o", code=1)
    with pytest.raises(ExecutorError, match="Unable to contact"):
        adapter.jobs()
    fake.says("scontrol", fixture("squeue-22.05-controller-down.json"), when="show")
    with pytest.raises(OutageError, match="Failed while looking for jobs"):
        adapter.job("4")
    with pytest.raises(OutageError):
        adapter.nodes()


def test_a_job_that_is_forgotten_is_none(fake: Fake, adapter: SlurmAdapter) -> None:
    gone = "slurm_load_jobs error: Invalid job id specified"
    fake.says("scontrol", gone, when="show job", code=1)
    assert adapter.job("4") is None
    record = JobRecord(job_id="alpha/4@1", state="FAILED", submit_time=1.0)
    assert adapter.restarts(EndedRun("4", "4", "4", record, (), "", "")) is None
    assert adapter.probe(Requeue(job="4", run=0)).state == "changed"
    fake.says("squeue", gone, when="-j", code=1)
    assert adapter.describe(["4"]) == {}


def test_a_command_that_hangs_is_ended_with_all_that_it_started(
    fake: Fake, adapter: SlurmAdapter
) -> None:
    (fake.folder / "sprio").write_text("#!/bin/sh\nsleep 600 & sleep 600\n")
    (fake.folder / "sprio").chmod(0o755)
    with pytest.raises(OutageError, match="did not end within"):
        adapter.commands.run("sprio", timeout_s=0.3)
    with pytest.raises(OutageError, match="is it installed"):
        Commands(["/nonexistent/sudo"]).run("sprio")
    with pytest.raises(CommandError):
        adapter.commands.run("no-such-command")


def test_commands_get_a_known_environment(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT", "%j")  # would change what squeue prints
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/other.conf")
    printed = Commands(["nice", "-n", "1"]).run("env")
    assert "SLURM_TIME_FORMAT=%s" in printed
    assert "SLURM_CONF=/etc/slurm/other.conf" in printed
    assert "SQUEUE_FORMAT" not in printed


STATES = [
    # restarts, state, reason, excluded, nodes -> what a requeue of run 0 without gpu01 finds
    (0, ["FAILED"], "NonZeroExitCode", "", "gpu01", "ready"),
    (0, ["RUNNING"], "None", "", "gpu01", "ready"),
    (0, ["PENDING"], "Resources", "", "", "moot"),
    (1, ["PENDING"], "JobHeldUser", "", "", "ready"),
    (1, ["PENDING"], "JobHeldUser", "gpu01", "", "ready"),
    (1, ["PENDING"], "BeginTime", "", "", "ready"),  # Slurm requeued it by itself
    (1, ["PENDING"], "BeginTime", "gpu[01-02]", "", "done"),
    (1, ["RUNNING"], "None", "", "gpu02", "done"),
    (1, ["RUNNING"], "None", "", "gpu01", "changed"),
    (1, ["FAILED"], "NonZeroExitCode", "gpu01", "gpu02", "done"),
    (2, ["FAILED"], "NonZeroExitCode", "gpu01", "gpu02", "changed"),
]


@pytest.mark.parametrize(("restarts", "state", "reason", "excluded", "nodes", "found"), STATES)
def test_how_far_a_requeue_has_come(
    fake: Fake,
    adapter: SlurmAdapter,
    restarts: int,
    state: list[str],
    reason: str,
    excluded: str,
    nodes: str,
    found: str,
) -> None:
    fields = {"restart_cnt": restarts, "job_state": state, "state_reason": reason}
    printed = one_job(**fields, excluded_nodes=excluded, nodes=nodes)
    fake.says("scontrol", printed, when="show job")
    assert adapter.probe(Requeue(job="4", run=0, exclude=("gpu01",))).state == found


def test_a_run_that_is_still_ending_is_waited_for(fake: Fake, adapter: SlurmAdapter) -> None:
    fake.says("scontrol", one_job(job_state=["RUNNING", "COMPLETING"]), when="show job")
    with pytest.raises(ExecutorError, match="must end first"):
        adapter.probe(Requeue(job="4", run=0))


def test_what_is_left_of_a_requeue_is_done_in_the_order_that_slurm_allows(
    fake: Fake, adapter: SlurmAdapter
) -> None:
    fake.says("scontrol", one_job(excluded_nodes="gpu04"), when="show job")
    action = Requeue(job="4", run=0, exclude=("gpu01",))
    assert adapter.act(action, key="x", timeout_s=5.0).outcome == "done"
    assert [call for call in fake.calls() if "show" not in call and "version" not in call] == [
        "scontrol requeuehold 4",
        "scontrol update JobId=4 ExcNodeList=gpu04,gpu01",
        "scontrol release 4",
    ]


@pytest.mark.parametrize(
    ("node", "drain", "resume"),
    [
        ({"state": ["IDLE"]}, "ready", "moot"),
        ({"state": ["MIXED", "DRAIN"], "reason": "schedmate: ecc-1"}, "done", "ready"),
        ({"state": ["IDLE", "DRAIN"], "reason": "schedmate: ecc-2"}, "moot", "changed"),
        ({"state": ["IDLE", "DRAIN"], "reason": "fan"}, "moot", "changed"),
        ({"state": ["DOWN", "NOT_RESPONDING"]}, "moot", "moot"),  # out of service as it is
        ({"name": "gpu99", "state": ["IDLE"]}, "changed", "changed"),
    ],
)
def test_whose_drain_it_is(
    fake: Fake, adapter: SlurmAdapter, node: dict[str, Any], drain: str, resume: str
) -> None:
    document = {"nodes": [{"name": "gpu01", "reason": "", "partitions": ["batch"]} | node]}
    fake.says("scontrol", json.dumps(document), when="show nodes")
    assert adapter.probe(Drain(node="gpu01", mark="ecc-1")).state == drain
    assert adapter.probe(Resume(node="gpu01", mark="ecc-1")).state == resume


def test_nodes_are_drained_by_the_administrator_s_command_alone(
    fake: Fake, adapter: SlurmAdapter
) -> None:
    fake.says("drain", "drained\n")
    assert adapter.act(Drain(node="gpu01", mark="ecc-1"), key="x", timeout_s=5).outcome == "done"
    assert fake.calls() == ["drain drain gpu01 ecc-1"]
    without = SlurmAdapter(Commands(), cluster="alpha")
    answer = without.act(Drain(node="gpu01", mark="ecc-1"), key="x", timeout_s=5)
    assert answer.outcome == "failed"
    assert "no command is set" in answer.detail


def test_an_order_goes_out_by_value_and_says_what_was_refused(
    fake: Fake, adapter: SlurmAdapter
) -> None:
    fake.says("sprio", "1 0\n2 0\n3 500\n4 77\n")
    fake.says("scontrol", "slurm_update error: Invalid user id", when="update", code=1)
    action = Order(
        values={"1": 500, "2": 500, "3": 500, "4": 500, "9": 1}, previous={"1": 0, "2": 0}
    )
    answer = adapter.act(action, key="x", timeout_s=5.0)
    assert answer.outcome == "failed"
    assert "Invalid user id" in answer.detail
    assert "scontrol update JobId=1,2 SiteFactor=500" in fake.calls()
    with pytest.raises(ExecutorError, match="takes no action"):
        adapter.probe(Diagnose(diagnostic="gpu", nodes=("gpu01",)))


def test_many_jobs_of_one_value_are_few_commands() -> None:
    values = {str(number): number % 3 for number in range(1000)}
    groups = by_value(values)
    assert [value for value, _ in groups] == sorted((value for value, _ in groups), reverse=True)
    assert len(groups) == 6
    assert {job: value for value, jobs in groups for job in jobs} == values


def test_a_launch_command_is_the_script_that_slurm_keeps() -> None:
    script = "#!/bin/bash\n#SBATCH -t 10\npython train.py --name 'a b' $1\n"
    command = launch_command("/home/a/train.sh 7", script, "/home/a b", 2)
    assert command is not None
    bash, option, text, name, argument = shlex.split(command)
    assert (bash, option, name, argument) == ("bash", "-c", "/home/a/train.sh", "7")
    assert text.endswith(script)
    assert text.count("\n") == script.count("\n")  # its lines keep their numbers
    assert "SLURM_SUBMIT_DIR='/home/a b' SLURM_NNODES=2" in text
    assert launch_command("/home/a/train.sh 7", None, "/w") == "/home/a/train.sh 7"
    assert launch_command("", None, "/w") is None


def test_the_configuration() -> None:
    printed = (
        "Configuration data as of 2026-11-22T11:01:30\nClusterName             = testbed\n"
        "AuthInfo                = socket=/x,cred_expire=5\nJobSubmitPlugins        = (null)\n\n"
        "Slurmctld(primary) at vm is UP\n"
    )
    found = parse_config(printed)
    assert found["ClusterName"] == "testbed"
    assert found["AuthInfo"] == "socket=/x,cred_expire=5"
    assert found["JobSubmitPlugins"] == ""
