"""Whether estimates can outrank what the site's own factors say of the jobs that wait."""

from __future__ import annotations

from schedmate.cluster.slurm.doctor import order_check

WEIGHTS = {"Age": 1000, "FairShare": 0, "Partition": 1_000_000}


def test_a_weight_that_every_job_gets_is_no_spread() -> None:
    jobs = [("ann", "1", 11_000), ("bob", "2", 10_400), ("cid", "3", 10_500)]

    check = order_check(jobs, 5000, WEIGHTS)

    assert check.status == "warning"
    assert "lie 600 apart" in check.fact
    assert "job 1 of ann" in check.fact
    assert "2 jobs of 2 other users" in check.fact


def test_a_band_below_the_spread_is_fine_and_one_user_cannot_pass_himself() -> None:
    assert order_check([("ann", "1", 90_000), ("bob", "2", 10)], 5000, WEIGHTS).status == "ok"
    assert order_check([("ann", "1", 900), ("ann", "2", 10)], 5000, WEIGHTS).status == "ok"


def test_of_an_empty_queue_the_weights_besides_the_partitions_count() -> None:
    assert order_check([], 5000, WEIGHTS).status == "warning"
    assert order_check([], 500, WEIGHTS).status == "ok"
