"""A `Triage` as text for a person: what failed, the costliest causes, what is new."""

from __future__ import annotations

from pathlib import Path

from schedmate.jobs import Diagnosis
from schedmate.logparse.triage import Triage
from schedmate.logparse.triage.groups import deciding_line
from schedmate.render.batch_words import (
    LISTED,
    headlines,
    kinds,
    meanings,
    merged_words,
    model_words,
    title,
    unread_words,
)
from schedmate.terminal import counted
from schedmate.terminal.screen import Screen, Table


def show(found: Triage, screen: Screen) -> None:
    """Print the answer in three lines, then the root causes or kinds of them as a table."""
    verdict, *further = headlines(found)
    screen.line(verdict, "bad" if found.totals.failed else "good")
    for line in [*further, *unread_words(found), *merged_words(found)]:
        screen.line(line)
    if not found.groups:
        return
    jobs = {job.index: job for job in found.jobs}
    ids = {one.id: one for one in found.groups}
    ordered = [ids[bar.group] for bar in found.pareto.bars]
    by_kind = len(ordered) > LISTED
    if by_kind:  # more than one screen: equal ones are summarised
        rows = [(one.title, one.jobs, one.gpu_hours, one.groups) for one in kinds(found)]
    else:
        rows = [
            (title(one), len(one.jobs), one.gpu_hours if one.gpu_hours_known else None, [one])
            for one in ordered
        ]
    numbers = ("jobs", *(["causes"] if by_kind else []), "GPU-h")
    table = Table(
        *numbers, "kind of failure" if by_kind else "root cause", "for example", right=numbers
    )
    for name, count, hours, groups in rows[:LISTED]:
        table.add(
            f"{count:,}",
            *([f"{len(groups):,}"] if by_kind else []),
            "?" if hours is None else f"{hours:,.1f}",
            name,
            _place(jobs[groups[0].example].diagnosis),
        )
    screen.line()
    screen.table(table)
    screen.line()
    if by_kind:
        rest = len(rows) - LISTED
        more = f"{counted(rest, 'more kind')} and each" if rest > 0 else "Each"
        screen.line(f"{more} of the {len(ordered):,} root causes: see --out FILE or --json.")
    for kind, text in meanings(found).items():
        screen.line(f"{kind.capitalize()}: {text}.")
    screen.line(f"New: {found.novelty.reason}")
    if found.model is not None:
        screen.line(f"Model: {model_words(found.model)}")


def _place(found: Diagnosis | None) -> str:
    if found is None or found.file is None:
        return ""
    return f"{Path(found.file).name}:{found.line} {deciding_line(found)}"
