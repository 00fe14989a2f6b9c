"""Real clusters: Slurm, Kubernetes, Ray. A folder for each, and what is common to all.

`actions.py` has the actions on a cluster, `adapter.py` the interface of an adapter, `loop.py` the
agent that watches a cluster, `bounds.py` its permissions, `memory.py` its findings, `record.py` the
plans and how each is carried out exactly once; `recovery/` restarts failed jobs.

A new kind of cluster is a folder with a `ClusterKind`, and one line in `BUNDLED`; other packages
register theirs in the entry point group `schedmate.clusters`. The settings, `schedmate init`,
`schedmate doctor`, `schedmate KIND agent|doctor|plan`, the sections of `bounds.yaml` and the
exports that `schedmate fleet` reads all use this table.
"""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from schedmate.base.errors import UsageError, did_you_mean
from schedmate.base.plugins import CLUSTERS, load_plugin, plugins

if TYPE_CHECKING:
    from pydantic import BaseModel

    from schedmate.cluster.adapter import ClusterAdapter, EndedRun, Runner, Usage
    from schedmate.cluster.bounds import Bounds
    from schedmate.cluster.metrics import Gauge
    from schedmate.schedulers.fleet.snapshot import FleetSnapshot

BUNDLED = {
    "slurm": ("slurm", "schedmate.cluster.slurm:Slurm"),
    "kubernetes": ("k8s", "schedmate.cluster.kubernetes:Kubernetes"),
    "ray": ("ray", "schedmate.cluster.ray:Ray"),
}
"""By kind: the name of its group of commands, and its class as `module:Class`."""

A = TypeVar("A", bound="ClusterAdapter")

MEMORY_FILE, ALARMS_FILE, RECORD_FILE = "memory.db", "alarms.db", "record.db"
"""An agent's files, in its directory of state."""
SHADOW_FOLDER = "shadow"
"""Where an agent that changes nothing keeps its files, apart from those of one that acts."""
BACK_S = 14 * 86_400.0
"""Age of the oldest runs for which a plan can be requested [s]."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check: its name, status, what was observed, and what to do about it."""

    name: str
    status: Literal["ok", "warning", "failed"]
    fact: str
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Reached(Generic[A]):
    """A cluster that answers: its adapter, and what an agent needs to work with it."""

    adapter: A
    runner: Runner
    """What runs the diagnostics of recovery."""
    lease: Callable[[], AbstractContextManager[object]] = nullcontext
    """Lease that the agent holds besides its claim in the record, to be the only one."""
    pause: Callable[[float], object] = field(default=time.sleep)
    """Waits for this time [s] between passes."""
    goes_on: Callable[[], bool] = lambda: True
    """Whether the agent may make another pass."""
    gauges: Mapping[str, Gauge] = field(default_factory=dict)
    """Numbers that only this kind of cluster has, by the name of the metric."""


