"""Which of the four formats a file is in, from its beginning."""

from __future__ import annotations

import re
from typing import Literal

from schedmate.errors import InputError

Format = Literal["sacct-json", "sacct", "csv", "jsonl"]

FORMATS: tuple[Format, ...] = ("sacct-json", "sacct", "csv", "jsonl")

_SACCT_JSON = re.compile(r'\{\s*(?:"(?:jobs|meta|errors|warnings)"|$)')


def detect_format(head: str) -> Format:
    """The format of a file that begins with `head`; raises `InputError` when none fits."""
    text = head.lstrip("\ufeff \t\r\n")
    if not text:
        raise InputError(
            "the file is empty, so there is nothing to import; export it again, and look at what "
            "the exporting command said."
        )
    first = text.splitlines()[0]
    if first.startswith("{"):
        return "sacct-json" if _SACCT_JSON.match(text) else "jsonl"
    if re.search(r"(?:^|\|)jobid(?:raw)?(?:\||$)", first, re.IGNORECASE):
        return "sacct"
    if re.search(r"[,;\t|]", first):
        return "csv"
    raise InputError(
        f"cannot tell the file's format from its first line {first[:60]!r}; "
        f"name it with --format, one of {', '.join(FORMATS)}."
    )
