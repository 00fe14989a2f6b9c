"""Functions of large sources are parsed when they are entered, to the same tree as at once."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.agent import syntax
from schedmate.agent.static import extract
from schedmate.agent.syntax import parse_later

LONG = (
    "    first = 'a statement that makes the body long enough to be worth a cut of its own'\n" * 2
)


def statements(function: str) -> list[ast.stmt]:
    found = ast.parse(function).body[0]
    assert isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef)
    return found.body


def places(tree: ast.AST) -> list[tuple[str, int | None, int | None]]:
    """Every node below with where it begins."""
    return [
        (type(node).__name__, getattr(node, "lineno", None), getattr(node, "col_offset", None))
        for node in ast.walk(tree)
    ]


def assert_same(text: str) -> None:
    whole = ast.parse(text)
    later = parse_later(text, statements)
    if later is not None:
        assert places(later) == places(whole)
        assert ast.dump(later) == ast.dump(whole)


INNER = LONG.replace("    first", "        first")
NO_END = "x = 'a \\\ndef b():\\\n" + "    no end of this line here \\\n" * 9 + "'\n"

PIECES = {
    "plain": f"def plain(a, b=1):\n{LONG}    return a\n",
    "long head": f"async def head(\n    a,\n    b: dict[str, int] = {{'x': 1}},\n) -> A:\n{LONG}",
    "method": f"class A:\n    x = 1\n    def method(self):\n{INNER}        pass\n",
    "decorated": f"@register('a')  # def b():\ndef decorated():  # why: so\n{LONG}    # end\n\n",
    "documented": 'def told():\n    """Says\nmuch at a margin.\n\ndef not_this():\n    pass\n'
    f'    """\n{LONG}',
    "example": f'"""Text with an example.\n\ndef example():\n{LONG}"""\n',
    "brackets": f"def brackets():\n    x = [\n1,\n]\n{LONG}",
    "goes on": f"def goes_on():\n{LONG}    x = 1 + \\\n2\n",
    "string goes on": NO_END,
    "lambda": f"def colon(a=lambda:\n          0, b=2):\n{LONG}",
    "nested": f"def nested():\n{LONG}    def inner():\n        yield 1\n    return inner\n",
    "condition": f"if x:\n    def one():\n{INNER}        pass\nelse:\n    def one(): return 2\n",
    "quotes": f"def quotes():\n    x = '\"\"\"'\n{LONG}    y = \"'''\"\n",
    "short": "def short(): return 1\n",
    "comment": f"def comment():\n    x = 1\n# at the margin\n{LONG}",
    "tabs": "def tabs():\n\tif x:\n\t\ty = 1\n"
    + "\tz = 'long enough to be cut, as others are'\n" * 4,
}


@pytest.mark.parametrize("name", PIECES)
def test_each_form_gives_the_same_tree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syntax, "SHORTEST_DEFERRED", 0)

    assert_same(PIECES[name])
    assert_same(PIECES["plain"] + PIECES[name] + PIECES["plain"])
    assert_same((PIECES["plain"] + PIECES[name]).replace("\n", "\r\n"))


def test_common_forms_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syntax, "SHORTEST_DEFERRED", 0)

    cut = {name for name, text in PIECES.items() if parse_later(text, statements) is not None}

    assert cut >= {"plain", "long head", "method", "decorated", "nested", "condition", "tabs"}
    assert cut.isdisjoint({"documented", "example", "brackets", "goes on", "string goes on"})


@settings(max_examples=30)
@given(st.lists(st.sampled_from(sorted(PIECES)), max_size=6), st.data())
def test_any_order_of_forms_gives_the_same_tree(names: list[str], data: st.DataObject) -> None:
    text = "".join(PIECES[name] for name in names)
    mark = data.draw(st.sampled_from(['"', "'", '"""', "\\\n", "(", "]", "#", ":", "\n", ""]))
    at = data.draw(st.integers(0, len(text)))
    text = text[:at] + mark + text[at:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(syntax, "SHORTEST_DEFERRED", 0)
        try:
            ast.parse(text)
        except (SyntaxError, ValueError):
            return
        assert_same(text)


def test_functions_that_nobody_looks_into_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syntax, "SHORTEST_DEFERRED", 0)
    read: list[str] = []

    def reading(function: str) -> list[ast.stmt]:
        read.append(function)
        return statements(function)

    tree = parse_later(f"def one():\n{LONG}\n\nasync def two():\n{LONG}    await x\n", reading)
    assert tree is not None
    assert read == []

    two = tree.body[1]
    assert isinstance(two, ast.AsyncFunctionDef)
    assert [part.lineno for part in two.body] == [7, 8, 9]
    assert isinstance(two.body[-1], ast.Expr)
    assert len(list(reversed(two.body))) == len(two.body) == 3
    assert len(read) == 1


def test_a_large_program_says_the_same_and_what_is_not_valid_is_left_out(tmp_path: Path) -> None:
    unused = "".join(f"def unused{n}():\n{LONG}    return {n}\n\n\n" for n in range(60))
    (tmp_path / "train.py").write_text(
        "import argparse\nimport torch\nfrom torchvision.models import resnet50\n\n\n"
        f"{unused}def other():\n{LONG}    print 'one more'\n\n\n"
        f"def never():\n{LONG}    print 'an old form that is never reached'\n\n\n"
        f"def main():\n{LONG}    print 'an old form'\n"
        "    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument('--epochs', type=int, default=7)\n"
        "    args = parser.parse_args()\n"
        "    model = resnet50()\n    other()\n"
        "    for epoch in range(args.epochs):\n        train(model)\n\n\nmain()\n"
    )
    line = (tmp_path / "train.py").read_text().split("\n").index("    print 'an old form'") + 1

    found = extract(tmp_path, "python train.py")

    assert found.metadata.get("training_config.iters") == 7
    assert found.metadata.get("model_config.model_name") == "resnet50"
    old = [text for text in found.warnings if "not valid Python" in text]
    assert [text.split(": ")[0] for text in old] == [f"train.py:{line}"]


def test_entering_each_of_many_functions_reads_no_more_than_some_times_the_source() -> None:
    text = f"def f(a):\n    a = '{'b' * 130}'\n" * 9_000
    read = 0

    def reading(function: str) -> list[ast.stmt]:
        nonlocal read
        read += len(function)
        return []

    tree = parse_later(text, reading)
    for function in tree.body if tree is not None else ():
        assert isinstance(function, ast.FunctionDef)
        assert len(function.body) == 0

    assert read < 30 * len(text)


@pytest.mark.parametrize(
    "text",
    [
        "def f(\n" * 60_000,
        "def f(\n" * 79 + ":#" * 200 + ("x" * 250 + " ") * 7_500 + "\nx\n",
        "def f(\n" * 80 + ":" + " " * 1_000_000,
        "def f(\n" * 80 + ": " * 90_000,
        f"def f():\n{LONG}" * 500 + '"' * 99_999,
    ],
)
def test_text_that_is_hard_to_cut_is_no_trap(text: str) -> None:
    began = time.process_time()
    parse_later(text, statements)
    assert time.process_time() - began < 5  # without bounds: a quarter of a minute, or hours
