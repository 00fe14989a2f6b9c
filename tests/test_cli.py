"""The command line as a whole: help, version, exit codes, errors, settings, reference."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cli_runner import Cli
from processes import LONG_S, ended_in_time

from schedmate import __version__
from schedmate.base.errors import EXIT_CODES
from schedmate.cli import PANELS

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("word", ["--version", "-V", "version"])
def test_version(cli: Cli, word: str) -> None:
    result = cli(word)
    assert (result.code, result.out) == (0, f"schedmate {__version__}\n")


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_the_commands_and_exit_codes(cli: Cli, flag: str) -> None:
    result = cli(flag)
    assert result.code == 0
    for word in ("analyze", "history", "doctor", "config", "Exit codes"):
        assert word in result.out


def test_help_of_commands(cli: Cli) -> None:
    assert cli("help").out == cli("--help").out
    assert cli("help", "history", "list").out == cli("history", "list", "--help").out
    wrong = cli("help", "hstory")
    assert (wrong.code, "did you mean history?" in wrong.err) == (2, True)


def test_commands_are_listed_in_panels(cli: Cli) -> None:
    out = cli("--help").out
    for title, names in PANELS.items():
        listed = out.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in listed.splitlines()] == list(names)


@pytest.mark.parametrize("group", ["", "history", "llm", "recover", "rules", "traces", "config"])
def test_lists_of_commands_are_not_cut_off(cli: Cli, group: str) -> None:
    heading = "Commands:" if group else "Jobs:"
    listed = cli(*group.split(), "--help").out.partition(heading)[2].partition("Exit codes")[0]
    assert listed
    assert "..." not in listed


@pytest.mark.parametrize(
    "command",
    ["config show", "doctor", "history calibrate", "llm ledger", "policies", "rules list nccl"],
)
def test_every_document_names_its_version(cli: Cli, command: str) -> None:
    document = json.loads(cli(*command.split(), "--json").out)
    assert re.fullmatch(r"schedmate\.[a-z-]+/v1", document["schema"])


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from schedmate.cli import app; app(['--help'], standalone_mode=False); "
        "print(sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(re.findall(r"'(\w+)'", done.stderr))
    heavy = {
        "faiss", "FlagEmbedding", "langchain", "langchain_core", "langchain_openai", "numpy",
        "onnxruntime", "openai", "pydantic_settings", "torch", "wordllama", "yaml",
    }  # fmt: skip
    assert loaded & heavy == set()


@pytest.mark.parametrize("arguments", [["analyse"], ["analyze", "--gpus", "many", "."], ["--nope"]])
def test_wrong_usage_is_2(cli: Cli, arguments: list[str]) -> None:
    result = cli(*arguments)
    assert result.code == 2
    assert result.out == ""
    assert "Usage" in result.err


def test_no_arguments_shows_help(cli: Cli) -> None:
    result = cli()
    assert "analyze" in result.out + result.err
    assert result.code == 2


def test_input_errors_are_3_and_one_sentence(cli: Cli, tmp_path: Path) -> None:
    result = cli("analyze", str(tmp_path / "missing"))
    assert result.code == 3
    assert result.err.startswith("error: ")
    assert "missing" in result.err
    assert result.err.count("\n") == 1


def test_settings_errors_are_2(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDMATE_TOP_K", "0")
    result = cli("config", "show")
    assert result.code == 2
    assert "SCHEDMATE_TOP_K" in result.err


def test_an_unforeseen_error_is_1_without_a_traceback(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_: object) -> None:
        raise ZeroDivisionError("the \x1b[31mworld\x1b[0m ended")

    monkeypatch.setattr("schedmate.settings.explain_settings", broken)
    result = cli("config", "show")
    assert result.code == 1
    assert result.err.startswith("error: internal error, ZeroDivisionError: the world ended; run ")
    assert "Traceback" not in result.err
    assert "Traceback" in cli("--debug", "config", "show").err
    assert "Traceback" not in cli("config", "show").err


def test_config_show(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDMATE_TOP_K", "5")
    assert "top_k = 5\n" in cli("config", "show").out
    assert (
        "top_k = 5 # SCHEDMATE_TOP_K in the environment\n" in cli("config", "show", "--origin").out
    )
    shown = json.loads(cli("config", "show", "--origin", "--json").out)["settings"]
    assert shown["top_k"] == {"value": 5, "origin": "SCHEDMATE_TOP_K in the environment"}
    assert shown["method"]["origin"] == "default"


def children(process: int) -> list[str]:
    """The processes that any thread of a process has started."""
    listed = Path(f"/proc/{process}/task").glob("*/children")
    return [child for one in listed for child in one.read_text().split()]


@pytest.fixture
def waiting_batch(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a batch that waits for its standard input, in a process group of its own."""
    started = ExitStack()

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "schedmate", "analyze", "--batch", "-", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=tmp_path,
        )
        started.enter_context(ended_in_time(process))
        return process

    with started:
        yield start


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_being_stopped_leaves_no_file(
    tmp_path: Path,
    waiting_batch: Callable[..., subprocess.Popen[str]],
    sent: signal.Signals,
    code: int,
) -> None:
    process = waiting_batch("-o", "out")
    while not list(tmp_path.iterdir()):  # the temporary output file
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, sent)
    assert process.wait(LONG_S) == code
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_a_dataclass_is_made_has_the_exit_code_of_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(
        "import schedmate.cli as cli\n"
        "from schedmate.__main__ import main\n"
        "cli.main = lambda: exec('raise KeyboardInterrupt')\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-m", "interrupted"], capture_output=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, b"")


