"""Reading one text file of a repository: confined to its root, capped, tolerant of encodings."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from schedmate.agent.values import Origin
from schedmate.errors import InputError
from schedmate.paths import is_file

MAX_BYTES = 4 * 1024 * 1024
"""Largest file read as a configuration [bytes]."""


class ConfigError(InputError):
    """A configuration file cannot be used; the message names the file and, if known, the line."""


@dataclass(frozen=True, slots=True)
class Source:
    """A configuration's text and the repo-relative POSIX `name` it is cited by."""

    text: str
    name: str | None
    path: Path

    def origin(self, line: int, text: str | None = None) -> Origin:
        """The origin of something that stands on the 1-based `line`."""
        return Origin("config", self.name, line, text)

    def error(self, message: str, line: int | None = None) -> ConfigError:
        """A `ConfigError` that begins with this file and line."""
        name = self.name or "configuration text"
        place = f"{name}:{line}" if line else name
        return ConfigError(f"{place}: {message}")


def load(path: Path, root: Path) -> Source:
    """Read `path`, which must lie inside `root` once symbolic links are followed.

    Raises ConfigError for a file outside the root, a missing file, something that is not a plain
    file, and one larger than `MAX_BYTES`.
    """
    try:
        base = _real(root)
        resolved = path.resolve()
        inside = resolved.is_relative_to(base)
        regular = inside and is_file(resolved)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be opened ({error}); check the path") from error
    if not inside:
        raise ConfigError(f"{path}: lies outside {root}; only files of the repository are read")
    name = resolved.relative_to(base).as_posix()
    if not regular:
        raise ConfigError(f"{name}: no such file in the repository; check the path")
    try:
        with resolved.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read ({error.strerror}); check its rights") from error
    if len(raw) > MAX_BYTES:
        limit = MAX_BYTES // 1024 // 1024
        raise ConfigError(f"{name}: is larger than {limit} MB, too large for a configuration")
    return Source(decode(raw), name, resolved)


@lru_cache(maxsize=16)
def _real(root: Path) -> Path:
    """A repository's root without links, which stays where it is while its files are read."""
    return root.resolve()


def decode(raw: bytes) -> str:
    """Text of `raw`: by its byte-order mark, else UTF-8, else Windows-1252 (a Latin-1 superset)."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return raw.decode("utf-16", errors="replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("cp1252", errors="replace")
