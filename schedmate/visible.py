"""Text from a repository or log, with the characters that a reader cannot see made visible."""

from __future__ import annotations

import json

# Printable by Unicode's book, yet without any ink: fillers, joiners and variation selectors, in
# which text can be hidden from a person and shown to a model (Unicode TR 36 and 39).
_INKLESS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, range(0xFE00, 0xFE10)))
    + "".join(map(chr, range(0xE0100, 0xE01F0)))
)


def is_visible(character: str) -> bool:
    """Whether a character shows: no control, format, surrogate, tag or unassigned one."""
    return character.isprintable() and character not in _INKLESS


def visible(text: str) -> str:
    r"""The text with every invisible character, but tab and newline, written as an escape.

    Escapes are Python's: `\x1b`, `\u202e`, `\U000e0041`. The result holds no control characters,
    bidirectional overrides, zero-width characters, tags or lone surrogates.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in "\t\n" or is_visible(c) else _escape(c) for c in text)


def quoted(name: str) -> str:
    r"""A file name as one word: itself if it is plain, else a JSON string with escapes.

    JSON because a model that copies the word into its arguments then names the very same file.
    """
    if name and all(is_visible(c) and c not in ' "\\' for c in name):
        return name
    return '"' + "".join(_json(c) for c in name) + '"'


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json(character: str) -> str:
    plain = is_visible(character) and character not in '"\\'
    return character if plain else json.dumps(character)[1:-1]
