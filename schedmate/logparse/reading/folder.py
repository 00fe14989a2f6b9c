"""Finds and opens the log files of one directory; no link leads outside of it.

A link within a directory may point to any file of the machine, and a name may become a link between
check and use. So files are opened from the directory downwards without following links, and checks
apply to the opened file. Also here: which files are the records of an experiment tracker.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from schedmate.base.errors import InputError, similar_file

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NOTES_SHOWN = 20
"""Limit for the skipped entries that are named individually."""


class LogError(InputError):
    """A log is missing, unreadable or not a log."""


def open_regular(path: Path) -> int:
    """A descriptor of the regular file at `path`, which a person named: links are followed.

    Raises `LogError`. Never waits for the other end of a FIFO.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _no_file(path)
        return _regular(os.open(path, _READ), path)
    except FileNotFoundError:
        hint = similar_file(path) or "; give the path of a log file or of a directory of logs."
        raise LogError(f"{path} does not exist{hint}") from None
    except OSError as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: OSError) -> LogError:
    """The error message for a file that cannot be opened or read."""
    return LogError(
        f"cannot read {path}: {error.strerror or error}; check the path and its rights."
    )


@dataclass(frozen=True)
class Folder:
    """A directory that a person named, and what may be read in it.

    With `follow_links` that includes the targets of links in it.
    """

    root: Path
    follow_links: bool = False

    @cached_property
    def real(self) -> Path:
        """The directory itself if `root` is a link to it."""
        return Path(os.path.realpath(self.root))

    def open(self, path: Path) -> int:
        """A descriptor of a regular file in the directory; raises `LogError` for any other."""
        if self.follow_links:
            return open_regular(path)
        try:
            real, root = Path(os.path.realpath(path)), self.real
            if not real.is_relative_to(root):
                raise LogError(f"{path} leads out of {self.root}; --follow-links reads it.")
            return _regular(_descend(root, real.relative_to(root).parts), path)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise LogError(f"{path} was made a link while it was read.") from None
            raise unreadable(path, error) from None

    def files(self, most: int | None = None) -> FolderFiles:
        """Its files, including those of all folders below it, and notes on what was left out.

        Raises `LogError` as soon as there are more than `most`.
        """
        listing = FolderFiles(self, most)
        listing.look_at(self.root)
        listing.sort_out_links()
        return listing


def _descend(root: Path, parts: tuple[str, ...]) -> int:
    """Open a file from its directory downwards, if no part of the path is a link."""
    folder = os.open(root, _FOLDER)
    try:
        for part in parts[:-1]:
            below = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        kind = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISREG(kind) or stat.S_ISLNK(kind):  # to open a device may do something
            return os.open(parts[-1], _READ | os.O_NOFOLLOW, dir_fd=folder)
        raise _no_file(root.joinpath(*parts))
    finally:
        os.close(folder)


def _regular(descriptor: int, path: Path) -> int:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _no_file(path)
    return descriptor


def _no_file(path: Path) -> LogError:
    return LogError(
        f"{path} is not a regular file; give the path of a log file or of a directory of logs."
    )


def too_many_files(root: Path, most: int) -> LogError:
    """What is said of a directory that is no job's."""
    return LogError(f"{root} holds more than {most:,} files; give the directory of one job.")