class ClusterKind(Generic[A]):
    """Base of every kind of cluster. A subclass sets `name` and `title` and overrides `adapter` or
    `reached`; everything else has a default.

    Its module imports nothing heavy: the methods do. `where` are the options of its commands that
    select a cluster; without any it is the one that this machine belongs to.
    """

    name: ClassVar[str]
    """The kind's name in the settings and in `bounds.yaml`."""
    title: ClassVar[str]
    """The name shown to people: `Slurm`."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names that `cluster_kind` accepts."""
    commands: ClassVar[str] = ""
    """The module of its commands, if it has more than `agent`, `doctor` and `plan`."""
    next_steps: ClassVar[tuple[str, ...]] = ()
    """Commands that `schedmate init` suggests next."""
    contact: ClassVar[str] = "scheduler"
    """Name of the first check of its doctor: whether this component answers."""
    contact_hint: ClassVar[str] = "run this where the cluster can be reached"
    """What to do when nothing answers."""
    about_agent: ClassVar[str] = ""
    """What the help of its agent says first, with a space behind."""
    job_help: ClassVar[str] = "The scheduler's id of the job."
    no_run: ClassVar[str] = "no run of {job} is known that ended in the last 14 days."
    """Message if a job has no run to plan for."""
    why_no_start: ClassVar[str] = ""
    """Why it cannot be said when its waiting jobs start; empty: it can."""

    @property
    def group(self) -> str:
        """The name of its group of commands."""
        return BUNDLED[self.name][0] if self.name in BUNDLED else self.name

    @property
    def further(self) -> str:
        """A reference to the command with more checks than `schedmate doctor`."""
        return f"`schedmate {self.group} doctor` checks each right"

    def is_here(self) -> bool:
        """Whether this machine belongs to such a cluster, which is cheap to find out."""
        return False

    def section(self) -> type[BaseModel] | None:
        """The model of its section of `bounds.yaml`, if it has one: `Bounds.section_of`."""
        return None

    def adapter(self, bounds: Bounds) -> A:
        """The adapter of the cluster; raises `SchedmateError` if the cluster does not answer."""
        raise UsageError(f"there is no agent for {self.title}.")

    @contextmanager
    def reached(
        self, bounds: Bounds, folder: Path, *, watches: bool = True, **where: Any
    ) -> Iterator[Reached[A]]:
        """The cluster, closed afterwards; raises `SchedmateError` if it does not answer.

        `folder` is for files of the adapter. `watches` is False to undo a plan by hand, while an
        agent may continue to run.
        """
        from schedmate.cluster.adapter import NoRunner

        yield Reached(self.adapter(bounds), NoRunner(self.title))

    @contextmanager
    def visited(self, bounds: Bounds, user: str | None = None) -> Iterator[A]:
        """The cluster as a person's command reads it once, closed afterwards; with a `user`, only
        their jobs need be seen. Raises `SchedmateError` if it does not answer."""
        yield self.adapter(bounds)

    def own_user(self) -> str:
        """Whose jobs are one's own, as `LiveJob.user` says it."""
        return getpass.getuser()

    def is_job_id(self, word: str) -> bool:
        """Whether a word can only be an id of a job of such a cluster."""
        return word.isdecimal() and len(word) <= 18

    def limited(self, bounds: Bounds, **where: Any) -> Bounds:
        """The bounds, narrowed by the options of the command line."""
        return bounds

    def fact(self, bounds: Bounds) -> str:
        """The cluster in a few words, for `schedmate doctor`; raises `SchedmateError`."""
        return f"{self.title}, cluster {self.adapter(bounds).cluster}"

    def checks(self, bounds: Bounds, **where: Any) -> Iterator[Check]:
        """The checks of its doctor, in the order in which a fault would be looked for.

        What it raises (`SchedmateError`) is a failed check of `contact`.
        """
        from schedmate.base.terminal import counted

        adapter = self.adapter(bounds)
        fact = f"{self.title}, cluster {adapter.cluster}, {counted(len(adapter.jobs()), 'job')}"
        yield Check(self.contact, "ok", fact)

    def runs_of(self, adapter: A, job: str, now: float) -> list[EndedRun]:
        """The ended runs of a job for which a plan can be requested, oldest first."""
        return [run for run in adapter.ended(now - BACK_S) if run.job == job]

    def where_of(self, job: str) -> dict[str, Any]:
        """What the id of a job says of `where` it is; raises `UsageError` for no id."""
        return {}

    def usage(self, adapter: A, jobs: Sequence[str], *, running: bool) -> dict[str, Usage]:
        """What these jobs, all running or all ended, used of what they asked for, by id; without
        those of which nothing is known."""
        return {}

    def read_export(self, documents: list[dict[str, Any]], folder: Path) -> FleetSnapshot | None:
        """The fleet in the JSON documents of a folder of exports; None if they are not of this
        kind."""
        return None


def cluster_names() -> list[str]:
    """Names of all kinds of clusters: those of schedmate, then those of installed packages."""
    return [*BUNDLED, *plugins(CLUSTERS, BUNDLED)]


def cluster_kind(name: str) -> ClusterKind[Any]:
    """The kind with this name or alias.

    Raises `UsageError` if there is none, or if the package that registers it cannot be loaded.
    """
    if name in BUNDLED:
        return _loaded(name, BUNDLED[name][1])
    registered = plugins(CLUSTERS)
    if name in registered:
        return _loaded(name, registered[name])
    for kind in clusters():
        if name in kind.aliases:
            return kind
    names = cluster_names()
    raise UsageError(
        f"no kind of cluster is called {name!r}; there are {', '.join(names)}"
        f"{did_you_mean(name, names) or '.'}"
    )


def clusters() -> Iterator[ClusterKind[Any]]:
    """All kinds of clusters, schedmate's own first."""
    for name, (_, target) in BUNDLED.items():
        yield _loaded(name, target)
    for name, target in plugins(CLUSTERS, BUNDLED).items():
        yield _loaded(name, target)


def kind_here() -> ClusterKind[Any] | None:
    """The first kind of cluster that this machine belongs to."""
    return next((kind for kind in clusters() if kind.is_here()), None)


@cache
def _loaded(name: str, target: str) -> ClusterKind[Any]:
    kind_class = load_plugin(f"cluster {name!r}", target)
    if not (isinstance(kind_class, type) and issubclass(kind_class, ClusterKind)):
        raise UsageError(
            f"cluster {name!r}: {target} is not a subclass of schedmate.cluster.ClusterKind; "
            "derive it from that (examples/plugin/my_site/clusters.py)."
        )
    kind: ClusterKind[Any] = kind_class()
    if kind.name != name:
        raise UsageError(f"cluster {name!r}: {target} calls itself {kind.name!r}; use one name.")
    return kind
