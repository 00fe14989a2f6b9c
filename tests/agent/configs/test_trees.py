"""Merging, dotted paths, literals and interpolations; properties that hold for any input."""

from __future__ import annotations

import contextlib
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_leaves import leaves

from schedmate.agent.configs.gin import parse_gin
from schedmate.agent.configs.hydra import compose_hydra
from schedmate.agent.configs.interpolation import resolve_interpolations
from schedmate.agent.configs.reader import read_config
from schedmate.agent.configs.scalars import parse_scalar
from schedmate.agent.configs.trees import ConfigError, merge, set_dotted
from schedmate.agent.configs.yaml_reader import read_detectron
from schedmate.agent.values import Origin, Unknown, Value, lifted, unknown

HERE = Origin("config", "a.yaml", 1)


def value(data: Any, line: int = 1) -> Value:
    return lifted(data, Origin("config", "a.yaml", line))


def test_merge_is_deep_and_replaces_lists() -> None:
    base = value({"a": {"b": 1, "c": [1, 2]}, "d": 1, "e": {"f": 1}, "g": 5})
    over = value({"a": {"c": [3], "x": None}, "d": {"y": 2}, "e": 4, "g": "???"}, 2)
    before = base.plain()
    merged = merge(base, over)
    assert merged.plain() == {
        "a": {"b": 1, "c": [3], "x": None},
        "d": {"y": 2},
        "e": 4,
        "g": 5,
    }
    assert merged.data["a"].data["b"].origin.line == 1
    assert merged.data["a"].data["c"].origin.line == 2
    assert base.plain() == before


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a[0].b", {"a": [{"b": 9}, 2], "0": 1}),
        ("a.0.b", {"a": [{"b": 9}, 2], "0": 1}),
        ("a.1", {"a": [{"b": 1}, 9], "0": 1}),
        ("a.-1", {"a": [{"b": 1}, 9], "0": 1}),
        ("a[2].c", {"a": [{"b": 1}, 2, {"c": 9}], "0": 1}),
        ("x.y.z", {"a": [{"b": 1}, 2], "0": 1, "x": {"y": {"z": 9}}}),
        ("0", {"a": [{"b": 1}, 2], "0": 9}),
        ("a", {"a": 9, "0": 1}),
    ],
)
def test_set_dotted(path: str, expected: object) -> None:
    config = value({"a": [{"b": 1}, 2], "0": 1})
    before = config.plain()
    assert set_dotted(config, path, value(9)).plain() == expected
    assert config.plain() == before


def test_set_dotted_merges_mappings_and_keeps_numeric_keys() -> None:
    config = value({"a": {"b": 1}, 3: "x"})
    assert set_dotted(config, "a", value({"c": 2})).plain() == {"a": {"b": 1, "c": 2}, 3: "x"}
    assert set_dotted(config, "3", value("y")).plain() == {"a": {"b": 1}, 3: "y"}


@pytest.mark.parametrize("path", ["a.x", "b", "l[3]", "l.k"])
def test_set_dotted_without_create_refuses_what_is_missing(path: str) -> None:
    with pytest.raises(ConfigError):
        set_dotted(value({"a": {"b": 1}, "l": [1]}), path, value(1), create=False)


