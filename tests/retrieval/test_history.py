"""The job history: a real SQLite file, a real FAISS index."""

from __future__ import annotations

import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from history_jobs import SmallEmbedder, described, job
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schedmate.base.errors import UsageError
from schedmate.jobs import Estimate, JobRecord, JobState, LaunchConfig, WorkloadMetadata
from schedmate.retrieval import index
from schedmate.retrieval.advisor import CUT_SHORT, SchedulingAdvisor
from schedmate.retrieval.database import DATABASE, HistoryError
from schedmate.retrieval.embedders import EmbedderError
from schedmate.retrieval.history import JobHistory, Match, MemoryHistory
from schedmate.retrieval.similarity import RENDERING_VERSION, render

SMALL = SmallEmbedder()
TIED = SmallEmbedder("tied", dim=3, kinds=5)


@contextmanager
def folder() -> Iterator[Path]:
    """A directory for one example of a property."""
    path = Path(tempfile.mkdtemp())
    try:
        yield path / "history"
    finally:
        shutil.rmtree(path)


def similarity(embedder: SmallEmbedder, one: WorkloadMetadata, other: WorkloadMetadata) -> float:
    """What the history should find: the cosine of the two renderings."""
    rows = [embedder.embed([render(each)])[0].astype(float) for each in (one, other)]
    return float(rows[0] @ rows[1])


def compare(
    records: list[JobRecord],
    matches: list[Match],
    embedder: SmallEmbedder,
    query: WorkloadMetadata,
    k: int,
    threshold: float,
    ran_only: bool,
) -> None:
    """Whether the matches are the best k: by comparing every job, with room for rounding."""
    scores = {record.job_id: similarity(embedder, record.metadata, query) for record in records}
    kinds = [[*records]]
    if ran_only:
        ran = [record for record in records if record.ended and record.duration_s]
        kinds = [[one for one in ran if one.censored is cut_short] for cut_short in (False, True)]
    for at, kind in enumerate(kinds):
        inside = [score for one in kind if (score := scores[one.job_id]) >= threshold]
        best = sorted(inside, reverse=True)[:k]
        ids = {record.job_id for record in kind}
        similar = [match.similarity for match in matches if match.record.job_id in ids]
        # what was cut short is taken from the texts that were looked at for completed runs
        assert similar == pytest.approx(best[: len(similar)] if at else best, abs=1e-5)
    ordered = [match.similarity for match in matches]
    assert ordered == sorted(ordered, reverse=True)
    assert len({match.record.job_id for match in matches}) == len(matches)
    held = {record.job_id: record for record in records}
    for match in matches:
        assert match.record == held[match.record.job_id]
        assert match.similarity == pytest.approx(scores[match.record.job_id], abs=1e-5)
        same = match.record.metadata.fingerprint() == query.fingerprint()
        assert match.exact == same


models = st.integers(0, 12).map(lambda number: f"net{number}")
states = st.sampled_from(["PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"])
thresholds = st.sampled_from([-1.0, -0.3, 0.2, 0.7, 0.95, 1.01])


SHARED = [HealthCheck.differing_executors]
"""The same tests run on other kinds of history, by a class of their own."""


