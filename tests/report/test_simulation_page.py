"""The report of a simulation: true to the run, safe with hostile names, working in a browser."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from browser import Browser, browser
from checker import HOSTILE, checked, safe
from cli_runner import Cli
from hypothesis import given, settings
from hypothesis import strategies as st

from schedmate.report import charts
from schedmate.report.simulation import (
    Comparison,
    explained_parameters,
    simulation_page,
    window_of,
    written_value,
)
from schedmate.schedulers.model import Cluster, Profile
from schedmate.schedulers.sim.comparison import compare, over_seeds
from schedmate.schedulers.sim.parameters import HONEST, PUBLISHED, ColocationTable
from schedmate.schedulers.sim.runs import Plan
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world import FailureRates


def workload(jobs: int, names: Sequence[str] = ()) -> Workload:
    rng = random.Random(0)
    rows = [
        (rng.uniform(0, 40 * jobs), rng.lognormvariate(5, 2), rng.choice([1, 1, 1, 2, 8, 16]))
        for _ in range(jobs)
    ]
    some = Workload.of(rows, profiles=[Profile(rng.uniform(5, 90), 10, 2000) for _ in rows])
    some.vcs = [f"vc{n % 3}" for n in range(jobs)]
    for job, name in zip(some.jobs, names, strict=False):
        job.id, job.user, some.vcs[job.index] = name, name, name
    return some


def page_of(some: Workload, *plans: Plan, name: str = "trace.csv", **more: object) -> str:
    results = list(compare(some, plans))
    numbers = [one.numbers for one in results]
    document = {"schema": "x", "trace": name, "runs": numbers, "over_seeds": over_seeds(numbers)}
    found = Comparison(plans, results, document, name, some.made_up, some.notes, name)
    return simulation_page(found, **more)  # type: ignore[arg-type]


def plan(*policies: str, estimator: str = "user-mean", seed: int = 0, nodes: str = "4x8") -> Plan:
    return Plan(policies, Cluster.parse(nodes), estimator, HONEST, seed, True, nodes)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hostile names wherever a trace has names, on four policies under four settings."""
    some = workload(400, HOSTILE)
    some.made_up, some.notes = tuple(HOSTILE), list(HOSTILE)
    policies = ("fifo", "sjf", "tiresias", "lucid")
    plans = [
        plan(*policies, estimator=told, seed=seed)
        for told in ("noisy:1", "user-mean")
        for seed in (0, 1)
    ]
    plans = [replace(one, cluster_name=HOSTILE[0]) for one in plans]
    path = tmp_path_factory.mktemp("simulation") / "report.html"
    path.write_text(page_of(some, *plans, name=HOSTILE[0]), encoding="utf-8")
    return path


