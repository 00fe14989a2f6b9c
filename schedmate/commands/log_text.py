"""A log that comes in pieces, on a terminal or in a file."""

from __future__ import annotations

import codecs
import re
from typing import TextIO

from schedmate.terminal import strip_escapes

_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\x9c]*\x1b?|[ -/]*)\Z")
"""The beginning of an escape sequence at the end of a text."""
LONGEST = 4096
"""Characters of an escape sequence that are waited for; what is longer is none."""


class LogText:
    """Writes what it is given; to a terminal without escape sequences.

    A piece may end within a character or an escape sequence, which is kept until its rest comes.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._strips = stream.isatty()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = ""

    def write(self, piece: bytes, *, last: bool = False) -> None:
        """Write the next piece."""
        text = self._kept + self._decoder.decode(piece, last)
        self._kept = ""
        if self._strips:
            found = _UNFINISHED.search(text)
            if found is not None:
                text, rest = text[: found.start()], found[0]
                if not last and len(rest) <= LONGEST:
                    self._kept = rest
            text = strip_escapes(text)
        self._stream.write(text)
        self._stream.flush()

    def end(self) -> None:
        """There is no more: what was kept is written if it is text, and left out else."""
        self.write(b"", last=True)
        self._decoder.reset()
