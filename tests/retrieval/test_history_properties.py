"""The history against a dictionary and brute force, whatever the order of operations."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from toy_embedder import ToyEmbedder, job

from schedmate.jobs import JobRecord
from schedmate.retrieval import history as module
from schedmate.retrieval import index, vectors
from schedmate.retrieval.history import JobHistory
from schedmate.retrieval.render import render

NAMES = st.sampled_from(["resnet50", "resnet18", "bert", "gpt2", "vit", "unet", "llama", "t5"])
DATA = st.sampled_from(["imagenet", "cifar10", "c4", None])
IDS = st.integers(0, 12).map(str)
RECORDS = st.builds(
    job,
    IDS,
    NAMES,
    DATA,
    iters=st.integers(1, 3),
    state=st.sampled_from(["COMPLETED", "FAILED", "RUNNING"]),
    end=st.integers(0, 5).map(float),
)


def brute_force(
    records: list[JobRecord], query: JobRecord, k: int, threshold: float
) -> list[float]:
    """The best similarities among ended jobs, compared one by one."""
    embedder = ToyEmbedder()
    ended = [record for record in records if record.ended]
    if not ended:
        return []
    rows = embedder.embed([render(record.metadata) for record in ended])
    scores = rows @ embedder.embed([render(query.metadata)])[0]
    return sorted((float(s) for s in scores if s >= threshold), reverse=True)[:k]


@settings(max_examples=60)
@given(
    st.lists(RECORDS, max_size=30, unique_by=lambda record: record.job_id),
    st.builds(job, st.just("x"), NAMES, DATA),
    st.integers(1, 8),
    st.sampled_from([-1.0, 0.3, 0.61803, 0.9]),
    st.sampled_from([1, 4, 5000]),
)
def test_search_is_brute_force(
    records: list[JobRecord], query: JobRecord, k: int, threshold: float, tail: int
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(index, "TAIL", tail),
        patch.object(vectors, "TAIL", tail),
        JobHistory.open(Path(folder), ToyEmbedder()) as history,
    ):
        for start in range(0, len(records), 3):
            history.add_many(records[start : start + 3])
        found = history.search(query.metadata, k, threshold)
        assert [match.similarity for match in found] == pytest.approx(
            brute_force(records, query, k, threshold), abs=1e-5
        )
        by_id = {record.job_id: record for record in records}
        prints = query.metadata.fingerprint()
        for match in found:
            assert match.record == by_id[match.record.job_id]
            assert match.exact == (match.record.metadata.fingerprint() == prints)
        assert len({match.record.job_id for match in found}) == len(found)


class Store(RuleBasedStateMachine):
    """Any interleaving of operations keeps contents, length and search right."""

    @initialize(tail=st.sampled_from([1, 3, 5000]))
    def start(self, tail: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.patches = [
            patch.object(index, "TAIL", tail),
            patch.object(vectors, "TAIL", tail),
            patch.object(module, "BATCH", 4),
        ]
        for item in self.patches:
            item.start()
        self.history = JobHistory.open(self.folder, ToyEmbedder())
        self.model: dict[str, JobRecord] = {}

    @rule(record=RECORDS)
    def add(self, record: JobRecord) -> None:
        self.history.add(record)
        self.model[record.job_id] = record

    @rule(records=st.lists(RECORDS, max_size=10))
    def add_many(self, records: list[JobRecord]) -> None:
        assert self.history.add_many(records) == len(records)
        self.model.update({record.job_id: record for record in records})

    @rule(job_id=IDS, duration=st.floats(0, 1e6))
    def finish(self, job_id: str, duration: float) -> None:
        if job_id in self.model:
            done = self.history.finish(job_id, duration_s=duration, state="TIMEOUT")
            changes = {"duration_s": duration, "state": "TIMEOUT"}
            self.model[job_id] = self.model[job_id].model_copy(update=changes)
            assert done == self.model[job_id]

    @rule()
    def reopen(self) -> None:
        self.history.close()
        self.history = JobHistory.open(self.folder, ToyEmbedder(), create=False)

    @rule()
    def rebuild(self) -> None:
        assert self.history.rebuild() == len(self.model)

    @rule()
    def lose_the_snapshots(self) -> None:
        for path in self.folder.glob("*.faiss"):
            path.unlink()

    @rule(query=st.builds(job, st.just("x"), NAMES, DATA), k=st.integers(1, 20))
    def search(self, query: JobRecord, k: int) -> None:
        found = [match.similarity for match in self.history.search(query.metadata, k, 0.5)]
        assert found == pytest.approx(
            brute_force(list(self.model.values()), query, k, 0.5), abs=1e-5
        )

    @invariant()
    def holds_the_same(self) -> None:
        assert len(self.history) == len(self.model)
        assert {record.job_id: record for record in self.history.export()} == self.model

    def teardown(self) -> None:
        if hasattr(self, "history"):
            self.history.close()
            for item in self.patches:
                item.stop()
            shutil.rmtree(self.folder)


Store.TestCase.settings = settings(max_examples=25, stateful_step_count=20)
test_any_order_of_operations = Store.TestCase


def test_brute_force_itself_ranks() -> None:
    records = [job("1", "resnet50"), job("2", "bert"), job("3", "resnet50", state="RUNNING")]
    best = brute_force(records, job("x", "resnet50"), 5, -1.0)
    assert best[0] == pytest.approx(1.0)
    assert len(best) == 2
    assert np.all(np.diff(best) <= 0)
