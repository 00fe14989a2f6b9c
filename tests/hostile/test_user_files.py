"""Files that a user names are read through one door: regular files, bounded, confined."""

from __future__ import annotations

import ast
import gzip
import io
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from schedmate.base import reading
from schedmate.base.errors import InputError

PACKAGE = Path(reading.__file__).parent.parent

OPENERS = {
    *("open", "read_text", "read_bytes", "fdopen", "GzipFile", "ZipFile", "FileIO", "mmap"),
    *("open_csv", "read_table", "memmap", "fromfile", "loadtxt", "genfromtxt", "rglob"),
    *("ParquetReader", "os.walk", "sqlite3.connect"),
}
"""Functions that open files, or go through folders, by their last name."""

THE_DOOR = {
    *("open_binary", "open_text", "open_parquet", "open_descriptor", "read_text", "read_bytes"),
    *("walk", "paths_called"),
}
"""Those of `base/reading.py` and `base/files.py`, which are called by their bare names."""

REPOSITORY = "a file of a repository, of a bounded size, read in a confined process"
OWN = "a file that comes with schedmate, or that it wrote itself"
SYSTEM = "a file of the system: /proc, /dev/null, a mounted account"
DATABASE = "a database, whose library checks what it opens"
ELSEWHERE = {
    "agent/configs/jsonnet.py": (2, REPOSITORY),
    "agent/configs/trees.py": (1, REPOSITORY),
    "agent/fields/task.py": (1, REPOSITORY),
    "agent/fields/candidates.py": (1, REPOSITORY),
    "agent/interp/libs/files.py": (1, REPOSITORY),
    "agent/interp/libs/parsers.py": (1, REPOSITORY),
    "agent/interp/source.py": (1, REPOSITORY),
    "agent/interp/values/files.py": (1, REPOSITORY),
    "agent/launch/repo.py": (1, REPOSITORY),
    "agent/react/trajectory.py": (1, OWN),
    "base/confine/limits.py": (2, SYSTEM),
    "base/confine/template.py": (1, SYSTEM),
    "base/data.py": (5, OWN),
    "base/errors.py": (1, OWN),
    "base/files.py": (4, "what is written; the one walk of folders, which has a depth"),
    "base/journal.py": (3, DATABASE),
    "base/objects.py": (1, "an object of a store, of a bounded size"),
    "base/parquet_child.py": (1, "its standard input, in a confined process"),
    "base/plugins.py": (1, OWN),
    "base/reading.py": (4, "the door"),
    "base/terminal.py": (1, SYSTEM),
    "cli.py": (3, SYSTEM),
    "cluster/claims.py": (1, OWN),
    "cluster/journal.py": (4, DATABASE),
    "cluster/kubernetes/api.py": (1, SYSTEM),
    "cluster/usage.py": (1, "an answer of Prometheus, of a bounded size"),
    "cluster/memory.py": (4, DATABASE),
    "cluster/ray/__init__.py": (1, OWN),
    "cluster/ray/store.py": (2, DATABASE),
    "cluster/ray/supervise.py": (4, SYSTEM),
    "cluster/recovery/checkpoints.py": (1, "a stream that came through the door"),
    "cluster/recovery/configuration.py": (1, "a descriptor that came through the door"),
    "commands/analyze.py": (1, "standard input"),
    "commands/backup.py": (1, "a descriptor that came through the door"),
    "commands/fleet.py": (1, OWN),
    "commands/init.py": (1, OWN),
    "commands/recover.py": (1, SYSTEM),
    "llm/probe.py": (1, SYSTEM),
    "llm/store.py": (4, DATABASE),
    "logparse/experiments.py": (2, "folders and a database of runs, read in a confined process"),
    "logparse/reading/folder.py": (4, "the door of folders of logs"),
    "logparse/reading/log.py": (3, "a descriptor that came through the door"),
    "logparse/reading/storage.py": (3, "a descriptor that came through the door"),
    "logparse/templates.py": (1, DATABASE),
    "logparse/triage/run.py": (3, OWN),
    "logparse/watch/alarms.py": (1, DATABASE),
    "prompts/__init__.py": (1, OWN),
    "report/page.py": (1, OWN),
    "retrieval/database.py": (4, DATABASE),
    "retrieval/embedders.py": (1, OWN),
    "retrieval/index.py": (3, OWN),
    "retrieval/shared.py": (1, DATABASE),
    "sample/train.py": (1, "an example of a job, which schedmate does not run"),
    "schedulers/fleet/document.py": (1, OWN),
    "schedulers/parallelism/network.py": (1, OWN),
    "schedulers/parallelism/predict.py": (1, OWN),
    "schedulers/sim/comparison.py": (4, OWN),
    "schedulers/sim/interference.py": (1, OWN),
    "schedulers/sim/tables.py": (2, "what is written; a stream that came through the door"),
    "schedulers/sim/traces/spot.py": (1, OWN),
    "serve/board.py": (2, DATABASE),
    "serve/options.py": (1, "a descriptor that came through the door"),
    "serve/pages.py": (2, OWN),
    "site/failures.py": (1, OWN),
    "site/table.py": (1, OWN),
    "tools/allowed.py": (1, OWN),
    "tools/locked.py": (3, "the door of repositories for a model"),
}
"""Calls of `OPENERS` in each module beside the door, and why they may be. A new one belongs through
`base/reading.py`, unless it is no file that a user names: then it is counted here."""

