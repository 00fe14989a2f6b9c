"""The page of an explained model: true to the model, safe with hostile names, drawn."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

import numpy as np
import pytest
from browser import Browser
from checker import HOSTILE, safe
from made import jobs_of_three

from schedmate.report import charts
from schedmate.report.explanation import explanation_page
from schedmate.schedulers.sim.explain import Explanation, explain_run_times
from schedmate.schedulers.sim.workload import Workload


@pytest.fixture(scope="module")
def found() -> Explanation:
    """Of a job with a hostile name."""
    draw = random.Random(2)
    jobs = jobs_of_three(draw)
    jobs[150].id = HOSTILE[0]
    durations = [ord(job.user) * job.gpus * draw.uniform(1, 50) for job in jobs]
    return explain_run_times(Workload("x", jobs, durations, [None] * 200), HOSTILE[0])


def test_the_page_is_safe_and_says_what_the_model_said(found: Explanation) -> None:
    page = explanation_page(found, HOSTILE[2], synthetic=True)
    safe(page)
    assert "&lt;script&gt;window.pwned = 1&lt;/script&gt;" in page
    assert "synthetic trace" in page
    assert found.local is not None
    numbers = page.partition('id="job"')[2].partition("</section>")[0]
    for name, score in found.local.contributions.items():
        if name != "intercept":
            row = numbers.partition(f'"row">{name.replace("&", "&amp;")}</th>')[2]
            assert row.startswith(f'<td class="n">{charts.factor_text(score)}</td>')


def test_a_shape_is_drawn_where_its_scores_are(found: Explanation) -> None:
    term = next(one for one in found.terms if one.features == ("gpus",))
    page = explanation_page(found, "trace", synthetic=False)
    path = re.search(r'data-name="gpus" d="M([\d.]+) ([\d.]+)', page)
    assert path is not None
    steps = re.findall(r"V([\d.]+)", page.partition('data-name="gpus" d="')[2].partition('"')[0])
    heights = [float(path[2]), *map(float, steps)]
    # More is higher up, and more GPUs never make it less.
    assert term.scores == sorted(term.scores)
    assert heights == sorted(heights, reverse=True)
    assert heights[0] > heights[-1]


def test_a_grid_shows_each_cell_by_sign_and_size() -> None:
    values = np.array([[1.0, -0.5], [0.0, 0.25]])
    axis = charts.linear_axis("x", 0.0, 2.0, "count")
    drawn = charts.heat_map("cells", values, (axis, axis), charts.factor_text)
    cells = re.findall(r'<rect class="(\w+) d(\d)" x="([\d.]+)" y="([\d.]+)"', drawn)
    assert [(kind, int(shade)) for kind, shade, _, _ in cells] == [
        ("more", 4),
        ("less", 2),
        ("more", 1),
    ]
    (x0, y0), (x1, y1), (x2, y2) = ((float(x), float(y)) for _, _, x, y in cells)
    assert x0 == x1 < x2
    assert y1 == y2 < y0
    assert f"<title>{charts.factor_text(math.log(math.e))}</title>" in drawn


@pytest.mark.browser
def test_in_a_browser(found: Explanation, tmp_path: Path, window: Browser) -> None:
    page = tmp_path / "why.html"
    page.write_text(explanation_page(found, "trace.csv", synthetic=False), encoding="utf-8")
    window.open(page)
    assert window.messages() == []
    assert window.requests(page) == [page.resolve().as_uri()]
    assert window.run("return window.pwned") is None
    widths = window.run(
        "return [...document.querySelectorAll('svg.chart')].map(c => c.clientWidth)"
    )
    assert len(widths) > 4
    assert min(widths) > 300
    # A curve can be read off with the keyboard.
    text = window.run(
        "const c = document.querySelector('svg.curves'); c.focus();"
        "c.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}));"
        "return c.closest('figure').querySelector('output').textContent"
    )
    assert re.search(r"[x:] \d+\.\d\d", text)
