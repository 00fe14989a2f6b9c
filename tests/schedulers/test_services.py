"""Services beside training: requests to replicas, windows, and what borrows them, by hand."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from cli_runner import Cli

from schedmate.base.errors import InputError
from schedmate.schedulers.policies.spot import Spot
from schedmate.schedulers.sim.traces.serving import (
    Request,
    Service,
    plan_replicas,
    read_requests,
    serving_workload,
)
from schedmate.schedulers.sim.workload import Workload
from tests.schedulers.worlds import of, run

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:51.6805900,396,109\n"
)
MOONCAKE = (
    '{"timestamp": 27000, "input_length": 5, "output_length": 6, "hash_ids": [0]}\n'
    '{"timestamp": 24000, "input_length": 3, "output_length": 4}\n'
)
# Of 10 s periods: 25 s of work, then 5, then 5, then 15. A replica takes 1 token in a second.
LOAD = [Request(0.0, 25, 0), Request(10.0, 0, 5), Request(29.0, 5, 0), Request(30.0, 5, 10)]
SERVICE = Service(2, 1.0, 1.0, period_s=10.0, hold=1, headroom=0.0)


def test_requests_of_azure_and_mooncake(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv.gz"
    path.write_bytes(gzip.compress(AZURE.encode()))
    assert read_requests(path) == [Request(0.0, 374, 44), Request(5.0, 396, 109)]
    other = tmp_path / "mooncake.jsonl"
    other.write_text(MOONCAKE)
    assert read_requests(other) == [Request(0.0, 3, 4), Request(3.0, 5, 6)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "no trace of requests"),
        (AZURE + "yesterday,1,2\n", "line 4: no request"),
        (AZURE.splitlines()[0] + "\n", "holds no request"),
        ('{"timestamp": 1}\n', "line 1: no request"),
        (MOONCAKE + '{"timestamp": 1, "input_length": -1, "output_length": 1}\n', "line 3"),
    ],
)
def test_what_is_no_request(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "requests"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_requests(path)


def test_an_autoscaler_knows_the_past() -> None:
    plan = plan_replicas(LOAD, SERVICE)
    assert plan.load == [2.5, 0.5, 0.5, 1.5]
    # All at first; then what the period before needed: 3, 1, 1. In the last period 0.5 is late.
    assert plan.active == [3, 3, 1, 1]
    assert plan.late == pytest.approx(0.5 / 5)
    assert plan.windows(10.0) == [[], [(20.0, 40.0)], [(20.0, 40.0)]]
    held = plan_replicas(LOAD, Service(2, 1.0, 1.0, 10.0, hold=2, headroom=0.0))
    assert held.active == [3, 3, 3, 1]
    few = plan_replicas(LOAD, SERVICE, replicas=2)
    assert (few.active, few.late) == ([2, 2, 1, 1], pytest.approx(1.0 / 5))
    twice = plan_replicas(LOAD, Service(2, 1.0, 1.0, 10.0, 1, 0.0, repeat=2))
    assert twice.active == [3, 3, 1, 1, 2, 3, 1, 1]
    long = plan_replicas(LOAD, Service(2, 1.0, 1.0, 10.0, 1, 0.0, stretch=2.0, scale=2.0))
    assert sum(long.load) == pytest.approx(4 * sum(plan.load))


def test_training_borrows_what_a_service_does_not_need() -> None:
    training = Workload.of([(0.0, 15.0, 2), (1.0, 100.0, 2)])
    training.standby = {1: [(90.0, 95.0)]}
    workload = serving_workload(plan_replicas(LOAD, SERVICE), SERVICE, "chat", training)
    assert workload.standby[4] == [(90.0, 95.0)]
    assert [job.terms.low for job in workload.jobs if job.terms] == [False] * 3 + [True] * 2
    outcome = run(workload, Spot(), "1x8")
    # The three replicas hold 6 of 8 GPUs. The first job takes the rest; the second runs from 20 on
    # GPUs that are lent, must leave at 40, where the services end too, and goes on.
    assert outcome.first_start[3] == 0.0
    assert outcome.first_start[4] in (15.0, 20.0)
    assert [of(outcome, replica)[0][:2] for replica in range(3)] == [(0.0, 40.0)] * 3


def test_the_command(cli: Cli, tmp_path: Path) -> None:
    requests, jobs, both = (tmp_path / name for name in ("azure.csv", "jobs.csv", "both.csv"))
    requests.write_text(AZURE)
    jobs.write_text("job_id,submit_s,duration_s,gpus\na,0,100,4\n")
    done = cli(
        *("traces", "serve", str(requests), "--prefill", "100", "--decode", "10", "--period", "5s"),
        *("--beside", str(jobs), "-o", str(both)),
    )
    assert "replicas for a load of" in done.err
    assert "synthetic" in both.read_text()
    ran = cli("simulate", str(both), "--policy", "spot", "--cluster", "4x8")
    assert ran.code == 0, ran.err
    assert cli("traces", "serve", str(jobs), "--prefill", "1", "--decode", "1").code == 3
