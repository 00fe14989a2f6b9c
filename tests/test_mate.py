"""The library hook: answers in time or not at all, never raises, serves many threads."""

from __future__ import annotations

import logging
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from schedmate import (
    Analysis,
    InputError,
    JobSpec,
    LaunchConfig,
    SchedMate,
    Settings,
    UsageError,
    load_settings,
)
from schedmate.agent.static import extract
from schedmate.base.errors import LimitError

ROOT = Path(__file__).parent.parent
REPO = str(ROOT / "examples" / "train_repo")
COMMAND = "torchrun --nproc_per_node=4 train.py model=resnet50 trainer.epochs=60"
SPEC = JobSpec(job_id="17", repo=REPO, command=COMMAND, launch=LaunchConfig(gpus=4, nodes=1))


@pytest.fixture
def mate(example_history: Path) -> Iterator[SchedMate]:
    with SchedMate(load_settings(history=example_history, deadline_s=60.0)) as one:
        yield one


def test_analyze_reads_the_example(mate: SchedMate) -> None:
    analysis = mate.analyze(SPEC)
    assert analysis.metadata.model.model_name == "resnet50"
    assert str(analysis.metadata.dataset.train).lower() == "cifar10"
    assert (analysis.metadata.training.iters, analysis.metadata.training.iter_type) == (60, "epoch")
    assert analysis.launch.gpus == 4
    assert analysis.history_size == 40
    assert not analysis.estimate.abstained
    assert set(analysis.timing_s) == {"static", "retrieval", "total"}
    assert analysis.timing_s["total"] >= analysis.timing_s["static"] > 0


def test_on_submit_gives_the_same_estimate(mate: SchedMate) -> None:
    estimate = mate.on_submit(SPEC)
    assert estimate is not None
    assert estimate.duration_p10_s is not None
    assert estimate.duration_p50_s is not None
    assert estimate.duration_p90_s is not None
    assert estimate.duration_p10_s <= estimate.duration_p50_s <= estimate.duration_p90_s
    # The example history has this job at 660 to 700 s on 4 GPUs.
    assert 300 < estimate.duration_p50_s < 1500
    assert sum(one.weight for one in estimate.neighbours) == pytest.approx(1)


def test_no_history_means_no_estimate_and_no_directory(tmp_path: Path) -> None:
    with SchedMate(load_settings(history=tmp_path / "none", deadline_s=60.0)) as mate:
        analysis = mate.analyze(SPEC)
        assert analysis.estimate.abstained
        assert analysis.history_size == 0
        assert mate.on_submit(SPEC) is None
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "spec",
    [
        JobSpec(),
        JobSpec(repo="/no/such/repository", command="python train.py"),
        JobSpec(repo=REPO, command="python missing.py 'unbalanced"),
        JobSpec(repo=REPO + "\0", command="python train.py"),
        JobSpec(repo="", command=""),
    ],
)
def test_a_bad_job_raises_nothing_into_the_scheduler(
    mate: SchedMate, spec: JobSpec, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "schedmate"):
        assert mate.on_submit(spec) is None


def test_analyze_does_raise(mate: SchedMate) -> None:
    for nothing in (JobSpec(), JobSpec(repo="")):
        with pytest.raises(UsageError, match="names no repository"):
            mate.analyze(nothing)
    with pytest.raises(InputError, match="/no/such/repository"):
        mate.analyze(JobSpec(repo="/no/such/repository"))


def test_a_failure_is_logged_without_control_sequences(
    mate: SchedMate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("schedmate.readers.EXTRACT", "confined_work:refuse_in_red")
    with caplog.at_level(logging.WARNING, "schedmate"):
        assert mate.on_submit(SPEC) is None
    assert caplog.messages == ["no estimate for job 17: deep red"]


@pytest.mark.parametrize("work", ["hold_the_interpreter", "spin", "sleep_deaf"])
def test_the_deadline_holds_while_the_analysis_hangs(
    mate: SchedMate,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    work: str,
) -> None:
    """And the jobs after it are answered, as often as that happens."""
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "schedmate"):
        patched.setattr("schedmate.readers.EXTRACT", f"confined_work:{work}")
        assert [mate.on_submit(SPEC, deadline_s=0.1) for _ in range(6)] == [None] * 6
    for message in caplog.messages:
        assert message.startswith("no estimate for job 17")
    assert mate.on_submit(SPEC) is not None


