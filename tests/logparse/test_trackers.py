"""Directories in which an experiment tracker keeps its own records beside the job's logs."""

from __future__ import annotations

from pathlib import Path

from schedmate.logparse.reading import open_log
from schedmate.logparse.triage import find_targets

RUN = "wandb/run-20240131_101112-abcd1234"


def make(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("step 1 loss 0.5\n")


def test_what_the_tracker_writes_for_itself_is_no_log_of_the_job(tmp_path: Path) -> None:
    job = tmp_path / "job"
    make(job, "train.log", "wandb/debug.log", "wandb/debug-internal.log")
    make(job, f"{RUN}/logs/debug-internal.log", f"{RUN}/files/config.yaml")
    make(job, f"{RUN}/files/output.log", "wandb/notes.log", "debug.log")
    with open_log(job) as log:
        names = sorted(file.name.removeprefix(f"{job}/") for file in log.files)
    assert names == ["debug.log", "train.log", "wandb/notes.log", f"{RUN}/files/output.log"]
    with open_log(job / RUN) as log:
        assert [file.name for file in log.files] == [str(job / RUN / "files/output.log")]


def test_a_batch_has_no_job_for_the_tracker(tmp_path: Path) -> None:
    make(tmp_path, "a.log", "b.log", f"{RUN}/logs/debug.log", f"{RUN}/files/output.log")
    assert [one.job_id for one in find_targets(str(tmp_path)).targets] == ["a", "b"]
    found = find_targets(f"{tmp_path}/**/*.log").targets
    assert sorted(one.log.name for one in found) == ["a.log", "b.log", "output.log"]
