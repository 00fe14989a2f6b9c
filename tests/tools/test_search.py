"""Finding lines by a regular expression: what is found, and what is never looked into."""

from __future__ import annotations

import os
from pathlib import Path

from schedmate.tools import RepoFiles
from schedmate.tools.repo_files import Limits


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_lines_are_found_in_order_whatever_their_case(tmp_path: Path) -> None:
    write(tmp_path, **{"b/c.py": "x = 1\nMAX_STEPS = 7\n", "a.yaml": "max_steps: 5\n"})
    assert RepoFiles(tmp_path).file_search(r"max_?steps").split("\n") == [
        ".: 2 lines in 2 files",
        "a.yaml:1| max_steps: 5",
        "b/c.py:2| MAX_STEPS = 7",
    ]


def test_one_file_or_directory_can_be_searched(tmp_path: Path) -> None:
    write(tmp_path, **{"a.py": "lr = 1\n", "d/b.py": "lr = 2\n"})
    files = RepoFiles(tmp_path)
    assert "d/b.py:1| lr = 2" in files.file_search("lr", "d")
    assert "a.py" not in files.file_search("lr", "d")
    assert files.file_search("lr", "a.py").endswith("a.py:1| lr = 1")


def test_nothing_hidden_ignored_or_linked_is_searched(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{".gitignore": "out/\n", ".env": "KEY=1\n", "out/x.py": "KEY=2\n", "a.py": "KEY=3\n"},
    )
    outside = tmp_path.parent / "outside.py"
    outside.write_text("KEY=4\n")
    (tmp_path / "link.py").symlink_to(outside)
    os.mkfifo(tmp_path / "pipe.py")
    found = RepoFiles(tmp_path).file_search("KEY")
    assert [line for line in found.split("\n") if "KEY" in line] == ["a.py:1| KEY=3"]
    for path in ("..", "/etc", ".env", "out"):
        assert RepoFiles(tmp_path).file_search("KEY", path).startswith("error: ")


def test_what_is_found_is_redacted_and_bounded(tmp_path: Path) -> None:
    write(tmp_path, **{"a.py": "token = 'abc'\n" * 50 + "y" * 900 + "\n"})
    files = RepoFiles(tmp_path, Limits(found=5), redact=lambda text: text.replace("abc", "[gone]"))
    found = files.file_search("token").split("\n")
    assert found[0] == ".: 5 lines in 1 files"
    assert len(found) == 7
    assert "narrower" in found[-1]
    assert "abc" not in "".join(found)
    assert len(files.file_search("yyy").split("\n")[1]) < 300


def test_a_pattern_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    files = RepoFiles(tmp_path)
    for pattern in ("\ud800", "(", "(?=a)", "a" * 500, "((a{100}){100}){100}"):
        found = files.file_search(pattern)
        assert found.startswith("error: ")
        assert "\n" not in found
    assert files.file_search("x").endswith("[no line matches]")


def test_a_pattern_with_backtracking_elsewhere_takes_linear_time(tmp_path: Path) -> None:
    write(tmp_path, **{"a.txt": ("a" * 400 + "\n") * 2000})
    assert "[no line matches]" in RepoFiles(tmp_path).file_search(r"(a|a)*(a|a)*b$")


def test_the_file_that_the_job_runs_is_shown_although_git_ignores_it(tmp_path: Path) -> None:
    write(tmp_path, **{".gitignore": "*.local.py\n", "train.local.py": "lr = 1\n"})
    (tmp_path / ".env").write_text("KEY=1\n")
    assert RepoFiles(tmp_path).file_read("train.local.py").startswith("error: ")
    files = RepoFiles(tmp_path, run=["train.local.py", ".env"])
    assert "1| lr = 1" in files.file_read("train.local.py")
    assert files.file_read(".env").startswith("error: ")
