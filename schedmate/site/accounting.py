"""Reads a site's accounting to jobs, whatever wrote it, and takes the names out if asked.

`sacct --json` and `--parsable2` (Slurm 20.11 and later) and a job history come by the readers of
`retrieval`; here are CSV by the names of columns (`columns.yaml`), the Standard Workload Format of
the Parallel Workloads Archive, `kubectl get ... -o json`, and Ray's list of jobs. Every reader is a
generator; rows that cannot be used are counted, never raised.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any, NamedTuple

from schedmate.base.data import LONGEST_S, MOST_GPUS, load
from schedmate.base.errors import InputError, SchedmateError, UsageError
from schedmate.cluster.kubernetes.workloads import (
    Workload,
    describe_job,
    job_began,
    job_kinds,
    job_outcome,
    queue_of,
)
from schedmate.cluster.slurm.reading import hosts_of
from schedmate.jobs import JobRecord, JobState
from schedmate.retrieval.importers import Source, csv_table, detect_format, import_jsonl
from schedmate.retrieval.sacct import (
    ImportReport,
    JsonDocument,
    gpus_of,
    json_rows,
    parsable_rows,
    parse_number,
    parse_size,
    parse_state,
    parse_time,
    parse_tres,
    plain_number,
    unusable_reason,
    value_table,
)
from schedmate.retrieval.sacct import parse_duration as parse_length

FORMATS = ("sacct-json", "sacct", "csv", "jsonl", "kubectl-json", "ray-json", "swf")
"""What a job list may be written in."""
_SWF_STATES: dict[str, JobState] = {
    "0": "FAILED",
    "1": "COMPLETED",
    "2": "PREEMPTED",  # a part of a job that goes on later
    "3": "COMPLETED",  # its last part
    "4": "FAILED",  # the same
    "5": "CANCELLED",
}
_RAY_STATES: dict[str, JobState] = {
    "PENDING": "PENDING",
    "RUNNING": "RUNNING",
    "SUCCEEDED": "COMPLETED",
    "FAILED": "FAILED",
    "STOPPED": "CANCELLED",
}


class AccountedJob(NamedTuple):
    """One job of a site. Times in seconds since the epoch, or since the begin of the list."""

    id: str
    state: JobState
    user: str | None = None
    group: str | None = None
    """What users belong to: Slurm's account, the group of an archive, a tenant."""
    partition: str | None = None
    name: str | None = None
    submit: float | None = None
    start: float | None = None
    end: float | None = None
    run_s: float | None = None
    """Run time [s]; None for a job that never started."""
    limit_s: float | None = None
    """Requested time [s]; None: none, or unlimited."""
    gpus: float = 0.0
    cpus: float = 0.0
    nodes: float = 0.0
    hosts: tuple[str, ...] = ()
    """Nodes that it ran on."""
    log: str | None = None
    """Path or pattern (`slurm-%j.out`) of its log, absolute or in `workdir`."""
    workdir: str | None = None
    qos: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the job is over."""
        return self.state not in ("PENDING", "RUNNING")


def detect(head: str) -> str:
    """The format of a job list that begins so; raises `InputError` when none fits."""
    text = head.lstrip("\ufeff \t\r\n")
    first = text.splitlines()[0] if text else ""
    if first.startswith(";") or re.fullmatch(r"(?:-?[\d.]+\s+){17}-?[\d.]+\s*", first):
        return "swf"
    return detect_format(head)


def read_jobs(
    source: Source,
    wanted: str | None,
    columns: Mapping[str, str],
    report: ImportReport,
) -> Iterator[AccountedJob]:
    """The jobs of a list in one of `FORMATS`, or in the one that its beginning shows.

    `columns`: of CSV, field -> column, before those of `columns.yaml`. Raises `UsageError` for an
    unknown format or field, `InputError` for a list that is not what it should be.
    """
    if wanted is not None and wanted not in FORMATS:
        raise UsageError(f"--format {wanted} is not one of auto, {', '.join(FORMATS)}.")
    kind = "csv" if columns and wanted is None else wanted or detect(source.head)
    if columns and kind != "csv":
        raise UsageError(f"--map is for csv; the columns of {kind} are known.")
    readers: dict[str, Callable[[], Iterator[AccountedJob]]] = {
        "sacct-json": lambda: (_of_slurm_json(*pair) for pair in json_rows(source.stream, report)),
        "sacct": lambda: (_of_slurm_row(*pair) for pair in parsable_rows(source.stream, report)),
        "jsonl": lambda: of_records(import_jsonl(source.stream, report)),
        "csv": lambda: _read_csv(source.stream, columns, report),
        "swf": lambda: _read_swf(source.stream, report),
        "kubectl-json": lambda: _read_kubernetes(source.stream, report),
        "ray-json": lambda: _read_ray(source.stream, report),
    }
    return readers[kind]()


def of_records(records: Iterable[JobRecord]) -> Iterator[AccountedJob]:
    """Jobs of a history, which has no partitions, processors or nodes by name."""
    return (_of_record(record) for record in records)


def _of_record(record: JobRecord) -> AccountedJob:
    ran = record.duration_s if record.ended else None
    if ran is not None and not ran and record.start_time is None:
        ran = None
    end = record.end_time
    if end is None and record.start_time is not None and ran is not None:
        end = record.start_time + ran
    return AccountedJob(
        record.job_id,
        record.state,
        record.user,
        name=record.name,
        submit=record.submit_time,
        start=record.start_time,
        end=end,
        run_s=ran,
        limit_s=record.launch.time_limit_s or None,
        gpus=float(record.launch.gpus or 0),
        nodes=float(record.launch.nodes or 0),
    )


# Slurm.


def _of_slurm_row(record: JobRecord, row: dict[str, str]) -> AccountedJob:
    tres = parse_tres(row.get("alloctres")) or parse_tres(row.get("reqtres"))
    cpus = row.get("ncpus") or row.get("alloccpus") or tres.get("cpu") or row.get("reqcpus") or ""
    return _of_record(record)._replace(
        group=_text(row.get("account")),
        partition=_text(row.get("partition")),
        qos=_text(row.get("qos")),
        cpus=_count(cpus),
        hosts=_hosts(row.get("nodelist") or ""),
        log=_text(row.get("stdout")),
        workdir=_text(row.get("workdir")),
    )


def _of_slurm_json(record: JobRecord, job: dict[str, Any]) -> AccountedJob:
    required, tres, association = (
        part if isinstance(part := job.get(name), dict) else {}
        for name in ("required", "tres", "association")
    )
    cpus = 0.0
    for kind in ("allocated", "requested"):
        for one in tres.get(kind) or () if not cpus else ():
            if isinstance(one, dict) and one.get("type") == "cpu":
                cpus = _count(str(one.get("count") or ""))
    log = job.get("stdout_expanded") or job.get("stdout")
    return _of_record(record)._replace(
        group=_text(job.get("account") or association.get("account")),
        partition=_text(job.get("partition")),
        qos=_text(job.get("qos")),
        cpus=cpus or _plain(required.get("CPUs")),
        hosts=_hosts(str(job.get("nodes") or "")),
        log=_text(log),
        workdir=_text(job.get("working_directory")),
    )


def _plain(value: Any) -> float:
    try:
        return plain_number(value) or 0.0
    except (TypeError, ValueError):
        return 0.0


def _text(value: Any) -> str | None:
    return " ".join(str(value).split())[:1000] or None if value else None


def _count(text: str) -> float:
    """A number of resources; 0 where it is none."""
    try:
        number = float(text)
    except ValueError:
        try:
            number = parse_size(text) or 0.0
        except ValueError:
            return 0.0
    return number if 0 < number <= MOST_GPUS else 0.0


def _hosts(text: str) -> tuple[str, ...]:
    try:
        return hosts_of(text)
    except SchedmateError:
        return ()


# CSV.


FIELDS = tuple(load("site/columns.yaml"))
"""Fields that a column of CSV may hold."""
_MOMENTS = ("submit", "start", "end")
_LENGTHS = ("run", "limit", "wait")


def parse_columns(items: Iterable[str]) -> dict[str, str]:
    """Repeated `FIELD=COLUMN[:UNIT]`; raises `UsageError` for what is none."""
    columns = {}
    for item in items:
        field, equals, column = item.partition("=")
        if not (equals and column.strip()) or field.strip() not in FIELDS:
            raise UsageError(
                f"--map {item!r}: write FIELD=COLUMN or FIELD=COLUMN:UNIT with one of the fields "
                f"{', '.join(FIELDS)}."
            )
        columns[field.strip()] = column.strip()
    return columns


def _read_csv(
    stream: IO[str], columns: Mapping[str, str], report: ImportReport
) -> Iterator[AccountedJob]:
    header, rows = csv_table(stream, report)
    places = _places([name.lower() for name in header], columns)
    if "state" not in places:
        report.lacking.add("state")
    tres = places["tres"][0] if "tres" in places and "gpus" not in places else None
    job_id = places["id"][0] if "id" in places else None
    for place, cells in rows:
        if job_id is not None and _STEP.fullmatch(cells[job_id].strip()):
            report.rows -= 1
            continue
        if tres is not None:
            report.unnamed.update(re.findall(r"(?:^|[,;])(\d{4,9})=", cells[tres]))
        try:
            yield _of_cells(cells, places, report.rows)
        except ValueError as error:
            report.reject(place, unusable_reason(error))


_STEP = re.compile(r"\d+(?:[_+]\d+)?\.(?:batch|extern|interactive|\d+)")
"""The id of a step in Slurm's accounting, of which the job has a row of its own."""
Places = dict[str, tuple[int, float | None]]
"""Field -> position of its column, and what one of its unit is [s]; None: as it is written."""


