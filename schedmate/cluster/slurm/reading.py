"""What Slurm's commands print, versions 22.05 to 26.05: jobs, nodes, the queue, accounting.

Nothing here runs a command. Text that users write (names, comments, submit lines) is read only
where it cannot be mistaken for something else: from JSON, or between delimiters that are drawn at
random for each call. Output of no known version is refused.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import shlex
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from schedmate.base.data import MOST_GPUS, whole_number
from schedmate.base.inputs import expand_hostlist, host_name
from schedmate.base.terminal import clean
from schedmate.cluster.adapter import MOST_USE, ExecutorError, Usage
from schedmate.retrieval.sacct import gpus_of, parse_duration, parse_size, parse_tres

# Nodes from Slurm's JSON: `sinfo --json` (22.05), `scontrol show nodes --json`, slurmrestd.


DRAINED = frozenset({"DRAIN", "DRAINED", "DRAINING"})
"""States and flags of a node that somebody took out of service; the last two are of 21.08."""

OUT_OF_SERVICE = DRAINED | frozenset(
    {"DOWN", "FAIL", "FAILING", "ERROR", "FUTURE", "UNKNOWN", "NOT_RESPONDING", "POWERED_DOWN"}
    | {"POWERING_DOWN", "MAINTENANCE", "MAINT", "REBOOT_ISSUED", "INVALID_REG", "INVALID"}
)
"""States and flags of a node that takes no jobs."""


class Node(NamedTuple):
    """One node; `states` are its base state and flags, in capitals."""

    name: str
    states: frozenset[str]
    reason: str
    reason_by: str
    reason_at: float | None
    partitions: tuple[str, ...]
    gpus: int
    """As `Gres` has them; as trackable resources, where it does not say."""
    gpus_used: int
    gpu_type: str
    cpus: int
    memory_mib: int
    """Memory that jobs may have [MiB]."""

    @property
    def drained(self) -> bool:
        """Whether somebody took it out of service; jobs may still run on it."""
        return bool(self.states & DRAINED)

    @property
    def healthy(self) -> bool:
        """Whether it takes jobs, or would when those on it have ended."""
        return not self.states & OUT_OF_SERVICE

    @property
    def busy(self) -> bool:
        """Whether a job runs on it, or is ending there."""
        return bool(self.states & {"ALLOCATED", "MIXED", "COMPLETING"})


def read_node(row: dict[str, Any]) -> Node:
    """One node of a document; raises `ShapeError` for output of no known version."""
    name = json_text(row.get("name"), "name")
    if host_name(name) is None:
        raise ShapeError("a node has no name.")
    states = _states(row.get("state"), "state")
    if not states:
        raise ShapeError(f"node {name} has no state.")
    gres = gres_gpus(json_text(row.get("gres"), "gres"))
    cpus = json_count(row.get("effective_cpus"), "effective_cpus")
    return Node(
        name=name,
        states=frozenset((*states, *_states(row.get("state_flags"), "state_flags"))),
        reason=json_text(row.get("reason"), "reason"),
        reason_by=json_text(row.get("reason_set_by_user"), "reason_set_by_user"),
        reason_at=json_time(row.get("reason_changed_at"), "reason_changed_at"),
        partitions=json_names(row.get("partitions"), "partitions"),
        gpus=sum(gres.values()) or tres_gpus(json_text(row.get("tres"), "tres")),
        gpus_used=tres_gpus(json_text(row.get("tres_used"), "tres_used")),
        gpu_type=next((kind for kind in gres if kind), ""),
        cpus=cpus or json_count(row.get("cpus"), "cpus") or 0,
        memory_mib=json_count(row.get("real_memory"), "real_memory") or 0,
    )


def _states(value: Any, name: str) -> tuple[str, ...]:
    """States or flags in capitals; some versions join them by `+`."""
    return tuple(word for one in json_names(value, name) for word in one.upper().split("+") if word)


_GRES = re.compile(r"(?:^|,)gpu(?::([\w.+-]+?))?:(\d{1,9})(?:\([^)]*\))?(?=,|$)")


def gres_gpus(gres: str) -> dict[str, int]:
    """GPUs by type among generic resources: `gpu:a100:4(S:0-1),gpu:2`; the type may be empty."""
    counts: dict[str, int] = {}
    for kind, count in _GRES.findall(gres):
        counts[kind] = counts.get(kind, 0) + int(count)
    return counts


def tres_gpus(tres: str) -> int:
    """The GPUs among trackable resources: `cpu=64,mem=4000M,gres/gpu=4`."""
    try:
        count = gpus_of(parse_tres(tres))[0] or 0
    except ValueError:
        return 0
    return count if 0 <= count <= MOST_GPUS else 0


# Jobs from Slurm's JSON: `squeue --json`, `scontrol show job ID --json`, slurmrestd.


class NodeShare(NamedTuple):
    """What a job has on one of its nodes; None where Slurm does not say."""

    node: str
    cpus: int | None
    memory_mib: int | None
    """[MiB]"""
    gpus: int | None


class Job(NamedTuple):
    """The fields needed to act on a job; times in [s since epoch]."""

    job: str
    array: str | None
    task: int | None
    states: tuple[str, ...]
    """The base state first, then flags as `REQUEUED` or `COMPLETING`."""
    reason: str
    restarts: int
    priority: int | None
    partition: str
    user: str
    name: str
    nodes: tuple[str, ...]
    excluded: tuple[str, ...]
    comment: str
    submitted: float | None
    """When it was submitted, or requeued last."""
    started: float | None
    ended: float | None
    stdout: str
    """The pattern as the job stated it; see `logpath`."""
    workdir: str
    batch: bool
    requeue: bool
    """Whether the job may be requeued."""
    exclusive: bool
    """Whether it has its nodes for itself."""
    features: tuple[str, ...]
    """Features that it requires of its nodes."""
    tres: str
    """Allocated resources of all nodes together: `cpu=8,mem=2G,gres/gpu=4`."""
    shares: tuple[NodeShare, ...]
    """Allocated resources of each node, if Slurm states them."""

    @property
    def state(self) -> str:
        """The base state, without flags: `RUNNING`, `PENDING`."""
        return self.states[0]

    @property
    def held(self) -> bool:
        """Whether it is pending and held."""
        waits = self.state == "PENDING" or "REQUEUE_HOLD" in self.states
        return waits and (self.priority == 0 or self.reason.startswith("JobHeld"))


_EXCLUSIVE = frozenset({"EXCLUSIVE", "NODE", "NONE"})
"""Values of `exclusive`, or of `shared` before, of a job that has its nodes for itself."""


def read_job(row: dict[str, Any]) -> Job:
    """One job of a document; raises `ShapeError` for output of no known version."""
    job = json_count(row.get("job_id"), "job_id")
    states = json_names(row.get("job_state"), "job_state")
    if job is None or job <= 0 or not states:
        raise ShapeError("a job has no id or no state.")
    array = json_count(row.get("array_job_id"), "array_job_id")
    nodes = hosts_of(json_text(row.get("nodes"), "nodes"))
    sharing = row.get("exclusive") or row.get("shared")
    return Job(
        job=str(job),
        array=str(array) if array else None,
        task=json_count(row.get("array_task_id"), "array_task_id") if array else None,
        states=states,
        reason=json_text(row.get("state_reason"), "state_reason"),
        restarts=json_count(row.get("restart_cnt"), "restart_cnt") or 0,
        priority=json_count(row.get("priority"), "priority"),
        partition=json_text(row.get("partition"), "partition"),
        user=json_text(row.get("user_name"), "user_name"),
        name=json_text(row.get("name"), "name"),
        nodes=nodes,
        excluded=hosts_of(json_text(row.get("excluded_nodes"), "excluded_nodes")),
        comment=json_text(row.get("comment"), "comment"),
        submitted=json_time(row.get("submit_time"), "submit_time"),
        started=json_time(row.get("start_time"), "start_time"),
        ended=json_time(row.get("end_time"), "end_time"),
        stdout=json_text(row.get("standard_output"), "standard_output"),
        workdir=json_text(row.get("current_working_directory"), "current_working_directory"),
        batch=row.get("batch_flag") in (True, 1),
        requeue=row.get("requeue") in (True, 1),
        exclusive=not _EXCLUSIVE.isdisjoint(_states(sharing, "exclusive")),
        features=tuple(filter(None, json_names(row.get("features"), "features"))),
        tres=json_text(row.get("tres_alloc_str"), "tres_alloc_str"),
        shares=_shares(row, nodes),
    )


def _shares(job_row: dict[str, Any], nodes: tuple[str, ...]) -> tuple[NodeShare, ...]:
    """What a job has on each node, from `job_resources` and `gres_detail` of any version."""
    resources = job_row.get("job_resources")
    resources = resources if isinstance(resources, dict) else {}
    listed = resources.get("nodes")
    rows = resources.get("allocated_nodes")
    if not rows and isinstance(listed, dict):
        rows = listed.get("allocation")
    if isinstance(rows, dict):
        rows = list(rows.values())
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    by_name = {json_text(row.get("nodename") or row.get("name"), "node"): row for row in rows}
    names = tuple(by_name) or nodes
    detail = json_names(job_row.get("gres_detail"), "gres_detail")
    gpus: list[int | None] = [sum(gres_gpus(text).values()) for text in detail]
    if len(gpus) != len(names):
        gpus = [None] * len(names)
    return tuple(
        _share(name, by_name.get(name, {}), count) for name, count in zip(names, gpus, strict=True)
    )


def _share(name: str, row: dict[str, Any], gpus: int | None) -> NodeShare:
    cpus, memory = row.get("cpus"), row.get("memory")
    used = cpus.get("count") if isinstance(cpus, dict) else None
    memory_mib = (
        memory.get("allocated") if isinstance(memory, dict) else row.get("memory_allocated")
    )
    return NodeShare(
        node=name,
        cpus=json_count(used, "cpus"),
        memory_mib=json_count(memory_mib, "memory"),
        gpus=gpus,
    )


# The queue from the text output of `squeue`, which costs a tenth of its JSON.
#
# The format has nothing that a user writes (names, comments, directories), so that no job can
# pretend to be another: such fields are read once for each job, from accounting.


QUEUE_FORMAT = "%A|%F|%K|%T|%Q|%V|%S|%u|%P|%N|%r"
"""For `squeue -o`: id, array, task, state, priority, submitted, started, user, partition, nodes,
reason. Times are seconds since the epoch with SLURM_TIME_FORMAT=%s."""

_NO_TIME = frozenset({"", "N/A", "Unknown", "None", "(null)"})


class Queued(NamedTuple):
    """One record of the queue: a job, a task of an array, or all that is pending of an array."""

    job: str
    array: str
    """The id of the array; for a single job its own."""
    task: int | None
    """Its index in the array; None for a single job and for the pending part of an array."""
    state: str
    priority: int
    submitted: float | None
    started: float | None
    user: str
    partitions: tuple[str, ...]
    nodes: tuple[str, ...]
    reason: str
    expected: float | None = None
    """When the controller expects it to start, of a job that waits and has been planned."""

    @property
    def held(self) -> bool:
        """Whether the job is held by its user or an administrator."""
        return self.reason.startswith("JobHeld") or "held state" in self.reason


def read_queued(line: str) -> Queued:
    """One line of `squeue -h -o FORMAT`; raises `ShapeError` for any other text."""
    cells = line.split("|", 10)
    if len(cells) != 11 or not cells[0].isdigit() or not cells[1].isdigit():
        raise ShapeError(f"squeue printed {clean(line, 80)!r}, which is not a job.")
    try:
        begins = _queue_time(cells[6])
        waits = cells[3] == "PENDING"
        return Queued(
            job=cells[0],
            array=cells[1],
            task=int(cells[2]) if cells[2].isdigit() else None,
            state=cells[3],
            priority=int(cells[4]),
            submitted=_queue_time(cells[5]),
            started=None if waits else begins,
            user=cells[7],
            partitions=tuple(cells[8].split(",")),
            nodes=hosts_of(cells[9]),
            reason=cells[10].strip(),
            expected=begins if waits else None,
        )
    except ValueError:
        raise ShapeError(f"squeue printed {clean(line, 80)!r}, which is not a job.") from None


def _queue_time(cell: str) -> float | None:
    return None if cell in _NO_TIME else float(cell)


def parse_factors(text: str) -> dict[str, int]:
    """SiteFactor by job from `sprio -h -o "%i %S"`; an array's pending tasks are one line."""
    factors = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        cells = line.split()
        job = cells[0].partition("_")[0]
        try:
            if len(cells) != 2 or not job.isdigit():
                raise ValueError
            factors[job] = int(cells[1])
        except ValueError:
            raise ShapeError(f"sprio printed {clean(line, 80)!r}, which is not a factor.") from None
    return factors


