"""Plans are carried out exactly once, whoever is killed when."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from folder_cluster import FolderCluster

from schedmate.cluster.actions import Action, Drain, Notify, Requeue
from schedmate.cluster.adapter import Answer, ExecutorError, Finding, RefusedError, Unguarded
from schedmate.cluster.claims import ClaimedError
from schedmate.cluster.journal import RecordError
from schedmate.cluster.record import (
    Plan,
    PlanStatus,
    Reason,
    Record,
    StateError,
    carry_out,
    drain_mark,
    take_back,
)

FREE = Unguarded()


def plan_of(*actions: Action, key: str = "job 17 run 0") -> Plan:
    return Plan.of(
        "recovery",
        cluster="alpha",
        key=key,
        created=1.0,
        reason=Reason(
            summary="ECC Error on gpu-7", verdict="ECC Error", job="17", nodes=("gpu-7",)
        ),
        actions=lambda id_: (
            actions
            or [
                Drain(node="gpu-7", mark=drain_mark("ECC Error", id_)),
                Requeue(job="17", run=0, exclude=("gpu-7",)),
            ]
        ),
    )


def approved(record: Record, *actions: Action) -> str:
    plan = plan_of(*actions)
    record.propose(plan, by="agent")
    record.approve(plan.id, by="alice")
    return plan.id


@pytest.fixture
def cluster(tmp_path: Path) -> FolderCluster:
    return FolderCluster(tmp_path).add(nodes=("gpu-7", "gpu-8"), jobs=("17",))


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path / "record.db")


def test_applied_twice_is_applied_once(cluster: FolderCluster, record: Record) -> None:
    id_ = approved(record)
    assert carry_out(record, id_, cluster, FREE, by="agent").status.state == "applied"
    assert carry_out(record, id_, cluster, FREE, by="agent").status.state == "applied"
    assert cluster.effects() == ["drain node gpu-7", "requeue job 17"]
    assert cluster.reason("gpu-7") == f"schedmate: ecc-error-{id_}"


def test_nothing_happens_without_approval(cluster: FolderCluster, record: Record) -> None:
    plan = plan_of()
    record.propose(plan, by="agent")
    with pytest.raises(StateError, match=f"recover approve {plan.id}"):
        carry_out(record, plan.id, cluster, FREE, by="agent")
    record.reject(plan.id, by="alice", note="known")
    with pytest.raises(StateError, match="rejected"):
        carry_out(record, plan.id, cluster, FREE, by="agent")
    assert cluster.effects() == []


@pytest.mark.parametrize("kind", ["drain", "requeue"])
@pytest.mark.parametrize("moment", ["probe", "before", "after"])
def test_killed_at_any_moment_and_started_again(
    cluster: FolderCluster, record: Record, moment: str, kind: str
) -> None:
    id_ = approved(record)
    script = Path(__file__).with_name("folder_cluster.py")
    command = [sys.executable, str(script), str(cluster.folder), id_, "forth"]
    killed = subprocess.run([*command, moment, kind], capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    assert record.plan(id_).state == "applying"
    open_ones = [one.action.kind for one in record.undetermined()]
    assert open_ones == ([] if moment == "probe" else [kind])
    again = subprocess.run([*command, "", ""], capture_output=True, text=True)
    assert again.stdout == "applied\n", again.stderr
    assert cluster.effects() == ["drain node gpu-7", "requeue job 17"]
    assert record.undetermined() == []
    assert record.verify().broken is None


@pytest.mark.parametrize("moment", ["probe", "before", "after"])
def test_killed_while_undoing_and_started_again(
    cluster: FolderCluster, record: Record, moment: str
) -> None:
    id_ = approved(record)
    carry_out(record, id_, cluster, FREE, by="agent")
    script = Path(__file__).with_name("folder_cluster.py")
    command = [sys.executable, str(script), str(cluster.folder), id_, "back"]
    killed = subprocess.run([*command, moment, "resume"], capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    again = subprocess.run([*command, "", ""], capture_output=True, text=True)
    assert again.stdout == "undone\n", again.stderr
    assert cluster.effects()[2:] == ["resume node gpu-7"]
    assert cluster.reason("gpu-7") == ""
    assert "requeue of job 17 cannot be taken back" in record.plan(id_).note


def test_undo_takes_back_only_what_was_done(cluster: FolderCluster, record: Record) -> None:
    id_ = approved(record, Drain(node="gpu-7", mark="ours-1"), Drain(node="gpu-8", mark="ours-1"))
    (cluster.folder / "nodes" / "gpu-8").write_text("by hand")
    assert carry_out(record, id_, cluster, FREE, by="agent").status.state == "applied"
    (moot,) = record.entries(kind="moot")
    assert moot.body == {"step": 1, "undo": False, "detail": "drained: by hand"}
    assert take_back(record, id_, cluster, FREE, by="alice").status.state == "undone"
    assert (cluster.reason("gpu-7"), cluster.reason("gpu-8")) == ("", "by hand")
    assert cluster.effects() == ["drain node gpu-7", "resume node gpu-7"]


def test_a_node_that_is_gone_fails_the_plan(cluster: FolderCluster, record: Record) -> None:
    id_ = approved(record)
    (cluster.folder / "nodes" / "gpu-7").unlink()
    result = carry_out(record, id_, cluster, FREE, by="agent")
    assert (result.stopped, result.status.state) == ("changed", "failed")
    assert cluster.effects() == []


def test_undo_leaves_alone_what_somebody_changed_since(
    cluster: FolderCluster, record: Record
) -> None:
    id_ = approved(record)
    carry_out(record, id_, cluster, FREE, by="agent")
    (cluster.folder / "nodes" / "gpu-7").write_text("fan replaced on Monday")
    result = take_back(record, id_, cluster, FREE, by="alice")
    assert result.status.state == "undone"
    assert "node gpu-7 was left as it is" in result.detail
    assert cluster.reason("gpu-7") == "fan replaced on Monday"


class Silent(FolderCluster):
    """Acts, and answers in no sense that could be used."""

    def act(self, action: Action, *, key: str, timeout_s: float) -> Answer:
        super().act(action, key=key, timeout_s=timeout_s)
        raise ExecutorError("no answer within 60 s")


def test_no_answer_is_looked_up_the_next_time(cluster: FolderCluster, record: Record) -> None:
    id_ = approved(record)
    result = carry_out(record, id_, Silent(cluster.folder), FREE, by="agent")
    assert (result.stopped, result.status.state) == ("unknown", "applying")
    assert carry_out(record, id_, cluster, FREE, by="agent").stopped is None
    assert cluster.effects() == ["drain node gpu-7", "requeue job 17"]


class Deaf(FolderCluster):
    """Takes no action and says nothing."""

    def act(self, action: Action, *, key: str, timeout_s: float) -> Answer:
        return Answer("unknown", "no answer within 60 s")


def test_who_never_answers_is_not_asked_for_ever(cluster: FolderCluster, record: Record) -> None:
    id_ = approved(record)
    stops = [carry_out(record, id_, Deaf(cluster.folder), FREE, by="a").stopped for _ in range(6)]
    assert stops == ["unknown"] * 5 + ["failed"]
    assert "no answer, 5 times" in record.plan(id_).note
    assert record.undetermined() == []
    assert carry_out(record, id_, cluster, FREE, by="agent", retry=True).stopped is None


class Blind(FolderCluster):
    def probe(self, action: Action) -> Finding:
        raise ExecutorError("the controller does not answer")


def test_who_cannot_look_does_not_act(cluster: FolderCluster, record: Record) -> None:
    id_ = approved(record)
    result = carry_out(record, id_, Blind(cluster.folder), FREE, by="agent")
    assert (result.stopped, result.status.state) == ("unknown", "applying")
    assert cluster.effects() == []
    assert record.attempts() == []


def test_what_failed_is_tried_again_only_when_asked(cluster: FolderCluster, record: Record) -> None:
    id_ = approved(record)
    (cluster.folder / "nodes" / "gpu-7").unlink()
    assert carry_out(record, id_, cluster, FREE, by="agent").stopped == "changed"
    cluster.add(nodes=("gpu-7",))
    with pytest.raises(StateError, match="--retry"):
        carry_out(record, id_, cluster, FREE, by="agent")
    assert carry_out(record, id_, cluster, FREE, by="agent", retry=True).stopped is None


class Forbids:
    def __init__(self, kind: str, wait_s: float | None) -> None:
        self.kind, self.wait_s = kind, wait_s

    def check(self, record: Record, status: PlanStatus, action: Action, *, undo: bool) -> None:
        if action.kind == self.kind:
            raise RefusedError("breaker", "three nodes are out", wait_s=self.wait_s)


def test_a_guard_forbids_before_anything_is_written(cluster: FolderCluster, record: Record) -> None:
    id_ = approved(record)
    result = carry_out(record, id_, cluster, Forbids("drain", None), by="agent")
    assert (result.stopped, result.status.state) == ("refused", "failed")
    assert record.plan(id_).note == "refused: breaker: three nodes are out"
    assert cluster.effects() == []
    assert record.attempts() == []


def test_what_has_to_wait_goes_on_later(cluster: FolderCluster, record: Record) -> None:
    id_ = approved(record)
    result = carry_out(record, id_, cluster, Forbids("requeue", 60.0), by="agent")
    assert (result.stopped, result.wait_s, result.status.state) == ("waits", 60.0, "applying")
    assert cluster.effects() == ["drain node gpu-7"]
    assert carry_out(record, id_, cluster, FREE, by="agent").stopped is None
    assert cluster.effects() == ["drain node gpu-7", "requeue job 17"]


def test_two_at_once(cluster: FolderCluster, record: Record, tmp_path: Path) -> None:
    id_ = approved(record)
    with Record(tmp_path / "record.db") as other, other.claim(id_):
        with pytest.raises(ClaimedError):
            carry_out(record, id_, cluster, FREE, by="agent")
    assert carry_out(record, id_, cluster, FREE, by="agent").stopped is None


def test_an_action_that_nobody_can_take_fails(cluster: FolderCluster, record: Record) -> None:
    class Cannot(FolderCluster):
        def act(self, action: Action, *, key: str, timeout_s: float) -> Answer:
            return Answer("failed", "no mail here")

    id_ = approved(record, Notify(to="operator", text="look at gpu-7"))
    result = carry_out(record, id_, Cannot(cluster.folder), FREE, by="agent")
    assert (result.stopped, result.status.note) == ("failed", "failed: no mail here")


def fill(record: Record, *, full: bool = True) -> None:
    """Let the disk under a record run full, as SQLite meets it: no page more than there are."""
    pages = record.rows("PRAGMA page_count")[0][0]
    record.rows(f"PRAGMA max_page_count = {pages if full else 1 << 20}")
    for size in (1000, 10) if full else ():
        with suppress(RecordError):
            while True:
                record.observe("filling", "x", by="agent", data={"text": "z" * size})


class Fills(FolderCluster):
    """Lets the disk run full while it acts."""

    record: Record

    def act(self, action: Action, *, key: str, timeout_s: float) -> Answer:
        answer = super().act(action, key=key, timeout_s=timeout_s)
        fill(self.record)
        return answer


def test_a_full_disk_stops_before_the_action_and_after_it(
    cluster: FolderCluster, record: Record
) -> None:
    id_ = approved(record)
    fill(record)
    with pytest.raises(RecordError, match="disk is full"):
        carry_out(record, id_, cluster, FREE, by="agent")
    assert cluster.effects() == []
    fill(record, full=False)
    fills = Fills(cluster.folder)
    fills.record = record
    with pytest.raises(RecordError, match="disk is full"):
        carry_out(record, id_, fills, FREE, by="agent")
    assert cluster.effects() == ["drain node gpu-7"]
    assert len(record.undetermined()) == 1
    fill(record, full=False)
    assert carry_out(record, id_, cluster, FREE, by="agent").status.state == "applied"
    assert cluster.effects() == ["drain node gpu-7", "requeue job 17"]
    assert record.verify().broken is None


class TwiceAnswered(FolderCluster):
    """Answers, and somebody answers again, with something else."""

    record: Record

    def act(self, action: Action, *, key: str, timeout_s: float) -> Answer:
        answer = super().act(action, key=key, timeout_s=timeout_s)
        (open_one,) = self.record.undetermined()
        self.record.answer(open_one.id, "done", by="callback")
        return Answer("failed", "no: it was refused") if action.kind == "drain" else answer


def test_the_first_of_two_answers_stands(cluster: FolderCluster, record: Record) -> None:
    id_ = approved(record)
    twice = TwiceAnswered(cluster.folder)
    twice.record = record
    assert carry_out(record, id_, twice, FREE, by="agent").status.state == "applied"
    late = [one.body["outcome"] for one in record.entries(kind="late answer")]
    assert late == ["failed", "done"]
    assert [one.outcome for one in record.attempts(plan=id_)] == ["done", "done"]
    assert cluster.effects() == ["drain node gpu-7", "requeue job 17"]