_NO_FILES = {"JobHistory.open", "self._advice.open", "self.open", "self.board.open", "target.open"}


def openings(module: Path) -> list[str]:
    """The calls in a module that open files, but for those through the door."""
    found = []
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        last = called.rpartition(".")[2]
        if not {last, called} & OPENERS or called in _NO_FILES or called in THE_DOOR:
            continue
        if called.startswith(("ast.", "self.targets")):
            continue
        found.append(ast.unparse(node))
    return found


def test_every_module_opens_files_through_the_door() -> None:
    counts = {
        str(path.relative_to(PACKAGE)): found
        for path in sorted(PACKAGE.rglob("*.py"))
        if (found := openings(path))
    }
    wrong = {
        module: found
        for module, found in counts.items()
        if len(found) != ELSEWHERE.get(module, (0, ""))[0]
    }
    assert not wrong
    assert set(ELSEWHERE) == set(counts), "a module that opens no file any more"


# What comes through the door, and what does not.


def _lines(path: Path, **how: bool) -> int:
    with reading.open_text(path, **how) as stream:  # type: ignore[arg-type]
        return sum(1 for _ in stream)


def _parquet_rows(path: Path, most_rows: int = reading.MOST_ROWS) -> int:
    with reading.open_parquet(path, most_rows=most_rows) as file:
        return sum(len(batch[0]) for batch in file.batches)


READERS: dict[str, Callable[[Path], object]] = {
    "a document": reading.read_text,
    "bytes": reading.read_bytes,
    "a table": _lines,
    "Parquet": _parquet_rows,
}


@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, reader: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(InputError, match="and not a file"):
            READERS[reader](path)
    with pytest.raises(IsADirectoryError):
        READERS[reader](tmp_path)
    with pytest.raises(FileNotFoundError):
        READERS[reader](tmp_path / "absent")


def test_a_pipe_is_read_where_a_caller_says_so_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "WRITER_S", 0.2)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="nobody writes to the pipe"):
        _lines(pipe, pipe=True)
    monkeypatch.setattr(reading, "WRITER_S", 20.0)
    writer = threading.Thread(target=pipe.write_text, args=("a\nb\n" * 50_000,))
    writer.start()
    assert _lines(pipe, pipe=True) == 100_000
    writer.join()


def test_bytes_and_lines_are_bounded_while_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "long"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)  # a terabyte of zeros that takes no room
    with pytest.raises(InputError, match="holds more than 256 MiB"):
        reading.read_text(path)
    with path.open("wb") as stream:
        stream.write(b"a,b\n")
        stream.truncate(1 << 30)
    with pytest.raises(InputError, match="a line of more than 4 MiB"):
        _lines(path)


def test_what_unpacks_to_far_more_than_its_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for _ in range(80):
            stream.write(b"1,1,3600,1\n" * 100_000)
    with pytest.raises(InputError, match="holds more than 64 MiB, unpacked"):
        _lines(path, unpack=True)
    assert path.stat().st_size < 1 << 20


def test_rows_are_counted_before_they_are_kept() -> None:
    made = 0

    def rows() -> object:
        nonlocal made
        while True:
            made += 1
            yield made

    with pytest.raises(InputError, match="more than 1,000 rows"):
        list(reading.bounded_rows(rows(), "t.csv", 1_000))  # type: ignore[arg-type]
    assert made == 1_001


