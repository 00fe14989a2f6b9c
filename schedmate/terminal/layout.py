"""How wide text is, where lines break, and whether there is colour."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from typing import Literal, TextIO

Tone = Literal["good", "doubtful", "bad", "heading"]
_CODES: dict[Tone, str] = {"good": "1;32", "doubtful": "1;33", "bad": "1;31", "heading": "1"}

DEFAULT_WIDTH = 80
"""Columns of a terminal that does not say how many it has."""


def width_of(stream: TextIO) -> int | None:
    """Columns of the terminal behind a stream; None where none is: lines there have no end.

    The variable COLUMNS comes before what the terminal says.
    """
    if not stream.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_WIDTH
    except (OSError, ValueError):
        return DEFAULT_WIDTH


def coloured(stream: TextIO, *, plain: bool = False) -> bool:
    """Whether a stream gets colour: a terminal does that is not `dumb`.

    Never with `plain` or the variable NO_COLOR, else always with FORCE_COLOR (but 0).
    """
    if plain or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, tone: Tone) -> str:
    """The text in the colour of a tone, and back."""
    return f"\x1b[{_CODES[tone]}m{text}\x1b[0m"


def cells(text: str) -> int:
    """How many columns a text takes: ideographs two, what combines with others none."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def wrapped(text: str, width: int | None, label: str = "", hang: int = 0) -> Iterator[str]:
    """The lines of one paragraph, broken between words only; without `width` it is one line.

    `label` comes first; lines after the first are indented by `hang` columns. A word that is
    longer than a line has one to itself.
    """
    if width is None or cells(label) + cells(text) <= width:
        yield label + text
        return
    line = label
    for word in text.split():
        gap = "" if line.endswith(" ") or not line else " "
        if not line.strip() or cells(line + gap + word) <= width:
            line += gap + word
        else:
            yield line.rstrip()
            line = " " * hang + word
    yield line
