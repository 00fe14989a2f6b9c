"""The closed list of actions that schedmate may take on a cluster.

Each action is data: its fields are target and arguments, `precondition` is what must be true of
the cluster before it is taken (empty: nothing), and `undo()` is the action that reverts it, or
None. All names in actions are validated here once, so that no command can read them as an option,
a pattern or a list.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

from schedmate.base.inputs import host_name
from schedmate.base.terminal import clean, counted

REASON_PREFIX = "schedmate:"
"""How the reason of every node that schedmate takes out of service begins."""

LONGEST_NOTE = 255
"""Characters of an annotation at most."""

_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:+-]{0,399}\Z")
_MARK = re.compile(r"[a-z0-9][a-z0-9.-]{0,58}[a-z0-9]\Z")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}\Z")


def _job_id(text: str) -> str:
    if not text.isascii() or _JOB.match(text) is None:
        raise ValueError(f"{clean(text, 40)!r} cannot be the id of a job")
    return text


def _node_name(text: str) -> str:
    if host_name(text) is None:
        raise ValueError(f"{clean(text, 40)!r} cannot be the name of a node")
    return text


def _mark(text: str) -> str:
    if _MARK.match(text) is None:
        raise ValueError(f"{clean(text, 40)!r} cannot mark a drain: a-z, 0-9, '-' and '.' only")
    return text


def _diagnostic(text: str) -> str:
    if _NAME.match(text) is None:
        raise ValueError(f"{clean(text, 40)!r} cannot be the name of a diagnostic")
    return text


JobId = Annotated[str, AfterValidator(_job_id)]
"""Slurm's `17` and `17_4`, Kubernetes' `namespace/kind/name`, Ray's `raysubmit_x`; never a list."""

NodeName = Annotated[str, AfterValidator(_node_name)]
"""One machine, by the rules of host names (`schedmate.base.inputs`)."""

Mark = Annotated[str, AfterValidator(_mark)]
"""Identifies the drain of a plan: `ecc-error-1f0c2a9b7d3e`."""

Note = Annotated[str, AfterValidator(lambda text: clean(text, LONGEST_NOTE))]
"""One line of printable text."""

DiagnosticName = Annotated[str, AfterValidator(_diagnostic)]
"""A diagnostic of recovery.yaml."""

Seconds = Annotated[float, Field(gt=0, le=86_400)]


# The closed list of actions that schedmate may take on a cluster.
#
# Each action is data: its fields are target and arguments, `precondition` is what must be true of
# the cluster before it is taken (empty: nothing), and `undo()` is the action that reverts it, or
# None. The effect of an action can be seen afterwards (`Executor.probe`), because the process that
# takes it may be killed at any moment: a drain carries a mark of its plan, a requeue the number of
# the run that it ends, an order the values before and after.


