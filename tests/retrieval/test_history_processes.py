"""Several processes and threads at one history."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from toy_embedder import ToyEmbedder, job

from schedmate.retrieval import database, index, vectors
from schedmate.retrieval.history import HistoryError, JobHistory

ADD = """
import sys
from pathlib import Path
from toy_embedder import ToyEmbedder, job
from schedmate.retrieval import index, vectors
from schedmate.retrieval.history import JobHistory
index.TAIL = vectors.TAIL = 10
name = sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
with JobHistory.open(Path(sys.argv[1]), ToyEmbedder()) as history:
    for i in range(40):
        history.add(job(f"{name}.{i}", f"{name} net {i}"))
        print(i, flush=True)
"""


def _start(folder: Path, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ADD, str(folder), name],
        cwd=Path(__file__).parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _go(writer: subprocess.Popen[str]) -> None:
    assert writer.stdin is not None
    writer.stdin.write("go\n")
    writer.stdin.flush()


def test_writers_wait_for_each_other_from_the_first_moment(tmp_path: Path) -> None:
    writers = [_start(tmp_path / "history", name) for name in "abc"]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        _go(writer)
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert (writer.returncode, errors) == (0, "")
    with JobHistory.open(tmp_path / "history", ToyEmbedder()) as history:
        assert len(history) == 120
        assert {record.job_id for record in history.export()} == {
            f"{name}.{i}" for name in "abc" for i in range(40)
        }
        for name in "abc":
            found = history.search(job("x", f"{name} net 7").metadata, 1, 0.999)
            assert found[0].record.job_id == f"{name}.7"


def test_a_reader_sees_what_a_writer_commits(tmp_path: Path) -> None:
    with JobHistory.open(tmp_path, ToyEmbedder()) as history:
        history.add(job("0"))
    with JobHistory.open(tmp_path, ToyEmbedder(), read_only=True) as reader:
        assert len(reader.search(job("x").metadata, 1, 0.9)) == 1  # has its index now
        writer = _start(tmp_path, "a")
        assert writer.stdout is not None
        writer.stdout.readline()
        _go(writer)
        for i in range(40):
            assert writer.stdout.readline() == f"{i}\n"
            found = reader.search(job("x", f"a net {i}").metadata, 1, 0.999)
            assert [match.record.job_id for match in found] == [f"a.{i}"]
            assert len(reader) >= i + 2
        assert writer.communicate(timeout=60)[1] == ""


def test_a_reader_follows_a_rebuild(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "TAIL", 5)
    monkeypatch.setattr(vectors, "TAIL", 5)
    with JobHistory.open(tmp_path, ToyEmbedder()) as history:
        history.add_many(job(str(i), f"net {i}") for i in range(20))
        with JobHistory.open(tmp_path, ToyEmbedder(), read_only=True) as reader:
            assert len(reader.search(job("x", "net 3").metadata, 1, 0.999)) == 1
            history.rebuild()
            history.add(job("new", "another"))
            for name, job_id in (("net 3", "3"), ("another", "new")):
                found = reader.search(job("x", name).metadata, 1, 0.999)
                assert [match.record.job_id for match in found] == [job_id]


def test_a_writer_that_waits_too_long_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    with (
        JobHistory.open(tmp_path, ToyEmbedder()) as one,
        JobHistory.open(tmp_path, ToyEmbedder()) as two,
    ):
        with one._db.writing():
            with pytest.raises(HistoryError, match=r"another process has been writing.*try again"):
                two.add(job("1"))
            assert len(two) == 0
        two.add(job("1"))
        assert len(one) == 1


def test_threads_share_one_history(tmp_path: Path) -> None:
    failures: list[BaseException] = []
    with JobHistory.open(tmp_path, ToyEmbedder()) as history:

        def work(name: str) -> None:
            try:
                for i in range(20):
                    history.add(job(f"{name}.{i}", f"{name} net {i}", state="RUNNING"))
                    history.finish(f"{name}.{i}", duration_s=1.0)
                    found = history.search(job("x", f"{name} net {i}").metadata, 1, 0.999)
                    assert [match.record.job_id for match in found] == [f"{name}.{i}"]
            except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
                failures.append(error)

        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(history) == 80
