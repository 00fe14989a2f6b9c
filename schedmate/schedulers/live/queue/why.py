"""Why a job waits, and about when it will start: what `schedmate ray queue` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from schedmate.durations import format_duration
from schedmate.schedulers.live.queue.controller import Controller
from schedmate.schedulers.model import Job
from schedmate.schedulers.remaining import predicted_s, remaining_s
from schedmate.schedulers.terms import NEVER
from schedmate.terminal import counted


def reasons(queue: Controller) -> dict[int, str]:
    """For each waiting job, in words, why it does not run."""
    found = {}
    board, now = queue.board, queue.now
    if board is None:
        return dict.fromkeys(queue.jobs, "the cluster has no node with GPUs")
    order = board.view.pending.by_rank(board.view.pending)
    before = {job.index: place for place, job in enumerate(order)}
    for id_, job in queue.jobs.items():
        if job.allocation:
            continue
        until = queue.outside(id_)
        if id_ in queue.runs:
            found[id_] = "its processes are being started"
        elif until == NEVER:
            found[id_] = "held"
        elif queue.is_unadvised(id_):
            found[id_] = "its code is being read"
        elif until is not None:
            stored = queue.store.job(id_)
            said = stored.why if stored is not None and stored.why else "it could not be started"
            found[id_] = f"{said}; tried again in {format_duration(max(0.0, until - now))}"
        elif id_ in before:
            found[id_] = _lacks(queue, job, before[id_])
        else:
            found[id_] = "a decision about it is being carried out"
    return found


def _lacks(queue: Controller, job: Job, ahead: int) -> str:
    board = queue.board
    assert board is not None
    space, nodes = board.view.space, board.cluster.nodes
    fitting = [
        place
        for place, node in enumerate(nodes)
        if not job.gpu_type or node.gpu_type == job.gpu_type
    ]
    asked = f"{job.gpus if job.share == 1.0 else job.share:g} GPU{'s' * (job.gpus != 1)}"
    asked += f" of type {job.gpu_type}" if job.gpu_type else ""
    total = sum(nodes[place].gpus for place in fitting)
    if job.gpus > total:
        return f"asks for {asked}, the cluster has {total}"
    free = [space.free[place].bit_count() for place in fitting]
    if job.gpus > sum(free) or space.find(job) is None:
        most = max(free, default=0)
        text = f"asks for {asked}; {sum(free)} free, at most {most} on one node"
        return text + (f"; {counted(ahead, 'job')} before it" if ahead else "")
    if ahead:
        return f"{counted(ahead, 'job')} before it"
    return "the policy keeps it waiting"


def starts(
    queue: Controller, etas: Mapping[int, float], order: Sequence[Job] | None = None
) -> dict[int, float]:
    """Expected start of waiting jobs [s since epoch], as far as the ends of others are known.

    By numbers of GPUs in the order of the queue, without placement and sharing. `etas` are ends of
    running jobs by their logs.
    """
    board, now = queue.board, queue.now
    if board is None:
        return {}
    view = board.view
    ends = [
        (etas.get(job.index, now + remaining_s(job, now)), job.index, job.gpus)
        for job in view.running
        if job.partner is None or job.index < job.partner.index
    ]
    heapify(ends)
    free, at, found = view.space.idle, now, {}
    for job in order or view.pending.by_rank(view.pending):
        while free < job.gpus and ends:
            end, _, gpus = heappop(ends)
            at, free = max(at, end), free + gpus
        if free < job.gpus or at == NEVER:
            break
        found[job.index] = at
        free -= job.gpus
        heappush(ends, (at + predicted_s(job), job.index, job.gpus))
    return found
