"""The report of a batch: safe with hostile logs, small, and working in a real browser."""

from __future__ import annotations

import json
import random
import re
import socket
from functools import partial
from pathlib import Path

import pytest
from browser import Browser, browser
from checker import HOSTILE, checked, safe
from cli_runner import Cli
from hypothesis import given
from hypothesis import strategies as st

from schedmate.base.terminal import is_visible
from schedmate.commands.triage import _strip_of
from schedmate.jobs import Diagnosis, EvidenceLine, Reading
from schedmate.logparse.triage import (
    JobVerdict,
    Ledger,
    Strip,
    Triage,
    find_targets,
    summarise,
    triage,
)
from schedmate.report.page import shown
from schedmate.report.triage import triage_page


def verdict(index: int, text: str = "KeyError: 'a'", evidence: int = 1) -> JobVerdict:
    lines = [EvidenceLine(file="x", line=n + 1, text=f"{text} {n}") for n in range(evidence)]
    found = Diagnosis(
        error_type="script", error_name="Key Error", file="x", line=1, evidence=lines, reason=text
    )
    return JobVerdict(index=index, job_id=text, log=text, workload=text, diagnosis=found)


def summary(jobs: list[JobVerdict]) -> Triage:
    with Ledger(None, "x") as ledger:
        return summarise("a source", jobs, {}, ledger)


def nothing(_job: JobVerdict) -> Strip | None:
    return None


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on logs that hold everything hostile that we know of."""
    folder = tmp_path_factory.mktemp("hostile")
    logs = folder / "logs"
    logs.mkdir()
    step = "iteration {0}/ 1000 | lm loss: 2.{0:04d} | elapsed time per iteration (ms): 500.0\n"
    for number, text in enumerate(HOSTILE):
        name = re.sub(r"[/\x00]", "_", text)[:60]
        (logs / f"{number}-{name}.log").write_text(
            "".join(step.format(n) for n in range(1, 200))
            + f"ValueError: {text}\n"
            + f'Traceback (most recent call last):\n  File "{text}", line 1\nKeyError: {text}\n'
        )
    (logs / "fine.log").write_text("".join(step.format(n) for n in range(1, 50)))
    with Ledger(None, "x") as ledger:
        batch = find_targets(str(logs))
        results = list(triage(batch.targets, ledger))
        found = summarise(HOSTILE[0], [one for one, _ in results], {}, ledger, HOSTILE)
    assert found.totals.failed == len(HOSTILE)
    page = folder / "report.html"
    page.write_text(triage_page(found, partial(_strip_of, batch)), encoding="utf-8")
    return page


def test_hostile_text_is_text(report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    safe(page)
    assert "&lt;script&gt;window.pwned = 1&lt;/script&gt;" in page
    assert "{{ 7*7 }}" in page


@given(st.text(min_size=1, max_size=200))
def test_whatever_a_log_holds_adds_no_element(text: str) -> None:
    plain = checked(triage_page(summary([verdict(0, "plain")]), nothing))
    page = triage_page(summary([verdict(0, text)]), nothing)
    assert checked(page).tags == plain.tags
    assert all(character == "\n" or is_visible(character) for character in page)


def test_long_text_is_cut_and_it_shows() -> None:
    assert shown("x" * 1000, 10) == "x" * 9 + "…"


def test_a_huge_batch_gives_a_small_report_that_says_what_it_left_out() -> None:
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghij", k=60)) for _ in range(400)]
    jobs = [
        verdict(n, f"{rng.choice(words)} {rng.choice(words)} & <b>" * 4, 12) for n in range(6000)
    ]
    page = triage_page(summary(jobs), nothing)
    assert len(page.encode()) <= 5_000_000
    left = re.findall(r"([\d,]+) more (groups|jobs)", page)
    rows = int(left[-1][0].replace(",", ""))
    assert left[-1][1] == "jobs"
    assert checked(page).tags["tr"] > 6000 - rows
    assert any(kind == "groups" for _, kind in left)


def test_failures_come_before_the_others_when_not_all_fit() -> None:
    fine = [
        JobVerdict(index=n, job_id=f"fine{n}", log="x", diagnosis=Diagnosis(error_type="none"))
        for n in range(6000)
    ]
    page = triage_page(summary([*fine, verdict(6000, "the failure")]), nothing)
    assert "<bdi>the failure</bdi>" in page
    assert "1,001 more jobs are left out" in page


def failed_at(index: int, time: float | None, kind: str = "script") -> JobVerdict:
    one = verdict(index)
    assert one.diagnosis is not None
    changed = {"time": time, "error_type": kind}
    one.diagnosis = one.diagnosis.model_copy(update=changed)
    return one


def test_failures_over_time_add_up() -> None:
    day = 86_400.0
    jobs = [failed_at(n, 20_000 * day + n * 3600.0) for n in range(50)]
    jobs += [failed_at(50, 20_001 * day, "framework"), failed_at(51, None)]
    page = triage_page(summary(jobs), nothing)
    assert "51 of 52 failures have a time" in page
    section = page.partition('id="time"')[2].partition("</section>")[0]
    numbers = [int(one) for one in re.findall(r'<td class="n">(\d+)</td>', section)]
    assert sum(numbers) == 51
    assert section.count("<title>script: 1 from") == 50
    alone = triage_page(summary([failed_at(0, 5.0), failed_at(1, None)]), nothing)
    assert 'id="time"' not in alone


def test_the_document_is_in_the_page_or_as_much_of_it_as_fits() -> None:
    found = summary([verdict(n, f"</script><b>{n}", 3) for n in range(40)])
    page = triage_page(found, nothing)
    assert json.loads(safe(page).parts["data"]) == found.document()
    large = summary([verdict(n, f"{n} " + "word " * 90, 9) for n in range(2500)])
    page = triage_page(large, nothing)
    assert len(page.encode()) <= 5_000_000
    document = json.loads(safe(page).parts["data"])
    assert "`triage --json` has all" in document["warnings"][-1]
    assert document["totals"] == large.document()["totals"]


@pytest.mark.browser
def test_in_a_browser_nothing_is_fetched_and_nothing_refused(report: Path, window: Browser) -> None:
    window.open(report)
    window.run("document.querySelectorAll('details').forEach((one) => { one.open = true; });")
    assert window.run("return window.pwned === undefined")
    assert window.messages() == []  # a violation of the policy would be one
    assert window.requests(report) == [report.resolve().as_uri()]
    assert window.run("return getComputedStyle(document.body).display") == "block"


@pytest.mark.browser
def test_in_a_browser_what_the_policy_forbids_does_not_run(report: Path, window: Browser) -> None:
    """The policy holds even for markup that had slipped in."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        image = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        _open_with_markup(report, window, image)
        with pytest.raises(BlockingIOError):
            server.accept()  # nobody came


