"""Remove keys from replies: a server or a proxy may echo what it was sent.

What comes from a server is printed, logged, cached and kept in the ledger; so the key is taken out
where replies come in, once, and not where they go.
"""

from __future__ import annotations

import base64
import html
import json
import logging
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

import re2

SCRUBBED = "[key]"
SHORTEST = 8
"""Characters of the shortest key that is scrubbed. What is shorter (`none`, `EMPTY`, `test`) keeps
nobody out, and taking it out would spoil words of honest replies."""

# Escapes, under any number of backslashes: \u0041 \x41 %41 &#65; &#x41; and a backslash alone.
# The look-behind and the possessive repetition keep this linear in a run of backslashes.
_ESCAPE = re.compile(
    rb"(?<!\\)\\++(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))?|%([0-9a-fA-F]{2})"
    rb"|&#(?:([0-9]{2,3})|[xX]([0-9a-fA-F]{2,4}));"
)
ROUNDS = 3
"""How many layers of escapes are looked under."""


class Scrubber:
    """Replaces keys, as they are or encoded as a whole, in what a server sent."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = sorted({key for key in keys if len(key) >= SHORTEST}, key=len, reverse=True)
        plain = {form for key in self._keys for form in _plain_forms(key)}
        exact = {form for key in self._keys for form in _base64_forms(key)}
        self._any = _any_of(plain, "(?i)")
        self._exact = _any_of(exact, "")

    def __call__(self, data: bytes) -> bytes:
        """The data with every form of a key replaced by `[key]`."""
        if not self._keys:
            return data
        for pattern in (self._any, self._exact):
            data = pattern.sub(SCRUBBED.encode(), data)
        return data

    def text(self, text: str) -> str:
        """The same for text."""
        return self(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def hides_one(self, data: bytes) -> bool:
        """Whether a key stands in the data under escapes, so that a parser would bring it out."""
        for _ in range(ROUNDS):
            plain = _ESCAPE.sub(_unescaped, data)
            if self(plain) != plain:
                return True
            if plain == data:
                break
            data = plain
        return False


class LogFilter(logging.Filter):
    """Scrubs what the HTTP library writes to its debugging log, where it sees raw headers."""

    def __init__(self, scrub: Scrubber) -> None:
        super().__init__()
        self._scrub = scrub

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record; all of them pass."""
        record.msg, record.args = self._scrub.text(record.getMessage()), ()
        return True


def _any_of(forms: set[bytes], flags: str) -> re2.Pattern[bytes]:
    # RE2: a server that knows the key could make a backtracking search slow.
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    pattern = "|".join(re2.escape(form.decode("latin-1")) for form in longest_first)
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = 64 * 2**20
    return re2.compile((flags + "(?:" + pattern + ")").encode("latin-1"), options)


def _plain_forms(key: str) -> Iterator[bytes]:
    """The key as it is, in a URL, in JSON, in HTML, and in hexadecimal digits; in any case."""
    encoded = key.encode()
    yield from (encoded, encoded.hex().encode(), json.dumps(key)[1:-1].encode())
    yield from (form.encode() for form in (quote(key, ""), quote_plus(key), html.escape(key)))


def _base64_forms(key: str) -> Iterator[bytes]:
    """The characters that the key alone decides in base64, wherever it stands in what is encoded.

    Three bytes become four characters: the key begins in one of three places of such a group.
    """
    encoded = key.encode()
    for before in range(3):
        padded = b"\0" * before + encoded
        sure = slice(-(-before * 8 // 6), len(padded) * 8 // 6)
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(padded)[sure]


def _unescaped(match: re.Match[bytes]) -> bytes:
    four, two, percent, decimal, hexadecimal = match.groups()
    if decimal:
        code = int(decimal)
    elif digits := four or two or percent or hexadecimal:
        code = int(digits, 16)
    else:
        return b""  # backslashes alone, as in `\/`
    return chr(code).encode("utf-8", "replace")
