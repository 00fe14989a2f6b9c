"""Estimates from past jobs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.jobs import JobRecord, LaunchConfig, WorkloadMetadata
from schedmate.retrieval.advisor import RUNS, SchedulingAdvisor
from schedmate.retrieval.embedders import load_embedder
from schedmate.retrieval.history import JobHistory
from schedmate.retrieval.run_time import STRONG_SCALING, WEAK_SCALING, Spread, adjust, learn_spread
from schedmate.retrieval.similarity import with_doubt

NOW = 1_000_000.0
ONE_GPU = LaunchConfig(gpus=1)


@dataclass
class Match:
    record: JobRecord
    similarity: float
    exact: bool


@dataclass
class Shelf:
    """A history whose similarities are set by hand, by model name."""

    records: list[JobRecord]
    similarity: dict[str, float] = field(default_factory=dict)
    learned: Spread = field(default_factory=lambda: learn_spread([]))

    def spread(self) -> Spread:
        return self.learned

    def by_fingerprint(self, fingerprint: str, *, before: float | None = None) -> list[JobRecord]:
        return [one for one in self._runs(before) if one.metadata.fingerprint() == fingerprint]

    def _runs(self, before: float | None) -> list[JobRecord]:
        return [
            one
            for one in self.records
            if one.ended
            and one.duration_s
            and (before is None or one.end_time is None or one.end_time <= before)
        ]

    def search(
        self, metadata: WorkloadMetadata, k: int, threshold: float, *, before: float | None = None
    ) -> list[Match]:
        matches = [
            Match(one, self.similarity.get(str(one.metadata.model.model_name), 1.0), exact)
            for one in self._runs(before)
            for exact in [one.metadata.fingerprint() == metadata.fingerprint()]
        ]
        # as a history does: the latest ended first among equals, then by id
        matches.sort(
            key=lambda one: (-one.similarity, -(one.record.end_time or 0), one.record.job_id)
        )
        return [match for match in matches if match.similarity >= threshold][:k]


def metadata(
    model: str | None = "resnet50", iters: float | None = 90, **more: Any
) -> WorkloadMetadata:
    return WorkloadMetadata.model_validate(
        {
            "model_config": {"model_name": model, "task_type": "CV"},
            "training_config": {"iters": iters, "iter_type": "epoch", **more},
            "dataset_config": {"train": "imagenet"},
        }
    )


def job(
    job_id: str,
    duration_s: float | None,
    ended_ago: float = 100.0,
    state: str = "COMPLETED",
    of: WorkloadMetadata | None = None,
    launch: LaunchConfig = ONE_GPU,
    **more: Any,
) -> JobRecord:
    return JobRecord(
        job_id=job_id,
        duration_s=duration_s,
        end_time=NOW - ended_ago,
        state=state,  # type: ignore[arg-type]
        metadata=of or metadata(),
        launch=launch,
        **more,
    )


def advise(
    records: list[JobRecord],
    of: WorkloadMetadata | None = None,
    launch: LaunchConfig = ONE_GPU,
    similarity: dict[str, float] | None = None,
    **options: Any,
) -> Any:
    shelf = Shelf(records, similarity or {})
    advisor = SchedulingAdvisor(shelf, **{"threshold": 0.9, **options})  # type: ignore[arg-type]
    return advisor.estimate(of or metadata(), launch, NOW)


class TestWeighted:
    def test_resubmission(self) -> None:
        estimate = advise([job("a", 100, gpu_util=80), job("b", 110, gpu_mem_mb=9000)])
        assert not estimate.abstained
        assert estimate.method == "weighted"
        assert estimate.duration_p10_s < 100 <= estimate.duration_s <= 110 < estimate.duration_p90_s
        assert (estimate.gpu_util, estimate.gpu_mem_mb, estimate.sm_util) == (80, 9000, None)
        assert {one.job_id for one in estimate.neighbours} == {"a", "b"}
        assert all(one.exact and one.similarity == 1 for one in estimate.neighbours)
        assert estimate.neighbours[0].summary == "resnet50, imagenet, 90 epochs, 1 GPU"
        assert estimate.neighbours[0].age_s == 100

    def test_resubmissions_come_before_similar_jobs(self) -> None:
        records = [
            job("same", 100),
            *(job(f"x{i}", 9000, of=metadata("resnet101")) for i in range(9)),
        ]
        estimate = advise(records, similarity={"resnet101": 0.99})
        assert [one.job_id for one in estimate.neighbours] == ["same"]
        assert estimate.duration_s == pytest.approx(100)

    def test_resubmissions_that_were_cut_short_are_joined_by_similar_jobs(self) -> None:
        records = [job("same", 500, state="TIMEOUT"), job("like", 2000, of=metadata("resnet101"))]
        estimate = advise(records, similarity={"resnet101": 0.99})
        assert {one.job_id: one.censored for one in estimate.neighbours} == {
            "same": True,
            "like": False,
        }
        assert estimate.duration_s >= 500

    def test_recent_runs_count_more(self) -> None:
        old = [job(f"old{i}", 100, ended_ago=5000 + i) for i in range(12)]
        new = [job(f"new{i}", 900, ended_ago=10 + i) for i in range(8)]
        assert advise(old + new).duration_s == pytest.approx(900)

    def test_only_the_latest_runs_are_looked_at(self) -> None:
        records = [job(f"{i}", 100 + i, ended_ago=10.0 * i) for i in range(100)]
        estimate = advise(records)
        assert len(estimate.neighbours) == RUNS
        assert {one.job_id for one in estimate.neighbours} == {str(i) for i in range(RUNS)}

    def test_similarity_at_the_threshold_counts_little(self) -> None:
        records = [
            job("near", 100, of=metadata("near")),
            *(job(f"far{i}", 9000, of=metadata("far", iters=90)) for i in range(3)),
        ]
        estimate = advise(records, similarity={"near": 0.999, "far": 0.9})
        assert estimate.duration_s == pytest.approx(100)
        assert estimate.neighbours[0].job_id == "near"

    def test_what_is_unsure_counts_less(self) -> None:
        """Alike in a sure model but not in the data comes before alike in unsure data alone."""

        def work(model: str, data: str, sure: float = 1.0) -> WorkloadMetadata:
            document = metadata(model).model_dump(by_alias=True)
            document["dataset_config"] = {"train": data}
            proof = {"value": data, "source": "code", "confidence": sure}
            return WorkloadMetadata.model_validate(
                document | {"evidence": {"dataset_config.train": proof}}
            )

        same_model, same_data = work("a", "other"), work("b", "mnist")
        sure, unsure = work("a", "mnist"), work("a", "mnist", 0.5)
        assert with_doubt(0.5, sure, same_model) == with_doubt(0.5, sure, same_data) == 0.5
        assert with_doubt(0.5, unsure, same_data) < 0.5 < with_doubt(0.5, unsure, same_model)
        assert 0.5 < with_doubt(1.0, unsure, sure) < 1.0
        records = [job("model", 100.0, of=same_model), job("data", 100.0, of=same_data)]
        estimate = advise(records, of=unsure, similarity={"a": 0.95, "b": 0.95})
        weights = {one.job_id: one.weight for one in estimate.neighbours}
        assert weights["model"] > 1.3 * weights["data"]

    def test_k_workloads_not_k_runs(self) -> None:
        records = [job(f"{name}{i}", 100, of=metadata(name)) for name in "abcd" for i in range(5)]
        similarity = {"a": 0.99, "b": 0.98, "c": 0.97, "d": 0.96}
        estimate = advise(records, similarity=similarity, k=2)
        assert {one.job_id[0] for one in estimate.neighbours} == {"a", "b"}
        assert len(estimate.neighbours) == 10

    def test_the_same_workload_at_another_length_comes_before_others(self) -> None:
        records = [job("longer", 200, of=metadata(iters=180)), job("other", 9, of=metadata("b"))]
        estimate = advise(records)
        assert [one.job_id for one in estimate.neighbours] == ["longer"]
        assert estimate.duration_s == pytest.approx(100)

    def test_a_small_correction_is_trusted_more(self) -> None:
        records = [
            job("near", 100, ended_ago=10, of=metadata(iters=100)),
            job("far", 100, ended_ago=10, of=metadata(iters=1)),
        ]
        near, far = advise(records).neighbours
        assert (near.job_id, far.job_id) == ("near", "far")
        assert near.weight > 10 * far.weight

    def test_later_runs_are_not_looked_at(self) -> None:
        assert advise([job("later", 100, ended_ago=-1)]).abstained

    def test_without_now_every_run_counts(self) -> None:
        advisor = SchedulingAdvisor(Shelf([job("a", 100, ended_ago=-1e10)]), threshold=0.9)  # type: ignore[arg-type]
        estimate = advisor.estimate(metadata(), ONE_GPU)
        assert estimate.neighbours[0].age_s == 0


class TestInterval:
    """How wide p10 to p90 is, and what that comes from."""

    @staticmethod
    def ratio(estimate: Any) -> float:
        return float(estimate.duration_p90_s / estimate.duration_p10_s)

    def test_two_runs_that_agree(self) -> None:
        estimate = advise([job("a", 17_400), job("b", 18_000)])
        assert self.ratio(estimate) < 4
        basis = estimate.interval_basis
        assert (basis.recurrence, basis.runs, basis.cut_short) == ("same job", 2, 0)
        assert basis.runs_factor == pytest.approx(18_000 / 17_400)
        assert basis.learned_from == 0
        assert basis.text == (
            "covers 80 % of such jobs; its width reflects how much runs of one job vary on other "
            f"clusters (80 % within a factor of {basis.expected_factor:.1f}); 2 runs of the same "
            "job available, within a factor of 1.03"
        )

    def test_it_narrows_as_runs_agree_and_widens_as_they_do_not(self) -> None:
        alike = [job(f"{i}", 1000 + 10 * i, ended_ago=10.0 * i) for i in range(12)]
        ratios = [self.ratio(advise(alike[:count])) for count in (1, 2, 4, 12)]
        assert ratios == sorted(ratios, reverse=True)
        apart = advise([job(f"{i}", 1000 * 3.0 ** (i % 4), ended_ago=i) for i in range(12)])
        assert self.ratio(apart) > 9
        assert apart.interval_basis.from_runs > 0.5
        assert "12 runs of the same job vary (the longest took 27.0 times" in (
            apart.interval_basis.text
        )

    def test_a_history_whose_jobs_repeat_themselves_closely_gives_narrow_ones(self) -> None:
        ratios = []
        for factor in (1.02, 1.5, 6.0):
            learned = learn_spread(
                (f"{n}", 100 * factor**run) for n in range(40) for run in range(2)
            )
            shelf = Shelf([job("a", 1000)], learned=learned)
            advisor = SchedulingAdvisor(shelf, threshold=0.9)  # type: ignore[arg-type]
            estimate = advisor.estimate(metadata(), ONE_GPU, NOW)
            ratios.append(self.ratio(estimate))
            assert estimate.duration_s == pytest.approx(1000)
            assert estimate.interval_basis is not None
            assert "in this history, measured on 40 repeated jobs" in estimate.interval_basis.text
            assert estimate.interval_basis.text.endswith("; 1 run of the same job available")
        assert ratios == sorted(ratios)
        assert ratios[0] < 1.5 < 9 < ratios[-1]

    def test_similar_jobs_give_a_wider_one_than_the_same_job(self) -> None:
        same = advise([job("a", 1000)])
        longer = advise([job("a", 1000, of=metadata(iters=900))])
        like = advise([job("a", 1000, of=metadata("resnet101"))], similarity={"resnet101": 0.99})
        assert [one.interval_basis.recurrence for one in (same, longer, like)] == [
            "same job",
            "same job, other length",
            "similar jobs",
        ]
        assert self.ratio(same) < self.ratio(longer) < self.ratio(like)
        assert "rescaled in the same way" in longer.interval_basis.text
        assert "rescaled in the same way" not in like.interval_basis.text

    def test_other_gpus_give_a_wider_one(self) -> None:
        ratios = [
            self.ratio(advise([job("a", 1000, launch=launch)], launch=asked))
            for launch, asked in (
                (ONE_GPU, ONE_GPU),
                (LaunchConfig(gpus=1), LaunchConfig(gpus=16)),
                (LaunchConfig(gpu_type="K80"), LaunchConfig(gpu_type="H100")),
            )
        ]
        assert ratios == sorted(ratios)
        assert len(set(ratios)) == 3

    def test_a_run_cut_short_is_a_lower_bound(self) -> None:
        runs = [job("a", 1000), job("b", 1010)]
        plain = advise(runs)
        early = advise([*runs, job("c", 100, state="CANCELLED")])
        late = advise([*runs, job("c", 3000, state="CANCELLED")])
        assert early.duration_p90_s <= plain.duration_p90_s * 1.01
        assert late.duration_p90_s > 3000
        assert late.interval_basis.cut_short == 1
        assert late.interval_basis.text.endswith("; 1 more cut short")

    def test_without_an_estimate_there_is_none(self) -> None:
        assert advise([]).interval_basis is None


class TestAbstaining:
    def test_empty_history(self) -> None:
        estimate = advise([])
        assert estimate.abstained
        assert estimate.reason.startswith("no run that has ended says what it trained; ")

    @pytest.mark.parametrize(
        ("similarity", "told"),
        [
            (0.612, "0.61, below 0.90"),
            (0.812, "0.81, below 0.90; `--threshold 0.81` accepts it"),
            (0.8996, "0.8996, below 0.9000; `--threshold 0.8996` accepts it"),
        ],
    )
    def test_nothing_similar(self, similarity: float, told: str) -> None:
        estimate = advise([job("x", 100, of=metadata("vgg16"))], similarity={"vgg16": similarity})
        assert estimate.abstained
        assert estimate.duration_s is estimate.duration_p50_s is estimate.gpu_util is None
        assert estimate.reason.startswith("no similar job: the closest, x (vgg16, ")
        assert estimate.reason.endswith(f"ran 1 min 40 s), has similarity {told}")
        assert estimate.neighbours == []

    @pytest.mark.parametrize("method", ["weighted", "mean"])
    def test_all_cut_short(self, method: str) -> None:
        records = [job("a", 100, state="CANCELLED"), job("b", 3000, state="TIMEOUT")]
        estimate = advise(records, method=method)
        assert estimate.abstained
        assert estimate.duration_s is None
        assert estimate.reason == (
            "none of the 2 similar runs completed; the longest stopped at 3000 s"
        )
        assert len(estimate.neighbours) == 2

    def test_unknown_metadata_matches_nothing(self) -> None:
        empty = WorkloadMetadata()
        estimate = advise([job("a", 100, of=empty)], of=empty)
        assert estimate.abstained
        assert "nothing to compare" in estimate.reason

    def test_running_and_timeless_jobs_do_not_count(self) -> None:
        records = [job("a", 50, state="RUNNING"), job("b", None), job("c", 0)]
        assert advise(records).abstained

    def test_mostly_cut_short_is_called_a_lower_bound(self) -> None:
        records = [job("a", 10), *(job(f"{i}", 5000, state="TIMEOUT") for i in range(6))]
        estimate = advise(records)
        assert estimate.duration_s >= 5000
        assert estimate.reason == "most similar runs stopped early, so this is a lower bound"


class TestMean:
    def test_mean_of_the_top_k(self) -> None:
        records = [
            job("a", 100, of=metadata("a"), gpu_util=50),
            job("b", 200, of=metadata("b"), gpu_util=90),
            job("c", 600, of=metadata("c")),
            job("d", 9000, of=metadata("d")),
        ]
        similarity = {"a": 0.99, "b": 0.98, "c": 0.97, "d": 0.96}
        estimate = advise(records, similarity=similarity, method="mean", k=3)
        assert estimate.duration_s == 300
        assert estimate.gpu_util == 70
        assert estimate.method == "mean"
        assert [one.weight for one in estimate.neighbours] == [pytest.approx(1 / 3)] * 3

    def test_it_corrects_nothing(self) -> None:
        records = [job("a", 100, of=metadata(iters=10), launch=LaunchConfig(gpus=8))]
        assert advise(records, method="mean").duration_s == 100

    def test_ties_go_to_the_latest(self) -> None:
        records = [job(f"{i}", float(i + 1), ended_ago=100.0 - i) for i in range(9)]
        assert advise(records, method="mean", k=3).duration_s == 8

    def test_cut_short_runs_are_not_averaged(self) -> None:
        records = [job("a", 1, state="FAILED"), job("b", 100)]
        assert advise(records, method="mean").duration_s == 100


class TestAdjustment:
    def test_epochs_to_epochs(self) -> None:
        past = job("a", 100, of=metadata(iters=30))
        estimate = advise([past], similarity={"resnet50": 0.99})
        assert estimate.duration_s == pytest.approx(300)
        assert estimate.neighbours[0].duration_s == 100
        assert estimate.neighbours[0].adjusted_duration_s == pytest.approx(300)

    def test_epochs_and_steps_do_not_compare(self) -> None:
        steps = metadata(iters=5000, iter_type="step")
        found = adjust(metadata(), ONE_GPU, job("a", 100, of=steps))
        assert (found.factor, found.unknown_length) == (1, True)
        assert adjust(metadata(iters=None), ONE_GPU, job("a", 100)).unknown_length

    def test_epochs_on_more_gpus(self) -> None:
        past = job("a", 100, launch=LaunchConfig(gpus=2))
        found = adjust(metadata(), LaunchConfig(gpus=8), past)
        assert found.factor == pytest.approx(0.25**WEAK_SCALING)

    def test_steps_on_more_gpus_take_the_same_time(self) -> None:
        steps = metadata(iters=5000, iter_type="step", batch_size=32)
        past = job("a", 100, of=steps, launch=LaunchConfig(gpus=2))
        assert adjust(steps, LaunchConfig(gpus=8), past).factor == 1

    @pytest.mark.parametrize(
        ("accumulated", "batch", "exponent"), [(10, 12, WEAK_SCALING), (5, 12, 0.0), (10, 6, 0.0)]
    )
    def test_accumulation_divided_by_the_number_of_gpus_is_fixed_work(
        self, accumulated: int, batch: int, exponent: float
    ) -> None:
        def steps(number: int, batch_size: int) -> WorkloadMetadata:
            own = {"gradient_accumulation_steps": number, "batch_size": batch_size}
            return metadata(iters=5000, iter_type="step", **own)

        past = job("a", 100, of=steps(5, 12), launch=LaunchConfig(gpus=8))
        found = adjust(steps(accumulated, batch), LaunchConfig(gpus=4), past)
        assert found.factor == pytest.approx(2**exponent)

    def test_fixed_global_batch(self) -> None:
        steps = metadata(iters=5000, iter_type="step", global_batch_size=1024)
        past = job("a", 100, of=steps, launch=LaunchConfig(gpus=2))
        found = adjust(steps, LaunchConfig(gpus=8), past)
        assert found.factor == pytest.approx(0.25**STRONG_SCALING)

    @pytest.mark.parametrize(
        ("new", "old", "other"),
        [("A100", "a100", False), ("a100", "v100", True), (None, "v100", False)],
    )
    def test_gpu_type(self, new: str | None, old: str | None, other: bool) -> None:
        past = job("a", 100, launch=LaunchConfig(gpu_type=old))
        assert adjust(metadata(), LaunchConfig(gpu_type=new), past).other_gpu is other

    def test_same_gpu_type_counts_more(self) -> None:
        records = [
            job("same", 100, ended_ago=10, launch=LaunchConfig(gpus=1, gpu_type="a100")),
            job("other", 900, ended_ago=10, launch=LaunchConfig(gpus=1, gpu_type="v100")),
        ]
        estimate = advise(records, launch=LaunchConfig(gpus=1, gpu_type="a100"))
        assert estimate.neighbours[0].job_id == "same"
        assert estimate.neighbours[0].weight == pytest.approx(2 / 3)


STATES = ["COMPLETED", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "RUNNING"]
MODELS = ["resnet50", "resnet101", "vgg16"]

histories = st.lists(
    st.tuples(
        st.just(0.0) | st.floats(1e-3, 1e7),  # no accounting knows less than a millisecond
        st.floats(0, 1e6),
        st.sampled_from(STATES),
        st.sampled_from(MODELS),
        st.sampled_from([None, 10, 90]),
        st.sampled_from([None, 1, 8]),
    ),
    max_size=12,
)


def build(rows: list[Any], factor: float = 1.0) -> list[JobRecord]:
    return [
        job(f"{i}", duration * factor, ago, state, metadata(model, iters), LaunchConfig(gpus=gpus))
        for i, (duration, ago, state, model, iters, gpus) in enumerate(rows)
    ]


SIMILARITY = {"resnet50": 1.0, "resnet101": 0.95, "vgg16": 0.5}


@given(histories, st.sampled_from(["weighted", "mean"]))
def test_every_estimate_is_consistent(rows: list[Any], method: str) -> None:
    records = build(rows)
    estimate = advise(records, similarity=SIMILARITY, method=method)
    known = {record.job_id: record for record in records}
    for one in estimate.neighbours:
        assert known[one.job_id].metadata.model.model_name != "vgg16"
        assert one.duration_s > 0
        assert one.weight > 0
        assert one.censored == known[one.job_id].censored
    if estimate.neighbours:
        assert sum(one.weight for one in estimate.neighbours) == pytest.approx(1)
    if estimate.abstained:
        assert estimate.reason
        assert estimate.duration_s is estimate.duration_p10_s is estimate.duration_p90_s is None
    else:
        assert 0 < estimate.duration_p10_s <= estimate.duration_p50_s <= estimate.duration_p90_s
        assert estimate.duration_s > 0
        assert any(not one.censored for one in estimate.neighbours)


@given(histories, st.sampled_from(["weighted", "mean"]), st.randoms(use_true_random=False))
def test_order_of_the_history_does_not_matter(
    rows: list[Any], method: str, shuffler: random.Random
) -> None:
    records = build(rows)
    shuffled = list(records)
    shuffler.shuffle(shuffled)
    options = {"similarity": SIMILARITY, "method": method}
    assert advise(shuffled, **options) == advise(records, **options)


@given(
    histories.filter(lambda rows: all(row[0] == 0 or row[0] > 1e-3 for row in rows)),
    st.sampled_from([0.25, 2.0, 64.0]),
)
def test_estimates_scale_with_durations(rows: list[Any], factor: float) -> None:
    one = advise(build(rows), similarity=SIMILARITY)
    other = advise(build(rows, factor), similarity=SIMILARITY)
    assert other.abstained == one.abstained
    if not one.abstained:
        for name in ("duration_s", "duration_p10_s", "duration_p90_s"):
            assert getattr(other, name) == pytest.approx(getattr(one, name) * factor)


def test_k_must_be_positive() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        SchedulingAdvisor(Shelf([]), threshold=0.9, k=0)  # type: ignore[arg-type]


class TestOnARealHistory:
    @pytest.fixture
    def history(self, tmp_path: Path) -> Iterator[JobHistory]:
        with JobHistory.open(tmp_path / "history", load_embedder()) as history:
            history.add_many(
                [
                    job("old", 100, ended_ago=9000),
                    job("new", 120, ended_ago=10),
                    job("cut", 500, ended_ago=5, state="TIMEOUT"),
                    job("spelt", 400, of=metadata("torchvision.models.resnet101")),
                    *(job(f"accounting{i}", 7, of=WorkloadMetadata()) for i in range(100)),
                ]
            )
            yield history

    def test_resubmission(self, history: JobHistory) -> None:
        estimate = SchedulingAdvisor(history).estimate(metadata(), ONE_GPU, NOW)
        assert {one.job_id for one in estimate.neighbours} == {"old", "new", "cut"}
        assert 100 <= estimate.duration_s <= 500  # type: ignore[operator]

    def test_other_spelling_and_length(self, history: JobHistory) -> None:
        estimate = SchedulingAdvisor(history).estimate(metadata("ResNet101", 180), ONE_GPU, NOW)
        assert [one.job_id for one in estimate.neighbours] == ["spelt"]
        assert estimate.duration_s == pytest.approx(800)

    def test_other_model_on_the_same_dataset_is_not_similar(self, history: JobHistory) -> None:
        estimate = SchedulingAdvisor(history).estimate(metadata("vgg16"), ONE_GPU, NOW)
        assert estimate.abstained
        assert "no similar job: the closest, " in str(estimate.reason)

    def test_accounting_rows_without_metadata_match_nothing(self, history: JobHistory) -> None:
        assert SchedulingAdvisor(history).estimate(WorkloadMetadata(), ONE_GPU, NOW).abstained
