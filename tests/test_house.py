"""The structure of the package: which way imports go, how deep folders are, one page of a map."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAP = runpy.run_path(str(ROOT / "docs" / "generate_modules.py"))
MODULES, imported = MAP["MODULES"], MAP["imported"]

FLOORS = (
    {"base"},
    {"jobs", "settings", "prompts", "tools", "demo"},
    {"llm"},
    {"retrieval"},
    {"agent", "logparse", "schedulers"},
    {"readers"},
    {"mate", "schedulers.adapters"},
    {"cluster"},
    {"site"},
    {"report"},
    {"serve"},
    {"commands"},
    {"cli"},
)
"""Rooms from the ground up: each imports from those below it, and none of its own floor."""
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}


def room(module: str) -> str:
    """The room of a module; the package itself and `python -m schedmate` are in none."""
    parts = module.split(".")[1:]
    if parts[:2] == ["schedulers", "adapters"]:
        return "schedulers.adapters"
    return parts[0] if parts and parts[0] != "__main__" else ""


def test_every_module_is_in_a_room() -> None:
    assert {room(module) for module in MODULES} - {""} == set(LEVEL)


@pytest.mark.parametrize("name", sorted(LEVEL))
def test_a_room_imports_from_below(name: str) -> None:
    up = [
        f"{module} imports {target}"
        for module in MODULES
        if room(module) == name
        for target in imported(module)
        if room(target) not in ("", name) and LEVEL[room(target)] >= LEVEL[name]
    ]
    assert not up


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    arrows = {module: imported(module) for module in MODULES}
    assert sum(map(len, arrows.values())) > len(MODULES)
    circles = set()
    for module in MODULES:
        reached, new = set(arrows[module]), arrows[module]
        while new:
            new = set[str]().union(*(arrows[target] for target in new)) - reached
            reached |= new
        if module in reached:
            circles.add(module)
    assert not circles, sorted(circles)


def test_folders_are_three_levels_deep_at_most() -> None:
    assert max(module.count(".") for module, path in MODULES.items()) <= 4


def test_the_map_is_one_page_and_names_files_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) <= 150
    assert max(map(len, lines)) <= 120
    files = {path.relative_to(ROOT).as_posix() for path in MODULES.values()}
    files |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "schedmate").rglob("*.yaml")}
    files |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")}
    files.add(Path(__file__).relative_to(ROOT).as_posix())
    named = set(re.findall(r"`([\w./]+\.(?:py|yaml|md))`", text))
    assert len(named) > 50
    lost = [name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in files)]
    assert not lost
