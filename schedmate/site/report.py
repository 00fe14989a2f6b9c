"""The whole report of a site: from its list of jobs to what to switch on first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from shlex import quote
from typing import Any, Literal

from schedmate.base.data import load
from schedmate.base.errors import InputError
from schedmate.base.inputs import format_duration
from schedmate.base.terminal import counted
from schedmate.cluster.bounds import OrderBounds
from schedmate.cluster.slurm.reading import LogRun, log_path
from schedmate.retrieval.sacct import ImportReport
from schedmate.schedulers.sim.actions import DecisionError
from schedmate.site.accounting import AccountedJob, Pseudonyms
from schedmate.site.document import (
    Advice,
    Coverage,
    Failures,
    Predictability,
    Predicted,
    Queue,
    SiteReport,
    baseline_words,
    unused_words,
)
from schedmate.site.failures import FAILED, failures
from schedmate.site.predictability import LEAST, REPLAYED, replay, replayable
from schedmate.site.queue import BOTH, ORDERED, STEPS, TODAY, UNITS, what_if
from schedmate.site.table import JobTable, job_table

Advance = Callable[[int, str], None]
"""Gets how much of a stage is done, and a few words."""
WORTH = 0.05
"""Least share by which mean waits must fall for an order to be advised."""
MOST_UNUSED, REPEATED_SHARE = 0.5, 0.01
USEFUL = 1 / 3
"""Share of run times that estimates must be within 2x of to be advised: the replays of public logs
have between 8 and 70 %."""
COMMON_LIMIT = 0.2
"""Share of a partition's jobs that request one same time, from which that may be its default."""
LONGEST_LIST_S = 100 * 365.25 * 86_400
_ORDER = ("switch on", "look at", "wait")
"""Kinds of advice, as a report lists them."""


@dataclass(frozen=True)
class Request:
    """What a report is asked for.

    `logs` is a path with Slurm's symbols (`/logs/slurm-%j.out`) for jobs whose list names none;
    without `read_logs` no log is read, whatever the list names;
    `replayed` the most jobs that the estimates are replayed on; `cluster` the kind of cluster whose
    settings are advised.
    """

    source: str
    anonymize: bool = False
    logs: str | None = None
    read_logs: bool = True
    replayed: int = REPLAYED
    cluster: Literal["slurm", "kubernetes", "ray"] = "slurm"


def site_report(
    jobs: Iterable[AccountedJob],
    request: Request,
    report: ImportReport,
    stage: Callable[[str, int | None], Advance] = lambda *_: lambda *_: None,
) -> SiteReport:
    """The report on these jobs.

    `stage` is called at the begin of each part with its name and size, and gives what it reports
    progress to. Raises `InputError` for a list without a job that ran.
    """
    with job_table() as table:
        advance = stage("reading", None)
        for count in table.fill(_prepared(jobs, request)):
            advance(count, counted(count, "job"))
        if not table.one("SELECT count(*) FROM jobs WHERE run > 0"):
            bad = (
                f", {counted(report.bad, 'row')} could not be used ({report.problems[0]})"
                if report.bad
                else ""
            )
            raise InputError(
                f"no job of the list ran: {counted(report.rows, 'row')} read{bad}; export ended "
                "jobs with their start, end and state."
            )
        _check_times(table)
        most = min(request.replayed, replayable(table))
        advance = stage("replaying estimates", most)
        predicted = replay(table, most, lambda done: advance(done, f"{done:,} of {most:,}"))
        resource = _resource(table)
        queue = _modelled(table, resource, stage("modelling the queue", STEPS))
        failed = failures(
            table,
            resource,
            stage("looking at failures", None),
            states_known="state" not in report.lacking,
        )
        return SiteReport(
            source="a list of jobs" if request.anonymize else request.source,
            unit=UNITS[resource],
            coverage=_coverage(table, request, report),
            predictability=predicted,
            queue=queue,
            failures=failed,
            advice=sorted(
                advised(table, request, predicted, queue, failed, UNITS[resource]),
                key=lambda one: _ORDER.index(one.kind),
            ),
            notes=list(_notes(table, request, predicted, report)),
        )


def _modelled(table: JobTable, resource: str, advance: Advance) -> Queue:
    try:
        return what_if(table, resource, advance)
    except DecisionError as error:  # a list that contradicts itself costs this section alone
        return Queue(reason=f"Not modelled: {error}", fidelity=None, scenarios=[], groups=[])


def _check_times(table: JobTable) -> None:
    """Raise `InputError` where times cannot be seconds: nine in ten submissions span a century."""
    count = table.one("SELECT count(*) FROM jobs WHERE submit IS NOT NULL")
    if not count:
        return
    at = "SELECT submit FROM jobs WHERE submit IS NOT NULL ORDER BY submit LIMIT 1 OFFSET ?"
    first, last = (table.one(at, int(share * (count - 1))) for share in (0.05, 0.95))
    if last - first > LONGEST_LIST_S:
        raise InputError(
            f"the submissions of the list span {(last - first) / 86_400:,.0f} days, so its times "
            "are not in seconds; say what they count, --map submit=COLUMN:ms (or us, ns), and the "
            "same of start and end."
        )