def test_ctrl_c_ends_the_workers_too(
    waiting_batch: Callable[..., subprocess.Popen[str]],
) -> None:
    process = waiting_batch("--processes", "2")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write('{"repo": "missing"}\n')
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["exit_code"] == 3
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(LONG_S) == 130
    # The pipe ends only when the last worker that holds it has gone.
    assert "Traceback" not in process.stderr.read()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="lists children by /proc")
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("moment", [0.0, 0.1], ids=["at once", "while it imports"])
def test_a_reader_that_is_still_starting_ends_quietly(
    waiting_batch: Callable[..., subprocess.Popen[str]],
    sent: signal.Signals,
    code: int,
    moment: float,
) -> None:
    process = waiting_batch("--processes", "1")
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write('{"repo": "missing"}\n')
    process.stdin.flush()
    while not children(process.pid):
        assert process.poll() is None
        time.sleep(0.005)
    time.sleep(moment)
    (os.killpg if sent == signal.SIGINT else os.kill)(process.pid, sent)
    assert process.wait(LONG_S) == code
    assert process.stderr.read() == ""


SCHEDMATE = (sys.executable, "-m", "schedmate")


def test_ctrl_c_while_modules_load_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import time\nprint(flush=True)\ntime.sleep(3600)\n")
    process = subprocess.Popen(
        [*SCHEDMATE, "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    with ended_in_time(process):
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.communicate() == (b"", b"")
        assert process.returncode == 130


def test_a_reader_that_leaves_ends_it_quietly() -> None:
    process = subprocess.Popen(
        [*SCHEDMATE, "rules", "list", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Python would not tell of what is left of a write
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )
    with ended_in_time(process):
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"{\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(LONG_S) == 141


@pytest.mark.parametrize("arguments", ["--version", "policies"])
def test_a_reader_that_has_left_before_is_no_fault(arguments: str) -> None:
    end, start = os.pipe()
    os.close(end)
    done = subprocess.run([*SCHEDMATE, arguments], stdout=start, stderr=subprocess.PIPE)
    os.close(start)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_one_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*SCHEDMATE, "policies"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 3
    assert done.stderr.startswith(b"error: cannot write the output: No space left on device; ")


def test_closed_streams_are_no_fault() -> None:
    script = '"$0" -m schedmate policies >&- && "$0" -m schedmate policies 2>&-'
    done = subprocess.run(["bash", "-c", script, sys.executable], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "fifo" in done.stdout


def test_every_exit_code_is_documented() -> None:
    page = (ROOT / "docs" / "exit-codes.md").read_text()
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in page


def test_python_dash_m() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "schedmate", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"schedmate {__version__}\n"
