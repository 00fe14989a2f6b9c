"""`schedmate analyze --batch`: many jobs, results streamed, one bad line never ends the others."""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cli_runner import Cli
from processes import LONG_S, ended_in_time
from pyarrow.parquet import read_table

from schedmate.base.errors import InputError
from schedmate.commands import batch
from schedmate.jobs import JobSpec
from schedmate.mate import SchedMate
from schedmate.settings import load_settings

ROOT = Path(__file__).parent.parent
REPO = str(ROOT / "examples" / "train_repo")
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "analyze-v1.schema.json").read_text())


def job(number: int, **more: object) -> str:
    command = f"torchrun --nproc_per_node=4 train.py model=resnet50 trainer.epochs={number}"
    return json.dumps({"repo": REPO, "command": command, "job_id": f"b-{number}", **more})


def parse(out: str) -> dict[int, dict[str, Any]]:
    documents = [json.loads(line) for line in out.splitlines()]
    return {document["index"]: document for document in documents}


def test_results_carry_index_and_id(cli: Cli, tmp_path: Path, example_history: Path) -> None:
    jobs = tmp_path / "jobs.jsonl"
    jobs.write_text("\n".join([job(10), "", job(20, gpus=8, time_limit="2h"), job(30)]) + "\n")
    result = cli(
        "analyze", "--batch", str(jobs), "--processes", "2", "--history", str(example_history)
    )
    assert result.code == 0, result.err
    documents = parse(result.out)
    assert set(documents) == {0, 2, 3}
    for document in documents.values():
        jsonschema.validate(document, SCHEMA)
    assert documents[2]["job_id"] == "b-20"
    assert documents[2]["metadata"]["training_config"]["iters"] == 20
    assert documents[2]["launch"]["time_limit_s"] == 7200
    assert documents[0]["estimate"]["abstained"] is False


def test_bad_lines_are_errors_in_place(cli: Cli, tmp_path: Path) -> None:
    lines = [
        job(10),
        "not json",
        '{"command": "python train.py"}',
        '{"repo": "/no/such/repo", "job_id": "gone"}',
        job(10, gpu=4),
        job(10, time_limit="soon"),
        "[1, 2]",
    ]
    jobs = tmp_path / "jobs.jsonl"
    jobs.write_text("\n".join(lines))
    result = cli("analyze", "--batch", str(jobs), "--processes", "1")
    assert result.code == 3
    assert "6 of the lines could not be analysed" in result.err
    documents = parse(result.out)
    assert documents[0]["schema"] == "schedmate.analyze/v1"
    errors = {index: document for index, document in documents.items() if index}
    assert {document["schema"] for document in errors.values()} == {"schedmate.error/v1"}
    assert errors[1]["error"].startswith("line 2: ")
    assert "repo is missing" in errors[2]["error"]
    assert errors[3]["job_id"] == "gone"
    assert "/no/such/repo" in errors[3]["error"]
    assert "there is no key gpu; did you mean gpus?" in errors[4]["error"]
    assert errors[5]["exit_code"] == 2
    assert set(errors) == {1, 2, 3, 4, 5, 6}


