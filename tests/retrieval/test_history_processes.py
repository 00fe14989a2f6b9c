"""One history, several processes and threads: killed at any moment, waiting, reading meanwhile."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from history_jobs import SmallEmbedder, described, job, mounts
from history_writer import FINISHED

from schedmate.jobs import JobRecord
from schedmate.retrieval import database
from schedmate.retrieval.database import DATABASE, HistoryError
from schedmate.retrieval.history import JobHistory
from schedmate.retrieval.similarity import render

WRITER = Path(__file__).with_name("history_writer.py")
SMALL = SmallEmbedder()
DISKS = ("local", "network")
OPERATIONS = ("add", "add_many", "finish", "replace", "rebuild")


@pytest.fixture
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The disk that `tmp_path / "history"` is taken to be on."""
    found = str(request.param)
    if found == "network":
        monkeypatch.setattr(database, "MOUNTS", mounts(tmp_path / "history"))
    return found


@contextmanager
def writer(path: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A running history_writer.py, killed at the end, which is how each of them ends."""
    with subprocess.Popen(
        [sys.executable, str(WRITER), str(path), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
    assert process.returncode == -9


def go(process: subprocess.Popen[str]) -> None:
    """Let an `add` writer begin."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def line(process: subprocess.Popen[str]) -> str:
    """The next whole line that it prints."""
    assert process.stdout is not None
    assert process.stderr is not None
    text = process.stdout.readline()
    assert text.endswith("\n"), process.stderr.read()
    return text.strip()


@pytest.mark.slow
@pytest.mark.parametrize("kind", DISKS, indirect=True)
def test_killed_at_random_moments(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "history"
    draw = random.Random(7)
    expected: dict[str, JobRecord] = {}
    for seed, operation in enumerate([*OPERATIONS, *OPERATIONS[:3]]):
        run_and_kill(path, seed, kind, draw, operation, expected)
        check(path, expected)
    assert len(expected) > 50


def run_and_kill(
    folder: Path,
    seed: int,
    kind: str,
    draw: random.Random,
    operation: str,
    expected: dict[str, JobRecord],
) -> None:
    """One writer's life until about an operation; brings `expected` up to date."""
    with writer(folder, "mix", str(seed), kind) as process:
        # so many lines, not so much time: a slow machine gets as far as a quick one
        first = [line(process) for _ in range(draw.randint(2, 120))]
        while not first[-1].startswith(f'["begin", "{operation}"'):
            first.append(line(process))
        time.sleep(draw.uniform(0.0, 0.02))
        process.kill()
        assert process.stdout is not None
        rest = process.stdout.read()
    # a line that was cut off by the kill was not reported
    lines = [json.loads(text) for text in [*first, *rest.splitlines()] if text.endswith("]")]
    begun: tuple[str, list[int]] = ("none", [])
    for name, *details in lines:
        if name == "begin":
            begun = (details[0], details[1])
        else:
            apply(name, details[0], expected)
            begun = ("none", [])
    # the operation it died in is there as a whole, or not at all
    after = dict(expected)
    apply(*begun, after)
    with JobHistory.open(folder, SMALL, read_only=True) as history:
        stored = {record.job_id: record for record in history.export()}
    assert stored in (expected, after), f"killed in {begun}"
    expected.clear()
    expected.update(stored)


def apply(kind: str, numbers: list[int], expected: dict[str, JobRecord]) -> None:
    """What an operation of the writer does to the jobs that are stored."""
    for number in numbers:
        name = f"{number:06}"
        if kind == "add":
            expected[name] = job(number)
        elif kind == "add_many":
            expected[name] = job(number, state="RUNNING")
        elif kind == "replace":
            expected[name] = job(number, f"renamed{number}")
        elif kind == "finish":
            expected[name] = expected[name].model_copy(update=FINISHED)


def check(folder: Path, expected: dict[str, JobRecord]) -> None:
    """Table and index agree with each other, and with what was committed."""
    with sqlite3.connect(folder / DATABASE) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()
    with JobHistory.open(folder, SMALL) as history:
        if history.mismatch():  # killed between a rebuild for another embedder and the way back
            history.rebuild()
        with history._db.reading():
            nearest = history._vectors.nearest()
            assert len(nearest) == history._vectors.texts().count()
        ended = [record for record in expected.values() if record.ended]
        rows = SMALL.embed([render(record.metadata) for record in ended])
        for place in range(0, len(ended), max(1, len(ended) // 20)):
            found = history.search(ended[place].metadata, 3, -1.0)
            best = np.sort(rows @ rows[place])[::-1][:3]
            assert found[0].similarity == pytest.approx(1.0, abs=1e-5)
            if nearest.exact:
                assert [m.similarity for m in found] == pytest.approx(best.tolist(), abs=1e-5)


@pytest.mark.parametrize("kind", DISKS, indirect=True)
def test_writers_wait_for_each_other_from_the_first_moment(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "history"
    firsts = (0, 300_000, 600_000)
    with ExitStack() as stack:
        writers = [stack.enter_context(writer(path, "add", str(one), kind)) for one in firsts]
        assert [line(process) for process in writers] == ["ready"] * 3
        for process in writers:
            go(process)
        last = [[int(line(process)) for _ in range(6)][-1] for process in writers]
    with JobHistory.open(path, SMALL) as history:
        held = {int(record.job_id) for record in history.export()}
        for first, end in zip(firsts, last, strict=True):
            assert held >= {*range(first, end + 1)}
            for number in (first, end):
                [best] = history.search(described(f"net{number}"), 1, 0.9)
                assert int(best.record.job_id) == number


@pytest.mark.parametrize("kind", DISKS, indirect=True)
def test_a_reader_sees_what_another_process_commits(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "history"
    with writer(path, "add", "0", kind) as process:
        assert line(process) == "ready"
        go(process)
        line(process)
        with JobHistory.open(path, SMALL, read_only=True) as reader:
            for _ in range(20):
                committed = int(line(process))
                assert len(reader) > committed
                for number in (0, committed // 2, committed):
                    [best] = reader.search(described(f"net{number}"), 1, 0.9)
                    assert int(best.record.job_id) == number


def test_a_writer_that_waits_too_long_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    with JobHistory.open(tmp_path, SMALL) as one, JobHistory.open(tmp_path, SMALL) as two:
        with one._db.writing():
            with pytest.raises(HistoryError, match=r"another process has been writing.*try again"):
                two.add(job(1))
            assert len(two) == 0
        two.add(job(1))
        assert len(one) == 1


def test_threads_share_one_history(tmp_path: Path) -> None:
    failures: list[BaseException] = []
    with JobHistory.open(tmp_path, SMALL) as history:

        def work(start: int) -> None:
            try:
                for number in range(start, start + 25):
                    history.add(job(number))
                    [best] = history.search(described(f"net{number}"), 1, 0.9)
                    assert best.record.job_id == f"{number:06}"
            except BaseException as error:  # noqa: BLE001 - handed to the main thread
                failures.append(error)

        threads = [threading.Thread(target=work, args=(100 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(history) == 100
