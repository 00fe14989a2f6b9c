"""Results as columns and data frames say what the results say."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from cli_runner import Cli

from schedmate import Estimate, InputError, UsageError
from schedmate.base.errors import MissingExtraError
from schedmate.demo import write_trace
from schedmate.jobs import Neighbour
from schedmate.report import frames


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    write_trace(path)
    return path


def test_a_row_for_each_job_of_each_policy(trace: Path, cli: Cli) -> None:
    results = frames.simulate(trace, ["fifo", "sjf"], "4x8")
    columns = frames.jobs_columns(results)
    assert {len(column) for column in columns.values()} == {2 * 240}
    said = json.loads(
        cli("simulate", str(trace), "--policy", "fifo,sjf", "--cluster", "4x8", "--json").out
    )
    for run in said["runs"]:
        own = [
            jct
            for jct, policy in zip(columns["jct_s"], columns["policy"], strict=True)
            if policy == run["policy"]
        ]
        assert np.mean(own) / 3600 == pytest.approx(run["avg_jct_h"])


def test_segments_hold_the_gpu_time_of_the_jobs(trace: Path) -> None:
    results = frames.simulate(trace, "fifo", "4x8")
    jobs, held = frames.jobs_columns(results), frames.segments_columns(results)
    seconds = np.zeros(240)
    for job, start, end, gpus in zip(
        held["job"], held["start_s"], held["end_s"], held["gpus"], strict=True
    ):
        seconds[job] += (end - start) * gpus
    asked = np.array(jobs["duration_s"]) * np.array(jobs["gpus"])
    assert np.all(seconds >= asked - 1e-6)  # restarts and profiles cost time, nothing saves any


def test_a_run_on_disk_gives_the_same_columns(trace: Path, tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "runs"
    cli("simulate", str(trace), "--policy", "sjf", "--cluster", "4x8", "--out", str(out))
    [folder] = [path.parent for path in out.rglob("summary.json")]
    kept = frames.jobs_columns([frames.read_run(folder)])
    new = frames.jobs_columns(frames.simulate(trace, "sjf", "4x8"))
    assert {name: column for name, column in kept.items() if name != "predicted_s"} == {
        name: column for name, column in new.items() if name != "predicted_s"
    }
    np.testing.assert_array_equal(kept["predicted_s"], new["predicted_s"])
    with pytest.raises(InputError, match="holds no whole run"):
        frames.read_run(tmp_path)


def test_what_cannot_be_simulated_is_said(trace: Path) -> None:
    with pytest.raises(UsageError, match="no policy is named"):
        frames.simulate(trace, [], "4x8")
    with pytest.raises(UsageError, match="fifo"):
        frames.simulate(trace, "fifoo", "4x8")
    with pytest.raises(InputError):
        frames.simulate(trace.with_name("none.csv"), "fifo", "4x8")


def test_neighbours_are_sorted_by_weight() -> None:
    one, other = (
        Neighbour(
            job_id=name, similarity=0.95, weight=weight, duration_s=60.0, adjusted_duration_s=90.0
        )
        for name, weight in (("light", 0.25), ("heavy", 0.75))
    )
    columns = frames.neighbours_columns(Estimate(abstained=False, neighbours=[one, other]))
    assert columns["job_id"] == ["heavy", "light"]
    assert columns["weight"] == [0.75, 0.25]
    empty = frames.neighbours_columns(None)
    assert list(empty) == list(columns)
    assert not any(empty.values())


def test_data_frames_hold_the_columns(trace: Path) -> None:
    pytest.importorskip("pandas", reason="needs the extra `notebooks`")
    results = frames.simulate(trace, "fifo", "4x8")
    for made, columns in (
        (frames.jobs(results), frames.jobs_columns(results)),
        (frames.segments(results), frames.segments_columns(results)),
        (frames.neighbours(None), frames.neighbours_columns(None)),
    ):
        assert list(made.columns) == list(columns)
        assert len(made) == len(next(iter(columns.values())))
    assert frames.jobs(results)["jct_s"].tolist() == frames.jobs_columns(results)["jct_s"]


def test_without_pandas_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "pandas" else find(name, *rest),
    )
    with pytest.raises(MissingExtraError, match="notebooks"):
        frames.neighbours(None)
