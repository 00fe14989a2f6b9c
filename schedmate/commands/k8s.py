"""`schedmate k8s`: runs schedmate's agent beside a Kubernetes cluster.

Also takes plans back and saves logs of failed pods.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from schedmate.base.errors import InputError, UsageError
from schedmate.base.files import open_output
from schedmate.base.terminal import counted, no_formula, progress, say
from schedmate.cluster.kubernetes import Kubernetes
from schedmate.commands.agents import BoundsOption, StateOption, cluster_app, opened_agent

if TYPE_CHECKING:
    from schedmate.cluster.kubernetes.api import Api
    from schedmate.cluster.kubernetes.workloads import FailedRun


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

app = cluster_app(
    KIND, kubeconfig=KubeconfigOption, context=ContextOption, namespaces=NamespaceOption
)


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
        "workload": no_formula(job.workload),
        "state": run.state,
        "user": job.namespace,
    }
