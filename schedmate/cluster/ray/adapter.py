"""The queue as the reconcile loop sees it: a `ClusterAdapter` over the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from schedmate.cluster.actions import Action, Drain, Hold, Release, Requeue, Resume
from schedmate.cluster.adapter import Answer, Description, EndedRun, Finding, LiveJob, LiveNode
from schedmate.cluster.ray.runs import log_of
from schedmate.cluster.ray.seats import NodeSeen
from schedmate.cluster.ray.store import OVER, Store, StoredJob, StoredRun
from schedmate.jobs import JobRecord, JobSpec

QUEUE = "queue"
"""The partition that all nodes are in."""


class QueueAdapter:
    """Reads and changes the store; the controller notices what was changed."""

    name = "ray"

    def __init__(self, store: Store, cluster: str, nodes: Callable[[], Sequence[NodeSeen]]) -> None:
        self._store, self._nodes = store, nodes
        self.cluster = cluster

    # -- observing ----------------------------------------------------------------

    def jobs(self) -> list[LiveJob]:
        """See `ClusterAdapter.jobs`."""
        runs = {run.job: run for run in self._store.open_runs()}
        return [_live_job(stored, runs.get(stored.id)) for stored in self._store.jobs()]

    def node_logs(self, run: EndedRun) -> list[Path]:
        """See `ClusterAdapter.node_logs`; Ray's nodes report nothing."""
        return []

    def measured_as(self, jobs: Sequence[str]) -> dict[str, dict[str, str]]:
        """See `ClusterAdapter.measured_as`; the queue measures by itself."""
        return {}

    def describe(self, jobs: Sequence[str], *, scripts: bool = True) -> dict[str, Description]:
        """See `ClusterAdapter.describe`."""
        descriptions = {}
        for id_ in jobs:
            stored = self._stored(id_)
            if stored is not None:
                spec = stored.request.spec
                descriptions[id_] = Description(
                    spec.model_copy(update={"submit_time": stored.queued}), ""
                )
        return descriptions

    def describe_ended(self, run: EndedRun) -> Description | None:
        """See `ClusterAdapter.describe_ended`."""
        return self.describe([run.raw]).get(run.raw)

    def skipped(self) -> list[str]:
        """See `ClusterAdapter.skipped`: the queue wrote all records itself."""
        return []

    def nodes(self) -> list[LiveNode]:
        """See `ClusterAdapter.nodes`."""
        drains = self._store.drains()
        busy = {place.name for run in self._store.open_runs() for place in run.places}
        return [
            LiveNode(
                name=node.name,
                healthy=node.name not in drains,
                drained=node.name in drains,
                busy=node.name in busy,
                reason=drains.get(node.name, ""),
                queues=(QUEUE,),
                gpus=node.gpus,
            )
            for node in self._nodes()
        ]

    def ended(self, since: float) -> list[EndedRun]:
        """See `ClusterAdapter.ended`."""
        ended_runs = []
        for run in self._store.final_runs(since):
            stored = self._store.job(run.job)
            if stored is not None:
                ended_runs.append(_ended_run(stored, run, self._store.runs_of(run.job)))
        return ended_runs

    def restarts(self, run: EndedRun) -> int | None:
        """See `ClusterAdapter.restarts`."""
        for stored_run in self._store.runs_of(int(run.raw)):
            if str(log_of(stored_run)) == run.log:
                return stored_run.restart
        return None

    def order_values(self, jobs: Iterable[str]) -> dict[str, int]:
        """None: the policy orders by the estimates themselves."""
        return {}

    def log_path(self, job: LiveJob | EndedRun, pattern: str, spec: JobSpec) -> Path | None:
        """See `ClusterAdapter.log_path`; of a run on several nodes, the folder of their logs."""
        runs = self._store.runs_of(int(job.id if isinstance(job, LiveJob) else job.raw))
        if isinstance(job, EndedRun):
            runs = [one for one in runs if str(log_of(one)) == job.log]
        if not runs:
            return None
        return Path(runs[-1].folder) if len(runs[-1].places) > 1 else log_of(runs[-1])

    # -- actions ---------------------------------------------------------------------

    def probe(self, action: Action) -> Finding:
        """See `Executor.probe`."""
        if isinstance(action, Drain | Resume):
            return self._probe_node(action)
        if not isinstance(action, Requeue | Hold | Release):
            return Finding("changed", f"the queue cannot {action.kind}")
        stored = self._stored(action.job)
        if stored is None:
            return Finding("changed", f"the queue has no job {action.job}")
        seen = f"job {stored.id} is {stored.state}, restarted {stored.restarts} times"
        if isinstance(action, Requeue):
            if stored.restarts == action.run:
                return Finding("ready" if stored.state in OVER else "moot", seen)
            return Finding("done" if stored.restarts == action.run + 1 else "changed", seen)
        if stored.state != "PENDING":
            return Finding("changed", seen)
        return Finding("done" if stored.held is isinstance(action, Hold) else "ready", seen)

    def act(self, action: Action, *, key: str, timeout_s: float) -> Answer:
        """See `Executor.act`."""
        now = time.time()
        if isinstance(action, Drain):
            self._store.drain(action.node, action.reason, now)
        elif isinstance(action, Resume):
            self._store.undrain(action.node)
        elif isinstance(action, Requeue):
            why = "put back after a failure"
            if not self._store.requeue(int(action.job), action.exclude, now, why):
                return Answer("failed", f"job {action.job} is not over")
        elif isinstance(action, Hold | Release):
            self._store.change(int(action.job), asked=True, held=isinstance(action, Hold))
        else:
            return Answer("failed", f"the queue cannot {action.kind}")
        return Answer("done")

    def _probe_node(self, action: Drain | Resume) -> Finding:
        reason = self._store.drains().get(action.node)
        if action.node not in {one.name for one in self._nodes()}:
            return Finding("changed", f"the cluster has no node {action.node}")
        seen = f"{action.node} is " + (f"out of service: {reason}" if reason else "in service")
        if isinstance(action, Drain):
            done = reason == action.reason
            return Finding("ready" if reason is None else "done" if done else "moot", seen)
        if reason is None:
            return Finding("moot", seen)
        return Finding("ready" if reason == action.reason else "changed", seen)

    def _stored(self, id_: str) -> StoredJob | None:
        return self._store.job(int(id_)) if id_.isdigit() and len(id_) < 18 else None