# User-written fields of jobs from `squeue -O`, between random delimiters.


DETAIL_FIELDS = {
    "JobID": 20, "ArrayJobID": 20, "UserName": 64, "NumNodes": 20, "tres-alloc": 400,
    "TimeLimit": 40, "SubmitTime": 24, "Name": 512, "WorkDir": 4096, "Command": 4096,
    "STDOUT": 4096, "STDERR": 4096, "Comment": 512,
}  # fmt: skip
"""Fields and their widths [characters]; longer text is cut off."""


class Details(NamedTuple):
    """One job as its owner described it."""

    job: str
    array: str
    user: str
    nodes: str
    tres: str
    time_limit: str
    submitted: str
    name: str
    workdir: str
    command: str
    """The script and its arguments, without the quotes they had; empty for `--wrap`."""
    stdout: str
    """The pattern of its log path; see `log_path`."""
    stderr: str
    """The same of its errors; where they go to the log, that of the log."""
    comment: str


def details_format(between: str) -> str:
    """For `squeue -O`."""
    return ",".join(f"{name}:{width}{between}" for name, width in DETAIL_FIELDS.items())


def parse_details(printed: str, between: str) -> list[Details]:
    """The records that `squeue -h -O` printed with `details_format(between)`."""
    cells = printed.split(between)
    rest = cells.pop()
    if rest.strip() or len(cells) % len(DETAIL_FIELDS):
        raise ShapeError(f"squeue printed records that are not whole: {clean(rest, 60)!r}.")
    return [
        _details(cells[at : at + len(DETAIL_FIELDS)])
        for at in range(0, len(cells), len(DETAIL_FIELDS))
    ]


