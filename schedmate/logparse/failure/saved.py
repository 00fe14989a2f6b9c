"""The checkpoint to restart from: the last one that the log shows to be written completely."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from schedmate.jobs import Checkpoint
from schedmate.logparse.failure.events import Event
from schedmate.logparse.failure.scan import FileScan
from schedmate.logparse.reading import LogFile
from schedmate.logparse.signs import last_sign, signs

SOON = 2000
"""Lines after the beginning of a save in which its end is looked for."""
# a line that begins a save; what is worded as done is done
_BEGUN = re.compile(r"(?i:\b(?:saving|writing|dumping|dump)\b)")
_DONE = re.compile(r"(?i:\b(?:saved|wrote|written|done|finished|complete[ds]?|took|succe\w+)\b)")
_OF_A_SAVE = re.compile(r"(?i:sav(?:e|ing)|checkpoint|ckpt|weights|state|model|wr(?:ote|itten))")
_ASIDE = re.compile(r"(?i:\b(?:config|tokenizer|vocab|special tokens|to be saved|will be)\w*)")


def checkpoint_before(root: Event, scans: Iterable[FileScan]) -> Checkpoint | None:
    """The last checkpoint in the file of the failure, else in any other."""
    ordered = sorted(scans, key=lambda one: one.file is not root.file)
    for one in ordered:
        end = one.attempt.end
        if one.file is root.file:
            end = min(end, one.file.line_offset(root.number))
        found = _last_written(one, end)
        if found is not None:
            return found
    return None


def _last_written(one: FileScan, end: int) -> Checkpoint | None:
    file, later = one.file, end
    for sign in signs("checkpoint").backwards(file, 0, end):
        number = file.line_number(sign.offset)
        line = next(iter(file.lines(number, number)), None)
        if line is not None and _BEGUN.search(line.text) and not _DONE.search(line.text):
            if sign.offset < one.attempt.offset:  # the steps of the next attempt prove nothing
                later = min(later, one.attempt.offset)
            if not _went_through(file, number, later):
                later = min(later, sign.offset)
                continue
        step = sign.groups.get("step", "")
        return Checkpoint(
            path=sign.groups.get("path") or None,
            step=int(step) if step.isdigit() and len(step) < 12 else None,
            file=file.name,
            line=number,
        )
    return None


def _went_through(file: LogFile, number: int, end: int) -> bool:
    """Whether a step, or a line that says so, shows before byte `end` that a save ended."""
    start = file.line_offset(number + 1)
    if start >= end:
        return False
    if last_sign("progress", file, start, end) is not None:
        return True
    after = islice(file.lines(number + 1, file.line_number(end - 1)), SOON)
    checkpoint = signs("checkpoint")
    return any(
        _DONE.search(line.text)
        and _OF_A_SAVE.search(line.text)
        and not _ASIDE.search(line.text)
        and not checkpoint.denies(line.text.encode("utf-8", "replace"))
        for line in after
    )
