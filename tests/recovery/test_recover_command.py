"""`schedmate recover` on a site whose commands are real processes, which fail in every way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from cli_runner import Cli, Output
from processes import ends

SITE = str(Path(__file__).with_name("site.sh"))
SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
ECC = "step 10 loss 2.0\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n"
XID = (
    "Nov  2 11:44:30 gpu-02 kernel: NVRM: Xid (PCI:0000:5d:00): 95, pid=7194, "
    "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No\n"
)
NAMES = [f"gpu-{number:02}" for number in range(1, 9)]


class Site:
    """A folder that is the cluster, its recovery.yaml, and the command line on it."""

    def __init__(self, folder: Path, cli: Cli) -> None:
        self.folder, self.cli = folder, cli
        for name in ("nodes", "jobs", "faults"):
            (folder / name).mkdir()
        for node in NAMES:
            (folder / "nodes" / node).write_text("")
        (folder / "jobs" / "17").write_text("0 FAILED\n")
        (folder / "bad").write_text("")
        self.configure()

    def configure(self, **parts: Any) -> None:
        def site(*words: str) -> list[str]:
            return [SITE, str(self.folder), *words]

        document = {
            "cluster": "alpha",
            "record": "record.db",
            "kill_switch": "stop",
            "isolation": {"at_most": 2, "at_most_percent": 50, "cool_down": 0, "keep_percent": 50},
            "diagnostics": {
                "gpu": {"command": site("test", "{node}"), "reads": "exit-code"},
                "collective": {
                    "command": site("collective", "{nodes}"),
                    "reads": "nccl-tests",
                    "how": "halving",
                },
            },
            "commands": {
                "nodes": site("nodes"),
                "job": site("job", "{job}"),
                "drain": site("drain", "{node}", "{mark}", "{reason}"),
                "resume": site("resume", "{node}", "{mark}"),
                "requeue": site("requeue", "{job}", "{exclude}"),
                "notify": site("notify", "{to}", "{text}"),
                "timeout": 20,
            },
        } | parts
        place = self.folder / "recovery.yaml"
        place.write_text(yaml.safe_dump(document))
        place.chmod(0o600)

    def __call__(self, *arguments: str) -> Output:
        return self.cli("recover", *arguments, "--recovery", str(self.folder / "recovery.yaml"))

    def json(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        done = self(*arguments, "--json")
        assert done.code == code, done.err
        document: dict[str, Any] = json.loads(done.out)
        schema = json.loads((SCHEMAS / "recover-v1.schema.json").read_text())
        jsonschema.validate(document, schema)
        return document

    def plan(
        self, log: str = ECC, *more: str, node_log: str = "", job: str = "17"
    ) -> dict[str, Any]:
        (self.folder / "job.log").write_text(log)
        words = [str(self.folder / "job.log"), "--job", job, *more]
        if node_log:
            (self.folder / "dmesg").write_text(node_log)
            words += ["--node-logs", str(self.folder / "dmesg")]
        return self.json("plan", *words)

    def confirmed(self) -> str:
        found = self.plan(ECC, "--nodes", "gpu-[01-04]", node_log=XID)
        id_: str = found["plans"][0]["plan"]["id"]
        return id_

    def approved(self) -> str:
        id_ = self.confirmed()
        assert self("approve", id_).code == 0
        return id_

    def effects(self) -> list[str]:
        log = self.folder / "done.log"
        return log.read_text().splitlines() if log.exists() else []

    def fault(self, command: str, how: str) -> None:
        place = self.folder / "faults" / command
        place.write_text(how) if how else place.unlink()


@pytest.fixture
def site(tmp_path: Path, cli: Cli) -> Site:
    folder = tmp_path / "site"
    folder.mkdir()
    return Site(folder, cli)


def kinds(document: dict[str, Any], number: int = 0) -> list[str]:
    return [one["kind"] for one in document["plans"][number]["plan"]["actions"]]


def test_from_a_log_to_a_job_that_runs_elsewhere(site: Site) -> None:
    planned = site.plan(ECC, "--nodes", "gpu-[01-04]", node_log=XID)
    assert kinds(planned) == ["drain", "requeue", "notify"]
    plan = planned["plans"][0]["plan"]
    assert plan["reason"]["confirmed_by"].startswith("the node's own log")
    assert plan["actions"][1]["exclude"] == ["gpu-02"]
    assert planned["forbidden"] == []
    assert site.effects() == []
    refused = site("apply", plan["id"])
    assert (refused.code, site.effects()) == (7, [])
    assert "recover approve" in refused.err
    assert site("approve", plan["id"], "--note", "seen it").code == 0
    applied = site.json("apply")
    assert applied["plans"][0]["state"] == "applied"
    assert site.effects() == ["drain gpu-02", "requeue 17 without gpu-02"]
    reason = (site.folder / "nodes" / "gpu-02").read_text()
    assert reason == f"schedmate: ecc-error-{plan['id']}"
    assert "operator" in (site.folder / "mail").read_text()
    # again, however asked for, it is done once
    assert site.json("apply", plan["id"])["plans"][0]["state"] == "applied"
    assert site.plan(ECC, "--nodes", "gpu-[01-04]", node_log=XID)["plans"][0]["state"] == "applied"
    assert len(site.effects()) == 2
    status = site.json("status")
    assert status["isolated"] == {"gpu-02": plan["id"]}
    undone = site.json("undo", plan["id"])
    assert undone["plans"][0]["state"] == "undone"
    assert "requeue of job 17 cannot be taken back" in undone["plans"][0]["note"]
    assert site.effects()[2:] == ["resume gpu-02"]
    checked = site.json("status", "--verify")
    assert checked["chain"]["broken"] is None
    head = f"{checked['chain']['entries']}:{checked['chain']['head']}"
    assert site("status", "--verify", "--head", head).code == 0


def test_text_alone_is_tested_first(site: Site) -> None:
    (site.folder / "bad").write_text("gpu-03\n")
    log = "gpu-03: " + ECC + "[rank3]: on node gpu-03\n"
    planned = site.plan(log, "--nodes", "gpu-[01-04]")
    assert kinds(planned) == ["diagnose"]
    id_ = planned["plans"][0]["plan"]["id"]
    site("approve", id_)
    applied = site.json("apply", id_)
    assert site.effects() == []
    assert kinds(applied, 1)[0] == "drain"
    following = applied["plans"][1]["plan"]
    assert [one["node"] for one in following["actions"] if one["kind"] == "drain"] == ["gpu-03"]
    assert "GPU 3 is broken" in following["reason"]["confirmed_by"]
    site("approve", following["id"])
    site.json("apply", following["id"])
    assert site.effects() == ["drain gpu-03", "requeue 17 without gpu-03"]


def test_a_test_that_passes_isolates_nobody(site: Site) -> None:
    id_ = site.plan(ECC, "--nodes", "gpu-[01-04]")["plans"][0]["plan"]["id"]
    site("approve", id_)
    applied = site.json("apply", id_)
    assert "drain" not in kinds(applied, 1)
    assert "requeue" in kinds(applied, 1)


def test_the_network_is_searched_by_halving(site: Site) -> None:
    (site.folder / "bad").write_text("gpu-06\n")
    site.configure(automatic=["diagnose"])
    log = (
        "step 5 loss 1\n[rank0]: torch.distributed.DistBackendError: NCCL error: remote process "
        "exited or there was a network error\nncclRemoteError: A call failed possibly due to a "
        "network error\nsocketProgress: Connection closed by remote peer\n"
    )
    planned = site.plan(log, "--nodes", "gpu-[01-08]")
    if kinds(planned) != ["diagnose"]:
        pytest.fail(f"{planned['plans'][0]['plan']['reason']}")
    assert planned["plans"][0]["state"] == "approved"  # as recovery.yaml says
    assert planned["plans"][0]["by"] == "recovery.yaml"
    applied = site.json("apply")
    drains = [one for one in applied["plans"][1]["plan"]["actions"] if one["kind"] == "drain"]
    assert [one["node"] for one in drains] == ["gpu-06"]
    assert len((site.folder / "tests.log").read_text().splitlines()) <= 2 * 3 + 4


@pytest.mark.parametrize(
    ("command", "how", "state", "effects"),
    [
        ("drain", "before", "failed", 0),
        ("drain", "after", "applied", 2),
        ("requeue", "before", "failed", 1),
        ("requeue", "after", "applied", 2),
        ("nodes", "before", "approved", 0),
        ("nodes", "garbage", "approved", 0),
        ("job", "garbage", "applying", 1),
        ("notify", "before", "failed", 2),
    ],
)
def test_commands_that_fail(site: Site, command: str, how: str, state: str, effects: int) -> None:
    id_ = site.approved()
    site.fault(command, how)
    done = site("apply", id_)
    assert done.code == (0 if state == "applied" else 7), done.err + done.out
    assert site.json("status", id_)["plans"][0]["state"] == state
    assert len(site.effects()) == effects
    site.fault(command, "")
    again = site("apply", id_, *(["--retry"] if state == "failed" else []))
    assert again.code == 0, again.err
    assert site.effects() == ["drain gpu-02", "requeue 17 without gpu-02"]


def test_a_command_that_hangs_is_ended(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    id_ = site.approved()
    site.fault("drain", "hang")
    with monkeypatch.context() as patch:
        patch.setattr("schedmate.cluster.record.TIMEOUT_S", 1.0)
        done = site("apply", id_)
    assert done.code == 7
    assert "did not end within 1 s" in done.out
    assert site.json("status")["undetermined"] == 1
    site.fault("drain", "")
    assert site("apply", id_).code == 0
    assert site.effects() == ["drain gpu-02", "requeue 17 without gpu-02"]


def test_a_state_that_changed_in_between(site: Site) -> None:
    id_ = site.approved()
    (site.folder / "nodes" / "gpu-02").write_text("fan, alice")
    (site.folder / "jobs" / "17").write_text("3 RUNNING\n")
    done = site("apply", id_)
    assert done.code == 7
    assert "run 3 of job 17 is RUNNING" in done.out
    assert site.effects() == []
    site("undo", id_)
    assert (site.folder / "nodes" / "gpu-02").read_text() == "fan, alice"


def test_killed_and_applied_again(site: Site) -> None:
    id_ = site.approved()
    site.fault("drain", "hang")
    command = [sys.executable, "-m", "schedmate", "recover", "apply", id_]
    command += ["--recovery", str(site.folder / "recovery.yaml")]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid = site.folder / "pid"
    try:
        while not (pid.exists() and pid.read_text().endswith("\n")):
            assert running.poll() is None
            time.sleep(0.01)
        twice = site("apply", id_)
        assert twice.code == 7
        assert "another process" in twice.err
    finally:
        running.kill()
        running.wait()
    site.fault("drain", "")
    # what was started still runs, and may yet do what it was started for
    assert "another process is at drain" in site("apply", id_).out
    assert site.effects() == []
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert ends(int(pid.read_text()))
    assert site("apply", id_).code == 0
    assert site.effects() == ["drain gpu-02", "requeue 17 without gpu-02"]


def test_the_kill_switch_and_the_breaker(site: Site) -> None:
    id_ = site.approved()
    (site.folder / "stop").touch()
    assert "kill switch" in site("apply", id_).out
    assert site.json("status")["kill_switch"] is True
    (site.folder / "stop").unlink()
    site.configure(isolation={"at_most": 0})
    assert "circuit breaker" in site("apply", id_, "--retry").out
    assert site.json("status")["breaker"] == "open"
    site.configure()
    assert "it is open" in site("apply", id_, "--retry").out
    assert "is closed" in site("reset", "--note", "looked at it").err
    assert site("apply", id_, "--retry").code == 0
    assert len(site.effects()) == 2


def test_a_dry_run_keeps_nothing(site: Site) -> None:
    first = site.plan(ECC, "--nodes", "gpu-[01-04]", "--dry-run", node_log=XID)
    assert kinds(first)[0] == "drain"
    assert not (site.folder / "record.db").exists()
    id_ = site.confirmed()
    entries = site.json("status", "--verify")["chain"]["entries"]
    again = site.plan(ECC, "--nodes", "gpu-[01-04]", "--dry-run", node_log=XID)
    assert again["plans"][0]["plan"]["id"] == id_
    assert site.json("status", "--verify")["chain"]["entries"] == entries


def test_a_rejected_plan_is_not_proposed_again(site: Site) -> None:
    id_ = site.confirmed()
    assert site("reject", id_, "--note", "we know this node").code == 0
    again = site.plan(ECC, "--nodes", "gpu-[01-04]", node_log=XID)
    assert (again["plans"][0]["state"], again["plans"][0]["note"]) == (
        "rejected",
        "we know this node",
    )
    assert site("approve", id_).code == 7


def test_a_person_confirms(site: Site) -> None:
    found = site.plan(ECC, "--nodes", "gpu-03", "--confirmed-by", "the LED is red")
    assert kinds(found)[:2] == ["drain", "requeue"]
    plan = found["plans"][0]["plan"]
    assert plan["reason"]["confirmed_by"] == "a person: the LED is red"
    assert plan["actions"][0]["node"] == "gpu-03"
    several = site.plan(ECC, "--nodes", "gpu-[03-04]", "--confirmed-by", "the LED is red", job="18")
    assert kinds(several) == ["diagnose"]  # which of them is at fault, nobody has said


def test_what_is_no_failure_and_what_is_the_users(site: Site) -> None:
    none = site.plan("step 1\nTraining completed successfully.\n")
    assert none["plans"] == []
    assert "did not fail" in none["why"]
    script = site.plan("Traceback (most recent call last):\nKeyError: 'x'\n", job="18")
    assert kinds(script) == ["notify"]
    assert script["plans"][0]["plan"]["actions"][0]["to"] == "user"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("approve", "0123456789ab"), 7, "no plan"),
        (("plan", "LOG", "--job", "17,18"), 2, "cannot be the id"),
        (("plan", "LOG", "--job", "-x y"), 2, "cannot be the id"),
        (("apply", "--retry"), 2, "needs the ids of plans"),
        (("status", "--head", "nonsense"), 2, "--head"),
    ],
)
def test_bad_input_is_one_sentence(
    site: Site, arguments: tuple[str, ...], code: int, words: str
) -> None:
    site.confirmed()
    log = str(site.folder / "job.log")
    done = site(*[log if word == "LOG" else word for word in arguments])
    assert done.code == code
    assert words in done.err
    assert "Traceback" not in done.err


def test_without_a_file_everything_is_planned_and_nothing_done(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(ECC)
    record = ("--record", str(tmp_path / "r.db"))
    assert "no record" in cli("recover", "status", *record).err
    planned = cli("recover", "plan", str(tmp_path / "job.log"), "--job", "17", "--json", *record)
    id_ = json.loads(planned.out)["plans"][0]["plan"]["id"]
    assert cli("recover", "approve", id_, *record).code == 0
    done = cli("recover", "apply", id_, *record)
    assert done.code == 7
    assert "no cluster can be reached" in done.err


def test_screens(site: Site) -> None:
    id_ = site.approved()
    shown = site("status")
    assert id_ in shown.out
    assert "approved" in shown.out
    site("apply", id_)
    one = site("status", id_)
    assert "drain node gpu-02: done" in one.out
    assert "requeue job 17 without gpu-02" in one.out
    assert "Xid" in one.out
    assert "isolated: gpu-02" in site("status", "--all").out


def test_a_record_that_was_changed_is_noticed(site: Site) -> None:
    import sqlite3

    site.approved()
    with sqlite3.connect(site.folder / "record.db") as database:
        database.execute("DROP TRIGGER entries_stay")
        database.execute("UPDATE entries SET actor = 'bob' WHERE kind = 'moved'")
    database.close()
    done = site("status", "--verify")
    assert done.code == 7
    assert "was changed" in done.out


def test_checkpoints_by_the_command_line(cli: Cli, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint-5"
    place.mkdir()
    (place / "trainer_state.json").write_text("{}")
    (place / "pytorch_model.bin").write_bytes(b"weights")
    for file in place.iterdir():
        os.utime(file, (1e9, 1e9))
    done = cli("recover", "checkpoint", str(tmp_path), "--command", "python t.py")
    assert f"python t.py --resume_from_checkpoint {place}" in done.out
    shown = json.loads(cli("recover", "checkpoint", str(tmp_path), "--json").out)
    schema = json.loads((SCHEMAS / "checkpoint-v1.schema.json").read_text())
    jsonschema.validate(shown, schema)
    assert shown["step"] == 5
    (tmp_path / "empty").mkdir()
    assert cli("recover", "checkpoint", str(tmp_path / "empty")).code == 4


def test_a_number_of_restarts_that_cannot_be_is_one_sentence(site: Site) -> None:
    refused = site("plan", "job.out", "--job", "17", "--run", str(1 << 70))
    assert refused.code == 2
    assert "--run" in refused.err
    assert "1000000000" in refused.err
    assert "Traceback" not in refused.err
    assert "validation error" not in refused.err


def test_what_a_guard_stops_is_told_and_goes_on_after_a_reset(site: Site) -> None:
    id_ = site.approved()
    site.configure(isolation={"at_most": 0})
    stopped = site("apply", id_)
    assert stopped.code == 7
    mail = (site.folder / "mail").read_text().splitlines()
    assert sum("job 17: ECC Error" in line for line in mail) == 1
    (alarm,) = [line for line in mail if f"plan {id_} stopped" in line]
    assert alarm.startswith("operator: ")
    assert "circuit breaker" in alarm
    assert site.effects() == []
    site.configure()
    done = site("reset", "--note", "looked")
    assert f"plan {id_}, which it had stopped, is approved again" in done.err
    assert site.json("status", id_)["plans"][0]["state"] == "approved"
    assert site("apply").code == 0
    assert site.effects() == ["drain gpu-02", "requeue 17 without gpu-02"]
    # each person was told once
    assert (site.folder / "mail").read_text().splitlines() == mail


def test_nobody_is_told_where_no_command_tells(site: Site) -> None:
    site.configure()
    document = yaml.safe_load((site.folder / "recovery.yaml").read_text())
    del document["commands"]["notify"]
    site.configure(commands=document["commands"])
    id_ = site.approved()
    applied = site.json("apply", id_)["plans"][0]
    assert applied["state"] == "applied"
    assert "skipped, recovery.yaml names no command `notify`" in applied["note"]
    assert [one["kind"] for one in applied["attempts"]] == ["drain", "requeue"]


def test_a_node_that_a_person_returned_is_isolated_no_more(site: Site) -> None:
    from schedmate.cluster.record import Record
    from schedmate.cluster.recovery.configuration import load_configuration
    from schedmate.commands.recover import recovery_service

    id_ = site.approved()
    assert site("apply", id_).code == 0
    assert site.json("status")["isolated"] == {"gpu-02": id_}
    configuration = load_configuration(site.folder / "recovery.yaml")
    with Record(configuration.record) as record:
        service = recovery_service(configuration, record)
        assert service.reconcile() == []
        (site.folder / "nodes" / "gpu-02").write_text("")
        assert service.reconcile() == ["gpu-02"]
        assert service.reconcile() == []
    assert site.json("status")["isolated"] == {}
    history = site.json("status", id_)["plans"][0]["history"]
    assert any("gpu-02 is in service" in one["text"] for one in history)
    assert site("undo", id_).code == 0  # there is nothing left of it


def test_a_decision_names_the_person_behind_an_account(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from schedmate.commands import recover

    monkeypatch.setattr(recover, "login_id", lambda: None)
    monkeypatch.setattr(recover.os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_USER", "alice")
    assert recover.invoking_user() == "alice (as root)"
    monkeypatch.delenv("SUDO_USER")
    assert (recover.invoking_user(), recover.invoking_person()) == ("root", None)

    id_ = site.confirmed()
    file = site.folder / "recovery.yaml"
    file.write_text(file.read_text() + "\ndecides: person\n")
    refused = site("approve", id_)
    assert refused.code == 2
    assert "log in as yourself" in refused.err
    monkeypatch.setenv("SUDO_USER", "alice")
    assert site("approve", id_).code == 0
