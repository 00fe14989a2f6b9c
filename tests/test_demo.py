"""What a newcomer sees first: `make demo`, the README, the toy scheduler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def demo() -> str:
    """The output of the demonstration."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", ROOT / "examples" / "demo.sh"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": path, "COLUMNS": "120"},
    )
    assert "40 jobs imported" in done.stderr
    assert "$ schedmate analyze examples/train_repo" in done.stderr
    return done.stdout


def shape(line: str) -> str:
    """A line without its numbers, which depend on the day."""
    return re.sub(r"[\d.,]+", "#", line).rstrip()


def test_the_demo_ends_in_an_estimate(demo: str) -> None:
    what, how_long, why = demo.splitlines()[:3]
    assert what.startswith("resnet50 · ")
    assert how_long.startswith("runs about ")
    assert why.startswith("because of ")


def test_the_readme_shows_the_demo(demo: str) -> None:
    lines = demo.splitlines()
    assert lines[0] in README
    fields = [line.rstrip() for line in lines if "_config." in line]
    assert len(fields) >= 6
    for field in fields:
        assert field.split()[0] in README
    headings = [shape(line) for line in lines if line.startswith(("field ", "past job "))]
    assert len(headings) == 2
    assert {shape(line) for line in README.splitlines()} >= set(headings)


def test_the_readme_shows_the_toy_scheduler() -> None:
    source = (ROOT / "examples" / "toy_scheduler.py").read_text()
    blocks = [part.partition("\n```")[0] for part in README.split("```python\n")[1:]]
    [shown] = [block for block in blocks if "mate.on_submit(spec)" in block]
    assert shown in source


def test_the_toy_scheduler_runs(example_history: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "toy_scheduler.py", example_history],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "SCHEDMATE_DEADLINE_S": "60"},
    )
    assert done.stdout.split() == ["short", "long", "unknown"]


def test_links_in_the_documents_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"
