"""Kubernetes as the reconcile loop observes it, and as an executor of its actions.

`KubernetesAdapter` observes through mirrors of the API server's objects; `KubernetesActs` probes
and takes the actions (the table below has what each is on Kubernetes); `Lookups` reads objects from
the API server itself before one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from schedmate.base.data import encodable
from schedmate.cluster.actions import (
    REASON_PREFIX,
    Action,
    Annotate,
    Drain,
    Order,
    Requeue,
    Resume,
    may_annotate,
)
from schedmate.cluster.adapter import (
    Answer,
    Description,
    EndedRun,
    ExecutorError,
    Finding,
    LiveJob,
    LiveNode,
)
from schedmate.cluster.bounds import KubernetesBounds, left_to_set
from schedmate.cluster.kubernetes.api import (
    JSON_PATCH,
    MERGE_PATCH,
    Api,
    Mirror,
    is_label_value,
    is_name,
    text_at,
)
from schedmate.cluster.kubernetes.connection import Json, KubernetesError
from schedmate.cluster.kubernetes.logs import Logs, LogSource, warnings_of
from schedmate.cluster.kubernetes.nodes import (
    isolation_patch,
    live_node,
    node_faults,
    our_mark,
    return_patch,
    slim_node,
    why_closed,
)
from schedmate.cluster.kubernetes.workloads import (
    BOOST,
    ESTIMATE,
    OPT_IN,
    REQUEUED,
    FailedRun,
    Kind,
    Pods,
    Workload,
    annotation,
    annotation_patch,
    boost_of,
    describe_job,
    failed_runs,
    gpus_of,
    is_live,
    job_began,
    job_ids,
    job_kinds,
    job_outcome,
    live_job,
    main_container,
    mark_of,
    nodes_of,
    owners_of,
    parse_job_id,
    path_of,
    run_number,
    slim_object,
    slim_pod,
    uid_of,
    version_of,
    waits_in_kueue,
)
from schedmate.jobs import JobRecord, JobSpec


class Lookups:
    """Objects as the API server has them now."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def job(self, job: str) -> Workload | None:
        """A job as the API server has it now, without its pods; None if it is gone."""
        namespace, kind, name = parse_job_id(job)
        manifest = self.read(job_kinds()[kind].path(namespace, name))
        return None if manifest is None else Workload(job_kinds()[kind], slim_object(manifest), ())

    def node(self, name: str) -> Json | None:
        """A node as the API server has it now."""
        return self.read(path_of("", "v1", "nodes", None, name))

    def pods(self, job: Workload) -> list[Json]:
        """The pods of a job as the API server has them now."""
        by_uid: dict[str, Json] = {}
        path = path_of("", "v1", "pods", job.namespace)
        for way in job.kind.pods:
            owner = text_at(job.found, way.owner)
            if not is_label_value(owner):
                continue
            selector = f"{way.label}={owner}" if way.label else way.selector
            items, _ = self.api.list(path, slim=slim_pod, labelSelector=selector)
            by_uid |= {
                text_at(pod, "metadata.uid"): pod for pod in items if way.job_of(pod) == owner
            }
        return list(by_uid.values())

    def queued(self, jobs: Iterable[str]) -> dict[str, Json]:
        """The Kueue Workloads of jobs that wait to be admitted, by job."""
        wanted = set(jobs)
        by_job: dict[str, Json] = {}
        for namespace in sorted({parse_job_id(job)[0] for job in wanted}):
            items, _ = self.api.list(job_kinds()["workload"].path(namespace))
            for workload in items:
                job = next((id_ for id_ in job_ids(workload) if id_ in wanted), None)
                if job is not None and waits_in_kueue(workload):
                    by_job[job] = workload
        return by_job

    def order_values(self, jobs: Iterable[str]) -> dict[str, int]:
        """See `ClusterAdapter.order_values`: the boost of jobs that Kueue has not admitted yet."""
        boosts = {job: boost_of(workload) for job, workload in self.queued(jobs).items()}
        return {job: value for job, value in boosts.items() if value is not None}

    def read(self, path: str) -> Json | None:
        """The object at a path; None if there is none."""
        try:
            return self.api.get(path)
        except KubernetesError as error:
            if error.code == 404:
                return None
            raise


