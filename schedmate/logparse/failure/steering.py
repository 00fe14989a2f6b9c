"""Lines of a log that address their reader or state a verdict (`steering.yaml`)."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Any

from schedmate.data import load

CHARACTERS = 2000
"""Characters of a line that are examined."""
_UNSEEN = re.compile(r"[^\w\s!-~]+")


def steers(text: str) -> bool:
    """Whether a line gives orders or a verdict instead of reporting an event."""
    text = text[:CHARACTERS]
    if _pattern().search(text) is not None:
        return True
    return not text.isascii() and _pattern().search(skeleton(text)) is not None


def skeleton(text: str) -> str:
    """A text as a reader sees it, with letters that look like ASCII ones replaced by those.

    Letters of other widths and styles are normalised (NFKC), accents and invisible characters are
    removed, and letters of other scripts become the Latin ones that they resemble
    (`lookalikes.yaml`).
    """
    # letters are mapped before marks are taken off them, since that may change what they look like
    plain = unicodedata.normalize("NFKC", text).translate(_lookalikes())
    return _UNSEEN.sub("", unicodedata.normalize("NFKD", plain)).translate(_lookalikes())


@cache
def _lookalikes() -> dict[int, str]:
    table: dict[int, str] = {}
    for latin, others in load("logparse/failure/lookalikes.yaml")["letters"].items():
        table |= dict.fromkeys(map(ord, others), latin)
    return table


@cache
def _pattern() -> Any:
    import re2

    entries = load("logparse/failure/steering.yaml")["patterns"]
    return re2.compile("|".join(f"(?:{entry['pattern']})" for entry in entries))
