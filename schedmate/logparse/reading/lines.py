"""One line of a log, without terminal control sequences, and with the origin in its prefix."""

from __future__ import annotations

import re
from typing import NamedTuple

from schedmate.logparse.reading.prefixes import Layout, layout_of, split_prefix, unambiguous
from schedmate.logparse.reading.timestamps import parse_time
from schedmate.terminal import strip_escapes

_REDRAW = re.compile(r"[\r\b]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]+")


class Line(NamedTuple):
    """One line.

    `number` counts line feeds from 1. `text` is decoded, without escape sequences, control
    characters and the prefix that said `rank` and `node`; of a line with redraws it is the last
    one that is not blank. `time` [s since epoch; local times count as UTC] is None where the line
    has none. Lines of one process share `stream`. `raw` is the line as it stands in the file.
    """

    number: int
    text: str
    rank: int | None
    node: str | None
    time: float | None
    stream: str
    raw: bytes

    @property
    def refreshes(self) -> list[str]:
        """All redraws of a progress bar, the first one first; of a plain line just its text."""
        return refreshes(self.raw)


def decode(raw: bytes) -> str:
    """Decoded as UTF-8, or as Latin-1 if it is not valid UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def plain(raw: bytes) -> str:
    """A piece of a line as text without escape sequences and control characters."""
    text = decode(raw)
    if text.isprintable():
        return text
    return _CONTROL.sub("", strip_escapes(text))


def refreshes(raw: bytes) -> list[str]:
    """What a line showed on a terminal, one after the other; blank ones are left out."""
    if b"\r" not in raw and b"\b" not in raw:
        text = plain(raw)
        return [text] if text else []
    texts = (plain(part.encode()) for part in _REDRAW.split(decode(raw)))
    return [text for text in texts if text.strip()]


def parse_line(raw: bytes, number: int, layout: Layout | None = None) -> Line:
    """One line, given without its line feed; `layout` is that of its file."""
    shown = refreshes(raw)
    if not shown:
        return Line(number, "", None, None, None, "", raw)
    origin, text = split_prefix(shown[0], unambiguous() if layout is None else layout)
    time = parse_time(text) if len(text) == len(shown[0]) else parse_time(shown[0])
    if len(shown) > 1:
        text = shown[-1]
    return Line(number, text, origin.rank, origin.node, time, origin.stream, raw)


def sniff(sample: bytes) -> Layout:
    """The prefixes that count in a file of which `sample` is a part."""
    return layout_of([shown[0] for raw in sample.split(b"\n") if (shown := refreshes(raw[:400]))])
