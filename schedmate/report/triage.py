"""The HTML report of a batch: `schedmate triage --out`.

It shows root causes with a representative job of each, all jobs in a table, failures over time,
and new lines. `telling` finds the details that distinguish failures with the same name: the
decisive line, its place in the code.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath

import numpy as np

from schedmate.base.terminal import visible
from schedmate.jobs import Diagnosis, EvidenceLine
from schedmate.logparse.failure.side import FRAME, LIBRARY
from schedmate.logparse.triage import JobVerdict, Strip, Triage
from schedmate.logparse.triage.document import Group, NewTemplate
from schedmate.logparse.triage.strip import categories
from schedmate.logparse.triage.summary import deciding_line
from schedmate.report import charts
from schedmate.report.batch import (
    CAUSES_LISTED,
    batch_headlines,
    group_title,
    kinds_of_causes,
    merged_words,
    model_words,
    plan_in_brief,
    plan_in_short,
    type_meanings,
)
from schedmate.report.charts import Figure
from schedmate.report.markdown import cause_markdown, triage_markdown
from schedmate.report.page import embedded, render

_ASKED_MEMORY = re.compile(r"Tried to allocate ([\d.]+ ?[KMGT]?i?B)")
_CAPACITY_MEMORY = re.compile(
    r"(?<![\d.])([\d.]{1,20}+ ?[KMGT]i?B) total capacity|total capacity of ([\d.]+ ?[KMGT]i?B)"
)
_CODE_LINE = re.compile(
    r'\s*(?:File "|(?:return|raise|yield|await|with|for|if|from|import)\b[^:]*[(.]|'
    r"[\w.\[\]]+(?:, [\w.]+)* = |[\w.]+\(.*\)?$|[~^]+$)"
)
"""Lines of source code, as tracebacks quote them."""
_LINE_GROUPS = {
    "error": "errors",
    "warning": "warnings",
    "system": "system",
    "progress": "training",
    "evaluation": "training",
    "checkpoint": "training",
    "init": "training",
}


@dataclass(frozen=True)
class Telling:
    """The deciding line of one failure, and facts about it in a few words each."""

    line: str
    facts: Sequence[str]


def telling(job: JobVerdict, *, placed: bool = True) -> Telling:
    """Details shown beside the error name of a failed job, where it ran only if `placed`."""
    diagnosis = job.diagnosis
    if diagnosis is None or not job.failed:
        return Telling("", ())
    facts = [*_memory_facts(diagnosis), *_telling_frames(diagnosis)]
    if placed and job.workload:
        facts.append(job.workload)
    if placed and diagnosis.node:
        facts.append(f"node {diagnosis.node}")
    if diagnosis.rank is not None:
        facts.append(f"rank {diagnosis.rank}")
    if diagnosis.conflict:
        facts.append("in doubt")
    return Telling(deciding_line(diagnosis).strip(), facts)


def _memory_facts(diagnosis: Diagnosis) -> Iterator[str]:
    text = deciding_line(diagnosis)
    if asked := _ASKED_MEMORY.search(text):
        capacity = _CAPACITY_MEMORY.search(text)
        of = f" of {capacity[1] or capacity[2]}" if capacity else ""
        yield f"{asked[1]}{of}"


def _telling_frames(diagnosis: Diagnosis) -> Iterator[str]:
    """The program's entry point and the innermost line of its own code, if a traceback is
    quoted."""
    lines = (one.text for one in diagnosis.evidence if one.note in (None, "decided"))
    frames = [one for text in lines if (one := FRAME.search(text))]
    own = [one for one in frames if not LIBRARY.search(one[1])]
    if not own:
        return
    last = own[-1]
    name = PurePosixPath(last[1]).name
    script = PurePosixPath(own[0][1]).name
    if own[0][3] == "<module>" and script != name:
        yield script
    yield f"{name}:{last[2]}" + (f" in {last[3]}" if last[3] and last[3] != "<module>" else "")


def short_names(jobs: Iterable[JobVerdict]) -> tuple[str, dict[int, str]]:
    """The folder that all jobs named by a path share, and each job's name without it."""
    names = {job.index: job.job_id for job in jobs}
    folder = ""
    if len(names) > 1 and all(name.startswith("/") for name in names.values()):
        folder = os.path.commonpath([os.path.dirname(name) for name in names.values()])  # noqa: PTH120
    if len(folder) < 2:
        return "", names
    return folder, {index: name[len(folder) + 1 :] for index, name in names.items()}


def line_group(template: str, category: str) -> str:
    """Which box of a filter a line belongs to, by its category of the Log Classifier."""
    if category in ("error", "other") and _CODE_LINE.match(template):
        return "traceback"
    return _LINE_GROUPS.get(category, "other")


