"""Present state from the API server itself, before actions: jobs, nodes, pods, order."""

from __future__ import annotations

from collections.abc import Iterable

from schedmate.schedulers.live.kubernetes.api import Api, Json, KubernetesError
from schedmate.schedulers.live.kubernetes.fields import text_at
from schedmate.schedulers.live.kubernetes.kinds import kinds, path_of
from schedmate.schedulers.live.kubernetes.marks import boost_of, job_ids, parts_of, waits
from schedmate.schedulers.live.kubernetes.pods import slim_pod
from schedmate.schedulers.live.kubernetes.workloads import Workload, slim


class Lookups:
    """Objects as the API server has them now."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def job(self, job: str) -> Workload | None:
        """A job as the API server has it now, without its pods; None if it is gone."""
        namespace, kind, name = parts_of(job)
        found = self.read(kinds()[kind].path(namespace, name))
        return None if found is None else Workload(kinds()[kind], slim(found), ())

    def node(self, name: str) -> Json | None:
        """A node as the API server has it now."""
        return self.read(path_of("", "v1", "nodes", None, name))

    def pods(self, job: Workload) -> list[Json]:
        """The pods of a job as the API server has them now."""
        found: dict[str, Json] = {}
        path = path_of("", "v1", "pods", job.namespace)
        for one in job.kind.pods:
            owner = text_at(job.found, one.owner)
            if not owner:
                continue
            selector = f"{one.label}={owner}" if one.label else one.selector
            items, _ = self.api.list(path, labelSelector=selector)
            found |= {
                text_at(pod, "metadata.uid"): pod for pod in items if one.job_of(pod) == owner
            }
        return [slim_pod(pod) for pod in found.values()]

    def queued(self, jobs: Iterable[str]) -> dict[str, Json]:
        """The Kueue Workloads of jobs that wait to be admitted, by job."""
        wanted = set(jobs)
        found: dict[str, Json] = {}
        for namespace in sorted({parts_of(job)[0] for job in wanted}):
            items, _ = self.api.list(kinds()["workload"].path(namespace))
            for one in items:
                job = next((id_ for id_ in job_ids(one) if id_ in wanted), None)
                if job is not None and waits(one):
                    found[job] = one
        return found

    def order_values(self, jobs: Iterable[str]) -> dict[str, int]:
        """See `ClusterAdapter.order_values`: the boost of jobs that Kueue has not admitted yet."""
        found = {job: boost_of(one) for job, one in self.queued(jobs).items()}
        return {job: value for job, value in found.items() if value is not None}

    def read(self, path: str) -> Json | None:
        """The object at a path; None if there is none."""
        try:
            return self.api.get(path)
        except KubernetesError as error:
            if error.code == 404:
                return None
            raise
