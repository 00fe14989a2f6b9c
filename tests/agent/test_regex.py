"""Regular expressions of a repository: applied to what names are made of, in linear time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from schedmate.agent.bounds import linear_pattern_for
from schedmate.agent.static import extract

SCRIPT = """
import re
import torch

text = {text!r}
name = re.sub({pattern!r}, {replacement!r}, text)
first = re.split("-", name)[0]
model = torch.hub.load("some/models", first)
"""


def _model(tmp_path: Path, pattern: str, replacement: str, text: str) -> object:
    script = SCRIPT.format(pattern=pattern, replacement=replacement, text=text)
    (tmp_path / "train.py").write_text(script)
    return extract(tmp_path, "python train.py").metadata.get("model_config.model_name")


@pytest.mark.parametrize(
    ("pattern", "replacement", "text"),
    [
        ("^np.", "", "np.resnet50-v1"),
        (r"_\w+-", "-", "resnet18_small-run"),
        ("[A-Z]", "", "resnetB34"),
    ],
)
def test_a_name_is_made_as_the_program_makes_it(
    tmp_path: Path, pattern: str, replacement: str, text: str
) -> None:
    expected = re.sub(pattern, replacement, text).split("-")[0]
    assert _model(tmp_path, pattern, replacement, text) == expected


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "a*a*a*b", "(?P<x>a)", "(?<=a)a"])
def test_a_pattern_is_run_whatever_it_would_take_python(tmp_path: Path, pattern: str) -> None:
    text = "aaaaaaaac"  # short enough for Python as well
    expected = re.sub(pattern, "", text).split("-")[0]
    assert _model(tmp_path, pattern, "", text) == expected
    assert _model(tmp_path, pattern, "", "a" * 200) in ("a" * 200, "a", "", None)


@pytest.mark.parametrize(
    "pattern", [r"(.)\1*b", "(?=a+)a", "(?x: (a+) +)b", "(", "a{,3}", "a" * 999]
)
def test_a_pattern_without_linear_time_is_left_alone(tmp_path: Path, pattern: str) -> None:
    assert _model(tmp_path, pattern, "", "a" * 200) is None


SAME = [
    r"^np.", r"_\w+-", "[A-Z]", "(.)([A-Z][a-z]+)", r"(?i)resnet(\d+)", "a|b", r"\.pth$", "^.*/",
    r"(?P<n>\d+)(b|m)", "x*", "a{2,3}", r"\bnet\b", "(?<!^)(?=[A-Z])", "(x)?(y)?", r"[^\w]", "-|_",
]  # fmt: skip
TEXTS = ["np.resnet50-v1", "ResNetFooBar", "aaaa", "net net", "path/to/file.pth", "7b 13m", "xy"]


@pytest.mark.parametrize("pattern", SAME)
def test_what_is_found_is_what_python_finds(pattern: str) -> None:
    for text in TEXTS:
        found = linear_pattern_for(pattern, text, every=True)
        assert found is not None
        assert found.sub("<>", text) == re.sub(pattern, "<>", text)
        assert found.split(text) == re.split(pattern, text)
        assert found.findall(text) == re.findall(pattern, text)
        one, other = found.search(text), re.search(pattern, text)
        assert (one is None) == (other is None)
        assert one is None or other is None or one.groups() == other.groups()


@pytest.mark.parametrize(
    ("pattern", "text"),
    [(r"\w+", "größe"), ("a$", "a\n"), ("$", "a"), ("a??", "aa"), ("[[:alpha:]]", "a")],
)
def test_where_the_engines_differ_nothing_is_said(pattern: str, text: str) -> None:
    assert linear_pattern_for(pattern, text, every=True) is None
