"""The repository's Python sources: finding modules, reading and parsing them."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from schedmate.agent.deferred import parse_later
from schedmate.agent.interp.objects import Module
from schedmate.agent.interp.repair import Reader, decode, parse_statements, parse_tolerant
from schedmate.agent.launch.repo import Repo
from schedmate.agent.values import Value
from schedmate.paths import RealPaths, exists, is_dir, resolved

T = TypeVar("T")

MAX_SOURCE_BYTES = 2_000_000
EAGER_BYTES = 1_200_000


class _Once:
    """Hears of the first thing only that is wrong with a file, which is parsed in parts."""

    def __init__(self, reader: Reader) -> None:
        self._reader: Reader | None = reader

    def warns(self, message: str) -> None:
        if self._reader is not None:
            self._reader.warns(message)
            self._reader = None

    def parses(self, file: str, text: str) -> None:
        """Its parts are not files."""


class Sources:
    """Modules below a repository root, parsed once each.

    Args:
        roots: import roots in order, absolute and inside `root`.
        repo: the repository; nothing outside it is read.
        canonical: one spelling for libraries that can be imported under several names.
    """

    def __init__(
        self, roots: list[Path], repo: Repo, canonical: Callable[[str], str] = str
    ) -> None:
        self.canonical = canonical
        self.root = repo.root
        self.repo = repo
        self.roots: list[Path] = []
        self._real = RealPaths()
        self._prefix = f"{str(self.root).rstrip('/')}/"
        for path in roots:
            self.add_root(path)
        self.modules: dict[Path, Module] = {}
        self.bytes_read = 0
        self._listings: dict[str, frozenset[str]] = {}
        self._found: dict[tuple[str, str | None, tuple[str, ...]], Module | None] = {}

    def add_root(self, path: Path) -> None:
        place = resolved(path)
        if place not in self.roots and self.inside(place):
            self.roots.append(place)
            self._found = {}

    def inside(self, path: Path) -> bool:
        """Whether `path`, links resolved, lies in the repository."""
        return f"{self._real(str(path))}/".startswith(self._prefix)

    def relative(self, path: Path) -> str:
        """The repository-relative POSIX form of a path inside it."""
        real = self._real(str(path))
        if real.startswith(self._prefix):
            return real.removeprefix(self._prefix)
        return "." if f"{real}/" == self._prefix else os.path.basename(real)  # noqa: PTH119

    def locate(self, text: str, near: Path | None = None) -> Path | None:
        """The file of the repository a path in the program means, None when there is none."""
        if not text or "\0" in text or len(text) > 1024:
            return None
        given = Path(text)
        bases = [given] if given.is_absolute() else [base / given for base in (*self.roots,)]
        if near is not None and not given.is_absolute():
            bases.append(near.parent / given)
        for candidate in bases:
            try:
                if exists(candidate) and self.inside(candidate):
                    return candidate.resolve()
            except OSError:
                return None
        return None

    def only_one(self, text: str) -> str | None:
        """The one file of the repository that has the path, or at least the name, of `text`."""
        return self.repo.only_one_ending(text) or self.repo.only_one_ending(Path(text).name)

    def absolute(self, name: str, level: int, importer: Module) -> str:
        """The absolute dotted name of a possibly relative import."""
        if level == 0:
            return name
        parts = importer.package.split(".") if importer.package else []
        parts = parts[: len(parts) - (level - 1)] if level > 1 else parts
        return ".".join([*parts, name] if name else parts)

    def find(self, name: str, importer: Module | None, extra: list[str]) -> Module | None:
        """The repository's module called `name`, None when it is a third party's."""
        near = os.path.dirname(importer.path) if importer is not None else None  # noqa: PTH120
        key = (name, near, tuple(extra))
        if key not in self._found:
            self._found[key] = self._find(name, near, extra)
        return self._found[key]

    def _find(self, name: str, near: str | None, extra: list[str]) -> Module | None:
        if not name or not re.fullmatch(r"[\w.]+", name) or name.endswith("."):
            return None
        parts = [part for part in name.split(".") if part]
        bases = [str(root) for root in self.roots]
        for text in extra:
            path = Path(text)
            bases += (
                [str(path)] if path.is_absolute() else [str(root / path) for root in self.roots]
            )
        if near is not None and near not in bases:
            bases.append(near)
        bases = [base for base in bases if self._holds(base, parts[0])]
        for base in bases:
            found = self._file(base, parts)
            if found is not None:
                return self.module(found, name)
        # whether the root is that package is looked for only where it would have such a file
        if parts[0] not in self.repo.package_folders:
            found = self._file(str(self.root), parts[1:])
            if found is not None and self.repo.root_package == parts[0]:
                return self.module(found, name)
        for package, place in self.repo.package_folders.items():
            if name == package or name.startswith(f"{package}."):
                inner = [part for part in name.removeprefix(package).split(".") if part]
                found = self._file(str(self.root / place), inner)
                if found is not None:
                    return self.module(found, name)
        for base in bases:
            folder = Path(base, *parts)
            if is_dir(folder) and self.inside(folder) and _holds_python(folder):
                return self.module(folder, name)
        return None

    def _file(self, base: str, parts: list[str]) -> Path | None:
        """The file of a module or package below a folder, None where none is in the repository."""
        place = "/".join([base, *parts])
        for text in (f"{place}.py", f"{place}/__init__.py"):
            # most are not there, and paths are slow to make
            if os.path.isfile(text) and self.inside(path := Path(text)):  # noqa: PTH113
                return path
        return None

    def _holds(self, base: str, top: str) -> bool:
        """Whether a folder has a module or package of this name: most names are a third party's."""
        if base not in self._listings:
            try:
                self._listings[base] = frozenset(os.listdir(base))  # noqa: PTH208
            except (OSError, ValueError):
                self._listings[base] = frozenset()
        return top in self._listings[base] or f"{top}.py" in self._listings[base]

    def module(self, path: Path, name: str) -> Module:
        """The module object of a file; one per file whatever it is imported as."""
        place = Path(self._real(str(path)))
        if place not in self.modules:
            package = (
                name if path.name == "__init__.py" or is_dir(path) else name.rpartition(".")[0]
            )
            self.modules[place] = Module(name, place, self.relative(place), package)
        return self.modules[place]

    def defined(self, kind: type[T]) -> Iterator[tuple[str, Value, T]]:
        """The values of a kind in the modules followed so far, with their names there."""
        for module in list(self.modules.values()):
            for name, value in list(module.scope.names.items()):
                if isinstance(value.data, kind):
                    yield name, value, value.data

    def defer(self, module: Module) -> bool:
        """Whether a star import should wait until a name from it is needed."""
        return not module.loaded and self.bytes_read > EAGER_BYTES

    def parse(self, path: Path, reader: Reader) -> ast.Module | None:
        """The syntax tree of a file; lines that do not parse are left out with a warning."""
        if is_dir(path):
            return ast.Module([], [])
        file = self.relative(path)
        try:
            size = path.stat().st_size
            if size > MAX_SOURCE_BYTES:
                reader.warns(
                    f"{file}: {size // 1_000_000} MB is too large for source code, not read"
                )
                return None
            raw = path.read_bytes()
        except OSError as error:
            reader.warns(f"{file}: cannot be read ({error.strerror})")
            return None
        if b"\0" in raw:
            reader.warns(f"{file}: binary data, not read as source code")
            return None
        self.bytes_read += len(raw)
        text = decode(raw)
        reader.parses(file, text)
        once = _Once(reader)
        tree = parse_later(text, lambda function: parse_statements(function, file, once))
        return tree if tree is not None else parse_tolerant(text, file, reader)


def _holds_python(folder: Path) -> bool:
    try:
        return any(child.suffix == ".py" or is_dir(child) for child in folder.iterdir())
    except OSError:
        return False
