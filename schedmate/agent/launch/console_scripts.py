"""Console scripts that a project declares, in setup.py, setup.cfg or pyproject.toml."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator, Sequence

from schedmate.agent.configs.files import Source
from schedmate.agent.configs.text_reader import parse_toml, read_ini
from schedmate.agent.launch.files import Files
from schedmate.agent.syntax import parse_or_none
from schedmate.agent.values import Value
from schedmate.errors import InputError


def console_scripts(files: Files) -> dict[str, str]:
    """Console scripts the project declares, name -> `module:function`."""
    scripts: dict[str, str] = {}
    for declared in (_from_setup_py, _from_setup_cfg, _from_pyproject):
        for folder in (".", "src", "python"):
            scripts |= dict(declared(files, folder))
    return scripts


def _from_pyproject(files: Files, folder: str) -> Iterator[tuple[str, str]]:
    try:
        data = parse_toml(files.read(posixpath.join(folder, "pyproject.toml")) or "")
    except (ValueError, RecursionError):
        return
    for path in (("tool", "poetry", "scripts"), ("project", "scripts")):
        table: object = data
        for key in path:
            table = table.get(key) if isinstance(table, dict) else None
        for name, entry in (table if isinstance(table, dict) else {}).items():
            target = entry
            if isinstance(entry, dict):
                target = entry.get("callable") or entry.get("reference")
            if isinstance(target, str):
                yield name, target


def _from_setup_cfg(files: Files, folder: str) -> Iterator[tuple[str, str]]:
    text = files.read(posixpath.join(folder, "setup.cfg")) or ""
    try:
        sections = read_ini(Source(text, None, files.root)).mapping or {}
    except InputError:
        return
    points = sections.get("options.entry_points", Value(None)).mapping or {}
    scripts = points.get("console_scripts", Value(None)).origin
    yield from _entries(scripts.text.splitlines() if scripts and scripts.text else [])


def _section(text: str, wanted: str) -> Iterator[str]:
    """The lines of one section of an INI text, without comments.

    Not by configparser, whose expressions take quadratic time on a line of blanks.
    """
    inside = False
    for line in text.splitlines():
        bare = line.strip()
        if line.startswith("["):
            inside = line[1:].partition("]")[0].strip() == wanted
        elif inside and bare and bare[0] not in "#;":
            yield line


def _from_setup_py(files: Files, folder: str) -> Iterator[tuple[str, str]]:
    module = parse_or_none(files.read(posixpath.join(folder, "setup.py")) or "")
    for node in ast.walk(module) if module is not None else ():
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "console_scripts":
                    yield from _entries(_strings(value))
        elif isinstance(node, ast.keyword) and node.arg == "entry_points":
            text = node.value.value if isinstance(node.value, ast.Constant) else None
            lines = (text if isinstance(text, str) else "").splitlines()
            stripped = "\n".join(line.strip() for line in lines)
            yield from _entries(list(_section(stripped, "console_scripts")))


def _strings(node: ast.expr) -> list[str]:
    return [
        line
        for child in ast.walk(node)
        if isinstance(child, ast.Constant) and isinstance(child.value, str)
        for line in child.value.splitlines()
    ]


def _entries(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, equals, target = line.partition("=")
        if equals and name.strip():
            yield name.strip(), target.strip()
