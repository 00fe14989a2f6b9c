"""Records whose database somebody has edited: nothing in them is carried out, nothing crashes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runner import Cli

from schedmate.cluster.actions import Drain, Notify
from schedmate.cluster.adapter import Answer, Finding, Unguarded
from schedmate.cluster.bounds import kill_switch_is_on
from schedmate.cluster.journal import BrokenRecordError, Journal
from schedmate.cluster.record import Plan, Reason, Record, carry_out, take_back

Tamper = Callable[[sqlite3.Connection], object]


class Cluster:
    """An executor that notes what it is asked to do."""

    name = "noted"

    def __init__(self) -> None:
        self.done: list[str] = []

    def probe(self, action: object) -> Finding:
        return Finding("ready")

    def act(self, action: Drain | Notify, *, key: str, timeout_s: float) -> Answer:
        self.done.append(f"{action.kind} {action.target}")
        return Answer("done")


def plan_of(node: str = "gpu-1") -> Plan:
    return Plan.of(
        "recovery",
        cluster="alpha",
        key="job 17 run 0: recover",
        created=1.0,
        reason=Reason(summary="ECC Error"),
        actions=[Drain(node=node, mark="ecc-1")],
    )


def edited(path: Path, tamper: Tamper) -> None:
    database = sqlite3.connect(path)
    database.execute("DROP TRIGGER entries_stay")
    database.execute("DROP TRIGGER entries_remain")
    tamper(database)
    database.commit()
    database.close()


def rewritten(database: sqlite3.Connection, entry: int, change: Callable[[dict], None]) -> None:
    """Change the body of an entry, and all hashes from there on, as schedmate would write them."""
    (text,) = database.execute("SELECT body FROM entries WHERE seq = ?", (entry,)).fetchone()
    body = json.loads(text)
    change(body)
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    database.execute("UPDATE entries SET body = ? WHERE seq = ?", (text, entry))
    before = "0" * 64
    unkeyed = Journal.__new__(Journal)
    unkeyed._key = None
    for *row, _ in database.execute("SELECT * FROM entries ORDER BY seq").fetchall():
        before = unkeyed._digest(before, row)
        database.execute("UPDATE entries SET hash = ? WHERE seq = ?", (before, row[0]))


def another_node(body: dict) -> None:
    body["actions"][0]["node"] = "gpu-2"


def swapped(database: sqlite3.Connection) -> None:
    for old, new in ((1, 99), (2, 1), (99, 2)):
        database.execute("UPDATE entries SET seq = ? WHERE seq = ?", (new, old))


def of(*statements: str) -> Tamper:
    return lambda database: [database.execute(statement) for statement in statements]


BEFORE_APPROVAL: dict[str, Tamper] = {
    "its state in the table": of("UPDATE plans SET state = 'approved'"),
    "its state and the entry it points to": of("UPDATE plans SET state = 'approved', moved = 2"),
}
AFTER_APPROVAL: dict[str, Tamper] = {
    "another node": of("UPDATE entries SET body = replace(body, 'gpu-1', 'gpu-2') WHERE seq = 1"),
    "another node, all hashes made anew": lambda db: rewritten(db, 1, another_node),
    "two entries swapped": swapped,
    "an entry removed": of("DELETE FROM entries WHERE seq = 2"),
    "the last entry removed": of("DELETE FROM entries WHERE seq = 3"),
    "an entry that is no JSON": of("UPDATE entries SET body = '{' WHERE seq = 1"),
    "an entry that is no text": of("UPDATE entries SET body = x'ff00' WHERE seq = 1"),
    "text that is no UTF-8": of("UPDATE entries SET body = cast(x'ff' AS TEXT) WHERE seq = 1"),
    "a time that is no number": of("UPDATE entries SET time = 'soon' WHERE seq = 2"),
    "a plan of its own in the table": of(
        "INSERT INTO plans VALUES ('000000000000', 1, 3, 'approved', 'recovery', NULL)"
    ),
    "it points to another proposal": of("UPDATE plans SET proposed = 3"),
    "a step that is not to be taken": of(
        "INSERT INTO attempts SELECT 1, id, 0, 0, 'drain', 2, 'done' FROM plans"
    ),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "record.db"
    with Record(place) as record:
        record.propose(plan_of(), by="agent")
        record.observe("signal", "gpu-1", by="agent", data={"ecc": 3})
    return place


def refused(path: Path, cli: Cli) -> None:
    """Nothing is carried out, by the library, by the command, and each says so in a sentence."""
    id_, cluster = plan_of().id, Cluster()
    with Record(path) as record:
        for do in (carry_out, take_back):
            with pytest.raises(BrokenRecordError, match="nothing"):
                do(record, id_, cluster, Unguarded(), by="agent")
    assert cluster.done == []
    for words in (["apply"], ["apply", id_], ["undo", id_]):
        done = cli("recover", *words, "--record", str(path))
        assert done.code == 7, (words, done.err)
        assert "error: " in done.err
        assert "Traceback" not in done.err
    done = cli("recover", "status", "--verify", "--record", str(path))
    assert done.code == 7
    assert "was changed" in done.out


@pytest.mark.parametrize("tamper", BEFORE_APPROVAL.values(), ids=BEFORE_APPROVAL.keys())
def test_a_plan_that_only_the_table_calls_approved_is_not_carried_out(
    path: Path, cli: Cli, tamper: Tamper
) -> None:
    edited(path, tamper)
    refused(path, cli)


@pytest.mark.parametrize("tamper", AFTER_APPROVAL.values(), ids=AFTER_APPROVAL.keys())
def test_what_was_approved_is_what_is_carried_out(path: Path, cli: Cli, tamper: Tamper) -> None:
    with Record(path) as record:
        record.approve(plan_of().id, by="alice")
    edited(path, tamper)
    refused(path, cli)


def test_what_is_changed_between_two_steps_stops_the_second(path: Path) -> None:
    two = plan_of().model_copy(
        update={"actions": (plan_of().actions[0], Drain(node="gpu-3", mark="ecc-1"))}
    )
    two = two.model_copy(update={"id": "0123456789ab"})
    cluster = Cluster()
    with Record(path) as record:
        record.propose(two, by="agent")
        record.approve(two.id, by="alice")
        act = cluster.act

        def act_and_edit(action: Drain, *, key: str, timeout_s: float) -> Answer:
            edited(path, of("UPDATE entries SET body = replace(body, 'gpu-3', 'gpu-4')"))
            return act(action, key=key, timeout_s=timeout_s)

        cluster.act = act_and_edit  # type: ignore[method-assign]
        with pytest.raises(BrokenRecordError):
            carry_out(record, two.id, cluster, Unguarded(), by="agent")
    assert cluster.done == ["drain node gpu-1"]


def test_with_a_key_outside_the_database_no_hash_can_be_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    place = tmp_path / "keyed.db"
    monkeypatch.setenv("SCHEDMATE_RECORD_KEY", str(key))
    with Record(place) as record:
        record.propose(plan_of(), by="agent")
        assert record.verify().broken is None
    monkeypatch.delenv("SCHEDMATE_RECORD_KEY")
    with Record(place) as forger, pytest.raises(BrokenRecordError):  # without the key
        forger.approve(plan_of().id, by="mallory")
    edited(place, lambda database: rewritten(database, 1, another_node))
    with Record(place) as forger:
        forger.approve(plan_of("gpu-2").id, by="mallory")  # whole, as far as it can tell
    monkeypatch.setenv("SCHEDMATE_RECORD_KEY", str(key))
    with Record(place) as record, pytest.raises(BrokenRecordError, match="another key"):
        carry_out(record, plan_of().id, Cluster(), Unguarded(), by="agent")


@pytest.mark.parametrize("mode", [0o644, 0o640])
def test_a_key_that_others_read_is_refused(
    cli: Cli, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(mode)
    monkeypatch.setenv("SCHEDMATE_RECORD_KEY", str(key))
    done = cli("recover", "status", "--record", str(path))
    assert done.code == 3
    assert "may be read by others" in done.err


def test_a_kill_switch_in_any_form_stops(tmp_path: Path) -> None:
    place = tmp_path / "stop"
    assert not kill_switch_is_on(place)
    place.symlink_to(tmp_path / "nowhere")
    assert kill_switch_is_on(place)
    place.unlink()
    place.symlink_to(place)
    assert kill_switch_is_on(place)
    place.unlink()
    place.mkdir()
    assert kill_switch_is_on(place)
