"""Results of benchmarks: documents refer to those that there are, and their folder is in order."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def test_documents_refer_to_results_that_there_are() -> None:
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *ROOT.glob("schedmate/**/*.py")]
    missing = {
        (path.name, name)
        for path in documents
        for name in re.findall(r"benchmarks/results/([\w*]+\.\w+)", path.read_text())
        if not any(RESULTS.glob(re.sub(r"\.md$", ".json", name)))
    }
    assert not missing


def test_tidying_leaves_what_documents_name(tmp_path: Path) -> None:
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    for script in ("_record.py", "tables.py"):
        text = (ROOT / "benchmarks" / script).read_text()
        (tmp_path / "benchmarks" / script).write_text(text)
    (tmp_path / "docs.md").write_text(
        "[a](benchmarks/results/speed.md), all of `benchmarks/results/sp*.md`, `wrong_names.md`,\n"
        "`speed.md` and `named_wrong.md`\n"
    )

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
    for name, commit in commits.items():
        rows = [{"what": "a", "s": 1.5}]
        document = {"name": name, "commit": commit, "rows": rows}
        (results / f"{name}.json").write_text(json.dumps(document))
        (results / f"{name}.md").write_text("| what | s |\n")
    (results / "speed.svg").write_text("<svg/>")

    for _ in range(2):
        subprocess.run(
            [sys.executable, "benchmarks/tables.py", "--tidy", "speed"], cwd=tmp_path, check=True
        )
        left = {path.name for path in results.iterdir()}
        assert left == {"speed.json", "speed.svg", "named_wrong.json", "old.json"}
        assert (tmp_path / "docs.md").read_text() == (
            "[a](benchmarks/results/speed.json), all of `benchmarks/results/sp*.json`, "
            "`wrong_names.md`,\n`speed.json` and `named_wrong.json`\n"
        )
        marked = {path.stem for path in results.glob("*.json") if "history" in path.read_text()}
        assert marked == {"old"}
        assert json.loads((results / "old.json").read_text())["rows"] == [{"what": "a", "s": 1.5}]


def test_tidying_needs_the_whole_history(tmp_path: Path) -> None:
    """It would mark every result of a shallow clone as one of a rewritten branch."""
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    (origin / "benchmarks" / "results").mkdir(parents=True)
    for script in ("_record.py", "tables.py"):
        text = (ROOT / "benchmarks" / script).read_text()
        (origin / "benchmarks" / script).write_text(text)
    document = json.dumps({"name": "speed", "commit": "0123abc", "rows": []})
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