def _places(header: list[str], columns: Mapping[str, str]) -> Places:
    known: dict[str, list[str]] = load("site/columns.yaml")
    units: dict[str, float] = value_table("columns")["units"]["seconds"]
    places: Places = {}
    for field in FIELDS:
        given = columns.get(field)
        for name in [given.lower()] if given else known[field]:
            column, _, unit = name.rpartition(":")
            if name in header:
                places[field] = (header.index(name), None)
            elif column in header and unit in units:
                places[field] = (header.index(column), units[unit])
            else:
                continue
            break
        else:
            if given:
                raise InputError(
                    f"no column {given!r} in the file; correct --map: it has {', '.join(header)}."
                )
    lacking = [field for field in ("submit",) if field not in places]
    if not {"run", "end"} & set(places):
        lacking.append("run")
    if lacking and header and re.fullmatch(r"\d[\d_.+-]*", header[0]):
        raise InputError(
            "the first line is no header but a job; export the list with its header (sacct "
            "without -n)."
        )
    if lacking:
        raise InputError(
            f"no column of the file is known to hold {' and '.join(lacking)}; name it with --map "
            f"{lacking[0]}=COLUMN: it has {', '.join(header) or 'none'}."
        )
    return places


def _of_cells(cells: list[str], places: Places, number: int) -> AccountedJob:
    said = {field: cells[at].strip() for field, (at, _) in places.items()}
    moments = {field: _moment(said.get(field, ""), places[field][1])
               for field in _MOMENTS if field in places}  # fmt: skip
    lengths = {field: _length(said.get(field, ""), places[field][1])
               for field in _LENGTHS if field in places}  # fmt: skip
    submit, start, end = (moments.get(field) for field in _MOMENTS)
    run = lengths.get("run")
    if start is None and submit is not None and lengths.get("wait") is not None:
        start = submit + (lengths["wait"] or 0.0)
    if run is None and start is not None and end is not None:
        run = max(0.0, end - start)
    if end is None and start is not None and run is not None:
        end = start + run
    if start is None and end is not None and run is not None:
        start = end - run
    if said.get("state"):
        state = parse_state(said["state"])
    else:
        state = "COMPLETED" if run is not None else "PENDING"
    if not run and start is None:
        run = None
    tres = parse_tres(said.get("tres")) or parse_tres(said.get("tres_asked"))
    return AccountedJob(
        said.get("id") or str(number),
        state,
        _text(said.get("user")),
        _text(said.get("group")),
        _text(said.get("partition")),
        _text(said.get("name")),
        submit,
        start,
        end,
        run,
        lengths.get("limit") or None,
        _count(said.get("gpus", "")) or float(gpus_of(tres)[0] or 0),
        _count(said.get("cpus", "") or tres.get("cpu", "")),
        _count(said.get("nodes", "") or tres.get("node", "")),
        _hosts(said.get("hosts", "")),
        _text(said.get("log")),
        qos=_text(said.get("qos")),
    )


