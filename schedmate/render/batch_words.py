"""The answer of a batch in words, the same for the terminal and the report."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from schedmate.jobs.diagnosis import TYPE_MEANINGS
from schedmate.logparse.triage.document import Group, ModelUse, Triage
from schedmate.terminal import clean, counted

LISTED = 12
"""Most root causes on one screen; more are summarised by kind."""

UNREAD = 3
"""Most unreadable jobs whose reasons one screen shows."""

MERGED = 5
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
        known = [one.gpu_hours for one in self.groups if one.gpu_hours_known]
        return sum(known) if known else None


def kinds(found: Triage) -> list[Kind]:
    """The kinds of the root causes, the costliest first."""
    groups = {one.id: one for one in found.groups}
    together: dict[str, list[Group]] = {}
    values: defaultdict[str, float] = defaultdict(float)
    for bar in found.pareto.bars:
        one = groups[bar.group]
        together.setdefault(title(one), []).append(one)
        values[title(one)] += bar.value
    total = found.pareto.total or 1.0
    ordered = sorted(together, key=lambda name: -values[name])
    return [Kind(name, together[name], values[name], values[name] / total) for name in ordered]


def headlines(found: Triage) -> list[str]:
    """The answer in three lines: what failed, what it cost most, which nodes."""
    totals = found.totals
    types = ", ".join(f"{n:,} {kind}" for kind, n in totals.by_type.items() if kind != "none")
    unread = f", {totals.unreadable:,} could not be read" if totals.unreadable else ""
    lost = f", {totals.gpu_hours_lost:,.1f} GPU-hours lost" if totals.gpu_hours_lost else ""
    silent = f" and {totals.silent:,} more whose logs show no failure"
    failed = f"{totals.failed:,} of {totals.jobs:,} jobs failed"
    lines = [
        f"{failed}{f' ({types})' if types else ''}{silent if totals.silent else ''}{lost}{unread}"
    ]
    if totals.jobs == totals.unreadable:
        return [*lines, "No log could be read.", found.node_test.reason]
    if totals.unfinished:
        lines[0] += f"; {totals.unfinished:,} logs show neither a failure nor a successful end"
    if not found.groups:
        return [*lines, "No job failed.", found.node_test.reason]
    lines.append(_costliest(found))
    suspects = [one for one in found.node_test.nodes if one.suspect]
    if suspects:
        named = "; ".join(
            f"{one.node} ({one.failures} of {one.jobs} jobs failed, {one.expected:.1f} expected by "
            f"chance, p = {one.p_adjusted:.2g})"
            for one in suspects[:3]
        )
        more = f"; {len(suspects) - 3} more" if len(suspects) > 3 else ""
        lines.append(f"Suspect nodes: {named}{more}")
    else:
        lines.append(f"Nodes: {found.node_test.reason}")
    return lines


def meanings(found: Triage) -> dict[str, str]:
    """What the types of failure mean that the batch has."""
    return {kind: text for kind, text in TYPE_MEANINGS.items() if found.totals.by_type.get(kind)}


def _costliest(found: Triage) -> str:
    """What cost most: a root cause, or of more than fit one screen a kind of them."""
    causes, sorts = counted(len(found.groups), "root cause"), kinds(found)
    if len(found.groups) > LISTED:
        causes += f" of {counted(len(sorts), 'kind')}"
    else:
        groups = {one.id: one for one in found.groups}
        bar = found.pareto.bars[0]
        sorts = [Kind(title(groups[bar.group]), [groups[bar.group]], bar.value, bar.share)]
    first = sorts[0]
    lost = (
        f"{first.value:,.1f} GPU-hours ({first.share:.0%} of the loss)"
        if found.pareto.basis == "gpu_hours"
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


def title(group: Group) -> str:
    """The group's error, type and component in one line."""
    parts = [group.error_name or "Unknown failure", group.error_type]
    return " · ".join([*parts, *([group.faulty_component] if group.faulty_component else [])])


def unread_words(found: Triage, most: int = UNREAD) -> list[str]:
    """A line on each of the first jobs whose log could not be read: which, and why."""
    jobs = [job for job in found.jobs if job.error is not None]
    lines = [f"Not read: {clean(job.job_id)}: {clean(job.error or '')}" for job in jobs[:most]]
    more = len(jobs) - len(lines)
    return [*lines, f"Not read either: {counted(more, 'more job')}; see --json."] if more else lines


def merged_words(found: Triage, most: int | None = MERGED) -> list[str]:
    """A line on each job that consists of several files: which, and why they count as one."""
    jobs = [job for job in found.jobs if job.merged is not None]
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
