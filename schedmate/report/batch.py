"""Says a batch of failures in words: what failed, and the costliest causes.

`show_triage` prints it on a terminal; the report says it in the same words.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from schedmate.base.terminal import Screen, Table, clean, counted
from schedmate.jobs import Diagnosis, Recovery
from schedmate.jobs.diagnosis import TYPE_MEANINGS
from schedmate.logparse.triage import Triage
from schedmate.logparse.triage.document import Group, ModelUse
from schedmate.logparse.triage.document import Triage as DocumentTriage
from schedmate.logparse.triage.summary import deciding_line
from schedmate.report.jobs import side_in_words


def show_triage(triage: Triage, screen: Screen) -> None:
    """Print the answer in three lines, then the root causes or kinds of them as a table."""
    verdict, *further = batch_headlines(triage)
    screen.line(verdict, "bad" if triage.totals.failed else "good")
    for line in [*further, *since_words(triage), *unread_words(triage), *merged_words(triage)]:
        screen.line(line)
    if not triage.groups:
        return
    jobs = {job.index: job for job in triage.jobs}
    ids = {group.id: group for group in triage.groups}
    ordered = [ids[bar.group] for bar in triage.pareto.bars]
    by_kind = len(ordered) > CAUSES_LISTED
    if by_kind:  # more than one screen: equal ones are summarised
        rows = [
            (group.title, group.jobs, group.gpu_hours, group.groups)
            for group in kinds_of_causes(triage)
        ]
    else:
        rows = [
            (
                group_title(group),
                len(group.jobs),
                group.gpu_hours if group.gpu_hours_known else None,
                [group],
            )
            for group in ordered
        ]
    numbers = ("jobs", *(["causes"] if by_kind else []), "GPU-h")
    table = Table(
        *numbers,
        "kind of failure" if by_kind else "root cause",
        "for example",
        "plan",
        right=numbers,
    )
    for name, count, hours, groups in rows[:CAUSES_LISTED]:
        table.add(
            f"{count:,}",
            *([f"{len(groups):,}"] if by_kind else []),
            "?" if hours is None else f"{hours:,.1f}",
            name,
            _place(jobs[groups[0].example].diagnosis),
            plan_in_short(groups[0].plan),
        )
    screen.line()
    screen.table(table)
    screen.line()
    if by_kind:
        rest = len(rows) - CAUSES_LISTED
        more = f"{counted(rest, 'more kind')} and each" if rest > 0 else "Each"
        screen.line(f"{more} of the {len(ordered):,} root causes: see --out FILE or --json.")
    for kind, text in type_meanings(triage).items():
        screen.line(f"{kind.capitalize()}: {text}.")
    screen.line(f"New: {triage.novelty.reason}")
    if triage.model is not None:
        screen.line(f"Model: {model_words(triage.model)}")


def _place(diagnosis: Diagnosis | None) -> str:
    if diagnosis is None or diagnosis.file is None:
        return ""
    return f"{Path(diagnosis.file).name}:{diagnosis.line} {deciding_line(diagnosis)}"


# The answer of a batch in words, the same for the terminal and the report.


CAUSES_LISTED = 12
"""Most root causes on one screen; more are summarised by kind."""

PLAN = 80
"""Characters of a plan in a row of a table."""
TITLE = 70
"""Characters of a deciding line that stands as the title of a root cause."""

UNREAD_LISTED = 3
"""Most unreadable jobs whose reasons one screen shows."""

MERGED_LISTED = 5
"""Jobs of several files that one screen names."""


@dataclass(frozen=True)
class Kind:
    """All root causes of one error, type and component."""

    title: str
    groups: list[Group]
    """The costliest first."""
    value: float
    """As in the Pareto: GPU-hours or jobs."""
    share: float

    @property
    def jobs(self) -> int:
        """Its failed jobs."""
        return sum(len(one.jobs) for one in self.groups)

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours of those of its jobs that say; None when none does."""
        hours = [group.gpu_hours for group in self.groups if group.gpu_hours_known]
        return sum(hours) if hours else None


def kinds_of_causes(triage: DocumentTriage) -> list[Kind]:
    """The kinds of the root causes, the costliest first."""
    groups = {group.id: group for group in triage.groups}
    together: dict[str, list[Group]] = {}
    values: defaultdict[str, float] = defaultdict(float)
    for bar in triage.pareto.bars:
        group = groups[bar.group]
        together.setdefault(group_title(group), []).append(group)
        values[group_title(group)] += bar.value
    total = triage.pareto.total or 1.0
    ordered = sorted(together, key=lambda name: -values[name])
    return [Kind(name, together[name], values[name], values[name] / total) for name in ordered]


def batch_headlines(triage: DocumentTriage) -> list[str]:
    """The answer in three lines: what failed, what it cost most, which nodes."""
    totals = triage.totals
    types = ", ".join(
        f"{n:,} {kind}{_likely(triage) if kind == 'unknown' else ''}"
        for kind, n in totals.by_type.items()
        if kind != "none"
    )
    unread = f", {totals.unreadable:,} could not be read" if totals.unreadable else ""
    lost = f", {totals.gpu_hours_lost:,.1f} GPU-hours lost" if totals.gpu_hours_lost else ""
    silent = f" and {totals.silent:,} more whose logs show no failure"
    failed = f"{totals.failed:,} of {totals.jobs:,} jobs failed"
    lines = [
        f"{failed}{f' ({types})' if types else ''}{silent if totals.silent else ''}{lost}{unread}"
    ]
    if totals.jobs == totals.unreadable:
        return [*lines, "No log could be read.", triage.node_test.reason]
    if totals.unfinished:
        logs = counted(totals.unfinished, "log") + (" shows" if totals.unfinished == 1 else " show")
        lines[0] += f"; {logs} neither a failure nor a successful end"
    if not triage.groups:
        return [*lines, "No job failed.", triage.node_test.reason]
    lines.append(_costliest(triage))
    suspects = [node for node in triage.node_test.nodes if node.suspect]
    if suspects:
        named = "; ".join(
            f"{node.node} ({node.failures} of {node.jobs} jobs failed, {node.expected:.1f} "
            f"expected by chance, p = {node.p_adjusted:.2g})"
            for node in suspects[:3]
        )
        more = f"; {len(suspects) - 3} more" if len(suspects) > 3 else ""
        lines.append(f"Suspect nodes: {named}{more}")
    else:
        lines.append(f"Nodes: {triage.node_test.reason}")
    return lines


