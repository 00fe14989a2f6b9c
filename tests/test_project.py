"""The project's own files say the same as each other."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
import tomllib
from functools import cache
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


@pytest.mark.parametrize(
    "target",
    ["demo", "test", "test-shells", "test-browser", "test-live", "lint", "types", "docs", "bench"],
)
def test_make_knows_its_targets(target: str) -> None:
    done = subprocess.run(
        ["make", "-n", target, "PYTHON=" + sys.executable], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


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
    done = subprocess.run(["make", "test", "PYTHON="], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "schedmate needs Python >= 3.11" in done.stderr


# The map of ARCHITECTURE.md: every place is on it, with all that it imports.

PACKAGE = ROOT / "schedmate"
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
EVERYTHING, GROUND = "everything", "the ground floor"


def places_of_the_map() -> list[tuple[list[str], str]]:
    """The rows of the map: its places in the package, without `.py` and `/`, and its last cell."""
    found = []
    for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        places = [
            name.removesuffix("/").removesuffix(".py") for name in re.findall("`(.+?)`", cells[0])
        ]
        if len(cells) == 3 and any(
            (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir() for name in places
        ):
            found.append((places, cells[2]))
    return found


ROWS = places_of_the_map()
ALLOWED = {place: allowed for places, allowed in ROWS for place in places}
ROW = {place: row for row, (places, _) in enumerate(ROWS) for place in places}


def place(module: str) -> str:
    """The narrowest place of the map that holds a module."""
    path = module.removeprefix("schedmate").removeprefix(".").replace(".", "/") or "__init__"
    while path and path not in ALLOWED:
        path = path.rpartition("/")[0]
    return path


@cache
def imported(module: str) -> set[str]:
    """The modules of the package that one imports anywhere in it, also only for types."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("schedmate.")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("schedmate"):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else str(node.module) for name in names}
            if names == {"schedmate.__version__"}:
                found.discard("schedmate")
    return found


def test_every_module_has_its_place() -> None:
    lost = [name for name in MODULES if not place(name) and imported(name)]
    assert not lost, f"ARCHITECTURE.md has no place for {lost}"


def test_every_place_of_the_map_exists() -> None:
    gone = [
        name
        for name in ALLOWED
        if not ((PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists())
    ]
    assert not gone, f"ARCHITECTURE.md lists {gone}, which are not in schedmate/"


@pytest.mark.parametrize("row", range(len(ROWS)), ids=[" ".join(places) for places, _ in ROWS])
def test_a_place_imports_what_the_map_says(row: int) -> None:
    places, allowed = ROWS[row]
    if allowed == EVERYTHING:
        return
    ground = {name for name, cell in ALLOWED.items() if cell == GROUND}
    arrows = {
        place(target): f"{module} imports {target}"
        for module in MODULES
        if place(module) in places
        for target in imported(module)
        if ROW[place(target)] != row and place(target) not in ground
    }
    listed = set() if allowed == GROUND else set(re.findall(r"[\w/]+", allowed))
    unlisted = {target: arrow for target, arrow in arrows.items() if target not in listed}
    assert not unlisted, f"not among what ARCHITECTURE.md lets {places} import: {unlisted}"
    assert listed <= arrows.keys(), (
        f"ARCHITECTURE.md lets {places} import {listed - arrows.keys()}, which nothing there does"
    )


def test_of_the_ground_floor_the_nouns_import_only_plain_values() -> None:
    nouns = [module for module in MODULES if place(module) == "jobs"]
    outside = {name for module in nouns for name in imported(module) if place(name) != "jobs"}
    assert outside == {"schedmate.plain"}


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """Not even for types or within functions: what two modules share belongs below both."""
    arrows = {name: imported(name) & MODULES.keys() - {name} for name in MODULES}
    assert sum(map(len, arrows.values())) > len(MODULES)
    circles = set()
    for name in MODULES:
        reached, new = set(arrows[name]), arrows[name]
        while new:
            new = set[str]().union(*(arrows[target] for target in new)) - reached
            reached |= new
        if name in reached:
            circles.add(name)
    assert not circles, sorted(circles)


def test_packages_of_the_agent_leave_their_names_in_their_modules() -> None:
    """What a package's `__init__` imports, every import of one of its modules brings along."""
    packages = [
        name
        for name, path in MODULES.items()
        if path.name == "__init__.py" and name.startswith("schedmate.agent")
    ]
    importing = {name for name in packages if imported(name)}
    assert importing <= {
        "schedmate.agent.interp.values",  # registers the kinds of values
        *(f"schedmate.agent.fields.{name}" for name in ("dataset", "length", "model")),
    }


def test_no_two_test_modules_have_one_name() -> None:
    names = sorted(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert names == sorted(set(names)), "pytest imports them by their name alone"