def _details(cells: Iterable[str]) -> Details:
    first, *others = cells
    # padded with spaces to the width of the field
    words = [first.removeprefix("\n").rstrip(" "), *(cell.rstrip(" ") for cell in others)]
    details = Details(*("" if word == "(null)" else word for word in words))
    if not details.job.isdigit():
        raise ShapeError(f"squeue printed {clean(first, 60)!r}, which is not a job.")
    return details


# Runs of jobs from `sacct`, between random delimiters.
#
# A user writes the name, submit line and directory of a job, with any characters, including line
# feeds. The output of `sacct --parsable2` is then ambiguous; with a delimiter that is drawn for
# each call (`delimiter()`) after every cell (`sacct -p`) it is not, and no job can pretend to be
# another.


SACCT_COLUMNS = (
    "JobID", "JobIDRaw", "State", "JobName", "User", "Partition", "Submit", "Start", "End",
    "ElapsedRaw", "TimelimitRaw", "ExitCode", "NNodes", "NodeList", "AllocTRES", "ReqTRES",
    "TRESUsageInAve", "TRESUsageInMax", "WorkDir", "SubmitLine",
)  # fmt: skip
"""Columns requested from every version."""

NEWER_COLUMNS = ("Restarts", "FailedNode", "StdOut", "StdErr")
"""Columns requested from versions that have them: 24.11, 23.02, and 24.05 for both files."""