def _moment(text: str, unit: float | None) -> float | None:
    if unit is None:
        return parse_time(text)
    return parse_number(text) * unit if text else None


def _length(text: str, unit: float | None) -> float | None:
    """A length of time; None where there is none: less than 0 stands for "unknown"."""
    try:
        seconds = parse_number(text) * (unit or 1.0) if text else None
    except ValueError:
        seconds = parse_length(text)
    return seconds if seconds is not None and 0 <= seconds <= LONGEST_S else None


# The Standard Workload Format: 18 numbers a line.


def _read_swf(stream: IO[str], report: ImportReport) -> Iterator[AccountedJob]:
    began, stated = 0.0, False
    for number, line in enumerate(stream, start=1):
        if line.startswith(";"):
            if match := re.match(r";\s*UnixStartTime:\s*(\d{1,12})", line):
                began = float(match[1])
            continue
        cells = line.split()
        if not cells:
            continue
        report.rows += 1
        try:
            job = _of_swf(cells, began)
        except (ValueError, IndexError):
            report.reject(f"line {number}", "not the 18 numbers of the Standard Workload Format")
            continue
        stated = stated or cells[10] in _SWF_STATES
        yield job
    if not stated:
        report.lacking.add("state")


def _of_swf(cells: list[str], began: float) -> AccountedJob:
    submit, wait, run = float(cells[1]), float(cells[2]), float(cells[3])
    size, request = float(cells[7]), float(cells[8])
    cells[17]  # the last of them
    ran = run if run > 0 else None
    state = _SWF_STATES.get(cells[10], "COMPLETED" if ran is not None else "CANCELLED")
    start = began + submit + max(wait, 0.0) if ran is not None else None
    return AccountedJob(
        cells[0],
        state,
        user=_known(cells[11]),
        group=_known(cells[12]),
        partition=_known(cells[15]),
        name=_known(cells[13]),
        submit=began + submit,
        start=start if wait >= 0 else None,
        end=None if start is None else start + run,
        run_s=ran,
        limit_s=request if request > 0 else None,
        cpus=size if size > 0 else max(0.0, float(cells[4])),
    )