def _likely(triage: DocumentTriage) -> str:
    """Which types are likely, unproved, of how many failures of an unknown type."""
    found = Counter(one.diagnosis.likely for one in triage.jobs if one.diagnosis is not None)
    parts = [f"{n:,} likely {kind}" for kind, n in found.most_common() if kind is not None]
    return f": {' and '.join(parts)}" if parts else ""


def type_meanings(triage: DocumentTriage) -> dict[str, str]:
    """What the types of failure mean that the batch has."""
    return {kind: text for kind, text in TYPE_MEANINGS.items() if triage.totals.by_type.get(kind)}


def _costliest(triage: DocumentTriage) -> str:
    """What cost most: a root cause, or of more than fit one screen a kind of them."""
    causes, sorts = counted(len(triage.groups), "root cause"), kinds_of_causes(triage)
    if len(triage.groups) > CAUSES_LISTED:
        causes += f" of {counted(len(sorts), 'kind')}"
    else:
        groups = {group.id: group for group in triage.groups}
        bar = triage.pareto.bars[0]
        sorts = [Kind(group_title(groups[bar.group]), [groups[bar.group]], bar.value, bar.share)]
    first = sorts[0]
    lost = (
        f"{first.value:,.1f} GPU-hours ({first.share:.0%} of the loss)"
        if triage.pareto.basis == "gpu_hours"
        else f"{first.share:.0%} of the failures"
    )
    return f"{causes}; the costliest: {first.title}, {counted(first.jobs, 'job')}, {lost}"


def model_words(use: ModelUse) -> str:
    """The questions to a model, and their results."""
    text = (
        f"{use.model} was asked about {use.asked} of {use.open_groups} groups that the rules left "
        f"open and settled {use.settled}, the verdicts of {use.jobs:,} jobs, "
        f"for {use.tokens:,} tokens."
    )
    return f"{text} {use.note}" if use.note else text


def group_title(group: Group) -> str:
    """The group's error, type and component in one line; of a catch-all the deciding line."""
    name = group.error_name or "Unknown failure"
    if group.general and group.template:  # a class of exceptions says little
        name = clean(group.template, TITLE)
    parts = [name, side_in_words(group)]
    component = group.faulty_component if not group.likely else None
    return " · ".join([*parts, *([component] if component else [])])


def plan_in_short(plan: Recovery | None, limit: int = PLAN) -> str:
    """The beginning of a plan's first sentence, as a row of a table shows it."""
    if plan is None:
        return ""
    return clean(re.split(r"\.(?=\s|$)", plan.summary, maxsplit=1)[0], limit)


def plan_in_brief(plan: Recovery | None) -> str:
    """The steps of a plan in a few words each; whom to tell only if that is all of it."""
    steps = []
    for step in plan.steps if plan is not None else ():
        if step.action != "notify":
            what = step.detail if step.action == "restart" else step.node
            parts = (step.action, what, "if so" if step.only_if else None)
            steps.append(" ".join(part for part in parts if part))
    if plan is not None and not steps:
        return f"tell the {plan.notify}" if plan.notify != "nobody" else ""
    return clean(", ".join(steps), PLAN)


SINCE_NAMED = 3
"""New and grown root causes that are named."""


def since_words(triage: DocumentTriage) -> list[str]:
    """What is new against the batch before, if that was asked."""
    since = triage.since
    if since is None:
        return []
    groups = {group.id: group for group in triage.groups}
    parts = []
    for what, ids in (("new", since.new), ("grown", since.grown)):
        names = "; ".join(group_title(groups[one]) for one in ids[:SINCE_NAMED])
        more = f"; {len(ids) - SINCE_NAMED} more" if len(ids) > SINCE_NAMED else ""
        parts.append(f"{counted(len(ids), f'{what} root cause')}" + f" ({names}{more})" * bool(ids))
    when = datetime.fromtimestamp(since.finished, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return [f"Since the batch of {when}: {', '.join(parts)}, {since.gone:,} gone"]


def unread_words(triage: DocumentTriage, most: int = UNREAD_LISTED) -> list[str]:
    """A line on each of the first jobs whose log could not be read: which, and why."""
    jobs = [job for job in triage.jobs if job.error is not None]
    lines = [f"Not read: {clean(job.job_id)}: {clean(job.error or '')}" for job in jobs[:most]]
    more = len(jobs) - len(lines)
    return [*lines, f"Not read either: {counted(more, 'more job')}; see --json."] if more else lines


def merged_words(triage: DocumentTriage, most: int | None = MERGED_LISTED) -> list[str]:
    """A line on each job that consists of several files: which, and why they count as one."""
    jobs = [job for job in triage.jobs if job.merged is not None]
    lines = [
        f"One job of {counted(len(job.files), 'file')}: {job.job_id} ({job.merged})."
        for job in jobs[:most]
    ]
    if len(jobs) > len(lines):
        files = sum(len(job.files) for job in jobs)
        lines.append(
            f"In all {len(jobs):,} jobs of {files:,} files: see --json; --one-job-per-file parts "
            "them."
        )
    return lines