SETTLED_S = 120.0
"""How long after an end its row may still change [s]."""

Row = dict[str, str]


def delimiter() -> str:
    """Text that occurs in a user's field only by a chance of one in 10^19."""
    return f"\x1f{secrets.token_hex(8)}\x1f"


def known_columns(printed: str) -> tuple[str, ...]:
    """The columns to request, by what `sacct -e` prints; an unknown one would fail the command."""
    has = {word.lower() for word in printed.split()}
    missing = [name for name in SACCT_COLUMNS if name.lower() not in has]
    if missing:
        raise ShapeError(f"sacct does not know {', '.join(missing)}; is this Slurm 22.05 or later?")
    return (*SACCT_COLUMNS, *(name for name in NEWER_COLUMNS if name.lower() in has))


LONGEST_ROW = 16 << 20
"""Characters of a row of accounting: a submit line may have megabytes."""


def parse_rows(pieces: Iterable[str], columns: Iterable[str], between: str) -> Iterator[Row]:
    """The rows of `sacct -n -p --delimiter=BETWEEN -o COLUMNS`, keys in lower case.

    `pieces` are what it prints, as it comes. Raises `ShapeError` for what are no such rows.
    """
    keys = [name.lower() for name in columns]
    cells: list[str] = []
    rest = ""
    for piece in pieces:
        rest += piece
        if between not in rest:
            if len(rest) > LONGEST_ROW:
                raise ShapeError("sacct printed a row that does not end.")
            continue
        *whole, rest = rest.split(between)
        cells += whole
        complete = len(cells) // len(keys) * len(keys)
        for at in range(0, complete, len(keys)):
            first, *others = cells[at : at + len(keys)]
            yield dict(zip(keys, (first.removeprefix("\n"), *others), strict=True))
        del cells[:complete]
    if rest.strip() or cells:
        raise ShapeError(f"sacct printed rows that are not whole: {clean(rest, 60)!r}.")


