"""One unexpected object or value costs that object, and never the pass or the agent."""

from __future__ import annotations

from typing import Any

import pytest
from api_server import ApiServer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kube_cluster import Cluster
from kube_files import AgentFiles
from test_kube_reading import JSON

from schedmate.cluster.adapter import ExecutorError
from schedmate.cluster.kubernetes.api import Api, wrong_with
from schedmate.cluster.kubernetes.connection import connect
from schedmate.cluster.kubernetes.nodes import slim_node
from schedmate.cluster.kubernetes.workloads import slim_object, slim_pod
from schedmate.cluster.loop import watch

ABOUT = st.fixed_dictionaries(
    {"name": st.just("p") | st.text(max_size=9) | JSON, "uid": st.just("u") | JSON},
    optional={"namespace": st.just("a") | JSON, "resourceVersion": st.just("7") | JSON},
)


@pytest.fixture
def api(files: AgentFiles) -> Api:
    return Api(connect(str(files.folder / "kubeconfig")), qps=1000)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(about=ABOUT, spec=JSON, status=JSON)
def test_an_object_is_taken_or_named(api: Api, about: Any, spec: Any, status: Any) -> None:
    found = {"metadata": about, "spec": spec, "status": status}
    for slim in (slim_pod, slim_object, slim_node):
        before = api.skipped.count
        kept = api.accept(found, "/x", slim)
        assert (kept is None) == (api.skipped.count == before + 1)
        assert kept is not None or api.skipped.news() or wrong_with(found)


def test_odd_objects_are_skipped_and_named_once(cluster: Cluster, files: AgentFiles) -> None:
    cluster.job("train", annotations={"schedmate.io/code": "train"})
    cluster.job("Not_A_Name")
    cluster.job("fine", namespace="../up")
    with files.opened() as setup:
        first, second = setup.agent.once(), setup.agent.once()
    assert [one.job for one in first.estimated] == ["team-a/job/train"]
    assert sorted(first.problems) == [
        "an object of /apis/batch/v1/jobs is skipped: '../up' cannot be its namespace",
        "an object of /apis/batch/v1/jobs is skipped: 'Not_A_Name' cannot be its name",
    ]
    assert second.problems == []


def test_no_error_ends_a_pass_or_the_agent(
    cluster: Cluster, files: AgentFiles, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.job("train", annotations={"schedmate.io/code": "train"})
    with files.opened() as setup:
        monkeypatch.setattr(setup.adapter, "ended", lambda _since: iter(()).__next__())
        report = setup.agent.once()
        assert report.estimated
        assert any("internal error, StopIteration" in one for one in report.problems)
        left = [ValueError("nan"), ExecutorError("gone."), OverflowError("inf"), None]
        real, told, warned = setup.agent.once, [], []

        def once() -> Any:
            error = left.pop(0)
            if error is not None:
                raise error
            return real()

        monkeypatch.setattr(setup.agent, "once", once)
        watch(
            setup.agent, told.append, warned.append, wait=lambda _: None, goes_on=lambda: bool(left)
        )
    assert len(told) == 1
    assert warned == [
        "a pass was not completed: internal error, ValueError: nan.",
        "the scheduler answers again.",
    ]