class TestSearch:
    @settings(max_examples=20, suppress_health_check=SHARED)
    @given(
        st.lists(st.tuples(models, states), max_size=40),
        models,
        st.integers(1, 12),
        thresholds,
        st.booleans(),
        st.sampled_from([SMALL, TIED]),
    )
    def test_equals_comparing_every_job(
        self,
        jobs: list[tuple[str, JobState]],
        model: str,
        k: int,
        threshold: float,
        ran_only: bool,
        embedder: SmallEmbedder,
    ) -> None:
        records = [job(number, *each) for number, each in enumerate(jobs)]
        query = described(model)
        with folder() as path, JobHistory.open(path, embedder) as history:
            history.add_many(records)
            matches = history.search(query, k, threshold, ran_only=ran_only)
        compare(records, matches, embedder, query, k, threshold, ran_only)

    def test_the_latest_ended_comes_first_among_jobs_of_one_text(self, tmp_path: Path) -> None:
        with JobHistory.open(tmp_path, SMALL) as history:
            history.add_many(job(number, "resnet") for number in (4, 9, 2, 7))
            found = history.search(described("resnet"), 3, 0.9)
        assert [match.record.job_id for match in found] == ["000009", "000007", "000004"]

    def test_many_jobs_of_one_text_do_not_hide_the_next(self, tmp_path: Path) -> None:
        records = [job(number, "resnet") for number in range(300)] + [job(300, "vgg")]
        with JobHistory.open(tmp_path, SMALL) as history:
            history.add_many(records)
            found = history.search(described("vgg"), 301, -1.0)
        assert found[0].record.job_id == "000300"
        assert len(found) == 301

    def test_jobs_that_have_not_ended_do_not_use_up_k(self, tmp_path: Path) -> None:
        records = [job(number, state="RUNNING") for number in range(60)]
        records += [job(number) for number in range(60, 63)]
        with JobHistory.open(tmp_path, SMALL) as history:
            history.add_many(records)
            found = history.search(described("net0"), 3, -1.0)
            assert history.search(described("net0"), 1, 0.9, ran_only=False)
        assert {match.record.job_id for match in found} == {"000060", "000061", "000062"}

    def test_exact_means_the_same_fingerprint(self, tmp_path: Path) -> None:
        with JobHistory.open(tmp_path, SMALL) as history:
            history.add(job(1, "resnet"))
            [same] = history.search(described("ResNet"), 1, 0.9)
            [longer] = history.search(described("resnet", iters=300), 1, 0.9)
        assert (same.exact, longer.exact) == (True, False)
        assert longer.similarity == pytest.approx(1.0)

    def test_nothing_to_compare_by_finds_nothing_and_is_found_by_nothing(
        self, tmp_path: Path
    ) -> None:
        blank = job(1).model_copy(update={"metadata": WorkloadMetadata()})
        with JobHistory.open(tmp_path, SMALL) as history:
            history.add(blank)
            assert history.search(WorkloadMetadata(), 3, -1.0) == []
            assert history.search(described("resnet"), 3, -1.0) == []
            assert history.get("000001") == blank

    def test_no_neighbours_asked(self, tmp_path: Path) -> None:
        with JobHistory.open(tmp_path, SMALL) as history:
            history.add(job(1))
            assert history.search(described("net1"), 0, -1.0) == []

    def test_an_inverted_file_finds_the_same_text_and_grows(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (index, index):
            monkeypatch.setattr(module, "TAIL", 100)
        monkeypatch.setattr(index, "EXACT_UP_TO", 300)
        with JobHistory.open(tmp_path, SMALL) as history:
            # seven snapshots: exact ones, a trained one, grown ones, and one trained anew
            for start in range(0, 2100, 300):
                history.add_many(job(number) for number in range(start, start + 300))
            history.add_many(job(number) for number in range(2100, 2150))
        with JobHistory.open(tmp_path, SMALL) as history:
            assert len(list(tmp_path.glob("index-*.faiss"))) == 1
            for number in (*range(0, 2100, 97), 2149):
                [best] = history.search(described(f"net{number}"), 1, 0.9)
                assert best.record.job_id == f"{number:06}"
                assert best.similarity == pytest.approx(1.0, abs=1e-6)


operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.tuples(st.integers(0, 25), models, states))),
        st.tuples(st.just("finish"), st.integers(0, 25)),
        st.tuples(st.sampled_from(["reopen", "rebuild", "damage"]), st.just(0)),
    ),
    max_size=12,
)


