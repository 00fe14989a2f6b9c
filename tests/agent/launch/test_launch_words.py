"""Lexer, parser, expansion and arithmetic."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.agent.bounds import Budget
from schedmate.agent.launch import shell_operators
from schedmate.agent.launch.plan import Follower, LaunchPlan
from schedmate.agent.launch.planning import start_program
from schedmate.agent.launch.repo import Repo
from schedmate.agent.launch.scripts import run_command
from schedmate.agent.launch.shell import Shell
from schedmate.agent.launch.shell_expansion import State, joined_text, known_text
from schedmate.agent.launch.shell_grammar import Lexer, Literal, parse_script
from schedmate.jobs import LaunchConfig

Plan = Callable[..., LaunchPlan]


def literal_words(text: str) -> list[str]:
    """The words of a command without expansions."""
    return [
        "".join(part.text for part in token.word.parts if isinstance(part, Literal))
        for token in Lexer(text).tokens()
        if token.word is not None
    ]


def expand(script: str, *arguments: str) -> list[str | None]:
    """The arguments that `show` gets in a script; None for an unknown one."""
    follower = Follower(Repo(Path(__file__).parent), LaunchConfig(), start_program)
    state = State()
    shell = Shell(follower, state)
    if arguments:
        shell.script("set -- " + shlex.join(arguments))
    shell.script('show() { SHOWN=("$@"); }; ' + script)
    return [known_text(text) for text in state.variables["SHOWN"].items.values()]


plain_text = st.text(
    st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="$`&|;<>()#")
)


@given(plain_text)
def test_words_agree_with_shlex(text: str) -> None:
    try:
        expected = shlex.split(text)
    except ValueError:
        return  # an unclosed quote: shlex refuses, the lexer takes the rest
    assert literal_words(text) == expected


@given(st.lists(st.text(min_size=1, max_size=20).filter(lambda t: "\0" not in t and "\r" not in t)))
def test_quoted_words_come_back(words: list[str]) -> None:
    assert literal_words(shlex.join(words)) == words


@given(st.text(max_size=300))
def test_any_text_parses_and_is_followed(text: str) -> None:
    parse_script(text)
    follower = Follower(Repo(Path(__file__).parent), LaunchConfig(), start_program)
    run_command(follower, text)
    assert all(run.plan.argv is not None for run in follower.runs)


FRAGMENTS = r"""
if then else elif fi for in do done while until case esac ;; { } ( ) (( )) [[ ]] [ ] && || | ; & ! $
${ } $( ) ` ' " \ < > << <<< EOF x=1 x+=( $x ${x:-y} $# $@ "$@" f() function f eval set -- shift
exit return break cd .. source . python a.py export 1 - = # ${x%%*} ${x/a/b} $((1+ x)) {1..3} {a,b}
torchrun -m srun bash -c make env python3 read getopts accelerate launch sbatch --wrap docker run
"""

shell_like = st.lists(st.sampled_from([*FRAGMENTS.split(), "\n"]), max_size=40).map(" ".join)


@given(shell_like)
def test_broken_scripts_are_followed(text: str) -> None:
    follower = Follower(Repo(Path(__file__).parent), LaunchConfig(), start_program, Budget(1.0))
    run_command(follower, text)
    assert len(follower.runs) <= 201


@pytest.mark.parametrize(
    ("script", "arguments", "expected"),
    [
        ("show $1 $2", ("a b", "c"), ["a", "b", "c"]),
        ('show "$1" "$3"', ("a b",), ["a b", ""]),
        ('show "$@" $#', ("a b", "c"), ["a b", "c", "2"]),
        ('show "$@"', (), []),
        ('show x"$@"y', ("a", "b"), ["xa", "by"]),
        ('show "$*"', ("a", "b"), ["a b"]),
        ("shift; show $1 ${2:-none}", ("a", "b"), ["b", "none"]),
        ("X=1; show ${X:-2} ${Y:-3} ${Y:=4} $Y", (), ["1", "3", "4", "4"]),
        ("X=; show ${X:-2} ${X:+set} ${Z+set}", (), ["2"]),
        ("X=a.tar.gz; show ${X%.*} ${X%%.*} ${X#*.} ${X##*.}", (), ["a.tar", "a", "tar.gz", "gz"]),
        ("X=a-b-c; show ${X/-/_} ${X//-/_} ${X^^} ${#X}", (), ["a_b-c", "a_b_c", "A-B-C", "5"]),
        ("X=hello; show ${X:1:3} ${X:2}", (), ["ell", "llo"]),
        ("A=(x 'y z'); A+=(w); show \"${A[@]}\" ${#A[@]}", (), ["x", "y z", "w", "3"]),
        ("A=(x y z); show ${A[1]} ${A[-1]} ${A[@]:1:1}", (), ["y", "z", "y"]),
        ("declare -A M=([a]=1 [b]=2); k=b; show ${M[a]} ${M[$k]}", (), ["1", "2"]),
        ('show "${NONE[@]}" end', (), ["end"]),
        ("X='--a 1 --b'; show $X \"$X\"", (), ["--a", "1", "--b", "--a 1 --b"]),
        ("N=4; show $((N * 2 + 1)) $(( $N ** 2 )) $((7 / 2))", (), ["9", "16", "3"]),
        ("NAME=X; X=5; show ${!NAME}", (), ["5"]),
        ("show {1..3} a{b,c} '{1..3}'", (), ["1", "2", "3", "ab", "ac", "{1..3}"]),
        ("X=$(basename /a/b.sh .sh); show $X $(dirname a/b) $(echo 1 2)", (),
         ["b", "a", "1", "2"]),
        ("G=0,1,2,3; show $(echo $G | tr ',' '\\n' | wc -l) $(echo $G | awk -F, '{print NF}')", (),
         ["4", "4"]),
        ("show $(seq 2 2 6)", (), ["2", "4", "6"]),
        ("show $UNSET $(date) ${UNSET%x}", (), [None, None, None]),
        ("read -r -d '' X <<EOF\n--a 1 \\\n--b 2\nEOF\nshow $X", (), ["--a", "1", "--b", "2"]),
        ("IFS=, read -ra P <<< 'a b'; show ${P[1]}", (), ["b"]),
        ("X=1; (X=2); show $X", (), ["1"]),
        ("f() { local Y=$1; X=$Y; }; f 3; show $X", (), ["3"]),
        ("f() { X=1; return; X=2; }; f; show $X", (), ["1"]),
        ("X=1; case b in a) X=2;; b|c) X=3;; *) X=4;; esac; show $X", (), ["3"]),
        ("for i in 1 2 3; do S=$S$i; done; show $i", (), ["3"]),
        ("while [[ $# -gt 0 ]]; do case $1 in --lr) LR=$2; shift;; esac; shift; done; show $LR",
         ("--x", "--lr", "0.5"), ["0.5"]),
        ("while getopts 'l:v' o; do case $o in l) LR=$OPTARG;; v) V=1;; esac; done; show $LR $V",
         ("-v", "-l", "0.5"), ["0.5", "1"]),
        ("for ((i=0; i<4; i++)); do :; done; show $i", (), ["4"]),
        ("if [ 3 -gt 2 ]; then X=a; else X=b; fi; show $X", (), ["a"]),
        ("if [[ abc == a* && -z $NO ]]; then X=a; else X=b; fi; show $X", (), ["a"]),
        ("if [[ -f /data/x ]]; then X=a; else X=b; fi; show $X", (), [None]),
        ("X=d; if [[ -f /data/x ]]; then X=a; fi; show $X", (), [None]),
        ("if [[ -f /data/x ]]; then X=a; fi; show $X", (), ["a"]),
        ("X=-a; if [[ -f /x ]]; then X=\"$X -b\"; fi; show $X", (), ["-a"]),
        ("[ x = y ] && X=1; [ x = x ] || X=2; show ${X:-none}", (), ["none"]),
    ],
)  # fmt: skip
def test_expansion(script: str, arguments: tuple[str, ...], expected: list[str | None]) -> None:
    assert expand(script, *arguments) == expected


@given(st.integers(-1000, 1000), st.integers(-1000, 1000), st.sampled_from(["+", "-", "*", "<"]))
def test_arithmetic_agrees_with_python(left: int, right: int, operator: str) -> None:
    expected = {"+": left + right, "-": left - right, "*": left * right, "<": int(left < right)}
    assert (
        shell_operators.evaluate_arithmetic(f"({left}) {operator} ({right})", lambda _: None)
        == expected[operator]
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("2 ** 3 ** 2", 512),
        ("1 ? 2 : 3", 2),
        ("0x10 + 010", 24),
        ("!0 && 1", 1),
        ("1 / 0", None),
        ("9 ** 9 ** 9", None),
        ("x + 1", None),
        ("__import__('os')", None),
        ("1 +", None),
        ("(" * 200, None),
    ],
)
def test_arithmetic(text: str, value: int | None) -> None:
    assert shell_operators.evaluate_arithmetic(text, lambda _: None) == value


@given(st.text(max_size=60))
def test_arithmetic_takes_any_text(text: str) -> None:
    value = shell_operators.evaluate_arithmetic(text, lambda _: 3)
    assert value is None or isinstance(value, int)


def test_growth_is_bounded() -> None:
    script = "X=aaaaaaaaaa; " + "X=$X$X$X$X; " * 40 + "show $X"
    assert expand(script) == [None]


@pytest.mark.parametrize("text", ["{1..3}", "{a,b}{c,d}", "x{1,2}y", "{01..03}", "{a,b{c,d}}"])
def test_braces(text: str) -> None:
    expected = {
        "{1..3}": ["1", "2", "3"],
        "{a,b}{c,d}": ["ac", "ad", "bc", "bd"],
        "x{1,2}y": ["x1y", "x2y"],
        "{01..03}": ["01", "02", "03"],
        "{a,b{c,d}}": ["a", "bc", "bd"],
    }
    assert shell_operators.expand_braces(text) == expected[text]


@pytest.mark.parametrize("text", ["{}", "{a}", "{1..}", "${a,b}", "{a,b", "{1..999999999}"])
def test_what_is_no_brace_expansion_stays(text: str) -> None:
    assert shell_operators.expand_braces(text) == [text]


def test_lines_of_tokens_in_a_multi_line_value() -> None:
    follower = Follower(Repo(Path(__file__).parent), LaunchConfig(), start_program)
    state = State(file="run.sh")
    shell = Shell(follower, state)
    shell.script('#!/bin/bash\nARGS="\n  --lr 0.1\n  --epochs 3\n"\n')
    fields = shell.expander.fields(Lexer("$ARGS").word())
    assert [(joined_text(text), text[0].origin.line) for text in fields] == [
        ("--lr", 3),
        ("0.1", 3),
        ("--epochs", 4),
        ("3", 4),
    ]


def test_the_root_is_the_package_that_it_was_cloned_as(tmp_path: Path) -> None:
    for file, text in {
        ".git/config": '[remote "origin"]\n\turl = git@github.com:lab/seedling.git\n',
        "agents/learner.py": "LOSS = 1\n",
        "zoo/main.py": "import torch.utils.data\nfrom seedling.agents import learner\n",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)

    assert Repo(tmp_path).root_package == "seedling"


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        ("--data <path to data> --lr 1", ["--data", None, "--lr", "1"]),
        ("--cfg configs/<name>.yaml --lr 1", ["--cfg", None, "--lr", "1"]),
        ("--cfg exps/[MODEL NAME].json --lr 1", ["--cfg", None, "--lr", "1"]),
        ("--epochs [EPOCHS] --cfg {NAME}.yml", ["--epochs", None, "--cfg", None]),
        ("a.py [--seed <n> --out OUT] --lr 1", ["a.py", "--lr", "1"]),
        ("a.py [OTHER_ARGS] --lr 1", ["a.py", "--lr", "1"]),
        ("a.py [optional arguments] --lr 1", ["a.py", "--lr", "1"]),
        ("--lr 1 \\ # adjust this\n--wd 2 \\ \n --x 3", ["--lr", "1", "--wd", "2", "--x", "3"]),
        # what a shell means by the same signs
        ("--lr 1 < in.txt > out.txt", ["--lr", "1"]),
        ("--lr 1 <in.txt >out.txt 2>&1", ["--lr", "1"]),
        ("--sizes [1, 2] dims=[a,b] x[0]=1 {a,b} [ab]",
         ["--sizes", "[1,", "2]", "dims=[a,b]", "x[0]=1", "a", "b", "[ab]"]),
    ],
)  # fmt: skip
def test_what_a_reader_is_to_fill_in(plan: Plan, words: str, argv: list[str | None]) -> None:
    assert [value.plain() for value in plan(f"python train.py {words}").argv] == argv
