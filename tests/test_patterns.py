"""No pattern of the package takes super-linear time, or its caller keeps what it is given short.

Patterns are found in source and data by themselves, and attacked by texts made from their trees.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from own_patterns import PACKAGE, bound, of_data, of_source, runs_in_re2
from regex_attacks import slowest

SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if "re." in path.read_text("utf-8"))
DATA = sorted(PACKAGE.rglob("*.yaml"))

ATTACKED = {
    r"(a+)+$": "exponential", r"\s+$": "quadratic", r"^\s*url\s*=": "quadratic over lines",
    r"(\w*_)?model": "quadratic", r"a\w*b": "quadratic", r"(\d+\.?)*x": "exponential",
    r"\[\s*([^\]]+?)\s*\]": "quadratic", "(a|aa)+b": "exponential",
}  # fmt: skip
HARMLESS = [r"(?<!\s)\s++$", r"\w+", "a|b", r"^[ \t]*+url", r"\d{1,9}x"]


def _name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def _slow(*pattern: Any) -> tuple[str, float, float] | None:
    """What `slowest` finds twice: a measurement alone may be of what else the machine does."""
    return slowest(*pattern) and slowest(*pattern)


@pytest.mark.parametrize("pattern", ATTACKED)
def test_an_attack_finds_what_is_slow(pattern: str) -> None:
    flags = re.MULTILINE if "url" in pattern else 0
    # on a busy machine one measurement may miss what the next one finds
    assert any(slowest(pattern, flags, "search") is not None for _ in range(3))


@pytest.mark.parametrize("pattern", HARMLESS)
def test_an_attack_finds_nothing_else(pattern: str) -> None:
    assert _slow(pattern, 0, "search") is None


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_patterns_of_a_module_take_linear_time(path: Path) -> None:
    slow = {
        one.place: (one.text[:80], attack)
        for one in of_source(path)
        if (attack := _slow(one.text, one.flags, one.how, bound(one.place))) is not None
    }
    assert not slow


@pytest.mark.parametrize("path", DATA, ids=_name)
def test_patterns_of_a_data_file_take_linear_time(path: Path) -> None:
    slow = {
        one.place: (one.text[:80], attack)
        for one in of_data(path)
        if not runs_in_re2(one)
        and (attack := _slow(one.text, one.flags, one.how, bound(one.place))) is not None
    }
    assert not slow
