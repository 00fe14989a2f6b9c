"""What a batch is made of: a directory, a glob, or a list of jobs with what accounting knows."""

from __future__ import annotations

import csv
import glob
import re
from dataclasses import dataclass, field
from pathlib import Path

from schedmate.data import load
from schedmate.durations import parse_duration
from schedmate.errors import InputError, UsageError, similar_file
from schedmate.logparse.reading.trackers import of_tracker
from schedmate.terminal import clean

TRACKER = "wandb"
"""The directory in which an experiment tracker keeps its own records."""
MAX_NODES = 20_000
"""Most nodes that one job is taken to have."""

_HOSTS = re.compile(r"([^\[\],\s]*)\[([\d,-]+)\]([^\[\],\s]*)|([^\[\],\s]+)")


@dataclass(frozen=True)
class Target:
    """One job: its log (a file or a directory of rank files), and what is known of it.

    `duration_s` [s] and `gpus` are of the whole job.
    """

    index: int
    job_id: str
    log: Path
    duration_s: float | None = None
    gpus: float | None = None
    nodes: tuple[str, ...] = ()
    workload: str | None = None
    state: str | None = None
    user: str | None = None

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours the job held, None when its duration or its GPUs are not known."""
        if self.duration_s is None or self.gpus is None:
            return None
        return self.duration_s * self.gpus / 3600


@dataclass
class Batch:
    """The jobs of one triage, and what was odd about the list of them."""

    source: str
    targets: list[Target]
    warnings: list[str] = field(default_factory=list)


def find_targets(source: str) -> Batch:
    """The jobs of a directory, a glob or a CSV file.

    In a directory each file, and each sub-directory with its rank files, is a job; so is each
    match of a glob. A file is a CSV list with a header and at least the column `log`; see
    `columns.yaml` for the others. Raises `InputError` when there is nothing to triage.
    """
    path = Path(source)
    try:
        if path.is_dir():
            entries = sorted(path.iterdir())
            return _plain(source, [entry for entry in entries if not entry.name.startswith(".")])
        if path.exists():
            return _listed(path)
        if glob.has_magic(source):
            found = glob.glob(source, recursive=True)  # noqa: PTH207 - also of absolute paths
            return _plain(source, [Path(name) for name in sorted(found)])
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror}; check its rights.") from None
    what = "; give a directory of logs, a quoted glob or a CSV list of jobs."
    raise InputError(f"there is no {source}{similar_file(source) or what}")


def _plain(source: str, paths: list[Path]) -> Batch:
    odd = [path for path in paths if not (path.is_file() or path.is_dir())]
    jobs = [path for path in paths if not (path.is_file() and of_tracker(path))]
    if any(path.name != TRACKER for path in jobs):  # it keeps the runs of the jobs beside it
        jobs = [path for path in jobs if path.name != TRACKER]
    paths = sorted(set(jobs).difference(odd))
    if not paths:
        raise InputError(f"{source} holds no logs; each file or sub-directory there is one job.")
    names = [path.name.removesuffix(".gz").removesuffix(".zst") for path in paths]
    stems = [Path(name).stem or name for name in names]
    ids = stems if len(set(stems)) == len(stems) else [str(path) for path in paths]
    targets = [Target(i, ids[i], path) for i, path in enumerate(paths)]
    return Batch(source, targets, [f"{path} is no file and was left out." for path in odd])


def _listed(path: Path) -> Batch:
    batch = Batch(str(path), [])
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        try:
            header = stream.readline()
            stream.seek(0)
            rows = csv.DictReader(stream, delimiter=max(",;\t|", key=header.count))
            columns = _columns(list(rows.fieldnames or ()), path)
            for row in rows:
                values = {name: (row.get(column) or "").strip() for name, column in columns.items()}
                if values["log"]:
                    batch.targets.append(
                        _target(len(batch.targets), values, path, rows.line_num, batch.warnings)
                    )
                elif any(values.values()):
                    batch.warnings.append(f"line {rows.line_num} of {path} names no log.")
        except csv.Error as error:
            raise InputError(f"{path} is no CSV: {error}; correct it.") from None
    if not batch.targets:
        raise InputError(f"{path} lists no jobs; give a header and a row a job.")
    return batch


def _columns(header: list[str], path: Path) -> dict[str, str]:
    known = load("logparse/triage/columns.yaml")
    found: dict[str, str] = {}
    for name, spellings in known.items():
        for column in header:
            if name not in found and re.sub(r"[^a-z]", "", (column or "").lower()) in spellings:
                found[name] = column
    if "log" not in found:
        shown = clean(", ".join(map(str, header)), 200) or "none"
        raise InputError(
            f"{path} has no column `log` (it has: {shown}); a job list is a CSV file with a header "
            "and a column with the path of each job's log. For one log use `schedmate diagnose`."
        )
    return found


def _target(
    index: int, values: dict[str, str], path: Path, line: int, warnings: list[str]
) -> Target:
    def amount(name: str, parse: type[float] | None) -> float | None:
        text = values.get(name, "")
        if not text:
            return None
        try:
            number = parse_duration(text) if parse is None else parse(text)
            if 0 <= number < float("inf"):
                return number
        except (ValueError, UsageError):
            pass
        warnings.append(f"line {line} of {path}: {name} {clean(text, 40)!r} is not understood.")
        return None

    log = path.parent / values["log"]
    return Target(
        index,
        values.get("job_id") or values["log"],
        log,
        duration_s=amount("duration", None),
        gpus=amount("gpus", float),
        nodes=expand_hosts(values.get("nodes", "")),
        workload=values.get("workload") or None,
        state=values.get("state") or None,
        user=values.get("user") or None,
    )


def expand_hosts(text: str) -> tuple[str, ...]:
    """Slurm's `gpu[01-03,07],login1` as names; a mere number of nodes names none."""
    if text.strip().isdigit():
        return ()
    names: dict[str, None] = {}
    for before, ranges, after, plain in _HOSTS.findall(text.replace(";", ",")):
        if plain:
            names[plain] = None
            continue
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            if not re.fullmatch(r"\d{1,9}(-\d{1,9})?", part):
                continue
            stop = min(int(last or first), int(first) + MAX_NODES)
            for number in range(int(first), stop + 1):
                names[f"{before}{number:0{len(first)}}{after}"] = None
    return tuple(names)[:MAX_NODES]
