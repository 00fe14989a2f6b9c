"""Lines of a log that speak to their reader or state a verdict (`steering.yaml`)."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Any

from schedmate.data import load

CHARACTERS = 2000
"""So much of a line is looked at."""
_UNSEEN = re.compile(r"[^\w\s!-~]+")


def steers(text: str) -> bool:
    """Whether a line gives orders or a verdict instead of reporting what happened."""
    text = text[:CHARACTERS]
    if _pattern().search(text) is not None:
        return True
    if text.isascii():
        return False
    # letters of other widths, and invisible ones between them
    plain = _UNSEEN.sub("", unicodedata.normalize("NFKC", text))
    return _pattern().search(plain) is not None


@cache
def _pattern() -> Any:
    import re2

    entries = load("logparse/failure/steering.yaml")["patterns"]
    return re2.compile("|".join(f"(?:{entry['pattern']})" for entry in entries))
