"""The one door for files that a user names: regular files, of bounded bytes, lines and rows.

A name may be a device that never ends, a pipe that nobody writes to, a few kilobytes that unpack to
gigabytes, or one line of 300 MB. So every reader of such a file opens it here: what is no regular
file is refused (a pipe is read where the caller documents it), bytes are counted as they come, also
those that are unpacked, and rows before they are made. Parquet, whose parser is native code, is
read in a process of its own with limits (`base/parquet_child.py`), which hands over plain values.

Refusals are an `InputError`; what the system refuses stays the `OSError` that it is, and what is no
text a `UnicodeDecodeError`, which each caller words for its kind of file.
"""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

from schedmate.base.data import parse_yaml
from schedmate.base.errors import InputError, require

if TYPE_CHECKING:
    import subprocess

T = TypeVar("T")

MOST_DOCUMENT = 256 << 20
"""Bytes of a document that is read as a whole, such as a snapshot in JSON."""
MOST_SETTINGS = 1 << 20
"""Bytes of a file that a person writes: settings, bounds, a mapping."""
ANY_SIZE = 1 << 62
"""For a file of which only a few bytes are read, such as a checkpoint."""
MOST_RULES = 16 << 20
"""Bytes of a file of rules of a site."""
MOST_TABLE = 8 << 30
"""Bytes of a table that is read row by row, unpacked."""
LONGEST_LINE = 4 << 20
"""Bytes of a line of a table."""
MOST_ROWS = 20_000_000
"""Rows of a table: the largest public trace of jobs has 7.5 million."""
MOST_RECORDS = 500_000
"""Rows of a table that are kept as they are, such as labelled jobs or measured speeds."""
MOST_UNPACKED_RATIO, ALWAYS_UNPACKED = 100, 64 << 20
"""A .gz that unpacks to more than this many times its size is refused past so many bytes: job
accounting packs to a tenth, and repeated rows to a thousandth."""
DEEPEST = 200
"""Levels of a document in JSON or YAML."""
WRITER_S = 2.0
"""Time that a pipe may wait for somebody to write to it [s]."""

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def open_descriptor(path: Path, *, pipe: bool = False) -> int:
    """A descriptor of a regular file, or with `pipe` of a pipe that somebody writes to.

    Never waits for longer than `WRITER_S`. Raises `InputError` for any other kind of file and
    `OSError` where there is none.
    """
    mode = path.stat().st_mode  # before it is opened: to open a device may do something
    _check_kind(path, mode, pipe=pipe)
    if pipe and stat.S_ISFIFO(mode):
        return _open_pipe(path)
    descriptor = os.open(path, _FLAGS)
    try:
        _check_kind(path, os.fstat(descriptor).st_mode, pipe=False)  # another one may be there now
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_secret(status: os.stat_result) -> bool:
    """Whether only this user and root can read a file of theirs and write to it.

    The group of this process may read a file of root's, as Kubernetes mounts a Secret.
    """
    user = os.geteuid()
    mounted = user and not status.st_uid and status.st_gid == os.getegid()
    return status.st_uid in (0, user) and not status.st_mode & (0o037 if mounted else 0o077)


def _check_kind(path: Path, mode: int, *, pipe: bool) -> None:
    if stat.S_ISREG(mode) or (pipe and stat.S_ISFIFO(mode)):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = next((words for is_kind, words in _KINDS if is_kind(mode)), "no file")
    raise InputError(f"{path} is {kind} and not a file; write its content to a file and name that.")


def _open_pipe(path: Path) -> int:
    """The reading end of a pipe. To open one waits for a writer, here not for ever."""
    opened: list[int] = []
    thread = threading.Thread(
        target=lambda: opened.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC)), daemon=True
    )
    thread.start()
    thread.join(WRITER_S)
    if thread.is_alive():
        with suppress(OSError):  # a writer for a moment, which lets the thread go on
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        thread.join(WRITER_S)
        for descriptor in opened:
            os.close(descriptor)
        raise InputError(
            f"nobody writes to the pipe {path}; start what fills it first, or name a file."
        )
    return opened[0]


