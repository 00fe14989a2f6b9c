"""The configuration as `scontrol show config` prints it."""

from __future__ import annotations

import re

_LINE = re.compile(r"([A-Za-z]\w*)\s+= ?(.*)")


def parse_config(printed: str) -> dict[str, str]:
    """Values by name; an unset one is empty."""
    found = {}
    for line in printed.splitlines():
        match = _LINE.fullmatch(line.rstrip())
        if match:
            value = match[2].strip()
            found[match[1]] = "" if value == "(null)" else value
    return found
