"""Jobs of other kinds are never neighbours, and a server has no run time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from schedmate.cluster.advising import note_of
from schedmate.jobs import Estimate, JobRecord, JobSpec, LaunchConfig, WorkloadMetadata
from schedmate.mate import SchedMate
from schedmate.retrieval.advisor import SchedulingAdvisor
from schedmate.retrieval.embedders import load_embedder
from schedmate.retrieval.history import JobHistory
from schedmate.retrieval.similarity import render
from schedmate.settings import load_settings

ONE_GPU = LaunchConfig(gpus=1)
NOW = 2_000_000.0


def _job(kind: str, data: str = "gsm8k") -> WorkloadMetadata:
    job = {"dataset_config": {"train": data}} if kind in ("training", "fine-tuning") else {}
    if kind in ("evaluation", "batch inference"):
        job = {"job_config": {"tasks" if kind == "evaluation" else "data": data}}
    model = {"model_name": "gpt2", "task_type": "NLP"}
    return WorkloadMetadata.model_validate({"job_kind": kind, "model_config": model, **job})


@pytest.fixture
def history(tmp_path: Path) -> Iterator[JobHistory]:
    with JobHistory.open(tmp_path / "history", load_embedder()) as opened:
        for number, kind in enumerate(("training", "serving", "evaluation", "batch inference")):
            for again in range(3):
                opened.add(
                    JobRecord(
                        job_id=f"{kind}-{again}",
                        metadata=_job(kind),
                        launch=ONE_GPU,
                        state="COMPLETED",
                        end_time=1_000_000.0 + again,
                        duration_s=100.0 * 10**number + again,
                    )
                )
        yield opened


@pytest.mark.parametrize("kind", ["training", "fine-tuning", "evaluation", "batch inference"])
def test_only_jobs_of_the_same_kind_are_neighbours(history: JobHistory, kind: str) -> None:
    advisor = SchedulingAdvisor(history, threshold=-1.0)
    estimate = advisor.estimate(_job(kind, "gsm8k_cot"), ONE_GPU, NOW)
    kinds = {neighbour.job_id.rpartition("-")[0] for neighbour in estimate.neighbours}
    assert kinds == {"training" if kind == "fine-tuning" else kind}


def test_a_server_is_found_by_servers_alone(history: JobHistory) -> None:
    found = history.search(_job("serving"), 10, -1.0)
    assert {match.record.metadata.job_kind for match in found} == {"serving"}


def test_a_server_has_no_run_time(history: JobHistory) -> None:
    estimate = SchedulingAdvisor(history).estimate(_job("serving"), ONE_GPU, NOW)
    assert estimate.endless
    assert estimate.abstained
    assert estimate.duration_s is None
    assert estimate.neighbours == []
    assert "does not end by itself" in str(estimate.reason)
    assert note_of(estimate).endswith("does not end by itself")


def test_the_text_of_a_training_is_as_ever_and_that_of_others_says_the_kind() -> None:
    assert render(_job("training")) == "model gpt2; dataset gsm8k; task nlp"
    assert render(_job("evaluation")) == "kind evaluation; model gpt2; dataset gsm8k; task nlp"


@pytest.mark.parametrize("stored", [False, True])
def test_the_hook_tells_the_scheduler_that_a_server_does_not_end(
    tmp_path: Path, stored: bool
) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "serve.sh").write_text("python -m vllm.entrypoints.openai.api_server --model gpt2\n")
    with SchedMate(load_settings(history=tmp_path / "history"), record=stored) as mate:
        spec = JobSpec(repo=str(repo), command="bash serve.sh")
        estimate = mate.on_submit(spec, deadline_s=60.0)
        assert isinstance(estimate, Estimate)
        assert (estimate.endless, estimate.duration_s) == (True, None)
        train = JobSpec(repo=str(repo), command="python missing.py")
        assert mate.on_submit(train, deadline_s=60.0) is None
