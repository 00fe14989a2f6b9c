"""Many runs: kept, made at once, over seeds and clusters; and what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cli_runner import Cli
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import all_ended

from schedmate.base.errors import installing
from schedmate.schedulers.model import Cluster, Profile
from schedmate.schedulers.registry import BUNDLED
from schedmate.schedulers.sim.comparison import compare
from schedmate.schedulers.sim.outcome.results import (
    Result,
    gpu_runs,
    gpus_held,
    jobs_waiting,
    read_result,
    work_kept,
    write_result,
)
from schedmate.schedulers.sim.parameters import HONEST
from schedmate.schedulers.sim.runs import Plan
from schedmate.schedulers.sim.workload import Workload

Rows = list[tuple[float, float, int]]
rows = st.lists(
    st.tuples(
        st.integers(0, 50).map(float), st.floats(1.0, 30.0), st.sampled_from([1, 1, 2, 3, 8])
    ),
    min_size=1,
    max_size=25,
)


def workload(some: Rows) -> Workload:
    profiles = [Profile(20.0 * (n % 4), 10.0, 4000.0) for n in range(len(some))]
    return Workload.of(some, profiles=profiles)


def result(some: Rows, policy: str) -> Result:
    return compared(workload(some), Plan((policy,), Cluster.parse("4x8"), "oracle", HONEST))


def compared(some: Workload, plan: Plan) -> Result:
    return next(iter(compare(some, [plan])))


@pytest.mark.parametrize("policy", sorted(BUNDLED))
@settings(max_examples=20)
@given(rows=rows)
def test_what_is_drawn_over_time_adds_up_to_the_summary(policy: str, rows: Rows) -> None:
    found = result(rows, policy)
    first, last = found.jobs["submit_s"].min(), found.jobs["end_s"].max()
    edges = np.linspace(first, last, 8)
    held = gpus_held(found.segments).mean(edges)
    utilisation = float(held.mean()) / Cluster.parse("4x8").gpus
    assert utilisation == pytest.approx(found.numbers["utilisation"], rel=1e-9, abs=1e-9)
    waiting = jobs_waiting(found.jobs, found.segments)
    assert waiting.value.min() > -1e-6
    assert waiting.value[-1] == pytest.approx(0, abs=1e-6)
    total = float(waiting.mean(edges).mean() * (last - first))
    assert total == pytest.approx(found.jobs["queue_s"].sum(), rel=1e-6, abs=1e-6)
    hours = found.numbers["gpu_time_h"]
    needed = float((found.jobs["duration_s"] * found.jobs["gpus"]).sum())
    assert 3600 * hours["useful"] == pytest.approx(needed)
    accounts_for(hours)
    for what, steps in zip(("useful", "lost"), work_kept(found.segments), strict=True):
        seconds = float(steps.mean(edges).mean() * (last - first)) if last > first else 0.0
        lost = sum(hours[key] for key in ("profiling", "restarts", "failures", "slowed"))
        whole = 3600 * (hours["useful"] if what == "useful" else lost)
        assert seconds == pytest.approx(whole, rel=1e-6, abs=1e-3)


def accounts_for(hours: dict[str, float]) -> None:
    """All GPU time is accounted for, and nothing is lost less than not at all."""
    causes = ("profiling", "restarts", "failures", "slowed")
    assert all(hours[key] > -1e-9 for key in (*causes, "shared"))
    parts = hours["useful"] + sum(hours[key] for key in causes)
    assert parts == pytest.approx(hours["held"] + hours["shared"])


def test_gpu_time_is_told_by_what_became_of_it() -> None:
    # Profiled for 200 s; then both share two GPUs, at 0.92 of their speed, until the first ends.
    half = Profile(50.0, 10.0, 4000.0)
    some = Workload.of([(0.0, 920.0, 2), (0.0, 9000.0, 2)], profiles=[half, half])
    told = Plan(("lucid:lookahead_s=0:patience=100",), Cluster.parse("4x2"), "oracle", HONEST)
    hours = {k: 3600 * v for k, v in compared(some, told).numbers["gpu_time_h"].items()}
    assert hours["useful"] == pytest.approx(2 * 9920)
    assert hours["profiling"] == pytest.approx(2 * 2 * 200)
    assert hours["shared"] == pytest.approx(2 * 800, rel=0.2)
    assert hours["slowed"] == pytest.approx(2 * 0.08 * hours["shared"])
    assert hours["restarts"] == hours["failures"] == 0
    # Preempted by the shorter job: 62 s until it goes on.
    some = Workload.of([(0.0, 1000.0, 2), (100.0, 50.0, 2)])
    found = compared(some, Plan(("srtf",), Cluster.parse("1x2"), "oracle", HONEST)).numbers
    assert 3600 * found["gpu_time_h"]["restarts"] == pytest.approx(2 * 62)


def test_work_that_failures_undo_is_told_from_work() -> None:
    some = workload([(10.0 * n, 200.0, 2) for n in range(12)])
    parameters = replace(HONEST, node_mtbf_s=300.0, repair_s=20.0, checkpoint_s=50.0)
    found = compared(some, Plan(("fifo",), Cluster.parse("2x4"), "none", parameters))
    hours = found.numbers["gpu_time_h"]
    accounts_for(hours)
    assert hours["useful"] == pytest.approx(12 * 200 * 2 / 3600)
    assert hours["failures"] > 0 < hours["restarts"]
    assert hours["profiling"] == 0
    assert hours["slowed"] == pytest.approx(0, abs=1e-9)


def test_fairness_tells_who_waits_for_the_others() -> None:
    some = Workload.of([(float(n), 100.0, 1) for n in range(6)])
    for job in some.jobs:
        job.user = "ann" if job.index < 3 else "bob"
    found = compared(some, Plan(("fifo",), Cluster.parse("1x1"), "none", HONEST)).numbers
    assert set(found["fairness"]) == {"user"}
    users = found["fairness"]["user"]
    # Ann's jobs take 100, 199 and 298 s, Bob's 397, 496 and 595.
    slowdowns = (597 / 300, 1488 / 300)
    assert (users["groups"], users["slowest"], users["slowest_jobs"]) == (2, "bob", 3)
    assert users["max_slowdown"] == pytest.approx(slowdowns[1])
    jain = sum(slowdowns) ** 2 / (2 * sum(one**2 for one in slowdowns))
    assert users["jain"] == pytest.approx(jain)
    even = compared(some, Plan(("fifo",), Cluster.parse("6x1"), "none", HONEST)).numbers
    assert even["fairness"]["user"]["jain"] == pytest.approx(1.0)


def test_parts_of_a_gpu_count_as_parts() -> None:
    jobs = workload([(0.0, 10.0, 1), (0.0, 10.0, 1), (0.0, 30.0, 1)])
    for job, share in zip(jobs.jobs, (0.5, 0.5, 0.25), strict=True):
        job.share = share
    plan = Plan(("fifo",), Cluster.parse("1x2"), "none", HONEST)
    found = next(iter(compare(jobs, [plan])))
    assert gpus_held(found.segments).mean(np.array([0.0, 10.0, 30.0])) == pytest.approx(
        [1.25, 0.25]
    )
    assert found.numbers["utilisation"] == pytest.approx((2 * 5 + 7.5) / 60)


def test_stretches_that_a_failure_ended_are_told_from_others() -> None:
    some = workload([(10.0 * n, 200.0, 2) for n in range(12)])
    parameters = replace(HONEST, node_mtbf_s=300.0, repair_s=20.0, checkpoint_s=10.0)
    found = next(iter(compare(some, [Plan(("fifo",), Cluster.parse("2x4"), "none", parameters)])))
    failed = found.segments["failed"] == 1
    ended = set(
        zip(*(found.segments[key][failed].tolist() for key in ("job", "end_s")), strict=True)
    )
    assert len(ended) == found.numbers["failures"] > 0
    last = found.segments["end_s"] == found.jobs["end_s"][found.segments["job"]]
    assert not (failed & last).any()


@given(st.integers(0, 2**20))
def test_runs_of_gpus_are_those_of_the_mask(mask: int) -> None:
    runs = gpu_runs(mask)
    assert sum(((1 << count) - 1) << first for first, count in runs) == mask
    ends = [first + count for first, count in runs]
    assert all(end < first for end, (first, _) in zip(ends, runs[1:], strict=False))


@settings(max_examples=20)
@given(rows=rows, policy=st.sampled_from(["fifo", "tiresias", "lucid"]))
def test_what_is_read_back_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, rows: Rows, policy: str
) -> None:
    found, folder = result(rows, policy), tmp_path_factory.mktemp("run")
    write_result(found, folder, Cluster.parse("4x8"), "x")
    back = read_result(folder)
    assert back is not None
    assert back.numbers == json.loads(json.dumps({"inputs": "x", **found.numbers}))
    for mine, theirs in ((found.jobs, back.jobs), (found.segments, back.segments)):
        assert list(mine) == list(theirs)
        for name, values in mine.items():
            assert values.tolist() == theirs[name].tolist() or np.isnan(values).any()


def test_parquet_holds_the_same_as_csv(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    found = result([(0.0, 10.0, 2), (5.0, 3.5, 1), (6.0, 8.0, 8)], "fifo")
    write_result(found, tmp_path, Cluster.parse("4x8"), "x")
    for name, table in (("jobs", found.jobs), ("segments", found.segments)):
        back = parquet.read_table(tmp_path / f"{name}.parquet").to_pydict()
        assert back == {column: values.tolist() for column, values in table.items()}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    lines = [f"j{n},{n * 7},{60 + 37 * n % 900},{1 + n % 4},{'ab'[n % 2]}" for n in range(60)]
    path.write_text("\n".join(["job_id,submit_s,duration_s,gpus,vc", *lines]) + "\n")
    return path


def without_cpu(text: str) -> object:
    document = json.loads(text)
    for run in document["runs"]:
        del run["cpu_s"]
    return document


GRID = (
    *("--policy", "fifo,sjf,tiresias", "--cluster", "2x4", "--cluster", "1x4,1x4"),
    *("--estimator", "noisy:1", "--seed", "0,1"),
)


def test_at_once_is_the_same_as_one_by_one(cli: Cli, trace: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    serial = cli("simulate", str(trace), *GRID, "--json", "--out", str(one))
    at_once = cli("simulate", str(trace), *GRID, "--json", "--out", str(two), "--jobs", "2")
    assert (serial.code, at_once.code) == (0, 0), at_once.err
    assert without_cpu(serial.out) == without_cpu(at_once.out)
    files = sorted(path.relative_to(one) for path in one.rglob("*.csv"))
    assert len(files) == 2 * 3 * 2 * 2
    for file in files:
        assert (one / file).read_bytes() == (two / file).read_bytes()
    document = json.loads(serial.out)
    assert [(run["cluster"], run["seed"], run["policy"]) for run in document["runs"][:4]] == [
        *(("2x4", 0, policy) for policy in ("fifo", "sjf", "tiresias")),
        ("2x4", 1, "fifo"),
    ]
    means = {(one["policy"], one["cluster"]): one for one in document["over_seeds"]}
    sjf = [run for run in document["runs"] if (run["policy"], run["cluster"]) == ("sjf", "2x4")]
    mean, deviation = means["sjf", "2x4"]["avg_jct_h"]
    assert mean == pytest.approx(sum(run["avg_jct_h"] for run in sjf) / 2)
    assert deviation > 0
    assert set(document["runs"][0]["by_vc"]) == {"a", "b"}
    part = document["runs"][2]["by_size"]["1 GPU"]
    assert {"p999_queue_h", "median_jct_h", "preemptions", "packed"} <= set(part)


COMMAND = (sys.executable, "-m", "schedmate", "simulate")
SLOW = """
import time
from schedmate.schedulers.policies.queues import Fifo
class Never(Fifo):
    name = "never"
    def decide(self, view):
        time.sleep(600)
