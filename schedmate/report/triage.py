"""The report of a batch: `schedmate triage --out`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from schedmate.jobs import EvidenceLine
from schedmate.logparse.triage import JobVerdict, Strip, Triage
from schedmate.logparse.triage.document import Group, NewTemplate
from schedmate.logparse.triage.strip import categories
from schedmate.render.batch_words import (
    LISTED,
    headlines,
    kinds,
    meanings,
    merged_words,
    model_words,
    title,
)
from schedmate.report import axes, charts
from schedmate.report.apart import Telling, line_group, short_names, telling
from schedmate.report.charts import Figure
from schedmate.report.page import embedded, render

LARGEST = 5_000_000
"""Largest report [bytes], the JSON document in it included."""
BINS = (600.0, 3600.0, 6 * 3600.0, 86_400.0, 7 * 86_400.0, 30 * 86_400.0)
"""Widths of the bars over time [s]; the first with at most 60 bars for all failures is used."""
NEW = 500
"""Most new templates that are listed."""
LINES = {
    "errors": "Errors",
    "warnings": "Warnings",
    "system": "System",
    "traceback": "Traceback lines",
    "training": "Training output",
    "other": "Other",
}
"""Kinds of new lines; the first three are shown at first, if there are any."""
KINDS = ("infrastructure", "framework", "script", "unknown")
CAPS = ((5_000, 150), (2_000, 80), (1_000, 40), (300, 15), (50, 5))
"""Rows of the table of jobs and cards of groups, tried in turn until the report is small enough."""


@dataclass(frozen=True)
class Card:
    """One group with its representative job."""

    group: Group
    title: str
    example: JobVerdict
    told: Telling
    strip: Strip | None
    decided: Sequence[EvidenceLine]
    cascade: Sequence[EvidenceLine]
    hints: Sequence[EvidenceLine]
    jobs: Sequence[JobVerdict]
    share: float


def triage_page(found: Triage, strip_of: Callable[[JobVerdict], Strip | None]) -> str:
    """The whole report as HTML of at most `LARGEST` bytes, with a note on what is left out."""
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
    shown = sorted(listed[:rows], key=lambda job: job.index)
    folder, names = short_names(found.jobs)
    new = _new_lines(found)
    return render(
        "triage",
        "charts",
        found=found,
        headlines=headlines(found),
        meanings=meanings(found),
        kinds=kinds(found) if len(ordered) > LISTED else [],
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        bars=[
            (bar, title(group), group, jobs[group.example], telling(jobs[group.example]))
            for bar in found.pareto.bars[:25]
            for group in [groups[bar.group]]
        ],
        widest=max((bar.value for bar in found.pareto.bars), default=0) or 1,
        cards=[_card(one, jobs, strip, shares[one.id]) for one in ordered[:cards]],
        groups_left_out=max(0, len(ordered) - cards),
        rows=[(job, telling(job), _kind(job)) for job in shown],
        columns={
            "line": any(job.diagnosis and job.diagnosis.line for job in shown),
            "node": any(_node(job) for job in shown),
            "hours": any(job.gpu_hours is not None for job in shown),
            "workload": any(job.workload for job in shown),
            "group": any(job.group for job in shown),
        },
        kinds_of_jobs=_counted((_kind(job) for job in shown), _KINDS_OF_JOBS),
        node_of=_node,
        folder=folder,
        names=names,
        notes=[*merged_words(found, most=50), *found.warnings],
        new=new,
        kinds_of_lines=_counted((kind for _, kind, _ in new), LINES),
        rows_left_out=max(0, len(listed) - rows),
        carded={one.id for one in ordered[:cards]},
        over_time=_over_time(found),
        model=None if found.model is None else model_words(found.model),
        data=data,
    )


_KINDS_OF_JOBS = {
    "infrastructure": "Infrastructure",
    "framework": "Framework",
    "script": "Script",
    "unknown": "Unknown",
    "none": "No failure",
    "unread": "Not read",
}


def _kind(job: JobVerdict) -> str:
    """The box of the filter that a job belongs to."""
    return "unread" if job.diagnosis is None else job.diagnosis.error_type


def _node(job: JobVerdict) -> str:
    """The node that the log names, else the first of those that the job ran on."""
    if job.diagnosis is not None and job.diagnosis.node:
        return job.diagnosis.node
    return ", ".join(job.nodes[:2]) + (" …" if len(job.nodes) > 2 else "")


def _counted(kinds: Iterable[str], titles: Mapping[str, str]) -> list[tuple[str, str, int]]:
    """The kinds that occur with their titles and how often, in the order of the titles."""
    counts = Counter(kinds)
    return [(kind, text, counts[kind]) for kind, text in titles.items() if counts[kind]]


def _new_lines(found: Triage) -> list[tuple[NewTemplate, str, str | None]]:
    """New templates, each with the kind of its line and the group of the job that wrote it."""
    listed = found.novelty.templates[:NEW]
    groups = {job.log: job.group for job in found.jobs}
    kinds = categories([one.template for one in listed]) if listed else []
    return [
        (one, line_group(one.template, kind), groups.get(one.log))
        for one, kind in zip(listed, kinds, strict=True)
    ]


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
        f"{len(everything):,} of {found.totals.failed:,} failures have a time.",
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
        told=telling(example),
        strip=strip(example),
        decided=[line for line in evidence if line.note in (None, "decided")],
        cascade=[line for line in evidence if line.note == "followed"],
        hints=[line for line in evidence if line.note not in (None, "decided", "followed")],
        jobs=[jobs[index] for index in group.jobs[:50]],
        share=share,
    )
