"""Nothing of the current directory, which may be a job's repository, is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = ("multiprocessing", "concurrent", "typer", "yaml", "numpy", "json", "encodings", "site")
"""Modules that Python or schedmate imports early, or only in the processes that it starts."""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(
            f"open({str(tmp_path / 'imported')!r}, 'a').write({name!r})\nraise SystemExit(99)\n"
        )
    (folder / "train.py").write_text("for epoch in range(10):\n    pass\n")
    for number in range(3):
        (folder / f"{number}.log").write_text("ValueError: a dimension is wrong\n")
    jobs = [{"repo": ".", "command": f"python train.py --seed {seed}"} for seed in range(3)]
    (folder / "jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs))
    return folder


@pytest.mark.parametrize("start", [["schedmate"], [sys.executable, "-m", "schedmate"]])
@pytest.mark.parametrize(
    "arguments",
    [
        ["analyze", ".", "-c", "python train.py"],
        ["analyze", "--batch", "jobs.jsonl", "--processes", "2"],
        ["triage", "."],
        ["diagnose", "0.log"],
        ["track", "0.log"],
    ],
)
def test_modules_of_the_working_directory_are_not_imported(
    hostile: Path, start: list[str], arguments: list[str]
) -> None:
    if start == ["schedmate"]:
        start = [str(Path(sys.executable).with_name("schedmate"))]
    ended = subprocess.run(
        [*start, *arguments], cwd=hostile, capture_output=True, text=True, check=False
    )
    assert not (hostile.parent / "imported").exists(), ended.stderr
    assert ended.returncode == 0, ended.stderr
