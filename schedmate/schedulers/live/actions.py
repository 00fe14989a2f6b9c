"""The actions that schedmate may take on a cluster: a closed list, and nothing else is possible.

Each action is data: its target and arguments are its fields, `precondition` says what must be true
of the cluster before it is taken (empty: nothing), and `undo()` is the action that takes it back,
or None. An action is written so that its effect can be seen afterwards (`Executor.probe`), because
whoever takes it may be killed at any moment: a drain carries a mark of its plan, a requeue the
number of the run it ends, an order the values before and after.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from schedmate.schedulers.live.names import (
    LONGEST_NOTE,
    REASON_PREFIX,
    DiagnosticName,
    JobId,
    Mark,
    NodeName,
    Note,
    Seconds,
)
from schedmate.terminal import counted

__all__ = [
    "ACTION",
    "LONGEST_NOTE",
    "REASON_PREFIX",
    "Action",
    "Annotate",
    "Diagnose",
    "Drain",
    "Hold",
    "JobId",
    "Kind",
    "Mark",
    "NodeName",
    "Note",
    "Notify",
    "Order",
    "Release",
    "Requeue",
    "Resume",
]


class _Action(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @property
    def target(self) -> str:
        """What it acts on, in words: `node gpu-7`, `job 17`, `12 jobs`."""
        raise NotImplementedError

    @property
    def in_words(self) -> str:
        """The whole action for people: `requeue job 17 without gpu-7`."""
        return f"{getattr(self, 'kind')} {self.target}"  # noqa: B009 - each kind of action has it

    @property
    def precondition(self) -> str:
        """What must be true of the cluster before it is taken, as a sentence; `Executor.probe`
        is where that is looked up."""
        raise NotImplementedError

    def undo(self) -> Action | None:
        """The action that takes it back; None where nothing can or need be taken back."""
        return None


def _jobs(ids: dict[str, object] | dict[str, int] | dict[str, str]) -> str:
    return f"job {next(iter(ids))}" if len(ids) == 1 else counted(len(ids), "job")


class Order(_Action):
    """Give pending jobs a place in the queue: `values` by job, `previous` what they had.

    The unit is the adapter's (Slurm: SiteFactor), larger is earlier. An adapter sends jobs of equal
    value together. It is done when every job that is still pending has its value.
    """

    kind: Literal["order"] = "order"
    values: dict[JobId, int] = Field(min_length=1)
    previous: dict[JobId, int]

    @property
    def target(self) -> str:
        return _jobs(self.values)

    @property
    def precondition(self) -> str:
        return "each job is pending and has the value that it had; others are left out"

    def undo(self) -> Action | None:
        known = {job: self.previous[job] for job in self.values if job in self.previous}
        return Order(values=known, previous=self.values) if known else None


class Annotate(_Action):
    """Write a line beside jobs for people to read: `texts` by job, `previous` what stood there."""

    kind: Literal["annotate"] = "annotate"
    texts: dict[JobId, Note] = Field(min_length=1)
    previous: dict[JobId, Note] = Field(default_factory=dict)

    @property
    def target(self) -> str:
        return _jobs(self.texts)

    @property
    def precondition(self) -> str:
        return "what stands beside each job is empty or schedmate's own"

    def undo(self) -> Action | None:
        before = {job: self.previous.get(job, "") for job in self.texts}
        return Annotate(texts=before, previous=self.texts)


class Drain(_Action):
    """Take a node out of service; jobs on it go on. The node's reason becomes `reason`."""

    kind: Literal["drain"] = "drain"
    node: NodeName
    mark: Mark

    @property
    def reason(self) -> str:
        """`schedmate: MARK`, by which an administrator, and `Resume`, knows whose drain it is."""
        return f"{REASON_PREFIX} {self.mark}"

    @property
    def target(self) -> str:
        return f"node {self.node}"

    @property
    def precondition(self) -> str:
        return "the node is in service and not drained"

    def undo(self) -> Action | None:
        return Resume(node=self.node, mark=self.mark)


