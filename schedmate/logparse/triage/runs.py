"""Tells which files of a directory are the ranks of one run, by names and contents.

Names alone are not enough: a folder of collected logs has numbers in all of its names. Files are
taken as one run only if their names differ by ranks alone and their contents agree. The reason is
recorded, as is the reason for files that are not taken as one run.

It also warns if a directory that is read as one job holds the logs of several. Logs of one program
share their lines whether they are of sixty ranks or of sixty runs, so similarity alone shows
nothing. Without ranks in their names or an identifier that both logs state, job numbers in their
names and different last steps indicate several jobs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from schedmate.base.terminal import counted
from schedmate.logparse.reading import Log, LogError, LogFile, parse_line
from schedmate.logparse.reading.folder import Folder
from schedmate.logparse.reading.lines import seconds_apart
from schedmate.logparse.reading.log import open_files
from schedmate.logparse.signs import last_sign
from schedmate.logparse.templates import mask

# Words before the number of a process of one run. Of a GPU, a node, a task or a pod there may be
# several, each with a run of its own: those are numbers like any other.
_RANK_IN_NAME = re.compile(
    r"(?<![a-z])((?:local|global|node|world)?[-_. ]?(?:rank|worker|process|proc|replica|trainer))"
    r"([-_. =]?)(\d{1,6})(?!\d)",
    re.IGNORECASE,
)
_ATTEMPT = re.compile(r"(?<![a-z])(attempt|restart|try)([-_.]?)(\d{1,4})(?!\d)", re.IGNORECASE)
_STREAM = re.compile(
    r"(?<![a-z])std(?:out|err)(?![a-z])|(?<=[._-])(?:out|err)(?=$|[._-])", re.IGNORECASE
)
_NUMBER_IN_NAME = re.compile(r"\d+")
_PACKED = re.compile(r"\.(?:gz|zst)$")


class FileName(NamedTuple):
    """A path without the parts that may distinguish ranks.

    `numbers` are those parts, `attempts` those of attempts. `sure` is whether words before the
    numbers identify them as ranks; `stream` is the output stream of the process.
    """

    shape: str
    numbers: tuple[int, ...]
    attempts: tuple[int, ...]
    stream: str
    sure: bool


def name_of(path: PurePath) -> FileName:
    """The parts of a file's path, relative to the examined directory, that name its rank."""
    text = _PACKED.sub("", path.as_posix())
    attempts = tuple(int(match[3]) for match in _ATTEMPT.finditer(text))
    text = _ATTEMPT.sub("{attempt}", text)
    streams = _STREAM.findall(text)
    text = _STREAM.sub("{stream}", text)
    ranks = [int(match[3]) for match in _RANK_IN_NAME.finditer(text)]
    text = _RANK_IN_NAME.sub(lambda match: match[1].lower() + "{rank}", text)
    parts = text.split("/")
    if streams and len(parts) > 1 and attempts and parts[-2].isdigit() and len(parts[-2]) < 7:
        # as torchelastic names them, RUN_ID/attempt_0/3/stderr.log
        ranks.append(int(parts[-2]))
        parts[-2] = "{rank}"
        text = "/".join(parts)
    sure = bool(ranks)
    if not sure:
        numbers = _NUMBER_IN_NAME.findall(text)
        if any(len(number) > 15 for number in numbers):
            numbers = []
        elif numbers:
            ranks = [int(number) for number in numbers]
            text = _NUMBER_IN_NAME.sub("{number}", text)
    stream = streams[0].lower() if streams else ""
    return FileName(text, tuple(ranks), attempts, stream, sure)


# The identity that a log states for its run, and whether two logs state the same.


LOOKED_AT = 1 << 13
"""Bytes that are read from either end of a log."""
LINES_READ = 40
"""Lines that are read from either end."""
TIME_SLACK = 900.0
"""Limit for the difference between the beginnings, or ends, of logs of one run [s]."""
SHARED_KINDS = 0.5
"""Share of the shorter log's kinds of lines that logs of one program have in common."""
FEWEST_KINDS = 3
"""Minimum number of kinds of lines for that comparison."""

