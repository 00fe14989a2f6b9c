"""The files of a repository. Read only."""

from __future__ import annotations

import difflib
import os
import posixpath
import re
from functools import cached_property
from pathlib import Path

from schedmate.paths import RealPaths, is_dir, is_file

MAX_BYTES = 2_000_000
MAX_FILES = 100_000
_SKIPPED = frozenset(
    {"__pycache__", "node_modules", "venv", "site-packages", "build", "dist", "wandb"}
)


class Files:
    """Files under `root`; paths are relative POSIX paths, and nothing outside is ever read."""

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
        for directory, names, files in os.walk(self.root):
            names[:] = sorted(n for n in names if n not in _SKIPPED and not n.startswith("."))
            relative = Path(directory).relative_to(self.root).as_posix()
            paths += [posixpath.normpath(posixpath.join(relative, name)) for name in sorted(files)]
            if len(paths) > MAX_FILES:
                break
        return sorted(paths, key=lambda path: (path.count("/"), path))

    def by_suffix(self, path: str) -> str | None:
        """The file or directory that the longest possible tail of `path` names from the root."""
        return next((t for t in _tails(path) if self.is_file(t) or self.is_dir(t)), None)

    def only_one_ending(self, path: str) -> str | None:
        """The single file of the repository whose path ends in `path`."""
        tail = "/" + re.sub(r"^(\.{0,2}/)+", "", posixpath.normpath(path))
        matching = [file for file in self.files if ("/" + file).endswith(tail)]
        return matching[0] if len(matching) == 1 else None

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


def _tails(path: str) -> list[str]:
    """`a/b/c`, `b/c` and `c` of `/a/b/c`, the longest first."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return ["/".join(parts[start:]) for start in range(len(parts))]