def _known(number: str) -> str | None:
    return None if number == "-1" else number


# Lists of jobs of Kubernetes and Ray.


def _read_kubernetes(stream: IO[str], report: ImportReport) -> Iterator[AccountedJob]:
    from schedmate.cluster.bounds import CodeBounds

    kinds = {(kind.group, kind.kind): kind for kind in job_kinds().values()}
    nowhere = CodeBounds()
    for found in JsonDocument(stream, "`kubectl get ... -o json`").members("items"):
        about = found if isinstance(found, dict) else {}
        group, slash, _ = str(about.get("apiVersion")).partition("/")
        kind = kinds.get((group if slash else "", str(about.get("kind"))))
        if kind is None:
            continue  # a pod, or another kind of object
        report.rows += 1
        try:
            job = Workload(kind, found, ())
            outcome, start = job_outcome(job), job_began(job)
            spec = describe_job(job, nowhere).spec
        except (SchedmateError, ValueError, TypeError, KeyError, AttributeError) as error:
            report.reject(f"item {report.rows}", unusable_reason(error))
            continue
        state, end = outcome or (("RUNNING" if start else "PENDING"), None)
        if end is None and outcome is not None and start is None:
            continue
        yield AccountedJob(
            job.id,
            state,
            spec.user,
            spec.user,
            queue_of(job) or None,
            # `train-28391` is a run of `train`
            re.sub(r"-(?=[a-z]*+\d)[a-z0-9]++$", "", spec.name or "") or None,
            job.created or None,
            start,
            end,
            None if start is None or end is None else max(0.0, end - start),
            spec.launch.time_limit_s,
            float(spec.launch.gpus or 0),
            nodes=float(spec.launch.nodes or 0),
        )


def _read_ray(stream: IO[str], report: ImportReport) -> Iterator[AccountedJob]:
    for job in JsonDocument(stream, "Ray's /api/jobs/").members(None):
        report.rows += 1
        place = f"job {report.rows}"
        try:
            state = _RAY_STATES[str(job["status"])]
            start, end = (_milliseconds(job.get(f"{name}_time")) for name in ("start", "end"))
            about = job.get("metadata") or {}
            yield AccountedJob(
                str(job.get("submission_id") or job["job_id"]),
                state,
                _text(about.get("user")),
                _text(about.get("group")),
                None,
                # the program, and not its arguments, which may be secret
                _text(about.get("name") or re.split(r"\s-", str(job.get("entrypoint") or ""))[0]),
                start,  # Ray keeps no other moment of a submission
                None,
                end,
                None if start is None or end is None else max(0.0, end - start),
                None,
                _plain(job.get("entrypoint_num_gpus")),
                _plain(job.get("entrypoint_num_cpus")),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            report.reject(place, unusable_reason(error))


def _milliseconds(value: Any) -> float | None:
    number = plain_number(value)
    return None if not number or not math.isfinite(number) else number / 1000


# Pseudonyms.


class Pseudonyms:
    """Other names for users, groups, partitions, jobs and nodes: the same for the same name.

    They are keyed with a secret of this process that nobody keeps, so that no list of likely names
    gives the true ones back.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def name(self, kind: str, name: str | None) -> str | None:
        """`user-3fa2c1`; None stays None."""
        if name is None:
            return None
        text = f"{kind}\0{name}".encode(errors="backslashreplace")
        return f"{kind}-{hmac.new(self._key, text, hashlib.sha256).hexdigest()[:8]}"

    def job(self, job: AccountedJob) -> AccountedJob:
        """The job with every name replaced; where its log is stays, to be read."""
        return job._replace(
            id=self.name("job", job.id) or "",
            user=self.name("user", job.user),
            group=self.name("group", job.group),
            partition=self.name("partition", job.partition),
            qos=self.name("qos", job.qos),
            name=self.name("work", job.name),
            hosts=tuple(self.name("node", host) or "" for host in job.hosts),
        )
