"""A user who runs many short jobs that look like those of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.cluster.bounds import OrderBounds, order_value
from schedmate.jobs import JobRecord
from schedmate.mate import SchedMate
from schedmate.settings import load_settings

NOW = 1.7e9
BERT = {
    "model_config": {"model_name": "bert-base", "task_type": "NLP"},
    "training_config": {"batch_size": 32, "iters": 1000, "lr": 1e-4, "optimizer": "adamw"},
    "dataset_config": {"train": "squad"},
}


def run(number: int, user: str, took_s: float, began: float) -> JobRecord:
    return JobRecord.model_validate(
        {
            "job_id": f"{user}-{number}", "user": user, "name": "bert", "metadata": BERT,
            "command": "python train.py", "launch": {"gpus": 4}, "state": "COMPLETED",
            "submit_time": began, "start_time": began, "end_time": began + took_s,
            "duration_s": took_s,
        }
    )  # fmt: skip


@pytest.mark.parametrize("took_s", [10.0, 1e6])
@pytest.mark.parametrize("fakes", [30, 200])
def test_one_user_does_not_decide_how_long_the_jobs_of_others_run(
    took_s: float, fakes: int, tmp_path: Path
) -> None:
    """Who has runs of their own is given no wrong time; at worst there is none, and no order."""
    honest = [run(n, ("ann", "bob")[n % 2], 3600 + 60 * (n % 5), NOW + 4e3 * n) for n in range(30)]
    fake = [run(n, "eve", took_s, NOW + 13e4 + 60 * n) for n in range(fakes)]
    with SchedMate(load_settings(history=str(tmp_path / "history"), mode="static")) as mate:
        mate.learn([*honest, *fake])
        job = run(999, "ann", 1.0, NOW + 3e6).model_copy(update={"state": "PENDING"})
        told = mate.estimate(job.metadata, job.launch, NOW + 3e6, job)
    if not told.abstained:
        assert 3000 < (told.duration_s or 0.0) < 4500
    bounds = OrderBounds(allowed=True)
    late = bounds.ageing + 1
    assert order_value(bounds, told, trust=1.0, waited_s=late) == bounds.highest
