"""What failed on a site and what it cost, by accounting, and by logs where they can be read.

A failure is repeated where the same work of a user (its name; without one its size and limit) was
submitted again after it had failed, and ended in the same state: tasks of one array that fail side
by side are none. Nodes are compared by the exact test of `schedmate triage`, on the states in which
the scheduler says that a node failed.
"""

from __future__ import annotations

import csv
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from schedmate.logparse.triage import JobVerdict, Ledger, find_targets, triage
from schedmate.logparse.triage.summary import exact_test
from schedmate.site.document import Cause, Failures, Repeat, StateCost
from schedmate.site.table import JobTable, Row

FAILED = ("FAILED", "OUT_OF_MEMORY", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL")
"""States that a resubmission of the same work may end in again."""
LOGS = 200
"""Logs that are read at most, those of the costliest failed jobs."""
LISTED = 20
_HOURS = ", ".join(
    f"sum(coalesce(run, 0) * {column}) / 3600" for column in ("gpus", "cpus", "nodes")
)
_FAILED = ", ".join(f"'{state}'" for state in FAILED)
_ENDED = "state NOT IN ('PENDING', 'RUNNING')"


def failures(
    table: JobTable,
    resource: str,
    on_progress: Callable[[int, str], None],
    *,
    states_known: bool = True,
) -> Failures:
    """Everything of the section. Costs count `resource`, a column of the table.

    `states_known` is false for a list whose jobs count as completed because it has no states.
    `on_progress` gets the number of logs that were read.
    """
    states = [
        StateCost(state=state, jobs=jobs, gpu_hours=gpus, cpu_hours=cpus, node_hours=nodes)
        for state, jobs, gpus, cpus, nodes in table.select(
            f"SELECT state, count(*), {_HOURS} FROM jobs WHERE {_ENDED} GROUP BY state"
        )
    ]

    def hours(one: StateCost | Repeat) -> float:
        return {"gpus": one.gpu_hours, "cpus": one.cpu_hours, "nodes": one.node_hours}[resource]

    states.sort(key=lambda one: (-hours(one), -one.jobs, one.state))
    total = sum(map(hours, states))
    repeats = sorted(_repeats(table), key=lambda one: (-hours(one), -one.repeats, one.state))
    verdicts, missing = _read_logs(table, on_progress)
    return Failures(
        states_known=states_known,
        states=states,
        lost_share=sum(hours(one) for one in states if one.state != "COMPLETED") / total
        if total and states_known
        else None,
        repeats_known=bool(
            table.one(
                f"SELECT count(*) FROM jobs WHERE state IN ({_FAILED}) AND user IS NOT NULL "
                "AND submit IS NOT NULL AND end IS NOT NULL"
            )
        )
        or not table.one(f"SELECT count(*) FROM jobs WHERE state IN ({_FAILED})"),
        repeated=sum(one.repeats for one in repeats),
        repeated_hours=sum(map(hours, repeats)),
        repeated_share=sum(map(hours, repeats)) / total if total else 0.0,
        repeats=repeats[:LISTED],
        nodes=exact_test(
            table.nodes,
            table.on_nodes,
            table.node_failures,
            unknown="Export the node list of each job, successful ones too (sacct: NodeList).",
            doubt="the scheduler says that a node failed, not which one of a job's nodes",
        ),
        logs_read=len(verdicts),
        logs_missing=missing,
        causes=_causes(verdicts),
    )


def _repeats(table: JobTable) -> Iterator[Repeat]:
    """Works with repeated failures; the hours are those of the repetitions."""
    found = table.select(
        "SELECT user, coalesce(name, gpus || ' ' || cpus || ' ' || nodes || ' ' || "
        "coalesce(lim, '')) AS work, name, state, submit, end, run * gpus / 3600, "
        "run * cpus / 3600, run * nodes / 3600 FROM jobs WHERE run IS NOT NULL AND submit "
        f"IS NOT NULL AND end IS NOT NULL AND user IS NOT NULL AND {_ENDED} "
        "ORDER BY user, work, submit, number"
    )
    of: tuple[str, str] | None = None
    state, ended, chain = "", 0.0, 1
    sums: dict[str, list[float]] = {}
    title: str | None = None
    for user, work, name, new_state, submit, end, *used in found:
        if (user, work) != of:
            if of is not None:
                yield from _of_work(of[0], title, sums)
            of, title, sums = (user, work), name, {}
            state, ended, chain = "", 0.0, 1
        if new_state in FAILED and new_state == state:
            if submit >= ended:
                chain += 1
                before = sums.get(state, [0.0] * 5)
                hours = [one + more for one, more in zip(before[2:], used, strict=True)]
                sums[state] = [max(before[0], chain), before[1] + 1, *hours]
        else:
            state, chain = new_state, 1
        ended = end
    if of is not None:
        yield from _of_work(of[0], title, sums)


def _of_work(user: str, name: str | None, sums: dict[str, list[float]]) -> Iterator[Repeat]:
    for state, (runs, repeats, gpus, cpus, nodes) in sums.items():
        yield Repeat(
            user=user,
            name=name,
            state=state,
            runs=int(runs),
            repeats=int(repeats),
            gpu_hours=gpus,
            cpu_hours=cpus,
            node_hours=nodes,
        )


def _read_logs(
    table: JobTable, on_progress: Callable[[int, str], None]
) -> tuple[list[JobVerdict], int]:
    """Verdicts on the costliest failed jobs whose logs are here, and how many logs are not."""
    present: list[Row] = []
    missing = 0
    for row in table.rows(
        f"log IS NOT NULL AND state IN ({_FAILED})",
        order="run * gpus DESC, run * cpus DESC, number",
    ):
        if not Path(row.log or "").is_file():
            missing += 1
        elif len(present) < LOGS:
            present.append(row)
    if not present:
        return [], missing
    with tempfile.TemporaryDirectory(prefix="schedmate-site-") as folder:
        listed = Path(folder) / "jobs.csv"
        with listed.open("w", newline="", encoding="utf-8", errors="surrogateescape") as stream:
            rows = csv.writer(stream)
            rows.writerow(["job_id", "log", "duration", "gpus", "state"])
            rows.writerows([row.id, row.log, row.run, row.gpus, row.state] for row in present)
        targets = find_targets(str(listed)).targets
        verdicts = []
        with Ledger(Path(folder) / "ledger.sqlite", str(listed)) as ledger:
            at_once = len(os.sched_getaffinity(0))
            for verdict, _ in triage(targets, ledger, processes=at_once):
                verdicts.append(verdict)
                on_progress(len(verdicts), f"{len(verdicts)} of {len(targets)} logs")
    return [one for one in verdicts if one.diagnosis is not None], missing


def _causes(verdicts: list[JobVerdict]) -> list[Cause]:
    together: dict[tuple[str, str | None], list[JobVerdict]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.diagnosis is not None:
            together[verdict.diagnosis.error_type, verdict.diagnosis.error_name].append(verdict)
    causes = [
        Cause(
            error_type=error_type,
            error_name=error_name,
            jobs=len(members),
            gpu_hours=sum(one.gpu_hours or 0.0 for one in members),
        )
        for (error_type, error_name), members in together.items()
    ]
    return sorted(causes, key=lambda one: (-one.gpu_hours, -one.jobs, one.error_type))