"""


def test_ctrl_c_ends_all_processes_and_what_was_finished_stays(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "slow_policy.py").write_text(SLOW)
    out = tmp_path / "out"
    arguments = [*COMMAND, str(trace), "--cluster", "2x4", "--out", str(out), "--json"]
    arguments += ["--policy", "fifo,slow_policy:Never,sjf", "--jobs", "2"]
    process = subprocess.Popen(
        arguments,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    kept = [out / "fifo" / "summary.json", out / "sjf" / "summary.json"]
    while not all(path.exists() for path in kept):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert all_ended(process.pid)
    times = [path.stat().st_mtime_ns for path in kept]
    arguments[-3] = "fifo,sjf"
    subprocess.run(arguments, check=True, capture_output=True)
    assert [path.stat().st_mtime_ns for path in kept] == times


DEADLY = """
import os
from schedmate.schedulers.policies.queues import Fifo
class Deadly(Fifo):
    name = "deadly"
    def decide(self, view):
        os._exit(9)
"""


def test_a_run_that_ends_its_process_costs_no_other(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "deadly_policy.py").write_text(DEADLY)
    out = tmp_path / "out"
    arguments = [*COMMAND, str(trace), "--cluster", "2x4", "--out", str(out), "--jobs", "2"]
    done = subprocess.run(
        [*arguments, "--policy", "deadly_policy:Deadly,fifo,sjf"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "1 run ended the process, alone and twice (of deadly_policy:Deadly)" in done.stderr
    assert "Traceback" not in done.stderr
    assert {path.parent.name for path in out.rglob("summary.json")} == {"fifo", "sjf"}


def test_a_changed_policy_is_run_again(
    cli: Cli, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "changing_policy.py"
    module.write_text(SLOW.replace("time.sleep(600)", "return super().decide(view)"))
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "out"
    base = ("simulate", str(trace), "--cluster", "2x4", "--out", str(out))
    base += ("--policy", "changing_policy:Never")
    assert cli(*base).code == 0
    summary = next(out.rglob("summary.json"))
    made = summary.stat().st_mtime_ns
    assert cli(*base).code == 0
    assert summary.stat().st_mtime_ns == made
    module.write_text(module.read_text() + "\n# changed\n")
    assert cli(*base).code == 0
    assert summary.stat().st_mtime_ns != made


def test_without_pyarrow_csv_is_written_and_it_says_so(
    cli: Cli, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    out = tmp_path / "out"
    run = cli("simulate", str(trace), "--cluster", "2x4", "--policy", "fifo", "--out", str(out))
    assert run.code == 0
    assert installing("parquet") in run.err
    assert sorted(path.name for path in (out / "fifo").iterdir()) == [
        *("jobs.csv", "segments.csv", "summary.json", "trace.json")
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seed", "x"), "write whole numbers as 0 or 0,1,2"),
        (("--jobs", "2", "--ray", "auto"), "--jobs is for this machine"),
        (("--jobs", "0"), "--jobs"),
    ],
)
def test_wrong_options(cli: Cli, trace: Path, arguments: tuple[str, ...], message: str) -> None:
    run = cli("simulate", str(trace), "--cluster", "2x4", "--policy", "fifo", *arguments)
    assert run.code == 2
    assert message in run.err
