"""What a batch is made of: directories, globs, lists of jobs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.base.errors import InputError
from schedmate.logparse.triage import find_targets
from schedmate.logparse.triage.targets import expand_hosts


def test_in_a_directory_each_file_and_each_subdirectory_is_a_job(tmp_path: Path) -> None:
    (tmp_path / "b.log").write_text("x\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "rank0.log").write_text("x\n")
    (tmp_path / ".hidden").write_text("x\n")
    batch = find_targets(str(tmp_path))
    assert [(one.index, one.job_id, one.log.name) for one in batch.targets] == [
        (0, "a", "a"),
        (1, "b", "b.log"),
    ]


def test_what_is_no_file_is_left_out_and_said(tmp_path: Path) -> None:
    (tmp_path / "1.out").write_text("text\n")
    (tmp_path / "2.out").symlink_to(tmp_path / "gone")
    os.mkfifo(tmp_path / "3.out")

    batch = find_targets(str(tmp_path))

    assert [target.job_id for target in batch.targets] == ["1"]
    assert [warning.split()[0] for warning in batch.warnings] == [
        str(tmp_path / "2.out"),
        str(tmp_path / "3.out"),
    ]


STEPS = "".join(f"iteration {n}/ 900 | lm loss: 2.{n} | 0.12 s/it\n" for n in range(1, 30))
PAGE = (
    "# Trainer\n\nIf you see CUDA out of memory, use a smaller batch for this model.\n\n"
    "## What fails\n\nThe log then ends as this one does, in our experience on one card:\n\n"
    "```\nTraceback (most recent call last):\nRuntimeError: CUDA out of memory.\n```\n"
)
TABLE = "file,kind,note\n" + "a.out,none,CUDA out of memory\n" * 9
PROGRAM = (
    "import torch\n\n\ndef main():\n    raise RuntimeError('CUDA out of memory')\n\n\nmain()\n"
)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("README.md", PAGE, "prose"),
        ("book.txt", PAGE.replace("Traceback (most recent call last):\n", ""), "prose"),
        ("index.csv", TABLE, "a table"),
        ("table.log", TABLE, "a table"),
        ("train.py", PROGRAM, "a program"),
        ("settings.yaml", "model: gpt\nlr: 0.1\nsteps: 5\n", "named as another format"),
        (
            "result.json",
            '{\n "error": "CUDA out of memory",\n "loss": 1\n}\n',
            "a document in JSON",
        ),
    ],
)
def test_what_is_no_log_by_its_content_is_left_out_and_named(
    name: str, text: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "job.out").write_text(STEPS)
    (tmp_path / name).write_text(text)
    batch = find_targets(str(tmp_path))
    assert [target.log.name for target in batch.targets] == ["job.out"]
    assert f"1 file of {tmp_path} left out, no log: {name} ({why}" in batch.warnings[0]
    named = find_targets(str(tmp_path / f"*{Path(name).suffix}"))
    assert name in [target.log.name for target in named.targets], "a glob names it"


@pytest.mark.parametrize("name", ["job.md", "job.csv", "job.py", "job.json", "job.txt", "job"])
@pytest.mark.parametrize(
    "text",
    [
        STEPS,
        "".join(f"2024-01-01 10:00:{n:02} INFO step {n}\n" for n in range(30)),
        "[rank0]: loading\n" * 9 + "Traceback (most recent call last):\nKeyError: 'x'\n",
        "I tensorflow/stream_executor/dso_loader.cc:135] opened CUDA library\n" * 9,
    ],
)
def test_a_run_in_the_content_outweighs_the_name(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert [target.log.name for target in find_targets(str(tmp_path)).targets] == [name]


def test_runs_are_named_as_trackers_and_launchers_name_them(tmp_path: Path) -> None:
    text = "step 1/9 loss 2.0\n" * 3 + "KeyError: 'a'\n"
    for run, about in (
        ("run-20240131_101112-abcd1234", {"username": "ann", "gpu_count": 8, "program": "t.py"}),
        ("offline-run-20240131_101112-efgh5678", ["not what W&B writes"]),
    ):
        files = tmp_path / "project" / "wandb" / run / "files"
        files.mkdir(parents=True)
        (files / "output.log").write_text(text)
        (files / "wandb-metadata.json").write_text(json.dumps(about))
    ray = tmp_path / "ray" / "session_2024-01-31_10-11-12_123456_1" / "logs"
    ray.mkdir(parents=True)
    (ray / "job-driver-raysubmit_ab12.log").write_text(text)
    found = find_targets(str(tmp_path / "project"), recursive=True).targets
    told = [(one.job_id, one.user, one.gpus) for one in found]
    assert sorted(told, key=str) == [("abcd1234", "ann", 8), ("efgh5678", None, None)]
    (driver,) = find_targets(str(tmp_path / "ray"), recursive=True).targets
    assert driver.job_id == "raysubmit_ab12"


def test_jobs_of_equal_names_are_told_apart(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "out.log").write_text("x\n")
    targets = find_targets(str(tmp_path / "*" / "*.log")).targets
    assert [one.job_id for one in targets] == [str(one.log) for one in targets]
    assert len({one.job_id for one in targets}) == 2


def test_a_list_of_jobs(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(
        "\ufeffJobID;Log File;Elapsed;GPUs;NodeList;State\n"
        "7;logs/7.out;1-02:00:00;16;gpu[08-09],gpu11;FAILED\n"
        ";;;;;\n"
        "8;/var/8.out;soon;-1;2;\n"
        "9;;1h;;;\n"
    )
    batch = find_targets(str(tmp_path / "jobs.csv"))
    first, second = batch.targets
    assert (first.job_id, first.log) == ("7", tmp_path / "logs/7.out")
    assert (first.duration_s, first.gpus, first.state) == (26 * 3600, 16, "FAILED")
    assert first.nodes == ("gpu08", "gpu09", "gpu11")
    assert first.gpu_hours == 26 * 16
    assert (second.log, second.duration_s, second.gpus, second.nodes) == (
        Path("/var/8.out"),
        None,
        None,
        (),
    )
    assert [text.partition(" of ")[0] for text in batch.warnings] == ["line 4", "line 4", "line 5"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no column `log` .it has: none"),
        ("job_id,gpus\n1,8\n", "has no column `log` .it has: job_id, gpus"),
        ("just a log line\nTraceback\n", "use `schedmate diagnose`"),
        ("job_id,log\n", "lists no jobs"),
        ("\x1f\x00\x08packed", "is not text; a job list is a CSV file"),
    ],
)
def test_a_file_that_is_no_list_of_jobs(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        find_targets(str(path))


def test_a_column_that_is_mistyped_is_named(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("log,durtion,gpus,cost,gpu\na.log,3h,8,1,0\n")
    assert [one.replace(str(path), "CSV") for one in find_targets(str(path)).warnings] == [
        "column 'durtion' of CSV is not read; did you mean duration?"
    ]


def test_nothing_to_triage(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no logs"):
        find_targets(str(tmp_path))
    with pytest.raises(InputError, match="holds no logs"):
        find_targets(str(tmp_path / "*.log"))
    with pytest.raises(InputError, match="there is no "):
        find_targets(str(tmp_path / "missing"))


@given(st.lists(st.integers(0, 999), min_size=1, max_size=30, unique=True))
def test_host_lists_are_expanded(numbers: list[int]) -> None:
    text = "n[" + ",".join(f"{number:03d}" for number in numbers) + "]"
    assert expand_hosts(text) == tuple(f"n{number:03d}" for number in numbers)


def test_odd_host_lists() -> None:
    assert expand_hosts("4") == expand_hosts("") == ()
    assert expand_hosts("a1, b2;a1") == ("a1", "b2")
    assert expand_hosts(f"n[{'9' * 5000}],a1") == ("a1",)
    assert expand_hosts("rack[1-2]-gpu") == ("rack1-gpu", "rack2-gpu")
    assert len(expand_hosts("n[0-99999999]")) == 20_000
    assert expand_hosts("n[9-1],n[-],x") == ("x",)
