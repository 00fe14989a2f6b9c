"""Answers as Markdown for a ticket or a chat: the three lines that matter first, then the rest.

Text of a log is quoted in code that it cannot end, so that nothing of it is formatted or followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from schedmate.base.terminal import clean, counted
from schedmate.jobs import Diagnosis, Progress
from schedmate.logparse.triage.document import Group, JobVerdict, Triage
from schedmate.report.batch import batch_headlines, group_title, plan_in_short, since_words
from schedmate.report.jobs import (
    LINES_QUOTED,
    analysis_headline,
    diagnosis_headline,
    field_table,
    most_telling,
    progress_headline,
    runs_in_words,
)
from schedmate.report.page import around_code

if TYPE_CHECKING:
    from schedmate.mate import Analysis

CAUSES_LISTED = 20
"""Most root causes in the table of a batch; the report has all of them."""
OWNERS = 10
"""Most owners of a root cause's jobs that are named."""
CELL = 120
"""Characters of a log's line in a cell."""
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~@])")


def escaped(text: object, limit: int = 2000) -> str:
    """Text of which nothing is taken for Markdown, HTML or the mention of a person."""
    return _SPECIAL.sub(r"\\\1", clean(text, limit))


def code(text: object, limit: int = 300) -> str:
    """Text as inline code, whatever backticks it has; a pipe does not end a cell of a table."""
    inner = clean(text, limit).replace("|", "¦")
    if not inner:
        return ""
    runs = [len(run) for run in re.findall(r"`+", inner)]
    fence = "`" * (max(runs, default=0) + 1)
    pad = " " if inner.startswith("`") or inner.endswith("`") else ""
    return f"{fence}{pad}{inner}{pad}{fence}"


def prose(text: object, limit: int = 2000) -> str:
    """A sentence of ours: what stands between backticks is code, and nothing else is markup."""
    return "".join(
        code(part) if at % 2 else _SPECIAL.sub(r"\\\1", part)
        for at, part in enumerate(around_code(clean(text, limit)))
    )


def diagnosis_markdown(diagnosis: Diagnosis) -> str:
    """What failed, why, and what to do; then the quoted lines."""
    lines = [f"**{escaped(diagnosis_headline(diagnosis))}**", ""]
    place = (
        f"{code(diagnosis.file, 200)} line {diagnosis.line}: " if diagnosis.line is not None else ""
    )
    if diagnosis.reason:
        lines += [f"{place}{escaped(diagnosis.reason, 600)}", ""]
    if diagnosis.plan is not None and (diagnosis.error_type != "none" or not diagnosis.finished):
        lines += [f"**Plan:** {escaped(diagnosis.plan.summary, 1000)}", ""]
        if diagnosis.plan.diagnose:
            lines += [f"**Check first:** {code(diagnosis.plan.diagnose)}", ""]
    if len(diagnosis.runs) > 1:
        lines += [f"**Runs:** {escaped(runs_in_words(diagnosis.runs))}.", ""]
    if diagnosis.doubts:
        lines += [f"**In doubt:** {escaped('; '.join(diagnosis.doubts), 600)}.", ""]
    quoted = most_telling(diagnosis.evidence)[:LINES_QUOTED]
    lines += [f"- {one.line}: {code(one.text)}" for one in quoted]
    return "\n".join(lines).rstrip() + "\n"


def analysis_markdown(analysis: Analysis) -> str:
    """What the job is and how long it will run; then its fields with their sources."""
    first, *rest = (escaped(line) for line in analysis_headline(analysis))
    fields = field_table(analysis.metadata)
    return (
        "\n\n".join([f"**{first}**", *rest, "\n".join(table(fields.columns, fields.rows))]) + "\n"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 3) -> Iterator[str]:
    """The lines of a table; the first columns, `left` of them, are of words, the others of
    numbers."""
    yield f"| {' | '.join(map(escaped, head))} |"
    yield "|---" * min(left, len(head)) + "|---:" * (len(head) - left) + "|"
    for row in rows:
        yield f"| {' | '.join(map(escaped, row))} |"


def progress_markdown(progress: Progress) -> str:
    """How far the job is, how fast it goes, and on what this is based."""
    first, *rest = (escaped(line) for line in progress_headline(progress))
    return "\n\n".join([f"**{first}**", *rest]) + "\n"


def cause_markdown(group: Group, example: JobVerdict, owners: Sequence[tuple[str, int]]) -> str:
    """A root cause: its jobs, cost and owners, and the diagnosis of the job that stands for it."""
    cost = f", {group.gpu_hours:,.1f} GPU-hours" if group.gpu_hours_known else ""
    lines = [f"{counted(len(group.jobs), 'job')}{cost}, for example {code(example.job_id, 200)}"]
    if owners:
        named = ", ".join(f"{escaped(owner, 60)} ({count})" for owner, count in owners[:OWNERS])
        lines[0] += f"; owners: {named}{', ...' if len(owners) > OWNERS else ''}"
    found = example.diagnosis
    return "\n".join([*lines, "", diagnosis_markdown(found) if found is not None else ""])


def triage_markdown(triage: Triage) -> str:
    """What failed, what cost most, which nodes; then a table of root causes with their plans."""
    verdict, *further = batch_headlines(triage)
    lines = [f"**{escaped(verdict, 1000)}**"]
    for line in [*further, *since_words(triage)]:
        lines += ["", escaped(line, 1000)]
    if triage.groups:
        lines += ["", "| jobs | GPU-h | root cause | for example | plan |", "|--:|--:|---|---|---|"]
    groups = {group.id: group for group in triage.groups}
    jobs = {job.index: job for job in triage.jobs}
    for bar in triage.pareto.bars[:CAUSES_LISTED]:
        group = groups[bar.group]
        hours = f"{group.gpu_hours:,.1f}" if group.gpu_hours_known else "?"
        example = jobs[group.example]
        first = example.diagnosis.line if example.diagnosis is not None else None
        where = f"{example.job_id}:{first}" if first is not None else example.job_id
        cells = (
            f"{len(group.jobs):,}",
            hours,
            escaped(group_title(group), CELL),
            f"{code(where, CELL)} {code(group.template, CELL)}".rstrip(),
            escaped(plan_in_short(group.plan), 2 * CELL),
        )
        lines.append(f"| {' | '.join(cells)} |")
    more = len(triage.groups) - CAUSES_LISTED
    if more > 0:
        lines += ["", f"And {counted(more, 'smaller root cause')}."]
    return "\n".join(lines) + "\n"
