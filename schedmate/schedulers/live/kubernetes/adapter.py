"""Kubernetes as the reconcile loop observes it; `acts.py` has the actions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from schedmate.jobs import JobRecord, JobSpec
from schedmate.plain import encodable
from schedmate.schedulers.live.adapter import (
    Description,
    EndedRun,
    LiveJob,
    LiveNode,
)
from schedmate.schedulers.live.bounds import KubernetesBounds
from schedmate.schedulers.live.kubernetes.acts import KubernetesActs
from schedmate.schedulers.live.kubernetes.api import Api, Json, KubernetesError
from schedmate.schedulers.live.kubernetes.events import warnings_of
from schedmate.schedulers.live.kubernetes.fields import text_at
from schedmate.schedulers.live.kubernetes.kinds import OPT_IN, Kind, Pods, kinds, path_of
from schedmate.schedulers.live.kubernetes.logs import Logs, Source
from schedmate.schedulers.live.kubernetes.marks import job_ids
from schedmate.schedulers.live.kubernetes.mirror import Mirror
from schedmate.schedulers.live.kubernetes.nodes import live_node, said_by
from schedmate.schedulers.live.kubernetes.pods import (
    Attempt,
    attempts,
    gpus_of,
    main_container,
    number_of,
    slim_pod,
)
from schedmate.schedulers.live.kubernetes.workloads import (
    Workload,
    describe,
    live,
    nodes_of,
    outcome,
    slim,
    started,
)

SETTLED_S = 10.0
"""Delay of the diagnosis of a run after its first failure, so that its other pods have ended
[s]."""


class KubernetesAdapter(KubernetesActs):
    """One cluster, or some of its namespaces, through its API server."""

    def __init__(
        self,
        api: Api,
        bounds: KubernetesBounds,
        logs: Path,
        *,
        may_act: Callable[[], bool] = lambda: True,
        settled_s: float = SETTLED_S,
    ) -> None:
        """`logs` is the folder that pods' logs are fetched to."""
        super().__init__(api, isolate=bounds.isolate, may_act=may_act)
        self.cluster = bounds.cluster
        self._bounds, self._settled_s = bounds, settled_s
        self._logs = Logs(api, logs)
        self._news = threading.Event()
        self._kinds = [kinds()[name] for name in bounds.kinds]
        self._jobs: list[tuple[Kind, Mirror]] = []
        self._pods: dict[str, list[Mirror]] = {}
        places = bounds.namespaces or (None,)
        selectors = {pods.selector for kind in self._kinds for pods in kind.pods}
        for place in places:
            self._jobs += [
                (kind, self._mirror(kind.path(place), f"{OPT_IN}=true", slim, optional=True))
                for kind in self._kinds
            ]
            for selector in selectors:
                path = path_of("", "v1", "pods", place)
                self._pods.setdefault(selector, []).append(self._mirror(path, selector, slim_pod))
        self._seen: dict[str, Workload] = {}
        self._attempts: dict[str, Attempt] = {}

    def _mirror(
        self, path: str, labels: str, slimmed: Callable[[Json], Json], *, optional: bool = False
    ) -> Mirror:
        changed = self._news.set
        return Mirror(
            self.api, path, labels=labels, slim=slimmed, changed=changed, optional=optional
        )

    @property
    def mirrors(self) -> list[Mirror]:
        """All that is watched."""
        watched = [one for some in self._pods.values() for one in some]
        return [*(mirror for _, mirror in self._jobs), *watched]

    def start(self) -> None:
        """Begin to watch."""
        for mirror in self.mirrors:
            mirror.start()

    def stop(self) -> None:
        """End all watches."""
        for mirror in self.mirrors:
            mirror.stop()

    def wait(self, seconds: float) -> None:
        """Wait for so long, or a second after the next change, if that is sooner."""
        pause = threading.Event()
        if self._news.wait(seconds):
            pause.wait(min(1.0, seconds))
        self._news.clear()

    # -- the queue -------------------------------------------------------

    def jobs(self) -> list[LiveJob]:
        """See `ClusterAdapter.jobs`: from the watched objects, without a request."""
        self._seen = {job.id: job for job in self._workloads()}
        return [one for job in self._seen.values() if (one := live(job)) is not None]

    def _workloads(self) -> Iterator[Workload]:
        pods = self._pods_by_job()
        found = [(kind, one) for kind, mirror in self._jobs for one in mirror.items()]
        known = {kind.id_of(one) for kind, one in found}
        for kind, one in found:
            # created by Kueue or a group scheduler for a job that is watched itself
            if kind.name != "workload" or not known & set(job_ids(one)[:-1]):
                own = {
                    text_at(pod, "metadata.uid"): pod
                    for way in kind.pods
                    if (owner := text_at(one, way.owner))
                    for pod in pods.get((way, text_at(one, "metadata.namespace"), owner), ())
                }
                yield Workload(kind, one, tuple(own.values()))

    def _pods_by_job(self) -> dict[tuple[Pods, str, str], list[Json]]:
        found: dict[tuple[Pods, str, str], list[Json]] = {}
        ways = {way for kind in self._kinds for way in kind.pods}
        for way in ways:
            for mirror in self._pods[way.selector]:
                for pod in mirror.items():
                    owner = way.job_of(pod)
                    if owner:
                        key = way, text_at(pod, "metadata.namespace"), owner
                        found.setdefault(key, []).append(pod)
        return found

    def describe(self, jobs: Sequence[str]) -> dict[str, Description]:
        """See `ClusterAdapter.describe`."""
        return {id_: self._described(self._seen[id_]) for id_ in jobs if id_ in self._seen}

    def _described(self, job: Workload) -> Description:
        """A job's description; with the reason if its object cannot be read."""
        try:
            return describe(job, self._bounds.code)
        except (ValueError, TypeError, ArithmeticError, OSError) as error:
            # what one owner wrote must not keep other users' jobs from being read
            why = f"{job.id} cannot be described: {str(error).partition(chr(10))[0]}"
            return Description(JobSpec(job_id=job.id, user=job.namespace), "", (encodable(why),))

    # -- nodes -----------------------------------------------------------

    def read_nodes(self) -> list[Json]:
        """All nodes as the API server has them now."""
        return self.api.list(path_of("", "v1", "nodes", None))[0]

    def nodes(self) -> list[LiveNode]:
        """See `ClusterAdapter.nodes`; `busy` counts watched jobs."""
        busy: dict[str, float] = {}
        for job in self._seen.values():
            for pod in job.pods:
                if text_at(pod, "status.phase") == "Running":
                    node = text_at(pod, "spec.nodeName")
                    asked = gpus_of(main_container(pod.get("spec")))
                    busy[node] = busy.get(node, 0.0) + asked
        found = ((one, text_at(one, "metadata.name")) for one in self.read_nodes())
        return [live_node(one, name in busy, int(busy.get(name, 0))) for one, name in found]

    # -- what has ended ----------------------------------------------------

    def ended(self, since: float) -> list[EndedRun]:
        """See `ClusterAdapter.ended`: failed runs of jobs that continue, and jobs that are over."""
        self._seen = {job.id: job for job in self._workloads()}
        self._attempts = {}
        found = []
        for job in self._seen.values():
            failed = attempts(job.pods)
            for one in failed:
                if self._is_settled(one, job):
                    found.append(self._failed(job, one))
                    self._attempts[found[-1].run] = one
            over = outcome(job)
            if over is not None and (over[0] != "FAILED" or not failed):
                found.append(self._over(job, over[0], over[1]))
        return [run for run in found if (run.record.end_time or 0.0) >= since]

    def _is_settled(self, run: Attempt, job: Workload) -> bool:
        """Whether the other pods of a run that failed have had time to end as well."""
        return outcome(job) is not None or time.time() - run.ended >= self._settled_s

    def _failed(self, job: Workload, run: Attempt) -> EndedRun:
        nodes = tuple(dict.fromkeys(one.node for one in run.failures if one.node))
        number = number_of(run, job.created)
        record = self._record(job, run.state, run.began, run.ended, f"#{number}")
        return EndedRun(job.id, job.id, job.id, record, nodes, "", "", attempt=number)

    def _over(self, job: Workload, state: str, when: float | None) -> EndedRun:
        began = started(job) or job.created
        record = self._record(job, state, began, max(began, when or began), "")
        return EndedRun(job.id, job.id, job.id, record, nodes_of(job.pods), "", "")

    def _record(
        self, job: Workload, state: str, began: float, ended: float, which: str
    ) -> JobRecord:
        spec = self._described(job).spec
        return JobRecord.model_validate(
            {
                "job_id": f"{self.cluster}/{job.id}@{int(job.created)}{which}",
                "name": spec.name,
                "user": spec.user,
                "command": spec.command,
                "launch": spec.launch.model_dump(),
                "state": state,
                "submit_time": job.created,
                "start_time": began,
                "end_time": ended,
                "duration_s": max(0.0, ended - began),
            }
        )

    def restarts(self, run: EndedRun) -> int | None:
        """See `ClusterAdapter.restarts`: the number of the run (`pods.number_of`)."""
        return (run.attempt or 0) if run.job in self._seen else None

    # -- logs ------------------------------------------------------------

    def log_path(self, job: LiveJob | EndedRun, pattern: str, spec: JobSpec) -> Path | None:
        """See `ClusterAdapter.log_path`: the logs of its pods, fetched now."""
        found = self._seen.get(job.id if isinstance(job, LiveJob) else job.job)
        if found is None:
            return None
        if isinstance(job, LiveJob):
            sources = _running(found)
            return self._logs.fetch(f"{job.id}@running", sources, tail=True)[0]
        attempt = self._attempts.get(job.run)
        if attempt is None:
            return None
        sources = [
            Source(found.namespace, one.pod, one.container, one.previous)
            for one in attempt.failures
        ]
        warnings = warnings_of(self.api, found.namespace, attempt.failures)
        return self._logs.fetch(job.run, sources, tail=False, warnings=warnings)[0]

    def node_logs(self, run: EndedRun) -> list[Path]:
        """See `ClusterAdapter.node_logs`: failures that the run's nodes report."""
        with suppress(KubernetesError):  # with rights for namespaces only, it may not read nodes
            nodes = [one for one in self.read_nodes() if text_at(one, "metadata.name") in run.nodes]
            return self._logs.of_nodes(run.run, said_by(nodes))
        return []


def _running(job: Workload) -> list[Source]:
    """The logs to follow: of one pod, since all ranks go at one speed."""
    running = [pod for pod in job.pods if text_at(pod, "status.phase") == "Running"]
    running.sort(key=lambda pod: text_at(pod, "metadata.name"))
    return [
        Source(
            job.namespace,
            text_at(pod, "metadata.name"),
            text_at(main_container(pod.get("spec")), "name"),
        )
        for pod in running[:1]
    ]