def test_set_dotted_refuses_what_is_no_path() -> None:
    for path in ("", ".".join(["a"] * 1000)):
        with pytest.raises(ConfigError):
            set_dotted(value({}), path, value(1))
    with pytest.raises(ConfigError):
        set_dotted(value([1]), "7", value(1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        ("1e-4", 1e-4),
        ("true", True),
        ("None", None),
        ("null", None),
        ("", ""),
        ("resnet-50", "resnet-50"),
        ("a,b", "a,b"),
        ("a: b", "a: b"),
        ("[1, 2.5, x y, 'q, r']", [1, 2.5, "x y", "q, r"]),
        ("{a: 1, b: {c: [true]}}", {"a": 1, "b": {"c": [True]}}),
        ("{a:1}", {"a": 1}),
        ("(1, 2)", (1, 2)),
        ("(1)", 1),
        ("()", ()),
        ("['a', None]", ["a", None]),
        ('"x\\"y"', 'x"y'),
        ("'1'", "1"),
        ("[1", "[1"),
        ("[1] x", "[1] x"),
        ("'open", "'open"),
        ("[" * 5000, "[" * 5000),
        ("${a.b}", "${a.b}"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_parse_scalar(text: str, expected: object) -> None:
    parsed = parse_scalar(text)
    assert parsed == expected
    assert type(parsed) is type(expected)


# What omegaconf 2.3 gives for the same document.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${a}", 1),
        ("${b.c} and ${a}", "x and 1"),
        ("${l[1]}${l.0}", "32"),
        ("${b.${key}}", "x"),
        ("${oc.env:SCHEDMATE_NONE,8080}", "8080"),
        ("${oc.env:SCHEDMATE_NONE,null}", None),
        ("${oc.env:SCHEDMATE_NONE,'a, b'}", "a, b"),
        ("${oc.env:SCHEDMATE_NONE,${a}}", "1"),
        ("${oc.env:SCHEDMATE_NONE,/a/b}/c", "/a/b/c"),
        ("${oc.select:q,3}", 3),
        ("${oc.select:b.c,3}", "x"),
        ("${oc.select:q}", None),
        ("${oc.decode:'[1, 2]'}", [1, 2]),
        ("${oc.decode:${oc.env:SCHEDMATE_NONE,1e-3}}", 1e-3),
        ("\\${a}", "${a}"),
        ("\\\\${a}", "\\1"),
        ("${ a }", 1),
        ("${n}-${t}", "None-True"),
        ("${r.j[0]}", 4),
        ("${r}", {"i": 4, "h": 4, "j": [4]}),
    ],
)
def test_interpolations(text: str, expected: object) -> None:
    config = value(
        {
            "x": text,
            "a": 1,
            "b": {"c": "x"},
            "l": [2, 3],
            "key": "c",
            "n": None,
            "t": True,
            "r": {"i": 4, "h": "${.i}", "j": ["${..i}"]},
        }
    )
    resolved = resolve_interpolations(config).data["x"]
    assert resolved.plain() == expected
    assert type(resolved.plain()) is type(expected)


@pytest.mark.parametrize(
    "text",
    [
        "${nope}",
        "${a.b}",
        "${x}",
        "${y}",
        "${l[5]}",
        "${hydra:runtime.cwd}",
        "${now:%Y}/x",
        "${eval:'1 + 1'}",
        "${oc.env:SCHEDMATE_NONE}",
        "${env:SCHEDMATE_NONE}",
        "${must}",
        "${a",
        "${}",
        "${......a}",
        "${oc.select:must}",
        "${oc.create:1}",
        "text ${l}",
        "${oc.env:[}",
    ],
)
def test_interpolations_that_stay_unknown(text: str) -> None:
    config = value({"x": text, "y": "${x}", "a": 1, "l": [1], "must": "???"})
    assert resolve_interpolations(config).data["x"] == Value(Unknown(text), HERE)


def test_long_chains_and_growing_text_stay_unknown() -> None:
    chain: dict[str, Any] = {f"a{i}": f"${{a{i + 1}}}" for i in range(2000)}
    resolved = resolve_interpolations(value({**chain, "a2000": 1}))
    assert isinstance(resolved.data["a0"].data, Unknown)
    assert resolved.data["a1990"].data == 1
    texts: dict[str, Any] = {f"a{i}": f"${{a{i + 1}}}${{a{i + 1}}}" for i in range(40)}
    resolved = resolve_interpolations(value({**texts, "a40": "x"}))
    assert isinstance(resolved.data["a0"].data, Unknown)
    assert resolved.data["a39"].data == "xx"


def test_resolvers_of_the_program() -> None:
    config = lifted({"a": "${pick:0,7}", "b": "${eval:'1+1'}", "c": "${ask:1}"})
    resolvers = {
        "pick": lambda values: values[1],
        "ask": lambda values: unknown(),
    }

    found = resolve_interpolations(config, resolvers=resolvers).mapping or {}

    assert [found[key].data for key in "abc"] == [7, Unknown("${eval:'1+1'}"), Unknown("${ask:1}")]


def test_interpolations_that_expand_too_far_are_refused() -> None:
    levels: dict[str, Any] = {f"a{i}": [f"${{a{i + 1}}}"] * 10 for i in range(12)}
    with pytest.raises(ConfigError, match="more than 200,000"):
        resolve_interpolations(value({**levels, "a12": 1}))
    nested: dict[str, Any] = {f"a{i}": {"b": {"c": f"${{a{i + 1}}}"}} for i in range(200)}
    with pytest.raises(ConfigError, match="nest"):
        resolve_interpolations(value({**nested, "a200": 1}))


# --- properties ---------------------------------------------------------------------------------

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="ascii", categories=("L", "N")), max_size=8),
)
LEAVES = st.dictionaries(st.sampled_from("abc"), SCALARS, max_size=3)
# A key holds either scalars or mappings throughout: replacing one by the other is a choice of
# order, not a merge.
TREES = st.fixed_dictionaries(
    {},
    optional={
        "x": SCALARS,
        "y": SCALARS,
        "m": LEAVES,
        "n": st.fixed_dictionaries({}, optional={"o": LEAVES, "p": LEAVES, "q": SCALARS}),
    },
)


