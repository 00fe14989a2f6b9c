"""The reconcile loop over a cluster: observe, advise, follow and diagnose, plan, guard, act,
record.

`Agent.once` makes one pass and returns what it found and did (`Pass`); `watch` repeats passes. A
pass may be interrupted anywhere: its findings are in the `Memory`, its actions in the `Record`, and
the next pass resumes from there. If the scheduler does not answer, nothing is done, and the cluster
runs as without schedmate.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from schedmate.base.errors import SchedmateError
from schedmate.base.terminal import clean
from schedmate.cluster import ALARMS_FILE, MEMORY_FILE, RECORD_FILE
from schedmate.cluster.acting import Acting
from schedmate.cluster.actions import Annotate
from schedmate.cluster.adapter import ClusterAdapter, EndedRun, ExecutorError, LiveJob, pause_s
from schedmate.cluster.advising import Advising, note_of
from schedmate.cluster.bounds import (
    Bounds,
    is_ordered,
    kill_switch_is_on,
    order_to_set,
    order_value,
)
from schedmate.cluster.ended import EndedRuns, remove_spooled, spooled_files
from schedmate.cluster.expected import STARTS, WAITS_S, Runs, expected_starts, first_of
from schedmate.cluster.following import Following
from schedmate.cluster.memory import Memory
from schedmate.cluster.record import Plan, Record
from schedmate.cluster.recovery.guards import LEAST_KEPT_S, least_kept_s, needed_from
from schedmate.cluster.report import Failed, Pass
from schedmate.cluster.usage import USED, Stretch, completed, shares_of
from schedmate.mate import SchedMate
from schedmate.retrieval.remaining import remaining_time

if TYPE_CHECKING:
    from schedmate.cluster.adapter import Runner
    from schedmate.cluster.recovery.configuration import Configuration
    from schedmate.cluster.recovery.recover import ClusterRecovery
    from schedmate.logparse.watch.alarms import Alarms


EXPECT_EVERY_S = 60.0
"""How often the queue is run forward [s]."""
MEASURE_EVERY_S, MEASURED_AT_ONCE, MEASURE_S = 60.0, 200, 5.0
"""How often Prometheus is asked what running jobs use [s], of how many, and for how long [s]."""
ROTATE_EVERY_S = 3600.0
"""How often the size of the record is looked at [s]."""


class Agent:
    """The agent of one cluster. `record` is None in a dry run, which changes nothing."""

    def __init__(
        self,
        adapter: ClusterAdapter,
        mate: SchedMate,
        memory: Memory,
        record: Record | None,
        bounds: Bounds,
        *,
        healer: ClusterRecovery | None = None,
        clock: Callable[[], float] = time.time,
        alarms: Alarms | None = None,
        shadow: bool = False,
    ) -> None:
        """`shadow`: nothing is changed; what would be is noted, and counts as done."""
        self.adapter = adapter
        self.bounds = bounds
        self._mate = mate
        self._memory = memory
        self._record = record
        self._healer = healer
        self._clock = clock
        self._acting = Acting(adapter, record, bounds, healer, shadow=shadow)
        self._ended = EndedRuns(adapter, mate, memory, record, bounds, healer)
        self._advising = Advising(adapter, mate, memory, bounds, clock)
        self._following = Following(
            adapter, mate, memory, record, bounds, self._acting, clock, alarms
        )
        self._due: dict[str, float] = {}
        self._used: dict[str, dict[str, float | None]] = {}
        """What running jobs use, those that were measured last at the end."""

    def once(self) -> Pass:
        """Make one pass and return its report.

        A step that fails is one of its `problems` and does not stop the others. Raises
        `ExecutorError` if the scheduler does not answer.
        """
        began = time.perf_counter()
        now = self._clock()
        jobs = self.adapter.jobs()
        report = Pass(
            cluster=self.adapter.cluster,
            time=now,
            dry_run=self._record is None,
            stopped=kill_switch_is_on(self.bounds.kill_switch),
            pending=sum(job.state == "PENDING" for job in jobs),
            running=sum(job.state == "RUNNING" for job in jobs),
        )
        steps: list[Callable[[list[LiveJob], Pass], None]] = [
            self._read_ended_runs,
            self._diagnose,
            self._go_on,
            self._advise,
            self._order,
            self._annotate,
            self._learn,
            self._follow,
            self._list_waiting,
            self._expect_starts,
            self._measure,
            self._rotate_record,
        ]
        for step in steps:
            try:
                step(jobs, report)
            except (SchedmateError, OSError) as error:
                # a step that fails (its database is down) does not stop the others
                report.problems.append(f"{step.__name__.strip('_').replace('_', ' ')}: {error}")
            except Exception as error:  # noqa: BLE001 - nor does a value that nobody foresaw
                name = step.__name__.strip("_").replace("_", " ")
                report.problems.append(f"{name}: {unforeseen(error)}")
        report.problems += self.adapter.skipped()
        report.took_s = round(time.perf_counter() - began, 3)
        return report

    def look_into(self, run: EndedRun, now: float) -> tuple[Failed, Plan | None]:
        """Diagnosis and plan of a failed run; nothing is stored or carried out."""
        failed, failure = self._ended.look_into(run, now)
        if failure is None or self._healer is None:
            return failed, None
        return failed, self._healer.preview(failure)

    def _go_on(self, _jobs: list[LiveJob], report: Pass) -> None:
        self._acting.go_on(report)

    def _list_waiting(self, _jobs: list[LiveJob], report: Pass) -> None:
        if self._record is not None:
            waiting = self._record.plans(states={"proposed"})
            report.waiting = [status.plan.id for status in waiting]

    def _expect_starts(self, jobs: list[LiveJob], report: Pass) -> None:
        """Note when waiting jobs are expected to start, for the dashboard."""
        waiting = [job for job in jobs if job.state == "PENDING"]
        if not waiting or not self._is_due("expect", EXPECT_EVERY_S):
            return
        progress, now, runs = self._memory.progress(), report.time, {}
        for job in first_of(jobs):
            known = self._memory.known(job.key)
            if known is not None:
                ran = 0.0 if job.started is None else max(0.0, now - job.started)
                at, seen = progress.get(job.id, (now, None))
                left = remaining_time(ran, known.estimate, seen, progress_age_s=now - at)
                runs[job.id] = Runs.of(known.spec, left)
        found: dict[str, dict[str, float | None]] = {}
        with suppress(SchedmateError):  # who may not list nodes has an agent all the same
            before = self._mate.started(now - WAITS_S)
            starts = expected_starts(jobs, runs, self.adapter.nodes(), now, before)
            found = {
                job.id: {
                    **dict(zip(("p10", "p50", "p90"), starts[job.id].at(now), strict=True)),
                    "scheduler": job.expected,
                }
                for job in waiting
            }
        self._memory.set_mark(STARTS, found)

    def _measure(self, jobs: list[LiveJob], report: Pass) -> None:
        """Note what running jobs use, for the dashboard, where a Prometheus server is set."""
        server = self._mate.settings.prometheus
        if server is None or not self._is_due("measure", MEASURE_EVERY_S):
            return
        began = {job.id: job.started for job in jobs if job.state == "RUNNING" and job.started}
        self._used = {job: one for job, one in self._used.items() if job in began}
        first = [*(job for job in began if job not in self._used), *self._used][:MEASURED_AT_ONCE]
        found, problem = completed(
            *({}, server, self.adapter.name, self.adapter.measured_as(first) if first else {}),
            {job: Stretch(began[job], report.time) for job in first},
            within_s=MEASURE_S,
        )
        for job, used in found.items():
            self._used.pop(job, None)
            self._used[job] = shares_of(used)
        self._memory.set_mark(USED, self._used)
        if problem:
            report.problems.append(problem)

    def _rotate_record(self, _jobs: list[LiveJob], _report: Pass) -> None:
        if self._record is None or not self._is_due("rotate", ROTATE_EVERY_S):
            return
        bounds, healer = self.bounds.record, self._healer
        least = LEAST_KEPT_S if healer is None else least_kept_s(healer.configuration)
        self._record.rotate_above(
            bounds.above_mb * 1e6, max(bounds.keep, least), by="agent", needed=needed_from
        )

    def _advise(self, jobs: list[LiveJob], report: Pass) -> None:
        self._advising.advise(jobs, report)

    # -- order and notes ---------------------------------------------------

    def _order(self, jobs: list[LiveJob], report: Pass) -> None:
        bounds = self.bounds.order
        if not bounds.allowed or report.stopped or not self._is_due("order", bounds.every):
            return
        trust, set_values = self._memory.trust(), self._memory.ordering()
        wanted = {
            job.id: order_value(
                bounds,
                self._advising.estimates.get(job.key),
                trust=trust.get(job.user, 1.0),
                waited_s=report.time - (job.submitted or report.time),
            )
            for job in jobs
            if is_ordered(bounds, job)
        }
        sure = self._memory.surely_given()
        differs = [
            job
            for job, value in wanted.items()
            if sure.get(job, 0) != value or (job in set_values and job not in sure)
        ]
        if differs:
            present = self.adapter.order_values(differs)
            has = {job: value for job, value in present.items() if value == wanted[job]}
            self._memory.give(has, has, sure=True)  # set by an earlier pass that was interrupted
            action = order_to_set({job: wanted[job] for job in differs}, present, set_values)
            if action is not None:
                self._memory.give(action.values, action.previous, sure=False)
                if self._acting.do(
                    "ordering", action, report, "shorter jobs first, by their estimates"
                ):
                    self._memory.give(action.values, action.previous, sure=True)
        self._memory.forget_given(job.id for job in jobs)

    def _annotate(self, jobs: list[LiveJob], report: Pass) -> None:
        bounds = self.bounds.annotate
        if bounds.where == "off" or report.stopped:
            return
        pending = {job.id: job for job in jobs if job.state == "PENDING"}
        noted = self._memory.noted(job.key for job in pending.values())
        estimates = self._advising.estimates
        texts = {
            id_: note_of(estimates[job.key])
            for id_, job in pending.items()
            if job.key in estimates
            and (estimates[job.key].endless or not estimates[job.key].abstained)
        }
        texts = {id_: text for id_, text in texts.items() if noted.get(pending[id_].key) != text}
        texts = dict(list(texts.items())[: bounds.most])
        if texts and self._acting.do(
            "annotation", Annotate(texts=texts), report, "estimates to be seen"
        ):
            self._memory.note({pending[id_].key: text for id_, text in texts.items()}, report.time)

    # -- running and ended jobs --------------------------------------

    def _read_ended_runs(self, _jobs: list[LiveJob], _report: Pass) -> None:
        spool, now = self.bounds.learn.spool, self._clock()
        dropped = [] if spool is None else spooled_files(spool)
        if self._is_due("learn", self.bounds.learn.every) or dropped:
            runs = self._ended.read(now)
            if self._record is not None:
                remove_spooled(dropped, {run.raw for run in runs}, now)

    def _diagnose(self, _jobs: list[LiveJob], report: Pass) -> None:
        self._ended.diagnose(report, self._clock())

    def _learn(self, jobs: list[LiveJob], report: Pass) -> None:
        self._ended.learn(report, self._clock())
        if report.learned:
            self._advising.ask_again(jobs)

    def _follow(self, jobs: list[LiveJob], report: Pass) -> None:
        self._following.follow(jobs, report)

    def take_back_order(self) -> int:
        """Reset the order values of pending jobs to 0, and return the number of jobs.

        Raises `ExecutorError` if this fails.
        """
        set_values = self._memory.ordering()
        jobs = [job.id for job in self.adapter.jobs() if job.state == "PENDING"]
        present = self.adapter.order_values(job for job in jobs if job in set_values)
        action = order_to_set(dict.fromkeys(present, 0), present, set_values)
        if action is None:
            return 0
        report = Pass(cluster=self.adapter.cluster, time=self._clock())
        if not self._acting.do("ordering", action, report, "the order is reset"):
            raise ExecutorError("; ".join(report.problems))
        self._memory.forget_given([])
        return len(action.values)

    def _is_due(self, what: str, every_s: float) -> bool:
        now = time.monotonic()
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + every_s
        return True


class Assembled(NamedTuple):
    """An agent and its files; `record` is None in a dry run, `healer` without a recovery.yaml."""

    memory: Memory
    record: Record | None
    agent: Agent
    healer: ClusterRecovery | None


@contextmanager
def assembled(
    adapter: ClusterAdapter,
    mate: SchedMate,
    bounds: Bounds,
    folder: Path,
    recovery: Configuration | None,
    runner: Runner,
    *,
    by: str = "schedmate agent",
    dry_run: bool = False,
    shadow: bool = False,
) -> Iterator[Assembled]:
    """An agent on its files in a folder, which are closed afterwards; in the shadow, `recovery`
    keeps its record there too, so that no plan of it is ever carried out."""
    from schedmate.cluster.recovery.recover import ClusterRecovery
    from schedmate.logparse.watch.alarms import Alarms

    if shadow and recovery is not None:
        recovery = recovery.model_copy(update={"record": folder / RECORD_FILE})
    with ExitStack() as stack:
        memory = stack.enter_context(Memory(folder / MEMORY_FILE, scratch=dry_run))
        alarms = stack.enter_context(Alarms(None if dry_run else folder / ALARMS_FILE))
        place = folder / RECORD_FILE if recovery is None else recovery.record
        record = None if dry_run else stack.enter_context(Record(place))
        healer = None
        if recovery is not None:
            healer = ClusterRecovery(adapter, recovery, record, runner, by=by)
        agent = Agent(
            *(adapter, mate, memory, record, bounds), healer=healer, alarms=alarms, shadow=shadow
        )
        yield Assembled(memory, record, agent, healer)


@contextmanager
def only_agent(record: Record, cluster: str) -> Iterator[None]:
    """Hold the lease of a cluster's agent until the process ends, in whatever way.

    Raises `ClaimedError` at once if another agent holds it.
    """
    with record.claim(f"agent of {cluster}"):
        yield


# Repeats an agent's passes: the pauses between them, and the backoff after failures.


def unforeseen(error: Exception) -> str:
    """An error that nobody foresaw, in one line for a report."""
    return f"internal error, {type(error).__name__}: {clean(error, 300)}"


def watch(
    agent: Agent,
    tell: Callable[[Pass], None],
    warn: Callable[[str], None],
    *,
    wait: Callable[[float], object] = time.sleep,
    goes_on: Callable[[], bool] = lambda: True,
) -> None:
    """Make passes until `goes_on` is false. An outage is reported when it starts and ends."""
    failures = 0
    while goes_on():
        began = time.monotonic()
        try:
            report = agent.once()
        except ExecutorError as error:
            if not failures:
                warn(f"{error}; nothing is done until it answers again.")
            failures += 1
        except Exception as error:  # noqa: BLE001 - one unexpected value does not end the agent
            if not failures:
                warn(f"a pass was not completed: {unforeseen(error)}.")
            failures += 1
        else:
            if failures:
                warn("the scheduler answers again.")
            failures = 0
            tell(report)
        took = time.monotonic() - began if not failures else 0.0
        # an agent that is slow pauses as long as it worked: it never takes more than half a core
        rest = pause_s(agent.bounds.poll, failures, random.random())  # noqa: S311 - no secret
        if goes_on():
            wait(max(rest - took, min(took, rest)))