def with_steps(rows: Iterable[Row]) -> Iterator[tuple[Row, list[Row]]]:
    """Each run of a job with its steps, without the pending part of an array."""
    job: tuple[Row, list[Row]] | None = None
    for row in rows:
        raw = row["jobidraw"]
        if "." in raw:
            if job is not None and job[0]["jobidraw"] == raw.partition(".")[0]:
                job[1].append(row)
        elif "[" not in row["jobid"]:
            if job is not None:
                yield job
            job = row, []
    if job is not None:
        yield job


def is_complete(row: Row, now: float) -> bool:
    """Whether a row is complete; some seconds after an end it is not.

    `now` is in [s since epoch]. Values missing after `SETTLED_S` will never come: the database was
    down when the job began, for example.
    """
    if not row["end"].isdigit():
        return False
    return bool(row["submitline"] and row["workdir"]) or now - float(row["end"]) > SETTLED_S


# The output file of a job: the pattern of `sbatch -o`, filled in (sbatch(1)).


_LOG_SYMBOL = re.compile(r"%(?:%|(\d{0,9})([AabJjNnstux]))")
_WIDEST = 10
"""Slurm pads a number to ten digits at most."""


class LogRun(NamedTuple):
    """The fields of a job that its log pattern can use; `task` is its index in an array."""

    job: str
    name: str
    user: str
    node: str
    array: str | None = None
    task: int | None = None


def log_path(pattern: str, workdir: str, run: LogRun) -> PurePosixPath:
    """The absolute path of a batch job's log.

    An empty pattern is Slurm's default, `slurm-%j.out`, for arrays `slurm-%A_%a.out`. A symbol that
    Slurm does not know stays unchanged; a backslash anywhere turns all of them off.
    """
    if not pattern:
        pattern = "slurm-%j.out" if run.task is None else "slurm-%A_%a.out"
    if "\\" in pattern:
        filled = pattern.replace("\\", "")
    else:
        filled = _LOG_SYMBOL.sub(lambda match: _pattern_value(match, run), pattern)
    return PurePosixPath(workdir or "/") / filled


def _pattern_value(match: re.Match[str], run: LogRun) -> str:
    symbol = match[2]
    if symbol is None:  # %%
        return "%"
    words = {
        "A": run.array or run.job,
        "a": str(4294967294 if run.task is None else run.task),
        "b": "" if run.task is None else str(run.task % 10),
        "J": run.job,
        "j": run.job,
        "N": run.node.partition(".")[0],
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": run.user,
        "x": run.name,
    }
    value = words[symbol]
    return value.zfill(min(int(match[1] or 0), _WIDEST)) if value.isdigit() else value


# Where a job's log is by its submit line and script, when the controller has forgotten the job.