def test_parquet_gives_what_was_written(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    path = tmp_path / "t.parquet"
    rows = [{"k": "v"}, {}, None]
    table = pa.table({"a": [1, None, 3], "b": ["x", "é", None], "c": rows, "d": [0.1, 2.0, None]})
    write_table(table.replace_schema_metadata({"about": "it"}), path)
    with reading.open_parquet(path) as file:
        assert (file.names, file.metadata) == (["a", "b", "c", "d"], {"about": "it"})
        whole = list(file.batches)
    assert whole == [[[1, None, 3], ["x", "é", None], [{"k": "v"}, {"k": None}, None],
                      [0.1, 2.0, None]]]  # fmt: skip
    (tmp_path / "no.parquet").write_text("job_id,submit\n")
    with pytest.raises(InputError, match="as Parquet"):
        _parquet_rows(tmp_path / "no.parquet")


def test_parquet_of_a_few_kilobytes_takes_no_gigabytes(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    others = set(_children())  # of earlier tests in this process
    many, large = tmp_path / "many.parquet", tmp_path / "large.parquet"
    write_table(pa.table({"a": pa.array(["1"] * 300_000).dictionary_encode()}), many)
    with pytest.raises(InputError, match="300,000 rows, of at most 100,000"):
        _parquet_rows(many, most_rows=100_000)
    write_table(pa.table({"a": ["n" * 60_000_000]}), large, compression="zstd")
    assert large.stat().st_size < 1 << 20
    with pytest.raises(InputError, match="as Parquet"):
        _parquet_rows(large)
    assert set(_children()) <= others


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as stream:  # noqa: PTH123
        return [int(one) for one in stream.read().split()]


def test_documents_that_nest_without_end_are_refused() -> None:
    with pytest.raises(InputError, match="nested too deep"):
        reading.parse_json("[" * 100_000 + "]" * 100_000, "it")
    for text in ("[" * 100_000, "- " * 5_000 + "a", "{a: " * 1_000 + "}" * 1_000):
        with pytest.raises(InputError, match="nested too deep"):
            reading.parse_document(text, "it")
    assert reading.parse_document("a: [1, {b: 2}]\n" + "# \n" * 300, "it") == {"a": [1, {"b": 2}]}


def _program(arguments: list[str], folder: Path) -> tuple[int, str]:
    """The exit code and error output of a command."""
    own = {f"XDG_{kind}_HOME": str(folder) for kind in ("CONFIG", "DATA", "CACHE")}
    done = subprocess.run(
        [sys.executable, "-m", "schedmate", *arguments],
        cwd=folder,
        env=os.environ | own,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stderr


COMMANDS = (
    "fleet check FILE",
    "traces check FILE",
    "traces synthesize FILE",
    "simulate FILE --cluster 3x4 --policy fifo",
    "history import FILE --history h",
    "history import jobs.csv --map-file FILE --history h",
    "triage FILE",
    "track FILE",
    "diagnose FILE",
    "parallel export FILE",
    "slurm agent --bounds FILE --once",
    "--config FILE config show",
    "analyze --batch FILE",
)
"""Commands that take a file."""


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["pipe", "/dev/zero"])
def test_no_command_waits_for_or_reads_what_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, kind: str
) -> None:
    from schedmate import cli

    monkeypatch.setattr(reading, "WRITER_S", 0.2)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHEDMATE_CONFIG", "")  # which `--config` sets
    monkeypatch.delenv("SCHEDMATE_CONFIG")
    for variable in ("CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{variable}_HOME", str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "jobs.csv").write_text("job_id,duration_s\n1,2\n")
    monkeypatch.setattr(sys, "argv", ["schedmate", *command.replace("FILE", kind).split()])
    errors = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(errors, write_through=True))
    with pytest.raises(SystemExit) as end:
        cli.main()
    said = errors.getvalue().decode()
    assert end.value.code in (2, 3), said
    assert re.search(
        r"^error: .*(?:not a file|nobody writes to the pipe|not a regular file)", said
    ), said
    assert "internal error" not in said


def test_a_trace_of_one_line_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("job_id,submit_time,duration,gpu_num\n" + "1" * 6_000_000 + ",1,1,1\n")
    code, said = _program(["traces", "check", "t.csv"], tmp_path)
    assert (code, "a line of more than 4 MiB" in said) == (3, True), said


def test_1500_nested_folders_are_a_repository_like_any_other(tmp_path: Path) -> None:
    at = os.open(tmp_path, os.O_DIRECTORY)
    try:
        (tmp_path / "train.py").write_text("for epoch in range(3):\n    pass\n")
        for _ in range(1_500):
            os.mkdir("d", dir_fd=at)
            below = os.open("d", os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
    finally:
        os.close(at)
    try:
        code, said = _program(["analyze", ".", "--json", "-c", "python train.py"], tmp_path)
        assert code == 0, said
    finally:  # what pytest would remove by recursion
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)
