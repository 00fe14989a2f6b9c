"""Shows a repository as a launch command sees it: files, modules, console scripts. Read only.

Nothing outside the repository's root is ever read. Packages may be imported under names that are
not their folders', and console scripts are those that setup.py, setup.cfg or pyproject.toml
declare.
"""

from __future__ import annotations

import ast
import difflib
import posixpath
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path

from schedmate.agent.configs.reader import parse_toml, read_config, read_ini
from schedmate.agent.configs.trees import Source
from schedmate.agent.syntax import parse_or_none
from schedmate.agent.values import Value
from schedmate.base.errors import InputError
from schedmate.base.files import RealPaths, is_dir, is_file, walk

MAX_BYTES = 2_000_000
MAX_FILES = 100_000
_SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "node_modules", "venv", "site-packages", "build", "dist", "wandb"}
)


class Repo:
    """Files under `root`, and what Python imports and installs from them.

    Paths are relative POSIX paths, and nothing outside is ever read.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._real = RealPaths()
        self._prefix = f"{str(self.root).rstrip('/')}/"

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
        real = self._real(str(self.root / path))
        return f"{real}/".startswith(self._prefix)

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
        paths: list[str] = []
        for directory, names, files in walk(self.root):
            names[:] = sorted(
                n for n in names if n not in _SKIPPED_FOLDERS and not n.startswith(".")
            )
            relative = Path(directory).relative_to(self.root).as_posix()
            paths += [posixpath.normpath(posixpath.join(relative, name)) for name in sorted(files)]
            if len(paths) > MAX_FILES:
                break
        return sorted(paths, key=lambda path: (path.count("/"), path))

    def by_suffix(self, path: str) -> str | None:
        """The file or directory that the longest possible tail of `path` names from the root."""
        return next((t for t in _path_tails(path) if self.is_file(t) or self.is_dir(t)), None)

    def only_one_ending(self, path: str) -> str | None:
        """The single file of the repository whose path ends in `path`."""
        tail = "/" + re.sub(r"^(\.{0,2}/)+", "", posixpath.normpath(path))
        matching = [file for file in self.files if ("/" + file).endswith(tail)]
        return matching[0] if len(matching) == 1 else None

    def by_tail(self, path: str) -> str | None:
        """The only file that ends in the longest tail of `path`, of two names at least.

        So a file is found whose package was renamed, or lies further down than it did.
        """
        return next(filter(None, map(self.only_one_ending, _path_tails(path)[:-1])), None)

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

    # -- what Python imports and installs ---------------------------------------

    def config(self, path: str) -> Value:
        """A configuration file. Raises InputError for what cannot be read."""
        return read_config(self.root / path, self.root)

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
        declared = self._in_package_folder(name)
        if declared is not None:
            return declared
        return self.only_one_ending(f"{relative}.py") if "/" in relative else None

    def of_package(self, package: str | None, main: str, cwd: str) -> str | None:
        """The dotted name of a package's module `main`, of the only package that has one."""
        ends = f"/{main}.py"
        here = "" if cwd == "." else f"{cwd}/"
        packages = [f.removeprefix(here).removesuffix(ends) for f in self.files if f.endswith(ends)]
        names = [package] if package is not None else [name for name in packages if "/" not in name]
        return f"{names[0]}.{main}" if len(names) == 1 and names[0] in packages else None

    def _in_package_folder(self, name: str) -> str | None:
        """The file of a module of a package that is not named after its folder."""
        root = {} if self.root_package is None else {self.root_package: "."}
        for package, folder in (root | self.package_folders).items():
            if name == package or name.startswith(f"{package}."):
                rest = name.removeprefix(package).replace(".", "/")
                for ending in (".py", "/__main__.py"):
                    path = posixpath.normpath(f"{folder}{rest}{ending}")
                    if self.is_file(path):
                        return path
        return None

    @cached_property
    def package_folders(self) -> dict[str, str]:
        """Folders that setup.py gives packages which are not named after them."""
        return find_declared_folders(self)

    @cached_property
    def root_package(self) -> str | None:
        """The package that the root itself is imported as; takes reading up to 200 modules."""
        return find_root_package(self)

    @cached_property
    def console_scripts(self) -> dict[str, str]:
        """Console scripts the project declares, name -> `module:function`."""
        return find_console_scripts(self)


