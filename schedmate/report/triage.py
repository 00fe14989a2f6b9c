"""The report of a batch: `schedmate triage --out`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from schedmate.jobs import EvidenceLine
from schedmate.logparse.triage import JobVerdict, Strip, Triage
from schedmate.logparse.triage.document import Group
from schedmate.logparse.triage.words import (
    LISTED,
    headlines,
    kinds,
    merged_words,
    model_words,
    title,
)
from schedmate.report import axes, charts
from schedmate.report.charts import Figure
from schedmate.report.page import embedded, render

LARGEST = 5_000_000
"""Largest report [bytes], the JSON document in it included."""
BINS = (600.0, 3600.0, 6 * 3600.0, 86_400.0, 7 * 86_400.0, 30 * 86_400.0)
"""Widths of the bars over time [s]: the first of which at most 60 cover all failures."""
KINDS = ("infrastructure", "framework", "script", "unknown")
CAPS = ((5_000, 150), (2_000, 80), (1_000, 40), (300, 15), (50, 5))
"""Rows of the table of jobs and cards of groups, tried in turn until the report is small enough."""


@dataclass(frozen=True)
class Card:
    """One group with the job that stands for it."""

    group: Group
    title: str
    example: JobVerdict
    strip: Strip | None
    decided: Sequence[EvidenceLine]
    cascade: Sequence[EvidenceLine]
    hints: Sequence[EvidenceLine]
    jobs: Sequence[JobVerdict]
    share: float


def triage_page(found: Triage, strip_of: Callable[[JobVerdict], Strip | None]) -> str:
    """The whole report as HTML of at most `LARGEST` bytes; what is left out is said in it."""
    strips: dict[int, Strip | None] = {}

    def strip(job: JobVerdict) -> Strip | None:
        if job.index not in strips:
            strips[job.index] = strip_of(job)
        return strips[job.index]

    for rows, cards in CAPS:
        page = _page(found, strip, rows, cards)
        left = LARGEST - len(page.encode("utf-8", "replace"))
        if left >= 0:
            break
    data = next((text for text in _documents(found) if len(text) <= left), None)
    return page if data is None else _page(found, strip, rows, cards, data)


def _documents(found: Triage) -> Iterator[str]:
    """The JSON document, and then less and less of it, which its warnings say."""
    document = found.document()
    yield embedded(document)
    for job in document["jobs"]:
        if job["diagnosis"] is not None:
            job["diagnosis"] |= {"evidence": [], "ruled_out": []}
    rest = "this copy, in a report, has no {}: `triage --json` has all"
    document["warnings"] = [*found.warnings, rest.format("evidence")]
    yield embedded(document)
    document["jobs"], document["warnings"][-1] = [], rest.format("jobs")
    yield embedded(document)


def _page(
    found: Triage,
    strip: Callable[[JobVerdict], Strip | None],
    rows: int,
    cards: int,
    data: str | None = None,
) -> str:
    jobs = {job.index: job for job in found.jobs}
    groups = {one.id: one for one in found.groups}
    ordered = [groups[bar.group] for bar in found.pareto.bars]
    shares = {bar.group: bar.share for bar in found.pareto.bars}
    # failures and unreadable logs before jobs that did not fail, when not all rows fit
    listed = sorted(found.jobs, key=lambda job: (not job.failed and not job.error, job.index))
    return render(
        "triage",
        "charts",
        found=found,
        headlines=headlines(found),
        merged=merged_words(found, most=50),
        kinds=kinds(found) if len(ordered) > LISTED else [],
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        bars=[(bar, title(groups[bar.group]), groups[bar.group]) for bar in found.pareto.bars[:25]],
        widest=max((bar.value for bar in found.pareto.bars), default=0) or 1,
        cards=[_card(one, jobs, strip, shares[one.id]) for one in ordered[:cards]],
        groups_left_out=max(0, len(ordered) - cards),
        rows=sorted(listed[:rows], key=lambda job: job.index),
        rows_left_out=max(0, len(listed) - rows),
        carded={one.id for one in ordered[:cards]},
        over_time=_over_time(found),
        model=None if found.model is None else model_words(found.model),
        data=data,
    )


def _over_time(found: Triage) -> Figure | None:
    """How many jobs failed when, by type; None when fewer than two logs say when."""
    times = {
        kind: [
            job.diagnosis.time
            for job in found.jobs
            if job.diagnosis is not None
            and job.diagnosis.error_type == kind
            and job.diagnosis.time is not None
        ]
        for kind in KINDS
    }
    everything = [one for some in times.values() for one in some]
    if len(everything) < 2:
        return None
    first, last = min(everything), max(everything)
    width = next((one for one in BINS if (last - first) / one <= 60), (last - first) / 60)
    start = first - first % width
    edges = start + width * np.arange(int((last - start) // width) + 2, dtype=np.float64)
    layers = [(kind, f"t-{kind}", np.histogram(some, edges)[0]) for kind, some in times.items()]
    total = sum(heights for _, _, heights in layers)
    x = axes.linear("when it failed, as logged (UTC)", start, float(edges[-1]), "time")
    y = axes.linear("failed jobs", 0.0, float(max(np.max(total), 5)), "count")
    rows = [
        [x.text(float(edges[n])), *(str(int(heights[n])) for _, _, heights in layers)]
        for n in np.flatnonzero(total).tolist()
    ]
    return Figure(
        "Failures over time",
        charts.stacked("Failed jobs over time, by type of failure", edges, layers, x, y),
        ["from", *KINDS],
        rows,
        f"{len(everything):,} of {found.totals.failed:,} failures say when they happened.",
    )


def _card(
    group: Group,
    jobs: dict[int, JobVerdict],
    strip: Callable[[JobVerdict], Strip | None],
    share: float,
) -> Card:
    example = jobs[group.example]
    evidence = example.diagnosis.evidence if example.diagnosis is not None else []
    return Card(
        group=group,
        title=title(group),
        example=example,
        strip=strip(example),
        decided=[line for line in evidence if line.note in (None, "decided")],
        cascade=[line for line in evidence if line.note == "followed"],
        hints=[line for line in evidence if line.note not in (None, "decided", "followed")],
        jobs=[jobs[index] for index in group.jobs[:50]],
        share=share,
    )
