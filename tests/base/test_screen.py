"""What commands show fits a terminal of any width, and is a row a line in a pipe."""

from __future__ import annotations

import io
import re
from itertools import pairwise
from pathlib import Path

import pytest
from cli_runner import Cli
from hypothesis import given
from hypothesis import strategies as st
from ptys import at_terminal

from schedmate.base.files import without_shared_folders
from schedmate.base.terminal import Screen, Table, cells, coloured, strip_escapes, width_of, wrapped

ROOT = Path(__file__).parents[2]
COMMAND = "torchrun --nproc_per_node=4 train.py model=resnet50 trainer.epochs=60"
words = st.text("abc模é-", min_size=1, max_size=12)
texts = st.lists(words, max_size=8).map(" ".join)


class Terminal(io.StringIO):
    """A stream that says it is a terminal; COLUMNS says how wide."""

    def isatty(self) -> bool:
        return True


@given(texts, st.integers(1, 40), st.integers(0, 5))
def test_lines_break_between_words_only(text: str, width: int, hang: int) -> None:
    lines = list(wrapped(text, width, hang=hang))
    assert " ".join(lines).split() == text.split()
    for line in lines:
        assert cells(line) <= width or len(line.split()) == 1


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("模型", 4), ("é", 1), ("\u200d", 0)])
def test_how_wide_text_is(text: str, width: int) -> None:
    assert cells(text) == width


tables = st.integers(1, 5).flatmap(
    lambda size: st.lists(st.lists(texts, min_size=size, max_size=size), max_size=4)
)


