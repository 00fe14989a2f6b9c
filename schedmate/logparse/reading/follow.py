"""Following a log that is being written, through rotation and truncation, like `tail -F`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

from schedmate.logparse.reading.inside import LogError
from schedmate.logparse.reading.storage import BLOCK

POLL_S = 0.5
"""Time between two checks of a file that has not grown [s]."""
MAX_HELD = 1 << 20
"""A longer unfinished line is returned unfinished [bytes]."""


def follow(
    path: Path,
    *,
    start: int = 0,
    poll_s: float = POLL_S,
    wait: Callable[[float], bool] | None = None,
) -> Iterator[bytes]:
    """Whole new lines of the file, several at a time, from byte `start` on, as they are written.

    Empty bytes mean that nothing was written for `poll_s` [s], so that a caller can show that it is
    alive. A truncated file is read from its new beginning; a renamed or deleted one is read to its
    end, then the one that takes its name. `wait(seconds)` sleeps and returns whether to continue
    (default: always). Raises `LogError` if the file does not exist at first.
    """
    go_on = wait or _sleep
    held = b""
    try:
        stream = path.open("rb", buffering=0)
    except OSError as error:
        raise LogError(
            f"cannot follow {path}: {error.strerror}; give the file that the job writes to."
        ) from None
    try:
        stream.seek(start)
        while True:
            if os.fstat(stream.fileno()).st_size < stream.tell():
                stream.seek(0)
                held = b""
            block = stream.read(BLOCK) or b""
            cut = block.rfind(b"\n") + 1
            if cut or len(held) + len(block) > MAX_HELD:
                cut = cut or len(block)
                yield held + block[:cut]
                held = block[cut:]
                continue
            held += block
            if block:
                continue
            fresh = _replaced(path, stream.fileno())
            if fresh is not None:
                if held:
                    yield held + b"\n"
                held = b""
                stream.close()
                stream = fresh
                continue
            yield b""
            if not go_on(poll_s):
                return
    finally:
        stream.close()


def _replaced(path: Path, descriptor: int) -> FileIO | None:
    """The file that has replaced the one being read, opened; None if it is still the same."""
    try:
        now, then = path.stat(), os.fstat(descriptor)
        if (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino):
            return None
        return path.open("rb", buffering=0)
    except OSError:  # renamed and not yet made anew: look again
        return None


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return True