class Submission(NamedTuple):
    """What a submit line and a batch script say of a job; empty where they do not."""

    stdout: str
    """The pattern of its log."""
    stderr: str
    """The pattern of its errors; empty if they go to the log."""
    command: str
    """The script and its arguments, without the quotes they had."""


_WITH_VALUE = frozenset("aAbBcCdDeFGiJLmMnNopPqStwx")
"""Short options of sbatch that take a value."""

_WITHOUT_VALUE = frozenset({
    "contiguous", "exclusive", "get-user-env", "help", "hold", "ignore-pbs", "kill-on-bad-exit",
    "label", "nice", "no-kill", "no-requeue", "overcommit", "overlap", "oversubscribe",
    "parsable", "propagate", "quiet", "reboot", "requeue", "share", "spread-job", "test-only",
    "unbuffered", "usage", "use-min-nodes", "verbose", "version", "wait",
})  # fmt: skip
"""Long options that take no value, or only one after `=`."""

_WRAPPED = "# This script was created by sbatch --wrap.\n\n"


def submission_of(submit_line: str, script: str | None) -> Submission:
    """A job's files and command by accounting's `SubmitLine` and the stored batch script.

    Slurm joins the words of a submit line by spaces and loses their quotes. An option after the
    first word that is no option may therefore belong to the job's own command; such a pattern
    counts only if it has a symbol of Slurm's (`%j`). Options of the line precede those of the
    script (sbatch(1)).
    """
    line = submit_line
    if script is not None and _WRAPPED in script:
        line = line.replace(script.partition(_WRAPPED)[2].strip(), "COMMAND", 1)
    words = line.split()[1:]
    of_line, end = _files_of(words)
    behind = _files_behind(words[end:])
    in_script = _files_in(script or "")
    return Submission(
        stdout=of_line.get("o") or behind.get("o") or in_script.get("o", ""),
        stderr=of_line.get("e") or behind.get("e") or in_script.get("e", ""),
        command="" if "--wrap" in submit_line else " ".join(words[end:]),
    )


def _files_of(words: list[str]) -> tuple[dict[str, str], int]:
    """The values of `-o` and `-e`, and the index of the first word that is no option."""
    files: dict[str, str] = {}
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        option, value, at = _option_at(words, at)
        if option in ("o", "e") and value:
            files[option] = value
    return files, at


def _option_at(words: list[str], at: int) -> tuple[str, str, int]:
    """The option at an index (`o`, `e` or another), its value, and the index behind both."""
    word = words[at]
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        if not equals and name not in _WITHOUT_VALUE:
            at, value = at + 1, (words[at + 1] if at + 1 < len(words) else "")
        named = [one for one in ("output", "error") if len(name) > 2 and one.startswith(name)]
        return named[0][0] if named else "", value, at + 1
    for index, letter in enumerate(word[1:], 2):
        if letter in _WITH_VALUE:
            if word[index:]:
                return letter, word[index:], at + 1
            return letter, words[at + 1] if at + 1 < len(words) else "", at + 2
    return "", "", at + 1


def _files_behind(words: list[str]) -> dict[str, str]:
    """Patterns with a symbol of Slurm's that `-o` and `-e` have anywhere in these words."""
    files = {}
    for at, word in enumerate(words):
        if word.startswith("-"):
            option, value, _ = _option_at(words, at)
            if option in ("o", "e") and _LOG_SYMBOL.search(value):
                files[option] = value
    return files


def _files_in(script: str) -> dict[str, str]:
    """The values of `-o` and `-e` in the `#SBATCH` lines at the head of a script."""
    files: dict[str, str] = {}
    for line in script.splitlines():
        if line.startswith("#SBATCH"):
            try:
                words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError:
                words = line.removeprefix("#SBATCH").split()
            files |= _files_of(words)[0]
        elif line.strip() and not line.startswith("#"):
            break
    return files


# The configuration as `scontrol show config` prints it.


_CONFIG_LINE = re.compile(r"([A-Za-z]\w*)\s+= ?(.*)")