def _open_with_markup(report: Path, window: Browser, image: str) -> None:
    page = report.with_name("slipped.html")
    slipped = f"<script>window.pwned = 1</script><img src='{image}' onerror='pwned=1'>"
    page.write_text(report.read_text(encoding="utf-8").replace("<h1>", slipped + "<h1>"))
    window.open(page)
    assert window.run("return window.pwned === undefined")
    assert sum("Content Security Policy" in message for message in window.messages()) >= 2


@pytest.mark.browser
def test_in_a_browser_sort_filter_and_links(report: Path, window: Browser) -> None:
    window.open(report)
    visible = (
        "return [...document.querySelectorAll('#jobs tbody tr')].filter((r) => !r.hidden).length"
    )
    assert window.run(visible) == len(HOSTILE) + 1
    window.type("#jobs input[type=search]", "no failure")
    assert window.run(visible) == 1
    assert window.run("return document.querySelector('#jobs output').textContent") == "1 of 9"
    window.run(
        "const b = [...document.querySelectorAll('#all th button')]"
        ".find((one) => one.textContent === 'Line'); b.click(); b.click();"
    )
    lines = window.run(
        "return [...document.querySelectorAll('#all td.ln')].map((one) => +one.textContent)"
    )
    assert lines == sorted(lines, reverse=True)
    assert len(lines) == len(HOSTILE)
    window.run("document.querySelectorAll('details').forEach((one) => { one.open = false; });")
    window.run("document.querySelector('#all td.id a').click()")
    opened = "return [...document.querySelectorAll('details[open]')].map((one) => '#' + one.id)"
    # the event comes after the click has returned
    assert window.wait_for(opened) == [window.run("return location.hash")]
    # every control can be reached with the keyboard
    assert window.run(
        "return [...document.querySelectorAll('a,button,input,summary')]"
        ".every((one) => one.tabIndex >= 0)"
    )


@pytest.mark.browser
def test_in_a_browser_evidence_is_copied_and_tables_saved(report: Path, window: Browser) -> None:
    window.open(report)
    window.run("document.querySelectorAll('details').forEach((one) => { one.open = true; });")
    labels = window.run(
        "return [...document.querySelectorAll('button.do')].map((one) => one.textContent)"
    )
    assert {"Copy", "Save as CSV", "Save as JSON"} <= set(labels)
    window.run(
        """
        window.heard = [];
        const one = document.querySelector('.lines + span button');
        new MutationObserver(() => window.heard.push(one.textContent))
          .observe(one, {childList: true, characterData: true, subtree: true});
        """
    )
    window.run("[...document.querySelectorAll('button.do')].forEach((one) => one.click())")
    assert window.wait_for("return window.heard")[0] in ("Copied", "Selected")
    saved = window.run(
        """
        let blob = null;
        const make = URL.createObjectURL;
        URL.createObjectURL = (one) => { blob = one; return make(one); };
        [...document.querySelectorAll('button.do')]
          .find((one) => one.textContent === 'Save as CSV').click();
        return blob.text();
        """
    )
    assert len(saved.splitlines()) == len(HOSTILE) + 2
    assert window.messages() == []


