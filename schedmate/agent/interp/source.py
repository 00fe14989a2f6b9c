"""Finds, reads and parses the repository's Python sources, also those not valid in this version
of Python.

`Sources` finds modules; `parse_tolerant` passes over statements that cannot be parsed; the rest
asks about syntax trees.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from schedmate.agent.interp.objects import Module
from schedmate.agent.launch.repo import Repo
from schedmate.agent.syntax import TooMuchSource, parse, parse_later
from schedmate.agent.values import Value
from schedmate.base.files import RealPaths, exists, is_dir, resolved

if TYPE_CHECKING:
    from schedmate.agent.interp.trace import Watcher

MAX_REPAIRS = 60
MAX_PARSED = 5_000_000
"""Characters parsed of one file together, while it is repaired."""


def decode(raw: bytes) -> str:
    """Source text whatever its encoding: UTF-8, else Latin-1."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def parse_tolerant(text: str, file: str, warn: Callable[[str], None]) -> ast.Module | None:
    """Parse, replacing statements that are not valid in this version of Python by `pass`."""
    lines = text.split("\n")
    first_error: SyntaxError | None = None
    for _ in range(max(1, min(MAX_REPAIRS, MAX_PARSED // (len(text) + 1)))):
        try:
            tree = parse("\n".join(lines))
        except SyntaxError as error:
            first_error = first_error or error
            number = min(error.lineno or 1, len(lines)) - 1
            line = lines[number]
            repaired = _repair(line)
            if repaired == line:
                break
            if repaired.strip() == "pass":
                for rest in range(number + 1, _statement_end(lines, number) + 1):
                    lines[rest] = ""
            lines[number] = repaired
        except TooMuchSource as error:
            warn(f"{file}: {error}, left out")
            return None
        except (ValueError, RecursionError, MemoryError):
            warn(f"{file}: cannot be parsed, left out")
            return None
        else:
            if first_error is not None:
                version = f"{sys.version_info.major}.{sys.version_info.minor}"
                warn(
                    f"{file}:{first_error.lineno}: not valid Python {version}, left out what is not"
                )
            return tree
    line_number = first_error.lineno if first_error else 1
    warn(f"{file}:{line_number}: syntax error, the file is left out")
    return None


def parse_statements(function: str, file: str, warn: Callable[[str], None]) -> list[ast.stmt]:
    """The body of the one function of a source, without what is not valid in it."""
    tree = parse_tolerant(function, file, warn)
    if tree is None or not isinstance(tree.body[0], ast.FunctionDef | ast.AsyncFunctionDef):
        return []
    return tree.body[0].body


_STRING = re.compile(r"""'(?:\\.|[^'\\])*+(?:'|$)|"(?:\\.|[^"\\])*+(?:"|$)|#.*""")
_LONGEST = 40
"""Lines of a statement, of which no more are looked through for its end."""


def _statement_end(lines: list[str], start: int) -> int:
    """The last line of the statement that begins at `start`, by its brackets and backslashes.

    `start` itself where the brackets do not close.
    """
    depth = 0
    for number in range(start, min(len(lines), start + _LONGEST)):
        bare = _STRING.sub("", lines[number]).rstrip()
        depth += sum(map(bare.count, "([{")) - sum(map(bare.count, ")]}"))
        if depth <= 0 and not bare.endswith("\\"):
            return number
    return start


def _repair(line: str) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    stripped = line.strip()
    old_except = re.match(r"except\s++([\w.()\s,]++):(.*)$", stripped)
    kinds, comma, name = old_except[1].rpartition(",") if old_except else ("", "", "")
    if old_except and comma and name.strip().isidentifier():
        return f"{indent}except {kinds.rstrip()} as {name.strip()}:{old_except[2]}"
    reserved = re.sub(r"\b(async|await)(?=\s*=[^=])", r"\1_", stripped)
    if reserved != stripped:
        return indent + reserved  # an argument's name before Python 3.7: `x.cuda(async=True)`
    generic = re.sub(r"^((?:async\s+def|def|class)\s+\w+)\[[^\]]*\]", r"\1", stripped)
    if generic != stripped:
        # type parameters and type aliases are newer than the running Python may be
        return indent + generic
    if re.match(r"type\s+\w+", stripped):
        return indent + re.sub(r"^type\s+(\w+)(\[[^\]]*\])?", r"\1", stripped)
    if not stripped or stripped == "pass" or re.match(r"(el|except|finally)", stripped):
        return line
    if stripped.endswith(":"):
        return f"{indent}if True:" if stripped != "if True:" else line
    return f"{indent}pass"


# The repository's Python sources: finding modules, reading and parsing them.


T = TypeVar("T")

MAX_SOURCE_BYTES = 2_000_000
EAGER_BYTES = 1_200_000


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
        path = Path(text)
        bases = [path] if path.is_absolute() else [base / path for base in (*self.roots,)]
        if near is not None and not path.is_absolute():
            bases.append(near.parent / path)
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
            file = self._file(base, parts)
            if file is not None:
                return self.module(file, name)
        # whether the root is that package is looked for only where it would have such a file
        if parts[0] not in self.repo.package_folders:
            file = self._file(str(self.root), parts[1:])
            if file is not None and self.repo.root_package == parts[0]:
                return self.module(file, name)
        for package, place in self.repo.package_folders.items():
            if name == package or name.startswith(f"{package}."):
                inner = [part for part in name.removeprefix(package).split(".") if part]
                file = self._file(str(self.root / place), inner)
                if file is not None:
                    return self.module(file, name)
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

    def parse(self, path: Path, reader: Watcher) -> ast.Module | None:
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
        warned: list[str] = []

        def warn_once(message: str) -> None:
            if not warned:
                reader.warns(message)
            warned.append(message)

        tree = parse_later(text, lambda function: parse_statements(function, file, warn_once))
        return tree if tree is not None else parse_tolerant(text, file, reader.warns)


def _holds_python(folder: Path) -> bool:
    try:
        return any(child.suffix == ".py" or is_dir(child) for child in folder.iterdir())
    except OSError:
        return False


# Questions about the syntax trees of programs that several parts of the interpreter ask.


N = TypeVar("N", bound=ast.AST)


def nodes_of(trees: Sequence[ast.AST], kind: type[N]) -> Iterator[N]:
    """The nodes of one kind in some trees, breadth first in each."""
    return (node for tree in trees for node in ast.walk(tree) if isinstance(node, kind))


def elements(node: ast.expr) -> list[ast.expr]:
    """The items of a tuple as it is written, the expression itself where it is none."""
    return node.elts if isinstance(node, ast.Tuple) else [node]


def variable_name(node: ast.AST | None) -> str | None:
    """The name of a variable, None for other expressions."""
    return node.id if isinstance(node, ast.Name) else None


def last_name(node: ast.AST | None) -> str | None:
    """The name of a variable or attribute, `c` of `a.b.c`; None for other expressions."""
    return node.attr if isinstance(node, ast.Attribute) else variable_name(node)


def constant_value(node: ast.AST | None) -> object:
    """The value of a literal, `...` for other expressions."""
    return node.value if isinstance(node, ast.Constant) else ...