def test_a_deadline_that_has_passed_is_none(mate: SchedMate) -> None:
    assert mate.on_submit(SPEC, deadline_s=0) is None
    assert mate.on_submit(SPEC, deadline_s=-1) is None


def test_too_little_time_is_none_from_the_first_call_on(example_history: Path) -> None:
    with SchedMate(load_settings(history=example_history)) as mate:
        assert mate.on_submit(SPEC, deadline_s=1e-3) is None


def test_a_repository_that_takes_too_much_is_an_error(
    mate: SchedMate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedmate.readers.EXTRACT", "confined_work:eat_memory")
    with pytest.raises(LimitError, match=r"train_repo takes more than 2,048 MiB of memory to read"):
        mate.analyze(SPEC)
    monkeypatch.setattr("schedmate.readers.BACKSTOP", (1.0, 0.5))
    monkeypatch.setattr("schedmate.readers.EXTRACT", "confined_work:hold_the_interpreter")
    with pytest.raises(LimitError, match="of CPU time to read"):
        mate.analyze(SPEC, budget_s=0.4)


def test_a_confined_reading_says_what_a_direct_one_says(mate: SchedMate) -> None:
    direct = extract(Path(REPO), COMMAND, SPEC.launch)
    confined = mate.analyze(SPEC)
    assert confined.metadata == direct.metadata
    assert confined.launch == direct.launch
    assert confined.warnings == direct.warnings


@pytest.mark.parametrize("job", [SPEC, None])
def test_nonsense_raises_nothing_into_the_scheduler(mate: SchedMate, job: Any) -> None:
    assert mate.on_failure(job, None) is None  # type: ignore[arg-type]
    assert mate.on_failure(job, []) is None
    assert mate.on_failure(job, [None]) is None  # type: ignore[list-item]
    assert mate.on_progress(job, None) is None  # type: ignore[arg-type]
    assert mate.on_submit(None) is None  # type: ignore[arg-type]
    assert mate.on_submit(SPEC, deadline_s="soon") is None  # type: ignore[arg-type]


def test_a_child_that_the_scheduler_forks_is_answered(mate: SchedMate) -> None:
    """As a scheduler that forks for each submission does, while its other threads go on."""

    def duration_s() -> float | None:
        found = mate.on_submit(SPEC)
        return found and found.duration_s

    expected = duration_s()
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            mate.on_submit(SPEC)

    busy = [threading.Thread(target=keep_busy) for _ in range(3)]
    for one in busy:
        one.start()
    try:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = int(duration_s() != expected)
                mate.close()
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for one in busy:
            one.join()
    assert duration_s() == expected


def test_sixteen_threads(mate: SchedMate) -> None:
    expected = mate.analyze(SPEC).estimate
    barrier = threading.Barrier(16)

    def submit(number: int) -> float | None:
        barrier.wait()
        estimate = mate.on_submit(SPEC.model_copy(update={"job_id": str(number)}))
        return estimate.duration_p50_s if estimate else None

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(submit, range(16)))
    assert answers == pytest.approx([expected.duration_p50_s] * 16, rel=1e-3)


def test_record_stores_the_job(example_history: Path) -> None:
    settings = load_settings(history=example_history, deadline_s=60.0)
    with SchedMate(settings, record=True) as mate:
        assert mate.on_submit(SPEC) is not None
    with SchedMate(settings) as mate:
        assert mate.analyze(SPEC).history_size == 41


