"""SchedMate in the loop: real advisor, tracker and handler around simulated schedulers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.base.errors import UsageError
from schedmate.jobs import JobRecord, LaunchConfig, WorkloadMetadata
from schedmate.retrieval.embedders import load_embedder
from schedmate.retrieval.history import JobHistory, MemoryHistory
from schedmate.schedulers.adapters.modules import Advisor
from schedmate.schedulers.estimators import Estimator, Table
from schedmate.schedulers.model import Cluster, Forecast, Job, Profile
from schedmate.schedulers.registry import make, parameters, policy_class
from schedmate.schedulers.sim.engine import Simulation
from schedmate.schedulers.sim.parameters import HONEST, Interference
from schedmate.schedulers.sim.runs import Plan, Run, run_policy
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world import FailureRates, Faults, JobFailures

MODELS = ("resnet50", "bert-base", "gpt2", "vit-large", "dlrm")


def metadata(model: str, iters: int = 100) -> WorkloadMetadata:
    return WorkloadMetadata.model_validate(
        {
            "model_config": {"model_name": model, "task_type": "CV"},
            "training_config": {"iters": iters, "iter_type": "epoch"},
            "dataset_config": {"train": "data", "valid": "data"},
        }
    )


def workload_of(
    rows: list[tuple[float, float, int]], models: list[str], util: float = 60.0
) -> Workload:
    use = Profile(util, 20.0, 4000.0)
    work = Workload.of(rows, profiles=[use] * len(rows))
    work.metadata = [metadata(model) for model in models]
    return work


def run(workload: Workload, policy: str, cluster: str = "2x4", **plan: Any) -> Run:
    settings = {"estimator": "none", "parameters": HONEST, **plan}
    return run_policy(workload, Plan((policy,), Cluster.parse(cluster), **settings), policy)


# The advisor.


@given(
    past=st.lists(
        st.tuples(st.sampled_from(MODELS), st.integers(1, 3), st.floats(1, 1e5)), max_size=12
    ),
    asked=st.sampled_from(MODELS),
    method=st.sampled_from(["mean", "weighted"]),
)
@settings(max_examples=10)
def test_the_memory_answers_as_the_database_does(
    tmp_path_factory: pytest.TempPathFactory,
    past: list[tuple[str, int, float]],
    asked: str,
    method: Any,
) -> None:
    from schedmate.retrieval.advisor import SchedulingAdvisor

    embedder = load_embedder()
    memory = MemoryHistory(embedder)
    with JobHistory.open(tmp_path_factory.mktemp("history"), embedder) as stored:
        for n, (model, iters, duration) in enumerate(past):
            record = JobRecord(
                job_id=f"{n:03d}",
                metadata=metadata(model, iters),
                state="COMPLETED",
                end_time=float(n),
                duration_s=duration,
            )
            stored.add(record)
            memory.add(record)
        question = (metadata(asked, 2), LaunchConfig(gpus=1), 1e9)
        answers = [
            SchedulingAdvisor(one, method=method).estimate(*question).duration_s
            for one in (memory, stored)
        ]
    assert answers[0] == pytest.approx(answers[1]) if answers[0] else answers[1] is None


def test_the_advisor_learns_as_jobs_end_and_never_sees_the_future() -> None:
    rows = [(0.0, 50.0, 1), (10.0, 50.0, 1), (100.0, 50.0, 1)]
    workload = workload_of(rows, ["resnet50"] * 3)
    advisor = Advisor(workload, Estimator(), latency_s=0.0)
    for job in workload.jobs[:2]:
        assert advisor.estimate(job) is None
    advisor.observe(workload.jobs[0], 50.0, completed=True)
    forecast = advisor.estimate(workload.jobs[2])
    assert forecast is not None
    assert forecast.duration_s == pytest.approx(50.0)
    assert forecast.method == "advisor/weighted"
    assert advisor.counts == {"asked": 3, "matched": 1, "abstained": 2, "rejected": 0, "failed": 0}


def test_an_answer_takes_its_time() -> None:
    workload = workload_of([(0.0, 50.0, 1)], ["resnet50"])
    assert run(workload, "sjf+schedmate:latency_s=9").outcome.first_start == [9.0]
    assert run(workload, "sjf+schedmate:latency_s=0").outcome.first_start == [0.0]


class Wrong(MemoryHistory):
    """A history whose run times are of no use."""

    def __init__(self, duration_s: float) -> None:
        super().__init__(load_embedder())
        self.duration_s = duration_s

    def add(self, record: JobRecord) -> None:
        super().add(record.model_copy(update={"duration_s": self.duration_s}))


@pytest.mark.parametrize("duration_s", [math.nan, math.inf, 1e300])
def test_absurd_estimates_are_counted_and_the_fallback_answers(duration_s: float) -> None:
    workload = workload_of([(0.0, 50.0, 1), (100.0, 50.0, 1)], ["resnet50"] * 2)
    fallback = Table([7.0, 7.0])
    advisor = Advisor(workload, fallback, history=Wrong(duration_s), latency_s=0.0)
    advisor.observe(workload.jobs[0], 50.0, completed=True)
    assert advisor.estimate(workload.jobs[1]) == Forecast(7.0, method="table")
    assert advisor.counts["rejected"] + advisor.counts["failed"] + advisor.counts["abstained"] == 1


def test_a_history_of_another_embedder_is_said_once_and_left_alone(tmp_path: Any) -> None:
    class Other:
        id, dim, threshold = "other", 512, 0.9

        def embed(self, texts: Any) -> Any:
            return load_embedder().embed(texts)

    JobHistory.open(tmp_path, Other()).close()  # type: ignore[arg-type]
    workload = workload_of([(0.0, 50.0, 1), (10.0, 50.0, 1)], ["resnet50"] * 2)
    with JobHistory.open(tmp_path, load_embedder()) as history:
        advisor = Advisor(workload, Table([7.0, 7.0]), history=history, latency_s=0.0)
        forecasts = [advisor.estimate(job) for job in workload.jobs]
    assert forecasts == [Forecast(7.0, method="table")] * 2
    assert advisor.counts["failed"] == 2
    assert len(advisor.warnings) == 1
    (reason,) = advisor.warnings
    assert "schedmate history rebuild" in reason
    assert advisor.warnings[reason] == 2


# Lucid.


class Harsh(Interference):
    """Whoever shares runs at this speed."""

    def __init__(self, speed: float) -> None:
        self.speed = speed

    def speeds(self, first: Any, second: Any, configs: Any) -> tuple[float, float]:
        return self.speed, self.speed


def lucid(speed: float, settings: str = "", jobs: int = 6) -> Run:
    # The first teaches the history; of the others each pair shares while the cluster is full.
    rows = [(0.0, 600.0, 1)] + [(5000.0 + n * 900.0, 30_000.0, 1) for n in range(jobs)]
    workload = workload_of(rows, ["resnet50"] * len(rows), util=20.0)
    parameters = replace(HONEST, interference=Harsh(speed))
    policy = "lucid+schedmate:latency_s=0:profiler_nodes=1:lookahead_s=0" + settings
    return run(workload, policy, "4x1", parameters=parameters, seed=3)


def test_a_job_with_a_match_is_not_profiled() -> None:
    assert lucid(0.9).outcome.decisions["Profile"] == 1
    assert lucid(0.9, ":bypass=false").outcome.decisions["Profile"] == 7


def test_a_slow_pair_is_parted_and_the_newcomer_never_packed_again() -> None:
    result = lucid(0.4)
    tracker = result.numbers["schedmate"]["tracker"]
    assert tracker["measured"] > 0
    assert result.numbers["evictions"] > 0
    for job in range(7):
        kinds = [one.kind for one in result.outcome.segments if one.job == job]
        assert kinds.count("packed") <= 1
    assert result.numbers["avg_jct_h"] < lucid(0.4, ":max_slowdown=1").numbers["avg_jct_h"]


@pytest.mark.parametrize("settings", ["", ":detection_rate=0", ":tracker=false"])
def test_nothing_is_parted_without_a_slowdown_that_was_seen(settings: str) -> None:
    speed = 0.9 if not settings else 0.4
    assert lucid(speed, settings).numbers["evictions"] == 0


def test_spread_shares_only_where_no_gpu_is_free() -> None:
    assert lucid(0.9, jobs=1).numbers["packed"] == 0
    # By their estimate, a fiftieth of what they take, nothing would be left of those that run.
    settings = ":remaining=false"
    both = lucid(0.9, settings, jobs=2)
    spread = lucid(0.9, f"{settings}:spread=true", jobs=2)
    assert both.numbers["packed"] == 1
    assert spread.numbers["packed"] == 0
    assert lucid(0.9, ":spread=true").numbers["packed"] > 0


def test_affine_joins_the_partner_that_uses_least() -> None:
    # The first two do not fit together, the third fits with either.
    uses = [Profile(50.0, 9.0, 2e4), Profile(20.0, 9.0, 2e4), Profile(10.0, 9.0, 900.0)]
    rows = [(0.0, 90_000.0, 1), (1.0, 50_000.0, 1), (9000.0, 5000.0, 1)]
    joined = {}
    for affine in ("false", "true"):
        workload = workload_of(rows, ["resnet50"] * 3)
        workload.profiles = list(uses)
        policy = f"lucid+schedmate:latency_s=0:profile_gpus=0:lookahead_s=0:affine={affine}"
        outcome = run(workload, policy, "2x1", estimator="oracle").outcome
        pair = next(one for one in outcome.segments if one.kind == "packed")
        assert pair.job == 2
        joined[affine] = next(
            one.job
            for one in outcome.segments
            if one.allocation == pair.allocation and one.job != 2
        )
    assert joined["true"] == 1


def test_risk_moves_the_estimate_to_the_mean_of_its_interval() -> None:
    workload = workload_of([(0.0, 50.0, 1), (100.0, 50.0, 1)], ["resnet50"] * 2)
    told = []
    for risk in (0.0, 0.5, 1.0):
        advisor = Advisor(workload, Estimator(), latency_s=0.0, risk=risk)
        advisor.observe(workload.jobs[0], 50.0, completed=True)
        forecast = advisor.estimate(workload.jobs[1])
        assert forecast is not None
        told.append(forecast.duration_s)
    assert told[0] < told[1] < told[2]


def test_the_log_of_a_past_job_stands_in_for_one_that_got_company_at_once() -> None:
    # One job of the workload runs alone and ends; of the next two, one joins the other at once.
    rows = [(0.0, 9000.0, 1), (20_000.0, 30_000.0, 1), (20_001.0, 30_000.0, 1)]
    workload = workload_of(rows, ["resnet50"] * 3, util=20.0)
    world = replace(HONEST, interference=Harsh(0.4))
    counts = {}
    for baseline in ("true", "false"):
        policy = f"lucid+schedmate:latency_s=0:profiler_nodes=0:profile_gpus=0:baseline={baseline}"
        result = run(workload, policy, "1x1", parameters=world, estimator="oracle", seed=3)
        counts[baseline] = result.numbers["schedmate"]["tracker"]
    assert counts["true"]["by_past_job"] == counts["true"]["measured"] == 1
    assert counts["false"]["by_past_job"] == counts["false"]["measured"] == 0


def test_a_profile_taken_while_a_job_warms_up_falls_short() -> None:
    seen = [
        replace(HONEST, profile_error=error).profiled(str(n), Profile(80.0, 40.0, 900.0))
        for error in (0.0, 0.2)
        for n in range(300)
    ]
    exact, short = seen[:300], seen[300:]
    assert set(exact) == {Profile(80.0, 40.0, 900.0)}
    shares = [one.gpu_util / 80.0 for one in short if one is not None]
    assert 0.6 <= min(shares) < max(shares) <= 1.0
    assert sum(shares) / 300 == pytest.approx(0.8, abs=0.02)
    assert {one.memory_mb for one in short if one is not None} == {900.0}


def test_a_job_that_outruns_its_estimate_is_taken_for_twice_as_long_and_stopped() -> None:
    # The first is said to take 100 s and takes 10,000; the second is short and comes later.
    workload = Workload.of([(0.0, 10_000.0, 1), (50.0, 600.0, 1)])
    workload.columns["told"] = [100.0, 600.0]
    ends = {
        name: run(workload, name, "1x1", estimator="column:told").outcome.end
        for name in ("srtf", "srtf+schedmate")
    }
    assert ends["srtf"][1] == 10_600.0  # behind one that ends "at once", for hours
    assert ends["srtf+schedmate"][1] < 2500.0


def test_the_log_of_a_running_job_says_what_it_has_left_and_spares_it() -> None:
    """A job estimated at a tenth of its time is taken for ever longer until its log tells."""
    workload = Workload.of([(0.0, 40_000.0, 4), (36_500.0, 5_000.0, 4)])
    workload.columns["told"] = [4_000.0, 5_000.0]
    runs = {
        progress: run(
            workload, f"srtf+schedmate:progress={progress}", "1x4", estimator="column:told"
        ).numbers
        for progress in ("true", "false")
    }
    assert runs["false"]["preemptions"] == 1
    assert runs["true"]["preemptions"] == 0  # about an hour is left, and the other takes longer
    assert runs["true"]["schedmate"]["progress"]["told"] > 3


@pytest.mark.parametrize("name", ["sjf+schedmate", "qssf+schedmate"])
def test_a_restarted_job_counts_with_what_it_has_left(name: str) -> None:
    # The first fails after 900 of its 1,000 s, at the end of a checkpoint, when two wait.
    class Breaks(Faults):
        def fails_at(self, job: int, attempt: int) -> float:
            return 900.0 if job == 0 and not attempt else math.inf

    workload = Workload.of([(0.0, 1000.0, 2), (1.0, 500.0, 2), (2.0, 50.0, 2)])
    outcome = Simulation(
        workload,
        make(name),
        Cluster.parse("1x2"),
        estimator=Table(workload.duration_s),
        parameters=replace(HONEST, checkpoint_s=100.0),
        faults=Breaks(),
    ).run()
    # The shortest first; then the 100 s that are left, with a restart of 62 s; then the longest.
    assert outcome.first_start == [0.0, 1112.0, 900.0]


# Failures.

BUGS = FailureRates(bugs=1.0, bug_after=100.0, user=7200.0)
BREAKS = FailureRates(gpu_mtbf=4 * 3600.0, bugs=0.0, user=7200.0)


def failing(rates: FailureRates, settings: str) -> Run:
    rows = [(n * 100.0, 6 * 3600.0, 1) for n in range(10)]
    workload = workload_of(rows, ["resnet50"] * 10)
    return run(workload, f"sjf+schedmate:latency_s=0{settings}", "4x4", failures=rates, seed=1)


def test_the_handler_restarts_what_the_infrastructure_broke() -> None:
    handled, alone = failing(BREAKS, ""), failing(BREAKS, ":handler=false")
    counts = handled.numbers["schedmate"]["handler"]
    assert counts["handled"] > counts["missed"] > 0  # a log that just stops says nothing
    assert counts["in_vain"] == counts["left_to_user"] == 0
    assert handled.numbers["avg_jct_h"] < alone.numbers["avg_jct_h"]


def test_a_bug_waits_for_its_user() -> None:
    counts = failing(BUGS, "").numbers["schedmate"]["handler"]
    assert counts["left_to_user"] == 10
    assert counts["handled"] == counts["missed"] == 0


def test_a_wrong_verdict_restarts_in_vain_and_a_missed_one_waits() -> None:
    vain = failing(BUGS, ":false_alarms=1").numbers
    assert vain["schedmate"]["handler"] == {
        "handled": 0,
        "missed": 0,
        "in_vain": 10,
        "left_to_user": 10,
    }
    assert vain["avg_jct_h"] > failing(BUGS, ":false_alarms=0").numbers["avg_jct_h"]
    missed = failing(BREAKS, ":recall=0")
    assert missed.numbers["schedmate"]["handler"]["handled"] == 0
    assert missed.numbers["avg_jct_h"] == failing(BREAKS, ":handler=false").numbers["avg_jct_h"]


@given(
    seed=st.integers(0, 99),
    bugs=st.floats(0, 1),
    hours=st.floats(0.5, 50),
    recall=st.floats(0, 1),
    alarms=st.floats(0, 1),
)
@settings(max_examples=6)
def test_with_any_failures_every_job_ends_and_the_audit_holds(
    seed: int, bugs: float, hours: float, recall: float, alarms: float
) -> None:
    rows = [(n * 500.0, 1000.0 + 700.0 * n, 1 + n % 4) for n in range(8)]
    workload = workload_of(rows, [MODELS[n % 5] for n in range(8)])
    rates = FailureRates(gpu_mtbf=hours * 3600, bugs=bugs, user=600.0)
    for name in ("lucid+schedmate", "sjf+schedmate"):
        policy = f"{name}:recall={recall}:false_alarms={alarms}:latency_s=3"
        result = run(workload, policy, "2x4", failures=rates, seed=seed)
        assert all(math.isfinite(end) for end in result.outcome.end)


def test_failures_are_the_same_for_every_policy() -> None:
    workload = workload_of([(0.0, 9000.0, 2)] * 5, ["gpt2"] * 5)
    rates = FailureRates(gpu_mtbf=3600.0, bugs=0.5)
    one, other = (JobFailures(workload, rates, 4) for _ in range(2))
    assert [one.fails_at(n, 0) for n in range(5)] == [other.fails_at(n, 0) for n in range(5)]


@pytest.mark.parametrize("text", ["bugs=2", "gpu_mtbf=0", "bugs", "nodes=1d", "user=soon"])
def test_failure_rates_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        FailureRates.parse(text)


def test_failure_rates_are_read() -> None:
    assert FailureRates.parse("gpu_mtbf=10d,bugs=0.2,user=2h") == FailureRates(
        gpu_mtbf=864_000.0, bugs=0.2, user=7200.0
    )


# Settings.


def test_settings_are_those_of_the_modules_and_of_the_policy() -> None:
    names = [one.name for one in parameters(policy_class("lucid+schedmate"))]
    assert {"bypass", "detection_rate", "profile_limit_s"} <= set(names)
    assert len(names) == len(set(names))
    made: Any = make("lucid+schedmate:profile_limit_s=80:detection_rate=0.5")
    assert (made.profile_limit_s, made.detection_rate) == (80.0, 0.5)
    assert make("sjf+schedmate:backfill=false").backfill is False  # type: ignore[attr-defined]


@pytest.mark.parametrize("setting", ["method=median", "detection_rate=2", "k=0", "error=-1"])
def test_wrong_settings_are_refused(setting: str) -> None:
    with pytest.raises(UsageError):
        make(f"sjf+schedmate:{setting}")


@pytest.mark.parametrize("bad", ["0", "nan", "-5", "1e300"])
def test_estimates_that_are_no_time_are_counted_in_the_summary(
    bad: str, tmp_path: Any, cli: Any
) -> None:
    trace = tmp_path / "jobs.csv"
    rows = "".join(f"{n},{n * 10},50,1,{bad if n % 2 else 60}\n" for n in range(6))
    trace.write_text("job_id,submit_s,duration_s,gpus,told\n" + rows)
    arguments = ("--cluster", "1x1", "--policy", "sjf+schedmate", "--estimator", "column:told")
    done = cli("simulate", str(trace), *arguments)
    assert done.code == 0, done.err
    assert "warning: sjf+schedmate: an estimate was not a possible run time (3 times)" in " ".join(
        done.out.split()
    )


def test_without_metadata_nothing_is_asked_and_the_fallback_stands() -> None:
    workload = Workload.of([(0.0, 50.0, 1), (1.0, 10.0, 1)])
    result = run(workload, "sjf+schedmate", "1x1")
    assert result.numbers["schedmate"]["advisor"]["asked"] == 0


def test_an_advisor_may_be_an_oracles_fallback_and_says_so() -> None:
    job = Job("0", 0, 0.0, 1)
    workload = Workload.of([(0.0, 50.0, 1)])
    advisor = Advisor(workload, Table([50.0], oracle=True))
    assert advisor.oracle
    assert advisor.estimate(job) == Forecast(50.0, method="table")


def test_the_example_of_the_page_runs(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from pathlib import Path

    page = Path(__file__).parents[2] / "docs" / "adapters.md"
    code = page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    (tmp_path / "my_scheduler.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    workload = workload_of([(n, 100.0 - n, 1 + n % 3) for n in range(6)], ["bert-base"] * 6)
    for name in ("FewestGpusFirst", "FewestGpusFirstWithSchedMate:latency_s=1"):
        result = run(workload, f"my_scheduler:{name}", "1x4", failures=BUGS)
        assert ("schedmate" in result.numbers) == ("SchedMate" in name)


def test_the_flags_reach_the_policies_that_have_them(tmp_path: Any, cli: Any) -> None:
    import json

    trace = tmp_path / "jobs.csv"
    rows = [f"j{n},{n * 10},{600 - n * 40},{1 + n % 4}" for n in range(12)]
    trace.write_text("\n".join(["job_id,submit_s,duration_s,gpus", *rows]) + "\n")
    base = ("simulate", str(trace), "--cluster", "2x4", "--workloads", "lucid")
    flags = ("--advisor-latency", "20s", "--detection-rate", "0.5", "--failures", "bugs=1")
    result = cli(*base, "--policy", "fifo,lucid+schedmate", *flags, "--json")
    fifo, lucid = json.loads(result.out)["runs"]
    assert lucid["settings"] == "lucid+schedmate:latency_s=20:detection_rate=0.5:backfill=true"
    assert fifo["failures"] == 12
    assert sum(lucid["schedmate"]["handler"].values()) >= 12
    refused = cli(*base, "--policy", "fifo", "--detection-rate", "0.5")
    assert refused.code == 2
    assert "none of fifo has detection_rate" in refused.err