def _prepared(jobs: Iterable[AccountedJob], request: Request) -> Iterator[AccountedJob]:
    names = Pseudonyms() if request.anonymize else None
    for job in jobs:
        read = request.read_logs and job.state in FAILED
        one = job._replace(log=_log(job, request.logs) if read else None)
        yield one if names is None else names.job(one)


def _log(job: AccountedJob, pattern: str | None) -> str | None:
    """The path of a job's log, from what its list says or the pattern for all of them."""
    wanted = job.log or pattern
    if wanted is None or not (wanted.startswith("/") or job.workdir):
        return None
    array, _, task = job.id.partition("_")
    run = LogRun(
        job=array,
        name=job.name or "",
        user=job.user or "",
        node=job.hosts[0] if job.hosts else "",
        array=array if task.isdecimal() else None,
        task=int(task) if task.isdecimal() else None,
    )
    return str(log_path(wanted, job.workdir or "/", run))


def _resource(table: JobTable) -> str:
    """The column of what most jobs compete for."""
    for column in ("gpus", "cpus"):
        if 2 * table.one(f"SELECT count(*) FROM jobs WHERE {column} > 0") >= table.one(
            "SELECT count(*) FROM jobs"
        ):
            return column
    counts = {
        column: table.one(f"SELECT count(*) FROM jobs WHERE {column} > 0") for column in UNITS
    }
    return max(("cpus", "gpus", "nodes"), key=lambda column: counts[column])


def _coverage(table: JobTable, request: Request, report: ImportReport) -> Coverage:
    found = next(
        table.select(
            "SELECT count(*), count(DISTINCT user), count(DISTINCT grp), count(DISTINCT part), "
            "min(submit) FILTER (WHERE run > 0), max(submit) FILTER (WHERE run > 0) FROM jobs"
        )
    )
    jobs, users, groups, partitions, first, last = found
    known = first is not None and not request.anonymize
    return Coverage(
        jobs=jobs,
        rows_left_out=report.bad,
        problems=[] if request.anonymize else report.problems,
        users=users,
        groups=groups,
        partitions=partitions,
        first=first if known else None,
        days=((last or 0.0) - (first or 0.0)) / 86_400,
        anonymized=request.anonymize,
    )


def _notes(
    table: JobTable, request: Request, predicted: Predictability, report: ImportReport
) -> Iterator[str]:
    if report.unnamed:
        yield (
            f"The list has resources by number only ({', '.join(sorted(report.unnamed)[:5])}), of "
            "which GPUs may be one; they are left out. `sacctmgr show tres` says what a number is, "
            "and `sacct` writes names (AllocTRES); or name a column of GPUs with --map gpus=COLUMN."
        )
    count = replayable(table)
    if predicted.replayed < count:
        yield (
            f"Estimates were replayed on the latest {predicted.replayed:,} of {count:,} jobs; "
            "costs and failures are of all jobs. --replay sets the number."
        )
    without = table.one("SELECT count(*) FROM jobs WHERE submit IS NULL")
    if without:
        yield f"{counted(without, 'job')} without a submission time took no part in the replay."
    if not table.one("SELECT count(*) FROM jobs WHERE start IS NOT NULL AND start > submit"):
        yield "The list records no waits."
    short = table.one(
        "SELECT count(*) FROM jobs WHERE start IS NOT NULL AND submit IS NOT NULL "
        "AND start - submit < 60"
    )
    waits = table.one("SELECT count(*) FROM jobs WHERE start IS NOT NULL AND submit IS NOT NULL")
    if waits >= 1000 and short < 0.05 * waits:
        yield (
            f"Only {short / waits:.1%} of the jobs wait less than a minute. If jobs with short "
            "waits are missing from the list, the modelled queue says nothing."
        )
    if request.anonymize:
        yield "Names of users, groups, partitions, jobs and nodes are pseudonyms."


# What to switch on first.


def advised(
    table: JobTable,
    request: Request,
    predicted: Predictability,
    queue: Queue,
    failed: Failures,
    unit: str,
) -> Iterator[Advice]:
    """What the findings speak for, in the order in which it is safe to switch it on."""
    total = predicted.total
    if total is not None:
        yield _observing(request, total)
    yield _ordering(request, queue)
    if total is not None and total.unused is not None and total.unused > MOST_UNUSED:
        yield from _limits(table, request, total.unused)
    suspects = [one for one in failed.nodes.nodes if one.suspect]
    if suspects:
        worst = suspects[0]
        yield _advice(
            "nodes",
            request,
            f"{worst.node} failed in {worst.failures} of {worst.jobs} jobs, "
            f"{worst.expected:.1f} expected by chance (p = {worst.p_adjusted:.2g} after Holm's "
            "correction). Test before you drain.",
            "look at",
            count=str(len(suspects)),
            nodes=",".join(one.node for one in suspects[:20]),
        )
    if failed.repeated_share > REPEATED_SHARE:
        named = any(one.name for one in failed.repeats)
        work = "work" if named else "user, size and time limit (the list has no names of jobs)"
        yield _advice(
            "repeats",
            request,
            f"{failed.repeated:,} runs failed as the run before them of the same {work} had, and "
            f"used {failed.repeated_hours:,.0f} {unit} hours ({failed.repeated_share:.1%} of all).",
            "switch on" if named else "look at",
        )


