"""What is read of objects that others wrote: runs of pods, commands, directories, answers."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from api_server import ADMIN, ApiServer, Failure
from cli_runner import Cli
from hypothesis import given
from hypothesis import strategies as st
from kube_cluster import ECC, Cluster, stamp
from kube_files import AgentFiles

from schedmate.cluster.actions import Annotate
from schedmate.cluster.bounds import CodeBounds, ImageCode
from schedmate.cluster.kubernetes import Kubernetes
from schedmate.cluster.kubernetes.api import Api, KubernetesError, Pace, connect, values_at
from schedmate.cluster.kubernetes.logs import LONGEST, TAIL_LINES, Logs, LogSource
from schedmate.cluster.kubernetes.nodes import (
    isolation_patch,
    live_node,
    node_faults,
    return_patch,
)
from schedmate.cluster.kubernetes.workloads import (
    BOOST,
    GPU_TYPES,
    REQUEUED,
    Workload,
    boost_of,
    code_folder,
    container_command,
    container_ends,
    describe_job,
    failed_runs,
    folder_below,
    gpus_of,
    is_live,
    job_kinds,
    job_outcome,
    live_job,
    mark_of,
    run_number,
    slim_pod,
)
from schedmate.logparse.triage import find_targets

Json = dict[str, Any]
GPU = "nvidia.com/gpu"


def pod(name: str, *spans: tuple[float, float, int], phase: str = "Failed", **status: Any) -> Json:
    """A pod whose container ran in these spans [s ago] and ended with these codes."""
    state: Json = {"name": "train", "state": {"running": {}}}
    for place, (began, ended, code) in zip(("state", "lastState"), reversed(spans), strict=False):
        state[place] = {
            "terminated": {
                "startedAt": stamp(began),
                "finishedAt": stamp(ended),
                "exitCode": code,
                "reason": status.get("why", "Error"),
            }
        }
    found = {"phase": phase, "containerStatuses": [state], **status}
    about = {"name": name, "uid": f"u-{name}", "namespace": "team-a"}
    return {"metadata": about, "spec": {"nodeName": f"node-{name}"}, "status": found}


def disrupted(reason: str) -> Json:
    return {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason}]}


def test_pods_that_fail_together_are_one_run_and_later_ones_another() -> None:
    gang = [pod("a", (600, 300, 1)), pod("b", (600, 290, 1)), pod("c", (595, 280, 137))]
    again = [pod("d", (200, 100, 1)), pod("e", (100, 50, 0), phase="Succeeded")]
    first, second = failed_runs([*again, *gang])
    assert [one.pod for one in first.failures] == ["a", "b", "c"]
    assert [one.pod for one in second.failures] == ["d"]
    assert run_number(second, first.began) == 400
    assert run_number(first, first.began + 5) == 0


def test_a_container_that_was_started_again_has_its_log_before() -> None:
    (one,) = container_ends(pod("a", (600, 300, 1), phase="Running") | {"x": 1})
    assert not one.previous
    found = pod("a", (600, 300, 1), phase="Running")
    container = found["status"]["containerStatuses"][0]
    container["lastState"] = container["state"]
    container["state"] = {"running": {}}
    (one,) = container_ends(found)
    assert one.previous


@pytest.mark.parametrize(
    ("status", "code", "state"),
    [
        ({"why": "OOMKilled"}, 137, "OUT_OF_MEMORY"),
        ({}, 1, "FAILED"),
        ({"reason": "NodeShutdown"}, 137, "NODE_FAIL"),
        ({"reason": "DeadlineExceeded"}, 137, "TIMEOUT"),
        (disrupted("PreemptionByScheduler"), 137, "PREEMPTED"),
        (disrupted("DeletionByTaintManager"), 137, "NODE_FAIL"),
    ],
)
def test_how_a_pod_ended(status: Json, code: int, state: str) -> None:
    (run,) = failed_runs([pod("a", (600, 300, code), **status)])
    assert run.state == state


def test_a_pod_whose_node_went_away_says_nothing_of_its_containers() -> None:
    gone = pod("a", phase="Failed", reason="NodeLost", startTime=stamp(600))
    gone["status"]["containerStatuses"] = []
    (run,) = failed_runs([gone, pod("b", (600, 300, 1))])
    assert run.state == "NODE_FAIL"
    assert failed_runs([pod("a", (600, 300, 0), phase="Succeeded")]) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inside: st.lists(inside, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["metadata", "spec", "status", "conditions", "containerStatuses", "state", "lastState",
             "terminated", "type", "name", "template", "containers", "resources", "limits", "env",
             "exitCode", "finishedAt", "taints", "labels", "annotations", "nvidia.com/gpu"]
        ),
        inside,
        max_size=5,
    ),
    max_leaves=25,
)  # fmt: skip


@given(JSON)
def test_no_object_breaks_the_reading(found: Any) -> None:
    said = found if isinstance(found, dict) else {"spec": found, "status": found, "metadata": found}
    about = said.get("metadata")
    said = {**said, "metadata": about if isinstance(about, dict) else {}}
    kept = slim_pod(said)
    (
        container_ends(kept),
        is_live(kept),
        failed_runs([kept]),
        node_faults([said]),
        return_patch(said, "m"),
    )
    live_node(said, False, 0)
    for kind in job_kinds().values():
        job = Workload(kind, said, (kept,))
        job_outcome(job), live_job(job), describe_job(job, CodeBounds())


@pytest.mark.parametrize(
    "amount", [10**12, "1" + "0" * 400, 10**400, "²", "-1", 1.5, True, "9" * 5000, None]
)
def test_what_no_cluster_has_says_nothing(amount: Any) -> None:
    container = {"command": ["python", "\ud800.py"], "resources": {"limits": {GPU: amount}}}
    template = {"spec": {"containers": [container], "nodeSelector": {GPU_TYPES[0]: "A\udfff"}}}
    limits = {"activeDeadlineSeconds": 2**63 - 1, "parallelism": amount, "template": template}
    job = Workload(job_kinds()["job"], {"metadata": {"name": "a"}, "spec": limits}, ())
    assert gpus_of(container) == 0
    spec = describe_job(job, CodeBounds()).spec
    assert (spec.launch.gpus, spec.launch.time_limit_s) == (None, None)
    assert spec.launch.gpu_type == "A\\udfff"
    assert spec.command is not None
    assert "\\ud800.py" in spec.command
    assert live_node({"status": {"allocatable": {GPU: amount}}}, False, 0).gpus == 0
    container["resources"]["limits"][GPU] = "8"  # type: ignore[index]
    assert gpus_of(container) == 8


def test_marks_with_endless_numbers_are_none() -> None:
    def job(said: str) -> Workload:
        return Workload(job_kinds()["job"], {"metadata": {"annotations": {REQUEUED: said}}}, ())

    assert mark_of(job("9" * 5000 + " u-a")) == (None, {"u-a"})
    assert mark_of(job("17 u-a")) == (17, {"u-a"})
    for said, boost in (("9" * 4000, None), ("9" * 5000, None), ("-3", -3)):
        assert boost_of({"metadata": {"annotations": {BOOST: said}}}) == boost


def test_our_taint_is_added_wherever_taints_are() -> None:
    import jsonpatch

    for spec in ({"taints": []}, {"taints": [{"key": "a", "effect": "NoSchedule"}]}, {}, None):
        node = {"metadata": {"resourceVersion": "7"}} | ({} if spec is None else {"spec": spec})
        tainted = jsonpatch.apply_patch(node, isolation_patch(node, "m"))
        assert tainted["spec"]["taints"][:-1] == (spec or {}).get("taints", [])
        back = jsonpatch.apply_patch(tainted, return_patch(tainted, "m"))
        assert back["spec"]["taints"] == (spec or {}).get("taints", [])
        assert return_patch(tainted, "other") == []


def test_values_at_a_path_of_many() -> None:
    found = {"a": {"x": {"b": 1}, "y": {"b": 2}, "z": 3}, "l": [{"b": 4}]}
    assert dict(values_at(found, "a.*.b")) == {"x": 1, "y": 2}
    assert list(values_at(found, "l.*.b")) == [("0", 4)]
    assert [key for key, _ in values_at(found, "a.*")] == ["x", "y", "z"]
    assert list(values_at(found, "none.*")) == []


# -- code ----------------------------------------------------------------


def test_a_directory_is_below_a_root_or_none(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    (root / "in").mkdir(parents=True)
    other.mkdir()
    (root / "out").symlink_to(other)
    (root / "loop").symlink_to(root / "loop")
    (root / "fine").symlink_to(root / "in")
    assert folder_below([root], "in") == root / "in"
    assert folder_below([root], str(root / "in")) == root / "in"
    assert folder_below([root], "fine") == root / "in"
    for said in ("out", "../other", str(other), "loop", "none", "in/../../other", "/", "\0"):
        assert folder_below([root], said) is None, said


@given(st.text(max_size=40))
def test_no_annotation_leads_out_of_the_roots(said: str) -> None:
    root = Path(__file__).parent
    found = folder_below([root], said)
    assert found is None or found.is_relative_to(root.resolve())


def test_an_image_says_where_its_code_is(tmp_path: Path) -> None:
    entry = ImageCode(image="registry/*/train:*", path=tmp_path, at=Path("/workspace"))
    bounds = CodeBounds(images=(entry,))
    path, found, why = code_folder(bounds, "team-a", "", "registry/team/train:7")
    assert (path, found, why) == (tmp_path, entry, "")
    assert code_folder(bounds, "team-a", "", "other")[0] is None
    container = {
        "command": ["bash", "-c"],
        "args": [
            (
                "cd /workspace/sub && python /workspace/train.py "
                "--out /workspaces $(EPOCHS) $$(X) $(NO)"
            )
        ],
        "env": [{"name": "EPOCHS", "value": "--epochs 3"}, {"name": "NO", "valueFrom": {}}],
    }
    command = container_command(container, found, path)
    assert f"cd {tmp_path}/sub && python {tmp_path}/train.py" in command
    assert "--out /workspaces --epochs 3 $(X) $(NO)" in command


def test_a_root_is_each_namespaces_own(tmp_path: Path) -> None:
    for team in ("team-a", "team-b"):
        (tmp_path / team / "code").mkdir(parents=True)
    bounds = CodeBounds(roots=(tmp_path / "{namespace}",))
    assert code_folder(bounds, "team-a", "code", "")[0] == tmp_path / "team-a" / "code"
    assert code_folder(bounds, "team-a", "../team-b/code", "")[0] is None


def test_a_long_name_is_an_id_too() -> None:
    job = f"{'n' * 63}/pytorchjob/{'j' * 253}"
    assert Annotate(texts={job: "x"}).texts == {job: "x"}


# -- the client ------------------------------------------------------------


@pytest.fixture
def api(files: AgentFiles) -> Api:
    return Api(connect(str(files.folder / "kubeconfig")), qps=1000)


def test_requests_wait_their_turn() -> None:
    now = [0.0]
    pace = Pace(10.0, clock=lambda: now[0])
    assert [round(pace.turn_s(), 3) for _ in range(12)][-3:] == [0.0, 0.1, 0.2]
    now[0] = 100.0
    assert pace.turn_s() == 0.0


def test_a_refusal_is_one_sentence(api: Api, server: ApiServer) -> None:
    server.fail("GET", "nodes", Failure(403, "Forbidden", "nodes is forbidden\nfor \x1b[31myou"))
    with pytest.raises(KubernetesError) as caught:
        api.get("/api/v1/nodes")
    assert caught.value.code == 403
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert not caught.value.passes


def test_without_a_server_it_says_so(api: Api, server: ApiServer) -> None:
    server.stop()
    with pytest.raises(KubernetesError, match="does not answer") as caught:
        api.create("/api/v1/namespaces", {})
    assert caught.value.passes


def test_logs_are_bounded_and_old_ones_go(api: Api, cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.job("train")
    cluster.pod(job, "n", name="p", log="a\n" * 9000)
    logs = Logs(api, tmp_path / "logs", kept=2)
    source = LogSource("team-a", "p", "train")
    gone = LogSource("team-a", "gone", "train")
    folder, why = logs.fetch("run/1", [source, gone], tail=True)
    assert folder is not None
    assert why == ""
    assert [path.name for path in folder.iterdir()] == ["p.train.log"]
    assert len((folder / "p.train.log").read_text().splitlines()) == TAIL_LINES
    assert logs.fetch("run/2", [gone], tail=False)[0] is None
    for number in range(4):
        logs.fetch(f"run/{number}", [source], tail=False)
    assert len(list((tmp_path / "logs").iterdir())) == 2
    asked = [one.query for one in cluster.server.asked if one.query.get("limitBytes")]
    assert asked[-1]["limitBytes"] == str(LONGEST)


def test_a_node_that_is_out_of_reach_keeps_nothing_else_from_being_read(
    api: Api, cluster: Cluster, server: ApiServer, tmp_path: Path
) -> None:
    cluster.pod(cluster.job("train"), "n", name="p", log="text\n")
    away = Failure(500, "InternalError", "dial tcp 10.0.0.7:10250: i/o timeout")
    server.fail("GET", "log", away, times=100)
    logs = Logs(api, tmp_path)
    began = len(server.asked)
    folder, why = logs.fetch("run", [LogSource("team-a", "p", "train")], tail=False)
    assert folder is None
    assert "i/o timeout" in why
    assert len(server.asked) - began < 20


# -- doctor and metrics ----------------------------------------------------


def test_doctor_says_what_is_missing(
    server: ApiServer, cluster: Cluster, files: AgentFiles
) -> None:
    from api_rights import Rights
    from kube_cluster import AGENT, manifests

    options = [word for pair in zip(files.options[::2], files.options[1::2], strict=True)
               if pair[0] in ("--bounds", "--kubeconfig") for word in pair]  # fmt: skip
    server.rights = Rights(manifests("base"))
    files.be(AGENT)
    files.allow(
        annotate={"where": "annotation"},
        kubernetes={
            "lease_namespace": "schedmate",
            "isolate": True,
            "code": {"roots": [str(files.code)]},
        },
    )
    cluster.node("gpu-1")
    cluster.job("train")
    before = server.store.version
    done = files.command("doctor", "--json", *options)
    assert done.returncode == 1, done.stderr
    found = {one["name"]: one for one in json.loads(done.stdout)["checks"]}
    assert found["right to look"]["status"] == "ok"
    assert found["right: lease"]["status"] == "ok"
    assert "patch jobs.batch" in found["right to annotate"]["fact"]
    assert found["right: nodes"]["status"] == "failed"
    assert "1 Job" in found["jobs"]["fact"]
    server.rights = Rights(manifests("base", "annotate", "recover"))
    done = files.command("doctor", *options)
    assert done.returncode == 0, done.stdout
    assert "gpu-1 could be tainted (dry run)" in done.stdout
    assert server.store.version == before


def test_metrics_are_counted_and_no_name_is_shown(cluster: Cluster, files: AgentFiles) -> None:
    import httpx

    from schedmate.cluster.metrics import AgentMetrics

    cluster.job("a-secret-name")
    with files.opened() as setup:
        with (
            AgentMetrics("127.0.0.1:0", setup.gauges, late_s=60.0) as seen,
            httpx.Client(base_url=f"http://127.0.0.1:{seen.port}") as client,
        ):
            assert client.get("/healthz").json() == {"status": "ok", "detail": None}
            early = client.get("/readyz")
            assert (early.status_code, early.json()["status"]) == (503, "unavailable")
            assert "no pass" in early.json()["detail"]
            seen.stands_by(True)
            assert client.get("/readyz").status_code == 200
            seen.stands_by(False)
            seen.seen(setup.agent.once())
            assert client.get("/readyz").status_code == 200
            text = client.get("/metrics").text
            assert seen._passed is not None
            seen._passed -= 61.0
            late = client.get("/readyz")
            assert late.status_code == 503
            assert "1 min" in late.json()["detail"]
    assert 'schedmate_agent_jobs{state="pending"} 1.0' in text
    assert "schedmate_agent_leader 1.0" in text
    assert 'schedmate_agent_estimates_total{outcome="abstained"} 1.0' in text
    assert "secret" not in text


def test_logs_of_failed_pods_are_triaged(cluster: Cluster, files: AgentFiles) -> None:
    for name, node in (("a", "gpu-1"), ("b", "gpu-2")):
        job = cluster.job(name, labels={})
        found = cluster.pod(job, node, phase="Failed", exit_code=1, log=ECC, labels={"app": "x"})
        key = ("", "pods", "team-a", found["metadata"]["name"])
        uid = job["metadata"]["uid"]
        owner = {"kind": "Job", "name": f"={name}", "uid": uid, "controller": True}
        cluster.change(key, lambda pod, owner=owner: pod["metadata"].update(
            ownerReferences=[{"apiVersion": "batch/v1", **owner}]
        ))  # fmt: skip
    cluster.pod(cluster.job("fine"), "gpu-3", labels={"app": "x"})
    out = files.folder / "failed"
    reach = ["--kubeconfig", str(files.folder / "kubeconfig")]
    done = files.command("logs", "app=x", str(out), *reach)
    assert done.returncode == 0, done.stderr
    batch = find_targets(str(out / "jobs.csv"))
    assert [one.nodes for one in batch.targets] == [("gpu-1",), ("gpu-2",)]
    assert {one.workload for one in batch.targets} == {"'=a", "'=b"}  # no formulas
    assert {one.state for one in batch.targets} == {"FAILED"}
    assert {(one.gpus, one.duration_s) for one in batch.targets} == {(4.0, 540.0)}
    with batch.opened(0) as log:
        assert "ECC" in log.files[0].read(0, 9999).decode()
    assert files.command("logs", "app=none", str(out), *reach).returncode == 3


def test_people_ask_for_their_jobs_by_namespace_and_id(
    cluster: Cluster, files: AgentFiles, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And need no label for that, which is what lets an agent watch."""
    monkeypatch.setenv("KUBECONFIG", str(files.be(ADMIN, namespace="team-a")))
    job = cluster.job("train", labels={}, gpus=4)
    epochs = [f"Epoch [{n}/20], Loss: 2.3, time: 10.0 s\n" for n in range(1, 6)]
    cluster.pod(job, "gpu-1", log="".join(epochs))
    cluster.job("waits", labels={})
    cluster.job("theirs", labels={}, namespace="team-b")
    cluster.pod(cluster.job("fails", labels={}), "gpu-2", phase="Failed", exit_code=1, log=ECC)
    shown = cli("jobs", "--cluster", "kubernetes", "--json", "--bounds", str(files.bounds))
    assert shown.code == 0, shown.err
    running, _, waiting = json.loads(shown.out)["jobs"]
    assert [running["job"], waiting["job"]] == ["team-a/job/train", "team-a/job/waits"]
    assert (running["state"], running["done"], running["nodes"]) == ("RUNNING", 0.25, ["gpu-1"])
    assert waiting["no_start"] == "the queue of Kubernetes is not run forward"
    everybody = cli("jobs", "--cluster", "k8s", "--all", "--bounds", str(files.bounds))
    assert "team-b/job/theirs" in everybody.out
    monkeypatch.setattr("schedmate.cluster.clusters", lambda: iter([Kubernetes()]))
    verdict = cli("diagnose", "team-a/job/fails", "--json")
    assert verdict.code == 0, verdict.err
    assert json.loads(verdict.out)["error_name"] == "ECC Error"
    followed = cli("track", "team-a/job/train", "--json")
    assert json.loads(followed.out)["epoch"] == 5, followed.err
    assert cli("diagnose", "team-a/job/gone").code == 3


def test_the_doctor_names_the_extra_where_it_is_missing(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    done = cli("k8s", "doctor")
    assert done.code == 1
    assert "✗ API server: kubernetes is not installed" in done.out
    assert re.search(r"to mend: .*pip install .*\[k8s\]", done.out)
    assert "kubectl" not in done.out
