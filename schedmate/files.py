"""Writing output files so that nobody ever sees half of one."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from schedmate.errors import InputError


@contextmanager
def open_output(path: Path | None) -> Iterator[TextIO]:
    """A stream whose content appears at `path` whole or not at all; None or `-`: standard output.

    A regular file is replaced in one step, when the block ends without an exception, by a
    finished temporary file beside it that has the old one's permissions. Devices and pipes are
    written to directly. Raises `InputError` when the place cannot be written.
    """
    if path is None or str(path) == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    target = path.resolve()
    direct = target.exists() and not target.is_file()
    try:
        stream, temporary = (
            (target.open("w", encoding="utf-8"), None) if direct else _beside(target)
        )
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}; choose another place with -o."
        ) from None
    try:
        with stream:
            yield stream
            stream.flush()
            if temporary is not None:
                os.fsync(stream.fileno())
        if temporary is not None:
            temporary.replace(target)
    except BaseException:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A name beside `path` for a library to write to; becomes `path` when the block ends well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _beside(target: Path) -> tuple[TextIO, Path]:
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    os.fchmod(handle, mode)
    return os.fdopen(handle, "w", encoding="utf-8"), Path(name)


def _umask() -> int:
    # The mask can only be read by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
