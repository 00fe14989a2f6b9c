"""Names that a repository's packages are imported under where these are not their folders'."""

from __future__ import annotations

import ast
import posixpath
import re
import sys
from functools import cache

from schedmate.agent.launch.files import Files
from schedmate.agent.syntax import parse_or_none

MAX_READ = 200
"""Modules read for the name that the root is imported under."""

_SIBLING = re.compile(
    r"^(?:from[ \t]+([A-Za-z]\w*)[ \t]+import[ \t]+|(?:from|import)[ \t]+([A-Za-z]\w*)\.)(\w+)",
    re.MULTILINE,
)
_FROM_BELOW = re.compile(
    r"^(?:from|import)[ \t]+([A-Za-z]\w*)\.([\w.]+)(?:[ \t]+import[ \t]+([\w, \t]+))?", re.MULTILINE
)
_URL = re.compile(r"^[ \t]*+url[ \t]*+=[ \t]*+(\S++)", re.MULTILINE)


def declared_folders(files: Files) -> dict[str, str]:
    """Folders that setup.py gives packages which are not named after them."""
    text = files.read("setup.py") or ""
    if "package_dir" not in text:
        return {}
    module = parse_or_none(text)
    pairs = [
        (_constant(key), _constant(value))
        for node in (ast.walk(module) if module is not None else ())
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
    ]
    return {
        name: folder
        for name, folder in pairs
        if re.fullmatch(r"\w+(\.\w+)*", name) and files.is_dir(folder or "?")
    }


def _constant(node: ast.expr | None) -> str:
    constant = node.value if isinstance(node, ast.Constant) else None
    return constant if isinstance(constant, str) else ""


def root_package(files: Files) -> str | None:
    """The package that the root itself is, by the name its modules import each other under."""
    modules = {path.stem for path in files.root.glob("*.py")}
    inside = modules | {path.parent.name for path in files.root.glob("*/*.py")}
    enough = 1 if files.is_file("__init__.py") else 3
    for module in sorted(modules):
        siblings: dict[str, set[str]] = {}
        for whole, part, name in _SIBLING.findall(files.read(f"{module}.py") or ""):
            package = whole or part
            if name in inside and package not in inside and not files.is_dir(package):
                siblings.setdefault(package, set()).add(name)
        for package, names in siblings.items():
            if len(names) >= enough:
                return package
    return _root_package_by_paths(files, inside)


def _root_package_by_paths(files: Files, inside: set[str]) -> str | None:
    """The same name as modules in folders import it, by imports of files that are there."""
    imported: dict[str, set[str]] = {}
    known = inside | sys.stdlib_module_names
    is_folder = cache(files.is_dir)
    for file in [file for file in files.files if file.endswith(".py") and "/" in file][:MAX_READ]:
        for package, dotted, names in _FROM_BELOW.findall(files.read(file) or ""):
            if package in known or is_folder(package):
                continue
            path = dotted.replace(".", "/")
            for name in ("", *(f"/{part.strip()}" for part in names.split(","))):
                if "/" in f"{path}{name}" and files.is_file(f"{path}{name}.py"):
                    imported.setdefault(package, set()).add(f"{path}{name}")
    origin = {files.root.name, _remote_name(files)}
    # in a folder without `__init__.py` a few of another package's paths may be there as well
    enough = 2 if files.is_file("__init__.py") else 3
    for package, paths in sorted(imported.items(), key=lambda item: -len(item[1])):
        if len(paths) >= (1 if package in origin else enough):
            return package
    return None


def _remote_name(files: Files) -> str:
    """The name that the repository goes by where it was cloned from."""
    config = _URL.search(files.read(".git/config") or "")
    return posixpath.basename(config[1]).removesuffix(".git") if config else ""