# Kubernetes as an executor: probes and takes the actions of `cluster/actions.py`.
#
# | action | is |
# |---|---|
# | `Annotate` | `schedmate.io/estimate` on the job |
# | `Order` | `kueue.x-k8s.io/priority-boost` on its Kueue Workload, while that waits |
# | `Drain`, `Resume` | our own NoSchedule taint on a node, never another |
# | `Requeue` | its pods on the nodes to avoid are evicted; their controller makes new ones |
#
# Every change holds only for the version that was read (409 and a failed test: read again), and is
# first sent as a server-side dry run, so that what admission, quotas or disruption budgets refuse
# is refused before anything is done. Nothing is deleted and no specification is changed.


MOST_TRIES = 5
"""Most times that an object is read again because somebody else has changed it."""

T = TypeVar("T")


class KubernetesActs(Lookups):
    """The executor's half of `KubernetesAdapter`."""

    name = "kubernetes"

    def __init__(
        self, api: Api, *, isolate: bool = False, may_act: Callable[[], bool] = lambda: True
    ) -> None:
        """`isolate` is whether nodes may be tainted and pods evicted; `may_act` whether this agent
        is still the one that works."""
        super().__init__(api)
        self._isolate, self._may_act = isolate, may_act

    # -- looking up ------------------------------------------------------

    def probe(self, action: Action) -> Finding:
        """See `Executor.probe`."""
        match action:
            case Order():
                return self._sorted_out(action)[0]
            case Annotate():
                return self._unwritten(action)[0]
            case Drain() | Resume():
                return self._probe_node(action)
            case Requeue():
                return self._probe_requeue(action)
            case _:
                raise ExecutorError(f"the adapter of Kubernetes takes no action {action.kind!r}.")

    def _sorted_out(self, action: Order) -> tuple[Finding, dict[str, Json]]:
        """The finding, and the Workloads that are still to be set."""
        workloads = self.queued(action.values)
        finding, left = left_to_set(
            action, {job: boost_of(workload) for job, workload in workloads.items()}
        )
        return finding, {job: workloads[job] for job in left}

    def _unwritten(self, action: Annotate) -> tuple[Finding, dict[str, Workload]]:
        left = {}
        for job, text in action.texts.items():
            workload = self.job(job)
            present = "" if workload is None else annotation(workload.found, ESTIMATE)
            if workload is not None and may_annotate(present, text):
                left[job] = workload
        if left:
            return Finding("ready", f"{len(left)} to be written"), left
        return Finding("done", "each has its line, its owner's, or is gone"), {}

    def _probe_node(self, action: Drain | Resume) -> Finding:
        node = self.node(action.node)
        if node is None:
            return Finding("changed", f"no node {action.node}")
        mark, reason = our_mark(node), why_closed(node)
        seen = f"{action.node} is {reason or 'in service'}"
        if isinstance(action, Drain):
            if mark == action.mark:
                return Finding("done", seen)
            return Finding("moot" if mark or reason == "cordoned" else "ready", seen)
        if mark == action.mark:
            return Finding("ready", seen)
        return Finding("changed" if mark else "moot", seen)

    def _probe_requeue(self, action: Requeue) -> Finding:
        job = self.job(action.job)
        if job is None:
            return Finding("changed", f"there is no job {action.job} any more")
        left, begun = self._to_evict(job, action)
        if left:
            # a disruption budget refuses here, before any change
            self._evict(job, left, dry_run=True)
            return Finding("ready", f"{len(left)} of its pods are on {', '.join(action.exclude)}")
        if begun is not None:
            if begun > action.run:
                return Finding("changed", f"a later run of it, {begun}, was ended since")
            return Finding("done", "its pods there were evicted")
        ended = job_outcome(job)
        if ended is not None:
            advice = "cannot be started again: submit it again"
            return Finding("moot", f"its controller has stopped retrying ({ended[0]}); it {advice}")
        return Finding("moot", "no pod of it is there; its controller starts it again")

    def _to_evict(self, job: Workload, action: Requeue) -> tuple[list[Json], int | None]:
        """The pods that are still to be evicted, and the run that the job's mark names."""
        run, uids = mark_of(job)
        pods = [pod for pod in self.pods(job) if is_live(pod)]
        if run is not None and run >= action.run:
            return [pod for pod in pods if text_at(pod, "metadata.uid") in uids], run
        there = [pod for pod in pods if text_at(pod, "spec.nodeName") in action.exclude]
        return there, None

    # -- acting ----------------------------------------------------------

    def act(self, action: Action, *, key: str, timeout_s: float) -> Answer:
        """See `Executor.act`. Requests are not recognised when repeated: the remaining work is
        looked up."""
        if not self._may_act():
            raise ExecutorError("this agent no longer holds the Lease; another has taken over.")
        if isinstance(action, Drain | Resume | Requeue) and not self._isolate:
            return Answer("failed", "the bounds let no node be isolated (kubernetes: isolate)")
        try:
            match action:
                case Order():
                    return self._order(action, timeout_s)
                case Annotate():
                    return self._write(action, timeout_s)
                case Drain() | Resume():
                    return self._set_node(action, timeout_s)
                case Requeue():
                    return self._requeue(action)
                case _:
                    raise ExecutorError(f"the adapter takes no action {action.kind!r}.")
        except KubernetesError as error:
            if error.passes:
                raise
            return Answer("failed", str(error))

    def _changed(
        self, path: str, patch: Callable[[Json], Any | None], kind: str, timeout_s: float
    ) -> bool:
        """Change an object by `patch`, after a dry run; return whether there was a change to
        make."""
        for _ in range(MOST_TRIES):
            present = self.read(path)
            change = None if present is None else patch(present)
            if present is None or change is None:
                return False
            try:
                self.api.patch(path, change, kind, dry_run=True, timeout_s=timeout_s)
                self.api.patch(path, change, kind, timeout_s=timeout_s)
                return True
            except KubernetesError as error:
                if error.code not in (409, 422):
                    raise
                again = self.read(path)
                if (
                    error.code == 422
                    and again is not None
                    and version_of(again) == version_of(present)
                ):
                    raise  # the change itself is refused
        raise KubernetesError(f"{path} is changed by others all the time.", code=409)

    def _write(self, action: Annotate, timeout_s: float) -> Answer:
        _, left = self._unwritten(action)
        for job, workload in left.items():
            text = action.texts[job]

            def patch(manifest: Json, text: str = text, uid: str = workload.uid) -> Any | None:
                present = annotation(manifest, ESTIMATE)
                if present and not present.startswith(REASON_PREFIX):
                    return None  # its owner's
                return (
                    annotation_patch(manifest, ESTIMATE, text) if uid_of(manifest) == uid else None
                )

            self._changed(workload.path, patch, MERGE_PATCH, timeout_s)
        return Answer("done", f"{len(left)} written")

    def _order(self, action: Order, timeout_s: float) -> Answer:
        _, left = self._sorted_out(action)
        for job, workload in left.items():
            wanted, before = action.values[job], action.previous.get(job)
            path = job_kinds()["workload"].path(
                parse_job_id(job)[0], text_at(workload, "metadata.name")
            )

            def patch(
                manifest: Json, wanted: int = wanted, before: int | None = before
            ) -> Any | None:
                if not waits_in_kueue(manifest) or boost_of(manifest) != before:
                    return None
                return annotation_patch(manifest, BOOST, str(wanted) if wanted else "")

            self._changed(path, patch, MERGE_PATCH, timeout_s)
        finding, still = self._sorted_out(action)
        if finding.state == "done":  # the others have been admitted meanwhile
            return Answer("done", finding.detail)
        return Answer("failed", f"{len(still)} jobs kept their value: {finding.detail}")

    def _set_node(self, action: Drain | Resume, timeout_s: float) -> Answer:
        path = path_of("", "v1", "nodes", None, action.node)

        def patch(node: Json) -> Any | None:
            if isinstance(action, Resume):
                return return_patch(node, action.mark) or None
            return None if our_mark(node) else isolation_patch(node, action.mark)

        done = self._changed(path, patch, JSON_PATCH, timeout_s)
        finding = self.probe(action)
        if not done and finding.state == "changed":
            return Answer("failed", finding.detail)
        return Answer("done", finding.detail)

    def _requeue(self, action: Requeue) -> Answer:
        """Mark the job with the run and the pods that are to go, then evict these."""
        job = self.job(action.job)
        if job is None:
            return Answer("failed", f"there is no job {action.job} any more")
        left, begun = self._to_evict(job, action)
        if begun is None and left:
            uids = sorted(text_at(pod, "metadata.uid") for pod in left)

            def patch(manifest: Json) -> Any | None:
                if uid_of(manifest) != job.uid:
                    return None
                return annotation_patch(manifest, REQUEUED, " ".join([str(action.run), *uids]))

            self._changed(job.path, patch, MERGE_PATCH, 30.0)
        self._evict(job, left)
        nodes = ", ".join(action.exclude)
        return Answer("done", f"{len(left)} of its pods on {nodes} evicted")

    def _evict(self, job: Workload, pods: Iterable[Json], *, dry_run: bool = False) -> None:
        """Evict pods, each only if it is still the observed one."""
        for pod in pods:
            name, uid = text_at(pod, "metadata.name"), text_at(pod, "metadata.uid")
            body: Json = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": job.namespace},
                "deleteOptions": {"preconditions": {"uid": uid}},
            }
            if dry_run:
                body["deleteOptions"]["dryRun"] = ["All"]
            path = f"{path_of('', 'v1', 'pods', job.namespace, name)}/eviction"
            try:
                self.api.create(path, body, dry_run=dry_run, waits=False)
            except KubernetesError as error:
                if error.code == 404 or (error.code == 409 and "uid" in str(error).lower()):
                    continue  # it has gone by itself, or another one has its name
                raise


