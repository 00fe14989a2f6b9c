"""Synthetic traces: they meet the published figures, say that they are synthetic, and repeat."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from schedmate.base.errors import InputError, UsageError
from schedmate.cli import application
from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.traces import read_trace
from schedmate.schedulers.sim.traces.recipe import Calibration, Campaigns, calibrations, matches
from schedmate.schedulers.sim.traces.synthesize import read_arrivals, synthesize
from schedmate.schedulers.sim.workload import Workload

app = application("simulate", "traces")


@pytest.mark.parametrize("name", calibrations())
def test_every_calibration_is_met_by_a_few_thousand_jobs(name: str) -> None:
    calibration = Calibration.read(name)
    workload = synthesize(calibration, 5_000)
    for row in matches(workload, calibration):
        if "at most" in row.target:
            assert row.drawn <= row.published
        else:
            assert abs(row.off) < 0.12, row
    assert workload.made_up == (f"jobs by {name}, seed 0",)
    cluster = Cluster.parse(calibration.cluster)
    rooms = Counter[str]()
    for node in cluster.nodes:
        rooms[node.vc] += node.gpus
    assert all(job.gpus <= rooms[job.vc] for job in workload.jobs)


def test_the_same_seed_draws_the_same_jobs_and_another_does_not() -> None:
    calibration = Calibration.read("venus")

    def drawn(seed: int) -> list[tuple[float, float, int]]:
        workload = synthesize(calibration, 300, seed)
        return [
            (job.submit_time, duration, job.gpus)
            for job, duration in zip(workload.jobs, workload.duration_s, strict=True)
        ]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_half_the_jobs_take_half_the_time_by_day_and_not_by_night() -> None:
    calibration = Calibration.read("kalos")
    workload = synthesize(calibration, 10_000)
    span = workload.jobs[-1].submit_time - workload.jobs[0].submit_time
    assert span / 86_400 == pytest.approx(107 * 10_000 / 19_907, rel=0.05)
    hours = Counter(datetime.fromtimestamp(job.submit_time, UTC).hour for job in workload.jobs)
    assert hours[14] > 2 * hours[3]
    times = [job.submit_time for job in workload.jobs]
    assert times == sorted(times)


def test_a_series_of_arrivals_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "series.csv"
    path.write_text("time,n\n" + "".join(f"{at},{at % 2 * 5}\n" for at in range(20)))
    series = read_arrivals(path, "n")
    calibration = Calibration.read("kalos")
    count = int(calibration.targets["jobs"])
    workload = synthesize(calibration, count // 2, arrivals=series)
    begin = datetime(2023, 5, 17, tzinfo=UTC).timestamp()
    part = calibration.targets["days"] * 86_400 / 20
    found = Counter(int((job.submit_time - begin) // part) for job in workload.jobs)
    assert set(found) == {1, 3, 5, 7, 9}
    assert max(found.values()) - min(found.values()) < 5
    twice = synthesize(calibration, 2 * count, arrivals=series)
    assert twice.jobs[-1].submit_time - begin > 1.9 * calibration.targets["days"] * 86_400
    for text, message in (
        ("time,n\n0,-1\n", "line 2: n is not a count"),
        ("time,n\n0,x\n", "line 2: n is not a count"),
        ("time,n\n0,0\n", "no submissions"),
        ("time,m\n0,0\n", "no column 'n'; name one that it has: time, m"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_arrivals(path, "n")


def test_large_jobs_hold_the_gpu_time_that_was_published() -> None:
    """Kalos: GPU time is eight times what durations and GPUs that are independent would make."""
    workload = synthesize(Calibration.read("kalos"))
    gpus = np.array([job.gpus for job in workload.jobs])
    durations = np.array(workload.duration_s)
    assert (gpus * durations).mean() > 5 * gpus.mean() * durations.mean()


def test_the_command_labels_the_file_and_says_how_well_it_matches(tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    run = CliRunner().invoke(
        app, ["traces", "synthesize", "venus", "--jobs", "400", "--seed", "7", "-o", str(out)]
    )
    assert run.exit_code == 0, run.output
    assert run.stdout.startswith("Synthetic, after SenseTime Helios, cluster Venus")
    assert "400 jobs written" in run.stderr
    workload = read_trace(out)
    assert workload.made_up == ("jobs by venus, seed 7", "workloads by lucid, seed 7")
    assert all(job.user and job.name for job in workload.jobs)
    part = tmp_path / "part.csv"
    CliRunner().invoke(app, ["traces", "sample", str(out), "--users", "0.5", "-o", str(part)])
    assert read_trace(part).synthetic
    command = ["traces", "synthesize", "pai", "--jobs", "300", "--workloads", "none", "--json"]
    run = CliRunner().invoke(app, [*command, "-o", str(out)])
    document = json.loads(run.stdout)
    assert document["synthetic"] is True
    assert {row["target"] for row in document["targets"]} >= {"mean GPUs", "mean duration [s]"}
    assert any(job.share == 0.25 for job in read_trace(out).jobs)
    run = CliRunner().invoke(app, ["traces", "synthesize", "pai", "--jobs", "200"])
    assert len(run.stdout.splitlines()) == 201
    assert "--cluster 813x8" in run.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["atlantis"], "no calibration 'atlantis'; there are kalos"),
        (["venus", "--jobs", "5"], "need 100 jobs or more"),
        (["venus", "--json"], "name a file for it with --out"),
        (["venus", "--arrivals", "none.csv"], "cannot read none.csv"),
        (["venus", "--workloads", "nope"], "no recipe 'nope'"),
    ],
)
def test_wrong_arguments_are_a_sentence(arguments: list[str], message: str) -> None:
    run = CliRunner().invoke(app, ["traces", "synthesize", *arguments])
    assert isinstance(run.exception, UsageError | InputError)
    assert message in str(run.exception)


def test_a_calibration_of_ones_own_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("targets: {jobs: 10}\n")
    with pytest.raises(InputError, match="is not a calibration: KeyError 'cluster'"):
        Calibration.read(str(path))
    path.write_text("cluster: {gpus_of_a_node: 8, nodes: 1}\ntargets: {jobs: -1}\nassumed: {}\n")
    with pytest.raises(InputError, match=r"targets\.jobs is not above 0"):
        Calibration.read(str(path))


VENUS = Calibration.read("venus")
CAMPAIGNS = Campaigns(
    tail=2.0, most=300, alike=0.8, spread=0.01, gap_s=60.0, gap_spread=1.5, rate_spread=0.8
)


def test_campaigns_repeat_and_cluster_and_the_figures_are_met_as_before() -> None:
    alone = synthesize(replace(VENUS, campaigns=None), 8_000)
    clustered = synthesize(replace(VENUS, campaigns=CAMPAIGNS), 8_000)

    def repeats(workload: Workload) -> float:
        logs = np.log(workload.duration_s)
        return float((abs(np.expm1(np.diff(logs))) <= 0.1).mean())

    def same_size(workload: Workload) -> float:
        gpus = np.array([job.gpus for job in workload.jobs])
        return float((gpus[1:] == gpus[:-1]).mean())

    def varies(workload: Workload) -> float:
        at = np.array([job.submit_time for job in workload.jobs])
        hours = np.bincount(((at - at[0]) // 3600).astype(int))
        return float(hours.std() / hours.mean())

    assert repeats(clustered) > 4 * repeats(alone)
    assert same_size(clustered) > same_size(alone) + 0.1
    assert varies(clustered) > 1.2 * varies(alone)
    times = [job.submit_time for job in clustered.jobs]
    assert times == sorted(times)
    # The same strata in another order: marginal figures are as exact as without.
    assert np.quantile(clustered.duration_s, (0.5, 0.9, 0.99)) == pytest.approx(
        np.quantile(alone.duration_s, (0.5, 0.9, 0.99)), rel=0.02
    )
    for row in matches(clustered, replace(VENUS, campaigns=CAMPAIGNS)):
        assert "at most" in row.target or abs(row.off) < 0.12, row
    assert len({job.vc for job in clustered.jobs}) > 10


@settings(max_examples=30)
@given(st.integers(1, 400), st.integers(0, 99), st.floats(1.1, 4), st.integers(1, 1000))
def test_campaigns_hold_all_jobs_and_stay_in_their_time(
    jobs: int, seed: int, tail: float, most: int
) -> None:
    rng = np.random.default_rng(seed)
    campaigns = replace(CAMPAIGNS, tail=tail, most=most)
    sizes = campaigns.sizes(jobs, rng)
    assert sizes.sum() == jobs
    assert sizes.min() >= 1
    assert sizes.max() <= most
    begun = np.sort(rng.uniform(1e9, 1e9 + 1e5, len(sizes)))
    times, campaign = campaigns.times(begun, sizes, rng)
    assert (np.diff(times) >= 0).all()
    assert times[0] >= np.floor(begun[0])
    assert times[-1] <= begun[-1] + 1
    assert sorted(np.bincount(campaign)) == sorted(sizes)


def test_campaigns_of_a_calibration_are_checked() -> None:
    values = {**vars(CAMPAIGNS), "gap_s": 0.0}
    with pytest.raises(ValueError, match="gap_s is not above 0"):
        Campaigns.of(values)
    with pytest.raises(ValueError, match="alike is a share"):
        Campaigns.of({**vars(CAMPAIGNS), "alike": 1.5})
    assert Campaigns.of(None) is None