def _path_tails(path: str) -> list[str]:
    """`a/b/c`, `b/c` and `c` of `/a/b/c`, the longest first."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return ["/".join(parts[start:]) for start in range(len(parts))]


# Names that a repository's packages are imported under where these are not their folders'.


MAX_MODULES_READ = 200
"""Modules read for the name that the root is imported under."""

_SIBLING_IMPORT = re.compile(
    r"^(?:from[ \t]+([A-Za-z]\w*)[ \t]+import[ \t]+|(?:from|import)[ \t]+([A-Za-z]\w*)\.)(\w+)",
    re.MULTILINE,
)
_IMPORT_FROM_BELOW = re.compile(
    r"^(?:from|import)[ \t]+([A-Za-z]\w*)\.([\w.]+)(?:[ \t]+import[ \t]+([\w, \t]+))?", re.MULTILINE
)
_REMOTE_URL = re.compile(r"^[ \t]*+url[ \t]*+=[ \t]*+(\S++)", re.MULTILINE)


def find_declared_folders(files: Repo) -> dict[str, str]:
    """Folders that setup.py gives packages which are not named after them."""
    text = files.read("setup.py") or ""
    if "package_dir" not in text:
        return {}
    module = parse_or_none(text)
    pairs = [
        (_text_constant(key), _text_constant(value))
        for node in (ast.walk(module) if module is not None else ())
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
    ]
    return {
        name: folder
        for name, folder in pairs
        if re.fullmatch(r"\w+(\.\w+)*", name) and files.is_dir(folder or "?")
    }


def _text_constant(node: ast.expr | None) -> str:
    constant = node.value if isinstance(node, ast.Constant) else None
    return constant if isinstance(constant, str) else ""


def find_root_package(files: Repo) -> str | None:
    """The package that the root itself is, by the name its modules import each other under."""
    modules = {path.stem for path in files.root.glob("*.py")}
    inside = modules | {path.parent.name for path in files.root.glob("*/*.py")}
    enough = 1 if files.is_file("__init__.py") else 3
    for module in sorted(modules):
        siblings: dict[str, set[str]] = {}
        for whole, part, name in _SIBLING_IMPORT.findall(files.read(f"{module}.py") or ""):
            package = whole or part
            if name in inside and package not in inside and not files.is_dir(package):
                siblings.setdefault(package, set()).add(name)
        for package, names in siblings.items():
            if len(names) >= enough:
                return package
    return _find_root_package_by_paths(files, inside)


def _find_root_package_by_paths(files: Repo, inside: set[str]) -> str | None:
    """The name under which modules in folders import the root, by imports of existing files."""
    imported: dict[str, set[str]] = {}
    importable = inside | sys.stdlib_module_names
    is_folder = cache(files.is_dir)
    for file in [file for file in files.files if file.endswith(".py") and "/" in file][
        :MAX_MODULES_READ
    ]:
        for package, dotted, names in _IMPORT_FROM_BELOW.findall(files.read(file) or ""):
            if package in importable or is_folder(package):
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


def _remote_name(files: Repo) -> str:
    """The name that the repository goes by where it was cloned from."""
    config = _REMOTE_URL.search(files.read(".git/config") or "")
    return posixpath.basename(config[1]).removesuffix(".git") if config else ""


# Console scripts that a project declares, in setup.py, setup.cfg or pyproject.toml.


def find_console_scripts(files: Repo) -> dict[str, str]:
    """Console scripts the project declares, name -> `module:function`."""
    scripts: dict[str, str] = {}
    for declared in (_from_setup_py, _from_setup_cfg, _from_pyproject):
        for folder in (".", "src", "python"):
            scripts |= dict(declared(files, folder))
    return scripts


def _from_pyproject(files: Repo, folder: str) -> Iterator[tuple[str, str]]:
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


def _from_setup_cfg(files: Repo, folder: str) -> Iterator[tuple[str, str]]:
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


def _from_setup_py(files: Repo, folder: str) -> Iterator[tuple[str, str]]:
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
