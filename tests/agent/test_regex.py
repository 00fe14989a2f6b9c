"""Regular expressions of a repository: applied to what names are made of, and only if harmless."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", r"(.)\1*b", "a*a*a*b", "(?P<x>a)", "("])
def test_a_pattern_that_may_take_long_is_left_alone(tmp_path: Path, pattern: str) -> None:
    assert _model(tmp_path, pattern, "", "a" * 200) is None