def test_standard_input_streams(tmp_path: Path) -> None:
    """A result comes out while more input is still to come."""
    process = subprocess.Popen(
        [sys.executable, "-m", "schedmate", "analyze", "--batch", "-", "--processes", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "SCHEDMATE_HISTORY": str(tmp_path / "history")},
    )
    with ended_in_time(process):
        assert process.stdin is not None
        assert process.stdout is not None
        for number in (1, 2):
            process.stdin.write(job(number) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["job_id"] == f"b-{number}"
        process.stdin.close()
        assert process.stdout.read() == ""
        assert process.wait(LONG_S) == 0


def test_recorded_jobs_are_in_the_history(cli: Cli, tmp_path: Path, example_history: Path) -> None:
    jobs = tmp_path / "jobs.jsonl"
    jobs.write_text("\n".join(job(number) for number in range(10, 14)))
    place = ["--history", str(example_history)]
    result = cli("analyze", "--batch", str(jobs), "--record", "--processes", "2", *place)
    assert result.code == 0, result.err
    assert {one["recorded_as"] for one in parse(result.out).values()} == {
        f"b-{number}" for number in range(10, 14)
    }
    after = cli("analyze", REPO, "--json", *place)
    assert json.loads(after.out)["history_size"] == 44


def test_a_missing_file(cli: Cli) -> None:
    result = cli("analyze", "--batch", "/no/such/jobs.jsonl")
    assert result.code == 3
    assert "cannot read /no/such/jobs.jsonl: No such file" in result.err


def test_abstaining_can_fail(cli: Cli, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.jsonl"
    jobs.write_text(job(10))
    assert cli("analyze", "--batch", str(jobs), "--processes", "1").code == 0
    assert cli("analyze", "--batch", str(jobs), "--processes", "1", "--fail-on-abstain").code == 4


def test_a_dying_process_costs_one_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedmate.readers.EXTRACT", "confined_work:die_for_die_py")
    lines = [json.dumps({"repo": REPO, "command": f"{name}.py"}) for name in ("a", "die", "b")]
    with SchedMate(load_settings()) as mate:
        results = list(batch.analyze_many(lines, batch.Analyst(mate.settings, mate), at_once=2))
    documents = {result.document["index"]: result.document for result in results}
    assert set(documents) == {0, 1, 2}
    assert "its process was ended by signal 9" in documents[1]["error"]
    assert all("error" not in documents[index] for index in (0, 2))


def test_input_that_cannot_be_read_is_raised() -> None:
    def lines() -> Any:
        yield "{}"
        raise OSError("the disk is gone")

    with SchedMate(load_settings()) as mate, pytest.raises(OSError, match="the disk is gone"):
        list(batch.analyze_many(lines(), batch.Analyst(mate.settings, mate)))


def test_a_process_that_does_not_see_the_history_says_so(example_history: Path) -> None:
    """Else every estimate of that machine would abstain, and nobody would know why."""
    analyst = batch.Analyst(load_settings(history=str(example_history)))
    there = pickle.loads(pickle.dumps(analyst))
    with there.mate as mate:
        assert isinstance(mate, SchedMate)
    example_history.rename(example_history.with_name("elsewhere"))
    with pytest.raises(InputError, match=r"does not see the history .*docs/scale.md"):
        _ = pickle.loads(pickle.dumps(analyst)).mate


def test_a_killed_batch_goes_on(tmp_path: Path, example_history: Path) -> None:
    lines = [job(number) for number in range(1, 31)]
    lines[4] = json.dumps({"repo": REPO, "command": "python train.py trainer.epochs=5"})
    (tmp_path / "jobs.jsonl").write_text("\n".join(lines))
    journal, table = tmp_path / "journal", tmp_path / "out.parquet"
    words = [
        *(sys.executable, "-m", "schedmate", "analyze", "--batch", str(tmp_path / "jobs.jsonl")),
        *("--processes", "1", "--history", str(example_history), "--record"),
        *("--journal", str(journal), "--parquet", str(table)),
    ]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    with ended_in_time(process):
        assert process.stdout is not None
        before = []
        while len(before) < 20 and not _kept(journal):
            # slower than the command writes: the pipe must neither fill for good nor be read out
            before.append(json.loads(process.stdout.readline()))
            time.sleep(0.1)
    kept = _kept(journal)
    assert 0 < kept <= 30
    assert not table.exists()
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    after = parse(done.stdout)
    assert set(after) == set(range(30))
    assert read_table(table).num_rows == 30
    same = [one for one in before if after[one["index"]] == one]  # times and all
    assert len(same) >= min(kept, len(before)) - 1
    ids = {one["recorded_as"] for one in after.values()}
    assert len(ids) == 30
    again = subprocess.run(
        [*words, "--threshold", "0.5"], capture_output=True, text=True, env={**os.environ}
    )
    assert again.returncode == 3
    assert "is the journal of another run" in again.stderr
    with SchedMate(load_settings(history=str(example_history))) as mate:
        analysis = mate.analyze(JobSpec(repo=REPO))
    assert analysis.history_size == 70  # none is there twice


def _kept(journal: Path) -> int:
    """Results in a journal, read from a copy so as not to take part."""
    copy = journal.with_name("copy")
    try:
        copy.write_bytes(journal.read_bytes())
        if (hot := journal.with_name("journal-journal")).exists():
            copy.with_name("copy-journal").write_bytes(hot.read_bytes())
        with sqlite3.connect(copy) as database:
            count = int(database.execute("SELECT count(*) FROM done").fetchone()[0])
        database.close()
    except (OSError, sqlite3.Error):
        return 0
    return count


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--batch", "x", "--ray", "auto", "--processes", "2"), "give one of them"),
        ((REPO, "--journal", "x"), "--journal is for --batch"),
        ((REPO, "--parquet", "x"), "--parquet is for --batch"),
    ],
)
def test_options_that_do_not_go_together(cli: Cli, words: tuple[str, ...], sentence: str) -> None:
    done = cli("analyze", *words)
    assert done.code == 2
    assert sentence in done.err
