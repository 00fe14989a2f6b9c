"""The report of a batch: `schedmate triage --out`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from schedmate.jobs import EvidenceLine
from schedmate.logparse.triage import JobVerdict, Strip, Triage
from schedmate.logparse.triage.document import Group
from schedmate.logparse.triage.words import headlines, title
from schedmate.report.page import render

LARGEST = 5_000_000
"""Largest report [bytes]."""
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
        if len(page.encode("utf-8", "replace")) <= LARGEST:
            break
    return page


def _page(found: Triage, strip: Callable[[JobVerdict], Strip | None], rows: int, cards: int) -> str:
    jobs = {job.index: job for job in found.jobs}
    groups = {one.id: one for one in found.groups}
    ordered = [groups[bar.group] for bar in found.pareto.bars]
    shares = {bar.group: bar.share for bar in found.pareto.bars}
    # failures and unreadable logs before jobs that did not fail, when not all rows fit
    listed = sorted(found.jobs, key=lambda job: (not job.failed and not job.error, job.index))
    return render(
        "triage",
        found=found,
        headlines=headlines(found),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        bars=[(bar, title(groups[bar.group]), groups[bar.group]) for bar in found.pareto.bars[:25]],
        widest=max((bar.value for bar in found.pareto.bars), default=0) or 1,
        cards=[_card(one, jobs, strip, shares[one.id]) for one in ordered[:cards]],
        groups_left_out=max(0, len(ordered) - cards),
        rows=sorted(listed[:rows], key=lambda job: job.index),
        rows_left_out=max(0, len(listed) - rows),
        names={one.id: title(one) for one in found.groups},
        carded={one.id for one in ordered[:cards]},
        suspects=[one for one in found.node_test.nodes if one.suspect],
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
