"""`schedmate history`, through its command line, on a real history."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Cli
from typer.testing import CliRunner, Result

from schedmate.base.errors import INPUT, INTERRUPTED, USAGE, SchedmateError
from schedmate.commands import history
from schedmate.commands.history import app

TABLE = """JobID|JobName|State|Submit|Start|End|ElapsedRaw|AllocTRES|SubmitLine
1|train|COMPLETED|1704067200|1704067200|1704070800|3600|gres/gpu=8|sbatch a.sh
1.batch|batch|COMPLETED||||3600||
2|train|CANCELLED by 7|1704067200|1704067200|1704067260|60|gres/gpu=8|sbatch a.sh
3|train|EXPLODED|1704067200|1704067200|1704067260|60|gres/gpu=8|sbatch a.sh
"""

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "history.jsonl"

Call = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> Call:
    def call(*arguments: str | Path, stdin: str | None = None, fails: bool = False) -> Result:
        command, *rest = map(str, arguments)
        argv = [command, *rest, "--history", str(tmp_path / "history")]
        result = CliRunner().invoke(app, argv, input=stdin)
        if not fails and isinstance(result.exception, Exception):
            raise result.exception
        return result

    return call


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "sacct.txt"
    path.write_text(TABLE)
    return path


def error_of(result: Result) -> SchedmateError:
    assert isinstance(result.exception, SchedmateError), result.output
    return result.exception


def jobs_of(run: Call, *options: str) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = json.loads(run("list", "--json", *options).stdout)["jobs"]
    return jobs


class TestImport:
    def test_table(self, run: Call, table: Path) -> None:
        result = run("import", table)
        assert result.exit_code == 0
        assert result.stdout == ""
        assert result.stderr == (
            "warning: line 5: 'EXPLODED' is no Slurm job state\n2 jobs imported, 1 row left out.\n"
        )
        assert {job["job_id"]: job["state"] for job in jobs_of(run)} == {
            "1": "COMPLETED",
            "2": "CANCELLED",
        }

    def test_json_summary(self, run: Call, table: Path) -> None:
        document = json.loads(run("import", table, "--json").stdout)
        assert document == {
            "schema": "schedmate.history-import/v1",
            "imported": 2,
            "replaced": 0,
            "without_run_time": 0,
            "bad": 1,
            "problems": ["line 5: 'EXPLODED' is no Slurm job state"],
            "analysed": None,
            "interrupted": False,
            "synthetic": 0,
        }

    def test_jobs_that_are_replaced_are_counted(self, run: Call, table: Path) -> None:
        run("import", table)
        again = run("import", table)
        assert "2 jobs replaced one of the same id; --prefix keeps" in again.stderr
        assert json.loads(run("import", table, "--json").stdout)["replaced"] == 2
        apart = run("import", table, "--prefix", "b/")
        assert "replaced" not in apart.stderr

    def test_standard_input(self, run: Call) -> None:
        assert run("import", "-", stdin=TABLE).exit_code == 0
        assert len(jobs_of(run)) == 2

    def test_twice_is_once(self, run: Call, table: Path) -> None:
        run("import", table)
        run("import", table)
        assert len(jobs_of(run)) == 2

    def test_prefix(self, run: Call, table: Path) -> None:
        run("import", table, "--prefix", "east-")
        assert {job["job_id"] for job in jobs_of(run)} == {"east-1", "east-2"}

    def test_csv_with_mapping(self, run: Call, tmp_path: Path) -> None:
        path = tmp_path / "jobs.csv"
        path.write_text("id,hours,net\na,2,gpt2\n")
        run("import", path, "--map", "job_id=id", "--map", "duration=hours:h", "--map", "model=net")
        (job,) = jobs_of(run)
        assert job["duration_s"] == 7200
        assert job["metadata"]["model_config"]["model_name"] == "gpt2"

    def test_strict(self, run: Call, table: Path) -> None:
        assert run("import", table, "--strict").exit_code == INPUT
        assert len(jobs_of(run)) == 2

    def test_nothing_usable(self, run: Call) -> None:
        assert run("import", "-", stdin="JobID|State\n1|EXPLODED\n").exit_code == INPUT

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["none.csv"], "cannot read"),
            (["-", "--format", "xml"], "is not auto"),
            (["-", "--format", "jsonl", "--map", "duration=x"], "--map is for csv"),
            (["-", "--map", "duration=x", "--map", "job_id=y"], "no column x, y in the file"),
        ],
    )
    def test_mistakes(self, run: Call, arguments: list[str], message: str) -> None:
        error = error_of(run("import", *arguments, stdin="a,b\n1,2\n", fails=True))
        assert message in str(error)
        assert "\n" not in str(error)

    def test_interrupt_keeps_what_was_stored(
        self, run: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(history, "IMPORT_BATCH", 2)
        original = history._batches

        def interrupted(records: Any) -> Any:
            for count, batch in enumerate(original(records)):
                if count == 3:
                    raise KeyboardInterrupt
                yield batch

        monkeypatch.setattr(history, "_batches", interrupted)
        path = tmp_path / "jobs.csv"
        path.write_text("job_id,duration_s\n" + "".join(f"{i},5\n" for i in range(20)))
        result = run("import", path)
        assert result.exit_code == INTERRUPTED
        assert "interrupted: 6 jobs imported" in result.stderr
        assert len(jobs_of(run)) == 6


class TestOneJob:
    def test_add_and_show(self, run: Call) -> None:
        run("add", "17", "model=resnet50", "iters=90", "iter_type=epoch", "duration=2h", "gpus=8")
        job = json.loads(run("show", "17", "--json").stdout)["job"]
        assert job["state"] == "COMPLETED"
        assert job["duration_s"] == 7200
        assert job["metadata"]["training_config"] == {"iters": 90, "iter_type": "epoch"}
        assert len(job["fingerprint"]) == 16
        shown = run("show", "17").stdout.splitlines()
        assert "metadata.model_config.model_name = resnet50" in shown
        assert "launch.gpus = 8" in shown

    def test_terminal_controls_are_not_shown(self, run: Call) -> None:
        run("add", "17", "name=\x1b[31mred", "duration=5")
        assert "name = red" in run("show", "17").stdout.splitlines()
        assert "\x1b[31m" not in run("list").stdout

    def test_finish(self, run: Call) -> None:
        run("add", "17", "model=gpt2", "start=1000")
        run("finish", "17", "--duration", "2h", "--gpu-util", "91", "--end", "9000")
        job = json.loads(run("show", "17", "--json").stdout)["job"]
        assert (job["state"], job["duration_s"], job["gpu_util"], job["end_time"]) == (
            "COMPLETED",
            7200,
            91,
            9000,
        )

    def test_finish_from_start_to_end(self, run: Call) -> None:
        run("add", "17", "start=1000")
        run("finish", "17", "--end", "4000", "--state", "timeout")
        (job,) = jobs_of(run)
        assert (job["state"], job["duration_s"]) == ("TIMEOUT", 3000)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["show", "5"], "no job '5' in the history"),
            (["finish", "5", "--duration", "1h"], "no job '5' in the history"),
            (["finish", "17"], "has no start time"),
            (["finish", "17", "--duration", "long"], "is not a duration"),
            (["finish", "17", "--duration", "1h", "--state", "GONE"], "is no Slurm job state"),
            (["finish", "17", "--duration", "1h", "--state", "RUNNING"], "is not how a job ends"),
            (["finish", "17", "--duration", "1h", "--end", "later"], "is not a time"),
            (["list", "--state", "GONE"], "is no Slurm job state"),
            (["add", "18", "colour=red"], "is not a field of a job record"),
        ],
    )
    def test_mistakes(self, run: Call, arguments: list[str], message: str) -> None:
        run("add", "17", "model=gpt2")
        error = error_of(run(*arguments, fails=True))
        assert message in str(error)
        assert "\n" not in str(error)


class TestAll:
    def test_list_filters(self, run: Call, table: Path) -> None:
        run("import", table)
        assert [job["job_id"] for job in jobs_of(run, "--state", "CANCELLED")] == ["2"]
        assert len(jobs_of(run, "--limit", "1")) == 1
        assert "1 h 00 min" in run("list").stdout

    def test_export_is_what_import_reads(self, run: Call, table: Path, tmp_path: Path) -> None:
        run("import", table)
        before = jobs_of(run)
        text = run("export").stdout
        assert len(text.splitlines()) == 2
        out = tmp_path / "out.jsonl"
        assert run("export", "-o", out).stdout == ""
        assert out.read_text() == text
        assert run("import", "-", "--prefix", "", stdin=text).exit_code == 0
        assert jobs_of(run) == before

    def test_stats_and_rebuild(self, run: Call, table: Path) -> None:
        run("import", table)
        assert json.loads(run("stats", "--json").stdout)["stats"]["jobs"] == 2
        assert run("stats").stdout.startswith("2 jobs: ")
        assert run("rebuild").exit_code == 0
        assert len(jobs_of(run)) == 2

    def test_only_what_needs_vectors_loads_the_embedder(
        self, run: Call, table: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run("import", table)
        run("add", "17", "model=gpt2", "start=1000")
        monkeypatch.setenv("SCHEDMATE_EMBEDDER", "openai")
        monkeypatch.setenv("SCHEDMATE_EMBEDDER_BASE_URL", "http://127.0.0.1:9/v1")  # nobody there
        assert len(jobs_of(run)) == 3
        run("show", "17")
        run("finish", "17", "--duration", "2h")
        assert "FAILED" not in run("stats").stdout
        assert len(run("export").stdout.splitlines()) == 3
        assert run("rebuild", "--index").exit_code == 0
        for arguments in (["add", "18", "model=gpt2"], ["import", str(table)], ["rebuild"]):
            assert "did not answer" in str(error_of(run(*arguments, fails=True)))
        monkeypatch.undo()
        assert len(jobs_of(run)) == 3

    def test_reading_makes_no_history(self, run: Call, tmp_path: Path) -> None:
        error_of(run("list", fails=True))
        assert not (tmp_path / "history").exists()

    def test_help_names_the_commands(self) -> None:
        text = CliRunner().invoke(app, ["--help"]).output
        for name in ("import", "add", "list", "show", "stats", "rebuild", "export", "finish"):
            assert name in text


def test_a_backup_is_restored_into_a_history_that_is_in_use(
    run: Call, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from schedmate.cluster.record import Record
    from schedmate.retrieval.history import JobHistory

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    run("import", EXAMPLES)
    place, copy = str(tmp_path / "history"), str(tmp_path / "copies" / "today")
    with Record(tmp_path / "data" / "schedmate" / "recovery.db") as record:
        record.observe("signal", "node a", by="agent", data={})
        made = json.loads(cli("backup", copy, "--history", place, "--json").out)
    assert [part["name"] for part in made["parts"]] == ["history", "recovery"]
    assert cli("backup", copy, "--history", place).code == USAGE  # of the same day

    before = run("export").stdout
    with JobHistory.open(Path(place), read_only=True) as reader:
        assert run("prune", "--older-than", "1d").stderr.startswith("40 jobs deleted, 0 left")
        assert len(reader) == 0
        refused = cli("restore", copy, "--history", place)
        assert (refused.code, "--replace gives it" in refused.err) == (USAGE, True)
        assert cli("restore", copy, "--history", place, "--only", "nothing").code == USAGE
        done = cli("restore", copy, "--history", place, "--only", "history", "--replace")
        assert (done.code, len(reader)) == (0, 40), done.err
    assert run("export").stdout == before
    assert run("stats").exit_code == 0
    # a history that cannot be read any more
    (tmp_path / "history" / "history.db").write_bytes(b"lost" * 5000)
    assert cli("restore", copy, "--history", place, "--only", "history", "--replace").code == 0
    assert run("export").stdout == before
    with (tmp_path / "copies" / "today" / "history.db").open("ab") as file:
        file.write(b"x")
    changed = cli("restore", copy, "--history", place, "--replace")
    assert (changed.code, "is not what was backed up" in changed.err) == (INPUT, True)
    assert "is no backup" in cli("restore", str(tmp_path)).err