def test_hostile_names_are_text(report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    found = safe(page)
    assert "&lt;script&gt;window.pwned = 1&lt;/script&gt;" in page
    document = json.loads(found.parts["data"])
    assert document["trace"] == HOSTILE[0]
    assert len(document["runs"]) == 16


@pytest.fixture(scope="module")
def plain() -> Counter[str]:
    return checked(page_of(workload(6, ["plain"]), plan("fifo", "sjf"), name="plain")).tags


@settings(max_examples=10)
@given(text=st.text(min_size=1, max_size=60))
def test_whatever_a_trace_holds_adds_no_element(plain: Counter[str], text: str) -> None:
    page = page_of(workload(6, [text]), plan("fifo", "sjf"), name=text)
    assert safe(page).tags == plain


def test_labels_are_in_plain_sight(report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    before_results = page.partition('<section id="results"')[0]
    assert "Synthetic parts of this trace: &lt;script&gt;" in before_results
    assert "know the true run times" in before_results
    rows = page.partition('id="runs"')[2].partition("</table>")[0].split("<tr>")[2:]
    assert ["oracle</span>" in row for row in rows] == [True] * 8 + [False] * 8


def test_one_policy_has_nothing_to_compare() -> None:
    page = page_of(workload(5), plan("fifo"))
    assert "nothing to compare" in page
    assert "Difference in mean JCT" not in page
    safe(page)


def test_jobs_without_any_length_are_drawn_too() -> None:
    some = Workload.of([(0.0, 0.0, 1), (0.0, 0.0, 1)])
    safe(page_of(some, plan("fifo", "sjf", nodes="1x1")))


def test_a_large_trace_gives_a_small_page() -> None:
    page = page_of(workload(8_000), plan("fifo", "srtf", nodes="2x8"))
    assert len(page) < 1_500_000


def test_curves_are_exact_where_they_are_drawn() -> None:
    values = np.random.default_rng(0).lognormal(5, 3, 5000)
    axis = charts.log_duration_axis("x", 1.0, float(values.max()))
    where, share = charts.cdf_chart(values, axis)
    for x, y in list(zip(where.tolist(), share.tolist(), strict=True))[::97]:
        assert y == pytest.approx((values <= x).mean(), abs=1e-9)
    assert share[-1] == 1.0


@given(st.floats(0, 1e7), st.floats(1e-3, 1e7), st.sampled_from(["duration", "count", "hours"]))
def test_an_axis_has_a_few_ticks_within_itself(low: float, width: float, kind: str) -> None:
    axis = charts.linear_axis("x", low, low + width, kind)
    assert 1 <= len(axis.ticks) <= 14
    assert all(axis.low - 1e-6 * width <= one <= axis.high * (1 + 1e-9) for one in axis.ticks)


def test_the_gantt_chart_shows_the_chosen_stretch() -> None:
    some, one = workload(300), plan("fifo", "lucid")
    page = page_of(some, one, window=(3600.0, 7200.0))
    assert "fifo: 4 of 4 nodes, 1 h 00 min to 2 h 00 min" in page
    results = list(compare(some, [one]))
    window = window_of(results, one.cluster)
    waiting = window.start, window.end
    assert 0 <= waiting[0] < waiting[1]
    bars = re.findall(r'<rect class="(run|packed|profile) z\d" [^>]*width="([\d.]+)"', page)
    assert {kind for kind, _ in bars} >= {"run", "packed"}
    assert all(0 < float(width) <= charts.WIDTH for _, width in bars)


def test_the_gantt_chart_marks_failures() -> None:
    failing = replace(plan("fifo"), parameters=replace(HONEST, node_mtbf_s=2000.0, repair_s=60.0))
    page = page_of(workload(60), failing)
    assert page.count('class="failure"') == page.count(", ended by a failure</title>") > 0


def test_what_modules_in_the_loop_did_and_how_jobs_fail_is_told() -> None:
    failing = replace(plan("fifo"), failures=FailureRates())
    results = list(compare(workload(30), [failing]))
    results[0].numbers["schedmate"] = {"advisor": {"asked": 1234}, "method": HOSTILE}
    results[0].numbers["warnings"] = dict.fromkeys(HOSTILE, 3)
    page = simulation_page(Comparison([failing], results, {}, "trace"))
    assert "asked 1,234" in page
    assert "(3 times)" in page
    assert "Llama 3 saw 419" in page
    safe(page)


def test_every_parameter_is_explained_by_its_own_docstring() -> None:
    for mode in (HONEST, PUBLISHED):
        for one in explained_parameters(mode):
            assert one.about or one.name == "name", one.name
    restart = next(one for one in explained_parameters(HONEST) if one.name == "restart_s")
    assert restart.value == "62"
    assert "NSDI'19" in restart.about
    pairs = {(str(n), ""): (1.0, 1.0) for n in range(5000)}
    assert len(written_value(ColocationTable(pairs))) < 200


def test_the_command_writes_it(cli: Cli, tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    rows = [f"j{n},{n * 10},{600 - n * 40},{1 + n % 4}" for n in range(12)]
    trace.write_text("\n".join(["job_id,submit_s,duration_s,gpus", *rows]) + "\n")
    base = ("simulate", str(trace), "--policy", "fifo,sjf", "--cluster", "1x4")
    assert cli(*base, "--out", str(tmp_path / "out")).code == 0
    safe((tmp_path / "out" / "report.html").read_text())
    elsewhere = tmp_path / "r.html"
    result = cli(*base, "--report", str(elsewhere), "--gantt", "1m..5m")
    assert result.code == 0
    assert "schedmate simulate" in elsewhere.read_text()
    assert cli(*base, "--report", str(tmp_path / "none" / "r.html")).code == 3
    for wrong in ("3d", "2h..1h", "a..b"):
        assert cli(*base, "--gantt", wrong).code == 2


@pytest.mark.browser
def test_in_a_browser_nothing_is_fetched_and_nothing_refused(report: Path, window: Browser) -> None:
    window.open(report)
    window.run("document.querySelectorAll('details').forEach((one) => { one.open = true; });")
    assert window.run("return window.pwned === undefined")
    window.run("[...document.querySelectorAll('button.do')].forEach((one) => one.click())")
    assert window.messages() == []  # a violation of the policy would be one
    assert window.requests(report) == [report.resolve().as_uri()]


@pytest.mark.browser
def test_in_a_browser_curves_are_read_with_the_keyboard(report: Path, window: Browser) -> None:
    window.open(report)
    charts_there = window.run("return document.querySelectorAll('svg.curves').length")
    assert charts_there >= 8
    readings = window.run(
        """
        return [...document.querySelectorAll('svg.curves')].map((chart) => {
          chart.focus();
          const key = (name) => chart.dispatchEvent(new KeyboardEvent('keydown', {key: name}));
          for (let i = 0; i < 20; i++) key('PageUp');
          const output = chart.closest('figure').querySelector('output.reading');
          return output ? output.textContent : null;
        });
        """
    )
    assert readings[0].endswith("fifo 100.0 % · sjf 100.0 % · tiresias 100.0 % · lucid 100.0 %")
    waiting = [one for one in readings if one and one.endswith("lucid 0")]
    assert len(waiting) == 1
    titles = window.run(
        "return [...document.querySelectorAll('#time figure h3')].map((one) => one.textContent)"
    )
    assert titles[2:] == ["Useful work over time", "GPU time lost over time"]
    useful = readings[charts_there - 2]
    assert re.search(r"fifo [\d.]+ % · sjf [\d.]+ % · tiresias [\d.]+ % · lucid [\d.]+ %$", useful)
    # every control can be reached with the keyboard
    assert window.run(
        "return [...document.querySelectorAll('a,button,input,summary,svg.curves')]"
        ".every((one) => one.tabIndex >= 0)"
    )


@pytest.mark.browser
def test_in_a_browser_a_table_is_sorted_and_saved(report: Path, window: Browser) -> None:
    window.open(report)
    saved = window.run(
        """
        let text = null;
        const make = URL.createObjectURL;
        URL.createObjectURL = (blob) => { text = blob; return make(blob); };
        const button = [...document.querySelectorAll('[data-save] button')]
          .find((one) => one.textContent === 'Save as CSV');
        button.click();
        return text.text();
        """
    )
    lines = saved.splitlines()
    assert len(lines) == 17
    assert lines[1].startswith('"fifo oracle"')
    assert window.run("return document.querySelectorAll('#fairness tbody tr').length") == 8
    window.run("document.querySelectorAll('#runs th button')[3].click()")
    jct = window.run(
        "return [...document.querySelectorAll('#runs tbody tr')]"
        ".map((row) => +row.cells[3].textContent)"
    )
    assert jct == sorted(jct)


@pytest.mark.browser
def test_in_a_browser_light_dark_and_narrow(report: Path, window: Browser) -> None:
    colours = set()
    for scheme in ("light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        emulate(window, "Emulation.setEmulatedMedia", media)
        size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        emulate(window, "Emulation.setDeviceMetricsOverride", size)
        window.open(report)
        script = "return getComputedStyle(document.querySelector('.line.s0')).stroke"
        colours.add(window.run(script))
        # wide parts scroll by themselves, the page does not
        assert window.run("return document.documentElement.scrollWidth") <= 390
    assert len(colours) == 2


def emulate(window: Browser, command: str, parameters: dict[str, object]) -> None:
    window.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})


@pytest.mark.browser
def test_in_a_browser_without_javascript_all_is_there(report: Path, tmp_path: Path) -> None:
    with browser(tmp_path, scripts=False) as window:
        window.open(report)
        for css in ("#runs tbody tr", "svg.curves path.line", "details.gantts svg"):
            found = window.call("POST", "/element", {"using": "css selector", "value": css})
            assert window.call("GET", f"/element/{next(iter(found.values()))}/displayed") is True