class _Counted(io.RawIOBase):
    """A stream that refuses more bytes, and longer lines, than it should have."""

    def __init__(
        self, inner: io.RawIOBase | IO[bytes], name: str, most: int, longest_line: int | None
    ) -> None:
        self._inner, self._name = inner, name
        self._most, self._longest_line = most, longest_line
        self._size = self._line = 0

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._inner.fileno()

    def limit_lines(self, longest: int) -> None:
        """Refuse longer lines from here on."""
        self._longest_line = longest

    def seekable(self) -> bool:
        return self._inner.seekable()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._size = self._line = 0
        return self._inner.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        size = self._inner.readinto(buffer) or 0  # type: ignore[union-attr]
        self._size += size
        if self._size > self._most:
            raise _too_long(self._name, self._most)
        if self._longest_line is not None:
            self._measure(memoryview(buffer)[:size].tobytes())
        return size

    def _measure(self, block: bytes) -> None:
        longest = self._longest_line or 0
        first, last = block.find(b"\n"), block.rfind(b"\n")
        self._line += len(block) if first < 0 else first
        inner = max(map(len, block.split(b"\n")[1:-1]), default=0) if len(block) > longest else 0
        if max(self._line, inner) > longest:
            raise InputError(
                f"{self._name} has a line of more than {_mib(longest)}; no row of a table is that "
                "long. Export it again."
            )
        if first >= 0:
            self._line = len(block) - last - 1

    def close(self) -> None:
        self._inner.close()
        super().close()


def _too_long(name: object, most: int) -> InputError:
    return InputError(
        f"{name} holds more than {_mib(most)}, unpacked; nothing that is read here is that long. "
        "Split it, or name another file."
    )


def _mib(size: int) -> str:
    return f"{size >> 20:,} MiB"


def open_binary(
    path: Path,
    *,
    most: int = MOST_TABLE,
    longest_line: int | None = None,
    pipe: bool = False,
    unpack: bool = False,
    buffer: int = io.DEFAULT_BUFFER_SIZE,
) -> io.BufferedReader:
    """The bytes of a file, at most `most`; with `unpack` those in a file that ends in .gz.

    `buffer` bytes are read at once. Reading raises `InputError` past a limit, and for a damaged
    .gz what `gzip` does.
    """
    raw: Any = io.FileIO(open_descriptor(path, pipe=pipe), "rb")
    size = os.fstat(raw.fileno()).st_size  # 0 of a pipe, of which what always may be is unpacked
    if unpack and path.suffix == ".gz":
        most = min(most, max(ALWAYS_UNPACKED, MOST_UNPACKED_RATIO * size))
        raw = _Packed(raw)
    elif size > most:
        raw.close()
        raise _too_long(path, most)
    return io.BufferedReader(_Counted(raw, str(path), most, longest_line), buffer)


class _Packed(gzip.GzipFile):
    """A .gz whose file is closed with it."""

    def __init__(self, raw: io.FileIO) -> None:
        super().__init__(fileobj=raw)
        self._file = raw

    def fileno(self) -> int:
        return self._file.fileno()

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        super().close()
        self._file.close()


def limit_lines(stream: io.BufferedReader) -> None:
    """Refuse lines of a table's file that are longer than `LONGEST_LINE`, from here on."""
    if isinstance(stream.raw, _Counted):
        stream.raw.limit_lines(LONGEST_LINE)


@contextmanager
def open_text(
    path: Path,
    *,
    most: int = MOST_TABLE,
    longest_line: int | None = LONGEST_LINE,
    pipe: bool = False,
    unpack: bool = False,
    encoding: str = "utf-8",
    errors: str = "strict",
    newline: str | None = None,
) -> Iterator[io.TextIOWrapper]:
    """The text of a file, line by line; see `open_binary`."""
    with (
        open_binary(path, most=most, longest_line=longest_line, pipe=pipe, unpack=unpack) as stream,
        io.TextIOWrapper(stream, encoding=encoding, errors=errors, newline=newline) as text,
    ):
        yield text


def read_bytes(path: Path, *, most: int = MOST_DOCUMENT, unpack: bool = False) -> bytes:
    """The whole content of a file."""
    with open_binary(path, most=most, unpack=unpack) as stream:
        return stream.read()


def read_text(
    path: Path, *, most: int = MOST_DOCUMENT, encoding: str = "utf-8", errors: str = "strict"
) -> str:
    """The whole text of a file."""
    return read_bytes(path, most=most).decode(encoding, errors).replace("\r\n", "\n")


def bounded_rows(rows: Iterable[T], name: object, most: int = MOST_ROWS) -> Iterator[T]:
    """The rows, as long as there are not more than `most`; then raises `InputError`."""
    for number, row in enumerate(rows):
        if number == most:
            raise InputError(f"{name} has more than {most:,} rows; split it, or name another file.")
        yield row