def _observing(request: Request, total: Predicted) -> Advice:
    why = (
        f"Of {total.jobs:,} completed jobs the estimates at submission were within 2x of the "
        f"run time for {total.estimate:.0%}, {baseline_words(total)}."
    )
    if total.estimate < USEFUL:
        why += " That is too few to rely on: let more history come together, and report again."
        return _advice("observe", request, why, "wait")
    if total.estimate <= max(total.requested, total.last):
        why += " Here a simpler predictor is at least as good."
        return _advice("observe", request, why, "look at")
    return _advice("observe", request, why, "switch on")


def _ordering(request: Request, queue: Queue) -> Advice:
    waits = {one.name: one for one in queue.scenarios}
    if not waits:
        return _advice("no-order", request, queue.reason, "wait")
    today, ordered = waits[TODAY], waits[ORDERED]
    gain = 1 - ordered.mean_wait_s / today.mean_wait_s if today.mean_wait_s else 0.0
    losers = [one for one in queue.groups if one.change_s[ORDERED] > 0]
    worst = (
        f" {losers[0].group} would lose most, {losers[0].change_s[ORDERED] / 3600:.1f} h on "
        f"average; {counted(len(losers), 'group')} would lose."
        if losers
        else " No group with enough jobs would lose."
    )
    why = (
        f"In the model mean waits change by {-gain:+.0%} (with predicted backfill too: "
        f"{waits[BOTH].mean_wait_s / max(today.mean_wait_s, 1e-9) - 1:+.0%}), the 95th percentile "
        f"by {ordered.p95_wait_s / max(today.p95_wait_s, 1e-9) - 1:+.0%}; "
        f"{ordered.starved:,} of {ordered.jobs:,} jobs wait over a day longer.{worst}"
    )
    if gain < WORTH:
        return _advice("no-order", request, why, "wait")
    bounds = OrderBounds()
    return _advice(
        "order",
        request,
        why,
        "switch on",
        lowest=str(bounds.lowest),
        highest=str(bounds.highest),
    )


def _limits(table: JobTable, request: Request, unused: float) -> Iterator[Advice]:
    """For the partition and time that leave most unused: the 95th percentile of those jobs' runs.

    A time that many request alike is most likely the default, which alone `DefaultTime` changes.
    """
    found = table.select(
        "SELECT part, lim, count(*) AS n, sum(count(*)) OVER (PARTITION BY part) "
        "FROM jobs WHERE run > 0 AND lim > 0 AND part IS NOT NULL AND state = 'COMPLETED' "
        "GROUP BY part, lim "
        "ORDER BY sum((lim - run) * max(gpus, cpus, 1)) DESC"
    )
    for part, limit_s, count, of_part in found:
        if count < max(LEAST, COMMON_LIMIT * of_part):
            continue
        run = table.one(
            "SELECT run FROM jobs WHERE run > 0 AND lim = ? AND part = ? AND state = 'COMPLETED' "
            "ORDER BY run LIMIT 1 OFFSET ?",
            limit_s, part, min(count - 1, int(0.95 * count)),
        )  # fmt: skip
        hours = max(1, -(-int(run) // 3600))
        if hours * 3600 > MOST_UNUSED * limit_s:
            continue
        yield _advice(
            "limits",
            request,
            f"Of all requested time, weighted by size, {unused_words(unused)} is never used. In "
            f"partition {part} {count:,} of {of_part:,} completed jobs request "
            f"{format_duration(limit_s)}, which may be its default; 95 % of them run for less than "
            f"{hours:,} h. The others would be ended, unless they state a time of their own.",
            "look at",
            partition=quote(part),
            limit=f"{hours // 24}-{hours % 24:02d}:00:00",
            seconds=str(hours * 3600),
        )
        return


def _advice(
    name: str,
    request: Request,
    why: str,
    kind: Literal["switch on", "wait", "look at"],
    **values: str,
) -> Advice:
    table: dict[str, Any] = load("site/advice.yaml")[name]

    def filled(text: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), text)

    return Advice(
        title=filled(table["title"]),
        why=why,
        setting=filled(table["setting"][request.cluster]),
        where=table["where"],
        undo=table["undo"],
        kind=kind,
    )
