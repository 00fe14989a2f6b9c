"""Reports in a real Chromium: on a phone, a tablet, a desk and on paper, measured by their DOM."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from browser import Browser
from made import MAKERS, Pages

pytestmark = pytest.mark.browser
HERE = Path(__file__).parent
MEASURE, CONTRAST = ((HERE / f"{name}.js").read_text() for name in ("measure", "contrast"))
OPEN = "document.querySelectorAll('details').forEach((one) => { one.open = true; });"
PAPER = {"triage": 703, "simulation": 1031, "explanation": 703, "answer": 703}
"""Width between the margins of A4, upright or lying [CSS pixels]."""
MOST_PAGES = {
    "triage": 12,
    "triage names": 24,
    "triage empty": 1,
    "triage sixty": 8,
    "simulation": 8,
    "simulation sweep": 14,
    "simulation names": 9,
    "explanation": 6,
    "answer": 3,
}


@pytest.mark.parametrize(
    ("name", "width"),
    [(name, width) for name in MAKERS for width in (400, 1280)]
    + [("triage", 768), ("simulation sweep", 768)],
)
def test_nothing_is_cut_and_no_word_broken(
    pages: Pages, window: Browser, name: str, width: int
) -> None:
    window.resize(width)
    window.open(pages[name])
    # tables of numbers may scroll by themselves where there is little room, or names are huge
    scrolls = width < 1280 or name.endswith("names")
    assert window.run(MEASURE, scrolls) == []
    window.run(OPEN)
    assert window.run(MEASURE, scrolls) == []
    assert window.messages() == []  # a violation of the policy would be one
    assert window.requests(pages[name]) == [pages[name].resolve().as_uri()]


@pytest.mark.parametrize("name", MAKERS)
def test_printed(pages: Pages, window: Browser, name: str) -> None:
    window.resize(PAPER[name.split(maxsplit=1)[0]], media="print")
    window.open(pages[name])
    assert window.run(MEASURE, name.endswith("names")) == []
    # Chromium leaves buttons out of the heads that it repeats on each page
    assert window.run(
        "return [...document.querySelectorAll('th button')]"
        ".every((one) => getComputedStyle(one).display === 'contents')"
    )
    window.resize(1280)
    window.open(pages[name])
    assert window.pages_printed() <= MOST_PAGES[name]
    opened = "return document.querySelectorAll('details.card[open]').length"
    assert window.run(opened) <= 3  # what printing opened is closed again


def test_sixty_jobs_are_read_without_much_scrolling(pages: Pages, window: Browser) -> None:
    window.resize(1280)
    window.open(pages["triage sixty"])
    assert window.run("return document.documentElement.scrollHeight") < 4000
    heads = window.run("return [...document.querySelectorAll('#all th')].map((o) => o.textContent)")
    assert {"Plan", "Owner"} <= set(heads)
    copied = window.run(
        "return [...document.querySelectorAll('[data-copy=\"Copy as Markdown\"]')]"
        ".map((one) => one.textContent)"
    )
    assert copied[0].startswith("**38 of 60 jobs failed")
    assert all(one.startswith(("11 jobs, ", "5 jobs, ")) for one in copied[1:])
    assert "owners: ada" in copied[1]
    assert "**Plan:**" in copied[1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["triage", "simulation sweep", "explanation"])
def test_text_stands_out(pages: Pages, window: Browser, name: str, scheme: str) -> None:
    window.resize(1280, prefers_color_scheme=scheme)
    window.open(pages[name])
    window.run(OPEN)
    assert window.run(CONTRAST) == []


@pytest.mark.parametrize("name", MAKERS)
def test_headings_lead_through_the_page_and_nothing_moves(
    pages: Pages, window: Browser, name: str
) -> None:
    window.resize(1280)
    window.open(pages[name])
    window.run(OPEN)
    levels = window.run(
        "return [...document.querySelectorAll('h1,h2,h3,h4')].map((one) => +one.tagName[1])"
    )
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    style = pages[name].read_text(encoding="utf-8").partition("</style>")[0]
    assert not [word for word in ("transition", "animation:", "scroll-behavior") if word in style]