def parse_document(text: str, name: object) -> Any:
    """The values in the text of a YAML document, which nests at most `DEEPEST` levels.

    PyYAML's composer recurses in C without a limit, its events do not. Raises `InputError` for what
    nests deeper and `yaml.YAMLError` for what is no YAML.
    """
    import yaml

    depth = 0
    # as many opening marks or lines as levels it takes to nest
    if text.count("[") + text.count("{") + text.count("- ") + text.count("\n") > DEEPEST:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise InputError(f"{name} is nested too deep to be read.")
    return parse_yaml(text)


def parse_json(text: str | bytes, name: object) -> Any:
    """The values in the text of a JSON document; raises `InputError`."""
    try:
        return json.loads(text)
    except RecursionError:
        raise InputError(f"{name} is nested too deep to be read.") from None
    except ValueError as error:
        raise InputError(f"{name} is not complete JSON: {error}; export it again.") from None


# Parquet, read by Arrow in a process of its own.


PARQUET_MB, PARQUET_CPU_S = 2048, 1200.0
"""Memory [MiB] and CPU time [s] of the process that reads a Parquet file."""
_LONGEST_BATCH = 64 << 20
"""Bytes of a batch of rows as it is handed over."""


class ParquetFile(NamedTuple):
    """A Parquet file: the names of its columns, and its rows, a batch of columns at a time."""

    names: list[str]
    metadata: dict[str, str]
    """What the writer put into the file's schema."""
    batches: Iterator[list[list[Any]]]
    """Values of JSON; dates and whatever else JSON lacks are text."""


@contextmanager
def open_parquet(path: Path, *, most_rows: int = MOST_ROWS) -> Iterator[ParquetFile]:
    """The content of a Parquet file (extra `parquet`), read where it can be killed.

    Raises `InputError` for a file that is none, or is too large, and `MissingExtraError`.
    """
    require(f"reading {path}", "parquet", "pyarrow")
    with ExitStack() as stack:
        descriptor = open_descriptor(path)
        stack.callback(os.close, descriptor)
        process = _start_reader(descriptor)
        stack.callback(_end, process)
        assert process.stdout is not None
        head = _next_line(process, path)
        if head is None:
            raise _ended(process, path)
        if head["rows"] > most_rows:
            raise InputError(
                f"{path} has {head['rows']:,} rows, of at most {most_rows:,}; split it."
            )
        yield ParquetFile(head["names"], head["metadata"], _batches(process, path, most_rows))


def _start_reader(descriptor: int) -> subprocess.Popen[bytes]:
    import subprocess
    import sys

    from schedmate.base.confine.limits import without_secrets

    path = json.dumps([os.path.abspath(one) for one in sys.path if one])  # noqa: PTH100
    program = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
        "from schedmate.base.parquet_child import main; main()"
    )
    return subprocess.Popen(
        # -P: nothing of the current directory is imported
        [sys.executable, "-P", "-c", program, path, str(PARQUET_MB), str(PARQUET_CPU_S)],
        stdin=descriptor,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**without_secrets(os.environ), "OMP_NUM_THREADS": "1"},
    )


def _next_line(process: subprocess.Popen[bytes], path: Path) -> Any:
    """What the reader says next; None when it has ended without a word."""
    assert process.stdout is not None
    line = process.stdout.readline(_LONGEST_BATCH + 1)
    if not line.endswith(b"\n"):
        return None
    said = parse_json(line, path)
    if isinstance(said, dict) and "error" in said:
        raise InputError(f"cannot read {path} as Parquet: {said['error']}")
    return said


def _batches(
    process: subprocess.Popen[bytes], path: Path, most_rows: int
) -> Iterator[list[list[Any]]]:
    rows = 0
    while (batch := _next_line(process, path)) != []:
        if batch is None:
            raise _ended(process, path)
        rows += len(batch[0]) if batch else 0
        if rows > most_rows:
            raise InputError(f"{path} has more than {most_rows:,} rows; split it.")
        yield batch


def _ended(process: subprocess.Popen[bytes], path: Path) -> InputError:
    _end(process)
    return InputError(
        f"{path} cannot be read as Parquet: it is damaged, or takes more than {PARQUET_MB:,} MiB "
        "of memory; write it again, with smaller groups of rows."
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    if process.stdout is not None:
        process.stdout.close()
    process.wait()