# The report of a batch: `schedmate triage --out`.


LARGEST = 5_000_000
"""Largest report [bytes], the JSON document in it included."""
BIN_WIDTHS_S = (600.0, 3600.0, 6 * 3600.0, 86_400.0, 7 * 86_400.0, 30 * 86_400.0)
"""Widths of the bars over time [s]; the first with at most 60 bars for all failures is used."""
MOST_NEW = 500
"""Most new templates that are listed."""
LINE_KINDS = {
    "errors": "Errors",
    "warnings": "Warnings",
    "system": "System",
    "traceback": "Traceback lines",
    "training": "Training output",
    "other": "Other",
}
"""Kinds of new lines; the first three are shown at first, if there are any."""
PLAN = 160
"""Characters of a plan beside its cause."""
FAILURE_KINDS = ("infrastructure", "framework", "script", "unknown")
ROW_CAPS = ((5_000, 150), (2_000, 80), (1_000, 40), (300, 15), (50, 5))
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
    owners: Sequence[tuple[str, int]]
    """Users with the number of their jobs, where the job list names them."""
    markdown: str


def triage_page(triage: Triage, strip_of: Callable[[JobVerdict], Strip | None]) -> str:
    """The whole report as HTML of at most `LARGEST` bytes, with a note on what is left out."""
    strips: dict[int, Strip | None] = {}

    def strip(job: JobVerdict) -> Strip | None:
        if job.index not in strips:
            strips[job.index] = strip_of(job)
        return strips[job.index]

    for rows, cards in ROW_CAPS:
        page = _page(triage, strip, rows, cards)
        left = LARGEST - len(page.encode("utf-8", "replace"))
        if left >= 0:
            break
    data = next((text for text in _documents(triage) if len(text) <= left), None)
    return page if data is None else _page(triage, strip, rows, cards, data)


def _documents(triage: Triage) -> Iterator[str]:
    """The JSON document, and then less and less of it, which its warnings say."""
    document = triage.document()
    yield embedded(document)
    for job in document["jobs"]:
        if job["diagnosis"] is not None:
            job["diagnosis"] |= {"evidence": [], "ruled_out": []}
    rest = "this copy, in a report, has no {}: `triage --json` has all"
    document["warnings"] = [*triage.warnings, rest.format("evidence")]
    yield embedded(document)
    document["jobs"], document["warnings"][-1] = [], rest.format("jobs")
    yield embedded(document)


def _page(
    triage: Triage,
    strip: Callable[[JobVerdict], Strip | None],
    rows: int,
    cards: int,
    data: str | None = None,
) -> str:
    jobs = {job.index: job for job in triage.jobs}
    groups = {one.id: one for one in triage.groups}
    ordered = [groups[bar.group] for bar in triage.pareto.bars]
    shares = {bar.group: bar.share for bar in triage.pareto.bars}
    # failures and unreadable logs before jobs that did not fail, when not all rows fit
    listed = sorted(triage.jobs, key=lambda job: (_kind_of_job(job) == "none", job.index))
    shown = listed[:rows]
    kinded = [(job, _kind_of_job(job)) for job in shown]
    folder, names = short_names(triage.jobs)
    new = _new_lines(triage)
    return render(
        "triage",
        "charts",
        found=triage,
        headlines=batch_headlines(triage),
        meanings=type_meanings(triage),
        kinds=kinds_of_causes(triage) if len(ordered) > CAUSES_LISTED else [],
        markdown=visible(triage_markdown(triage)),
        widest=max(shares.values(), default=0) or 1,
        cards=[_card(one, jobs, strip, shares[one.id]) for one in ordered[:cards]],
        groups_left_out=max(0, len(ordered) - cards),
        at_once=CAUSES_LISTED,
        rows=[(job, telling(job, placed=False), kind) for job, kind in kinded if kind != "none"],
        fine=[(job, Telling("", ()), "") for job, kind in kinded if kind == "none"],
        columns={
            "plan": any(job.failed and job.diagnosis and job.diagnosis.plan for job in shown),
            "line": any(job.diagnosis and job.diagnosis.line for job in shown),
            "node": any(_node_of_job(job) for job in shown),
            "hours": any(job.gpu_hours is not None for job in shown),
            "owner": any(job.user for job in shown),
            "workload": any(job.workload for job in shown),
            "group": any(job.group for job in shown),
        },
        kinds_of_jobs=_counted((kind for _, kind in kinded), _KINDS_OF_JOBS),
        node_of=_node_of_job,
        in_short=partial(plan_in_short, limit=PLAN),
        in_brief=plan_in_brief,
        suspects=[one for one in triage.node_test.nodes if one.suspect],
        sound=[one for one in triage.node_test.nodes if not one.suspect],
        folder=folder,
        names=names,
        notes=[*merged_words(triage, most=50), *triage.warnings],
        new=new,
        kinds_of_lines=_counted((kind for _, kind, _ in new), LINE_KINDS),
        rows_left_out=max(0, len(listed) - rows),
        carded={one.id for one in ordered[:cards]},
        over_time=_over_time(triage),
        model=None if triage.model is None else model_words(triage.model),
        data=data,
    )


