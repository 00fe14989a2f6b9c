"""Kubernetes through its API server: what schedmate watches and does there.

`adapter.py` observes and acts, `api.py` speaks to the server, `workloads.py` and `nodes.py` read
its objects, `snapshot.py` an export of a whole cluster; `doctor.py` checks the rights on one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedmate.base.errors import UsageError
from schedmate.cluster import Check, ClusterKind, Reached

if TYPE_CHECKING:
    from schedmate.cluster.adapter import EndedRun
    from schedmate.cluster.bounds import Bounds
    from schedmate.cluster.kubernetes.adapter import KubernetesAdapter
    from schedmate.schedulers.fleet.snapshot import FleetSnapshot


class Kubernetes(ClusterKind["KubernetesAdapter"]):
    """Kubernetes, through the API server of a kubeconfig or of the pod that this runs in.

    `where`: `kubeconfig`, `context`, `namespaces`.
    """

    name, title = "kubernetes", "Kubernetes"
    aliases = ("k8s", "kueue")
    commands = "schedmate.commands.k8s"
    next_steps = ("schedmate k8s doctor    # each right that the agent needs",)
    contact = "API server"
    contact_hint = (
        "run `kubectl version` here, as the same user; docs/kubernetes.md says what is needed"
    )
    about_agent = (
        "Reads jobs with the label schedmate.io/watch=true. Not run on a real cluster yet, only on "
        "a stand-in of the API server. "
    )
    job_help = "NAMESPACE/KIND/NAME, such as team-a/job/train."
    why_no_start = "the queue of Kubernetes is not run forward"
    no_run = (
        "no run of {job} has failed whose pods can still be seen; `kubectl get pods` shows what is "
        "left, and a plan is made only for a job with the label schedmate.io/watch=true."
    )

    def is_here(self) -> bool:
        """Whether this runs in a pod, or there is a kubeconfig."""
        kubeconfig = os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config"
        return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) or Path(kubeconfig).is_file()

    def limited(self, bounds: Bounds, **where: Any) -> Bounds:
        """The bounds, for the namespaces of the command line if there are any."""
        from schedmate.cluster.bounds import KubernetesBounds

        namespaces = where.get("namespaces")
        if not namespaces:
            return bounds
        section = bounds.kubernetes.model_dump() | {"namespaces": tuple(namespaces)}
        return bounds.model_copy(update={"kubernetes": KubernetesBounds.model_validate(section)})

    @contextmanager
    def reached(
        self, bounds: Bounds, folder: Path, *, watches: bool = True, **where: Any
    ) -> Iterator[Reached[KubernetesAdapter]]:
        """See `ClusterKind.reached`. It is watched from here on, unless it is for a person who
        takes plans back: no Lease is needed for that."""
        from schedmate.cluster.adapter import NoRunner
        from schedmate.cluster.kubernetes.adapter import KubernetesAdapter
        from schedmate.cluster.kubernetes.api import own_namespace, reach_api
        from schedmate.cluster.kubernetes.lease import Leadership
        from schedmate.cluster.metrics import Gauge

        section = bounds.kubernetes
        with closing(reach_api(bounds, where.get("kubeconfig"), where.get("context"))) as api:
            leadership = Leadership(api, section.lease_namespace or own_namespace(), section.lease)
            may_act = (lambda: leadership.held) if watches else (lambda: True)
            adapter = KubernetesAdapter(api, section, folder / "logs", may_act=may_act)
            if not watches:
                yield Reached(adapter, NoRunner(self.title))
                return
            adapter.start()
            try:
                yield Reached(
                    *(adapter, NoRunner(self.title), leadership.holding, adapter.wait, may_act),
                    gauges={
                        "schedmate_agent_leader": Gauge(
                            "Whether this agent holds the Lease", lambda: float(leadership.held)
                        ),
                        "schedmate_agent_lists": Gauge(
                            "Lists that watches had to make",
                            lambda: float(sum(mirror.lists for mirror in adapter.mirrors)),
                        ),
                    },
                )
            finally:
                adapter.stop()

    @contextmanager
    def visited(self, bounds: Bounds, user: str | None = None) -> Iterator[KubernetesAdapter]:
        """See `ClusterKind.visited`: jobs with and without the label, in one namespace or those of
        the bounds; logs are fetched into the data directory."""
        from schedmate.cluster.kubernetes.adapter import KubernetesAdapter
        from schedmate.cluster.kubernetes.api import reach_api
        from schedmate.settings import data_dir

        logs = data_dir() / "kubernetes" / "logs"
        bounds = self.limited(bounds, namespaces=None if user is None else [user])
        with closing(reach_api(bounds)) as api:
            adapter = KubernetesAdapter(api, bounds.kubernetes, logs, labelled=False)
            adapter.start()
            try:
                yield adapter
            finally:
                adapter.stop()

    def own_user(self) -> str:
        """See `ClusterKind.own_user`: jobs belong to a namespace, one's own is that of the pod or
        of the kubeconfig's context."""
        from schedmate.cluster.kubernetes.api import own_namespace
        from schedmate.cluster.kubernetes.connection import context_namespace

        in_a_pod = "KUBERNETES_SERVICE_HOST" in os.environ
        return own_namespace() if in_a_pod else context_namespace()

    def is_job_id(self, word: str) -> bool:
        """See `ClusterKind.is_job_id`: NAMESPACE/KIND/NAME."""
        from schedmate.cluster.adapter import ExecutorError
        from schedmate.cluster.kubernetes.workloads import parse_job_id

        try:
            return bool(parse_job_id(word))
        except ExecutorError:
            return False

    def fact(self, bounds: Bounds) -> str:
        """See `ClusterKind.fact`."""
        from schedmate.cluster.kubernetes.api import reach_api

        with closing(reach_api(bounds)) as api:
            return f"{api.server}, {api.get('/version').get('gitVersion')}"

    def checks(self, bounds: Bounds, **where: Any) -> Iterator[Check]:
        """See `ClusterKind.checks`."""
        from schedmate.cluster.kubernetes.api import reach_api
        from schedmate.cluster.kubernetes.doctor import kubernetes_checks

        with closing(reach_api(bounds, where.get("kubeconfig"), where.get("context"))) as api:
            yield from kubernetes_checks(bounds, api)

    def where_of(self, job: str) -> dict[str, Any]:
        """See `ClusterKind.where_of`: its namespace, the only one that may be allowed."""
        from schedmate.cluster.adapter import ExecutorError
        from schedmate.cluster.kubernetes.workloads import parse_job_id

        try:
            return {"namespaces": [parse_job_id(job)[0]]}
        except ExecutorError as error:
            raise UsageError(str(error)) from None

    def runs_of(self, adapter: KubernetesAdapter, job: str, now: float) -> list[EndedRun]:
        """See `ClusterKind.runs_of`: failed ones, as far back as there are pods."""
        from schedmate.jobs import FAILURE_STATES

        ended = adapter.ended(0.0)
        return [run for run in ended if run.job == job and run.record.state in FAILURE_STATES]

    def read_export(self, documents: list[dict[str, Any]], folder: Path) -> FleetSnapshot | None:
        """See `ClusterKind.read_export`: lists of `kubectl get -o json`."""
        from schedmate.cluster.kubernetes.snapshot import read_kubernetes

        if not any("items" in document for document in documents):
            return None
        return read_kubernetes(
            (item for document in documents for item in document.get("items", ())), folder.name
        )
