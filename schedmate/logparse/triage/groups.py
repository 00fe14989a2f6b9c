"""Failures grouped by root cause, and the cost of each cause."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

from schedmate.jobs import Diagnosis
from schedmate.logparse.templates import mask
from schedmate.logparse.triage.document import Bar, Group, JobVerdict, Pareto

ENOUGH = 0.9
"""Share of the failed jobs with known GPU-hours that is needed to rank by GPU-hours."""


def deciding_line(found: Diagnosis) -> str:
    """The line that matched the rule, else the first line of the failure, else nothing."""
    for line in found.evidence:
        if line.note == "decided":
            return line.text
    return found.evidence[0].text if found.evidence and found.line is not None else ""


def group(jobs: Iterable[JobVerdict]) -> list[Group]:
    """The groups of failed jobs, ordered by GPU-hours and then by jobs, largest first.

    Sets `group` of each failed job.
    """
    together: dict[tuple[str, ...], list[JobVerdict]] = {}
    for job in jobs:
        found = job.diagnosis
        if found is not None and job.failed:
            key = (
                found.error_type,
                found.error_name or "",
                found.faulty_component or "",
                mask(deciding_line(found)),
            )
            together.setdefault(key, []).append(job)
    groups = [_group(key, members) for key, members in together.items()]
    groups.sort(key=lambda one: (-one.gpu_hours, -len(one.jobs), one.id))
    return groups


def _group(key: tuple[str, ...], members: list[JobVerdict]) -> Group:
    members.sort(key=lambda job: job.index)
    name = hashlib.sha256("\0".join(key).encode(errors="replace")).hexdigest()[:10]
    found = [job.diagnosis for job in members if job.diagnosis is not None]
    times = [one.time for one in found if one.time is not None]
    for job in members:
        job.group = name
    # of the jobs of a group the one with most to show stands for it
    example = max(members, key=lambda job: (len(job.diagnosis.evidence), -job.index))  # type: ignore[union-attr]
    shown = example.diagnosis
    assert shown is not None
    return Group(
        id=name,
        error_type=shown.error_type,
        error_name=shown.error_name,
        faulty_component=shown.faulty_component,
        template=key[-1],
        jobs=[job.index for job in members],
        example=example.index,
        gpu_hours=sum(job.gpu_hours or 0.0 for job in members),
        gpu_hours_known=sum(job.gpu_hours is not None for job in members),
        nodes=dict(Counter(one.node for one in found if one.node).most_common(20)),
        first_time=min(times, default=None),
        last_time=max(times, default=None),
        rule=shown.rule,
        source=shown.source,
        plan=shown.plan,
    )


def pareto(groups: Sequence[Group]) -> Pareto:
    """Groups by GPU-hours lost if nearly all failed jobs have them, else by number of jobs."""
    failed = sum(len(one.jobs) for one in groups)
    known = sum(one.gpu_hours_known for one in groups)
    by_hours = known > 0 and known >= ENOUGH * failed and any(one.gpu_hours for one in groups)
    values = {one.id: one.gpu_hours if by_hours else float(len(one.jobs)) for one in groups}
    total = sum(values.values())
    bars, running = [], 0.0
    for name, value in sorted(values.items(), key=lambda item: -item[1]):
        running += value
        share = value / total if total else 0.0
        bars.append(
            Bar(group=name, value=value, share=share, cumulative=running / total if total else 0.0)
        )
    if by_hours:
        reason = f"By GPU-hours lost (run time x GPUs), known for {known} of {failed} failed jobs."
    else:
        reason = (
            f"By number of jobs: run time and GPUs are known for {known} of {failed} failed jobs; "
            "a job list with the columns duration and gpus gives GPU-hours."
        )
    return Pareto(basis="gpu_hours" if by_hours else "jobs", reason=reason, total=total, bars=bars)