def test_recording_under_threads_loses_nothing(example_history: Path) -> None:
    settings = load_settings(history=example_history, deadline_s=120.0)
    with SchedMate(settings, record=True) as mate:
        specs = [SPEC.model_copy(update={"job_id": f"t-{number}"}) for number in range(16)]
        with ThreadPoolExecutor(16) as pool:
            assert None not in list(pool.map(mate.on_submit, specs))
        assert mate.analyze(SPEC).history_size == 56


def test_closed_means_none(example_history: Path, caplog: pytest.LogCaptureFixture) -> None:
    mate = SchedMate(Settings(history=example_history))
    mate.close()
    mate.close()
    with caplog.at_level(logging.WARNING, "schedmate"):
        assert mate.on_submit(SPEC) is None
    assert "closed" in caplog.text
    with pytest.raises(UsageError, match="closed"):
        mate.analyze(SPEC)


def test_an_analysis_is_data(mate: SchedMate) -> None:
    analysis = mate.analyze(SPEC)
    again = Analysis.model_validate_json(analysis.model_dump_json(by_alias=True))
    assert again.document() == analysis.document()


def test_a_schedulers_own_logging_is_left_alone(example_history: Path) -> None:
    code = (
        "import logging, pathlib, sys; from schedmate import JobSpec, SchedMate, load_settings; "
        "mate = SchedMate(load_settings(history=pathlib.Path(sys.argv[1]))); mate.prepare(); "
        "root = logging.getLogger(); print(root.handlers, root.level)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, example_history], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == (f"[] {logging.WARNING}\n", "")


def test_the_toy_scheduler(example_history: Path) -> None:
    toy = runpy.run_path(str(ROOT / "examples" / "toy_scheduler.py"))
    day = LaunchConfig(gpus=4, nodes=1, time_limit_s=86_400)
    commands = {
        "long": COMMAND.replace("=60", "=90"),
        "unknown": "python missing.py",
        "short": COMMAND.replace("=60", "=30"),
    }
    queue = [
        JobSpec(name=name, repo=REPO, command=command, launch=day)
        for name, command in commands.items()
    ]
    with SchedMate(load_settings(history=example_history, deadline_s=60.0)) as mate:
        assert [spec.name for spec in toy["order"](queue, mate)] == ["short", "long", "unknown"]


@pytest.mark.parametrize("job", [None, 5, object()])
@pytest.mark.parametrize("logs", [None, 5, [], [None], "a" * 5_000, "\0", "\udcff", {"a": 1}])
def test_arguments_that_are_none_raise_nothing_into_the_scheduler(
    mate: SchedMate, job: Any, logs: Any
) -> None:
    assert mate.on_failure(job, logs) is None
    assert mate.on_failure(SPEC, "/no/such/log", node_logs=logs) is None
    assert mate.on_failure(SPEC, logs, deadline_s=float("nan")) is None
    assert mate.on_progress(job, logs) is None
    assert mate.on_progress(SPEC, logs, since=-1, deadline_s=1e308) is None
    assert mate.on_submit(job) is None
    for deadline in (float("nan"), -1.0, "soon"):
        assert mate.on_submit(job, deadline_s=deadline) is None


def test_an_embedder_that_ends_the_process_ends_no_scheduler(
    tmp_path: Path, example_history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "quits.py").write_text("class Quits:\n    def __init__(self):\n        exit(0)\n")
    (tmp_path / "quits_late.py").write_text(
        "class Quits:\n    id, dim, threshold = 'q', 3, 0.5\n"
        "    def embed(self, texts):\n        raise SystemExit(0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("quits.Quits", "quits_late.Quits"):
        history = tmp_path / name
        with SchedMate(load_settings(history=history, embedder=name), record=True) as mate:
            assert mate.on_submit(SPEC) is None
    with SchedMate(load_settings(history=example_history, embedder="quits.Quits")) as mate:
        with pytest.raises(UsageError, match="fails: SystemExit"):
            mate.analyze(SPEC)
