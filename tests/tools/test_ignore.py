"""Ignore patterns agree with git and cannot be made slow."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from schedmate.tools import RepoFiles
from schedmate.tools.allowed import IgnoreRules

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="compares with git")

FILES = [
    "a", "b.py", "ab", "a b", "a.b", "[a]", "b!", "#a", "a*", "x-y", "ä",
    "d/a", "d/b.py", "d/e/a", "d/e/b", "d/e/ab.py", "e/a", "e/d/a", "a.d/b", "f/ab/b", "A/b",
]  # fmt: skip


def _ignored_by_git(repo: Path) -> set[str]:
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin", "-z"],
        cwd=repo,
        input="\0".join(FILES).encode(),
        capture_output=True,
    )
    assert done.returncode in (0, 1), done.stderr
    return set(done.stdout.decode().split("\0")) - {""}


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("git")
    subprocess.run(["git", "init", "-q", root], check=True)
    (root / ".git" / "info" / "exclude").unlink(missing_ok=True)
    for name in FILES:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    return root


def _compare(repo: Path, top: str, nested: str) -> None:
    (repo / ".gitignore").write_bytes(top.encode())
    (repo / "d" / ".gitignore").write_bytes(nested.encode())
    files = RepoFiles(repo)
    ours = {name for name in FILES if files.file_read(name).startswith("error:")}
    assert ours == _ignored_by_git(repo), (top, nested)


# Built of the characters that mean something, so that most examples match something.
_PIECE = st.sampled_from(
    ["a", "b", "d", "e", "ab", ".py", "*", "**", "?", "/", "/", "**/", "/**", "[ab]", "[!a]",
     "[^b]", "[a-e]", "[[:alpha:]]", "[]a]", "[a", "\\", "\\a", "\\*", " ", "\\ ", "!", "#", ".",
     "[a-]", "[\\]]", "]", "[[]", "***", "x-y", "ä", "\t"]
)  # fmt: skip
_LINE = st.tuples(st.sampled_from(["", "", "", "!", "/", "#"]), st.lists(_PIECE, max_size=6)).map(
    lambda parts: parts[0] + "".join(parts[1])
)
_FILE = st.lists(_LINE, max_size=5).map("\n".join)


@needs_git
@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(top=_FILE, nested=_FILE)
@example(top="*\n!d/\n!d/**\nd/e/*", nested="!a\r\n")
@example(top="d/**/a\n**/e/b", nested="")
@example(top="/d/*\n!/d/e", nested="a")
@example(top="a[b/]c\nd[/]a\nd\\/a", nested="")
@example(top="a \na\\ b\nx-y  ", nested="*.py\n!b.py")
@example(top="\ufeffa\n*/a\n*.d/", nested="/e/")
@example(top="[[:foo:]]\n[z-a]\n[a-\\e]", nested="**")
def test_as_git_decides(repo: Path, top: str, nested: str) -> None:
    _compare(repo, top, nested)


def test_the_last_pattern_decides() -> None:
    rules = IgnoreRules(b"*.log\n!keep.log\n")
    assert rules.decide([b"a.log"], False) is True
    assert rules.decide([b"keep.log"], False) is False
    assert rules.decide([b"a.py"], False) is None


def test_case_can_be_disregarded() -> None:
    assert IgnoreRules(b".env\n", ignore_case=True).decide([b".ENV"], False) is True


@pytest.mark.parametrize(
    "pattern",
    [b"*a" * 60 + b"b", b"**/a/" * 60 + b"b", b"[ab]*" * 60 + b"c", b"?*" * 60 + b"b"],
)
def test_no_pattern_takes_exponential_time(pattern: bytes) -> None:
    # Backtracking would need more steps than there are atoms, and pytest would never end.
    rules = IgnoreRules(b"\n".join([pattern, b"x/" + pattern]))
    path = [b"x", *[b"a"] * 60, b"a" * 250]
    assert rules.decide(path, False) is None
