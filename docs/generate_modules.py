"""Write docs/modules.md: every module with its first sentence, and what each folder imports."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "schedmate"
DATA = ("demo/train_repo", "sample")
"""Folders of programs that schedmate reads and does not import."""

HEAD = """# Modules

Every module of the package with its first sentence, and what each folder imports at run time;
imports for types alone are left out. `make docs` writes this page;
[the architecture](architecture.md) says how the parts work together.
"""


def modules() -> dict[str, Path]:
    """The modules of the package by dotted name."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(PACKAGE.rglob("*.py"))
        if not str(path.relative_to(PACKAGE)).startswith(DATA)
    }


MODULES = modules()


@cache
def imported(module: str) -> set[str]:
    """The modules of the package that one imports at run time, anywhere in it."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & MODULES.keys() - {module}


def folder(module: str) -> str:
    """The folder of a module below the package, or the module itself on the first level."""
    path = MODULES[module].relative_to(PACKAGE)
    return str(path.parent) if path.parent != Path() else path.name


def first_sentence(module: str) -> str:
    """The first paragraph of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(MODULES[module].read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def page() -> str:
    """The page as Markdown."""
    by_folder = defaultdict(list)
    for module in MODULES:
        name = folder(module)
        by_folder["schedmate" if name.endswith(".py") else name].append(module)
    parts = [HEAD]
    for name, members in sorted(by_folder.items()):
        arrows = {folder(target) for module in members for target in imported(module)} - {name}
        parts.append(f"## `{name}`\n")
        if arrows and name != "schedmate":
            parts.append(f"Imports {', '.join(f'`{arrow}`' for arrow in sorted(arrows))}.\n")
        parts.append("| module | what is in it |\n|---|---|")
        parts += [f"| `{MODULES[one].name}` | {first_sentence(one)} |" for one in members]
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    target = ROOT / "docs" / "modules.md"
    if "--check" in sys.argv[1:]:
        if target.read_text(encoding="utf-8") != page():
            sys.exit("docs/modules.md is out of date; run `make docs`.")
    else:
        target.write_text(page(), encoding="utf-8")