_IDENTITY = {
    "job id": re.compile(r"\b(?:slurm_?)?job_?id\b\W{1,4}(\w[\w.-]{2,60})", re.IGNORECASE),
    "rendezvous": re.compile(
        r"\brdzv_?(?:id|endpoint)\b\W{1,4}(\w[\w.:-]{2,80})|\b(tcp://[\w.:-]{5,80})", re.IGNORECASE
    ),
    "master": re.compile(r"\bmaster_?addr(?:ess)?\b\W{1,4}(\w[\w.:-]{2,80})", re.IGNORECASE),
    "communicator": re.compile(r"\bcommId (0x[0-9a-f]{6,16})", re.IGNORECASE),
    "run id": re.compile(r"\brun[_ -]?id\b\W{1,4}(\w[\w.-]{4,60})", re.IGNORECASE),
}
_LOCAL = re.compile(r"(?:tcp://)?(?:localhost|127\.0\.0\.1|0\.0\.0\.0|none|null)\b", re.IGNORECASE)
_RANK_STATED = re.compile(r"(?<![a-z_])(?:global[_ ])?rank\b\W{0,3}(\d{1,6})(?!\d)", re.IGNORECASE)
_WORLD_SIZE_STATED = re.compile(r"\b(?:world_?size|nranks)\b\W{0,3}(\d{1,6})(?!\d)", re.IGNORECASE)


@dataclass
class LogIdentity:
    """The writer of a log as stated at its two ends; fields are empty if not stated.

    `first` and `last` are the times of its lines [s since epoch], see `apart`. `kinds` are its
    lines without numbers and names.
    """

    ids: dict[str, set[str]] = field(default_factory=dict)
    rank: int | None = None
    worlds: set[int] = field(default_factory=set)
    first: float | None = None
    last: float | None = None
    kinds: set[str] = field(default_factory=set)


@cache
def _identifying() -> Any:
    """Whether a log states anything that identifies its run; most do not."""
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(
        rb"(?i)job_?id|rdzv_?|tcp://|master_?addr|commId|run[_ -]?id|rank|world_?size", options
    )


def identity_of(path: Path, folder: Folder, *, whole: bool = True) -> LogIdentity:
    """The contents of both ends of a file; empty if it cannot be read as a log.

    Without `whole`, they are also empty if the log does not identify its run.
    """
    identity = LogIdentity()
    ranks: Counter[int] = Counter()
    try:
        log = open_files(str(path), [path], folder)
    except LogError:
        return identity
    with log:
        for file in log.files:
            head = file.read(0, LOOKED_AT)
            tail = file.read(max(0, file.size - LOOKED_AT), LOOKED_AT)
            if not (whole or _identifying().search(head) or _identifying().search(tail)):
                continue
            for raw in [*head.split(b"\n")[:LINES_READ], *tail.split(b"\n")[-LINES_READ:]]:
                line = parse_line(raw, 0, file.layout)
                if not line.text.strip():
                    continue
                identity.kinds.add(mask(line.text))
                if line.time is not None:
                    identity.first = line.time if identity.first is None else identity.first
                    identity.last = line.time
                if line.rank is not None:
                    ranks.update([line.rank])
                if not _identifying().search(raw):
                    continue
                _identify(identity, line.text)
                ranks.update([] if line.rank is not None else _numbers(_RANK_STATED, line.text))
                identity.worlds.update(_numbers(_WORLD_SIZE_STATED, line.text))
    if len(ranks) == 1:  # several speak of each other, or are in one file
        identity.rank = next(iter(ranks))
    return identity


def _identify(identity: LogIdentity, text: str) -> None:
    for name, pattern in _IDENTITY.items():
        for match in pattern.finditer(text):
            value = next(group for group in match.groups() if group).rstrip(".:,")
            if not _LOCAL.match(value):
                identity.ids.setdefault(name, set()).add(value)


def _numbers(pattern: re.Pattern[str], text: str) -> list[int]:
    return [int(match[1]) for match in pattern.finditer(text)]


def why_different(
    one: LogIdentity, other: LogIdentity, *, attempts: bool = False, same_rank: bool = False
) -> str | None:
    """The reason why two logs are not of one run, or None.

    `attempts` is whether they are of different attempts, which follow one another; `same_rank`
    whether they are of one rank by their names.
    """
    for name in one.ids.keys() & other.ids.keys():
        if name == "job id" and not one.ids[name] & other.ids[name]:
            return "they name different jobs"
    if one.worlds and other.worlds and not one.worlds & other.worlds:
        return "they name different numbers of ranks"
    if not (attempts or same_rank) and one.rank is not None and one.rank == other.rank:
        return f"both are of rank {one.rank}"
    if not attempts and _overlap(one, other) is False:
        return "they were written at different times"
    return None


def what_agrees(one: LogIdentity, other: LogIdentity) -> tuple[list[str], bool]:
    """What two logs of one run have in common, and whether only such logs would."""
    reasons, sure = [], False
    for name in sorted(one.ids.keys() & other.ids.keys()):
        if one.ids[name] & other.ids[name]:
            reasons.append(f"the same {name}")
            sure = True
    if one.rank is not None and other.rank is not None and one.rank != other.rank:
        reasons.append("lines that name their ranks")
        sure = sure or bool(one.worlds & other.worlds)
    if _overlap(one, other):
        reasons.append("overlapping times")
    few = min(len(one.kinds), len(other.kinds))
    if few >= FEWEST_KINDS and len(one.kinds & other.kinds) >= SHARED_KINDS * few:
        reasons.append("the same lines")
    return reasons, sure


