"""Agents that are killed, two at once, a server that restarts, forgets, throttles or refuses.

Nothing is done twice, nothing is lost, and what others set stays.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from api_server import ApiServer, Failure
from dying_kube_agent import POINTS
from kube_cluster import THEIRS, Cluster, until
from kube_files import AgentFiles
from test_kube_agent import broken_node

from schedmate.cluster.actions import Drain, Requeue, Resume
from schedmate.cluster.adapter import ExecutorError
from schedmate.cluster.bounds import KubernetesBounds
from schedmate.cluster.claims import ClaimedError
from schedmate.cluster.kubernetes.adapter import KubernetesAdapter
from schedmate.cluster.kubernetes.api import Api, KubernetesError, Mirror, connect
from schedmate.cluster.kubernetes.lease import Leadership
from schedmate.cluster.record import Record

AUTOMATIC = ("isolate", "restart", "notify")
JOBS = "/apis/batch/v1/jobs"
DRAIN = Drain(node="gpu-2", mark="ecc-error-0123456789ab")
BUSY = Failure(429, "TooManyRequests", "too many requests, please try again later", 1)


@pytest.fixture
def api(files: AgentFiles) -> Api:
    return Api(connect(str(files.folder / "kubeconfig")), qps=1000)


@pytest.fixture
def adapter(api: Api, tmp_path: Path) -> KubernetesAdapter:
    bounds = KubernetesBounds(isolate=True)
    return KubernetesAdapter(api, bounds, tmp_path / "logs", settled_s=0.0)


def killed_at(point: str, files: AgentFiles) -> None:
    script = Path(__file__).with_name("dying_kube_agent.py")
    words = [script, point, files.bounds, files.state, files.folder / "kubeconfig"]
    environment = {**os.environ, "HOME": str(files.folder)}
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == -signal.SIGKILL, f"{point}: {done.stdout}{done.stderr}"


@pytest.mark.slow
def test_an_agent_that_is_killed_anywhere_does_nothing_twice(
    cluster: Cluster, files: AgentFiles
) -> None:
    files.allow(recover=True, automatic=AUTOMATIC)
    job = broken_node(cluster)
    files.begin_an_hour_ago()
    for point in POINTS:
        # the Lease of the one that was killed is over
        cluster.store.objects.pop(
            ("coordination.k8s.io", "leases", "default", "schedmate-agent"), None
        )
        killed_at(point, files)
    cluster.store.objects.pop(("coordination.k8s.io", "leases", "default", "schedmate-agent"), None)
    with files.opened() as setup:
        for _ in range(2):
            found = setup.agent.once()
    assert not found.actions
    assert found.problems == []
    assert [one["key"] for one in cluster.taints("gpu-2")] == [
        THEIRS["key"],
        "schedmate.io/isolated",
    ]
    assert cluster.pods() == ["train-a", "train-c"]
    assert len(cluster.server.requests("PATCH", "/nodes/")) == 1
    assert len(cluster.server.requests("PATCH", "/jobs/")) == 1
    assert "schedmate.io/requeued" in cluster.annotations(job)
    with files.kept() as record:
        assert record.verify().broken is None
        assert not record.undetermined()
        assert record.counts() == {"applied": 1}
        done = [one.action.kind for one in record.attempts() if one.outcome == "done"]
    assert done == ["drain", "requeue"]  # no command tells anybody, and none is called done


def test_of_two_agents_one_works_and_the_other_follows(api: Api, server: ApiServer) -> None:
    first, second = Leadership(api, "default", "a"), Leadership(api, "default", "a")
    with first.holding():
        assert first.held
        assert not second.attempt()
        assert second.holder == first.identity
        with pytest.raises(ClaimedError, match=first.identity):
            with second.holding():
                pass
    assert not first.held
    with second.holding():  # it was let go, nobody has to wait
        assert second.held
        assert not first.attempt()
    lease = server.store.get(("coordination.k8s.io", "leases", "default", "a"))
    assert lease is not None
    assert lease["spec"]["leaseTransitions"] == 1


@pytest.mark.parametrize(("stated_s", "over_s"), [(15, 16.0), (-9, 16.0), (10**9, 61.0)])
def test_a_lease_of_one_that_died_is_taken_only_when_it_is_over(
    api: Api, monkeypatch: pytest.MonkeyPatch, stated_s: int, over_s: float
) -> None:
    """Whatever its holder says of its duration, and of the time."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    dead, heir, third = (Leadership(api, "default", "a") for _ in range(3))
    assert dead.attempt()
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a"
    lease = api.get(path)
    lease["spec"] |= {"leaseDurationSeconds": stated_s, "renewTime": "9999-01-01T00:00:00Z"}
    api.replace(path, lease)
    assert not heir.attempt()
    now[0] += 9.0
    assert dead.held
    now[0] += 2.0
    assert not dead.held  # before anybody else may begin
    assert not heir.attempt()
    now[0] += over_s - 11.0
    assert heir.attempt()
    assert not third.attempt()
    assert not dead.attempt()


