"""Whoever makes a mistake is told what to do next, and what they are told to do is possible."""

from __future__ import annotations

import ast
import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from cli_runner import Cli
from command_calls import calls, command_line, parse

from schedmate.base.errors import INPUT, NOT_TAKEN, USAGE

ROOT = Path(__file__).parent.parent
REPO = ROOT / "examples" / "train_repo"
SAID = re.compile(r"`(schedmate [^`]+)`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


class Mistake(NamedTuple):
    """What somebody types in the folder `beginner`, and the advice in the last line."""

    command: str
    code: int
    advice: str


MISTAKES = [
    Mistake("analyze", USAGE, "name the directory of a training repository, or use --batch"),
    Mistake("analyze gone", INPUT, "give the path of the job's source code"),
    Mistake("analyze plain.txt", INPUT, "give the folder that holds the source code"),
    Mistake("analyze empty", INPUT, "give the job's source code"),
    Mistake(f"analyze {REPO} -c 'python no.py'", INPUT, "is REPO where the command is typed?"),
    Mistake(f"analyze {REPO} --model qwen", USAGE, "give --llm-base-url"),
    Mistake(f"analyze {REPO} --mode agent", USAGE, "give --llm-base-url and --model"),
    Mistake(f"analyze {REPO} --processes 2", USAGE, "leave it out for one job"),
    Mistake(f"analyze {REPO} python train.py", USAGE,
            f"analyze {REPO} --command 'python train.py'"),
    Mistake(f"analyze {REPO} -c 'python a.py' -- python train.py", USAGE, "command once"),
    Mistake("analyze -- python train.py", USAGE, "analyze . --command 'python train.py'"),
    Mistake(f"analyze {REPO} empty", USAGE, "give one REPO"),
    Mistake("analyze --batch gone", INPUT, "--batch takes a file of JSON lines or -"),
    Mistake("track", USAGE, "give one LOG, or two logs with --compare"),
    Mistake("track gone.log", INPUT, "give the path of a log file"),
    Mistake("track nothing", INPUT, "give the file that the job's output goes to"),
    Mistake("diagnose empty", INPUT, "give a directory with the text files of one job"),
    Mistake("triage plain.txt", INPUT, "For one log use `schedmate diagnose`"),
    Mistake("triage binary", INPUT, "For one log use `schedmate diagnose`"),
    Mistake("triage gone", INPUT, "give a directory of logs, a quoted glob or a CSV list of jobs"),
    Mistake("history stats", INPUT, "make one with `schedmate history import FILE`"),
    Mistake("history import gone", INPUT, "correct the path"),
    Mistake("history import trace.cvs", INPUT, "did you mean trace.csv?"),
    Mistake("history import empty", INPUT, "give a file that can be read"),
    Mistake("history import nothing", INPUT, "export it again"),
    Mistake("history import plain.txt", INPUT, "name it with --format"),
    Mistake("history import other.csv --map duration", USAGE, "write FIELD=COLUMN"),
    Mistake("history import other.csv --map job_id=jobs", INPUT, "correct --map"),
    Mistake("history import other.csv", INPUT, "add --map job_id=COLUMN"),
    Mistake("history finish 1 --state RUNNING", USAGE, "use one such as COMPLETED"),
    Mistake("simulate gone --policy fifo --cluster 1x8", INPUT, "correct the path"),
    Mistake("simulate nothing --policy fifo --cluster 1x8", INPUT, "a trace has a header"),
    Mistake("simulate header.csv --policy fifo --cluster 1x8", INPUT, "`schedmate traces list`"),
    Mistake("simulate other.csv --policy fifo --cluster 1x8", INPUT, "name them with --map"),
    Mistake("simulate binary --policy fifo --cluster 1x8", INPUT, "packed as .csv.gz"),
    Mistake("simulate half.csv.gz --policy fifo --cluster 1x8", INPUT, "pack it again"),
    Mistake("simulate trace.csv --policy fifoo --cluster 1x8", USAGE, "did you mean fifo?"),
    Mistake("simulate trace.csv --policy sjf:x=1 --cluster 1x8", USAGE, "it has backfill"),
    Mistake("simulate trace.csv --policy tiresias:history=a:b.csv --cluster 1x8", USAGE,
            "history='a:b.csv'"),
    Mistake("simulate trace.csv --policy no:Class --cluster 1x8", USAGE, "PYTHONPATH"),
    Mistake("simulate trace.csv --policy fifo --cluster 8", USAGE, "write a cluster as 108x8"),
    Mistake("simulate trace.csv --policy fifo --cluster 1x1", INPUT, "Choose another cluster"),
    Mistake("simulate trace.csv --policy fifo --cluster 1x8 --out plain.txt/x", INPUT,
            "choose another --out"),
    Mistake("explain trace.csv --job gone", INPUT, "its ids go from 'a' to 'b'"),
    Mistake("tune trace.csv --policy fifo --cluster 1x8", USAGE, "--try NAME=V1,V2"),
    Mistake("traces sample trace.csv --jobs 9", USAGE, "give a number from 1 to 2"),
    Mistake("recover status", INPUT, "`schedmate recover plan` begins one"),
    Mistake("recover apply --retry", USAGE, "`schedmate recover status` lists them"),
    Mistake("slurm agent --once", NOT_TAKEN, "`schedmate slurm doctor` checks the rest"),
    Mistake("slurm import", NOT_TAKEN, "Run this where `scontrol ping` finds the controller"),
    Mistake("k8s agent --once", INPUT, "name a kubeconfig with --kubeconfig"),
    Mistake("fleet diagnose gone.json", INPUT, "give the path of a file"),
    Mistake("fleet diagnose empty", INPUT, "put the exports of kubectl or scontrol there"),
    Mistake("parallel plan --gpus 8 --gpu-type a100", USAGE, "or --model NAME"),
    Mistake("parallel plan --model gpt9 --gpus 8 --gpu-type a100", INPUT,
            "`schedmate parallel models` lists the known ones"),
    Mistake("parallel predict gone.json", INPUT, "`schedmate parallel plan --json` writes one"),
    Mistake("serve --host 0.0.0.0", USAGE, "needs --token-file FILE"),
    Mistake("init", USAGE, "give --yes"),
    Mistake("demo plain.txt", INPUT, "name another folder: schedmate demo FOLDER"),
    Mistake("--config gone.toml config show", USAGE, "correct the path"),
    Mistake("--config other.csv config show", USAGE, "correct it: lines such as top_k = 3"),
]  # fmt: skip


@pytest.fixture
def beginner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with files that are not what a command needs, and no cluster."""
    rows = "job_id,submit_s,duration_s,gpus\n"
    for name, text in {
        "plain.txt": "hello world\n",
        "nothing": "",
        "header.csv": rows,
        "trace.csv": f"{rows}a,0,9,1\nb,1,9,2\n",
        "other.csv": "who,when\nme,now\n",
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "half.csv.gz").write_bytes(gzip.compress(rows.encode() * 9)[:-12])
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "env").symlink_to("/usr/bin/env")
    monkeypatch.setenv("PATH", str(programs))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "SCHEDMATE_CONFIG"):
        monkeypatch.setenv(name, "")  # put back afterwards, whatever --config sets
        monkeypatch.delenv(name)
    return tmp_path


@pytest.mark.usefixtures("beginner")
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one.command[:60])
def test_a_mistake_is_answered_with_what_to_do(cli: Cli, mistake: Mistake) -> None:
    words = [word.strip("'") for word in re.findall(r"'[^']*'|\S+", mistake.command)]
    done = cli(*words)
    assert done.code == mistake.code, done.err
    last = done.err.splitlines()[-1]
    assert last.startswith("error: ")
    assert mistake.advice in last
    assert "Errno" not in last
    for advised in SAID.findall(last):
        for call in calls(advised):
            parse(call)
    unsaid = SAID.sub("", re.sub(r"'[^']*'", "", last))
    assert set(OPTION.findall(unsaid)) <= options(words), last


def options(words: list[str]) -> set[str]:
    """The options of the command that is typed."""
    command, context = command_line(), None
    known = {one for parameter in command.params for one in parameter.opts}
    for word in words:
        if hasattr(command, "commands") and word in command.commands:
            context = command.context_class(command, info_name=command.name, parent=context)
            command = command.get_command(context, word)
            known |= {one for parameter in command.params for one in parameter.opts}
    return known


def advised() -> Iterator[str]:
    """Every `schedmate ...` within backquotes in a text of the program that people are shown."""
    for path in sorted((ROOT / "schedmate").rglob("*.py")):
        source = path.read_text()
        nodes = list(ast.walk(ast.parse(source))) if "`schedmate " in source else []
        inner: set[int] = set()  # docstrings, and the parts of what is put together
        for node in nodes:
            text = ""
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body:
                if isinstance(node.body[0], ast.Expr):
                    inner.add(id(node.body[0].value))
            elif isinstance(node, ast.JoinedStr):
                inner |= set(map(id, node.values))
                text = "".join(
                    str(part.value) if isinstance(part, ast.Constant) else " X "
                    for part in node.values
                )
            elif isinstance(node, ast.Constant) and id(node) not in inner:
                text = node.value if isinstance(node.value, str) else ""
            yield from SAID.findall(text)


ADVISED = sorted(set(advised()))


def test_the_advice_in_the_program_is_found() -> None:
    assert len(ADVISED) > 40


@pytest.mark.parametrize("command", ADVISED)
def test_commands_named_in_messages_exist_with_their_options(command: str) -> None:
    found = [call for call in calls(command.replace("...", "").replace("…", "")) if call]
    assert found or command.split()[1:] in ([], ["--debug"])
    for call in found:
        if call[0] != "X":  # any command
            parse(call)
