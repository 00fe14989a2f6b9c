"""The newest complete checkpoint of a job, and the command that resumes from it.

A checkpoint that is still being written, or whose writer was killed, must not be used: all files of
its layout must exist (`layouts.yaml`), each must be complete, and none may change. Nothing is
unpickled: a checkpoint can be a program.
"""

from __future__ import annotations

import json
import re
import shlex
import struct
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from schedmate.base.data import load
from schedmate.base.errors import InputError
from schedmate.base.files import children, is_dir, walk
from schedmate.base.reading import ANY_SIZE, open_binary, read_bytes

SETTLE_S = 2.0
"""Time between two readings of a checkpoint that was written recently [s]."""
LATELY_S = 120.0
"""A file that was changed within this time, or in the future, may still be written to [s]."""
MOST_CANDIDATES = 1000
"""Checkpoints of a directory that are considered, the newest ones."""


class Checkpoint(NamedTuple):
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


class _Candidate(NamedTuple):
    path: Path
    step: int | None
    time: float


def newest_checkpoint(
    folder: Path, *, settle_s: float = SETTLE_S, sleep: Callable[[float], None] = time.sleep
) -> Checkpoint | None:
    """The newest complete checkpoint in a directory; None if there is none.

    Raises `InputError` if the directory cannot be read.
    """
    if not is_dir(folder):
        raise InputError(f"{folder} is not a directory of checkpoints.")
    passed_over: list[str] = []
    for layout in _load_layouts():
        for candidate in _candidates(folder, layout):
            wrong = _incomplete(candidate.path, layout)
            if wrong is None and _is_changing(candidate.path, settle_s, sleep):
                wrong = "it is still being written"
            if wrong is not None:
                passed_over.append(f"{candidate.path.name}: {wrong}")
                continue
            return Checkpoint(
                path=candidate.path,
                layout=layout["name"],
                step=candidate.step,
                time=candidate.time,
                why=layout.get("why", f"the newest complete one of {layout['name']}'s"),
                passed_over=tuple(passed_over),
                load=folder if layout["takes"] == "folder" else candidate.path,
                options=tuple(layout["resume"]),
            )
    if passed_over:
        listed = "; ".join(passed_over[:5])
        raise InputError(f"{folder} has no complete checkpoint: {listed}.")
    return None


