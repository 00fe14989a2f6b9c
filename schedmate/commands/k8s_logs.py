"""`schedmate k8s logs`: the logs of failed pods as files, with a list of them for `triage`."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from schedmate.commands.k8s_setup import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    limited,
    reach,
)
from schedmate.errors import InputError
from schedmate.files import open_output
from schedmate.terminal import counted, progress, say

if TYPE_CHECKING:
    from schedmate.schedulers.live.kubernetes.api import Api
    from schedmate.schedulers.live.kubernetes.pods import Attempt

COLUMNS = ("log", "job_id", "duration", "gpus", "nodes", "workload", "state", "user")


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
    from schedmate.schedulers.live.bounds import Bounds
    from schedmate.schedulers.live.kubernetes.events import warnings_of
    from schedmate.schedulers.live.kubernetes.logs import Logs, Source

    bounds = limited(Bounds(), namespace)
    rows, unread = [], []
    with closing(reach(bounds, kubeconfig, context)) as api:
        runs = list(_failed(api, selector, bounds.kubernetes.namespaces))
        store = Logs(api, out, kept=None)
        with progress("logs", len(runs)) as advance:
            for done, (job, run) in enumerate(runs, 1):
                sources = [
                    Source(job.namespace, one.pod, one.container, one.previous)
                    for one in run.failures
                ]
                warnings = warnings_of(api, job.namespace, run.failures)
                name = f"{job.name}@{int(run.began)}"
                folder, why = store.fetch(name, sources, tail=False, warnings=warnings)
                if folder is None:
                    unread.append(f"{job.name}: {why}")
                else:
                    rows.append(_row(job, run, folder))
                advance(done, f"{done:,} of {len(runs):,}")
    for one in unread[:20]:
        say(f"note: no log of {one}")
    if not rows:
        raise InputError(
            f"no pod with the labels {selector!r} failed whose log is still there; "
            f"`kubectl get pods -A -l {selector}` shows what there is."
        )
    with open_output(out / "jobs.csv") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    say(f"{counted(len(rows), 'failed run')}: schedmate triage {out / 'jobs.csv'}")


class _Job(NamedTuple):
    namespace: str
    name: str
    workload: str
    gpus: float


def _failed(api: Api, selector: str, namespaces: tuple[str, ...]) -> Iterator[tuple[_Job, Attempt]]:
    """Failed runs of the pods with these labels, those of one controller together."""
    from schedmate.schedulers.live.kubernetes.fields import list_at, part, text_at
    from schedmate.schedulers.live.kubernetes.kinds import path_of
    from schedmate.schedulers.live.kubernetes.pods import attempts, gpus_of, slim_pod

    found: dict[str, list[dict[str, Any]]] = {}
    names: dict[str, tuple[str, str, str]] = {}
    for place in namespaces or (None,):
        for pod in api.list(path_of("", "v1", "pods", place), labelSelector=selector)[0]:
            owners = [
                one for one in list_at(pod, "metadata.ownerReferences") if one.get("controller")
            ]
            owner = owners[0] if owners else {"kind": "Pod", **part(pod, "metadata")}
            uid, kind, name = (text_at(owner, key) for key in ("uid", "kind", "name"))
            found.setdefault(uid, []).append(slim_pod(pod))
            names[uid] = text_at(pod, "metadata.namespace"), kind, name
    for uid, pods in found.items():
        namespace, kind, name = names[uid]
        for run in attempts(pods):
            own = {one.uid for one in run.failures}
            gpus = sum(
                gpus_of(container)
                for pod in pods
                if text_at(pod, "metadata.uid") in own
                for container in list_at(pod, "spec.containers")
            )
            yield _Job(namespace, f"{namespace}/{kind.lower()}/{name}", name, gpus), run


def _row(job: _Job, run: Attempt, folder: Path) -> dict[str, Any]:
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