_KINDS_OF_JOBS = {
    "infrastructure": "Infrastructure",
    "framework": "Framework",
    "script": "Script",
    "unknown": "Unknown",
    "silent": "No failure in the log",
    "stopped": "Stopped",
    "unread": "Not read",
}


def _kind_of_job(job: JobVerdict) -> str:
    """The value of the page's type filter that shows this job; `none` where nothing is wrong."""
    if job.diagnosis is None:
        return "unread"
    if job.diagnosis.error_type != "none":
        return job.diagnosis.error_type
    return "silent" if job.silent else "stopped" if job.diagnosis.error_name else "none"


def _node_of_job(job: JobVerdict) -> str:
    """The node that the log names, else the first of those that the job ran on."""
    if job.diagnosis is not None and job.diagnosis.node:
        return job.diagnosis.node
    return ", ".join(job.nodes[:2]) + (" …" if len(job.nodes) > 2 else "")


def _counted(kinds: Iterable[str], titles: Mapping[str, str]) -> list[tuple[str, str, int]]:
    """The kinds that occur with their titles and how often, in the order of the titles."""
    counts = Counter(kinds)
    return [(kind, text, counts[kind]) for kind, text in titles.items() if counts[kind]]


def _new_lines(triage: Triage) -> list[tuple[NewTemplate, str, str | None]]:
    """New templates, each with the kind of its line and the group of the job that wrote it."""
    listed = triage.novelty.templates[:MOST_NEW]
    groups = {job.log: job.group for job in triage.jobs}
    kinds = categories([one.template for one in listed]) if listed else []
    return [
        (one, line_group(one.template, kind), groups.get(one.log))
        for one, kind in zip(listed, kinds, strict=True)
    ]


def _over_time(triage: Triage) -> Figure | None:
    """How many jobs failed when, by type; None when fewer than two logs say when."""
    times = {
        kind: [
            job.diagnosis.time
            for job in triage.jobs
            if job.diagnosis is not None
            and job.diagnosis.error_type == kind
            and job.diagnosis.time is not None
        ]
        for kind in FAILURE_KINDS
    }
    everything = [one for some in times.values() for one in some]
    if len(everything) < 2:
        return None
    first, last = min(everything), max(everything)
    width = next((one for one in BIN_WIDTHS_S if (last - first) / one <= 60), (last - first) / 60)
    start = first - first % width
    edges = start + width * np.arange(int((last - start) // width) + 2, dtype=np.float64)
    layers = [(kind, f"t-{kind}", np.histogram(some, edges)[0]) for kind, some in times.items()]
    total = sum(heights for _, _, heights in layers)
    x = charts.linear_axis("when it failed, as logged (UTC)", start, float(edges[-1]), "time")
    y = charts.linear_axis("failed jobs", 0.0, float(max(np.max(total), 5)), "count")
    rows = [
        [x.text(float(edges[n])), *(str(int(heights[n])) for _, _, heights in layers)]
        for n in np.flatnonzero(total).tolist()
    ]
    return Figure(
        "Failures over time",
        charts.stacked_bars("Failed jobs over time, by type of failure", edges, layers, x, y),
        ["from", *FAILURE_KINDS],
        rows,
        f"{len(everything):,} of {triage.totals.failed:,} failures have a time.",
    )


def _card(
    group: Group,
    jobs: dict[int, JobVerdict],
    strip: Callable[[JobVerdict], Strip | None],
    share: float,
) -> Card:
    example = jobs[group.example]
    evidence = example.diagnosis.evidence if example.diagnosis is not None else []
    members = [jobs[index] for index in group.jobs]
    owners = Counter(job.user for job in members if job.user).most_common()
    return Card(
        group=group,
        title=group_title(group),
        example=example,
        told=telling(example),
        strip=strip(example),
        decided=[line for line in evidence if line.note in (None, "decided")],
        cascade=[line for line in evidence if line.note == "followed"],
        hints=[line for line in evidence if line.note not in (None, "decided", "followed")],
        jobs=members[:50],
        share=share,
        owners=owners,
        markdown=visible(cause_markdown(group, example, owners)),
    )