class Resume(_Action):
    """Put a node back into service that `Drain` with the same mark took out, and no other."""

    kind: Literal["resume"] = "resume"
    node: NodeName
    mark: Mark

    @property
    def reason(self) -> str:
        """The reason that the node must have now."""
        return f"{REASON_PREFIX} {self.mark}"

    @property
    def target(self) -> str:
        return f"node {self.node}"

    @property
    def precondition(self) -> str:
        return f"the node is drained, for the reason '{self.reason}' to the letter"


class Requeue(_Action):
    """Put a job that ended, or runs, back into the queue, where it will not start on `exclude`.

    `run` is the number of the run that this ends or follows (restarts so far: 0 the first). Where
    it takes several steps (Slurm: requeuehold, ExcNodeList, release), the adapter takes what is
    left of them when asked again.
    """

    kind: Literal["requeue"] = "requeue"
    job: JobId
    run: int = Field(ge=0)
    exclude: tuple[NodeName, ...] = ()

    @property
    def target(self) -> str:
        return f"job {self.job}"

    @property
    def in_words(self) -> str:
        return super().in_words + (f" without {', '.join(self.exclude)}" if self.exclude else "")

    @property
    def precondition(self) -> str:
        return f"run {self.run} is the job's last, and its scheduler still knows it"


class Hold(_Action):
    """Keep a pending job from starting."""

    kind: Literal["hold"] = "hold"
    job: JobId

    @property
    def target(self) -> str:
        return f"job {self.job}"

    @property
    def precondition(self) -> str:
        return "the job is pending and not held"

    def undo(self) -> Action | None:
        return Release(job=self.job)


class Release(_Action):
    """Let a held job start again."""

    kind: Literal["release"] = "release"
    job: JobId

    @property
    def target(self) -> str:
        return f"job {self.job}"

    @property
    def precondition(self) -> str:
        return "the job is pending and held"

    def undo(self) -> Action | None:
        return Hold(job=self.job)


class Diagnose(_Action):
    """Run one of the administrator's diagnostics on nodes; what it shows is the answer's `data`.

    `diagnostic` is a name in `recovery.yaml`; the command stands there, never in a plan. It is run
    on `each` node alone, or over all of them together (a collective) and, where that fails, over
    groups of them, `halving` those until the faulty nodes are found.
    """

    kind: Literal["diagnose"] = "diagnose"
    diagnostic: DiagnosticName
    nodes: tuple[NodeName, ...] = Field(min_length=1)
    how: Literal["each", "halving"] = "each"
    timeout_s: Seconds = 900.0

    @property
    def target(self) -> str:
        one = len(self.nodes) == 1
        return f"node {self.nodes[0]}" if one else counted(len(self.nodes), "node")

    @property
    def in_words(self) -> str:
        how = "each alone" if self.how == "each" else "by halving"
        return f"{super().in_words} with {self.diagnostic}, {how}: {', '.join(self.nodes[:8])}" + (
            " ..." if len(self.nodes) > 8 else ""
        )

    @property
    def precondition(self) -> str:
        return "no job runs on the nodes"


class Notify(_Action):
    """Tell a person; `text` is what they read. It changes nothing on the cluster."""

    kind: Literal["notify"] = "notify"
    to: Literal["user", "operator"]
    job: JobId | None = None
    text: Note

    @property
    def target(self) -> str:
        return f"the {self.to}" + (f" of job {self.job}" if self.job and self.to == "user" else "")

    @property
    def in_words(self) -> str:
        return f"{super().in_words}: {self.text}"

    @property
    def precondition(self) -> str:
        return ""


Action = Annotated[
    Order | Annotate | Drain | Resume | Requeue | Hold | Release | Diagnose | Notify,
    Field(discriminator="kind"),
]
"""Any of them; as JSON, `kind` tells which."""

Kind = Literal[
    "order", "annotate", "drain", "resume", "requeue", "hold", "release", "diagnose", "notify"
]

ACTION: TypeAdapter[Action] = TypeAdapter(Action)
"""`ACTION.validate_json(text)` is an action from JSON."""
