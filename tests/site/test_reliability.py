"""Goodput of large trainings: the formula by hand and by simulation, rates, and the command."""

from __future__ import annotations

import json
import random
from math import exp, log, sqrt
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Cli

from schedmate.site.accounting import AccountedJob
from schedmate.site.reliability import (
    DAY_S,
    Cause,
    Training,
    best_interval,
    daly_interval,
    published_rates,
    shares,
    simulated,
    site_rates,
    young_interval,
)

DAILY = Training(1, (Cause("any", 1.0, 0.0, 0.0, hardware=True),), write_s=0.0)


def training(**changes: Any) -> Training:
    """Ten nodes that fail once in ten days each: the job once a day."""
    cause = Cause("any", 0.1, changes.pop("detect", 0.0), changes.pop("restart", 0.0), True)
    return Training(**({"nodes": 10, "causes": (cause,), "write_s": 600.0} | changes))


def test_the_formula_by_hand() -> None:
    # One failure a day, checkpoints of no cost every ln 2 days: the chance to get from one to the
    # next is 1/2, and takes (e^ln2 - 1) / 1 = one day on average: ln 2 days of progress a day.
    found = shares(DAILY, log(2) * DAY_S)
    assert found.ettr == pytest.approx(log(2))
    assert found.lost == pytest.approx(1 - log(2))
    # A checkpoint that can be restored only ln 2 days later doubles that.
    lagging = Training(1, DAILY.causes, 0.0, save_s=log(2) * DAY_S)
    assert shares(lagging, log(2) * DAY_S).ettr == pytest.approx(log(2) / 2)
    # A day to notice a failure: half of the time; a restart of ln 2 days fails half of the time.
    slow = Training(1, (Cause("any", 1.0, DAY_S, 0.0),), 0.0)
    assert shares(slow, 1.0).detecting == pytest.approx(0.5)
    again = Training(1, (Cause("any", 1.0, 0.0, log(2) * DAY_S),), 0.0)
    assert shares(again, 1.0).restarting == pytest.approx(0.5)
    assert shares(DAILY.scaled(0), 60.0).ettr == 1.0
    assert shares(DAILY.scaled(1e9), DAY_S).ettr == 0.0


def test_waiting_for_repairs_is_erlangs_loss() -> None:
    # Load 1: no spare is one server, which loses 1/2; one spare is two servers, which lose 1/5.
    for spares, loss in ((0, 1 / 2), (1, 1 / 5), (2, 1 / 16)):
        one = training(spares=spares, repair_s=DAY_S)
        assert one.broken == pytest.approx(1.0)
        assert shares(one, 3600.0).waiting == pytest.approx(loss)
    assert training(repair_s=DAY_S).waiting() == 0.0


@pytest.mark.parametrize("write", [1.0, 60.0, 3600.0, 40_000.0])
def test_the_best_interval_is_the_best(write: float) -> None:
    one = training(write_s=write, detect=300.0, restart=900.0)
    best = best_interval(one)
    at_best = shares(one, best).ettr
    assert all(shares(one, best * factor).ettr < at_best for factor in (0.9, 0.99, 1.01, 1.1))
    assert best == best_interval(training(write_s=write))  # no cost of a failure enters
    assert best == pytest.approx(daly_interval(write, one.mtbf_s), rel=0.05)
    assert young_interval(write, one.mtbf_s) == sqrt(2 * write * DAY_S)
    # One checkpoint is complete before the next is due.
    assert best_interval(training(write_s=write, save_s=DAY_S)) >= DAY_S - write


@pytest.mark.parametrize(
    "one",
    [
        training(detect=600.0, restart=1200.0),
        training(nodes=100, save_s=300.0, write_s=20.0, detect=60.0, restart=600.0),
        training(nodes=30, spares=2, repair_s=DAY_S / 2, restart=900.0),
        Training(20, (Cause("a", 0.2, 900.0, 60.0), Cause("b", 0.1, 0.0, 3600.0)), 120.0),
    ],
)
def test_the_formula_against_simulation(one: Training) -> None:
    interval, rng = 2400.0, random.Random(7)
    runs = [simulated(one, interval, 60 * DAY_S, rng) for _ in range(60)]
    mean = sum(runs) / len(runs)
    error = sqrt(sum((run - mean) ** 2 for run in runs) / len(runs) / (len(runs) - 1))
    found = shares(one, interval)
    assert found.ettr == pytest.approx(mean, abs=4 * error + 0.001)
    assert sum(found.model_dump().values()) == pytest.approx(1.0)