def resume_command(command: str, saved: Checkpoint) -> tuple[str, str]:
    """The command that resumes from a checkpoint, and its changes in words.

    An option that names a checkpoint gets the new one; without one, the first that programs of this
    layout have is added, which the reader has to check. A program that finds its checkpoint by
    itself keeps its command. Raises `InputError` if it is not a command line.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"the launch command cannot be read: {error}.") from None
    data = load("cluster/recovery/layouts.yaml")
    if any(word.partition("=")[0] in data["automatic"] for word in words):
        return command, "the program finds its newest checkpoint by itself"
    split_words = [(n, word.partition("=")) for n, word in enumerate(words)]
    options = [(n, parts) for n, parts in split_words if parts[0] in data["options"]]
    path = str(saved.load)
    if options:
        number, (option, equals, _) = options[-1]
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


def _candidates(folder: Path, layout: dict[str, Any]) -> list[_Candidate]:
    """The checkpoints of a layout, newest first; what its pointer names comes before all."""
    steps = re.compile(layout.get("step", r"(\d+)"))
    candidates = []
    for place in children(folder):
        named = any(fnmatchcase(place.name, pattern) for pattern in layout["each"])
        if not named or place.is_dir() is not _of_folders(layout):
            continue
        if _of_folders(layout) and not any(True for _ in checkpoint_files(place)):
            continue
        digits = steps.findall(place.name)
        step = int(digits[-1]) if digits and len(digits[-1]) < 13 else None
        candidates.append(_Candidate(place, step, _changed(place)))
    if "pointer" in layout:
        return _pointed(folder, layout, candidates)
    by_time = layout["newest"] == "time"
    candidates.sort(
        key=lambda candidate: (0 if by_time else candidate.step or 0, candidate.time), reverse=True
    )
    return candidates[:MOST_CANDIDATES] if _fits(layout, candidates) else []


def _pointed(
    folder: Path, layout: dict[str, Any], candidates: list[_Candidate]
) -> list[_Candidate]:
    pointer = folder / layout["pointer"]
    try:
        with open_binary(pointer) as stream:
            text = stream.read(200).decode("ascii", "replace").strip()
    except (OSError, InputError):
        return []
    if "{text:07d}" in layout["at"]:
        name = f"iter_{int(text):07d}" if text.isdecimal() and len(text) < 13 else text
    else:
        name = text
    if not name or Path(name).name != name:  # only a file name beside the pointer
        return []
    first = [candidate for candidate in candidates if candidate.path.name == name]
    if not first and (folder / name).is_dir():
        first = [_Candidate(folder / name, None, _changed(folder / name))]
    # checkpoints begun after the pointer was written are not complete
    pointed_step = first[0].step if first else None
    rest = [
        candidate
        for candidate in sorted(candidates, key=lambda candidate: candidate.step or 0, reverse=True)
        if candidate not in first and (pointed_step is None or (candidate.step or 0) < pointed_step)
    ]
    missing = [] if first else [_Candidate(folder / name, None, 0.0)]
    return [*first, *missing, *rest][:MOST_CANDIDATES]


def _fits(layout: dict[str, Any], candidates: list[_Candidate]) -> bool:
    """Whether a directory is of a layout: any of its checkpoints has something that it needs."""
    needs = layout.get("needs")
    return not needs or any(
        _has(one.path, pattern) for one in candidates[:50] for one_of in needs for pattern in one_of
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
            if missing := missing_shard(index):
                return missing
    return next((wrong for file in checkpoint_files(place) if (wrong := what_is_wrong(file))), None)


def _has(place: Path, pattern: str) -> bool:
    return next(place.glob(pattern), None) is not None


def _is_changing(place: Path, settle_s: float, sleep: Callable[[float], None]) -> bool:
    before = _file_states(place)
    if time.time() - max((changed for _, _, changed in before), default=0.0) > LATELY_S:
        return False
    sleep(settle_s)
    return _file_states(place) != before


def _file_states(place: Path) -> list[tuple[str, int, float]]:
    return sorted(_sizes(checkpoint_files(place)))


def _sizes(files: Iterator[Path]) -> Iterator[tuple[str, int, float]]:
    for file in files:
        try:
            status = file.stat()
        except OSError:
            yield str(file), -1, time.time()
        else:
            yield str(file), status.st_size, status.st_mtime


def _changed(place: Path) -> float:
    return max((changed for _, _, changed in _sizes(checkpoint_files(place))), default=0.0)


@cache
def _load_layouts() -> Sequence[dict[str, Any]]:
    layouts: list[dict[str, Any]] = load("cluster/recovery/layouts.yaml")["layouts"]
    return layouts


# Whether the files of a checkpoint are complete, checked without loading them.
#
# Nothing is unpickled: a checkpoint can be a program. `torch.save` writes a ZIP archive, whose
# directory is at its end; safetensors states its own length. Other files are only checked to be
# not empty and not growing.


DEEPEST = 4
MOST_FILES = 20_000
LONGEST_HEADER = 100 << 20
"""Bytes of a safetensors header, which its format limits to 100 MB."""


def checkpoint_files(place: Path) -> Iterator[Path]:
    """The regular files of a checkpoint, which is one file or a directory; links lead nowhere."""
    if place.is_file():
        yield place
        return
    count = 0
    for folder, folders, names in walk(place):
        here = Path(folder)
        if len(here.relative_to(place).parts) >= DEEPEST:
            folders.clear()
        for name in names:
            count += 1
            if count > MOST_FILES:
                return
            if (here / name).is_file():
                yield here / name


def what_is_wrong(place: Path) -> str | None:
    """Why a file cannot be a complete checkpoint; None: no reason found."""
    try:
        size = place.stat().st_size
        if size == 0:
            return f"{place.name} is empty"
        if place.suffix == ".safetensors":
            return _safetensors(place, size)
        with open_binary(place, most=ANY_SIZE) as stream:
            start = stream.read(4)
        if start == b"PK\x03\x04":
            return None if _has_directory(place) else f"{place.name} is cut off"
    except OSError as error:
        return f"{place.name} cannot be read ({error.strerror})"
    return None


def _has_directory(place: Path) -> bool:
    try:
        with open_binary(place, most=ANY_SIZE) as stream, zipfile.ZipFile(stream) as archive:
            return bool(archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error):
        return False


def _safetensors(place: Path, size: int) -> str | None:
    cut = f"{place.name} is cut off"
    with open_binary(place, most=ANY_SIZE) as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, LONGEST_HEADER):
            return cut
        try:
            header = json.loads(stream.read(length))
        except (ValueError, RecursionError):
            return f"{place.name} has no header"
    if not isinstance(header, dict):
        return f"{place.name} has no header"
    ends = [
        tensor["data_offsets"][1]
        for tensor in header.values()
        if isinstance(tensor, dict)
        and isinstance(tensor.get("data_offsets"), list)
        and len(tensor["data_offsets"]) == 2
        and isinstance(tensor["data_offsets"][1], int)
    ]
    return None if size >= 8 + length + max(ends, default=0) else cut


def missing_shard(index: Path) -> str | None:
    """The first missing file of an index of shards, if any."""
    try:
        document = json.loads(read_bytes(index, most=LONGEST_HEADER))
        names = set(document["weight_map"].values())
    except (OSError, InputError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return f"{index.name} cannot be read"
    for name in sorted(map(str, names)):
        # an index names only files beside it
        if Path(name).name != name or not (index.parent / name).is_file():
            return f"{name} of {index.name} is not there"
    return None
