"""No sequence of events isolates more nodes, or restarts jobs more often, than is allowed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.cluster.actions import Action, Drain, Notify, Requeue, Resume
from schedmate.cluster.adapter import Answer, ExecutorError, Finding
from schedmate.cluster.bounds import kill_switch_is_on
from schedmate.cluster.journal import Instant
from schedmate.cluster.record import Plan, Reason, Record, Result, carry_out, drain_mark, take_back
from schedmate.cluster.recovery.configuration import Configuration
from schedmate.cluster.recovery.guards import (
    ALLOWED_TEXT,
    Guards,
    Inventory,
    breaker_is_open,
    reset_breaker,
)

NODES = [f"gpu-{number:02}" for number in range(1, 21)]


class Cluster:
    """Nodes in two partitions, in memory, and an executor that fails as it is told to."""

    name = "test"

    def __init__(self, nodes: list[str]) -> None:
        self.reasons = dict.fromkeys(nodes, "")
        self.runs: dict[str, int] = {}
        self.fault = ""
        self.restarts: list[tuple[float, str]] = []
        self.drains: list[tuple[float, str]] = []
        self.time = 0.0
        self.debug = nodes[:4] if len(nodes) > 5 else []
        self.left_least = len(nodes)
        """Fewest nodes in service after a drain."""

    def inventory(self) -> Inventory:
        return Inventory.of(
            (node, ("all", "debug") if node in self.debug else ("all",), self.reasons[node] or None)
            for node in self.reasons
        )

    def probe(self, action: Action) -> Finding:
        if self.fault == "blind":
            raise ExecutorError("no answer")
        if isinstance(action, Drain):
            now = self.reasons.get(action.node, "")
            return Finding({"": "ready", action.reason: "done"}.get(now, "moot"))  # type: ignore[arg-type]
        if isinstance(action, Resume):
            now = self.reasons[action.node]
            return Finding({"": "moot", action.reason: "ready"}.get(now, "changed"))  # type: ignore[arg-type]
        if isinstance(action, Requeue):
            run = self.runs.get(action.job, 0)
            return Finding("ready" if run == action.run else "done")
        return Finding("ready")

    def act(self, action: Action, *, key: str, timeout_s: float) -> Answer:
        if self.fault == "fails":
            return Answer("failed", "refused")
        if self.fault != "lost":
            self._do(action)
        if self.fault in ("lost", "silent"):
            return Answer("unknown", "no answer in time")
        return Answer("done")

    def _do(self, action: Action) -> None:
        if isinstance(action, Drain):
            self.reasons[action.node] = action.reason
            self.drains.append((self.time, action.node))
            in_service = sum(not reason for reason in self.reasons.values())
            self.left_least = min(self.left_least, in_service)
        elif isinstance(action, Resume):
            self.reasons[action.node] = ""
        elif isinstance(action, Requeue):
            self.runs[action.job] = action.run + 1
            self.restarts.append((self.time, action.job))


class Site:
    """A cluster with its record, guards and a clock that can be set."""

    def __init__(
        self, folder: Path, configuration: Configuration, nodes: list[str] = NODES
    ) -> None:
        self.cluster, self.configuration = Cluster(nodes), configuration
        self.frozen: Inventory | None = None
        self.faults: list[str] = []
        self.reset = 0
        """How many nodes had been drained when the breaker was closed last."""
        self.wall = 1e9
        self.record = Record(folder / "record.db", now=self.now)
        self.plans: list[str] = []

    def now(self) -> Instant:
        return Instant(self.wall + self.cluster.time, "boot", self.cluster.time)

    def inventory(self) -> Inventory:
        seen, _ = self.record.head()
        return replace(self.cluster.inventory(), seen=seen)

    def plan(self, *actions: Action, key: str, **reason: Any) -> str:
        reason = {"summary": "x", "verdict": "ECC Error", "confirmed_by": "dcgmi"} | reason
        plan = Plan.of(
            "recovery",
            cluster="alpha",
            key=key,
            created=1.0,
            reason=Reason(**reason),
            actions=actions,
        )
        self.record.propose(plan, by="agent")
        self.record.approve(plan.id, by="alice")
        self.plans.append(plan.id)
        return plan.id

    def apply(self, id_: str, *, retry: bool = False) -> Result:
        guards = Guards(self.configuration, self.frozen or self.inventory())
        return carry_out(self.record, id_, self.cluster, guards, by="agent", retry=retry)

    def isolate(self, node: str, **reason: Any) -> Result:
        key = f"{node} {len(self.plans)}"
        return self.apply(self.plan(Drain(node=node, mark=drain_mark("x", "1")), key=key, **reason))

    def restart(self, job: str, **reason: Any) -> Result:
        run = self.cluster.runs.get(job, 0)
        key = f"{job} {run} {len(self.plans)}"
        return self.apply(self.plan(Requeue(job=job, run=run), key=key, **reason))

    def undo(self, id_: str) -> None:
        guards = Guards(self.configuration, Inventory())
        take_back(self.record, id_, self.cluster, guards, by="alice")


def configured(tmp_path: Path, **parts: Any) -> Configuration:
    kill = parts.pop("kill_switch", tmp_path / "stop")
    return Configuration.model_validate({"kill_switch": kill, **parts})


@pytest.fixture
def site(tmp_path: Path) -> Site:
    isolation = {"at_most": 3, "at_most_percent": 50, "cool_down": 0, "keep_percent": 0}
    return Site(tmp_path, configured(tmp_path, isolation=isolation))


def test_the_breaker_opens_and_stays_open(site: Site) -> None:
    for number in range(3):
        assert site.isolate(NODES[number]).stopped is None
    result = site.isolate(NODES[10])
    assert result.stopped == "refused"
    assert "circuit breaker: 3 nodes isolated" in result.detail
    assert breaker_is_open(site.record)
    site.cluster.time += 30 * 86_400  # the window has passed, the breaker is as it was
    site.cluster.reasons = dict.fromkeys(NODES, "")
    assert "it is open" in site.isolate(NODES[10]).detail
    reset_breaker(site.record, by="alice", note="two bad power supplies")
    assert site.isolate(NODES[10]).stopped is None
    assert len(site.cluster.drains) == 4


def test_nodes_that_were_put_back_count_within_the_window(site: Site) -> None:
    for node in NODES[:3]:
        site.isolate(node)
        site.undo(site.plans[-1])
    assert set(site.cluster.reasons.values()) == {""}
    assert site.isolate(NODES[5]).stopped == "refused"


def test_nodes_that_are_still_out_count_after_the_window(site: Site) -> None:
    for node in NODES[:3]:
        site.isolate(node)
    site.cluster.time += 30 * 86_400
    assert site.isolate(NODES[5]).stopped == "refused"


@pytest.mark.parametrize("jump", [-1e9, -86_400.0, 86_400.0, 1e9])
def test_setting_the_clock_opens_no_window(site: Site, jump: float) -> None:
    for node in NODES[:3]:
        site.isolate(node)
        site.undo(site.plans[-1])
    site.wall += jump
    assert site.isolate(NODES[5]).stopped == "refused"


def test_the_share_of_nodes_is_one_at_least(tmp_path: Path) -> None:
    part = {"at_most": 9, "at_most_percent": 1, "cool_down": 0, "keep_percent": 0}
    site = Site(tmp_path, configured(tmp_path, isolation=part))
    assert site.isolate(NODES[0]).stopped is None
    assert site.isolate(NODES[1]).stopped == "refused"
    none = Site(tmp_path / "b", configured(tmp_path, isolation=part | {"at_most_percent": 0}))
    assert none.isolate(NODES[0]).stopped == "refused"


def test_a_pause_lies_between_two_isolations(tmp_path: Path) -> None:
    part = {"at_most": 9, "at_most_percent": 90, "cool_down": "10m", "keep_percent": 0}
    site = Site(tmp_path, configured(tmp_path, isolation=part))
    assert site.isolate(NODES[0]).stopped is None
    site.cluster.time += 60
    waits = site.isolate(NODES[1])
    assert (waits.stopped, waits.wait_s) == ("waits", 540.0)
    site.cluster.time += 540
    assert site.apply(site.plans[-1]).stopped is None


def test_the_last_healthy_nodes_of_a_partition_stay(tmp_path: Path) -> None:
    part = {"at_most": 20, "at_most_percent": 100, "cool_down": 0, "keep": 2, "keep_percent": 50}
    site = Site(tmp_path, configured(tmp_path, isolation=part))
    site.cluster.reasons[NODES[0]] = "fan, by hand"
    assert site.isolate(NODES[1]).stopped is None
    result = site.isolate(NODES[2])
    assert "partition debug would have 1 node of 4" in result.detail
    for node in NODES[4:12]:
        assert site.isolate(node).stopped is None
    assert "partition all would have 9 nodes of 20" in site.isolate(NODES[12]).detail


def test_text_alone_isolates_nothing(tmp_path: Path, site: Site) -> None:
    assert "only the job's log" in site.isolate(NODES[0], confirmed_by=None).detail
    assert "only the job's log" in site.isolate(NODES[0], confirmed_by=ALLOWED_TEXT).detail
    rules = [{"isolate": "text"}]
    trusting = Site(tmp_path / "b", configured(tmp_path, rules=rules))
    assert trusting.isolate(NODES[0], confirmed_by=ALLOWED_TEXT).stopped is None
    assert "only the job's log" in trusting.isolate(NODES[1], confirmed_by=None).detail


def test_unknown_nodes_and_unknown_clusters(site: Site) -> None:
    assert "none of the nodes" in site.isolate("gpu-99").detail
    id_ = site.plan(Drain(node=NODES[0], mark="x-1"), key="blind")
    guards = Guards(site.configuration, Inventory())
    result = carry_out(site.record, id_, site.cluster, guards, by="agent")
    assert "not known which nodes" in result.detail
    assert site.cluster.drains == []


def test_nobody_resumes_by_a_plan(site: Site) -> None:
    site.isolate(NODES[0])
    id_ = site.plan(Resume(node=NODES[0], mark=drain_mark("x", "1")), key="resume")
    assert "recover undo" in site.apply(id_).detail


def test_the_kill_switch_stops_all_but_telling_people(site: Site, tmp_path: Path) -> None:
    site.isolate(NODES[0])
    (tmp_path / "stop").touch()
    for result in (site.isolate(NODES[1]), site.restart("17")):
        assert result.detail.startswith("kill switch")
    told = site.plan(Notify(to="operator", text="look"), key="told")
    assert site.apply(told).stopped is None
    guards = Guards(site.configuration, Inventory())
    back = take_back(site.record, site.plans[0], site.cluster, guards, by="alice")
    assert back.stopped == "refused"
    (tmp_path / "stop").unlink()
    assert take_back(site.record, site.plans[0], site.cluster, guards, by="alice").stopped is None


def test_a_kill_switch_that_cannot_be_looked_at_is_on() -> None:
    def denied(_path: Path) -> None:
        raise PermissionError

    assert kill_switch_is_on(Path("/x"), denied)
    assert kill_switch_is_on(Path("/dev/null/x"))
    assert not kill_switch_is_on(Path("/no/such/file"))


def test_restarts_have_a_budget_and_back_off(tmp_path: Path) -> None:
    part = {"per_job": 3, "back_off": 60, "back_off_at_most": 90, "within": "1d"}
    site = Site(tmp_path, configured(tmp_path, restarts=part))
    assert site.restart("17").stopped is None
    assert site.restart("17").wait_s == 60.0
    assert site.restart("18").stopped is None
    site.cluster.time += 60
    assert site.apply(site.plans[1]).stopped is None
    assert site.restart("17").wait_s == 90.0
    site.cluster.time += 90
    assert site.apply(site.plans[-1]).stopped is None
    site.cluster.time += 3600
    assert "job 17 was restarted 3 times within" in site.restart("17").detail
    site.cluster.time += 86_400
    assert site.restart("17").stopped is None


def test_a_verdict_has_a_budget_of_its_own(tmp_path: Path) -> None:
    part = {"per_job": 9, "back_off": 0, "by_verdict": {"NCCL Timeout": 1}}
    site = Site(tmp_path, configured(tmp_path, restarts=part))
    assert site.restart("17", verdict="NCCL Timeout").stopped is None
    assert "after NCCL Timeout" in site.restart("17", verdict="NCCL Timeout").detail
    assert site.restart("17", verdict="ECC Error").stopped is None
    assert site.restart("18", verdict="NCCL Timeout").stopped is None


def test_all_jobs_together_have_a_budget(tmp_path: Path) -> None:
    site = Site(tmp_path, configured(tmp_path, restarts={"all_jobs": 2}))
    assert [site.restart(job).stopped for job in ("1", "2", "3")] == [None, None, "refused"]


@pytest.mark.parametrize("fault", ["silent", "lost"])
def test_what_may_have_happened_counts(site: Site, fault: str) -> None:
    """Drains without an answer, seen by nobody yet, and restarts without one."""
    site.frozen = site.inventory()
    site.cluster.fault = fault
    for node in NODES[:3]:
        assert site.isolate(node).stopped == "unknown"
    assert site.restart("17").stopped == "unknown"
    site.cluster.fault = ""
    assert site.isolate(NODES[5]).stopped == "refused"
    assert site.restart("17").stopped == "waits"


FEW = NODES[:5]
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("isolate"), st.sampled_from(FEW)),
        st.tuples(st.just("isolate and undo"), st.sampled_from(FEW)),
        st.tuples(st.just("restart"), st.sampled_from(["1", "2"])),
        st.tuples(st.just("again"), st.integers(0, 30)),
        st.tuples(st.just("undo"), st.integers(0, 30)),
        st.tuples(st.just("fault"), st.sampled_from(["fails", "lost", "silent", "blind"])),
        st.tuples(st.just("reset"), st.none()),
        st.tuples(st.just("wait"), st.sampled_from([1.0, 600.0, 5000.0])),
        st.tuples(st.just("clock"), st.sampled_from([-1e8, -4000.0, 4000.0, 1e8])),
        st.tuples(st.just("by hand"), st.sampled_from(FEW)),
        st.tuples(st.just("stale"), st.booleans()),
    ),
    max_size=30,
)
WINDOW_S = 3600.0


@pytest.mark.slow
@settings(max_examples=30)
@given(events=EVENTS, at_most=st.integers(0, 4), keep=st.integers(1, 5))
def test_no_sequence_of_events_does_more_than_allowed(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[tuple[str, Any]],
    at_most: int,
    keep: int,
) -> None:
    """Whatever fails, whoever sets the clock, and however old what is known of the nodes is."""
    folder = tmp_path_factory.mktemp("site")
    isolation = {"at_most": at_most, "keep": keep, "within": WINDOW_S}
    isolation |= {"at_most_percent": 100, "keep_percent": 0, "cool_down": 0}
    restarts = {"per_job": 2, "within": WINDOW_S, "back_off": 60, "all_jobs": 3}
    site = Site(folder, configured(folder, isolation=isolation, restarts=restarts), FEW)
    for event, what in events:
        happens(site, event, what)
        holds(site, at_most, keep)
    site.record.close()


def happens(site: Site, event: str, what: Any) -> None:
    cluster = site.cluster
    if event != "fault":
        # a fault is of the one action that follows it
        site.faults = site.faults[1:]
    cluster.fault = site.faults[0] if site.faults else ""
    if event in ("isolate", "isolate and undo"):
        site.isolate(what)
        cluster.fault = ""
        if event != "isolate" and site.record.plan(site.plans[-1]).state == "applied":
            site.undo(site.plans[-1])
    elif event == "restart":
        site.restart(what)
    elif event in ("again", "undo") and site.plans:
        id_ = site.plans[what % len(site.plans)]
        state = site.record.plan(id_).state
        if event == "undo" and state in ("applied", "failed", "applying", "undoing"):
            site.undo(id_)
        elif event == "again" and state in ("applying", "failed"):
            site.apply(id_, retry=True)
    elif event == "fault":
        site.faults = ["", what]
    elif event == "reset":
        reset_breaker(site.record, by="alice", note="looked")
        site.reset = len(cluster.drains)
    elif event == "wait":
        cluster.time += what
    elif event == "clock":
        site.wall += what
    elif event == "stale":
        site.frozen = site.inventory() if what else None
    elif event == "by hand" and not cluster.reasons[what]:
        cluster.reasons[what] = "by hand"
        site.frozen = None


def holds(site: Site, at_most: int, keep: int) -> None:
    cluster = site.cluster
    drains = cluster.drains[site.reset :]
    assert len({node for at, node in drains if at > cluster.time - WINDOW_S}) <= at_most
    out = {node for node, reason in cluster.reasons.items() if reason.startswith("schedmate")}
    assert len(out & {node for _, node in drains}) <= at_most
    assert cluster.left_least >= min(keep, len(FEW))
    restarts = [job for at, job in cluster.restarts if at > cluster.time - WINDOW_S]
    assert len(restarts) <= 3
    assert all(restarts.count(job) <= 2 for job in restarts)
    for job in restarts:
        times = [at for at, one in cluster.restarts if one == job]
        assert all(later - earlier >= 60 for earlier, later in pairwise(times))


RACE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from test_guards import NODES, Site, configured
folder = Path(sys.argv[1])
part = {"at_most": 3, "at_most_percent": 100, "cool_down": 0, "keep_percent": 0}
site = Site(folder, configured(folder, isolation=part))
for number in range(3):
    node = NODES[int(sys.argv[2]) * 3 + number]
    if site.isolate(node).stopped is None:
        print(node)
"""


@pytest.mark.slow
def test_processes_at_once_do_not_share_a_budget_twice(tmp_path: Path) -> None:
    """Each has its own view of the cluster, in which all nodes are in service: only the record
    tells them of each other."""
    command = [sys.executable, "-c", RACE, str(tmp_path)]
    here = str(Path(__file__).parent)
    runs = [
        subprocess.Popen([*command, str(number), here], stdout=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    outputs = [one.communicate()[0] for one in runs]
    assert [one.returncode for one in runs] == [0] * 4
    assert len("".join(outputs).split()) == 3
    with Record(tmp_path / "record.db", read_only=True) as record:
        assert record.verify().broken is None