class _Action(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str

    @property
    def target(self) -> str:
        """Its target in words: `node gpu-7`, `job 17`, `12 jobs`."""
        raise NotImplementedError

    @property
    def in_words(self) -> str:
        """The whole action for people: `requeue job 17 without gpu-7`."""
        return f"{self.kind} {self.target}"

    @property
    def precondition(self) -> str:
        """What must be true of the cluster before it is taken, as a sentence.

        `Executor.probe` checks it.
        """
        raise NotImplementedError

    def undo(self) -> Action | None:
        """The action that reverts it; None if nothing can or need be reverted."""
        return None


class _OnJob(_Action):
    job: JobId

    @property
    def target(self) -> str:
        return f"job {self.job}"


class _OnNode(_Action):
    node: NodeName
    mark: Mark

    @property
    def target(self) -> str:
        return f"node {self.node}"

    @property
    def reason(self) -> str:
        """`schedmate: MARK`, which tells administrators, and `Resume`, whose drain it is."""
        return f"{REASON_PREFIX} {self.mark}"


def _jobs_in_words(ids: dict[str, object] | dict[str, int] | dict[str, str]) -> str:
    return f"job {next(iter(ids))}" if len(ids) == 1 else counted(len(ids), "job")


class Order(_Action):
    """Set the queue positions of pending jobs: new `values` by job, and the `previous` ones.

    The unit is the adapter's (Slurm: SiteFactor); larger is earlier. An adapter sets jobs of equal
    value together. The action is done when every job that is still pending has its value.
    """

    kind: Literal["order"] = "order"
    values: dict[JobId, int] = Field(min_length=1)
    previous: dict[JobId, int]

    @property
    def target(self) -> str:
        return _jobs_in_words(self.values)

    @property
    def precondition(self) -> str:
        return "each job is pending and has its previous value; others are left out"

    def undo(self) -> Action | None:
        previous_values = {job: self.previous[job] for job in self.values if job in self.previous}
        return Order(values=previous_values, previous=self.values) if previous_values else None


class Annotate(_Action):
    """Write a note on jobs for people to read: new `texts` by job, and the `previous` ones."""

    kind: Literal["annotate"] = "annotate"
    texts: dict[JobId, Note] = Field(min_length=1)
    previous: dict[JobId, Note] = Field(default_factory=dict)

    @property
    def target(self) -> str:
        return _jobs_in_words(self.texts)

    @property
    def precondition(self) -> str:
        return "the note of each job is empty or schedmate's own"

    def undo(self) -> Action | None:
        before = {job: self.previous.get(job, "") for job in self.texts}
        return Annotate(texts=before, previous=self.texts)


class Drain(_OnNode):
    """Take a node out of service, with `reason`; its jobs keep running."""

    kind: Literal["drain"] = "drain"

    @property
    def precondition(self) -> str:
        return "the node is in service and not drained"

    def undo(self) -> Action | None:
        return Resume(node=self.node, mark=self.mark)


class Resume(_OnNode):
    """Return a node to service that a `Drain` with the same mark took out of it."""

    kind: Literal["resume"] = "resume"

    @property
    def precondition(self) -> str:
        return f"the node is drained, with exactly the reason '{self.reason}'"


class Requeue(_OnJob):
    """Requeue a job that has ended, or is running, so that it does not start on `exclude`.

    `run` is the number of the run that this ends or follows (restarts so far, from 0). If it takes
    several steps (Slurm: requeuehold, ExcNodeList, release), a repeated call takes the remaining
    ones.
    """

    kind: Literal["requeue"] = "requeue"
    run: int = Field(ge=0)
    exclude: tuple[NodeName, ...] = ()

    @property
    def in_words(self) -> str:
        return super().in_words + (f" without {', '.join(self.exclude)}" if self.exclude else "")

    @property
    def precondition(self) -> str:
        return f"run {self.run} is the job's last, and the scheduler still knows the job"


class Hold(_OnJob):
    """Keep a pending job from starting."""

    kind: Literal["hold"] = "hold"

    @property
    def precondition(self) -> str:
        return "the job is pending and not held"

    def undo(self) -> Action | None:
        return Release(job=self.job)


class Release(_OnJob):
    """Let a held job start again."""

    kind: Literal["release"] = "release"

    @property
    def precondition(self) -> str:
        return "the job is pending and held"

    def undo(self) -> Action | None:
        return Hold(job=self.job)


class Diagnose(_Action):
    """Run one of the administrator's diagnostics on nodes; the answer's `data` is its result.

    `diagnostic` is a name in `recovery.yaml`, which has the command; a plan never has. It runs on
    `each` node alone, or as a collective over all of them and, if that fails, over smaller groups,
    `halving` them until the faulty nodes are found.
    """

    kind: Literal["diagnose"] = "diagnose"
    diagnostic: DiagnosticName
    nodes: tuple[NodeName, ...] = Field(min_length=1)
    how: Literal["each", "halving"] = "each"
    timeout_s: Seconds = 900.0

    @property
    def target(self) -> str:
        is_single = len(self.nodes) == 1
        return f"node {self.nodes[0]}" if is_single else counted(len(self.nodes), "node")

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
    """Send `text` to a person. Changes nothing on the cluster."""

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
"""Any action; in JSON, `kind` names it."""

Kind = Literal[
    "order", "annotate", "drain", "resume", "requeue", "hold", "release", "diagnose", "notify"
]

ACTION: TypeAdapter[Action] = TypeAdapter(Action)
"""`ACTION.validate_json(text)` parses an action."""


def may_annotate(present: str, text: str) -> bool:
    """Whether `text` may replace the `present` note of a job: it is empty, or another of ours."""
    return present != text and (not present or present.startswith(REASON_PREFIX))


_DIAGNOSTIC_JOB = re.compile(r"schedmate-[0-9a-f]{12}-[0-9][0-9-]{0,40}\Z")


def diagnostic_name(key: str) -> str:
    """The name of the job that runs a diagnostic; `key` is that of the attempt (`Attempt.key`)."""
    return f"schedmate-{key}"


def is_diagnostic_name(name: str | None) -> bool:
    """Whether a job has the name of schedmate's own, which is neither learned nor diagnosed."""
    return name is not None and _DIAGNOSTIC_JOB.match(name) is not None
