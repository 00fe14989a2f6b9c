"""A writer killed with SIGKILL at any moment: nothing committed is lost, nothing disagrees."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from toy_embedder import ToyEmbedder, job

from schedmate.jobs import JobRecord
from schedmate.retrieval.history import DATABASE, JobHistory
from schedmate.retrieval.render import render

WRITER = Path(__file__).with_name("crash_writer.py")


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path: Path) -> None:
    draw = random.Random(7)
    expected: dict[str, JobRecord] = {}
    kinds: set[str] = set()
    for seed in range(12):
        begun = run_and_kill(tmp_path / "history", seed, draw, expected)
        kinds.add(begun)
        check(tmp_path / "history", expected)
    assert len(expected) > 50
    assert len(kinds) > 1, "the kills hit one kind of operation only"


def run_and_kill(
    folder: Path, seed: int, draw: random.Random, expected: dict[str, JobRecord]
) -> str:
    """One writer's life; brings `expected` up to date and returns what it was at when it died."""
    writer = subprocess.Popen(
        [sys.executable, str(WRITER), str(folder), str(seed)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    first = writer.stdout.readline()
    time.sleep(draw.uniform(0.0, 0.5))
    writer.kill()
    rest, errors = writer.stdout.read(), writer.stderr.read()
    assert writer.wait() == -9, errors
    writer.stdout.close()
    writer.stderr.close()
    lines = [json.loads(line) for line in (first + rest).splitlines() if line.endswith("]")]
    begun: tuple[str, list[str]] = ("none", [])
    for kind, *details in lines:
        if kind == "begin":
            begun = (details[0], details[1])
        else:
            apply(kind, details[0], expected)
            begun = ("none", [])
    # the operation it died in is there as a whole, or not at all
    after = dict(expected)
    apply(begun[0], begun[1], after)
    with JobHistory.open(folder, ToyEmbedder(), read_only=True) as history:
        stored = {record.job_id: record for record in history.export()}
    assert stored in (expected, after), f"killed in {begun}"
    expected.clear()
    expected.update(stored)
    return begun[0]


def apply(kind: str, names: list[str], expected: dict[str, JobRecord]) -> None:
    for name in names:
        if kind == "add":
            expected[name] = job(name, f"net {name}")
        elif kind == "add_many":
            expected[name] = job(name, f"net {name}", state="RUNNING")
        elif kind == "replace":
            expected[name] = job(name, f"renamed {name}")
        elif kind == "finish":
            changes = {"state": "COMPLETED", "duration_s": 5.0, "end_time": 2000.0}
            expected[name] = expected[name].model_copy(update=changes)


def check(folder: Path, expected: dict[str, JobRecord]) -> None:
    """Table and index agree with each other, and with what was committed."""
    embedder = ToyEmbedder()
    with sqlite3.connect(folder / DATABASE) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()
    with JobHistory.open(folder, embedder) as history:
        if history.mismatch():  # killed between a rebuild for another embedder and the way back
            history.rebuild()
        ended = [record for record in expected.values() if record.ended]
        texts = [render(record.metadata) for record in ended]
        rows = embedder.embed(texts)
        for place in range(0, len(ended), max(1, len(ended) // 20)):
            found = history.search(ended[place].metadata, 3, -1.0)
            best = np.sort(rows @ rows[place])[::-1][:3]
            assert found[0].similarity == pytest.approx(1.0, abs=1e-5)
            if history._vectors.nearest().exact:
                assert [m.similarity for m in found] == pytest.approx(best.tolist(), abs=1e-5)
