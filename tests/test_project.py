"""The project's own files say the same as each other."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import schedmate

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {re.match(r"[\w.-]+", requirement)[0] for requirement in requirements}  # type: ignore[index]


def rows(page: str, heading: str) -> list[list[str]]:
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|")
    ]
    return cells[2:]


def test_every_dependency_has_its_reason() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text()
    assert {row[0] for row in rows(page, "Base")} == names(PROJECT["dependencies"])
    extras = {
        (extra, name)
        for extra, requirements in PROJECT["optional-dependencies"].items()
        for name in names(requirements)
    }
    assert {(row[0], row[1]) for row in rows(page, "Extras")} == extras
    assert all(len(row[-1]) > 10 for row in [*rows(page, "Base"), *rows(page, "Extras")])


def test_the_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert PROJECT["license"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.mark.parametrize("name", schedmate.__all__)
def test_public_names_exist_and_are_documented(name: str) -> None:
    assert getattr(schedmate, name) is not None
    assert name == "__version__" or getattr(schedmate, name).__doc__


def test_no_other_name_is_public() -> None:
    assert dir(schedmate) == sorted(schedmate.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = schedmate.nonsense


def test_the_example_history_is_what_its_script_writes(tmp_path: Path) -> None:
    script = tmp_path / "make_history.py"
    script.write_text((ROOT / "examples" / "make_history.py").read_text())
    runpy.run_path(str(script), run_name="__main__")
    written = (tmp_path / "history.jsonl").read_text()
    assert written == (ROOT / "examples" / "history.jsonl").read_text()
    records = [schedmate.JobRecord.model_validate_json(line) for line in written.splitlines()]
    assert len(records) == 40
    assert all(record.job_id.startswith("example-") and record.ended for record in records)


@pytest.mark.parametrize("target", ["demo", "test", "lint", "types", "docs", "bench"])
def test_make_knows_its_targets(target: str) -> None:
    done = subprocess.run(
        ["make", "-n", target, "PYTHON=" + sys.executable], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_make_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    (tmp_path / "pyproject.toml").touch()
    done = subprocess.run(["make", "test", "PYTHON="], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "schedmate needs Python >= 3.11" in done.stderr
