"""Kubernetes as an executor: probes and takes the actions of `live/actions.py`.

| action | is |
|---|---|
| `Annotate` | `schedmate.io/estimate` on the job |
| `Order` | `kueue.x-k8s.io/priority-boost` on its Kueue Workload, while that waits |
| `Drain`, `Resume` | our own NoSchedule taint on a node, never another |
| `Requeue` | its pods on the nodes to avoid are evicted; their controller makes new ones |

Every change holds only for the version that was read (409 and a failed test: read again), and is
first sent as a server-side dry run, so that what admission, quotas or disruption budgets refuse is
refused before anything is done. Nothing is deleted and no specification is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from schedmate.schedulers.live.actions import (
    REASON_PREFIX,
    Action,
    Annotate,
    Drain,
    Order,
    Requeue,
    Resume,
    may_annotate,
)
from schedmate.schedulers.live.executor import Answer, ExecutorError, Finding
from schedmate.schedulers.live.kubernetes.api import (
    JSON_PATCH,
    MERGE_PATCH,
    Api,
    Json,
    KubernetesError,
)
from schedmate.schedulers.live.kubernetes.fields import text_at
from schedmate.schedulers.live.kubernetes.kinds import (
    BOOST,
    ESTIMATE,
    REQUEUED,
    kinds,
    path_of,
)
from schedmate.schedulers.live.kubernetes.lookups import Lookups
from schedmate.schedulers.live.kubernetes.marks import (
    annotating,
    boost_of,
    mark_of,
    parts_of,
    uid_of,
    version_of,
    waits,
)
from schedmate.schedulers.live.kubernetes.nodes import (
    isolating,
    ours,
    reason_of,
    returning,
)
from schedmate.schedulers.live.kubernetes.pods import annotation, is_live
from schedmate.schedulers.live.kubernetes.workloads import Workload, outcome
from schedmate.schedulers.live.ordering import left_to_set

TRIES = 5
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
        found = self.queued(action.values)
        finding, left = left_to_set(action, {job: boost_of(one) for job, one in found.items()})
        return finding, {job: found[job] for job in left}

    def _unwritten(self, action: Annotate) -> tuple[Finding, dict[str, Workload]]:
        left = {}
        for job, text in action.texts.items():
            found = self.job(job)
            present = "" if found is None else annotation(found.found, ESTIMATE)
            if found is not None and may_annotate(present, text):
                left[job] = found
        if left:
            return Finding("ready", f"{len(left)} to be written"), left
        return Finding("done", "each has its line, its owner's, or is gone"), {}

    def _probe_node(self, action: Drain | Resume) -> Finding:
        node = self.node(action.node)
        if node is None:
            return Finding("changed", f"no node {action.node}")
        mark, reason = ours(node), reason_of(node)
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
        ended = outcome(job)
        if ended is not None:
            said = "cannot be started again: submit it again"
            return Finding("moot", f"its controller has stopped retrying ({ended[0]}); it {said}")
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
        for _ in range(TRIES):
            found = self.read(path)
            change = None if found is None else patch(found)
            if found is None or change is None:
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
                    and version_of(again) == version_of(found)
                ):
                    raise  # the change itself is refused
        raise KubernetesError(f"{path} is changed by others all the time.", code=409)

    def _write(self, action: Annotate, timeout_s: float) -> Answer:
        _, left = self._unwritten(action)
        for job, found in left.items():
            text = action.texts[job]

            def patch(one: Json, text: str = text, uid: str = found.uid) -> Any | None:
                present = annotation(one, ESTIMATE)
                if present and not present.startswith(REASON_PREFIX):
                    return None  # its owner's
                return annotating(one, ESTIMATE, text) if uid_of(one) == uid else None

            self._changed(found.path, patch, MERGE_PATCH, timeout_s)
        return Answer("done", f"{len(left)} written")

    def _order(self, action: Order, timeout_s: float) -> Answer:
        _, left = self._sorted_out(action)
        for job, found in left.items():
            wanted, before = action.values[job], action.previous.get(job)
            path = kinds()["workload"].path(parts_of(job)[0], text_at(found, "metadata.name"))

            def patch(one: Json, wanted: int = wanted, before: int | None = before) -> Any | None:
                if not waits(one) or boost_of(one) != before:
                    return None
                return annotating(one, BOOST, str(wanted) if wanted else "")

            self._changed(path, patch, MERGE_PATCH, timeout_s)
        finding, still = self._sorted_out(action)
        if finding.state == "done":  # the others have been admitted meanwhile
            return Answer("done", finding.detail)
        return Answer("failed", f"{len(still)} jobs kept their value: {finding.detail}")

    def _set_node(self, action: Drain | Resume, timeout_s: float) -> Answer:
        path = path_of("", "v1", "nodes", None, action.node)

        def patch(node: Json) -> Any | None:
            if isinstance(action, Resume):
                return returning(node, action.mark) or None
            return None if ours(node) else isolating(node, action.mark)

        done = self._changed(path, patch, JSON_PATCH, timeout_s)
        found = self.probe(action)
        if not done and found.state == "changed":
            return Answer("failed", found.detail)
        return Answer("done", found.detail)

    def _requeue(self, action: Requeue) -> Answer:
        """Mark the job with the run and the pods that are to go, then evict these."""
        job = self.job(action.job)
        if job is None:
            return Answer("failed", f"there is no job {action.job} any more")
        left, begun = self._to_evict(job, action)
        if begun is None and left:
            uids = sorted(text_at(pod, "metadata.uid") for pod in left)

            def patch(one: Json) -> Any | None:
                if uid_of(one) != job.uid:
                    return None
                return annotating(one, REQUEUED, " ".join([str(action.run), *uids]))

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
