"""Whoever reads the output may leave at any moment, as `head` does: nothing stored is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import LONG_S

from schedmate.base.errors import OK, READER_LEFT
from schedmate.retrieval.history import JobHistory

ROOT = Path(__file__).parent.parent
REPO = str(ROOT / "examples" / "train_repo")
KEY_ERROR = "step 1 loss 2.0\nTraceback (most recent call last):\nKeyError: 'labels'\n"


def alone(*arguments: str, nobody_reads: str = "stdout", read: int = 0) -> int:
    """The exit code of `schedmate` whose reader leaves after `read` lines; 0: before it began."""
    end, start = os.pipe()
    if not read:
        os.close(end)
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, nobody_reads: start}
    with subprocess.Popen([sys.executable, "-m", "schedmate", *arguments], **streams) as process:
        os.close(start)
        if read:
            with os.fdopen(end) as lines:
                for _ in range(read):
                    assert lines.readline()
        return process.wait(LONG_S)


def jobs_in(history: Path) -> set[str]:
    with JobHistory.open(history, None, create=False, read_only=True) as store:
        return {record.job_id for record in store.list(limit=1000)}


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_analyze_records_first(example_history: Path, form: list[str]) -> None:
    place = ["--history", str(example_history), "--record", "--job-id", "mine"]
    assert alone("analyze", REPO, "-c", "python train.py", *form, *place) == READER_LEFT
    assert "mine" in jobs_in(example_history)


@pytest.mark.parametrize("read", [0, 1])
def test_a_batch_records_every_job(tmp_path: Path, example_history: Path, read: int) -> None:
    jobs = tmp_path / "jobs.jsonl"
    names = [f"b-{number}" for number in range(5)]
    rows = [{"repo": REPO, "command": "python train.py", "job_id": name} for name in names]
    jobs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    place = ["--history", str(example_history), "--record"]
    code = alone("analyze", "--batch", str(jobs), "--processes", "1", *place, read=read)
    assert code == READER_LEFT
    assert jobs_in(example_history) >= set(names)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_history_commands_store_first(tmp_path: Path, example_history: Path, stream: str) -> None:
    place = ["--history", str(example_history)]
    left = READER_LEFT if stream == "stdout" else OK
    assert alone("history", "add", "17", "model=vit", *place, nobody_reads=stream) == left
    table = tmp_path / "jobs.csv"
    table.write_text("id,net,hours\n18,vit,2\n19,vit,never\n20,vit,3\n")
    columns = ["--map", "job_id=id", "--map", "model=net", "--map", "duration=hours:h"]
    arguments = ["history", "import", str(table), *columns, "--json", *place]
    assert alone(*arguments, nobody_reads=stream) == left
    finish = ["history", "finish", "17", "--duration", "2h", *place]
    assert alone(*finish, nobody_reads=stream) == left
    assert jobs_in(example_history) >= {"17", "18", "20"}
    with JobHistory.open(example_history, None, create=False, read_only=True) as store:
        finished = store.get("17")
    assert finished is not None
    assert finished.state == "COMPLETED"


@pytest.mark.parametrize("read", [0, 1])
def test_triage_writes_its_files(tmp_path: Path, read: int) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(6):
        (logs / f"{number}.log").write_text(KEY_ERROR + f"{number}\n")
    out, table, ledger = tmp_path / "report.html", tmp_path / "jobs.csv", tmp_path / "ledger"
    files = ["--out", str(out), "--csv", str(table), "--ledger", str(ledger)]
    code = alone("triage", str(logs), "--jsonl", "--jobs", "1", *files, read=read)
    assert code == READER_LEFT
    assert "KeyError" in out.read_text()
    assert len(table.read_text().splitlines()) == 7
    assert ledger.exists()


def test_simulate_writes_its_runs(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = "".join(f"j{n},{n * 60},{600 + n},1,u\n" for n in range(5))
    trace.write_text("job_id,submit_s,duration_s,gpus,user\n" + rows)
    runs = tmp_path / "runs"
    arguments = ["--policy", "fifo,sjf", "--cluster", "1x2", "--out", str(runs)]
    assert alone("simulate", str(trace), *arguments) == READER_LEFT
    assert (runs / "report.html").exists()
    assert alone("simulate", str(trace), *arguments, nobody_reads="stderr") == OK


def test_a_trace_is_written_whoever_hears_of_it(tmp_path: Path) -> None:
    out = tmp_path / "drawn.csv"
    arguments = ["traces", "synthesize", "venus", "--jobs", "200", "-o", str(out)]
    assert alone(*arguments, nobody_reads="stderr") == OK
    assert len(out.read_text().splitlines()) > 200
    out.unlink()
    assert alone(*arguments) == READER_LEFT
    assert len(out.read_text().splitlines()) > 200
