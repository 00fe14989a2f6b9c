"""`schedmate k8s`: runs schedmate's agent beside a Kubernetes cluster.

Also plans for one failed job and takes plans back, saves logs of failed pods, and checks the
rights that the bounds need.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import typer

from schedmate.base.errors import InputError, UsageError, require
from schedmate.base.files import open_output
from schedmate.base.terminal import counted, progress, say
from schedmate.cluster.kubernetes import Kubernetes
from schedmate.commands.agents import (
    BoundsOption,
    DryRunOption,
    OnceOption,
    StateOption,
    UndoOption,
    examine,
    opened_agent,
    plan_for,
    run_agent,
)
from schedmate.commands.options import HistoryOption, JsonOption

if TYPE_CHECKING:
    from schedmate.cluster.kubernetes.adapter import KubernetesAdapter
    from schedmate.cluster.kubernetes.api import Api
    from schedmate.cluster.kubernetes.workloads import FailedRun
    from schedmate.cluster.loop import Pass


KubeconfigOption = Annotated[
    str | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="Kubeconfig file. Default: this pod's service account, or kubectl's configuration.",
    ),
]
ContextOption = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.")
]
NamespaceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="Watch only this namespace. Repeatable. Default: those of the bounds, or all.",
    ),
]


KIND = Kubernetes()

app = typer.Typer(help="Run schedmate's agent beside a Kubernetes cluster.", no_args_is_help=True)


@app.command()
def agent(
    once: OnceOption = False,
    dry_run: DryRunOption = False,
    undo: UndoOption = False,
    bounds: BoundsOption = None,
    state: StateOption = None,
    history: HistoryOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    namespace: NamespaceOption = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Address of Prometheus metrics, such as 0.0.0.0:9095."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate jobs labelled schedmate.io/watch=true, and diagnose failed ones.

    Without --bounds it changes nothing but its Lease. Of several agents, only the holder of the
    Lease acts. With --json each pass is a line, with --once a document.

    Examples:

      schedmate k8s agent --once --dry-run

      schedmate k8s agent --bounds /etc/schedmate/bounds.yaml --metrics 0.0.0.0:9095
    """
    where: dict[str, Any] = {"kubeconfig": kubeconfig, "context": context, "namespaces": namespace}
    with ExitStack() as stack:
        setup = stack.enter_context(
            opened_agent(KIND, bounds, state, history, dry_run=dry_run, **where)
        )
        seen: Callable[[Pass], object] | None = None
        if metrics is not None:
            counting = AgentMetrics(metrics, setup.adapter, setup.goes_on)
            seen = stack.enter_context(counting).seen
        run_agent(setup, once=once, undo=undo, as_json=as_json, seen=seen)


@app.command()
def plan(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="NAMESPACE/KIND/NAME, such as team-a/job/train.")
    ],
    bounds: BoundsOption = None,
    state: StateOption = None,
    history: HistoryOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read the logs of a job whose pods failed and show a plan; change nothing.

    With recovery in the bounds, the plan is the one that the agent would propose.
    """
    from schedmate.cluster.adapter import ExecutorError
    from schedmate.cluster.kubernetes.workloads import parse_job_id

    try:
        namespace = parse_job_id(job)[0]
    except ExecutorError as error:
        raise UsageError(str(error)) from None
    where: dict[str, Any] = {
        "kubeconfig": kubeconfig,
        "context": context,
        "namespaces": [namespace],
    }
    plan_for(KIND, job, bounds, state, history, as_json=as_json, **where)


@app.command()
def undo(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="Id of a recovery plan.")],
    bounds: BoundsOption = None,
    state: StateOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Undo a plan: remove schedmate's taint, and no other, from its node.

    Evicted pods stay where they are now. The agent may keep running meanwhile.
    """
    from schedmate.cluster.adapter import ExecutorError

    where: dict[str, Any] = {"kubeconfig": kubeconfig, "context": context}
    with opened_agent(KIND, bounds, state, None, watches=False, **where) as setup:
        if setup.recovery is None:
            raise UsageError("the bounds name no recovery.yaml; give them with --bounds.")
        result = setup.recovery.undo(plan)
        if result.stopped is not None:
            raise ExecutorError(f"plan {plan}: {result.stopped}: {result.detail}")
        say(
            f"plan {plan} is {result.status.state}."
            + (f" {result.detail}." if result.detail else "")
        )