def test_two_that_take_a_free_lease_at_once_do_not_both_get_it(api: Api) -> None:
    gate, won = threading.Barrier(4), []

    def run() -> None:
        one = Leadership(api, "default", "a")
        gate.wait()
        if one.attempt():
            won.append(one.identity)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


def test_one_that_lost_its_lease_acts_no_more(cluster: Cluster, api: Api, tmp_path: Path) -> None:
    cluster.node("gpu-2")
    adapter = KubernetesAdapter(
        api, KubernetesBounds(isolate=True), tmp_path, may_act=lambda: False
    )
    with pytest.raises(ExecutorError, match="no longer"):
        adapter.act(DRAIN, key="k", timeout_s=5.0)
    assert cluster.taints("gpu-2") == []


@pytest.fixture
def mirror(api: Api, cluster: Cluster) -> Mirror:
    cluster.job("first")
    return Mirror(api, JOBS, labels="schedmate.io/watch=true")


def names(mirror: Mirror) -> list[str]:
    try:
        return sorted(one["metadata"]["name"] for one in mirror.items(60.0))
    except KubernetesError:
        return []


def test_a_mirror_follows_what_happens(mirror: Mirror, cluster: Cluster) -> None:
    mirror.start()
    try:
        assert names(mirror) == ["first"]
        cluster.job("second")
        cluster.job("hidden", labels={})
        until("it", 60, lambda: names(mirror) == ["first", "second"])
        key = ("batch", "jobs", "team-a", "second")
        cluster.change(key, lambda one: one["metadata"]["labels"].clear())
        until("its end", 60, lambda: names(mirror) == ["first"])
        cluster.store.put(("batch", "jobs", "team-a", "first"), None)
        until("its end", 60, lambda: names(mirror) == [])
        assert mirror.lists == 1
    finally:
        mirror.stop()


def test_a_mirror_outlives_a_restart_without_listing_anew(
    mirror: Mirror, cluster: Cluster, server: ApiServer
) -> None:
    mirror.start()
    try:
        assert names(mirror) == ["first"]
        server.stop()

        def is_told() -> bool:
            try:
                mirror.items()
            except KubernetesError:
                return True
            return False

        until("that it is known", 60, is_told)  # an outage is no empty list
        cluster.job("meanwhile")
        server.start()
        until("it", 60, lambda: names(mirror) == ["first", "meanwhile"])
        assert mirror.lists == 1
    finally:
        mirror.stop()


def test_a_mirror_lists_anew_what_the_server_has_forgotten(
    mirror: Mirror, cluster: Cluster, server: ApiServer
) -> None:
    mirror.start()
    try:
        assert names(mirror) == ["first"]
        server.stop()
        cluster.job("meanwhile")
        cluster.store.put(("batch", "jobs", "team-a", "first"), None)
        cluster.store.compact()
        server.start()
        until("it", 60, lambda: names(mirror) == ["meanwhile"])
        assert mirror.lists == 2
    finally:
        mirror.stop()


def test_bookmarks_keep_a_quiet_mirror_from_listing_anew(
    mirror: Mirror, cluster: Cluster, server: ApiServer
) -> None:
    mirror.start()
    try:
        assert names(mirror) == ["first"]
        for number in range(20):
            cluster.node(f"n{number}")  # what it does not watch goes on
        seen = cluster.store.version
        until("a bookmark", 60, lambda: int(mirror.version or 0) >= seen)
        cluster.store.compact()
        server.stop()
        server.start()
        cluster.job("later")
        until("it", 60, lambda: names(mirror) == ["first", "later"])
        assert mirror.lists == 1
    finally:
        mirror.stop()


def test_a_kind_that_is_not_installed_is_none(api: Api, server: ApiServer) -> None:
    missing = Failure(404, "NotFound", "the server could not find the requested resource")
    server.fail("GET", "rayjobs", missing, times=50)
    mirror = Mirror(api, "/apis/ray.io/v1/rayjobs", optional=True)
    mirror.start()
    try:
        assert mirror.items(10.0) == []
    finally:
        mirror.stop()