def _live_job(stored: StoredJob, run: StoredRun | None) -> LiveJob:
    spec = stored.request.spec
    return LiveJob(
        id=str(stored.id),
        group=str(stored.id),
        state="RUNNING" if stored.state == "RUNNING" else "PENDING",
        user=spec.user or "",
        queues=(QUEUE,),
        submitted=stored.queued,
        started=None if run is None else run.started,
        nodes=() if run is None else tuple(place.name for place in run.places),
        held=stored.held,
        reason=stored.why,
        priority=stored.request.priority,
    )


def _ended_run(stored: StoredJob, run: StoredRun, runs: Sequence[StoredRun]) -> EndedRun:
    """One submission, from when it was queued to the end of its last run."""
    spec, nodes = stored.request.spec, tuple(place.name for place in run.places)
    own = [
        attempt
        for attempt in runs
        if attempt.restart == run.restart and attempt.started is not None
    ]
    last = stored.restarts == run.restart
    queued = stored.queued if last else (own[0].decided if own else run.decided)
    use = stored.profile or {}
    record = JobRecord(
        job_id=str(stored.id) if run.restart == 0 else f"{stored.id}.{run.restart}",
        name=spec.name,
        user=spec.user,
        command=spec.command,
        launch=spec.launch,
        state=run.outcome,
        submit_time=queued,
        start_time=own[0].started if own else None,
        end_time=run.ended,
        duration_s=sum(
            (attempt.ended or 0.0) - (attempt.started or 0.0) for attempt in own if attempt.ended
        ),
        gpu_util=use.get("gpu_util"),
        gpu_mem_mb=use.get("memory_mb"),
    )
    return EndedRun(
        job=str(stored.id),
        raw=str(stored.id),
        group=str(stored.id),
        record=record,
        nodes=nodes,
        workdir=spec.repo or "",
        log=str(log_of(run)),
        # put back within a second of its end, it would have the key of its first run
        attempt=run.restart or None,
    )
