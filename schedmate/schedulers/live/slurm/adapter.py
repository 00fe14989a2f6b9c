"""Slurm as the reconcile loop observes it; `acts.py` has the actions."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from schedmate.jobs import JobSpec, LaunchConfig
from schedmate.retrieval.importers.sacct_table import record_of
from schedmate.retrieval.importers.values import gpus_of, parse_duration, parse_time, parse_tres
from schedmate.schedulers.live.adapter import Description, EndedRun, LiveJob, LiveNode
from schedmate.schedulers.live.slurm.acts import AT_ONCE, SlurmActs
from schedmate.schedulers.live.slurm.commands import CommandError, Commands
from schedmate.schedulers.live.slurm.reading.accounting import (
    Row,
    complete,
    delimiter,
    known_columns,
    parse_rows,
    with_steps,
)
from schedmate.schedulers.live.slurm.reading.details import (
    Details,
    details_format,
    parse_details,
)
from schedmate.schedulers.live.slurm.reading.hostlist import expand
from schedmate.schedulers.live.slurm.reading.logpath import Run, log_path
from schedmate.schedulers.live.slurm.reading.queue import FORMAT, Queued, parse_queue
from schedmate.schedulers.live.slurm.reading.shapes import ShapeError

LONGEST_SCRIPT = 1 << 16
"""Batch scripts are read up to this length [characters]; a longer one is left to the file."""

STATES: Final = "CD,F,TO,CA,NF,OOM,BF,PR,RQ,DL"
"""States in which a run is over, for `sacct -s`."""

_RUNNING = frozenset({"RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STAGE_OUT", "RESIZING"})


class SlurmAdapter(SlurmActs):
    """One Slurm cluster through its commands: `squeue`, `sprio`, `sinfo`, `sacct`, `scontrol`."""

    def __init__(
        self,
        commands: Commands,
        *,
        cluster: str,
        drain: Sequence[str] = (),
        annotate: str = "off",
    ) -> None:
        """`drain` is the command that takes nodes out of service (examples/slurm/); without one
        none is. `annotate` is where estimates are written: `comment` or `admin_comment`."""
        super().__init__(commands, drain=drain, annotate=annotate)
        self.cluster = cluster
        self._columns: tuple[str, ...] | None = None

    # -- the queue -------------------------------------------------------

    def jobs(self) -> list[LiveJob]:
        """See `ClusterAdapter.jobs`."""
        queue = parse_queue(self.commands.run("squeue", "-h", "-a", "-o", FORMAT))
        return [_live(one) for one in queue if one.state == "PENDING" or one.state in _RUNNING]

    def describe(self, jobs: Sequence[str]) -> dict[str, Description]:
        """See `ClusterAdapter.describe`: from the queue, and the script that Slurm stores."""
        found: dict[str, Description] = {}
        scripts: dict[str, str | None] = {}
        for some in _parts(jobs):
            between = delimiter()
            words = ("-h", "-a", "-t", "all", "-j", ",".join(some))
            try:
                printed = self.commands.run("squeue", *words, "-O", details_format(between))
            except CommandError as error:
                if "Invalid job id" in error.said:  # all of them have gone
                    continue
                raise
            for one in parse_details(printed, between):
                if one.job in some:
                    group = one.array or one.job
                    if group not in scripts:
                        scripts[group] = self.script(group)
                    found[one.job] = _description(one, scripts[group])
        return found

    def script(self, job: str) -> str | None:
        """A job's batch script as submitted; None if it has none or it may not be read."""
        try:
            text = self.commands.run("scontrol", "write", "batch_script", job, "-")
        except CommandError:
            return None
        return text if len(text) <= LONGEST_SCRIPT else None

    def log_path(self, job: LiveJob | EndedRun, pattern: str, spec: JobSpec) -> Path | None:
        """See `ClusterAdapter.log_path`."""
        if not job.nodes:
            return None
        run = Run(
            job=job.id if isinstance(job, LiveJob) else job.raw,
            name=spec.name or "",
            user=spec.user or "",
            node=job.nodes[0],
            array=job.group if job.task is not None else None,
            task=job.task,
        )
        return Path(log_path(pattern, spec.repo or "/", run))

    def node_logs(self, run: EndedRun) -> list[Path]:
        """See `ClusterAdapter.node_logs`: Slurm has none."""
        return []

    # -- nodes -----------------------------------------------------------

    def nodes(self) -> list[LiveNode]:
        """See `ClusterAdapter.nodes`."""
        return [
            LiveNode(
                name=one.name,
                healthy=one.healthy,
                drained=one.drained,
                busy=one.busy,
                reason=one.reason,
                queues=one.partitions,
                gpus=one.gpus,
                gpus_used=one.gpus_used,
            )
            for one in self.read_nodes()
        ]

    # -- accounting ------------------------------------------------------

    def ended(self, since: float, until: float | None = None) -> list[EndedRun]:
        """See `ClusterAdapter.ended`: from accounting, which lags some seconds behind.

        `until` [s since epoch] is for reading a long time in parts.
        """
        end = "now" if until is None else f"uts{int(until)}"
        words = ("-S", f"uts{max(1, int(since))}", "-E", end, "-s", STATES)
        return [
            self._ended(row, steps)
            for row, steps in with_steps(self._rows(*words))
            if complete(row, time.time())
        ]

    def _rows(self, *words: str) -> list[Row]:
        if self._columns is None:
            self._columns = known_columns(self.commands.run("sacct", "-e"))
        between = delimiter()
        printed = self.commands.run(
            *("sacct", "-a", "-D", "-n", "-p", f"--delimiter={between}"),
            *("-o", ",".join(self._columns), *words),
            timeout_s=300.0,
        )
        return parse_rows(printed, self._columns, between)

    def _ended(self, row: Row, steps: list[Row]) -> EndedRun:
        record = record_of(row, steps)
        group, _, task = row["jobid"].partition("_")
        key = f"{self.cluster}/{row['jobid']}@{int(record.submit_time or 0)}"
        return EndedRun(
            job=row["jobid"],
            raw=row["jobidraw"],
            group=group.partition("+")[0],
            record=record.model_copy(update={"job_id": key}),
            nodes=expand(row["nodelist"]),
            workdir=row["workdir"],
            log=row.get("stdout", ""),
            task=int(task) if task.isdigit() else None,
        )


