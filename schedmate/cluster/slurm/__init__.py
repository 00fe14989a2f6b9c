"""Slurm: `reading.py` reads what its commands print, `adapter.py` observes and acts by them,
`snapshot.py` reads an export of a whole cluster, `doctor.py` checks the rights on one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedmate.base.reading import read_text
from schedmate.cluster import Check, ClusterKind, Reached

if TYPE_CHECKING:
    from schedmate.cluster.adapter import Usage
    from schedmate.cluster.bounds import Bounds
    from schedmate.cluster.slurm.adapter import SlurmAdapter
    from schedmate.schedulers.fleet.snapshot import FleetSnapshot


class Slurm(ClusterKind["SlurmAdapter"]):
    """Slurm, through its commands on this machine."""

    name, title = "slurm", "Slurm"
    commands = "schedmate.commands.slurm"
    next_steps = (
        "schedmate slurm import --since 90d    # past jobs, with the code of those that have it",
        "schedmate slurm doctor    # each right that the agent needs",
    )
    contact = "controller"
    contact_hint = "run `scontrol ping` here, as the same user"
    job_help = "Slurm's id of the job."
    no_run = (
        "accounting knows no run of job {job} that ended in the last 14 days; "
        "`sacct -D -j` lists them."
    )

    def is_here(self) -> bool:
        """Whether this machine's `scontrol ping` gets an answer from a controller."""
        import shutil

        from schedmate.base.running import run

        if shutil.which("scontrol") is None:
            return False
        return run(["scontrol", "ping"], timeout_s=10).code == 0

    def adapter(self, bounds: Bounds) -> SlurmAdapter:
        """See `ClusterKind.adapter`; the message says what to do."""
        from schedmate.cluster.slurm.adapter import connect_slurm
        from schedmate.cluster.slurm.reading import OutageError

        try:
            return connect_slurm(bounds)
        except OutageError as error:
            raise OutageError(
                f"{str(error).rstrip('.')}. Run this where `scontrol ping` finds the controller; "
                "`schedmate slurm doctor` checks the rest."
            ) from None

    def is_job_id(self, word: str) -> bool:
        """See `ClusterKind.is_job_id`: also tasks of arrays and parts of mixed jobs."""
        return re.fullmatch(r"\d{1,18}(?:[_+]\d{1,9})?", word) is not None

    @contextmanager
    def reached(
        self, bounds: Bounds, folder: Path, *, watches: bool = True, **where: Any
    ) -> Iterator[Reached[SlurmAdapter]]:
        """See `ClusterKind.reached`."""
        from schedmate.cluster.slurm.adapter import SlurmRunner

        adapter = self.adapter(bounds)
        yield Reached(adapter, SlurmRunner(adapter.commands))

    def fact(self, bounds: Bounds) -> str:
        """See `ClusterKind.fact`."""
        from schedmate.cluster.slurm.adapter import connect_slurm

        adapter = connect_slurm(bounds)
        major, minor = adapter.version()
        return f"Slurm {major}.{minor:02d}, cluster {adapter.cluster}"

    def usage(
        self, adapter: SlurmAdapter, jobs: Sequence[str], *, running: bool
    ) -> dict[str, Usage]:
        """See `ClusterKind.usage`."""
        return adapter.usage(jobs, running=running)

    def checks(self, bounds: Bounds, **where: Any) -> Iterator[Check]:
        """See `ClusterKind.checks`."""
        from schedmate.cluster.slurm.doctor import slurm_checks

        return slurm_checks(bounds)

    def read_export(self, documents: list[dict[str, Any]], folder: Path) -> FleetSnapshot | None:
        """See `ClusterKind.read_export`: `scontrol show node --json`, `scontrol show job --json`
        and `topology.conf`."""
        from schedmate.cluster.slurm.snapshot import read_slurm

        nodes = [node for document in documents for node in document.get("nodes", ())]
        if not nodes or any("items" in document for document in documents):
            return None
        jobs = [job for document in documents for job in document.get("jobs", ())]
        topology = folder / "topology.conf"
        conf = read_text(topology) if topology.exists() else None
        return read_slurm(nodes, jobs, conf, folder.name)
