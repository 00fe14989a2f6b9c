"""The record: append-only, chained, written by many processes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.cluster.actions import ACTION, Annotate, Drain, Order, Requeue
from schedmate.cluster.journal import Instant, RecordError
from schedmate.cluster.record import (
    NEXT,
    Plan,
    PlanState,
    Reason,
    Record,
    StateError,
    drain_mark,
    isolations,
)
from schedmate.cluster.recovery.guards import needed_from


def plan_of(key: str = "job 17 run 0", *, expires: float | None = None) -> Plan:
    return Plan.of(
        "recovery",
        cluster="alpha",
        key=key,
        created=1.0,
        expires=expires,
        reason=Reason(summary="ECC Error on gpu-7"),
        actions=lambda id_: [Drain(node="gpu-7", mark=drain_mark("ECC Error", id_))],
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.db"


def test_a_plan_is_proposed_once(path: Path) -> None:
    with Record(path) as record:
        first = record.propose(plan_of(), by="agent")
        record.reject(first.plan.id, by="alice", note="no")
        again = record.propose(plan_of(), by="another agent")
        assert (again.state, again.by, again.note) == ("rejected", "alice", "no")
        assert len(record.plans()) == 1
        assert [one.kind for one in record.entries()] == ["proposed", "moved"]


@settings(max_examples=20)
@given(moves=st.lists(st.sampled_from(sorted(NEXT)), max_size=12))
def test_a_state_follows_only_where_the_table_says_so(
    tmp_path_factory: pytest.TempPathFactory, moves: list[PlanState]
) -> None:
    with Record(tmp_path_factory.mktemp("record") / "r.db") as record:
        id_ = record.propose(plan_of(), by="agent").plan.id
        state: PlanState = "proposed"
        for to in moves:
            if to in NEXT[state]:
                record.move(id_, to, by="x")
                state = to
            else:
                with pytest.raises(StateError):
                    record.move(id_, to, by="x")
        assert record.plan(id_).state == state
        assert record.counts() == {state: 1}


def test_plans_are_listed_newest_first_and_by_page(path: Path) -> None:
    with Record(path) as record:
        ids = [record.propose(plan_of(f"job {n}"), by="agent").plan.id for n in range(5)]
        record.approve(ids[1], by="alice")
        page = record.plans(limit=2)
        assert [one.plan.id for one in page] == [ids[4], ids[3]]
        more = record.plans(limit=9, before=page[-1].number)
        assert [one.plan.id for one in more] == [ids[2], ids[1], ids[0]]
        assert [one.plan.id for one in record.plans(states=["approved"])] == [ids[1]]
        assert record.plans(purpose="ordering") == []


def test_a_plan_expires(path: Path) -> None:
    time = 100.0
    with Record(path, now=lambda: Instant(time, "b", time)) as record:
        id_ = record.propose(plan_of(expires=200.0), by="agent").plan.id
        late = record.propose(plan_of("other", expires=300.0), by="agent").plan.id
        time = 250.0
        with pytest.raises(StateError, match="expired"):
            record.approve(id_, by="alice")
        assert record.plan(id_).state == "expired"
        time = 350.0
        assert record.expire() == [late]


def test_steps_and_their_answers(path: Path) -> None:
    with Record(path) as record:
        id_ = record.propose(plan_of(), by="agent").plan.id
        with pytest.raises(StateError, match="not applying"):
            record.intend(id_, 0, by="agent")
        record.approve(id_, by="alice")
        record.move(id_, "applying", by="agent")
        first = record.intend(id_, 0, by="agent")
        with pytest.raises(StateError, match="no outcome"):
            record.intend(id_, 0, by="agent")
        assert [one.id for one in record.undetermined(id_)] == [first.id]
        assert record.answer(first.id, "void", by="agent")
        second = record.intend(id_, 0, by="agent")
        assert second.key == first.key
        assert record.answer(second.id, "done", by="agent", detail="ok", data={"n": 1})
        assert not record.answer(second.id, "failed", by="agent", detail="too late")
        with pytest.raises(StateError, match="is done"):
            record.intend(id_, 0, by="agent")
        last = record.attempts(plan=id_, kind="drain")[-1]
        assert (last.outcome, last.detail, last.data) == ("done", "ok", {"n": 1})
        assert [one.body["detail"] for one in record.entries(kind="late answer")] == ["too late"]


def test_what_a_guard_raises_leaves_nothing(path: Path) -> None:
    def guard(_action: object) -> None:
        raise RuntimeError("no")

    with Record(path) as record:
        id_ = record.propose(plan_of(), by="agent").plan.id
        record.approve(id_, by="alice")
        record.move(id_, "applying", by="agent")
        before = record.head()
        with pytest.raises(RuntimeError):
            record.intend(id_, 0, by="agent", guard=guard)
        assert record.head() == before
        assert record.attempts() == []


def test_rows_cannot_be_changed(path: Path) -> None:
    with Record(path) as record:
        record.observe("signal", "node gpu-7", by="agent", data={"ecc": 3})
    database = sqlite3.connect(path)
    for statement in ("UPDATE entries SET actor = 'x'", "DELETE FROM entries"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            database.execute(statement)
    database.close()


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE entries SET actor = 'mallory' WHERE seq = 3", "entry 3 is not what was written"),
        ("UPDATE entries SET time = time + 1 WHERE seq = 2", "entry 2 is not what was written"),
        ("DELETE FROM entries WHERE seq = 4", "entry 4 is missing"),
        ("DELETE FROM entries WHERE seq = 6", "it ends at entry 5, and 6 were known"),
    ],
)
def test_tampering_shows(path: Path, statement: str, found: str) -> None:
    with Record(path) as record:
        for number in range(6):
            record.observe("signal", "node gpu-7", by="agent", data={"n": number})
        head = record.head()
        assert record.verify(head).broken is None
    with sqlite3.connect(path) as database:
        database.execute("DROP TRIGGER entries_stay")
        database.execute("DROP TRIGGER entries_remain")
        database.execute(statement)
    database.close()
    with Record(path, read_only=True) as record:
        assert record.verify(head).broken == found


def test_old_entries_move_into_an_archive_and_both_prove_themselves(path: Path) -> None:
    clock = [0.0]

    def now() -> Instant:
        return Instant(clock[0], "", clock[0])

    with Record(path, now=now) as record, Record(path) as another:
        for number in range(4):
            record.reject(record.propose(plan_of(f"job {number}"), by="agent").plan.id, by="a")
        isolates = record.propose(plan_of("job 4 run 0"), by="agent").plan.id
        record.approve(isolates, by="alice")
        record.move(isolates, "applying", by="agent")
        record.answer(record.intend(isolates, 0, by="agent").id, "done", by="agent")
        record.move(isolates, "applied", by="agent")
        waits = record.propose(plan_of("job 5"), by="agent").plan.id
        clock[0] = 200 * 86_400.0
        record.observe("signal", "node gpu-7", by="agent", data={})
        before = record.head()
        assert another.verify(before).broken is None

        keep_s, how = 90 * 86_400.0, {"by": "agent", "needed": needed_from}
        assert record.rotate_above(1e9, keep_s, **how) is None
        archive = record.rotate_above(0.0, keep_s, **how)
        assert archive is not None
        # the isolated node and the plan that waits keep what was decided about them
        assert {status.plan.id for status in record.plans()} == {isolates, waits}
        assert [one.kind for one in record.entries()][-2:] == ["signal", "rotated"]
        assert "gpu-7" in isolations(another)
        assert another.verify(before).broken is None
        assert another.verify((1, "0" * 64)).broken == (
            f"entry 1 is in {archive.name}; verify that file with it"
        )
        another.approve(waits, by="bob")
        clock[0] += 20 * 86_400.0
        assert record.rotate_above(0.0, 86_400.0 * 90, **how) is None  # the last one is too new
        assert record.rotate(keep_s, by="alice", needed=needed_from) is None
        with Record(archive, read_only=True) as old:
            assert old.verify(before).broken is None
            assert len(old.plans()) == 6
    with sqlite3.connect(path) as database:
        database.execute("DROP TRIGGER entries_remain")
        database.execute("DELETE FROM entries WHERE seq = (SELECT min(seq) FROM entries)")
    database.close()
    with Record(path, read_only=True) as record:
        assert record.verify().broken == "entry 9 is missing"


WRITER = """
import sys
from pathlib import Path
from schedmate.cluster.record import Plan, Reason, Record
with Record(Path(sys.argv[1])) as record:
    for n in range(30):
        record.observe("tick", sys.argv[2], by=sys.argv[2], data={"n": n})
        plan = Plan.of("recovery", cluster="a", key=f"job {n}", created=1.0,
                       reason=Reason(summary="x"), actions=[])
        record.propose(plan, by=sys.argv[2])