@given(tables, st.integers(10, 120))
def test_tables_keep_their_words_and_fit(rows: list[list[str]], width: int) -> None:
    names = [f"column{number}" for number in range(len(rows[0]) if rows else 1)]
    table = Table(*names, right=names[:1])
    for row in rows:
        table.add(*row)
    pipe = io.StringIO()
    Screen(pipe).table(table)
    assert len(pipe.getvalue().splitlines()) == 1 + len(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        screen = Terminal()
        Screen(screen).table(table)
    shown = screen.getvalue()
    assert set(pipe.getvalue().split()) - set(names) <= set(shown.split())
    if max((cells(word) for row in rows for word in " ".join(row).split()), default=0) <= width - 9:
        assert max(map(cells, shown.splitlines()), default=0) <= width


def test_nothing_is_cut_in_a_pipe() -> None:
    table = Table("what")
    table.add("x" * 5000)
    pipe = io.StringIO()
    Screen(pipe).table(table)
    assert "x" * 5000 in pipe.getvalue()


@pytest.mark.parametrize(
    ("variables", "terminal", "plain", "expected"),
    [
        ({}, True, False, True),
        ({}, False, False, False),
        ({}, True, True, False),
        ({"NO_COLOR": "1"}, True, False, False),
        ({"NO_COLOR": ""}, True, False, True),
        ({"TERM": "dumb"}, True, False, False),
        ({"FORCE_COLOR": "1"}, False, False, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True, False, True),
        ({"FORCE_COLOR": "0"}, False, False, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False, False),
        ({"FORCE_COLOR": "1"}, False, True, False),
    ],
)
def test_who_gets_colour(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    terminal: bool,
    plain: bool,
    expected: bool,
) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stream = Terminal() if terminal else io.StringIO()
    assert coloured(stream, plain=plain) is expected


def test_a_terminal_without_a_size_has_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "many")
    assert width_of(Terminal()) == 80
    assert width_of(io.StringIO()) is None


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["dmesg.txt", "xid_job.log"], ["dmesg.txt", "xid_job.log"]),
        (["/dmesg.txt", "/var/job.log"], ["dmesg.txt", "var/job.log"]),
        (["a/b/x.log", "a/b/y.log"], ["x.log", "y.log"]),
        (["a/b", "a/bc/x.log"], ["b", "bc/x.log"]),
        (["ab.log", "abc.log"], ["ab.log", "abc.log"]),
        (["/a/x.log", "a/x.log"], ["/a/x.log", "a/x.log"]),
        (["a/x.log", "a/x.log/y"], ["x.log", "x.log/y"]),
        (["one.log"], ["one.log"]),
        ([], []),
    ],
)
def test_only_whole_folders_are_left_out_of_names(names: list[str], short: list[str]) -> None:
    assert list(without_shared_folders(names).values()) == short


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with logs and a trace in it."""
    monkeypatch.chdir(tmp_path)
    lines = [f"step {n}/900 loss {9 / (n + 1):.3f} step_time 0.5s\n" for n in range(60)]
    slow = [line.replace("0.5s", "0.9s") for line in lines]
    xid = "[12.5] NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus.\n"
    logs = tmp_path / "logs"
    logs.mkdir()
    (tmp_path / "dmesg.txt").write_text(xid)
    (tmp_path / "xid_job.log").write_text(
        "".join(lines) + "RuntimeError: CUDA error: unspecified launch failure\n"
    )
    (tmp_path / "before.log").write_text("".join(lines))
    (tmp_path / "after.log").write_text("".join(slow))
    for number in range(4):
        (logs / f"{number}.log").write_text(f"step 1\nKeyError: 'label of sample {number}'\n")
    rows = "".join(f"job-{n},{n * 60},{600 + n},1,u{n % 2}\n" for n in range(20))
    (tmp_path / "trace.csv").write_text("job_id,submit_s,duration_s,gpus,user\n" + rows)
    return tmp_path


def test_names_of_evidence_are_whole(cli: Cli, place: Path) -> None:
    out = cli("diagnose", "xid_job.log", "--node-logs", "dmesg.txt").out
    quoted = re.findall(r"^[> ] +(\S+):\d+ \| ", out, re.MULTILINE)
    assert set(quoted) == {"dmesg.txt", "xid_job.log"}
    absolute = cli("diagnose", "xid_job.log", "--node-logs", str(place / "dmesg.txt"))
    assert absolute.code == 0
    assert "xid_job.log:" in absolute.out


COMMANDS = [
    ["analyze", str(ROOT / "examples" / "train_repo"), "--command", COMMAND],
    ["diagnose", "xid_job.log", "--node-logs", "dmesg.txt"],
    ["track", "before.log"],
    ["track", "--compare", "before.log", "after.log"],
    ["triage", "logs", "--jobs", "1"],
    ["simulate", "trace.csv", "--policy", "fifo,tiresias", "--cluster", "1x8", "--seed", "0,1"],
    ["policies"],
    ["rules", "list", "nccl"],
    ["rules", "test", "KeyError: 'x'"],
    ["history", "list"],
    ["history", "show", "example-0001"],
    ["history", "stats"],
    ["traces", "list"],
    ["traces", "check", "trace.csv"],
    ["config", "show", "--origin"],
    ["llm", "ledger"],
    ["doctor"],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: " ".join(words[:2])[:24])
def test_what_is_shown_fits_the_terminal(
    cli: Cli,
    place: Path,
    example_history: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
) -> None:
    monkeypatch.setenv("SCHEDMATE_HISTORY", str(example_history))
    piped = cli(*arguments)
    assert piped.code in (0, 1), piped.err
    assert "\x1b" not in piped.out
    for columns in (80, 40):
        env = {"NO_COLOR": None}
        if arguments[0] == "triage":  # which says what it has seen before
            env["XDG_DATA_HOME"] = str(place / f"data{columns}")
        text = strip_escapes(at_terminal(*arguments, columns=columns, env=env))
        missing = _words(piped.out) - _words(text)
        assert not missing, f"broken at {columns} columns: {missing}\n{text}"
        for line in [line for line in text.splitlines() if "━" not in line]:  # a bar of progress
            longest = max(map(cells, line.split()), default=0)
            assert cells(line) <= columns or cells(line) <= longest + columns // 2, line


def test_a_field_of_an_analysis_takes_two_lines_at_most(example_history: Path) -> None:
    env = {"SCHEDMATE_HISTORY": str(example_history)}
    analyze = ("analyze", str(ROOT / "examples" / "train_repo"), "--command", COMMAND)
    for columns in (80, 100, 200):
        text = strip_escapes(at_terminal(*analyze, columns=columns, env=env))
        lines = text.splitlines()
        starts = [n for n, line in enumerate(lines) if re.match(r"(model|training)_config\.", line)]
        gaps = [later - one for one, later in pairwise(starts)]
        assert len(gaps) > 8
        assert max(gaps) <= 2
        assert any(re.match(r"training_config\.lr +\S+ .*%$", line) for line in lines)
        assert columns != 80 or "256 per device x 4 data-parallel devices" in text


def test_a_cell_below_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    table = Table("field", "value", "source", "sure", below="source")
    table.add("one", "1", f"conf/{'x' * 50}.yaml:3", "99%")
    table.add("two", "2", "", "1%")
    stream = Terminal()
    Screen(stream).table(table)
    lines = stream.getvalue().splitlines()
    assert lines[3:] == ["one    1      99%", f"    conf/{'x' * 50}.yaml:3", "two    2      1%"]
    table.add("three", "y" * 60, "there", "5%")
    stream = Terminal()
    Screen(stream).table(table)
    lines = stream.getvalue().splitlines()
    assert lines[-5:] == ["two  2  1%", "three", f"    {'y' * 60}", "    5%", "    there"]


def _words(text: str) -> set[str]:
    """The words of an output that do not differ from run to run."""
    return {word for word in text.split() if not re.fullmatch(r"[\d.,:]+", word)}


def test_verdicts_have_colour_where_it_is_wanted(place: Path) -> None:
    log = str(place / "xid_job.log")
    assert "\x1b[1;31m" in at_terminal("diagnose", log, columns=80, env={"NO_COLOR": None})
    assert "\x1b" not in at_terminal("diagnose", log, columns=80, env={"NO_COLOR": "1"})
    dumb = {"NO_COLOR": None, "TERM": "dumb"}
    assert "\x1b" not in at_terminal("diagnose", log, columns=80, env=dumb)


def test_colour_can_be_forced_into_a_pipe(
    cli: Cli, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b" not in cli("diagnose", "xid_job.log").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1;31m" in cli("diagnose", "xid_job.log").out
