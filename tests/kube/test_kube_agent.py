"""An agent on the stand-in for a Kubernetes API server: advice, order, recovery, and its rights."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from api_calls import Failure
from api_rights import Rights
from api_server import ApiServer
from cli_runner import Cli
from kube_cluster import AGENT, ECC, THEIRS, XID, Cluster, manifests, stamp, until
from kube_files import AgentFiles

from schedmate.base.errors import SchedmateError
from schedmate.cluster.actions import Drain, Resume
from schedmate.cluster.adapter import Description
from schedmate.cluster.bounds import CodeBounds
from schedmate.cluster.kubernetes import adapter
from schedmate.cluster.kubernetes.nodes import our_mark
from schedmate.cluster.kubernetes.workloads import Workload, parse_job_id
from schedmate.mate import SchedMate, embedder_of
from schedmate.retrieval.history import JobHistory
from schedmate.settings import load_settings

ANNOTATE = {"where": "annotation"}
LOOK = ("base",)
ALL = ("base", "annotate", "recover")


def be_the_agent(server: ApiServer, files: AgentFiles, *folders: str) -> None:
    """Give the agent the rights of these manifests, and no other."""
    server.rights = Rights(manifests(*folders))
    files.be(AGENT)


def broken_node(cluster: Cluster) -> dict[str, object]:
    """Three nodes, one of them broken, and a job that failed on it; its pods that are left."""
    for name in ("gpu-1", "gpu-2", "gpu-3"):
        cluster.node(name, taints=[dict(THEIRS)], broken=XID if name == "gpu-2" else "")
    job = cluster.job("train")
    cluster.pod(job, "gpu-2", name="train-a", phase="Failed", exit_code=1, log=ECC)
    cluster.pod(job, "gpu-2", name="train-b")
    cluster.pod(job, "gpu-1", name="train-c")
    return job


def test_a_labelled_job_is_estimated_and_annotated_once(
    server: ApiServer, cluster: Cluster, files: AgentFiles
) -> None:
    be_the_agent(server, files, "base", "annotate")
    files.allow(annotate=ANNOTATE, kubernetes={"lease_namespace": "schedmate"})
    job = cluster.job("train", annotations={"schedmate.io/code": "train"})
    its = cluster.job(
        "its", annotations={"schedmate.io/code": "train", "schedmate.io/estimate": "two hours"}
    )
    other = cluster.job("other", labels={})
    cluster.pytorchjob("big", 3, "torchrun train.py --epochs 4")
    cluster.rayjob("ray", "python train.py --epochs 2")
    with files.opened() as setup:
        setup.memory.set_mark("starts", {"gone": {}})
        first, second = setup.agent.once(), setup.agent.once()
        starts = setup.memory.mark("starts")
        known = {
            one.id: setup.adapter.describe([one.id])[one.id].spec for one in setup.adapter.jobs()
        }
    assert first.problems == []
    assert "gone" not in starts
    assert "team-a/job/train" in starts
    assert {one.job for one in first.estimated} == {
        "team-a/job/train", "team-a/job/its", "team-a/pytorchjob/big", "team-a/rayjob/ray",
    }  # fmt: skip
    assert cluster.annotations(job)["schedmate.io/estimate"].startswith("schedmate: about 30 min")
    assert cluster.annotations(its)["schedmate.io/estimate"] == "two hours"
    assert "schedmate.io/estimate" not in cluster.annotations(other)
    assert not second.estimated
    assert not second.actions
    assert len(server.requests("PATCH")) == 1
    assert (
        known["team-a/pytorchjob/big"].launch.gpus,
        known["team-a/pytorchjob/big"].launch.nodes,
    ) == (16, 4)
    assert known["team-a/rayjob/ray"].command == "python train.py --epochs 2"
    assert known["team-a/rayjob/ray"].launch.gpus == 12


def test_a_job_that_cannot_be_described_is_no_other_jobs_problem(
    server: ApiServer, cluster: Cluster, files: AgentFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_the_agent(server, files, "base", "annotate")
    files.allow(annotate=ANNOTATE, kubernetes={"lease_namespace": "schedmate"})
    cluster.job("train", annotations={"schedmate.io/code": "train"})
    cluster.job("absurd", "python \ud800.py", gpus=10**12)
    cluster.change(
        ("batch", "jobs", "team-a", "absurd"),
        lambda one: one["spec"].update(activeDeadlineSeconds=2**63 - 1),
    )
    cluster.job("broken")
    real = adapter.describe_job

    def failing(job: Workload, code: CodeBounds) -> Description:
        if job.id == "team-a/job/broken":
            raise ValueError("no number")
        return real(job, code)

    monkeypatch.setattr(adapter, "describe_job", failing)
    with files.opened() as setup:
        first, second = setup.agent.once(), setup.agent.once()
    assert len(first.estimated) == 3
    assert len(first.problems) == 1
    assert first.problems[0].startswith("team-a/job/broken cannot be described: ")
    assert not second.problems


def test_a_job_without_an_estimate_gets_one_when_the_history_has_come(
    cluster: Cluster, files: AgentFiles
) -> None:
    files.allow(annotate=ANNOTATE, learn={"every": 0.001})
    with JobHistory.open(Path(files.history), read_only=True) as history:
        past = list(history.export())
    place = files.folder / "history that comes later"
    files.mate = SchedMate(load_settings(history=str(place), mode="static"))
    job = cluster.job("train", annotations={"schedmate.io/code": "train"})
    with files.opened() as setup:
        first, second = setup.agent.once(), setup.agent.once()
        assert [one.estimate.abstained for one in first.estimated] == [True]
        assert not second.estimated
        with JobHistory.open(place, embedder_of(files.mate.settings)) as history:
            history.add_many(past)
        third, fourth = setup.agent.once(), setup.agent.once()
    files.mate.close()
    assert [(one.estimate.abstained, one.again) for one in third.estimated] == [(False, True)]
    assert not fourth.estimated
    assert cluster.annotations(job)["schedmate.io/estimate"].startswith("schedmate: about 30 min")


def test_a_node_that_says_it_is_broken_is_isolated_and_its_pods_start_elsewhere(
    server: ApiServer, cluster: Cluster, files: AgentFiles
) -> None:
    be_the_agent(server, files, *ALL)
    files.allow(
        recover=True,
        automatic=("isolate", "restart", "notify"),
        kubernetes={"lease_namespace": "schedmate"},
    )
    job = broken_node(cluster)
    files.begin_an_hour_ago()
    with files.opened() as setup:
        first, second, third = (setup.agent.once() for _ in range(3))
        assert [one.problems for one in (first, second, third)] == [[], [], []]
        diagnosis = first.failed[0].diagnosis
        assert diagnosis is not None
        assert (diagnosis.error_name, diagnosis.origin) == ("ECC Error", "node_log")
        # what recovery.yaml lets happen without a person is done at once
        assert [one.action.kind for one in first.actions] == ["drain", "requeue", "notify"]
        assert not second.actions
        assert not third.actions
        plan = first.failed[0].plan
        assert plan is not None
        assert cluster.taints("gpu-2") == [
            THEIRS,
            {"key": "schedmate.io/isolated", "value": f"ecc-error-{plan}", "effect": "NoSchedule"},
        ]
        assert cluster.pods() == ["train-a", "train-c"]
        assert cluster.annotations(job)["schedmate.io/requeued"].startswith("3000 ")
        assert cluster.taints("gpu-1") == [THEIRS]
    # what was done can be taken back, and what is somebody else's stays
    options = dict(zip(files.options[::2], files.options[1::2], strict=True))
    del options["--history"]
    words = [word for pair in options.items() for word in pair]
    undone = files.command("undo", plan, *words)
    assert undone.returncode == 0, undone.stderr
    assert "is undone" in undone.stderr
    assert files.command("undo", "0123456789ab", *words).returncode == 7
    assert cluster.taints("gpu-2") == [THEIRS]
    with files.kept() as record:
        assert record.verify().broken is None
        assert not record.undetermined()


def test_events_say_why_a_pod_failed_that_said_nothing(
    server: ApiServer, cluster: Cluster, files: AgentFiles
) -> None:
    be_the_agent(server, files, *LOOK)
    files.allow(kubernetes={"lease_namespace": "schedmate"})
    cluster.node("gpu-1")
    job = cluster.job("train")
    pod = cluster.pod(job, "gpu-1", name="train-a", phase="Failed", exit_code=137, log="")
    mount = 'MountVolume.SetUp failed for volume "data" : mount failed: exit status 32'
    cluster.event(pod, "Pulled", "Failed to pull image", kind="Normal")
    cluster.event(pod, "FailedMount", mount)
    other = cluster.pod(cluster.job("other"), "gpu-1", name="other-a")
    cluster.event(other, "FailedCreatePodSandBox", "Failed to create pod sandbox")
    files.begin_an_hour_ago()
    with files.opened() as setup:
        (failed,) = setup.agent.once().failed
    assert failed.diagnosis is not None
    assert (failed.diagnosis.error_name, failed.diagnosis.origin) == ("S3/Storage Error", "job_log")
    assert failed.log is not None
    (log,) = Path(failed.log).iterdir()
    assert log.name == "train-a.train.log"
    (line,) = log.read_text().splitlines()
    assert line.startswith("Warning  FailedMount  20")
    assert line.endswith(f"(x2)  kubelet  {mount}")


def test_events_stand_behind_what_a_pod_said_and_isolate_nothing(
    cluster: Cluster, files: AgentFiles
) -> None:
    files.allow(recover=True, automatic=("isolate", "restart", "notify"))
    for name in ("gpu-1", "gpu-2", "gpu-3"):
        cluster.node(name)
    text = "step 1\nTraceback (most recent call last):\nKeyError: 'lr'"
    says, silent = cluster.job("says"), cluster.job("silent")
    pod = cluster.pod(says, "gpu-1", name="says-a", phase="Failed", exit_code=1, log=text)
    cluster.event(pod, "BackOff", "Back-off restarting failed container")
    pod = cluster.pod(silent, "gpu-2", name="silent-a", phase="Failed", exit_code=137, log="")
    cluster.event(pod, "NodeNotReady", f"Node is not ready: {XID}")
    files.begin_an_hour_ago()
    with files.opened() as setup:
        found = {one.job: one for one in setup.agent.once().failed}
        for _ in range(2):
            setup.agent.once()
    first, second = (found[f"team-a/job/{one}"].diagnosis for one in ("says", "silent"))
    assert first is not None
    assert (first.error_name, first.line) == ("Key Error", 2)
    assert second is not None
    assert (second.error_type, second.origin) == ("infrastructure", "job_log")
    assert [cluster.taints(one) for one in ("gpu-1", "gpu-2")] == [[], []]


def test_without_the_right_to_read_events_logs_are_read(
    server: ApiServer, cluster: Cluster, files: AgentFiles
) -> None:
    job = cluster.job("train")
    pod = cluster.pod(job, "gpu-1", name="train-a", phase="Failed", exit_code=1, log=ECC)
    cluster.event(pod, "BackOff", "Back-off restarting failed container")
    server.fail("GET", "events", Failure(403, "Forbidden", "events is forbidden"), times=99)
    files.begin_an_hour_ago()
    with files.opened() as setup:
        (failed,) = setup.agent.once().failed
    assert failed.diagnosis is not None
    assert failed.diagnosis.error_name == "ECC Error"


def test_nothing_is_done_that_nobody_approved(cluster: Cluster, files: AgentFiles) -> None:
    files.allow(recover=True, automatic=("notify",))
    broken_node(cluster)
    files.begin_an_hour_ago()
    with files.opened() as setup:
        assert len(setup.agent.once().waiting) == 1
        assert not setup.agent.once().actions
    assert cluster.taints("gpu-2") == [THEIRS]
    assert len(cluster.pods()) == 3
    assert not cluster.server.requests("PATCH")


def test_a_job_alone_isolates_no_node(cluster: Cluster, files: AgentFiles) -> None:
    files.allow(recover=True, automatic=("isolate", "restart", "notify", "diagnose"))
    cluster.node("gpu-1")
    job = cluster.job("train")
    text = f"2026-01-01T00:00:00Z gpu-1 kernel: {XID}\n{ECC}"
    cluster.pod(job, "gpu-1", phase="Failed", exit_code=1, log=text)
    files.begin_an_hour_ago()
    with files.opened() as setup:
        first, _ = setup.agent.once(), setup.agent.once()
    assert first.failed[0].diagnosis is not None
    assert cluster.taints("gpu-1") == []


def test_a_restarted_container_is_read_where_its_log_is(
    cluster: Cluster, files: AgentFiles
) -> None:
    job = cluster.job("train")
    cluster.node("gpu-1")
    cluster.pod(job, "gpu-1", exit_code=1, again=True, log=ECC)
    files.begin_an_hour_ago()
    with files.opened() as setup:
        first, second = setup.agent.once(), setup.agent.once()
    (failed,) = first.failed
    assert failed.diagnosis is not None
    assert failed.diagnosis.error_name == "ECC Error"
    assert not second.failed
    assert any(one.query.get("previous") == "true" for one in cluster.server.asked)


def test_a_job_that_is_over_is_learned_once(cluster: Cluster, files: AgentFiles) -> None:
    done = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-11-01T00:30:00Z"}
    status = {"conditions": [done], "startTime": "2026-11-01T00:00:00Z"}
    cluster.job("done", annotations={"schedmate.io/code": "train"}, status=status, age_s=9e6)
    files.begin_an_hour_ago()
    with files.opened() as setup:
        assert setup.agent.once().learned == 0  # it ended before the agent began
        setup.memory.set_mark("begun", 1.0)
        setup.memory.set_mark("learned until", 1.0)
        assert [setup.agent.once().learned for _ in range(2)] == [1, 0]
        opened = setup.mate._advice.open(create=False)
        assert opened is not None
        (record,) = [one for one in opened[0].export() if "job/done@" in one.job_id]
    assert (record.state, record.duration_s) == ("COMPLETED", 1800.0)
    assert record.metadata.training.iters == 3


def test_shorter_jobs_come_first_in_kueue_within_the_band(
    server: ApiServer, cluster: Cluster, files: AgentFiles
) -> None:
    be_the_agent(server, files, "base", "annotate")
    order = {
        "allowed": True,
        "lowest": -50,
        "highest": 50,
        "levels": 11,
        "shortest": 300,
        "longest": 5000,
        "ageing": "1000d",
        "every": 0.001,
    }
    files.allow(order=order, kubernetes={"lease_namespace": "schedmate"})
    code = {"schedmate.io/code": "train"}
    short = cluster.workload(
        cluster.job("short", "python train.py --epochs 1", queue="gpus", annotations=code)
    )
    long = cluster.workload(
        cluster.job("long", "python train.py --epochs 4", queue="gpus", annotations=code)
    )
    theirs = cluster.workload(
        cluster.job("theirs", "python train.py --epochs 1", queue="gpus", annotations=code),
        boost="7",
    )
    admitted = cluster.workload(
        cluster.job("admitted", "python train.py --epochs 1", queue="gpus", annotations=code)
    )
    key = ("kueue.x-k8s.io", "workloads", "team-a", admitted["metadata"]["name"])
    reserved = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "QuotaReserved",
        "message": "",
        "lastTransitionTime": "2026-11-01T00:30:00Z",
    }
    cluster.change(key, lambda one: one.update(status={"conditions": [reserved]}))
    boost = "kueue.x-k8s.io/priority-boost"
    with files.opened() as setup:
        first, second = setup.agent.once(), setup.agent.once()
        assert first.problems == []
        values = [int(cluster.annotations(one).get(boost, 0)) for one in (short, long)]
        assert -50 <= values[1] < 0 < values[0] <= 50
        assert cluster.annotations(theirs)[boost] == "7"
        assert boost not in cluster.annotations(admitted)
        assert not second.actions
        assert setup.agent.take_back_order() == 2
    assert boost not in cluster.annotations(short)


def test_what_kueue_queues_is_looked_at_whatever_it_is(cluster: Cluster, files: AgentFiles) -> None:
    labels = {"schedmate.io/watch": "true"}
    unknown = {
        "apiVersion": "jobset.x-k8s.io/v1",
        "kind": "JobSet",
        "metadata": {"name": "a", "namespace": "team-a", "uid": "u"},
    }
    cluster.workload(unknown, labels=labels)
    cluster.workload(cluster.job("train", queue="gpus"), labels=labels)
    with files.opened() as setup:
        jobs = {one.id: one for one in setup.adapter.jobs()}
        assert set(jobs) == {"team-a/workload/jobset-a", "team-a/job/train"}
        assert jobs["team-a/job/train"].queues == ("gpus",)
        assert not jobs["team-a/job/train"].held
        spec = setup.adapter.describe(["team-a/workload/jobset-a"])["team-a/workload/jobset-a"].spec
    assert (spec.launch.gpus, spec.command) == (4, "bash -c 'python train.py --epochs 3'")


@pytest.mark.parametrize(
    "said", ["/etc", "../../../etc", "train/../../team-b/secret", "escape", "\x00", "x" * 5000]
)
def test_an_annotation_that_leads_out_of_the_roots_reads_nothing(
    cluster: Cluster, files: AgentFiles, said: str
) -> None:
    other = files.code / "team-b" / "secret"
    other.mkdir(parents=True)
    (other / "train.py").write_text("import torch\n")
    (files.code / "team-a" / "escape").symlink_to(other)
    files.allow(annotate=ANNOTATE)
    job = cluster.job("train", annotations={"schedmate.io/code": said})
    with files.opened() as setup:
        found = setup.agent.once()
    assert found.problems == []
    assert found.estimated[0].estimate.abstained
    assert "schedmate.io/estimate" not in cluster.annotations(job)


@pytest.mark.parametrize("change", ["annotate", "recover"])
def test_an_agent_without_the_rights_says_so_and_goes_on(
    server: ApiServer, cluster: Cluster, files: AgentFiles, change: str
) -> None:
    be_the_agent(server, files, *LOOK)
    files.begin_an_hour_ago()
    files.allow(
        recover=change == "recover", automatic=("isolate", "restart", "notify"), annotate=ANNOTATE,
        kubernetes={"lease_namespace": "schedmate", "isolate": change == "recover"},
    )  # fmt: skip
    broken_node(cluster)
    cluster.job("new", annotations={"schedmate.io/code": "train"})
    with files.opened() as setup:
        first, second = setup.agent.once(), setup.agent.once()
    assert any("403" in one for one in first.problems + second.problems)
    assert first.failed
    assert first.estimated
    assert not server.requests("PATCH")
    assert len(cluster.pods()) == 3


def test_in_one_namespace_no_right_to_the_cluster_is_needed(
    server: ApiServer, cluster: Cluster, files: AgentFiles
) -> None:
    lease = [one for one in manifests("base") if one["metadata"]["name"] == "schedmate-lease"]
    server.rights = Rights([*manifests("namespaced"), *lease])
    files.be(AGENT)
    kubernetes = {"namespaces": ["team-a"], "lease_namespace": "schedmate"}
    files.allow(annotate=ANNOTATE, kubernetes=kubernetes)
    job = cluster.job("train", annotations={"schedmate.io/code": "train"})
    cluster.job("train", namespace="team-b", annotations={"schedmate.io/code": "train"})
    cluster.pod(cluster.job("failed"), "gpu-1", phase="Failed", exit_code=1, log=ECC)
    files.begin_an_hour_ago()
    with files.opened() as setup:
        found = setup.agent.once()
    assert found.problems == []
    assert "schedmate.io/estimate" in cluster.annotations(job)
    assert {one.job for one in found.estimated} == {"team-a/job/train", "team-a/job/failed"}
    assert found.failed[0].diagnosis is not None
    assert not [one for one in server.asked if one.code == 403 and "/nodes" not in one.path]


def test_a_dry_run_changes_nothing(cluster: Cluster, files: AgentFiles) -> None:
    files.allow(recover=True, automatic=("isolate", "restart", "notify"), annotate=ANNOTATE)
    broken_node(cluster)
    cluster.job("new", annotations={"schedmate.io/code": "train"})
    before = cluster.store.version
    done = files.command("agent", "--once", "--dry-run", "--json", *files.options)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [one["state"] for one in document["actions"]] == ["would"]
    assert cluster.store.version == before
    assert not files.record.exists()


def test_in_the_shadow_nothing_changes_and_a_report_says_what_would(
    server: ApiServer, cluster: Cluster, files: AgentFiles
) -> None:
    files.allow(annotate=ANNOTATE)
    job = cluster.job("train", annotations={"schedmate.io/code": "train"})
    with files.opened(shadow=True) as setup:
        first, second = setup.agent.once(), setup.agent.once()
        assert [(done.action.kind, done.state) for done in first.actions] == [("annotate", "would")]
        assert not second.actions  # it counts as done
        done = {"type": "Complete", "status": "True", "lastTransitionTime": stamp()}
        status = {"conditions": [done], "startTime": stamp(1800.0)}
        cluster.change(
            ("batch", "jobs", "team-a", job["metadata"]["name"]),
            lambda one: one.update(status=status),
        )
        setup.memory.set_mark("begun", 1.0)
        checked = until("the watch says that it ended", 30.0, lambda: setup.agent.once().checked)
    assert [(one.place, one.took_s) for one in checked] == [("within", 1800.0)]
    assert server.requests("PATCH") == []
    report = ("report", "--shadow", "--state", str(files.state))
    told = json.loads(files.command(*report, "--json").stdout)
    assert (told["done"][0]["kind"], told["done"][0]["state"]) == ("annotate", "would")
    assert told["estimates"] == {
        "ended": 1, "estimated": 1, "completed": 1, "within_2x": 1.0, "within_interval": 1.0,
        "limited": 0, "limit_within_2x": None,
    }  # fmt: skip
    assert "within the 80 % interval: 100%" in files.command(*report).stdout


def test_plan_shows_what_would_be_done(cluster: Cluster, files: AgentFiles) -> None:
    files.allow(recover=True)
    broken_node(cluster)
    before = cluster.store.version
    shown = files.command("plan", "team-a/job/train", *files.options)
    assert shown.returncode == 0, shown.stderr
    assert "ECC Error" in shown.stdout
    assert "drain node gpu-2" in shown.stdout
    assert cluster.store.version == before
    refused = files.command("plan", "team-a/job/none", *files.options)
    assert (refused.returncode, refused.stderr.count("\n")) == (3, 1)


@pytest.mark.parametrize(
    "job", ["train", "team-a/nope/train", "team-a/job/../x", "/job/x", "a/job/"]
)
def test_what_is_no_id_of_a_job_is_refused(job: str) -> None:
    with pytest.raises(SchedmateError, match="NAMESPACE/KIND/NAME"):
        parse_job_id(job)


def test_the_kill_switch_stops_every_change(cluster: Cluster, files: AgentFiles) -> None:
    files.allow(recover=True, automatic=("isolate", "restart", "notify"), annotate=ANNOTATE)
    broken_node(cluster)
    cluster.job("new", annotations={"schedmate.io/code": "train"})
    files.begin_an_hour_ago()
    files.stop.touch()
    with files.opened() as setup:
        for _ in range(2):
            assert setup.agent.once().stopped
    assert not cluster.server.requests("PATCH")
    assert len(cluster.pods()) == 3


def test_a_taint_is_ours_only_with_our_key_and_effect() -> None:
    def node(**taint: str) -> dict[str, object]:
        return {"spec": {"taints": [taint]}}

    assert our_mark(node(key="schedmate.io/isolated", value="m", effect="NoSchedule")) == "m"
    assert not our_mark(node(key="schedmate.io/isolated", value="m", effect="NoExecute"))
    assert not our_mark(node(key="other", value="m", effect="NoSchedule"))
    assert Drain(node="n", mark="ab").undo() == Resume(node="n", mark="ab")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("../../other", "schedmate.io/code names '../../other', which is outside "),
        ("/etc", "schedmate.io/code names '/etc', which is outside "),
        ("missing", "schedmate.io/code names 'missing', which is not a directory below "),
        ("", "neither its annotation schedmate.io/code nor kubernetes: code: images "),
    ],
)
def test_why_code_is_not_read(cluster: Cluster, files: AgentFiles, said: str, why: str) -> None:
    cluster.job("train", annotations={"schedmate.io/code": said} if said else {})
    with files.opened() as setup:
        (estimated,) = setup.agent.once().estimated
    assert estimated.estimate.reason is not None
    assert estimated.estimate.reason.startswith(why)


def test_without_a_cluster_one_sentence_is_said(tmp_path: Path, cli: Cli) -> None:
    bad = tmp_path / "kubeconfig"
    for text in (None, "", "apiVersion: v1\nkind: Config\n", "- 1", "{"):
        if text is not None:
            bad.write_text(text)
        found = cli("k8s", "agent", "--once", "--kubeconfig", str(bad))
        assert found.code == 3
        assert "no cluster is known" in found.err
        assert str(bad) in found.err


def test_the_kubeconfigs_that_were_looked_for_are_named(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/no/one:/no/two")
    found = cli("k8s", "agent", "--once")
    assert found.code == 3
    assert "there is no /no/one or /no/two" in found.err


def test_a_server_that_is_not_there_is_tried_once(
    server: ApiServer, files: AgentFiles, cli: Cli
) -> None:
    server.stop()
    words = ("--kubeconfig", str(files.folder / "kubeconfig"), "--state", str(files.state))
    for command in (("agent", "--once"), ("agent", "--once", "--dry-run"), ("plan", "a/job/b")):
        found = cli("k8s", *command, *words)
        assert found.code == 3
        assert f"{server.url} does not answer: Connection refused;" in found.err
    found = cli("k8s", "doctor", *words[:2])
    assert found.code == 1
    assert f"{server.url} does not answer: Connection refused;" in found.out


def test_a_server_that_hangs_up_is_tried_once(files: AgentFiles, cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        files.server = SimpleNamespace(url=f"http://127.0.0.1:{listening.getsockname()[1]}")
        kubeconfig = files.be("nobody", "elsewhere")
        asked = []

        def hang_up() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                asked.append(connection)
                connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        found = cli("k8s", "agent", "--once", "--kubeconfig", str(kubeconfig))
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert found.code == 3
    assert f"{files.server.url} does not answer" in found.err
    assert len(asked) == 1


def test_who_is_not_known_is_told_so(server: ApiServer, files: AgentFiles, cli: Cli) -> None:
    server.fail("GET", "version", Failure(401, "Unauthorized", "Unauthorized"))
    found = cli("k8s", "agent", "--once", "--kubeconfig", str(files.folder / "kubeconfig"))
    assert found.code == 3
    assert "(401): Unauthorized" in found.err


def test_what_is_no_job_is_a_wrong_argument(cli: Cli) -> None:
    found = cli("k8s", "plan", "nonsense")
    assert found.code == 2
    assert "NAMESPACE/KIND/NAME" in found.err
