"""What a page holds, and what must be true of each that we write."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from html.parser import HTMLParser

from schedmate.base.terminal import is_visible

HOSTILE = [
    "<script>window.pwned = 1</script>",
    "</style><style>body{display:none}</style>",
    "</script><script>window.pwned = 1</script>",
    "<img src=http://192.0.2.1/x.png onerror='window.pwned=1'>",
    '"><svg onload=window.pwned=1>',
    "{{ 7*7 }}{% include '/etc/passwd' %}",
    "\u202eevil\u2066 \x1b[31mred\x1b]0;title\x07 \x00\x08",
    "javascript:window.pwned=1",
]


class Checker(HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.policy = ""
        self.parts: dict[str, str] = {}
        self._inside = ""
        self.ran = 0
        """Scripts that a browser would run."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        named = dict(attrs)
        data = tag == "script" and named.get("type") == "application/json"
        self._inside = "data" if data else tag
        self.ran += tag == "script" and not data
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if named.get("http-equiv") == "Content-Security-Policy":
            self.policy = named["content"] or ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("style", "script", "data"):
            self.parts[self._inside] = self.parts.get(self._inside, "") + data

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""


def checked(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    return checker


def safe(page: str) -> Checker:
    """Asserts what holds of every report, whatever it shows; gives what was found in it."""
    found = checked(page)
    assert (found.ran, found.tags["style"]) == (1, 1)
    for kind in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(found.parts[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in found.policy
    assert found.policy.startswith("default-src 'none';")
    assert "unsafe" not in found.policy
    assert not found.tags.keys() & {"img", "iframe", "object", "embed", "link", "base", "form"}
    for tag, name, value in found.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name != "style"
        if name in ("href", "src"):
            assert value.startswith("#"), (tag, name, value)
    assert all(character == "\n" or is_visible(character) for character in page)
    return found