def parse_config(printed: str) -> dict[str, str]:
    """Values by name; an unset one is empty."""
    settings = {}
    for line in printed.splitlines():
        match = _CONFIG_LINE.fullmatch(line.rstrip())
        if match:
            value = match[2].strip()
            settings[match[1]] = "" if value == "(null)" else value
    return settings


# Slurm's lists of hosts: `gpu[01-04,07],login2`.


MOST_HOSTS = 100_000
"""Hosts of one list at most."""

_NO_HOSTS = frozenset({"", "(null)", "None assigned", "none", "n/a", "N/A"})


def hosts_of(hostlist: str) -> tuple[str, ...]:
    """The hosts in order, with zero-padded numbers.

    Several pairs of brackets in one name multiply. Raises `ShapeError` if it is not a list of
    hosts, or has more than `MOST_HOSTS`.
    """
    text = hostlist.strip()
    if text in _NO_HOSTS:
        return ()
    hosts: list[str] = []
    try:
        for host in expand_hostlist(text, MOST_HOSTS):
            if host_name(host) is None:
                raise ShapeError(f"{clean(hostlist, 60)!r} is not a list of hosts.")
            hosts.append(host)
            if len(hosts) > MOST_HOSTS:
                raise ShapeError(
                    f"the list of hosts {clean(hostlist, 60)!r} has over {MOST_HOSTS:,}."
                )
    except ValueError as error:
        raise ShapeError(f"{clean(error)}.") from None
    return tuple(hosts)


# The shapes of values in Slurm's JSON, which differ between versions.
#
# A number is plain (22.05: `500`, `null` for none) or `{"set": true, "infinite": false, "number":
# 500}` (23.02 and later); a state is `"PENDING"` or `["PENDING", "REQUEUED"]`; a list of names is
# `"a,b"` or `["a", "b"]`. Both are read. Anything else is refused, since a misread value could
# drain the wrong node.


INFINITE = math.inf


class OutageError(ExecutorError):
    """The scheduler does not answer, or reports that it cannot; its state is unknown."""


class ShapeError(OutageError):
    """The scheduler's output matches no known version."""


def json_document(text: str, what: str) -> dict[str, Any]:
    """The JSON object that a command printed; raises `OutageError` if it reports errors.

    `squeue --json` prints an empty list of jobs and exits with 0 while the controller is down: only
    its `errors` distinguish that from an empty queue.
    """
    try:
        document = json.loads(text, parse_int=whole_number)
    except (ValueError, RecursionError):
        raise ShapeError(f"{what} printed no JSON but {clean(text, 80)!r}.") from None
    if not isinstance(document, dict):
        raise ShapeError(f"{what} printed JSON that is not an object.")
    errors = document.get("errors") or []
    if not isinstance(errors, list):
        raise ShapeError(f"{what}: 'errors' is not a list.")
    if errors:
        raise OutageError(f"{what} failed: {clean('; '.join(map(_error_in_words, errors)), 300)}")
    return document