class TestContents:
    @settings(max_examples=20, suppress_health_check=SHARED)
    @given(operations)
    def test_whatever_is_done_it_holds_what_was_put_in(
        self, steps: list[tuple[str, object]]
    ) -> None:
        expected: dict[str, JobRecord] = {}
        with folder() as path, pytest.MonkeyPatch.context() as patch:
            for module in (index, index):
                patch.setattr(module, "TAIL", 3)
            history = JobHistory.open(path, SMALL)
            for name, argument in steps:
                if name == "add":
                    assert isinstance(argument, list)
                    records = [job(*each) for each in argument]
                    assert history.add_many(records) == len(records)
                    expected |= {record.job_id: record for record in records}
                elif name == "finish":
                    assert isinstance(argument, int)
                    finish(history, expected, f"{argument:06}")
                elif name == "rebuild":
                    assert history.rebuild() == len(expected)
                elif name == "reopen":
                    history.close()
                    history = JobHistory.open(path, SMALL)
                elif name == "damage":
                    for file in path.glob("index-*.faiss"):
                        file.unlink()
                assert len(history) == len(expected)
            with history:
                assert list(history.export()) == [expected[name] for name in sorted(expected)]
                every = history.search(described("net1"), 100, -1.0, ran_only=False)
                compare([*expected.values()], every, SMALL, described("net1"), 100, -1.0, False)

    def test_a_job_with_the_same_id_is_replaced(self, tmp_path: Path) -> None:
        with JobHistory.open(tmp_path, SMALL) as history:
            history.add_many([job(1, "resnet"), job(1, "vgg")])
            assert len(history) == 1
            [found] = history.search(described("vgg"), 3, -1.0)
        assert found.record == job(1, "vgg")

    def test_an_id_may_be_any_text(self, tmp_path: Path) -> None:
        names = ["", " ", "a'b", "%", "123_[1-4]", "été", "\n"]
        records = [job(1).model_copy(update={"job_id": name}) for name in names]
        with JobHistory.open(tmp_path, SMALL) as history:
            history.add_many(records)
            assert history.rebuild() == len(names)
            assert {record.job_id for record in history.export()} == set(names)
            assert all(history.get(record.job_id) == record for record in records)

    def test_a_batch_that_cannot_be_embedded_is_not_stored(self, tmp_path: Path) -> None:
        class Broken(SmallEmbedder):
            def embed(self, texts: object) -> np.ndarray:
                return np.full((1, self.dim), np.nan, dtype=np.float32)

        with JobHistory.open(tmp_path, Broken()) as history:
            with pytest.raises(EmbedderError, match="not finite"):
                history.add(job(1))
            assert len(history) == 0

    def test_one_text_is_embedded_once(self, tmp_path: Path) -> None:
        embedder = SmallEmbedder()
        with JobHistory.open(tmp_path, embedder) as history:
            for number in range(5):
                history.add(job(number, "resnet"))
        assert embedder.calls == 1

    def test_progress_counts_up_to_all(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("schedmate.retrieval.history.BATCH", 4)
        monkeypatch.setattr("schedmate.retrieval.table.PAGE", 4)
        seen: list[int] = []
        rebuilt: list[tuple[int, int]] = []
        with JobHistory.open(tmp_path, SMALL) as history:
            history.add_many((job(number) for number in range(10)), seen.append)
            history.rebuild(lambda done, total: rebuilt.append((done, total)))
        assert seen == [4, 8, 10]
        assert rebuilt == [(4, 10), (8, 10), (10, 10)]


def finish(history: JobHistory, expected: dict[str, JobRecord], job_id: str) -> None:
    """Finish one job, stored or not, in the history and in what is expected of it."""
    if job_id not in expected:
        with pytest.raises(HistoryError, match="no job"):
            history.finish(job_id, duration_s=5.0)
        return
    changes = {"state": "TIMEOUT", "duration_s": 5.0, "end_time": 9e3, "gpu_util": 50.0}
    expected[job_id] = expected[job_id].model_copy(update=changes)
    finished = history.finish(job_id, duration_s=5.0, end_time=9e3, state="TIMEOUT", gpu_util=50.0)
    assert finished == expected[job_id]


class TestFinish:
    def test_duration_follows_from_start_and_end(self, tmp_path: Path) -> None:
        with JobHistory.open(tmp_path, SMALL) as history:
            history.add(job(1, state="RUNNING"))
            assert history.finish("000001", end_time=1102.0).duration_s == 100.0
            assert history.search(described("net1"), 1, 0.9)[0].record.state == "COMPLETED"

    @pytest.mark.parametrize(
        ("changes", "names"),
        [
            ({"duration_s": -1.0}, "duration_s"),
            ({"gpu_util": 101.0}, "gpu_util"),
            ({"colour": "red"}, "colour"),
            ({"state": "DONE"}, "state"),
        ],
    )
    def test_values_that_no_record_can_hold(
        self, tmp_path: Path, changes: dict[str, object], names: str
    ) -> None:
        with JobHistory.open(tmp_path, SMALL) as history:
            history.add(job(1, state="RUNNING"))
            with pytest.raises(UsageError, match=f"job 000001: .*{names}"):
                history.finish("000001", **changes)  # type: ignore[arg-type]
            assert history.get("000001") == job(1, state="RUNNING")


class TestLooking:
    def test_list_filters_orders_and_pages(self, tmp_path: Path) -> None:
        records = [job(1, "resnet"), job(2, "vgg", "FAILED"), job(3, "ResNet"), job(4, "bert")]
        with JobHistory.open(tmp_path, SMALL) as history:
            history.add_many(records)

            def ids(**kwargs: object) -> list[str]:
                return [record.job_id[-1] for record in history.list(**kwargs)]  # type: ignore[arg-type]

            assert ids() == ["4", "3", "2", "1"]
            assert ids(limit=2, offset=1) == ["3", "2"]
            assert ids(limit=None) == ["4", "3", "2", "1"]
            assert ids(state="FAILED") == ["2"]
            assert ids(user="user1") == ["4", "1"]
            assert ids(text="RESNET") == ["3", "1"]
            assert ids(text="resnet", user="user0") == ["3"]
            assert ids(text="100%") == []

    def test_by_fingerprint_has_the_latest_first(self, tmp_path: Path) -> None:
        with JobHistory.open(tmp_path, SMALL) as history:
            history.add_many([job(3, "a"), job(5, "A"), job(4, "a"), job(6, "b")])
            found = history.by_fingerprint(described("a").fingerprint())
            assert [record.job_id[-1] for record in found] == ["5", "4", "3"]
            assert len(history.by_fingerprint(described("a").fingerprint(), limit=2)) == 2

    def test_starts_are_those_of_gpu_jobs_that_ran(self, tmp_path: Path) -> None:
        ran = {"submit_time": 100.0, "start_time": 130.0, "launch": LaunchConfig(gpus=1)}
        changes: list[dict[str, object]] = [
            *({}, {"start_time": None, "state": "CANCELLED"}, {"launch": LaunchConfig()}),
            *({"state": "RUNNING"}, {"submit_time": 10.0}, {"submit_time": 200.0}),
        ]
        with JobHistory.open(tmp_path, SMALL) as history:
            for number, change in enumerate(changes):
                history.add(job(number, "a").model_copy(update=ran | change))
            assert history.started(50.0) == [(100.0, 130.0, "user0")]

    def test_stats(self, tmp_path: Path) -> None:
        with JobHistory.open(tmp_path, SMALL) as history:
            assert history.stats()["jobs"] == 0
            assert history.stats()["first_submit_time"] is None
            history.add_many([job(1, "a"), job(2, "A"), job(3, "b", "FAILED")])
            stats = history.stats()
        assert stats["states"] == {"COMPLETED": 2, "FAILED": 1}
        assert (stats["jobs"], stats["workloads"], stats["fingerprints"]) == (3, 2, 2)
        assert (stats["first_submit_time"], stats["last_submit_time"]) == (1001.0, 1003.0)
        assert stats["manifest"]["embedder"] == "small"


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A closed history of 60 jobs with a snapshot of its index."""
    path = tmp_path / "history"
    with pytest.MonkeyPatch.context() as patch:
        for module in (index, index):
            patch.setattr(module, "TAIL", 50)
        with JobHistory.open(path, SMALL) as history:
            history.add_many(job(number) for number in range(60))
    assert len(list(path.glob("index-1-*.faiss"))) == 1
    return path


def finds_every_job(path: Path, numbers: range, embedder: SmallEmbedder = SMALL) -> None:
    """Whether each job is found by its own metadata."""
    with JobHistory.open(path, embedder) as history:
        assert len(history) == len(numbers)
        for number in numbers:
            [best] = history.search(described(f"net{number}"), 1, 0.9, ran_only=False)
            assert best.record.job_id == f"{number:06}"


def run(
    number: int, model: str, duration_s: float | None, state: JobState = "COMPLETED"
) -> JobRecord:
    """A run of a model; later numbers ended later."""
    change = {"duration_s": duration_s, "state": state}
    return job(number, model).model_copy(update=change)


def never_ran(number: int, model: str) -> JobRecord:
    """A job that was cancelled in the queue, as accounting has it: with or without a run time."""
    return run(number, model, None if number % 2 else 0.0, "CANCELLED")


def advice(path: Path, records: list[JobRecord], now: float | None = None) -> Estimate:
    """The advisor's estimate for a net of 90 epochs from a new history with these records."""
    with JobHistory.open(path, SMALL) as history:
        history.add_many(records)
        estimate = SchedulingAdvisor(history).estimate(described("net"), LaunchConfig(), now)
    return without_ages(estimate)


def without_ages(estimate: Estimate) -> Estimate:
    """An estimate less what depends on the moment at which it was made."""
    aged = [one.model_copy(update={"age_s": None}) for one in estimate.neighbours]
    return estimate.model_copy(update={"neighbours": aged})


def completed_neighbours(estimate: Estimate) -> set[str]:
    """The runs behind an estimate that completed."""
    return {one.job_id for one in estimate.neighbours if not one.censored}


runs = st.tuples(
    st.sampled_from(["net", "net longer", "other"]),
    st.floats(1.0, 1e5).map(lambda seconds: round(seconds, 1)),
    st.sampled_from(["COMPLETED", "COMPLETED", "FAILED", "TIMEOUT"]),
)


def as_runs(drawn: list[tuple[str, float, JobState]]) -> list[JobRecord]:
    """Runs of a net, of the same for more epochs, and of another one."""
    records = [run(number, *each) for number, each in enumerate(drawn)]
    longer = {"metadata": described("net", 300)}
    return [
        one.model_copy(update=longer) if drawn[number][0] == "net longer" else one
        for number, one in enumerate(records)
    ]


class TestEvidence:
    """What never ran is no evidence, and what was cut short hides nothing that completed."""

    @settings(max_examples=15, deadline=None, suppress_health_check=SHARED)
    @given(
        st.lists(runs, max_size=60),
        st.lists(st.tuples(st.integers(0, 4000), st.sampled_from(["net", "other"])), max_size=150),
    )
    def test_jobs_that_never_ran_change_no_estimate(
        self, drawn: list[tuple[str, float, JobState]], cancelled: list[tuple[int, str]]
    ) -> None:
        records = as_runs(drawn)
        more = [
            never_ran(1000 + number, model).model_copy(
                update={"submit_time": float(at), "end_time": float(at)}
            )
            for number, (at, model) in enumerate(cancelled)
        ]
        with folder() as path:
            assert advice(path / "a", [*records, *more]) == advice(path / "b", records)

    @settings(max_examples=15, deadline=None, suppress_health_check=SHARED)
    @given(
        st.lists(runs, max_size=60),
        st.lists(st.tuples(st.sampled_from(["net", "other"]), st.integers(1, 10**6)), max_size=150),
    )
    def test_runs_cut_short_remove_no_completed_neighbour(
        self, drawn: list[tuple[str, float, JobState]], cut_short: list[tuple[str, int]]
    ) -> None:
        records = as_runs(drawn)
        more = [
            run(1000 + number, model, float(seconds), "CANCELLED")
            for number, (model, seconds) in enumerate(cut_short)
        ]
        with folder() as path:
            before, after = advice(path / "a", records), advice(path / "b", [*records, *more])
        assert completed_neighbours(before) <= completed_neighbours(after)
        assert after.abstained <= before.abstained

    def test_a_mass_cancellation_silences_nothing(self, tmp_path: Path) -> None:
        records = [run(number, "net", 100.0 + number) for number in range(10)]
        alone = advice(tmp_path / "alone", records)
        assert not alone.abstained
        cancelled = [never_ran(100 + number, "net") for number in range(500)]
        assert advice(tmp_path / "cancelled", [*records, *cancelled]) == alone

    def test_failures_in_masses_silence_nothing(self, tmp_path: Path) -> None:
        records = [run(number, "net", 100.0 + number) for number in range(10)]
        failed = [run(100 + number, "net", 5.0, "FAILED") for number in range(500)]
        estimate = advice(tmp_path / "history", [*records, *failed])
        assert completed_neighbours(estimate) == {one.job_id for one in records}
        assert sum(one.censored for one in estimate.neighbours) == CUT_SHORT

    def test_failures_of_like_workloads_do_not_hide_the_completed_ones(
        self, tmp_path: Path
    ) -> None:
        longer = [
            run(number, "net", 5.0, "FAILED").model_copy(
                update={"metadata": described("net", 91 + number)}
            )
            for number in range(300)
        ]
        past = run(0, "net", 900.0).model_copy(update={"metadata": described("net", 100)})
        estimate = advice(tmp_path / "history", [past, *longer[1:]])
        assert completed_neighbours(estimate) == {past.job_id}

    def test_runs_that_ended_later_hide_none_that_ended_by_then(self, tmp_path: Path) -> None:
        records = [run(number, "net", 100.0 + number) for number in range(300)]
        estimate = advice(tmp_path / "history", records, now=2009.0)
        assert completed_neighbours(estimate) == {f"{number:06}" for number in range(10)}
        assert without_ages(estimate) == advice(tmp_path / "then", records[:10], now=2009.0)

    def test_an_index_serves_every_choice_of_runs(self, tmp_path: Path) -> None:
        with JobHistory.open(tmp_path / "history", SMALL) as history:
            history.add_many(run(number, f"net{number % 7}", 9.0) for number in range(50))
            asked: list[tuple[str, Sequence[Any]]] = []
            query = history._db.query

            def watched(sql: str, values: Sequence[Any] = ()) -> Any:
                asked.append((sql, values))
                return query(sql, values)

            history._db.query = watched  # type: ignore[method-assign]
            SchedulingAdvisor(history).estimate(described("net1"), LaunchConfig(), 1e6)
            SchedulingAdvisor(history).estimate(described("net1", 91), LaunchConfig(), None)
            plans = [
                " ".join(row[-1] for row in query(f"EXPLAIN QUERY PLAN {sql}", values))
                for sql, values in asked
                if "FROM jobs" in sql and "max(rowid)" not in sql
            ]
        for name in ("runs_by_text", "runs_by_fingerprint", "completed_by_submit"):
            assert any(name in plan for plan in plans), name
        assert not [plan for plan in plans if "jobs_by_text" in plan or "jobs_by_state" in plan]
        # only the spread is read in order of an index, and its few hundred rows are sorted
        others = [plan for plan in plans if "completed_by_submit" not in plan]
        assert not [plan for plan in others if "SCAN jobs" in plan or "TEMP B-TREE" in plan]

    def test_a_history_of_an_earlier_version_gets_the_indexes(self, tmp_path: Path) -> None:
        path = tmp_path / "history"
        records = [run(number, "net", 100.0 + number) for number in range(10)]
        with JobHistory.open(path, SMALL) as history:
            history.add_many(records)
        indexes = ("runs_by_text", "runs_by_fingerprint", "completed_by_submit")
        database = sqlite3.connect(path / DATABASE)
        for name in indexes:
            database.execute(f"DROP INDEX {name}")
        database.execute("PRAGMA user_version = 1")
        database.commit()
        with JobHistory.open(path, SMALL, read_only=True) as history:
            assert len(history.by_fingerprint(described("net").fingerprint())) == 10
        JobHistory.open(path, SMALL).close()
        made = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
        database.close()
        assert made.issuperset(indexes)


def test_old_jobs_are_deleted_and_the_others_found(tmp_path: Path) -> None:
    with JobHistory.open(tmp_path, SMALL) as history:
        names = [f"net{number % 3}" for number in range(9)]
        history.add_many(run(number, name, 100.0 + number) for number, name in enumerate(names))
        # one that was read before knows no old job, and no old number of a vector
        with JobHistory.open(tmp_path, SMALL, read_only=True) as reader:
            assert len(reader.search(described("net1"), 5, 0.9)) == 3
            ends = [job.end_time for job in history.list(None)]
            assert history.prune(sorted(end for end in ends if end is not None)[5]) == 5
            assert (len(history), len(reader)) == (4, 4)
            history.add(run(20, "net5", 400.0))
            assert (len(history), len(reader)) == (5, 5)
            assert len(reader.search(described("net1"), 5, 0.9)) == 1
            assert reader.search(described("net5"), 1, 0.9)[0].record.duration_s is not None
        assert history.prune(0.0) == 0


class TestInMemory:
    """`MemoryHistory` gives what the history on disk gives."""

    @settings(max_examples=25)
    @given(
        st.lists(
            st.one_of(runs, st.tuples(st.just("net"), st.none(), st.just("CANCELLED"))), max_size=90
        ),
        st.one_of(st.none(), st.integers(0, 80)),
    )
    def test_the_same_estimate(
        self, drawn: list[tuple[str, float, JobState]], ended: int | None
    ) -> None:
        records = as_runs(drawn)
        now = None if ended is None else 2000.0 + ended
        memory = MemoryHistory(SMALL)
        for record in records:
            memory.add(record)
        answer = SchedulingAdvisor(memory).estimate(described("net"), LaunchConfig(), now)
        with folder() as path:
            assert advice(path, records, now) == without_ages(answer)


class TestDamage:
    @pytest.mark.parametrize("how", ["cut", "emptied", "one bit", "text", "other length"])
    def test_a_damaged_index_is_not_used(
        self, stored: Path, how: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        [snapshot] = stored.glob("index-*.faiss")
        data = snapshot.read_bytes()
        middle = len(data) // 2
        changed = {
            "cut": data[:middle],
            "emptied": b"",
            "one bit": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
            "text": b"not an index\n" * 100,
            "other length": data + b"\0",
        }
        snapshot.write_bytes(changed[how])
        finds_every_job(stored, range(60))
        [warning] = caplog.messages
        assert str(snapshot) in warning
        assert "usable" in warning

    def test_a_lost_index_is_not_missed(self, stored: Path) -> None:
        for file in stored.glob("index*"):
            file.unlink()
        finds_every_job(stored, range(60))

    def test_a_large_lost_index_is_reported_once(
        self, stored: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(index, "EXACT_UP_TO", 50)
        with JobHistory.open(stored, SMALL, read_only=True) as history:
            assert history.search(described("net5"), 1, 0.9)
        assert caplog.messages == []
        for file in stored.glob("index-*"):
            file.unlink()
        with JobHistory.open(stored, SMALL, read_only=True) as history:
            for number in (5, 50):
                [best] = history.search(described(f"net{number}"), 1, 0.9)
                assert best.record.job_id == f"{number:06}"
        [message] = caplog.messages
        assert str(stored) in message
        assert "`schedmate history rebuild --index`" in message

    def test_the_index_is_made_anew_without_an_embedder(self, stored: Path) -> None:
        for file in stored.glob("index-*"):
            file.unlink()
        with JobHistory.open(stored) as history:
            assert history.snapshot() is None
            history.rebuild_index()
            assert history.snapshot() in stored.glob("index-1-60-*.faiss")
        finds_every_job(stored, range(60))

    def test_an_older_database_beside_a_newer_index(self, tmp_path: Path) -> None:
        """Restored from a backup and written to since: ids mean other vectors than they did."""
        restored = tmp_path / "restored"
        with JobHistory.open(restored, SMALL) as history:
            history.add_many(job(number) for number in range(30))
        backup = (restored / DATABASE).read_bytes()
        with pytest.MonkeyPatch.context() as patch:
            for module in (index, index):
                patch.setattr(module, "TAIL", 25)
            with JobHistory.open(restored, SMALL) as history:
                history.add_many(job(number) for number in range(30, 60))
                newer = history.snapshot()
        assert newer is not None
        assert newer.name.startswith("index-1-60-")
        (restored / DATABASE).write_bytes(backup)
        with JobHistory.open(restored, SMALL) as history:
            history.add_many(job(number) for number in range(100, 130))
            assert history.snapshot() is None
            for number in (*range(30), *range(100, 130)):
                [best] = history.search(described(f"net{number}"), 1, 0.9)
                assert best.record.job_id == f"{number:06}"
            for number in range(30, 60):
                assert history.search(described(f"net{number}"), 1, 0.999) == []
            history.rebuild_index()
        assert not newer.exists()

    def test_the_index_of_another_history(self, tmp_path: Path, stored: Path) -> None:
        other = tmp_path / "other"
        shutil.copytree(stored, other)
        (other / DATABASE).unlink()
        with JobHistory.open(other, SMALL) as history:
            history.add_many(job(number) for number in range(100, 160))
        finds = range(100, 160)
        with JobHistory.open(other, SMALL) as history:
            for number in finds:
                [best] = history.search(described(f"net{number}"), 1, 0.9)
                assert best.record.job_id == f"{number:06}"

    @pytest.mark.parametrize("how", ["cut", "emptied header", "text"])
    def test_a_damaged_database_is_one_sentence(self, stored: Path, how: str) -> None:
        database = stored / DATABASE
        data = database.read_bytes()
        changed = {
            "cut": data[:5000],
            "emptied header": bytes(100) + data[100:],
            "text": b"hi\n" * 99,
        }
        database.write_bytes(changed[how])
        with pytest.raises(HistoryError) as caught:
            with JobHistory.open(stored, SMALL) as history:
                list(history.export())
        message = str(caught.value)
        assert str(database) in message
        assert "\n" not in message

    def test_another_programs_database_is_left_alone(self, tmp_path: Path) -> None:
        with sqlite3.connect(tmp_path / DATABASE) as other:
            other.execute("CREATE TABLE jobs (a)")
        other.close()
        before = (tmp_path / DATABASE).read_bytes()
        with pytest.raises(HistoryError, match="not a history made by schedmate"):
            JobHistory.open(tmp_path, SMALL)
        assert (tmp_path / DATABASE).read_bytes() == before

    def test_a_newer_format_is_refused(self, stored: Path) -> None:
        with sqlite3.connect(stored / DATABASE) as database:
            database.execute("PRAGMA user_version = 99")
        database.close()
        for read_only in (False, True):
            with pytest.raises(HistoryError, match="newer schedmate.*format 99.*upgrade schedmate"):
                JobHistory.open(stored, SMALL, read_only=read_only)

    def test_a_document_that_is_no_job(self, stored: Path) -> None:
        with sqlite3.connect(stored / DATABASE) as database:
            database.execute("UPDATE jobs SET document = '{}' WHERE job_id = '000007'")
        database.close()
        with JobHistory.open(stored, SMALL) as history:
            with pytest.raises(HistoryError, match="a stored job cannot be read"):
                list(history.export())

    def test_a_vector_of_the_wrong_length(self, stored: Path) -> None:
        with sqlite3.connect(stored / DATABASE) as database:
            database.execute("UPDATE texts SET vector = x'00'")
        database.close()
        for file in stored.glob("index*"):
            file.unlink()
        with JobHistory.open(stored, SMALL) as history:
            with pytest.raises(HistoryError, match="run `schedmate history rebuild`"):
                history.search(described("net1"), 1, 0.9)
            history.rebuild()
        finds_every_job(stored, range(60))


class TestAnotherEmbedder:
    @pytest.mark.parametrize(
        "other", [SmallEmbedder("other"), SmallEmbedder(dim=16), SmallEmbedder("both", dim=4)]
    )
    def test_is_refused_until_rebuilt(self, stored: Path, other: SmallEmbedder) -> None:
        with JobHistory.open(stored, other) as history:
            assert "run `schedmate history rebuild`" in str(history.mismatch())
            with pytest.raises(HistoryError, match="run `schedmate history rebuild`"):
                history.search(described("net1"), 1, 0.9)
            with pytest.raises(HistoryError, match="run `schedmate history rebuild`"):
                history.add(job(99))
            assert len(history) == 60
            assert len(history.list(limit=None)) == 60
            assert len(list(history.export())) == 60
            assert history.rebuild() == 60
            assert history.mismatch() is None
        finds_every_job(stored, range(60), other)
        with JobHistory.open(stored, SMALL) as history:
            with pytest.raises(HistoryError, match="run `schedmate history rebuild`"):
                history.search(described("net1"), 1, 0.9)

    def test_another_rendering_is_refused(
        self, stored: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(index, "RENDERING_VERSION", 99)
        with JobHistory.open(stored, SMALL) as history:
            with pytest.raises(HistoryError, match=f"rendering {RENDERING_VERSION}, not 99"):
                history.search(described("net1"), 1, 0.9)
            history.rebuild()
        finds_every_job(stored, range(60))

    def test_a_rebuild_that_fails_leaves_the_old_vectors_and_goes_on_later(
        self, stored: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Failing(SmallEmbedder):
            def embed(self, texts: object) -> np.ndarray:
                if self.calls == 3:
                    raise EmbedderError("the server went away")
                return super().embed(texts)  # type: ignore[arg-type]

        monkeypatch.setattr("schedmate.retrieval.table.PAGE", 10)
        with JobHistory.open(stored, Failing("new")) as history:
            with pytest.raises(EmbedderError, match="went away"):
                history.rebuild()
        finds_every_job(stored, range(60))
        with JobHistory.open(stored, SMALL) as history:
            history.add(job(60))
        new = SmallEmbedder("new")
        with JobHistory.open(stored, new) as history:
            assert history.rebuild() == 61
        assert new.calls == 4  # three of the six pages before, one job since
        finds_every_job(stored, range(61), new)

    def test_an_open_reader_follows_a_rebuild(self, stored: Path) -> None:
        with JobHistory.open(stored, SMALL, read_only=True) as reader:
            assert reader.search(described("net1"), 1, 0.9)
            with JobHistory.open(stored, SMALL) as writer:
                writer.rebuild()
            [best] = reader.search(described("net1"), 1, 0.9)
            assert best.record.job_id == "000001"


class TestOpening:
    def test_nothing_is_made_where_nothing_may_be(self, tmp_path: Path) -> None:
        for options in ({"create": False}, {"read_only": True}):
            with pytest.raises(HistoryError, match="there is no history; make one with"):
                JobHistory.open(tmp_path / "none", SMALL, **options)
        assert not (tmp_path / "none").exists()

    def test_a_file_in_the_way(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(HistoryError, match="file"):
            JobHistory.open(tmp_path / "file", SMALL)

    def test_read_only_reads_and_refuses_to_write(self, stored: Path) -> None:
        before = {path.name: path.read_bytes() for path in stored.iterdir()}
        with JobHistory.open(stored, SMALL, read_only=True) as history:
            assert history.search(described("net5"), 1, 0.9)[0].record.job_id == "000005"
            writes = (
                lambda: history.add(job(99)),
                lambda: history.finish("000005", duration_s=1.0),
                history.rebuild,
            )
            for write in writes:
                with pytest.raises(HistoryError, match="opened for reading only"):
                    write()
        after = {name: (stored / name).read_bytes() for name in before}
        assert after == before

    def test_without_an_embedder_all_but_vectors(self, stored: Path) -> None:
        with JobHistory.open(stored) as history:
            assert len(list(history.export())) == len(history) == 60
            assert history.get("000007") == history.list(text="net7")[0] == job(7)
            assert history.stats()["manifest"]["embedder"] == "small"
            finished = history.finish("000007", duration_s=5.0, state="FAILED")
            needs = (
                lambda: history.search(described("net5"), 1, 0.9),
                lambda: history.add(job(99)),
                history.rebuild,
                history.mismatch,
            )
            for need in needs:
                with pytest.raises(HistoryError, match="opened without an embedder"):
                    need()
        with JobHistory.open(stored, SMALL) as history:
            [found] = history.search(described("net7"), 1, 0.9)
            assert found.record == finished
            assert len(history) == 60

    def test_without_an_embedder_none_is_made(self, tmp_path: Path) -> None:
        with pytest.raises(HistoryError, match="there is no history; make one with"):
            JobHistory.open(tmp_path / "none")
        assert not (tmp_path / "none").exists()

    def test_files_are_private(self, stored: Path) -> None:
        assert stat.S_IMODE(stored.stat().st_mode) == 0o700
        with JobHistory.open(stored, SMALL) as history:
            history.add(job(99))
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in stored.iterdir()}
            [snapshot] = stored.glob("index-1-60-*.faiss")
        assert {DATABASE, f"{DATABASE}-wal", snapshot.name} <= set(modes)
        assert set(modes.values()) == {0o600}

    def test_closing_twice_and_using_it_after(self, stored: Path) -> None:
        history = JobHistory.open(stored, SMALL)
        history.close()
        history.close()
        for use in (lambda: len(history), lambda: history.add(job(1)), lambda: history.get("1")):
            with pytest.raises(HistoryError, match="has been closed"):
                use()
