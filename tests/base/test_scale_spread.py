"""Work on pools: every item once, poison alone, no more drawn than can be used, goes on after."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import LONG_S, all_ended
from simulated_pool import Deaths, SimulatedPool

from schedmate.base.errors import InputError, SchedmateError
from schedmate.base.journal import Journal, JournalError, Memo
from schedmate.base.spread import Flow, spread


def square(item: int, more: int) -> int:
    return item * item + more


def deadly(item: int, poison: frozenset[int]) -> int:
    if item in poison:
        os._exit(9)
    return item


def refuse(item: int, _shared: None) -> int:
    raise InputError(f"no {item}")


def memo_of(journal: Journal) -> Memo[int, int]:
    return Memo(journal, str, str, int)


def test_every_item_comes_back_once_from_processes() -> None:
    found = list(spread(square, range(5000), 7, processes=2))
    assert sorted(found) == [(n, n * n + 7) for n in range(5000)]


def test_poison_is_found_and_the_rest_is_done() -> None:
    poison = frozenset({0, 17, 18, 300, 499})
    found = dict(spread(deadly, range(500), poison, processes=2))
    assert {item for item, outcome in found.items() if outcome is None} == poison
    assert len(found) == 500


def test_what_the_work_raises_is_raised() -> None:
    for how in ({"processes": 2}, {"threads": 2}):
        with pytest.raises(InputError, match="no 0"):
            list(spread(refuse, [0], None, **how))  # type: ignore[arg-type]


def test_no_more_is_drawn_than_can_be_used() -> None:
    drawn = 0

    def items() -> Iterator[int]:
        nonlocal drawn
        for number in range(1_000_000):
            drawn += 1
            yield number

    release = threading.Event()

    def wait(item: int, _shared: None) -> int:
        release.wait(LONG_S)
        return item

    results = spread(wait, items(), None, threads=3)
    answer: list[tuple[int, int | None]] = []
    reader = threading.Thread(target=lambda: answer.append(next(results)))
    reader.start()
    deadline = time.monotonic() + LONG_S
    while drawn < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    release.set()
    reader.join(LONG_S)
    assert answer
    assert drawn < 40  # of the million
    results.close()  # type: ignore[attr-defined]


def test_a_result_comes_while_more_items_are_still_to_come() -> None:
    told: list[int] = []
    heard = threading.Event()

    def items() -> Iterator[int]:
        for number in range(3):
            if number:
                assert heard.wait(LONG_S), "the result of the item before was not waited for"
                heard.clear()
            yield number

    for item, _ in spread(square, items(), 0, processes=1):
        told.append(item)
        heard.set()
    assert told == [0, 1, 2]


def test_items_that_cannot_be_drawn_are_raised() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(spread(square, items(), 0, threads=1))


@given(
    count=st.integers(0, 400),
    poison=st.sets(st.integers(0, 399), max_size=12),
    size=st.integers(1, 7),
    most=st.integers(1, 300),
    knows=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_poison_is_divided_out_of_tasks_of_any_size(
    count: int, poison: set[int], size: int, most: int, knows: bool, seed: int
) -> None:
    pool = SimulatedPool(size, most, frozenset(poison), knows_place=knows, seed=seed)
    found = list(Flow(pool).results(range(count)))
    assert sorted(item for item, _ in found) == list(range(count))
    assert {item for item, outcome in found if outcome is None} == {
        item for item in poison if item < count
    }
    assert pool.largest <= most
    if not knows and poison:  # a search by parts, not one by one
        deadly = sum(1 for item in poison if item < count)
        assert pool.deaths <= deadly * 12


def test_innocent_items_survive_processes_that_die_for_other_reasons() -> None:
    pool = SimulatedPool(4, 50, frozenset(), knows_place=False, seed=1, deaths=Deaths(every=5))
    found = list(Flow(pool).results(range(2000)))
    assert sorted(found) == [(n, n) for n in range(2000)]
    assert pool.deaths > 5


def test_processes_that_all_die_are_an_error_before_the_end_of_days() -> None:
    pool = SimulatedPool(2, 10, frozenset(range(100_000)), knows_place=True, seed=1)
    with pytest.raises(SchedmateError, match="no task went well"):
        list(Flow(pool).results(range(100_000)))


def test_what_a_journal_holds_is_not_done_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, "squares") as journal:
        results = spread(square, range(100), 0, threads=1, memo=memo_of(journal))
        first = [next(results) for _ in range(31)]
        results.close()  # type: ignore[attr-defined]
    with Journal(path, "squares") as journal:
        assert len(journal) == 30  # whoever reads had not yet dealt with the last one
        done: list[int] = []

        def counted(item: int, _shared: None) -> int:
            done.append(item)
            return item * item

        found = dict(spread(counted, range(100), None, threads=1, memo=memo_of(journal)))
    assert found == {n: n * n for n in range(100)}
    assert set(done) == set(range(100)) - {item for item, _ in first[:30]}


def test_poison_is_not_tried_again(tmp_path: Path) -> None:
    for _ in range(2):
        with Journal(tmp_path / "journal", "poison") as journal:
            memo = memo_of(journal)
            found = dict(spread(deadly, range(20), frozenset({5}), processes=1, memo=memo))
        assert [item for item, outcome in found.items() if outcome is None] == [5]
    with Journal(tmp_path / "journal", "poison") as journal:
        memo = memo_of(journal)
        again = dict(spread(deadly, range(20), frozenset(range(20)), processes=1, memo=memo))
    assert again == found


KILLED = """
import sys, time
from pathlib import Path
from schedmate.base.journal import Journal, Memo
from schedmate.base.spread import spread

