"""Runs the commands of others, such as a scheduler's, with a bound on everything.

A command may never end, print without end, or leave processes behind that hold its output open. So
each one has a deadline, a number of bytes, and a session of its own, all of which is killed when
either is reached, and when the command has ended. What may be long is read piece by piece
(`Running.pieces`), so that nobody holds all of it.
"""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple, Self

from schedmate.base.errors import SchedmateError

MOST_OUTPUT = 256 << 20
"""Bytes that a command may print where they are kept."""
MOST_STREAMED = 4 << 30
"""Bytes that a command may print where they are read piece by piece."""
MOST_ERRORS = 64 << 10
"""Bytes of error output that are kept; the rest is read and dropped."""
_PIECE = 1 << 16


class CutOffError(SchedmateError):
    """A command was killed: it did not end in time, or printed too much."""


class Finished(NamedTuple):
    """What became of a command."""

    code: int | None
    """Exit code; None when it was killed."""
    output: bytes
    errors: bytes
    cut_off: Literal["", "time", "size"] = ""
    """Why it was killed."""

    def text(self) -> str:
        """The output; bytes that are not UTF-8, as names of directories may have, stay as they
        are."""
        return self.output.decode("utf-8", "surrogateescape")


class Running:
    """A command that was started; leaving the context kills what is left of it.

    Args:
        words: the command; nothing in it is interpreted by a shell.
        timeout_s: time until it is killed [s].
        most: bytes that it may print; with `drop` more are read and dropped, as for an action that
            is not to end halfway, and without it is killed.
        together: error output goes where the output goes.
        held: descriptors that it inherits.
        environment: its variables; None for this process's.

    Raises `OSError` or `ValueError` when it cannot be started.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        timeout_s: float,
        most: int = MOST_STREAMED,
        drop: bool = False,
        together: bool = False,
        held: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self._timeout_s, self._most, self._drop = words[0], timeout_s, most, drop
        self._until = time.monotonic() + timeout_s
        self.errors = bytearray()
        self.cut_off: Literal["", "time", "size"] = ""
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if together else subprocess.PIPE,
            start_new_session=True,  # Ctrl-C ends the caller, not a command halfway
            pass_fds=held,
            env=environment,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError, PermissionError):  # sudo's belongs to somebody else
            os.killpg(self._process.pid, signal.SIGKILL)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)

    def pieces(self) -> Iterator[bytes]:
        """The output as it comes.

        Ends early, with `cut_off` set, at the deadline and past the number of bytes.
        """
        size = 0
        with selectors.DefaultSelector() as waiting:
            for stream in (self._process.stdout, self._process.stderr):
                if stream is not None:
                    waiting.register(stream, selectors.EVENT_READ)
            while waiting.get_map():
                ready = waiting.select(max(0.0, self._until - time.monotonic()))
                if not ready:
                    self.cut_off = "time"
                    return
                for key, _ in ready:
                    piece = os.read(key.fd, _PIECE)
                    if not piece:
                        waiting.unregister(key.fileobj)
                    elif key.fileobj is self._process.stdout:
                        left = self._most - size
                        size += len(piece)
                        if left < len(piece) and not self._drop:
                            self.cut_off = "size"
                            return
                        if left > 0:
                            yield piece[:left]
                    else:
                        self.errors += piece[: MOST_ERRORS - len(self.errors)]

    def text(self) -> Iterator[str]:
        """The output as text, piece by piece, as `Finished.text`.

        Raises `CutOffError` where it ends early.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        for piece in self.pieces():
            yield decoder.decode(piece)
        yield decoder.decode(b"", final=True)
        self.code()
        if self.cut_off:
            raise CutOffError(self.complaint())

    def code(self) -> int | None:
        """The exit code, once the output has ended; None when the command was cut off."""
        if self.cut_off:
            return None
        try:
            return self._process.wait(max(0.1, self._until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.cut_off = "time"
            return None

    def complaint(self) -> str:
        """Why the command was killed, as a sentence without its full stop."""
        return complaint(self.name, self.cut_off, self._timeout_s, self._most)


def complaint(name: str, cut_off: str, timeout_s: float, most: int) -> str:
    """Why a command was killed, as a sentence without its full stop."""
    if cut_off == "size":
        return f"{name} printed more than {most >> 20:,} MiB"
    return f"{name} did not end within {timeout_s:g} s"


def lines_of(pieces: Iterator[str]) -> Iterator[str]:
    """The lines of a text that comes in pieces, without their ends."""
    rest = ""
    for piece in pieces:
        rest += piece
        *whole, rest = rest.split("\n")
        yield from whole
    if rest:
        yield rest


def run(
    words: Sequence[str],
    *,
    timeout_s: float,
    most: int = MOST_OUTPUT,
    drop: bool = False,
    together: bool = False,
    held: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
) -> Finished:
    """Run a command to its end or its limits; see `Running`. Gives what it printed until then."""
    with Running(
        words,
        timeout_s=timeout_s,
        most=most,
        drop=drop,
        together=together,
        held=held,
        environment=environment,
    ) as running:
        output = bytearray()
        for piece in running.pieces():
            output += piece
        code = running.code()
        return Finished(code, bytes(output), bytes(running.errors), running.cut_off)
