"""Filters, sorting and keys in a real Chromium, used as a reader uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from made import Pages

from schedmate.jobs import Diagnosis, EvidenceLine
from schedmate.logparse.triage import JobVerdict, Ledger, summarise
from schedmate.report.triage import triage_page

pytestmark = pytest.mark.browser


def rows(window: Browser, table: str) -> list[str]:
    found: list[str] = window.run(
        f"return [...document.querySelectorAll('#{table} tbody tr')]"
        ".filter((one) => one.checkVisibility()).map((one) => one.innerText)"
    )
    return found


def test_jobs_are_filtered_by_clicking_and_the_address_keeps_it(
    pages: Pages, window: Browser
) -> None:
    window.resize(1280)
    window.open(pages["triage"])
    everything = rows(window, "all")
    assert not any("no failure" in one for one in everything)
    assert rows(window, "fine") == []  # folded
    window.click("#jobs input[value=script]")
    failed = rows(window, "all")
    assert 0 < len(failed) < len(everything)
    window.type("#jobs input[type=search]", "memory gib train_8")
    (one,) = rows(window, "all")
    assert "9.5 GiB of 79.15 GiB · train_8.py · block8.py:13 in forward" in one
    count = window.run("return document.querySelector('#jobs output').textContent")
    assert count == "1 of 60"
    address = window.run("return location.href")
    assert "#jobs?jobs=memory+gib+train_8" in address
    window.call("POST", "/url", {"url": "about:blank"})
    window.call("POST", "/url", {"url": address})
    assert rows(window, "all") == [one]
    assert window.run("return document.querySelector('#jobs input[value=script]').checked") is False
    window.call("POST", "/url", {"url": "about:blank"})
    window.call("POST", "/url", {"url": address.partition("#")[0] + "#jobs?jobs=no+failure"})
    assert len(rows(window, "fine")) == 60 - len(everything)  # a search opens what is folded


def test_new_lines_show_errors_first_and_the_rest_when_asked(pages: Pages, window: Browser) -> None:
    window.resize(1280)
    window.open(pages["triage"])
    boxes = window.run(
        "return [...document.querySelectorAll('#new input[type=checkbox]')]"
        ".map((one) => [one.value, one.checked])"
    )
    assert ["errors", True] in boxes
    assert ["other", False] in boxes
    first = rows(window, "lines")
    assert not any("new words" in one for one in first)
    window.click("#new input[value=other]")
    assert len(rows(window, "lines")) == 20
    window.click("#new button.more")
    more = rows(window, "lines")
    assert len(more) > 20
    assert any("new words" in one for one in more)
    assert not window.run("return document.querySelector('#new button.more').checkVisibility()")


def test_like_failures_are_one_row_and_rows_differ(pages: Pages, window: Browser) -> None:
    window.resize(1280)
    window.open(pages["triage"])
    causes = window.run(
        "return [...document.querySelectorAll('.card > summary')].map((one) => one.innerText)"
    )
    memory = [
        one for one in causes if one.strip().startswith("Out of Memory") and "allocate" in one
    ]
    assert len(memory) == 1
    assert len(causes) == len(set(causes)) >= 3
    assert ".py" in memory[0]
    assert "GiB of 79.15 GiB" in memory[0]


def test_every_control_is_reached_and_used_with_the_keyboard(pages: Pages, window: Browser) -> None:
    window.resize(400)
    window.open(pages["simulation sweep"])

    def press(*keys: str) -> None:
        actions: list[dict[str, Any]] = [
            {"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")
        ]
        window.call(
            "POST", "/actions", {"actions": [{"type": "key", "id": "k", "actions": actions}]}
        )

    tab, enter, right = "\ue004", "\ue007", "\ue014"
    press(tab)
    focused = "return document.activeElement.className || document.activeElement.tagName"
    assert window.run(focused) == "skip"
    window.run("document.querySelector('nav a:last-child').focus()")
    press(tab)
    assert window.run(focused) == "wide"  # the table of results, which scrolls
    press(right, right, right)
    assert window.wait_for("return document.activeElement.scrollLeft > 0")
    press(tab, enter)
    assert window.run("return document.querySelector('#runs [aria-sort]').textContent") == "Policy"


def test_ten_thousand_jobs(tmp_path: Path, window: Browser) -> None:
    jobs = []
    for n in range(10_000):
        text = f"RuntimeError: stage {n % 40} of run {n} failed " + "why " * 20
        found = Diagnosis(
            error_type="framework",
            error_name="Runtime Error",
            file="x",
            line=n + 1,
            evidence=[EvidenceLine(file="x", line=n + 1, text=text, note="decided")],
        )
        jobs.append(JobVerdict(index=n, job_id=f"job{n}", log=f"{n}.log", diagnosis=found))
    with Ledger(None, "x") as ledger:
        page = triage_page(summarise("a source", jobs, {}, ledger), lambda _: None)
    assert len(page.encode()) <= 5_000_000
    path = tmp_path / "large.html"
    path.write_text(page, encoding="utf-8")
    window.resize(400)
    window.open(path)
    window.type("#jobs input[type=search]", "job1234")
    assert [one.splitlines()[0] for one in rows(window, "all")] == ["job1234"]
    assert window.run("return document.documentElement.scrollWidth") <= 400
