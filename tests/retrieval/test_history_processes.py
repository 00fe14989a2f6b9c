"""Several writers at one history: who waits, and for how long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from toy_embedder import ToyEmbedder, job

from schedmate.retrieval import database
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