@app.command()
def doctor(
    bounds: BoundsOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    namespace: NamespaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the cluster, and each right that the bounds need; changes nothing.

    Rights are checked by the API server (SelfSubjectAccessReview), and isolation is tried as a
    server-side dry run. Exits with 1 when a check failed (✗); a warning (!) leaves it at 0.
    """
    where: dict[str, Any] = {"kubeconfig": kubeconfig, "context": context, "namespaces": namespace}
    examine(KIND, bounds, as_json=as_json, **where)


# `schedmate k8s logs`: logs of failed pods, for triage.


LOG_COLUMNS = ("log", "job_id", "duration", "gpus", "nodes", "workload", "state", "user")


@app.command()
def logs(
    selector: Annotated[
        str, typer.Argument(metavar="SELECTOR", help="Labels of the pods, as kubectl takes them.")
    ],
    out: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder for the logs and their list, jobs.csv.")
    ],
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Fetch the logs of failed pods into folders, with a list for triage.

    Each run of a job gets a folder. If a container was restarted, the log before the restart is
    fetched; warnings among a pod's events are appended. Each log is cut at 32 MiB. The list,
    jobs.csv, has job, state, nodes, GPUs and run time from the API server.

    Examples:

      schedmate k8s logs app=training failed

      schedmate triage failed/jobs.csv --out report.html
    """
    from schedmate.cluster.bounds import Bounds
    from schedmate.cluster.kubernetes.api import reach_api
    from schedmate.cluster.kubernetes.logs import Logs, LogSource, warnings_of

    bounds = KIND.limited(Bounds(), namespaces=namespace)
    rows, unread = [], []
    with closing(reach_api(bounds, kubeconfig, context)) as api:
        runs = list(_failed_jobs(api, selector, bounds.kubernetes.namespaces))
        store = Logs(api, out, kept=None)
        with progress("logs", len(runs)) as advance:
            for done, (job, run) in enumerate(runs, 1):
                sources = [
                    LogSource(job.namespace, one.pod, one.container, one.previous)
                    for one in run.failures
                ]
                warnings = warnings_of(api, job.namespace, run.failures)
                name = f"{job.name}@{int(run.began)}"
                folder, why = store.fetch(name, sources, tail=False, warnings=warnings)
                if folder is None:
                    unread.append(f"{job.name}: {why}")
                else:
                    rows.append(_log_row(job, run, folder))
                advance(done, f"{done:,} of {len(runs):,}")
    for one in unread[:20]:
        say(f"note: no log of {one}")
    if not rows:
        raise InputError(
            f"no pod with the labels {selector!r} failed whose log is still there; "
            f"`kubectl get pods -A -l {selector}` shows what there is."
        )
    with open_output(out / "jobs.csv") as stream:
        writer = csv.DictWriter(stream, LOG_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    say(f"{counted(len(rows), 'failed run')}: schedmate triage {out / 'jobs.csv'}")


class _FailedJob(NamedTuple):
    namespace: str
    name: str
    workload: str
    gpus: float


def _failed_jobs(
    api: Api, selector: str, namespaces: tuple[str, ...]
) -> Iterator[tuple[_FailedJob, FailedRun]]:
    """Failed runs of the pods with these labels, those of one controller together."""
    from schedmate.cluster.kubernetes.api import list_at, object_at, text_at
    from schedmate.cluster.kubernetes.workloads import failed_runs, gpus_of, path_of, slim_pod

    pods_by_owner: dict[str, list[dict[str, Any]]] = {}
    names: dict[str, tuple[str, str, str]] = {}
    for place in namespaces or (None,):
        for pod in api.list(path_of("", "v1", "pods", place), labelSelector=selector)[0]:
            owners = [
                one for one in list_at(pod, "metadata.ownerReferences") if one.get("controller")
            ]
            owner = owners[0] if owners else {"kind": "Pod", **object_at(pod, "metadata")}
            uid, kind, name = (text_at(owner, key) for key in ("uid", "kind", "name"))
            pods_by_owner.setdefault(uid, []).append(slim_pod(pod))
            names[uid] = text_at(pod, "metadata.namespace"), kind, name
    for uid, pods in pods_by_owner.items():
        namespace, kind, name = names[uid]
        for run in failed_runs(pods):
            own = {one.uid for one in run.failures}
            gpus = sum(
                gpus_of(container)
                for pod in pods
                if text_at(pod, "metadata.uid") in own
                for container in list_at(pod, "spec.containers")
            )
            yield _FailedJob(namespace, f"{namespace}/{kind.lower()}/{name}", name, gpus), run


def _log_row(job: _FailedJob, run: FailedRun, folder: Path) -> dict[str, Any]:
    return {
        "log": folder.name,
        "job_id": f"{job.name}@{int(run.began)}",
        "duration": int(run.ended - run.began),
        "gpus": f"{job.gpus:g}",
        "nodes": ",".join(dict.fromkeys(one.node for one in run.failures if one.node)),
        "workload": job.workload,
        "state": run.state,
        "user": job.namespace,
    }


# What an agent counts, for Prometheus. No label holds a name that a user can choose.


class AgentMetrics:
    """Serves metrics at HOST:PORT for as long as it is entered."""

    def __init__(self, address: str, adapter: KubernetesAdapter, leads: Callable[[], bool]) -> None:
        require("--metrics", "k8s", "prometheus_client")
        from prometheus_client import CollectorRegistry, Counter, Gauge

        host, _, port = address.rpartition(":")
        if not port.isdecimal() or int(port) > 65_535:
            raise UsageError(f"--metrics {address!r} is not HOST:PORT, such as 0.0.0.0:9095.")
        self._host, self._port = host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - as asked
        self.registry = registry = CollectorRegistry()
        self._passes = Counter(
            "schedmate_agent_passes", "Passes over the cluster", registry=registry
        )
        self._problems = Counter(
            "schedmate_agent_problems", "What could not be done in passes", registry=registry
        )
        self._estimates = Counter(
            "schedmate_agent_estimates", "Jobs estimated", ("outcome",), registry=registry
        )
        self._failures = Counter(
            "schedmate_agent_failures",
            "Failed runs by whose fault it was",
            ("type",),
            registry=registry,
        )
        self._actions = Counter(
            "schedmate_agent_actions",
            "Actions by their plan's state",
            ("kind", "state"),
            registry=registry,
        )
        self._jobs = Gauge("schedmate_agent_jobs", "Jobs looked at", ("state",), registry=registry)
        self._last = Gauge(
            "schedmate_agent_last_pass_timestamp_seconds",
            "When the last pass began",
            registry=registry,
        )
        self._waiting = Gauge(
            "schedmate_agent_plans_waiting", "Plans that wait to be approved", registry=registry
        )
        leader = Gauge(
            "schedmate_agent_leader", "Whether this agent holds the Lease", registry=registry
        )
        leader.set_function(lambda: float(leads()))
        lists = Gauge("schedmate_agent_lists", "Lists that watches had to make", registry=registry)
        lists.set_function(lambda: float(sum(mirror.lists for mirror in adapter.mirrors)))
        self._server: Any = None

    def __enter__(self) -> Self:
        from prometheus_client import start_http_server

        try:
            self._server, self._thread = start_http_server(
                self._port, addr=self._host, registry=self.registry
            )
        except OSError as error:
            raise UsageError(
                f"cannot serve metrics at {self._host}:{self._port}: {error.strerror}; choose "
                "another port with --metrics."
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        """The port of the metrics server."""
        return int(self._server.server_port)

    def seen(self, result: Pass) -> None:
        """Add the problems, failures, estimates and actions of a pass to the metrics."""
        self._passes.inc()
        self._problems.inc(len(result.problems))
        self._last.set(result.time)
        self._waiting.set(len(result.waiting))
        self._jobs.labels("pending").set(result.pending)
        self._jobs.labels("running").set(result.running)
        for estimated in result.estimated:
            self._estimates.labels("abstained" if estimated.estimate.abstained else "given").inc()
        for failed in result.failed:
            self._failures.labels(
                failed.diagnosis.error_type if failed.diagnosis else "unread"
            ).inc()
        for done in result.actions:
            self._actions.labels(done.action.kind, done.state).inc()