def _live(one: Queued) -> LiveJob:
    return LiveJob(
        id=one.job,
        group=one.array,
        state="PENDING" if one.state == "PENDING" else "RUNNING",
        user=one.user,
        queues=one.partitions,
        submitted=one.submitted,
        started=one.started,
        nodes=one.nodes,
        held=one.held,
        reason=one.reason,
        priority=one.priority,
        task=one.task,
    )


def _description(one: Details, script: str | None) -> Description:
    gpus, gpu_type = gpus_of(parse_tres(one.tres))
    nodes = int(one.nodes) if one.nodes.isdigit() else None
    try:
        limit, submitted = parse_duration(one.time_limit), parse_time(one.submitted)
    except ValueError as error:
        raise ShapeError(f"squeue: {error}") from None
    spec = JobSpec(
        job_id=one.job,
        name=one.name or None,
        user=one.user,
        repo=one.workdir,
        command=launch_command(one.command, script, one.workdir, nodes),
        launch=LaunchConfig(gpus=gpus, nodes=nodes, gpu_type=gpu_type, time_limit_s=limit),
        submit_time=submitted,
    )
    return Description(spec, one.stdout)


def launch_command(
    command: str, script: str | None, workdir: str, nodes: int | None = None
) -> str | None:
    """The command that starts a batch job, as typed in its directory.

    The script is the text that Slurm keeps, since the file may have changed or be out of reach.
    `command` is its name and its arguments, whose quotes are lost.
    """
    name, *arguments = command.split()[:200] or ["sbatch"]
    if script is None or not script.startswith("#!"):
        return command or None
    knows = f"export SLURM_SUBMIT_DIR={shlex.quote(workdir)}"
    if nodes:
        knows += f" SLURM_NNODES={nodes} SLURM_JOB_NUM_NODES={nodes}"
    # before the first line, which then is a comment, so that lines keep their numbers
    return shlex.join(["bash", "-c", f"{knows}; {script}", name, *arguments])


def _parts(jobs: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(jobs), AT_ONCE):
        yield jobs[at : at + AT_ONCE]