def work(item, path):
    with open(path, "a") as stream:
        stream.write(f"{item}\\n")
    time.sleep(0.002)
    return item

def main():
    journal, log = map(Path, sys.argv[1:3])
    with Journal(journal, "kill") as kept:
        memo = Memo(kept, str, str, int)
        found = dict(spread(work, range(2000), log, processes=2, memo=memo))
    print(sum(found.values()))

if __name__ == "__main__":
    main()
"""


def test_a_driver_killed_at_any_time_goes_on(tmp_path: Path) -> None:
    script, log = tmp_path / "killed.py", tmp_path / "log"
    script.write_text(KILLED)
    log.touch()
    command = [sys.executable, str(script), str(tmp_path / "journal"), str(log)]
    process = subprocess.Popen(command, start_new_session=True)
    while process.poll() is None and log.read_text().count("\n") < 900:
        time.sleep(0.01)
    process.kill()  # the driver alone: its processes must end by themselves
    process.wait()
    assert all_ended(process.pid)
    before = log.read_text().count("\n")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) == sum(range(2000))
    items = log.read_text().split()
    assert set(items) == {str(n) for n in range(2000)}
    assert len(items) < before + 2000  # some of it was not done again


def test_a_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal", "one"):
        pass
    with pytest.raises(JournalError, match=r"journal of another run \(one; this one: two\)"):
        Journal(tmp_path / "journal", "two")
    (tmp_path / "text").write_text("no database, and longer than the head of one\n" * 40)
    with pytest.raises(JournalError, match="cannot use the journal"):
        Journal(tmp_path / "text", "one")
    with pytest.raises(JournalError, match="no such directory"):
        Journal(tmp_path / "gone" / "journal", "one")


def test_two_runs_do_not_share_a_journal(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal", "one"):
        with pytest.raises(JournalError, match="another run is using it"):
            Journal(tmp_path / "journal", "one")


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "other") as database:
        database.execute("CREATE TABLE precious (x)")
    database.close()
    with pytest.raises(JournalError, match="database of something else"):
        Journal(tmp_path / "other", "one")