@pytest.mark.browser
def test_in_a_browser_light_and_dark(report: Path, window: Browser) -> None:
    colours = set()
    for scheme in ("light", "dark"):
        window.call(
            "POST",
            "/goog/cdp/execute",
            {
                "cmd": "Emulation.setEmulatedMedia",
                "params": {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
            },
        )
        window.open(report)
        colours.add(window.run("return getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2


@pytest.mark.browser
def test_in_a_browser_without_javascript_all_is_there(report: Path, tmp_path: Path) -> None:
    with browser(tmp_path, scripts=False) as window:
        window.open(report)
        text = window.call("GET", "/source")
        assert "Evidence" in text
        controls = window.call("POST", "/element", {"using": "css selector", "value": ".controls"})
        identity = next(iter(controls.values()))
        assert window.call("GET", f"/element/{identity}/displayed") is False
        row = window.call("POST", "/element", {"using": "css selector", "value": "#all tbody tr"})
        assert window.call("GET", f"/element/{next(iter(row.values()))}/displayed") is True


def test_names_are_shown_without_the_folder_they_share_and_saved_whole() -> None:
    jobs = [
        JobVerdict(index=n, job_id=f"/logs/run/{name}.log", log="x", error="gone")
        for n, name in enumerate("ab")
    ]
    page = triage_page(summary(jobs), nothing)
    assert "relative to <bdi>/logs/run</bdi>" in page
    assert 'data-csv="/logs/run/a.log"><bdi>a.log</bdi>' in page
    alone = triage_page(summary(jobs[:1]), nothing)
    assert "<bdi>/logs/run/a.log</bdi>" in alone


def test_conflicts_of_rules_and_model_are_shown() -> None:
    rules = Reading(
        error_type="script", error_name="Key Error", rule="py-key", file="x", line=1, text="by rule"
    )
    model = Reading(
        error_type="infrastructure", error_name="NCCL Timeout", file="x", line=7, text="<b>by model"
    )
    one, other, settled = verdict(0), verdict(1, "another"), verdict(2, "a third")
    for job, changed in (
        (one, {"conflict": [rules, model], "doubts": ["a model reads it otherwise"]}),
        (settled, {"source": "model", "by_rules": rules}),
    ):
        assert job.diagnosis is not None
        job.diagnosis = job.diagnosis.model_copy(update=changed)
    page = triage_page(summary([one, other, settled]), nothing)
    cards = {
        name: page.partition(f'id="g-{name}"')[2].partition("All its jobs")[0] for name in ids(page)
    }
    disputed = next(card for card in cards.values() if "two readings have equal proof" in card)
    for words in (
        "Key Error (script; by rule py-key)",
        "NCCL Timeout (infrastructure; by a model)",
    ):
        assert words in disputed
    assert "&lt;b&gt;by model" in disputed
    assert "a model reads it otherwise" in disputed
    assert sum("Rules alone say:" in card for card in cards.values()) == 1
    assert sum("Open to doubt:" in card for card in cards.values()) == 1


def ids(page: str) -> list[str]:
    return re.findall(r'<details class="card[^>]* id="g-([^"]+)"', page)


def test_ranks_that_contradict_each_other_are_shown(cli: Cli, tmp_path: Path) -> None:
    logs = tmp_path / "logs" / "run"
    logs.mkdir(parents=True)
    steps = "".join(f"[2026-11-02 10:00:{n:02d}] step {n}/99 | loss 2.1\n" for n in range(20))
    trace = (
        'Traceback (most recent call last):\n  File "train.py", line 5, in <module>\n    main()\n'
    )
    (logs / "rank0.log").write_text(steps + trace + "KeyError: 'tokens'\n")
    (logs / "rank1.log").write_text(
        steps + trace + "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    )
    out = tmp_path / "report.html"
    done = cli("triage", str(tmp_path / "logs"), "--one-job-per-folder", "--out", str(out))
    assert done.code == 0, done.err
    assert f"report: {out}" in done.err.replace("\n  ", "")
    page = out.read_text()
    assert "Open to doubt:" in page
    assert "rank 1 reports ECC Error" in page or "rank 0 reports Key Error" in page