"""


def test_many_processes_write_one_chain(path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, f"writer {n}"]) for n in range(4)]
    assert [one.wait() for one in writers] == [0, 0, 0, 0]
    with Record(path, read_only=True) as record:
        assert record.verify().broken is None
        assert record.verify().entries == 4 * 30 + 30
        assert len(record.plans(limit=1000)) == 30
        for n in range(4):
            ticks = record.entries(kind="tick", about=f"writer {n}")
            assert [one.body["n"] for one in ticks] == list(range(30))


def test_a_full_disk_is_one_sentence_and_nothing_happened(path: Path) -> None:
    with Record(path) as record:
        record.propose(plan_of(), by="agent")
        pages = record.rows("PRAGMA page_count")[0][0]
        record.rows(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(RecordError, match="disk is full"):
            record.observe("signal", "x", by="agent", data={"text": "y" * 100_000})
        record.rows("PRAGMA max_page_count = 100000")
        assert record.verify().entries == 1
        record.observe("signal", "x", by="agent", data={})
        assert record.verify().broken is None


@pytest.mark.parametrize("content", [b"no database", b""])
def test_what_is_no_record_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(RecordError):
        Record(path, read_only=True)
    with pytest.raises(RecordError, match="no record yet"):
        Record(path.with_name("missing"), read_only=True)


def test_another_database_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE x (y)")
    database.close()
    with pytest.raises(RecordError, match="not a record"):
        Record(path)


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="cannot be opened or written"):
        Record(tmp_path / "file" / "record.db")


def test_a_reader_cannot_write(path: Path) -> None:
    Record(path).close()
    with Record(path, read_only=True) as record, pytest.raises(RecordError, match="reading only"):
        record.propose(plan_of(), by="x")


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "drain", "node": "ALL", "mark": "x-1"}',
        '{"kind": "drain", "node": "gpu[01-99]", "mark": "x-1"}',
        '{"kind": "drain", "node": "a,b", "mark": "x-1"}',
        '{"kind": "drain", "node": "-f", "mark": "x-1"}',
        '{"kind": "drain", "node": "gpu-7", "mark": "x; reboot"}',
        '{"kind": "requeue", "job": "17,18", "run": 0}',
        '{"kind": "requeue", "job": "--all", "run": 0}',
        '{"kind": "requeue", "job": "17 18", "run": 0}',
        '{"kind": "requeue", "job": "17", "run": 0, "exclude": ["gpu-*"]}',
        '{"kind": "order", "values": {"17 Priority=9": 3}, "previous": {}}',
        '{"kind": "order", "values": {}, "previous": {}}',
        '{"kind": "diagnose", "diagnostic": "dcgmi; id", "nodes": ["gpu-7"]}',
        '{"kind": "reboot", "node": "gpu-7"}',
    ],
)
def test_no_action_can_smuggle_a_second_one(text: str) -> None:
    with pytest.raises(ValueError, match="validation error"):
        ACTION.validate_json(text)


def test_actions_know_how_they_are_taken_back() -> None:
    order = Order(values={"1": 500, "2": 500}, previous={"1": 0})
    assert order.undo() == Order(values={"1": 0}, previous={"1": 500, "2": 500})
    note = Annotate(texts={"1": "about 2 h\n\x1b[31m"})
    assert note.texts == {"1": "about 2 h"}
    assert note.undo() == Annotate(texts={"1": ""}, previous={"1": "about 2 h"})
    assert Requeue(job="1", run=0).undo() is None
    drain = Drain(node="gpu-7", mark="x-1")
    back = drain.undo()
    assert back is not None
    assert back.kind == "resume"
    assert back.undo() is None


def test_an_age_does_not_depend_on_the_clock() -> None:
    then = Instant(1000.0, "boot", 50.0)
    assert then.age(Instant(9_999_999.0, "boot", 80.0)) == 30.0
    assert then.age(Instant(10.0, "boot", 80.0)) == 30.0
    assert then.age(Instant(1500.0, "another boot", 3.0)) == 500.0
    assert then.age(Instant(10.0, "another boot", 3.0)) == 0.0