# Kubernetes as the reconcile loop observes it.


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
        labelled: bool = True,
    ) -> None:
        """`logs` is the folder that pods' logs are fetched to; `labelled` is whether only jobs
        with the label `OPT_IN` are watched."""
        super().__init__(api, isolate=bounds.isolate, may_act=may_act)
        self.cluster = bounds.cluster
        self._bounds, self._settled_s = bounds, settled_s
        self._logs = Logs(api, logs)
        self._news = threading.Event()
        self._kinds = [job_kinds()[name] for name in bounds.kinds]
        self._jobs: list[tuple[Kind, Mirror]] = []
        self._pods: dict[str, list[Mirror]] = {}
        places = bounds.namespaces or (None,)
        selectors = {pods.selector for kind in self._kinds for pods in kind.pods}
        chosen = f"{OPT_IN}=true" if labelled else None
        for place in places:
            self._jobs += [
                (kind, self._mirror(kind.path(place), chosen, slim_object, optional=True))
                for kind in self._kinds
            ]
            for selector in selectors:
                path = path_of("", "v1", "pods", place)
                those = selector if labelled or selector != f"{OPT_IN}=true" else None
                self._pods.setdefault(selector, []).append(self._mirror(path, those, slim_pod))
        self._seen: dict[str, Workload] = {}
        self._attempts: dict[str, FailedRun] = {}

    def _mirror(
        self,
        path: str,
        labels: str | None,
        slimmed: Callable[[Json], Json],
        *,
        optional: bool = False,
    ) -> Mirror:
        changed = self._news.set
        return Mirror(
            self.api, path, labels=labels, slim=slimmed, changed=changed, optional=optional
        )

    @property
    def mirrors(self) -> list[Mirror]:
        """The mirrors of all watched objects: jobs and pods."""
        watched = [one for some in self._pods.values() for one in some]
        return [*(mirror for _, mirror in self._jobs), *watched]

    def start(self) -> None:
        """Start all watches; `stop` ends them."""
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
        return [one for job in self._seen.values() if (one := live_job(job)) is not None]

    def _workloads(self) -> Iterator[Workload]:
        pods = self._pods_by_job()
        manifests = [(kind, manifest) for kind, mirror in self._jobs for manifest in mirror.items()]
        job_ids_seen = {kind.id_of(manifest) for kind, manifest in manifests}
        for kind, manifest in manifests:
            # created by Kueue or a group scheduler for a job that is watched itself
            if job_ids_seen.isdisjoint(owners_of(manifest)):
                own = {
                    text_at(pod, "metadata.uid"): pod
                    for way in kind.pods
                    if (owner := text_at(manifest, way.owner))
                    for pod in pods.get((way, text_at(manifest, "metadata.namespace"), owner), ())
                }
                yield Workload(kind, manifest, tuple(own.values()))

    def _pods_by_job(self) -> dict[tuple[Pods, str, str], list[Json]]:
        by_job: dict[tuple[Pods, str, str], list[Json]] = {}
        ways = {way for kind in self._kinds for way in kind.pods}
        for way in ways:
            for mirror in self._pods[way.selector]:
                for pod in mirror.items():
                    owner = way.job_of(pod)
                    if owner:
                        key = way, text_at(pod, "metadata.namespace"), owner
                        by_job.setdefault(key, []).append(pod)
        return by_job

    def describe(self, jobs: Sequence[str], *, scripts: bool = True) -> dict[str, Description]:
        """See `ClusterAdapter.describe`."""
        return {id_: self._described(self._seen[id_]) for id_ in jobs if id_ in self._seen}

    def describe_ended(self, run: EndedRun) -> Description | None:
        """See `ClusterAdapter.describe_ended`."""
        return self.describe([run.raw]).get(run.raw)

    def skipped(self) -> list[str]:
        """See `ClusterAdapter.skipped`: each object once, until something else is wrong with it."""
        return self.api.skipped.news()

    def _described(self, job: Workload) -> Description:
        """A job's description; with the reason if its object cannot be read."""
        try:
            return describe_job(job, self._bounds.code)
        except (ValueError, TypeError, ArithmeticError, OSError) as error:
            # what one owner wrote must not keep other users' jobs from being read
            why = f"{job.id} cannot be described: {str(error).partition(chr(10))[0]}"
            return Description(JobSpec(job_id=job.id, user=job.namespace), "", (encodable(why),))

    def measured_as(self, jobs: Sequence[str]) -> dict[str, dict[str, str]]:
        """See `ClusterAdapter.measured_as`: by the names of their pods."""
        pods = {
            id_: [name for pod in job.pods if is_name(name := text_at(pod, "metadata.name"))]
            for id_ in jobs
            if (job := self._seen.get(id_)) is not None
        }
        return {
            id_: {
                "namespace": self._seen[id_].namespace,
                "pods": "|".join(name.replace(".", "[.]") for name in names),
            }
            for id_, names in pods.items()
            if names
        }

    # -- nodes -----------------------------------------------------------

    def read_nodes(self) -> list[Json]:
        """All nodes as the API server has them now."""
        return self.api.list(path_of("", "v1", "nodes", None), slim=slim_node)[0]

    def nodes(self) -> list[LiveNode]:
        """See `ClusterAdapter.nodes`; `busy` counts watched jobs."""
        busy: dict[str, float] = {}
        for job in self._seen.values():
            for pod in job.pods:
                if text_at(pod, "status.phase") == "Running":
                    node = text_at(pod, "spec.nodeName")
                    asked = gpus_of(main_container(pod.get("spec")))
                    busy[node] = busy.get(node, 0.0) + asked
        named = ((manifest, text_at(manifest, "metadata.name")) for manifest in self.read_nodes())
        return [
            live_node(manifest, name in busy, int(busy.get(name, 0))) for manifest, name in named
        ]

    # -- what has ended ----------------------------------------------------

    def ended(self, since: float) -> list[EndedRun]:
        """See `ClusterAdapter.ended`: failed runs of jobs that continue, and jobs that are over."""
        self._seen = {job.id: job for job in self._workloads()}
        self._attempts = {}
        runs = []
        for job in self._seen.values():
            failed = failed_runs(job.pods)
            for failed_run in failed:
                if self._is_settled(failed_run, job):
                    runs.append(self._failed(job, failed_run))
                    self._attempts[runs[-1].run] = failed_run
            over = job_outcome(job)
            if over is not None and (over[0] != "FAILED" or not failed):
                runs.append(self._over(job, over[0], over[1]))
        return [run for run in runs if (run.record.end_time or 0.0) >= since]

    def _is_settled(self, run: FailedRun, job: Workload) -> bool:
        """Whether the other pods of a run that failed have had time to end as well."""
        return job_outcome(job) is not None or time.time() - run.ended >= self._settled_s

    def _failed(self, job: Workload, run: FailedRun) -> EndedRun:
        nodes = tuple(dict.fromkeys(failure.node for failure in run.failures if failure.node))
        number = run_number(run, job.created)
        record = self._record(job, run.state, run.began, run.ended, f"#{number}")
        return EndedRun(job.id, job.id, job.id, record, nodes, "", "", attempt=number)

    def _over(self, job: Workload, state: str, when: float | None) -> EndedRun:
        began = job_began(job) or job.created
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
        """See `ClusterAdapter.restarts`: the number of the run, `EndedRun.attempt`."""
        return (run.attempt or 0) if run.job in self._seen else None

    # -- logs ------------------------------------------------------------

    def log_path(self, job: LiveJob | EndedRun, pattern: str, spec: JobSpec) -> Path | None:
        """See `ClusterAdapter.log_path`: the logs of its pods, fetched now."""
        workload = self._seen.get(job.id if isinstance(job, LiveJob) else job.job)
        if workload is None:
            return None
        if isinstance(job, LiveJob):
            sources = _logs_of_running(workload)
            return self._logs.fetch(f"{job.id}@running", sources, tail=True)[0]
        attempt = self._attempts.get(job.run)
        if attempt is None:
            return None
        sources = [
            LogSource(workload.namespace, failure.pod, failure.container, failure.previous)
            for failure in attempt.failures
        ]
        warnings = warnings_of(self.api, workload.namespace, attempt.failures)
        return self._logs.fetch(job.run, sources, tail=False, warnings=warnings)[0]

    def node_logs(self, run: EndedRun) -> list[Path]:
        """See `ClusterAdapter.node_logs`: failures that the run's nodes report."""
        with suppress(KubernetesError):  # with rights for namespaces only, it may not read nodes
            nodes = [
                manifest
                for manifest in self.read_nodes()
                if text_at(manifest, "metadata.name") in run.nodes
            ]
            return self._logs.of_nodes(run.run, node_faults(nodes))
        return []


def _logs_of_running(job: Workload) -> list[LogSource]:
    """The logs to follow: of one pod, since all ranks go at one speed."""
    running = [pod for pod in job.pods if text_at(pod, "status.phase") == "Running"]
    speaker = job.kind.speaker
    running.sort(
        key=lambda pod: (speaker.place(pod) if speaker else 0, text_at(pod, "metadata.name"))
    )
    return [
        LogSource(
            job.namespace,
            text_at(pod, "metadata.name"),
            text_at(main_container(pod.get("spec")), "name"),
        )
        for pod in running[:1]
    ]
