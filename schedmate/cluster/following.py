"""Running jobs, by their logs: how far they are, and alarms about those that do not go on as usual.

What `schedmate watch` finds by one log is found here for each running job of a cluster: stalled,
slowed, diverged, late, or busy with nothing. An alarm is raised once and says when it is over
(`logparse/watch/alarms.py`); beside a job it is a comment or an event that a person sees.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from schedmate.base.inputs import format_duration
from schedmate.cluster.acting import AGENT, Acting
from schedmate.cluster.actions import REASON_PREFIX, Annotate
from schedmate.cluster.adapter import ClusterAdapter, LiveJob
from schedmate.cluster.bounds import Bounds
from schedmate.cluster.memory import Memory
from schedmate.cluster.record import Record
from schedmate.cluster.report import Followed, Pass
from schedmate.jobs import JobSpec
from schedmate.logparse.watch.alarms import Alarm, Alarms
from schedmate.logparse.watch.health import WatchLimits, written_at
from schedmate.mate import SchedMate
from schedmate.retrieval.remaining import remaining_time

LINES = 300
"""Lines about progress that are read of each log: an agent follows many."""


class Following:
    """The Metric Tracker's part of the loop."""

    def __init__(
        self,
        adapter: ClusterAdapter,
        mate: SchedMate,
        memory: Memory,
        record: Record | None,
        bounds: Bounds,
        acting: Acting,
        clock: Callable[[], float],
        alarms: Alarms | None,
    ) -> None:
        """Without `alarms` they are remembered as long as the process lives."""
        self._adapter, self._mate, self._memory, self._record = adapter, mate, memory, record
        self._bounds, self._acting, self._clock = bounds, acting, clock
        self._alarms = alarms or Alarms(None)
        self._due: dict[str, float] = {}
        """When the log of each running job is read again, by the monotonic clock [s]."""

    def follow(self, jobs: list[LiveJob], report: Pass) -> None:
        """Read the logs that are due, the longest due first, for a limited time."""
        bounds = self._bounds.follow
        if not bounds.allowed:
            return
        running = {job.id: job for job in jobs if job.state == "RUNNING"}
        seen = self._memory.progress()
        if set(seen) - set(running):
            self._memory.only_running(running)
        deadline = time.monotonic() + bounds.seconds
        for id_ in sorted(running, key=lambda id_: self._due.get(id_, 0.0)):
            now = time.monotonic()
            if now >= deadline or now < self._due.get(id_, 0.0):
                break
            self._due[id_] = now + bounds.every
            self._look_at(running[id_], report)
        self._due = {id_: at for id_, at in self._due.items() if id_ in running}
        standing = {
            id_: alarms
            for id_, job in running.items()
            if (alarms := self._alarms.standing(job.key, ""))
        }
        report.stalled = sum(
            any(alarm.what == "no progress" for alarm in alarms) for alarms in standing.values()
        )
        self._note(standing, running, report)

    def _look_at(self, job: LiveJob, report: Pass) -> None:
        """Read the log of one job, and take in what it shows."""
        known_job = self._memory.known(job.key)
        path = self._adapter.log_path(job, known_job.log, known_job.spec) if known_job else None
        if known_job is None or path is None or not has_text(path):
            return
        now = self._clock()
        written = max(written_at(path, now), job.started or 0.0)
        limits = WatchLimits(
            least_s=self._bounds.follow.silence,
            lines=LINES,
            ends_at=_ends_at(job, known_job.spec),
            gpus=known_job.spec.launch.gpus or None,
        )
        health = self._mate.on_watch(
            known_job.spec,
            path,
            now=now,
            written=written,
            limits=limits,
            before=self._alarms.before(job.key, ""),
            deadline_s=self._bounds.follow.seconds,
        )
        if health is None:
            return
        progress = health.progress
        left = remaining_time(now - (job.started or now), known_job.estimate, progress)
        followed = Followed(
            job=job.id,
            log=str(path),
            progress=progress,
            remaining=left,
            conditions=health.conditions,
        )
        for event in self._alarms.take(job.key, "", health):
            report.alarms.append(event.model_copy(update={"job": job.id, "log": str(path)}))
            if event.state == "began" and event.what == "no progress":
                report.newly_stalled.append(job.id)
            if event.state == "began" and self._record is not None:
                document = followed.model_dump(mode="json", exclude_defaults=True)
                self._record.observe(event.condition.kind, job.key, by=AGENT, data=document)
        self._memory.keep_progress(job.id, job.key, now, progress)
        report.followed.append(followed)

    def _note(
        self, standing: Mapping[str, list[Alarm]], running: Mapping[str, LiveJob], report: Pass
    ) -> None:
        """Say beside a running job what is wrong with it, and that it goes on if it does."""
        bounds = self._bounds.annotate
        if bounds.where == "off" or report.stopped:
            return
        keys = {f"{job.key} {id_} stalled": id_ for id_, job in running.items()}
        noted = self._memory.noted(keys)
        texts = {}
        for key, id_ in keys.items():
            text = note_of_alarm(standing[id_][0]) if id_ in standing else GOES_ON
            if noted.get(key) != text and (id_ in standing or key in noted):
                texts[key] = text
        texts = dict(list(texts.items())[: bounds.most])
        by_job = {keys[key]: text for key, text in texts.items()}
        if by_job and self._acting.do(
            "annotation", Annotate(texts=by_job), report, "jobs that need attention are to be seen"
        ):
            self._memory.note(texts, report.time)


def _ends_at(job: LiveJob, spec: JobSpec) -> float | None:
    """When the scheduler ends a running job by its time limit [s since epoch]."""
    if job.started is None or spec.launch.time_limit_s is None:
        return None
    return job.started + spec.launch.time_limit_s


GOES_ON = f"{REASON_PREFIX} its log goes on"
"""The note on a job about which there was an alarm."""

_NOTES = {
    "no progress": "stalled? no progress since {at}, usually every {usual}",
    "slowed": "{ratio:.2g} times slower since {at}",
    "diverged": "diverged? since {at}",
    "late": "will not finish before its time limit",
}


def note_of_alarm(alarm: Alarm) -> str:
    """The note on a running job; the same as long as the alarm stands."""
    condition = alarm.condition
    since = time.localtime(condition.since if condition.since is not None else alarm.began)
    return f"{REASON_PREFIX} " + _NOTES[alarm.what].format(
        at=time.strftime("%Y-%m-%d %H:%M", since),
        usual=format_duration(condition.usual_s or 0.0),
        ratio=condition.ratio or 1.0,
    )


def has_text(path: Path) -> bool:
    """Whether a log is not empty."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False