@given(TREES)
def test_merge_identity(tree: dict[str, Any]) -> None:
    assert merge(value({}), value(tree)).plain() == tree
    assert merge(value(tree), value({})).plain() == tree
    assert merge(value(tree), value(tree)).plain() == tree


@given(TREES, TREES, TREES)
def test_merge_associativity(a: dict[str, Any], b: dict[str, Any], c: dict[str, Any]) -> None:
    left = merge(merge(value(a), value(b)), value(c))
    right = merge(value(a), merge(value(b), value(c)))
    assert left.plain() == right.plain()


@given(SCALARS)
def test_scalars_round_trip_through_yaml(scalar: Any) -> None:
    text = yaml.safe_dump(scalar).removesuffix("...\n").strip()
    loaded = yaml.safe_load(text)
    if isinstance(loaded, str) and text == loaded and text != scalar:
        return
    parsed = parse_scalar(text)
    if scalar == "None":
        assert parsed is None
    elif isinstance(loaded, float):
        assert isinstance(parsed, float)
        assert math.isclose(parsed, loaded)
    else:
        assert parsed == loaded
        assert type(parsed) is type(loaded)


@given(SCALARS)
def test_yaml_files_read_as_safe_load_reads_them(scalar: Any) -> None:
    text = yaml.safe_dump({"k": [scalar]})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.yaml"
        path.write_text(text)
        assert read_config(path, Path(folder)).plain() == yaml.safe_load(text)


MARKS = ["!ref <a>", "${", "${a}", "_BASE_: ", "include 'a'", "defaults:\n", "[a]\n", "a = "]
CONFIG_TEXT = st.one_of(
    st.text(max_size=80),
    st.lists(
        st.sampled_from(
            [*"[]{}(),:=&*!#%@-|>'\"\\$~?.\n\t ab01\0", "a: ", "- ", "<<: ", "&x ", "*x", *MARKS]
        ),
        max_size=25,
    ).map("".join),
)
SUFFIXES = (".yaml", ".json", ".toml", ".ini", ".cfg", ".conf", ".args", ".properties", "")


@settings(max_examples=40)
@given(st.one_of(CONFIG_TEXT.map(lambda text: text.encode("utf-8", "replace")), st.binary()))
def test_no_file_raises_anything_but_config_error(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for suffix in SUFFIXES:
            path = root / f"a{suffix}"
            path.write_bytes(raw)
            try:
                for _, leaf in leaves(read_config(path, root)):
                    assert leaf.origin is None or (leaf.origin.line or 0) >= 1
            except ConfigError:
                pass
        (root / "a.gin").write_bytes(raw)
        for read in (
            lambda: read_detectron(root / "a.yaml", root),
            lambda: parse_gin(root / "a.gin", root),
            lambda: compose_hydra(root, "a", [], root),
            lambda: resolve_interpolations(read_config(root / "a.yaml", root)),
        ):
            with contextlib.suppress(ConfigError):
                read()


@settings(max_examples=40)
@given(CONFIG_TEXT)
def test_no_text_raises_anything_but_config_error(text: str) -> None:
    parse_scalar(text)
    tokens = [value(text), value(f"a={text}"), value(f"+a.b={text}"), value(f"~{text}")]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "c.yaml").write_text("a: {b: 1}\nl: [1]\n")
        try:
            compose_hydra(root, "c", tokens, root)
            set_dotted(value({"a": [1]}), text, value(text))
            resolve_interpolations(value({"a": text, "b": ["${a}"]}))
            parse_gin(text, root)
        except ConfigError:
            pass
