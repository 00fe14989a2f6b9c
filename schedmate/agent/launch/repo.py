"""The repository as a launch command sees it: files, modules, console scripts. Read only."""

from __future__ import annotations

import ast
import difflib
import os
import posixpath
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from schedmate.agent.configs.text_reader import parse_toml
from schedmate.agent.syntax import parse
from schedmate.paths import is_dir, is_file

MAX_BYTES = 2_000_000
MAX_FILES = 100_000
MAX_OWN_NAME = 200
"""Modules read for the name that the root's own package is imported under."""
_SKIPPED = frozenset(
    {"__pycache__", "node_modules", "venv", "site-packages", "build", "dist", "wandb"}
)


_SIBLING = re.compile(
    r"^(?:from[ \t]+([A-Za-z]\w*)[ \t]+import[ \t]+|(?:from|import)[ \t]+([A-Za-z]\w*)\.)(\w+)",
    re.MULTILINE,
)

_FROM_BELOW = re.compile(
    r"^(?:from|import)[ \t]+([A-Za-z]\w*)\.([\w.]+)(?:[ \t]+import[ \t]+([\w, \t]+))?", re.MULTILINE
)


_URL = re.compile(r"^[ \t]*+url[ \t]*+=[ \t]*+(\S++)", re.MULTILINE)


