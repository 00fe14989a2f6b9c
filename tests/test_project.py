"""The project's own files say the same as each other."""

from __future__ import annotations

import os
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


def test_a_suite_of_continuous_integration_is_a_marker_a_target_and_a_way_to_install_it() -> None:
    suites = re.search(r"^suites=\((.+)\)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert suites is not None
    install, makefile = (ROOT / ".ci" / "install").read_text(), (ROOT / "Makefile").read_text()
    pytest_options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    markers = [one.partition(":")[0] for one in pytest_options["ini_options"]["markers"]]
    for suite in suites[1].split():
        assert suite in markers
        assert f"\ntest-{suite}: " in makefile
        assert f"\n{suite}() {{" in install
    done = subprocess.run([ROOT / ".ci" / "install", "nonsense"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "usage" in done.stderr


def test_a_skip_can_be_made_a_failure(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\ndef test_it():\n    pytest.skip('no such machine')\n"
    )
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "cli_runner.py").write_text((ROOT / "tests" / "cli_runner.py").read_text())
    for options, code in (((), 0), (("--never-skip",), 1)):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
            cwd=tmp_path,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stdout
    assert "skipped in spite of --never-skip: Skipped: no such machine" in done.stdout


def test_every_benchmark_is_listed() -> None:
    folder = ROOT / "benchmarks"
    page = (folder / "README.md").read_text()
    scripts = {path.name for path in folder.glob("*.py")}
    assert set(re.findall(r"`(\w+\.py)`", page)) == scripts
    bench = (ROOT / "Makefile").read_text().partition("BENCH :=")[2].partition("\n\n")[0]
    alone = re.findall(r"\| `(\w+)\.py` \|.*\|(?: |.*, or .*)\|\n", page)
    assert set(bench.replace("\\", " ").split()) == set(alone)


def test_make_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    (tmp_path / "pyproject.toml").touch()
    # the environment's LOCKED would ask for one more file
    command = ["make", "test", "PYTHON=", "LOCKED="]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "schedmate needs Python >= 3.11" in done.stderr


def test_no_two_test_modules_have_one_name() -> None:
    names = sorted(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert names == sorted(set(names)), "pytest imports them by their name alone"
