"""The answer of a batch in words, the same for the terminal and the report."""

from __future__ import annotations

from schedmate.logparse.triage.document import Group, ModelUse, Triage


def headlines(found: Triage) -> list[str]:
    """The answer in three lines: what failed, what it cost most, which nodes."""
    totals = found.totals
    kinds = ", ".join(f"{n:,} {kind}" for kind, n in totals.by_type.items() if kind != "none")
    unread = f", {totals.unreadable:,} could not be read" if totals.unreadable else ""
    lines = [
        f"{totals.failed:,} of {totals.jobs:,} jobs failed{f' ({kinds})' if kinds else ''}{unread}"
    ]
    if not found.groups:
        return [*lines, "No failures, so no root causes.", found.node_test.reason]
    first = next(one for one in found.groups if one.id == found.pareto.bars[0].group)
    share = f"{found.pareto.bars[0].share:.0%}"
    lost = (
        f"{first.gpu_hours:,.1f} GPU-hours ({share} of what was lost)"
        if found.pareto.basis == "gpu_hours"
        else f"{share} of the failures"
    )
    count = len(found.groups)
    lines.append(
        f"{count:,} root cause{'s' * (count != 1)}; the first: {title(first)}, "
        f"{len(first.jobs):,} job{'s' * (len(first.jobs) != 1)}, {lost}"
    )
    suspects = [one for one in found.node_test.nodes if one.suspect]
    if suspects:
        named = "; ".join(
            f"{one.node} ({one.failures} of {one.jobs} jobs, {one.expected:.1f} by chance, "
            f"p {one.p_adjusted:.2g})"
            for one in suspects[:3]
        )
        more = f"; {len(suspects) - 3} more" if len(suspects) > 3 else ""
        lines.append(f"Fail more than chance: {named}{more}")
    else:
        lines.append(f"Nodes: {found.node_test.reason}")
    return lines


def model_words(use: ModelUse) -> str:
    """What a model was asked, and what came of it."""
    text = (
        f"{use.model} was asked about {use.asked} of {use.open_groups} groups that rules left open "
        f"and settled {use.settled}, the verdicts of {use.jobs:,} jobs, for {use.tokens:,} tokens."
    )
    return f"{text} {use.note}" if use.note else text


def title(group: Group) -> str:
    """The group's error, type and component in one line."""
    parts = [group.error_name or "Unknown failure", group.error_type]
    return " · ".join([*parts, *([group.faulty_component] if group.faulty_component else [])])