@dataclass
class FolderFiles:
    """The files of a directory in the order of their names; `notes` say what was left out."""

    folder: Folder
    most: int | None = None
    paths: list[Path] = field(default_factory=list)
    _left_out: list[str] = field(default_factory=list)
    _links: list[tuple[Path, Path]] = field(default_factory=list)
    _seen: set[tuple[int, int]] = field(default_factory=set)

    @property
    def notes(self) -> list[str]:
        """A note on each entry that was left out, or on how many more there were."""
        more = len(self._left_out) - NOTES_SHOWN
        rest = [f"{more:,} more of {self.folder.root} were left out for the like."]
        return self._left_out[:NOTES_SHOWN] + (rest if more > 0 else [])

    def look_at(self, folder: Path) -> None:
        """Add the files below a folder. Raises `LogError` if the first one is unreadable, or if
        there are too many."""
        waiting = [folder]
        while waiting:
            below = waiting.pop()
            try:
                if self._is_known(below.stat()):
                    continue
                with os.scandir(below) as entries:
                    ordered = sorted(entries, key=lambda entry: entry.name)
            except OSError as error:
                if below == folder:
                    raise unreadable(below, error) from None
                self._left_out.append(str(unreadable(below, error)))
                continue
            waiting += list(self._sub_folders(below, ordered))[::-1]
            if self.most is not None and len(self.paths) > self.most:
                raise too_many_files(self.folder.root, self.most)

    def take(self, path: Path) -> None:
        """Add one file, or those below a folder; links out of the directory are left out."""
        if why := self._where_it_leads(path):
            link = "is a link that" if path.is_symlink() else "lies behind a link that"
            self._left_out.append(f"{path} {link} {why}; it was left out.")
        elif path.is_dir():
            self.look_at(path)
        elif not path.is_file():
            self._left_out.append(f"{path} is not a regular file and was left out.")
        elif Path(os.path.realpath(path)) == self.folder.real / path.relative_to(self.folder.root):
            self.paths.append(path)
        else:
            self._links.append((path, Path(os.path.realpath(path))))

    def sort_out_links(self) -> None:
        """Add the targets of links within the directory that are not read by their own names."""
        read = {os.path.realpath(path) for path in self.paths}
        for path, real in self._links:
            if str(real) not in read:
                read.add(str(real))
                self.paths.append(path)
        self.paths = sorted(set(self.paths))

    def _sub_folders(self, folder: Path, entries: list[os.DirEntry[str]]) -> Iterator[Path]:
        for entry in entries:
            path = folder / entry.name
            if entry.name.startswith("."):
                continue
            if entry.is_symlink() and (why := self._where_it_leads(path)):
                self._left_out.append(f"{path} is a link that {why}; it was left out.")
            elif entry.is_dir(follow_symlinks=False):
                yield path
            elif entry.is_file(follow_symlinks=False):
                self.paths.append(path)
            elif not entry.is_symlink():
                self._left_out.append(f"{path} is not a regular file and was left out.")
            elif path.is_dir():
                yield path  # followed, or a folder of hidden ones; each is looked at once
            elif path.is_file():
                self._links.append((path, Path(os.path.realpath(path))))
            else:
                self._left_out.append(f"{path} leads to no regular file and was left out.")

    def _where_it_leads(self, path: Path) -> str | None:
        """The reason why a link is left out, or None."""
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError) as error:  # RuntimeError: a circle, before Python 3.13
            circle = isinstance(error, RuntimeError) or error.errno == errno.ELOOP
            return "leads in a circle" if circle else "leads nowhere"
        if self.folder.follow_links or real.is_relative_to(self.folder.real):
            return None
        return f"leads out of {self.folder.root}, to {real} (--follow-links reads it)"

    def _is_known(self, status: os.stat_result) -> bool:
        """Whether a folder has been read: links can make it appear below itself."""
        seen_before = (status.st_dev, status.st_ino) in self._seen
        self._seen.add((status.st_dev, status.st_ino))
        return seen_before


# Files of experiment trackers beside a job's logs.


# Weights & Biases: wandb/run-20240131_101112-abcd1234, below it logs/, files/ and a database.
_RUN = re.compile(r"(?:offline-)?run-\d{8}_\d{6}-\w+")
_OUTPUT = "output.log"
"""The output of the job as the tracker stored it."""


def is_of_tracker(path: Path) -> bool:
    """Whether a file is a tracker's own log or record, which says nothing about the job.

    The job's output as stored by the tracker does not count; see
    https://docs.wandb.ai/guides/track/log/log-summary#files-in-the-run-directory.
    """
    folders = path.parts[:-1]
    if any(_RUN.fullmatch(folder) for folder in folders):
        return path.name != _OUTPUT
    return (
        bool(folders)
        and folders[-1] == "wandb"
        and re.match(r"debug[\w-]*\.log", path.name) is not None
    )
