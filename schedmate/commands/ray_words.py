"""A queue in words: what `schedmate ray queue` shows."""

from __future__ import annotations

from schedmate.durations import format_duration
from schedmate.schedulers.live.queue.document import QueueDocument, QueueJob
from schedmate.schedulers.live.queue.requests import OVER
from schedmate.terminal import counted
from schedmate.terminal.screen import Screen, Table

LONGEST = 40
"""Characters of a job's name or command that are shown."""


def show(found: QueueDocument, screen: Screen) -> None:
    """Print it."""
    free, gpus = sum(one.free for one in found.nodes), sum(one.gpus for one in found.nodes)
    running, waiting = (found.counts.get(state, 0) for state in ("RUNNING", "PENDING"))
    over = sum(found.counts.get(state, 0) for state in OVER)
    screen.line(
        f"{found.cluster}: {counted(len(found.nodes), 'node')}, {free} of {counted(gpus, 'GPU')} "
        f"free; {running} running, {waiting} waiting, {over} over; {found.policy}"
    )
    for node in found.nodes:
        if node.reason:
            screen.line(f"{node.name} takes no new jobs: {node.reason}", "bad")
    rows = [*found.ended, *found.jobs]
    if rows:
        table = Table("job", "what", "GPUs", "state", "estimate", "begins", "ends", "where or why")
        for job in rows:
            table.add(
                job.job,
                _what(job),
                f"{job.gpus:g}",
                job.state if not job.profiling else "PROFILING",
                "" if job.estimate_s is None else format_duration(job.estimate_s),
                _from_now(job.started or job.starts, found.time, about=job.started is None),
                _from_now(job.ends, found.time, about=job.state not in OVER),
                _where(job),
            )
        screen.table(table)
    if over > len(found.ended):
        hidden = counted(over - len(found.ended), "job")
        screen.line(f"{hidden} not shown that are over: `schedmate ray queue --all`")
    for problem in found.problems[-3:]:
        screen.line(problem, "bad")


def _what(job: QueueJob) -> str:
    text = job.name or job.command or ""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _from_now(at: float | None, now: float, *, about: bool) -> str:
    if at is None:
        return ""
    if at > now:
        return f"in {'about ' if about else ''}{format_duration(at - now)}"
    return "now" if about else f"{format_duration(now - at)} ago"


def _where(job: QueueJob) -> str:
    parts = [", ".join(job.nodes)] if job.nodes else []
    if job.partner is not None:
        beside = f"beside {job.partner}"
        parts.append(beside if job.slowdown is None else f"{beside} at {job.slowdown:.0%} speed")
    if job.why:
        parts.append(job.why)
    if job.restarts:
        parts.append(f"restarted {counted(job.restarts, 'time')}")
    return "; ".join(parts)
