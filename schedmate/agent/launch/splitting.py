"""Fields: what expansion gave, split at white space (POSIX 2.6.5)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from schedmate.agent.launch.state import Piece, Text
from schedmate.agent.values import Origin

BREAK = None
"""Stands between the items of `"$@"` in a sequence of pieces."""


def as_result(piece: Piece, quoted: bool) -> Piece:
    return replace(piece, split=not quoted, quoted=quoted)


def with_breaks(values: list[Text], quoted: bool, origin: Origin) -> list[Piece | None]:
    out: list[Piece | None] = []
    for number, text in enumerate(values):
        out += [BREAK] if number else []
        out += [as_result(piece, quoted) for piece in text]
        if quoted and not text:
            out.append(Piece("", origin, quoted=True))
    return out


def split_fields(pieces: Sequence[Piece | None]) -> list[Text]:
    """Fields from pieces: at breaks, and at white space in what an unquoted expansion gave."""
    none_given = any(p is not None and p.split and not p.text for p in pieces)
    fields: list[Text] = []
    current: list[Piece] = []

    def close() -> None:
        quoted_empty = any(p.quoted for p in current) and not none_given
        if any(p.text for p in current) or quoted_empty:
            fields.append(tuple(current))
        current.clear()

    for piece in pieces:
        if piece is BREAK:
            close()
        elif piece.split and piece.known and (not piece.text or not piece.text.strip(" \t\n")):
            if piece.text:
                close()
        elif piece.split and piece.known:
            for number, text in enumerate(re.split(r"[ \t\n]+", piece.text)):
                if number:
                    close()
                if text:
                    current.append(replace(piece, text=text, split=False))
        else:
            current.append(piece)
    close()
    return fields