def _error_in_words(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    parts = [error.get(key) for key in ("description", "error", "source")]
    return ", ".join(str(part) for part in parts if part)


def json_objects(document: dict[str, Any], key: str, what: str) -> list[dict[str, Any]]:
    """The list of objects under a key."""
    items = document.get(key)
    if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
        raise ShapeError(f"{what}: {key!r} is not a list of objects.")
    return items


def json_number(value: Any, name: str) -> float | None:
    """A number in either shape; None if it is not set, `INFINITE` if it has no limit."""
    if isinstance(value, dict):
        if not value.keys() <= {"set", "infinite", "number"}:
            raise ShapeError(f"{name} is {clean(value, 60)!r}, which is not a number.")
        if value.get("infinite") is True:
            return INFINITE
        if value.get("set") is not True:
            return None
        value = value.get("number")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ShapeError(f"{name} is {clean(value, 60)!r}, which is not a number.")
    return float(value)


def json_count(value: Any, name: str) -> int | None:
    """A whole number in either shape; None if it is not set or has no limit."""
    number = json_number(value, name)
    if number is None or math.isinf(number):
        return None
    if number != int(number):
        raise ShapeError(f"{name} is {number}, which is not a whole number.")
    return int(number)


def json_time(value: Any, name: str) -> float | None:
    """A time [s since epoch]; Slurm writes 0 for "not yet"."""
    number = json_number(value, name)
    return None if number is None or math.isinf(number) else number or None


def json_text(value: Any, name: str) -> str:
    """A field as text; empty if it is null or missing."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ShapeError(f"{name} is {clean(value, 60)!r}, which is not text.")
    return value


def json_names(value: Any, name: str) -> tuple[str, ...]:
    """A list of names in either shape."""
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        return tuple(value.split(","))
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    raise ShapeError(f"{name} is {clean(value, 60)!r}, which is not a list of names.")


# What jobs used, by `sacct -n -P -o` and `sstat -n -P -o`: these columns hold no user's text.


USAGE_COLUMNS = (
    *("JobID", "ElapsedRaw", "AllocCPUS", "TotalCPU", "AllocTRES", "NTasks", "MaxRSS"),
    "TRESUsageInAve",
)
LIVE_COLUMNS = ("JobID", "NTasks", "AveCPU", "MaxRSS", "TRESUsageInAve")


_CPU_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)")


def _cpu_time(text: str) -> float:
    """`1-02:03:04` or `03:04.123` [s]: hours are left out where there are none; 0 for others."""
    match = _CPU_TIME.fullmatch(text.strip())
    if match is None:
        return 0.0
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return 86_400 * days + 3600 * hours + 60 * minutes + seconds


def read_usage(asked: str, live: str) -> dict[str, Usage]:
    """What jobs used, by id: `asked` from accounting, `live` from the steps that run now.

    Slurm's `gres/gpuutil` is a task's mean over its processes' use, added up over its GPUs [%]; all
    steps together are compared with the GPUs of the job for as long as it ran.
    """
    found: dict[str, Usage] = {}
    spent: dict[str, float] = {}
    gpu_time: dict[str, dict[str, float]] = {}
    gpus: dict[str, float] = {}
    elapsed: dict[str, float] = {}
    for name, row in [
        *((USAGE_COLUMNS, line) for line in asked.splitlines()),
        *((LIVE_COLUMNS, line) for line in live.splitlines()),
    ]:
        cells = dict(zip(name, row.split("|"), strict=False))
        job, _, step = cells["JobID"].partition(".")
        if not step:
            elapsed[job] = parse_duration(cells.get("ElapsedRaw")) or 0.0
            spent[job] = _cpu_time(cells.get("TotalCPU", ""))
            cpus, given = cells.get("AllocCPUS", ""), parse_tres(cells.get("AllocTRES"))
            memory, gpus[job] = parse_size(given.get("mem")), float(gpus_of(given)[0] or 0)
            found[job] = Usage(
                cpus=int(cpus) if cpus.isdecimal() else None, memory_asked_bytes=memory
            )
            continue
        if job not in found:
            continue
        tasks = int(cells.get("NTasks") or 1) if cells.get("NTasks", "").isdecimal() else 1
        if name is LIVE_COLUMNS:
            spent[job] += tasks * _cpu_time(cells.get("AveCPU", ""))
        most = parse_size(cells.get("MaxRSS"))
        if most is not None:
            before = found[job].memory_bytes or 0.0
            found[job] = found[job]._replace(memory_bytes=max(before, tasks * most))
        used = parse_tres(cells.get("TRESUsageInAve"))
        if "gres/gpuutil" in used:
            # a step that runs now is taken to run since its job began
            length = parse_duration(cells.get("ElapsedRaw")) or elapsed[job]
            share = float(used["gres/gpuutil"].rstrip("%")) / 100.0
            gpu_time.setdefault(job, {}).setdefault(step, tasks * share * length)
    for job, used_by in found.items():
        cpu_time = elapsed[job] * (used_by.cpus or 0)
        whole = elapsed[job] * gpus[job]
        gpu = sum(gpu_time[job].values()) / whole if whole and job in gpu_time else None
        found[job] = used_by._replace(
            # without a gatherer Slurm counts no CPU time of jobs
            cpu=min(1.0, spent[job] / cpu_time) if cpu_time and spent[job] else None,
            gpu=gpu if gpu is not None and gpu <= MOST_USE else None,
        )
    return found
