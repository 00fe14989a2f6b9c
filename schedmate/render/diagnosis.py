"""A `Diagnosis` as text for a person: what failed first, why, what to do, and the lines."""

from __future__ import annotations

from schedmate.files import without_shared_folders
from schedmate.jobs import Diagnosis, EvidenceLine
from schedmate.jobs.diagnosis import TYPE_MEANINGS
from schedmate.terminal import clean, say
from schedmate.terminal.layout import Tone
from schedmate.terminal.screen import Screen

QUOTED = 8
"""Lines quoted."""
QUOTED_LENGTH = 160
"""Characters of a quoted line that a terminal shows; a pipe gets all of them."""


def show(found: Diagnosis, screen: Screen) -> None:
    """Print the headline, why, the plan and the quoted lines; warnings go to standard error."""
    screen.line(headline(found), _tone(found))
    if found.line is not None:
        screen.line(found.reason, label=f"{clean(found.file)}:{found.line} ")
    elif found.reason and (
        found.error_type != "none" or found.finished or found.attempts > 1
    ):  # else the headline has it
        screen.line(found.reason[:1].upper() + found.reason[1:] + ".")
    if found.error_type == "framework":  # the one name that does not explain itself
        screen.line(f"{TYPE_MEANINGS['framework']}.", label="Framework: ")
    for number, one in enumerate(found.conflict):
        what = f"{one.error_name or 'a failure'} ({one.error_type}), {clean(one.file)}:{one.line}"
        screen.line(f"{what}: {one.text}", label="In doubt: " if number == 0 else "      or: ")
    if found.plan is not None and (found.error_type != "none" or found.finished is False):
        screen.line(found.plan.summary, label="Plan: ")
        if found.plan.diagnose and found.plan.isolation != "needs confirmation":
            screen.line(found.plan.diagnose, label="      check first: ")
        for step in found.plan.steps:
            if step.action == "confirm":
                screen.line("; ".join(step.commands), label="      confirm with: ")
        if found.plan.innocent:
            screen.line("; ".join(found.plan.innocent), label="      other explanations: ")
    if found.evidence:
        screen.line()
        _lines(_most_telling(found.evidence), screen, notes=found.error_type == "none")
    if found.ruled_out:
        screen.line()
        screen.line("Ruled out:")
        _lines(found.ruled_out, screen)
    if found.rule:
        screen.line()
        screen.line(f"Decided by rule {found.rule}; see {found.reference}")
    if found.attempts > 1 and (found.error_type != "none" or found.error_name):
        screen.line(f"Attempt {found.attempt} of {found.attempts} in this log.")
    for warning in found.warnings:
        say(f"note: {warning}")


def _tone(found: Diagnosis) -> Tone:
    if found.error_type != "none":
        return "bad"
    return "doubtful" if found.finished is False else "good"


def headline(found: Diagnosis) -> str:
    """Type, name, component and place in one line."""
    if found.error_type == "none":
        if found.finished is False:
            return "No failure found, but no successful end either"
        return f"No failure: {found.error_name}" if found.error_name else "No failure"
    parts = [
        found.error_name or "Failed, reason not stated",
        found.error_type,
    ]
    if found.faulty_component:
        parts.append(found.faulty_component)
    if found.undecided:
        parts.append("undecided")
    elif found.conflict:
        parts.append("in doubt")
    if found.rank is not None:
        parts.append(f"rank {found.rank}")
    if found.node:
        parts.append(f"node {found.node}")
    return " · ".join(parts)


def _most_telling(lines: list[EvidenceLine]) -> list[EvidenceLine]:
    """At most `QUOTED` lines: the first one, and then those up to the one that decided."""
    decided = next((n for n, line in enumerate(lines) if line.note == "decided"), 0)
    if decided < QUOTED:
        return lines[:QUOTED]
    return [lines[0], *lines[decided + 2 - QUOTED : decided + 1]]


def _lines(lines: list[EvidenceLine], screen: Screen, *, notes: bool = False) -> None:
    """Quoted lines with their numbers, and with their files if there are several.

    `notes` has the reason for quoting each line.
    """
    names = {line.file: "" for line in lines}
    if len(names) > 1:
        names = {file: f"{clean(name)}:" for file, name in without_shared_folders(names).items()}
    width = 7 + max(map(len, names.values()), default=0)
    for line in lines:
        mark = ">" if line.note == "decided" else " "
        indent = " " * min(8, len(line.text) - len(line.text.lstrip(" ")))
        place = f"{names[line.file]}{line.line}"
        text = clean(line.text, None if screen.width is None else QUOTED_LENGTH)
        if notes and line.note not in (None, "decided"):
            text += f"  ({line.note})"
        screen.line(text, label=f"{mark} {place:>{width}} | {indent}")