def test_published_rates() -> None:
    known = published_rates()
    llama = known["llama3"]
    assert llama.failures == 419
    assert llama.per_node_day()[0] == pytest.approx(419 / 54 / 2048)
    assert sum(one.per_node_day for one in llama.as_causes(0, 0)) == pytest.approx(419 / 54 / 2048)
    # 6.5 per 1,000 node-days: 1.8 hours on 16,384 GPUs, 0.23 on 131,072, as the paper projects.
    for gpus, hours in ((16_384, 1.8), (131_072, 0.23)):
        job = Training(gpus // 8, known["rsc-1"].as_causes(0, 0), 60.0)
        assert job.mtbf_s / 3600 == pytest.approx(hours, rel=0.03)
    halves = llama.for_nodes_of(4)
    assert halves.per_node_day()[0] == pytest.approx(llama.per_node_day()[0] / 2)
    assert all(rates.sources[0].startswith("https://arxiv.org/abs/") for rates in known.values())


def accounted(number: int, state: str, hosts: tuple[str, ...]) -> AccountedJob:
    return AccountedJob(
        str(number), state, run_s=DAY_S, gpus=8.0 * len(hosts), nodes=len(hosts), hosts=hosts
    )  # type: ignore[arg-type]


def test_rates_of_a_site() -> None:
    # 40 jobs of two nodes for a day, six failed, all on n0; jobs without GPUs do not count.
    jobs = [
        accounted(
            number, "NODE_FAIL" if number < 6 else "COMPLETED",
            ("n0", "n1") if number < 7 else (f"n{2 + number % 8}", f"n{10 + number % 7}"),
        )
        for number in range(40)
    ]  # fmt: skip
    found = site_rates([*jobs, AccountedJob("x", "NODE_FAIL", run_s=1e6, nodes=100.0)], "jobs", 8)
    assert found.rates.node_days == 80.0
    assert found.rates.per_node_day()[0] == 6 / 80
    (state,) = found.states
    # Garwood's interval of 6 is 2.20 to 13.06.
    assert (state.jobs, state.low, state.high) == (
        6,
        pytest.approx(2.2019 / 80 * 1000, rel=1e-3),
        pytest.approx(13.0595 / 80 * 1000, rel=1e-3),
    )
    assert found.lemons is not None
    assert set(found.lemons.nodes) <= {"n0", "n1"}
    assert found.lemons.per_1000_node_days < 1000 * 6 / 80


def test_the_command(cli: Cli, tmp_path: Path) -> None:
    asked = "goodput --gpus 4096 --mtbf 12h --checkpoint 30m --write 1m --detect 2m --restart 8m"
    found = json.loads(cli(*f"{asked} --repair 1d --spares 2 --lemons 1%:100 --json".split()).out)
    rate = 1 / (12 * 3600)
    expected = (
        *(1 / (1 + rate * 120), exp(-rate * 480)),
        rate * 1800 / (exp(rate * 1860) - 1),
    )
    assert found["asked"]["ettr"]["value"] == pytest.approx(
        expected[0] * expected[1] * expected[2] * (1 - found["asked"]["shares"]["waiting"])
    )
    assert found["asked"]["goodput"] == pytest.approx(found["asked"]["ettr"]["value"] * 512 / 514)
    assert found["naive"] == pytest.approx(1 - 600 / 43200)
    low, high = found["asked"]["run"]
    assert low < found["asked"]["ettr"]["value"] < high
    assert found["best"]["ettr"]["value"] >= max(one["ettr"] for one in found["intervals"])
    assert found["best_spares"] == max(found["spares"], key=lambda one: one["goodput"])["spares"]
    assert [size["gpus"] for size in found["sizes"]] == [512 * 2**k for k in range(7)]
    assert found["lemons"]["per_1000_node_days"] == pytest.approx(
        found["per_1000_node_days"]["value"] / 1.99
    )
    said = cli("goodput", "--gpus", "16384", "--repair", "2d").out
    assert "419 unexpected interruptions" in said
    assert "Most progress per GPU held" in said
    assert "The failure rate is not yours" in said
    listed = tmp_path / "jobs.csv"
    listed.write_text(
        "id,state,submit,start,run_s,gpus,nodes\n"
        + "".join(f"{k},{'NODE_FAIL' if k < 2 else 'COMPLETED'},0,0,86400,16,2\n" for k in range(9))
    )
    own = json.loads(cli("goodput", "--gpus", "16", "--sacct", str(listed), "--json").out)
    assert own["per_1000_node_days"]["value"] == pytest.approx(1000 * 2 / 18)
    assert own["best"]["ettr"]["low"] < own["best"]["ettr"]["value"] < own["best"]["ettr"]["high"]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ("--mtbf 3h --rates llama3", 2, "--mtbf and --rates exclude each other"),
        ("--mtbf 0", 2, "--mtbf 0 is no time"),
        ("--rates lama3", 2, "no published failure rates are named 'lama3'"),
        ("--spares 3", 2, "--spares needs --repair"),
        ("--write 0", 2, "checkpoints that cost nothing"),
        ("--lemons much", 2, "--lemons much: write a share of nodes and a factor"),
        ("--sacct {none}", 3, "no job ended in"),
    ],
)
def test_what_it_refuses(cli: Cli, tmp_path: Path, options: str, code: int, said: str) -> None:
    none = tmp_path / "none.csv"
    none.write_text("id,state,submit,start,run_s,gpus\n1,COMPLETED,0,0,86400,8\n")
    result = cli(*f"goodput --gpus 64 {options.format(none=none)}".split())
    assert (result.code, said in result.err) == (code, True), result.err