def test_long_lists_come_in_pages_and_an_expired_page_begins_anew(
    api: Api, cluster: Cluster, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from schedmate.cluster.kubernetes import api as module

    monkeypatch.setattr(module, "PAGE", 3)
    for number in range(10):
        cluster.job(f"j{number}")
    assert len(api.list(JOBS)[0]) == 10
    assert len(server.asked) == 4
    pages = iter(range(9))

    def before(method: str, path: str) -> None:
        if next(pages, 9) == 2:
            cluster.job("new")
            cluster.store.compact()

    server.before = before
    assert len(api.list(JOBS)[0]) == 11


def test_a_server_that_throttles_is_asked_again_when_it_says(
    api: Api, server: ApiServer, cluster: Cluster
) -> None:
    cluster.node("gpu-2")
    server.fail("PATCH", "nodes", BUSY, times=2)
    server.fail("GET", "nodes", BUSY, times=1)
    adapter = KubernetesAdapter(api, KubernetesBounds(isolate=True), Path("/nonexistent"))
    began = time.monotonic()
    assert adapter.act(DRAIN, key="k", timeout_s=30.0).outcome == "done"
    assert time.monotonic() - began >= 3.0  # it said after a second, three times
    assert len(server.requests("PATCH")) == 1


def test_others_taints_stay_whoever_is_quicker(
    adapter: KubernetesAdapter, cluster: Cluster, server: ApiServer
) -> None:
    cluster.node("gpu-2", taints=[dict(THEIRS)])
    key = ("", "nodes", "", "gpu-2")
    quick = iter(range(3))

    def before(method: str, path: str) -> None:
        number = next(quick, None) if method == "PATCH" else None
        if number is not None:
            added = {"key": f"quick-{number}", "value": "x", "effect": "NoSchedule"}
            cluster.change(key, lambda node: node["spec"]["taints"].append(added))

    server.before = before
    assert adapter.act(DRAIN, key="k", timeout_s=30.0).outcome == "done"
    keys = [one["key"] for one in cluster.taints("gpu-2")]
    assert keys == [THEIRS["key"], "quick-0", "quick-1", "quick-2", "schedmate.io/isolated"]
    assert adapter.probe(DRAIN).state == "done"
    other = Drain(node="gpu-2", mark="another-mark")
    assert adapter.probe(other).state == "moot"
    assert adapter.probe(Resume(node="gpu-2", mark=other.mark)).state == "changed"
    assert (
        adapter.act(Resume(node="gpu-2", mark=DRAIN.mark), key="k", timeout_s=30.0).outcome
        == "done"
    )
    assert [one["key"] for one in cluster.taints("gpu-2")] == keys[:-1]


def test_a_node_that_always_changes_is_given_up(
    adapter: KubernetesAdapter, cluster: Cluster, server: ApiServer
) -> None:
    cluster.node("gpu-2", taints=[dict(THEIRS)])
    key = ("", "nodes", "", "gpu-2")
    server.before = lambda *_: (
        cluster.change(
            key,
            lambda node: (
                node["metadata"].setdefault("labels", {}).update(n=str(time.monotonic_ns()))
            ),
        )
        and None
    )
    assert adapter.act(DRAIN, key="k", timeout_s=30.0).outcome == "failed"
    assert cluster.taints("gpu-2") == [THEIRS]


def test_a_cordoned_node_is_somebody_elses(adapter: KubernetesAdapter, cluster: Cluster) -> None:
    cluster.node("gpu-2")
    cluster.change(("", "nodes", "", "gpu-2"), lambda node: node["spec"].update(unschedulable=True))
    assert adapter.probe(DRAIN).state == "moot"
    assert adapter.probe(Drain(node="gpu-9", mark="ab")).state == "changed"


def test_what_admission_refuses_is_refused_before_anything_is_done(
    adapter: KubernetesAdapter, cluster: Cluster, server: ApiServer
) -> None:
    cluster.node("gpu-2")
    server.fail("PATCH", "nodes", Failure(403, "Forbidden", "admission webhook denied the request"))
    answer = adapter.act(DRAIN, key="k", timeout_s=30.0)
    assert (answer.outcome, "denied" in answer.detail) == ("failed", True)
    assert [one.query.get("dryRun") for one in server.asked if one.method == "PATCH"] == ["All"]


def test_an_answer_that_never_came_is_looked_up(
    adapter: KubernetesAdapter, cluster: Cluster, server: ApiServer
) -> None:
    cluster.node("gpu-2")
    server.fail("PATCH", "nodes", None)  # the dry run
    with pytest.raises(ExecutorError):
        adapter.act(DRAIN, key="k", timeout_s=30.0)
    assert adapter.probe(DRAIN).state == "ready"
    tries = iter(range(9))

    def before(method: str, path: str) -> None:
        if method == "PATCH" and next(tries) == 1:  # after the dry run
            server.fail("PATCH", "nodes", None)

    server.before = before
    with pytest.raises(ExecutorError):
        adapter.act(DRAIN, key="k", timeout_s=30.0)
    assert adapter.probe(DRAIN).state == "done"
    assert len(cluster.taints("gpu-2")) == 1


def test_a_budget_that_refuses_is_respected_until_it_allows(
    cluster: Cluster, files: AgentFiles, server: ApiServer
) -> None:
    files.allow(recover=True, automatic=AUTOMATIC)
    broken_node(cluster)
    key = ("", "pods", "team-a", "train-b")
    cluster.change(key, lambda pod: pod["metadata"]["labels"].update(app="training"))
    cluster.budget("training", {"app": "training"}, 0)
    files.begin_an_hour_ago()
    with files.opened() as setup:
        setup.agent.once()
        for _ in range(8):  # more often than an action is tried that gets no answer
            found = setup.agent.once()
        assert any("disruption budget" in one for one in found.problems)
        assert "train-b" in cluster.pods()
        assert not server.requests("POST", "eviction")
        budget = ("policy", "poddisruptionbudgets", "team-a", "training")
        cluster.change(budget, lambda one: one["status"].update(disruptionsAllowed=1))
        assert setup.agent.once().problems == []
    assert "train-b" not in cluster.pods()
    assert len(server.requests("POST", "eviction")) == 1


def test_a_pod_of_the_same_name_is_not_evicted(
    adapter: KubernetesAdapter, cluster: Cluster, server: ApiServer
) -> None:
    job = cluster.job("train")
    cluster.pod(job, "gpu-2", name="train-0")
    action = Requeue(job="team-a/job/train", run=5, exclude=("gpu-2",))
    assert adapter.probe(action).state == "ready"

    def before(method: str, path: str) -> None:
        if path.endswith("/eviction"):  # its controller was quicker
            server.before = lambda *_: None
            cluster.store.put(("", "pods", "team-a", "train-0"), None)
            cluster.pod(job, "gpu-1", name="train-0")

    server.before = before
    assert adapter.act(action, key="k", timeout_s=30.0).outcome == "done"
    assert cluster.pods() == ["train-0"]
    assert adapter.probe(action).state == "done"
    assert adapter.probe(action.model_copy(update={"run": 4})).state == "changed"
    later = action.model_copy(update={"run": 6})
    assert adapter.probe(later).state == "moot"


def test_a_job_that_its_controller_gave_up_cannot_be_restarted(
    adapter: KubernetesAdapter, cluster: Cluster
) -> None:
    over = {
        "type": "Failed",
        "status": "True",
        "reason": "BackoffLimitExceeded",
        "lastTransitionTime": "2026-11-01T00:30:00Z",
    }
    cluster.job("train", status={"conditions": [over]})
    found = adapter.probe(Requeue(job="team-a/job/train", run=0, exclude=("gpu-2",)))
    assert found.state == "moot"
    assert "submit it again" in found.detail
    assert adapter.probe(Requeue(job="team-a/job/none", run=0)).state == "changed"


def test_without_permission_nothing_is_isolated(api: Api, cluster: Cluster, tmp_path: Path) -> None:
    cluster.node("gpu-2")
    adapter = KubernetesAdapter(api, KubernetesBounds(), tmp_path)
    assert adapter.act(DRAIN, key="k", timeout_s=5.0).outcome == "failed"
    assert cluster.taints("gpu-2") == []


def test_an_agent_goes_on_after_the_server_was_away(
    cluster: Cluster, files: AgentFiles, server: ApiServer
) -> None:
    cluster.job("train")
    with files.opened() as setup:
        assert setup.agent.once().pending == 1
        server.stop()

        def fails() -> bool:
            try:
                setup.agent.once()
            except ExecutorError:
                return True
            return False

        until("an outage", 60, fails)
        cluster.job("second")
        server.start()

        def sees() -> bool:
            try:
                return setup.agent.once().pending == 2
            except ExecutorError:
                return False

        until("both jobs", 60, sees)
    assert isinstance(setup.record, Record)