def _overlap(one: LogIdentity, other: LogIdentity) -> bool | None:
    """Whether two logs were written at the same time; None if their times are not comparable."""
    if one.first is None or one.last is None or other.first is None or other.last is None:
        return None
    before, after = seconds_apart(one.first, other.last), seconds_apart(other.first, one.last)
    if before is None or after is None:
        return None
    return before <= TIME_SLACK and after <= TIME_SLACK


# Which files of a directory are the ranks of one run, by names and contents.
#
# Names alone are not enough: a folder of collected logs has numbers in all of its names. Files are
# taken as one run only if their names differ by ranks alone and their contents agree. The reason
# is recorded, as is the reason for files that are not taken as one run.


ERROR_FILE = "error.json"
"""The file that torchelastic writes beside the logs of a rank."""
RUNS_TRIED = 50
"""Limit for the runs with similar names that a log is compared with."""


@dataclass
class Run:
    """The files of one job. `why` is the reason to take them as one; empty for a single file."""

    files: list[Path]
    why: str = ""
    name: FileName | None = None
    contents: LogIdentity | None = None
    members: set[tuple[object, ...]] = field(default_factory=set)


def find_runs(paths: Iterable[Path], folder: Folder) -> tuple[list[Run], list[str]]:
    """The jobs of the files in a directory, and notes on likely ranks that do not agree."""
    alike: dict[str, list[tuple[Path, FileName]]] = {}
    errors: list[Path] = []
    for path in paths:
        if path.name == ERROR_FILE:
            errors.append(path)
            continue
        name = name_of(path.relative_to(folder.root))
        alike.setdefault(name.shape, []).append((path, name))
    runs: list[Run] = []
    notes: list[str] = []
    for shape, members in alike.items():
        if len(members) == 1:
            runs.append(Run([members[0][0]], name=members[0][1]))
            continue
        jobs = _grouped(members, folder)
        runs += jobs
        if len(jobs) > 1 and members[0][1].sure:
            notes.append(
                f"{len(members):,} files of {folder.root} named like {shape} have the names of "
                f"ranks; what they say makes them {len(jobs):,} jobs."
            )
    _add_errors(runs, errors)
    return sorted(runs, key=lambda run: run.files[0]), notes


def _grouped(members: list[tuple[Path, FileName]], folder: Folder) -> list[Run]:
    """Files whose names differ by numbers alone, grouped into runs by their contents."""
    jobs: list[Run] = []
    members.sort(key=lambda member: (member[1].numbers, member[1].attempts, member[1].stream))
    for path, name in members:
        contents = identity_of(path, folder, whole=name.sure or bool(name.stream))
        for run in jobs[-RUNS_TRIED:]:
            why = _why_of_run(run, name, contents)
            if why is not None:
                run.files.append(path)
                run.members.add(_rank_key(name))
                run.why = run.why or why
                break
        else:
            jobs.append(Run([path], "", name, contents, {_rank_key(name)}))
    return jobs


def _rank_key(name: FileName) -> tuple[object, ...]:
    return name.numbers, name.attempts, name.stream


def _why_of_run(run: Run, name: FileName, contents: LogIdentity) -> str | None:
    """The reason why a file belongs to a run, or None."""
    assert run.name is not None
    assert run.contents is not None
    if _rank_key(name) in run.members:
        return None
    same_rank = name.numbers == run.name.numbers
    attempts = name.attempts != run.name.attempts
    if why_different(run.contents, contents, attempts=attempts, same_rank=same_rank) is not None:
        return None
    if same_rank and not attempts:
        return "the two outputs of one process"
    reasons, sure = what_agrees(run.contents, contents)
    if not (sure or (name.sure and reasons)):
        return None
    what = "names that differ by rank" if name.sure else "names that differ by number"
    return f"{what}, {' and '.join(reasons)}"


def _add_errors(runs: list[Run], errors: list[Path]) -> None:
    """Add the error file of a rank to the files beside it, if those are of one run."""
    for path in errors:
        beside = [run for run in runs if any(file.parent == path.parent for file in run.files)]
        if len(beside) == 1:
            beside[0].files.append(path)
        else:
            runs.append(Run([path]))


# Whether the logs of a directory that is read as one job belong to several.
#
# Logs of one program share their lines whether they are of sixty ranks or of sixty runs, so
# similarity alone shows nothing. Without ranks in their names or an identifier that both logs
# state, job numbers in their names and different last steps indicate several jobs.


