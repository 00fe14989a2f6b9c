"""The newest complete checkpoint of a job, and the command that resumes from it.

A checkpoint that is still being written, or whose writer was killed, must not be used: all files of
its layout must exist (`layouts.yaml`), each must be complete (`intact.py`), and none may change
between two readings. A checkpoint that fails this is skipped, with a note, for the one before it.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from schedmate.data import load
from schedmate.errors import InputError
from schedmate.paths import children, is_dir
from schedmate.recovery.intact import files_of, missing_of_index, what_is_wrong

SETTLE_S = 2.0
"""Time between two readings of a checkpoint that was written recently [s]."""
LATELY_S = 120.0
"""A file that was changed within this time, or in the future, may still be written to [s]."""
MOST = 1000
"""Checkpoints of a directory that are considered, the newest ones."""


class Saved(NamedTuple):
    """A checkpoint that is complete."""

    path: Path
    layout: str
    step: int | None
    time: float
    """When its last file was changed [s since epoch]."""
    why: str
    passed_over: tuple[str, ...]
    """Newer ones that are not complete, each with the reason."""
    load: Path
    """The path that the program gets: the checkpoint, or its directory."""
    options: tuple[str, ...]


class _Found(NamedTuple):
    path: Path
    step: int | None
    time: float


def newest(
    folder: Path, *, settle_s: float = SETTLE_S, sleep: Callable[[float], None] = time.sleep
) -> Saved | None:
    """The newest complete checkpoint in a directory; None if there is none.

    Raises `InputError` if the directory cannot be read.
    """
    if not is_dir(folder):
        raise InputError(f"{folder} is not a directory of checkpoints.")
    passed_over: list[str] = []
    for layout in _layouts():
        for found in _candidates(folder, layout):
            wrong = _incomplete(found.path, layout)
            if wrong is None and _is_changing(found.path, settle_s, sleep):
                wrong = "it is still being written"
            if wrong is not None:
                passed_over.append(f"{found.path.name}: {wrong}")
                continue
            return Saved(
                path=found.path,
                layout=layout["name"],
                step=found.step,
                time=found.time,
                why=layout.get("why", f"the newest complete one of {layout['name']}'s"),
                passed_over=tuple(passed_over),
                load=folder if layout["takes"] == "folder" else found.path,
                options=tuple(layout["resume"]),
            )
    if passed_over:
        listed = "; ".join(passed_over[:5])
        raise InputError(f"{folder} has no complete checkpoint: {listed}.")
    return None


def resumed(command: str, saved: Saved) -> tuple[str, str]:
    """The command that resumes from a checkpoint, and its changes in words.

    An option that names a checkpoint gets the new one; without one, the first that programs of this
    layout have is added, which the reader has to check. A program that finds its checkpoint by
    itself keeps its command. Raises `InputError` if it is not a command line.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"the launch command cannot be read: {error}.") from None
    data = load("recovery/layouts.yaml")
    if any(word.partition("=")[0] in data["automatic"] for word in words):
        return command, "the program finds its newest checkpoint by itself"
    given = [(n, word.partition("=")) for n, word in enumerate(words)]
    known = [(n, parts) for n, parts in given if parts[0] in data["options"]]
    path = str(saved.load)
    if known:
        number, (option, equals, _) = known[-1]
        if equals:
            words[number] = f"{option}={path}"
        elif number + 1 < len(words) and not words[number + 1].startswith("-"):
            words[number + 1] = path
        else:  # a switch without a value: `--resume`
            return command, f"{option} is in the command; it has to find {path}"
        return shlex.join(words), f"{option} names it now"
    option = saved.options[0]
    return (
        shlex.join([*words, option, path]),
        f"{option} was added; check that the program has it",
    )


def _candidates(folder: Path, layout: dict[str, Any]) -> list[_Found]:
    """The checkpoints of a layout, newest first; what its pointer names comes before all."""
    steps = re.compile(layout.get("step", r"(\d+)"))
    found = []
    for place in children(folder):
        named = any(fnmatchcase(place.name, pattern) for pattern in layout["each"])
        if not named or place.is_dir() is not _of_folders(layout):
            continue
        if _of_folders(layout) and not any(True for _ in files_of(place)):
            continue
        digits = steps.findall(place.name)
        step = int(digits[-1]) if digits and len(digits[-1]) < 13 else None
        found.append(_Found(place, step, _changed(place)))
    if "pointer" in layout:
        return _pointed(folder, layout, found)
    by_time = layout["newest"] == "time"
    found.sort(key=lambda one: (0 if by_time else one.step or 0, one.time), reverse=True)
    return found[:MOST] if _fits(layout, found) else []


def _pointed(folder: Path, layout: dict[str, Any], found: list[_Found]) -> list[_Found]:
    pointer = folder / layout["pointer"]
    try:
        text = pointer.read_bytes()[:200].decode("ascii", "replace").strip()
    except OSError:
        return []
    if "{text:07d}" in layout["at"]:
        name = f"iter_{int(text):07d}" if text.isdecimal() and len(text) < 13 else text
    else:
        name = text
    if not name or Path(name).name != name:  # only a file name beside the pointer
        return []
    first = [one for one in found if one.path.name == name]
    if not first and (folder / name).is_dir():
        first = [_Found(folder / name, None, _changed(folder / name))]
    # checkpoints begun after the pointer was written are not complete
    known = first[0].step if first else None
    rest = [
        one
        for one in sorted(found, key=lambda one: one.step or 0, reverse=True)
        if one not in first and (known is None or (one.step or 0) < known)
    ]
    missing = [] if first else [_Found(folder / name, None, 0.0)]
    return [*first, *missing, *rest][:MOST]


def _fits(layout: dict[str, Any], found: list[_Found]) -> bool:
    """Whether a directory is of a layout: any of its checkpoints has something that it needs."""
    needs = layout.get("needs")
    return not needs or any(
        _has(one.path, pattern) for one in found[:50] for one_of in needs for pattern in one_of
    )


def _of_folders(layout: dict[str, Any]) -> bool:
    return bool(layout.get("needs"))


def _incomplete(place: Path, layout: dict[str, Any]) -> str | None:
    if not place.exists():
        return "the pointer names it, and it is not there"
    for one_of in layout.get("needs", ()):
        if not any(_has(place, pattern) for pattern in one_of):
            return f"it has no {' or '.join(one_of[:2])}"
    for pattern in layout.get("index", ()):
        for index in place.glob(pattern):
            if missing := missing_of_index(index):
                return missing
    return next((wrong for file in files_of(place) if (wrong := what_is_wrong(file))), None)


def _has(place: Path, pattern: str) -> bool:
    return next(place.glob(pattern), None) is not None


def _is_changing(place: Path, settle_s: float, sleep: Callable[[float], None]) -> bool:
    before = _look(place)
    if time.time() - max((changed for _, _, changed in before), default=0.0) > LATELY_S:
        return False
    sleep(settle_s)
    return _look(place) != before


def _look(place: Path) -> list[tuple[str, int, float]]:
    return sorted(_sizes(files_of(place)))


def _sizes(files: Iterator[Path]) -> Iterator[tuple[str, int, float]]:
    for file in files:
        try:
            found = file.stat()
        except OSError:
            yield str(file), -1, time.time()
        else:
            yield str(file), found.st_size, found.st_mtime


def _changed(place: Path) -> float:
    return max((changed for _, _, changed in _sizes(files_of(place))), default=0.0)


@cache
def _layouts() -> Sequence[dict[str, Any]]:
    layouts: list[dict[str, Any]] = load("recovery/layouts.yaml")["layouts"]
    return layouts
