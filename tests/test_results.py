"""Results of benchmarks: documents refer to those that there are, and their folder is in order."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def test_documents_refer_to_results_that_there_are() -> None:
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *ROOT.glob("schedmate/**/*.py")]
    missing = {
        (path.name, file, table)
        for path in documents
        for file, table in re.findall(r"benchmarks/results/(\w+\.\w+)(?:#(\w+))?", path.read_text())
        if not (RESULTS / file).is_file()
        or (table and table not in json.loads((RESULTS / file).read_text()))
    }
    assert not missing


def test_tidying_leaves_what_documents_name(tmp_path: Path) -> None:
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    for script in ("_record.py", "tables.py"):
        text = (ROOT / "benchmarks" / script).read_text()
        (tmp_path / "benchmarks" / script).write_text(text)
    (tmp_path / "docs.md").write_text("[a](benchmarks/results/named.json#named_wrong)\n")

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "--quiet")
    git("add", "docs.md", "benchmarks")
    git("commit", "--quiet", "-m", "all")
    head = git("rev-parse", "--short", "HEAD")
    commits = {"speed": f"{head}+", "speed_cases": head, "named_wrong": head, "old": "0123abc"}
    commits["cut_cases"] = head
    rows = [{"what": "a", "s": 1.5}]
    for subject in ("speed", "named", "old", "cut_cases"):
        tables = {
            name: {"commit": commit, "rows": rows}
            for name, commit in commits.items()
            if name.startswith(subject)
        }
        (results / f"{subject.partition('_')[0]}.json").write_text(json.dumps(tables))

    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "benchmarks/tables.py", "--tidy", "speed"],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        )
        assert "1.5" in done.stdout
        left = {path.stem: json.loads(path.read_text()) for path in results.iterdir()}
        assert {name for tables in left.values() for name in tables} == {
            *("speed", "named_wrong", "old")
        }
        assert left["old"]["old"]["rows"] == rows
        assert [name for name, tables in left.items() if "history" in str(tables)] == ["old"]


def test_tidying_needs_the_whole_history(tmp_path: Path) -> None:
    """It would mark every result of a shallow clone as one of a rewritten branch."""
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    (origin / "benchmarks" / "results").mkdir(parents=True)
    for script in ("_record.py", "tables.py"):
        text = (ROOT / "benchmarks" / script).read_text()
        (origin / "benchmarks" / script).write_text(text)
    document = json.dumps({"speed": {"commit": "0123abc", "rows": []}})
    (origin / "benchmarks" / "results" / "speed.json").write_text(document)

    def tidy(folder: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "benchmarks/tables.py", "--tidy"]
        where = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path)}
        return subprocess.run(command, cwd=folder, env=where, capture_output=True, text=True)

    elsewhere = tidy(origin)
    assert (elsewhere.returncode, elsewhere.stdout) == (1, "")
    assert "is not a git repository" in elsewhere.stderr
    for arguments in (
        ("init", "--quiet"),
        ("add", "."),
        ("commit", "--quiet", "-m", "one"),
        ("commit", "--quiet", "--allow-empty", "-m", "two"),
    ):
        subprocess.run(["git", *who, *arguments], cwd=origin, check=True)
    subprocess.run(
        ["git", "clone", "--quiet", "--depth", "1", origin.as_uri(), str(clone)], check=True
    )
    done = tidy(clone)
    assert (done.returncode, done.stdout) == (1, "")
    assert "`git fetch --unshallow`" in done.stderr
    assert done.stderr.count("\n") == 1
    assert (clone / "benchmarks" / "results" / "speed.json").read_text() == document


MEASURED = """\
from _record import record
record("speed", [{"what": "a", "s": 1.5}])
record("speed_cases", [{"what": "b"}], working=True)
"""


@pytest.fixture
def measure(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a benchmark in a repository with one commit, with these environment variables."""
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "_record.py").write_text((ROOT / "benchmarks" / "_record.py").read_text())
    (folder / "speed.py").write_text(MEASURED)
    (tmp_path / ".gitignore").write_text("/build\n__pycache__\n")
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for arguments in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "one")):
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True)

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "benchmarks/speed.py"],
            cwd=tmp_path,
            env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent), **environment},
            capture_output=True,
            text=True,
        )

    return run


def kept(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.glob("b*/**/*.json")}


def test_a_result_is_recorded_with_the_commit_that_made_it(
    tmp_path: Path, measure: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    for _ in range(2):  # the results themselves do not count as changes
        done = measure()
        assert (done.returncode, done.stderr) == (0, "")
    assert kept(tmp_path) == {
        "benchmarks/results/speed.json",
        "build/benchmarks/speed.json",
    }
    head = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(head, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    path = tmp_path / "benchmarks" / "results" / "speed.json"
    document = json.loads(path.read_text())["speed"]
    assert document["commit"] == commit.strip()
    assert document["rows"] == [{"what": "a", "s": 1.5}]


def test_a_changed_tree_records_nothing(
    tmp_path: Path, measure: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (tmp_path / "new.py").touch()
    done = measure()
    assert done.returncode == 1
    assert "1.5" in done.stdout
    assert "speed is not recorded, because new.py differs from the commit" in done.stderr
    assert done.stderr.count("\n") == 1
    assert kept(tmp_path) == {"build/benchmarks/speed.json"}
    for name in "abcd":
        (tmp_path / f"{name}.py").touch()
    assert "a.py, b.py, c.py and 2 more differ from the commit" in measure().stderr


def test_a_folder_without_commits_records_nothing(
    tmp_path: Path, measure: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    shutil.rmtree(tmp_path / ".git")
    done = measure()
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "is in no git repository with a commit" in done.stderr
    assert not (tmp_path / "benchmarks" / "results").exists()


def test_a_dry_run_prints_and_keeps_nothing(
    tmp_path: Path, measure: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (tmp_path / "new.py").touch()
    done = measure(BENCH_DRY="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1.5" in done.stdout
    assert kept(tmp_path) == set()
