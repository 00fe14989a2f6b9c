"""Addresses of datasets on a hub, which stand in source code beside what reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TESTS = re.compile(r"(^|/)test(s|ing)?[_/]", re.IGNORECASE)
_DATASET = re.compile(
    r"[\"']https?://huggingface\.co/datasets/([\w-]+/[\w.-]++)"
    r"(?![^\"'\s]*\.(?:png|jpe?g|gif|webp|svg|mp4|wav|mp3))"
)


def datasets(file: str, text: str) -> Iterator[tuple[str, int]]:
    """The names and lines of the datasets that a file links to; tests link to any."""
    for link in () if _TESTS.search(file) else _DATASET.finditer(text):
        yield link[1].rstrip("."), text.count("\n", 0, link.start()) + 1
