"""Jsonnet: what its expressions come to, where values stand, and what is refused."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree_leaves import leaves

from schedmate.agent.configs.reader import read_config
from schedmate.agent.configs.trees import ConfigError
from schedmate.agent.values import Unknown, Value

_DOUBLED = "local v0 = [1, 1]; "
for _n in range(20):
    _DOUBLED += f"local v{_n + 1} = [v{_n}, v{_n}]; "
_DOUBLED += "v20"
"""Small to write, large to read."""


def read(root: Path, text: str, name: str = "a.jsonnet", **variables: str) -> Value:
    (root / name).write_text(text)
    given_values = {key: Value(value) for key, value in variables.items()}
    return read_config(root / name, root, variables=given_values)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{a: 1, 'b': [1, 2.5, null], \"c\": true,}", {"a": 1, "b": [1, 2.5, None], "c": True}),
        (
            "local x = 3; {a: x * 2 + 1, b: 7 / 2, c: 6 / 2, d: -x}",
            {"a": 7, "b": 3.5, "c": 3, "d": -3},
        ),
        ("{a: 1, b: self.a, c: {d: $.a, e:: 5}}", {"a": 1, "b": 1, "c": {"d": 1}}),
        ("{a: 1, m: {x: 1}} + {a: super.a + 1, m +: {y: 2}}", {"a": 2, "m": {"x": 1, "y": 2}}),
        ("{a: 1, b: self.a} {a: 2}", {"a": 2, "b": 2}),
        ("local f(x, y=2) = x * y; [f(4), f(4, 3), f(y=1, x=9)]", [8, 12, 9]),
        ("{f(x):: x + 1, a: self.f(1)}", {"a": 2}),
        ("if 2 > 1 && !false then 'yes' else 'no'", "yes"),
        ("[x * x for x in [1, 2, 3] if x != 2]", [1, 9]),
        ("{[k]: 1 for k in ['a', 'b']}", {"a": 1, "b": 1}),
        ("{['x' + '-y']: 1, local z = 2, z: z}", {"x-y": 1, "z": 2}),
        ("'%s-%03d' % ['a', 7]", "a-007"),
        ("'%(n)s' % {n: 3}", "3"),
        ("std.join('+', ['a', 'b']) + std.length([1, 2]) + std.toString(true)", "a+b2true"),
        ("|||\n  one\n  two\n|||", "one\ntwo\n"),
        ("@'a\\b' + 'it\\'s \"so\"'", 'a\\bit\'s "so"'),
        ("# c\n// d\n/* e */ 1", 1),
        ("{ local a = self, b: a.c, c: 'x' }.b", "x"),
        ("{a: 'x' in {x: 1}}", {"a": True}),
    ],
)
def test_values(tmp_path: Path, text: str, value: object) -> None:
    assert read(tmp_path, text).plain() == value


def test_each_value_has_the_line_where_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "base.libsonnet").write_text("{\n  trainer: {\n    epochs: 3,\n    lr: 1 },\n}")
    config = read(tmp_path, "local lr = 0.5;\n(import 'base.libsonnet') {\n trainer+: {lr: lr}}")

    places = {
        path: (leaf.data, leaf.origin.file, leaf.origin.line)
        for path, leaf in leaves(config)
        if leaf.origin is not None
    }

    assert places == {
        "trainer.epochs": (3, "base.libsonnet", 3),
        "trainer.lr": (0.5, "a.jsonnet", 3),
    }


def test_variables_come_from_outside_and_unknown_ones_stay_unknown(tmp_path: Path) -> None:
    text = '{n: std.parseInt(std.extVar("N")) + 1, path: std.extVar("PLACE"), k: 1}'
    found = read(tmp_path, text, N="4").data

    assert (found["n"].data, found["k"].data) == (5, 1)
    assert isinstance(found["path"].data, Unknown)


def test_jsonnet_in_a_json_file(tmp_path: Path) -> None:
    assert read(tmp_path, '{"a": std.extVar("A")}', "a.json", A="x").plain() == {"a": "x"}


@pytest.mark.parametrize(
    "text",
    [
        "local f(x) = f(x + 1); {a: f(0), b: 1}",
        "{a: self.c, c: self.a, b: 1}",
        "local a = b, b = a; {a: a, b: 1}",
        "{a: error 'no', b: 1}",
        "{a: std.native('os')('x'), b: 1}",
        "{a: importstr 'b', b: 1}",
        "{a: std.pow(10, 1000), b: 1}",
        "{a: import '../outside.libsonnet', b: 1}",
        "{a: import 'none.libsonnet', b: 1}",
    ],
)
def test_what_cannot_be_known_is_unknown_and_the_rest_stands(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, text).data

    assert isinstance(found["a"].data, Unknown)
    assert found["b"].data == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import '../outside.libsonnet'", "outside"),
        ("import 'none.libsonnet'", "no such file"),
        ("{a: 1", "a.jsonnet:1"),
        ("{a: 1}\n}", "a.jsonnet:2"),
        ("[" * 3000, "nests deeper"),
        ("// " + "]" * 3000 + "\n" + "[" * 3000, "nests deeper"),
        ("[y for y in std.range(0, 500) for z in std.range(0, 500)]", "values|more than"),
        ("[[z for z in std.range(0, 500)] for y in std.range(0, 500)]", "values|more than"),
        (_DOUBLED, "values|more than"),
    ],
)  # fmt: skip
def test_refusals(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "outside.libsonnet").write_text("{}")
    root = tmp_path / "repo"
    root.mkdir()

    with pytest.raises(ConfigError, match=reason):
        read(root, text)


def test_without_the_library_the_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rjsonnet", None)

    with pytest.raises(ConfigError, match=r"pip install 'schedmate\[jsonnet\]'"):
        read(tmp_path, "{a: 1}")


@given(st.text(alphabet="{}[]()+:,.;$'\"%|&!=<>a1 \nlocalselfsuperimportif", max_size=60))
def test_no_text_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    root = tmp_path_factory.getbasetemp()
    with contextlib.suppress(ConfigError):
        read(root, text, "fuzz.jsonnet")
