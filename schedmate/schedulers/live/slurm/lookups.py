"""Present state of jobs, nodes, order and notes by Slurm's commands, before actions."""

from __future__ import annotations

from collections.abc import Iterable

from schedmate.schedulers.live.adapter import EndedRun
from schedmate.schedulers.live.slurm.commands import CommandError, Commands
from schedmate.schedulers.live.slurm.reading.accounting import delimiter
from schedmate.schedulers.live.slurm.reading.details import details_format, parse_details
from schedmate.schedulers.live.slurm.reading.jobs import Job, parse_jobs
from schedmate.schedulers.live.slurm.reading.nodes import Node, parse_nodes
from schedmate.schedulers.live.slurm.reading.queue import parse_factors
from schedmate.schedulers.live.slurm.reading.shapes import OutageError


class Lookups:
    """Slurm's present state; `annotate` is where notes are written (`annotate.where` of the
    bounds)."""

    def __init__(self, commands: Commands, *, annotate: str = "off") -> None:
        self.commands = commands
        self._annotate = annotate
        self._version: tuple[int, int] | None = None

    def version(self) -> tuple[int, int]:
        """Year and month of Slurm's release: (22, 5)."""
        if self._version is None:
            printed = self.commands.run("squeue", "--version")
            numbers = printed.split()[-1].split(".")
            if len(numbers) < 2 or not all(one.isdigit() for one in numbers[:2]):
                raise OutageError(f"squeue --version printed {printed.strip()!r}.")
            self._version = int(numbers[0]), int(numbers[1])
        return self._version

    def job(self, job: str) -> Job | None:
        """A job as the controller knows it; None if it does not know it any more."""
        words = ["squeue", "--json"]  # which cannot be restricted to one job
        if self.version() >= (23, 2):
            words = ["scontrol", "show", "job", job, "--json"]
        try:
            printed = self.commands.run(*words)
        except CommandError as error:
            if "Invalid job id" in error.said:
                return None
            raise
        array, _, task = job.partition("_")
        for one in parse_jobs(printed, " ".join(words)):
            if one.job == job or (task and one.array == array and str(one.task) == task):
                return one
        return None

    def restarts(self, run: EndedRun) -> int | None:
        """See `ClusterAdapter.restarts`. A requeue is a new submission of the job."""
        found = self.job(run.job)
        if found is None:
            return None
        again = found.submitted != run.record.submit_time
        return max(0, found.restarts - again)

    def read_nodes(self) -> list[Node]:
        """All nodes."""
        new = self.version() >= (23, 2)  # where `sinfo --json` lists groups of nodes instead
        words = ("scontrol", "show", "nodes", "--json") if new else ("sinfo", "--json")
        return parse_nodes(self.commands.run(*words), " ".join(words))

    def order_values(self, jobs: Iterable[str]) -> dict[str, int]:
        """SiteFactor of pending jobs. `sprio` prints nothing at all if nothing is pending."""
        wanted = set(jobs)
        found = parse_factors(self.commands.run("sprio", "-h", "-o", "%i %S"))
        return {job: value for job, value in found.items() if job in wanted}

    def comments(self, jobs: Iterable[str]) -> dict[str, str]:
        """Notes on jobs that are in the queue, or in accounting, depending on the setting."""
        between, ids = delimiter(), ",".join(jobs)
        if self._annotate == "comment":
            printed = self.commands.run(
                "squeue", "-h", "-a", "-j", ids, "-O", details_format(between)
            )
            return {one.job: one.comment for one in parse_details(printed, between)}
        columns = ("JobIDRaw", "AdminComment")
        printed = self.commands.run(
            *("sacct", "-X", "-n", "-p", f"--delimiter={between}", "-j", ids),
            *("-o", ",".join(columns)),
        )
        cells = printed.split(between)[:-1]
        return {job.strip(): comment for job, comment in zip(cells[::2], cells[1::2], strict=True)}