class Repo:
    """Files under `root`; paths are relative POSIX paths, and nothing outside is ever read."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def normalise(self, path: str, cwd: str = ".") -> str | None:
        """`path` as seen from `cwd`, relative to the root; None when it leads out of the root.

        `..` out of the root and back in by the root's own name is understood.
        """
        if path.startswith("/"):
            root = str(self.root)
            if path != root and not path.startswith(root + "/"):
                return None
            path, cwd = posixpath.relpath(path, root), "."
        joined = posixpath.normpath(posixpath.join(cwd, path))
        if joined.startswith(f"../{self.root.name}/") or joined == f"../{self.root.name}":
            joined = posixpath.normpath(posixpath.relpath(joined, f"../{self.root.name}"))
        return None if joined == ".." or joined.startswith("../") else joined

    def is_file(self, path: str) -> bool:
        """Whether the path is a regular file that does not lie outside through a link."""
        return is_file(self.root / path) and self._inside(path)

    def is_dir(self, path: str) -> bool:
        """Whether the path is a directory in the repository."""
        return is_dir(self.root / path) and self._inside(path)

    def _inside(self, path: str) -> bool:
        try:
            return (self.root / path).resolve().is_relative_to(self.root)
        except (OSError, ValueError, RuntimeError):
            return False

    def read(self, path: str) -> str | None:
        """The text of a file; broken UTF-8 is replaced. None: absent or larger than 2 MB."""
        if not self.is_file(path):
            return None
        file = self.root / path
        try:
            if file.stat().st_size > MAX_BYTES:
                return None
            return file.read_bytes().decode("utf-8-sig", errors="replace")
        except OSError:
            return None

    @cached_property
    def files(self) -> list[str]:
        """All files, shallow ones first; hidden, vendored and built directories are left out."""
        found: list[str] = []
        for directory, names, files in os.walk(self.root):
            names[:] = sorted(n for n in names if n not in _SKIPPED and not n.startswith("."))
            relative = Path(directory).relative_to(self.root).as_posix()
            found += [posixpath.normpath(posixpath.join(relative, name)) for name in sorted(files)]
            if len(found) > MAX_FILES:
                break
        return sorted(found, key=lambda path: (path.count("/"), path))

    def by_suffix(self, path: str) -> str | None:
        """The file or directory that the longest possible tail of `path` names from the root."""
        return next((t for t in _tails(path) if self.is_file(t) or self.is_dir(t)), None)

    def only_one_ending(self, path: str) -> str | None:
        """The single file of the repository whose path ends in `path`."""
        tail = "/" + re.sub(r"^(\.{0,2}/)+", "", posixpath.normpath(path))
        found = [file for file in self.files if ("/" + file).endswith(tail)]
        return found[0] if len(found) == 1 else None

    def by_tail(self, path: str) -> str | None:
        """The only file that ends in the longest tail of `path`, of two names at least.

        So a file is found whose package was renamed, or lies further down than it did.
        """
        return next(filter(None, map(self.only_one_ending, _tails(path)[:-1])), None)

    def similar(self, path: str) -> list[str]:
        """Up to three files that `path` may be a slip for."""
        suffix = posixpath.splitext(path)[1]
        files = [file for file in self.files if not suffix or file.endswith(suffix)][:20_000]
        name = posixpath.basename(path)
        same = [file for file in files if posixpath.basename(file) == name]
        # the common ending would make any two short names alike
        stems = {posixpath.splitext(posixpath.basename(f))[0]: f for f in reversed(files)}
        stem = posixpath.splitext(name)[0]
        close = [
            stems[near]
            for near in difflib.get_close_matches(stem, stems, 9, 0.66)
            if near[:1] == stem[:1] or difflib.SequenceMatcher(None, near, stem).ratio() >= 0.8
        ]
        return list(dict.fromkeys(same + close))[:3]

    def missing_settings(self, path: str) -> str:
        """What is said of a file of settings that is not there, with what it may be a slip for."""
        near = self.similar(posixpath.normpath(path))
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        return f"{path}: not in the repository, its settings are not known{hint}"

    def module(self, name: str, roots: Sequence[str]) -> str | None:
        """The file that `python -m name` runs, with `roots` before the usual places."""
        relative = name.replace(".", "/")
        if not re.fullmatch(r"[\w/]+", relative):
            return None
        for root in dict.fromkeys([*roots, ".", "src", "lib", "python"]):
            for candidate in (f"{relative}.py", f"{relative}/__main__.py"):
                path = posixpath.normpath(posixpath.join(root, candidate))
                if self.is_file(path):
                    return path
        mapped = self._mapped(name)
        if mapped is not None:
            return mapped
        return self.only_one_ending(f"{relative}.py") if "/" in relative else None

    def of_package(self, package: str | None, main: str, cwd: str) -> str | None:
        """The dotted name of a package's module `main`, of the only package that has one."""
        ends = f"/{main}.py"
        here = "" if cwd == "." else f"{cwd}/"
        found = [f.removeprefix(here).removesuffix(ends) for f in self.files if f.endswith(ends)]
        names = [package] if package is not None else [name for name in found if "/" not in name]
        return f"{names[0]}.{main}" if len(names) == 1 and names[0] in found else None

    def _mapped(self, name: str) -> str | None:
        """The file of a module of a package that setup.py keeps elsewhere."""
        for package, folder in self.package_dirs.items():
            if name == package or name.startswith(f"{package}."):
                rest = name.removeprefix(package).replace(".", "/")
                for ending in (".py", "/__main__.py"):
                    path = posixpath.normpath(f"{folder}{rest}{ending}")
                    if self.is_file(path):
                        return path
        return None

    @cached_property
    def package_dirs(self) -> dict[str, str]:
        """Folders that setup.py gives packages which are not named after them."""
        text = self.read("setup.py") or ""
        if "package_dir" not in text:
            return self._own_name
        try:
            module = parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return self._own_name
        pairs = [
            (_constant(key), _constant(value))
            for node in ast.walk(module)
            if isinstance(node, ast.Dict)
            for key, value in zip(node.keys, node.values, strict=True)
        ]
        return self._own_name | {
            name: folder
            for name, folder in pairs
            if re.fullmatch(r"\w+(\.\w+)*", name) and self.is_dir(folder or "?")
        }

    @cached_property
    def _own_name(self) -> dict[str, str]:
        """The package that the root itself is, by the name its modules import each other under."""
        modules = {path.stem for path in self.root.glob("*.py")}
        inside = modules | {path.parent.name for path in self.root.glob("*/*.py")}
        enough = 1 if self.is_file("__init__.py") else 3
        for module in sorted(modules):
            siblings: dict[str, set[str]] = {}
            for whole, part, name in _SIBLING.findall(self.read(f"{module}.py") or ""):
                package = whole or part
                if name in inside and package not in inside and not self.is_dir(package):
                    siblings.setdefault(package, set()).add(name)
            for package, names in siblings.items():
                if len(names) >= enough:
                    return {package: "."}
        return self._name_below(inside)

    def _name_below(self, inside: set[str]) -> dict[str, str]:
        """The same name as modules in folders have it, each import of a file that is there."""
        found: dict[str, set[str]] = {}
        own = {self.root.name, self._remote}
        below = [file for file in self.files if file.endswith(".py") and "/" in file]
        for file in below[:MAX_OWN_NAME]:
            for package, dotted, imported in _FROM_BELOW.findall(self.read(file) or ""):
                if package in inside or package in sys.stdlib_module_names or self.is_dir(package):
                    continue
                path = dotted.replace(".", "/")
                for name in ("", *(f"/{part.strip()}" for part in imported.split(","))):
                    if "/" in f"{path}{name}" and self.is_file(f"{path}{name}.py"):
                        found.setdefault(package, set()).add(f"{path}{name}")
        # in a folder without `__init__.py` a few of another package's paths may be there as well
        enough = 2 if self.is_file("__init__.py") else 3
        for package, files in sorted(found.items(), key=lambda item: -len(item[1])):
            if len(files) >= (1 if package in own else enough):
                return {package: "."}
        return {}

    @cached_property
    def _remote(self) -> str:
        """The name that the repository goes by where it was cloned from."""
        config = _URL.search(self.read(".git/config") or "")
        return posixpath.basename(config[1]).removesuffix(".git") if config else ""

    @cached_property
    def console_scripts(self) -> dict[str, str]:
        """Console scripts the project declares, name -> `module:function`."""
        scripts: dict[str, str] = {}
        for reader in (_from_setup_py, _from_setup_cfg, _from_pyproject):
            for folder in (".", "src", "python"):
                scripts |= dict(reader(self, folder))
        return scripts


def _constant(node: ast.expr | None) -> str:
    held = node.value if isinstance(node, ast.Constant) else None
    return held if isinstance(held, str) else ""


def _from_pyproject(repo: Repo, folder: str) -> Iterator[tuple[str, str]]:
    try:
        data = parse_toml(repo.read(posixpath.join(folder, "pyproject.toml")) or "")
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


def _from_setup_cfg(repo: Repo, folder: str) -> Iterator[tuple[str, str]]:
    text = repo.read(posixpath.join(folder, "setup.cfg")) or ""
    inside = False
    for line in _section(text, "options.entry_points"):
        name, _, value = line.partition("=")
        if not line[0].isspace():
            inside = name.strip() == "console_scripts"
            yield from _entries([value] if inside else [])
        elif inside:
            yield from _entries([line])


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


def _from_setup_py(repo: Repo, folder: str) -> Iterator[tuple[str, str]]:
    try:
        module = parse(repo.read(posixpath.join(folder, "setup.py")) or "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(module):
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


def _tails(path: str) -> list[str]:
    """`a/b/c`, `b/c` and `c` of `/a/b/c`, the longest first."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return ["/".join(parts[start:]) for start in range(len(parts))]