RUNS_COMPARED = 50
"""Limit for the runs that are compared with each other."""
LAST_STEP_WITHIN = 1 << 16
"""Range above the end of a log in which its last step is searched [bytes]."""
STEPS_APART, SHARE_APART = 10, 0.1
"""The last steps of one run's ranks differ by less than this, or by less than this share."""

_JOB = re.compile(
    r"(?<![a-z])(?:job|slurm|run|exp(?:eriment)?|trial|sweep|seed)[-_.]?(\d+(?:_\d+)?)",
    re.IGNORECASE,
)
_JOB_ID = re.compile(r"(?!(?:nid|node|host))(?:\D*[-_.])?(\d{4,12}(?:_\d+)?)\.\D+$", re.IGNORECASE)
_COUNT = re.compile(r"(\d{1,12})(?:\s?/\s?\d+)?")


def warn_if_mixed(path: Path, log: Log, *, follow_links: bool = False) -> str | None:
    """A warning that the files of a directory are probably of several jobs, or None.

    They are if two of them contradict each other, or if neither names nor contents connect them.
    """
    folder = Folder(path, follow_links)
    paths = [file.path for file in log.files if file.path is not None]
    runs, _ = find_runs(paths, folder) if len(paths) > 1 else ([], [])
    if len(runs) < 2:
        return None
    why = _why_several(runs[:RUNS_COMPARED], folder, log.files)
    if why is None:
        return None
    return (
        f"the {counted(len(paths), 'log')} of {path} look like those of separate jobs, not the "
        f"ranks of one ({why}), and are read as one job all the same; `schedmate triage {path}` "
        "diagnoses each job by itself."
    )


def _why_several(runs: list[Run], folder: Folder, files: Sequence[LogFile]) -> str | None:
    every: list[tuple[Path, FileName, LogIdentity]] = [
        (path, name_of(path.relative_to(folder.root)), identity_of(path, folder))
        for path in (run.files[0] for run in runs)
    ]
    for (path, name, contents), (other, its_name, its_contents) in combinations(every, 2):
        attempts = name.attempts != its_name.attempts
        # beside the logs of ranks may lie one of the launcher, which speaks of a rank too
        same_rank = name.shape != its_name.shape or name.numbers == its_name.numbers
        why = why_different(contents, its_contents, attempts=attempts, same_rank=same_rank)
        if why is not None:
            return f"of {path.name} and {other.name}: {why}"
    first, *others = every
    if any(name.sure for _, name, _ in every):
        return None
    sure = True
    for path, _, contents in others:
        reasons, same = what_agrees(first[2], contents)
        sure = sure and same
        if not reasons:
            return f"{first[0].name} and {path.name} have nothing in common"
    if sure:
        return None
    paths = [path for path, _, _ in every]
    if _by_rank(every):
        return None
    return _by_numbers(paths) or _by_steps(paths, files)


def _by_rank(every: Sequence[tuple[Path, FileName, LogIdentity]]) -> bool:
    """Whether the names differ only by their last number, the rank that each log states."""
    names = [name for _, name, _ in every]
    return (
        len({(name.shape, name.numbers[:-1]) for name in names}) == 1
        and len({name.numbers for name in names}) == len(names)
        and all(name.numbers and name.numbers[-1] == contents.rank for _, name, contents in every)
    )


def _by_numbers(paths: Sequence[Path]) -> str | None:
    """The reason to see several jobs, by the job numbers in file names, or None."""
    numbers = []
    for path in paths:
        match = _JOB.search(path.name) or _JOB_ID.match(path.name)
        if match is None:
            return None
        numbers.append(match[1])
    if len({*numbers}) < len(numbers):
        return None
    return f"their names are those of jobs, such as {paths[0].name} and {paths[-1].name}"


def _by_steps(paths: Sequence[Path], files: Sequence[LogFile]) -> str | None:
    """The reason to see several jobs, by the steps at which the files end, or None."""
    by_path = {file.path: file for file in files}
    last = {path.name: count for path in paths if (count := _last_count(by_path.get(path)))}
    if len(last) < 2:
        return None
    least, most = min(last, key=last.__getitem__), max(last, key=last.__getitem__)
    if last[most] - last[least] <= max(STEPS_APART, SHARE_APART * last[most]):
        return None
    return f"{least} ends at step {last[least]:,}, {most} at step {last[most]:,}"


def _last_count(file: LogFile | None) -> int | None:
    """The count of the last step in a log; None without one, or if counts are within epochs."""
    if file is None:
        return None
    sign = last_sign("progress", file, file.align(max(0, file.size - LAST_STEP_WITHIN)), file.size)
    file.close()
    match = _COUNT.fullmatch(sign.groups.get("at", "")) if sign is not None else None
    return int(match[1]) if match is not None else None
