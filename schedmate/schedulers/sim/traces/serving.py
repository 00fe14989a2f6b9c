"""Services with a load over time beside training: requests of a trace to replicas that lend GPUs.

A service has enough replicas for its peak, each a job of high priority that stays. A request keeps
a replica busy for its prompt tokens at one rate plus its generated tokens at another; the load of a
period is the sum of that over its length, and the replicas that it needs are the load, with some
headroom, rounded up. An autoscaler that knows only the past decides at the begin of each period: as
many replicas as any of the last `hold` periods needed. The others lend their GPUs until they are
called back (windows of Standby, `Workload.standby`), and jobs of low priority may borrow them.

What it does not know in time is `late`: the load that came while too few replicas were called back.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from schedmate.base.errors import InputError
from schedmate.base.reading import bounded_rows, open_text
from schedmate.schedulers.model import Job, Terms
from schedmate.schedulers.sim.workload import Workload

_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_MOONCAKE = ("timestamp", "input_length", "output_length")


class Request(NamedTuple):
    """A request to a language model."""

    at: float
    """Arrival, since the first [s]."""
    prompt: int
    """Tokens."""
    generated: int


def read_requests(path: Path) -> list[Request]:
    """The requests of a trace of Azure (CSV) or Mooncake (JSON lines), also `.gz`, by arrival.

    Raises `InputError` for anything else.
    """
    with open_text(path, unpack=True) as stream:
        first = stream.readline()
        lines = bounded_rows(stream, path)
        if first.lstrip().startswith("{"):
            found = list(_mooncake((first, *lines), path))
        elif first.strip().split(",")[:3] == list(_AZURE):
            found = list(_azure(lines, path))
        else:
            raise InputError(
                f"{path}: no trace of requests; it begins neither with the columns "
                f"{', '.join(_AZURE)} nor with a JSON object of {', '.join(_MOONCAKE)}."
            )
    if not found:
        raise InputError(f"{path} holds no request.")
    begin = min(request.at for request in found)
    return sorted(request._replace(at=request.at - begin) for request in found)


def _azure(lines: Iterator[str], path: Path) -> Iterator[Request]:
    for number, row in enumerate(csv.reader(lines), 2):
        try:
            at = datetime.fromisoformat(row[0][:26]).timestamp()
            yield Request(at, _tokens(row[1]), _tokens(row[2]))
        except (ValueError, IndexError, OverflowError) as error:
            raise InputError(f"{path}, line {number}: no request: {error}") from None


def _mooncake(lines: Sequence[str], path: Path) -> Iterator[Request]:
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            at, prompt, generated = (row[name] for name in _MOONCAKE)
            if not 0 <= float(at) < 1e15:
                raise ValueError(f"timestamp {at}")
            yield Request(float(at) / 1000, _tokens(prompt), _tokens(generated))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{path}, line {number}: no request: {error}") from None


def _tokens(text: object) -> int:
    count = int(str(text))
    if not 0 <= count < 10**9:
        raise ValueError(f"{count} tokens")
    return count


@dataclass(frozen=True)
class Service:
    """How requests are served, and when replicas lend their GPUs."""

    gpus: int
    """Of a replica."""
    prefill: float
    """Prompt tokens that a replica takes in [1/s]."""
    decode: float
    """Tokens that it generates, over all requests at once [1/s]."""
    period_s: float = 60.0
    hold: int = 5
    """Periods after which a replica that was not needed lends its GPUs."""
    headroom: float = 0.2
    stretch: float = 1.0
    """Times are multiplied by this, and so are the requests: the load lasts longer."""
    scale: float = 1.0
    """Factor on the load."""
    repeat: int = 1
    """How often the trace is repeated."""


class Plan(NamedTuple):
    """Replicas over time; lists are by period."""

    load: list[float]
    """Replicas that would be busy all the time."""
    active: list[int]
    replicas: int
    """The most that are ever active, or all there are."""
    late: float
    """Share of the load that came while more replicas were needed than had been called back."""

    def windows(self, period_s: float) -> list[list[tuple[float, float]]]:
        """For each replica, the times at which it lends its GPUs, from and until [s]."""
        found = []
        for replica in range(self.replicas):
            idle = [active <= replica for active in self.active]
            edges = [
                number * period_s
                for number, (before, now) in enumerate(
                    zip([False, *idle], [*idle, False], strict=True)
                )
                if before != now
            ]
            found.append(list(zip(edges[::2], edges[1::2], strict=True)))
        return found


def plan_replicas(
    requests: Sequence[Request], service: Service, replicas: int | None = None
) -> Plan:
    """The replicas of a service under the load of these requests.

    `replicas`: all there are; None: as many as the autoscaler ever wants.
    """
    busy = [0.0] * (int(requests[-1].at * service.stretch // service.period_s) + 1)
    for one in requests:
        work = (
            service.stretch
            * service.scale
            * (one.prompt / service.prefill + one.generated / service.decode)
        )
        busy[int(one.at * service.stretch // service.period_s)] += work
    load = [work / service.period_s for work in busy] * service.repeat
    wanted = [max(1, math.ceil(one * (1 + service.headroom) - 1e-9)) for one in load]
    # Nothing is known before the first period: then all are active.
    active = [
        max(wanted[max(0, number - service.hold) : number], default=max(wanted))
        for number in range(len(load))
    ]
    most = max(active) if replicas is None else replicas
    active = [min(one, most) for one in active]
    total = sum(load)
    short = sum(max(0.0, one - has) for one, has in zip(load, active, strict=True))
    return Plan(load, active, most, short / total if total else 0.0)


def serving_workload(
    plan: Plan, service: Service, name: str, training: Workload | None = None
) -> Workload:
    """The replicas as jobs of high priority from begin to end, beside jobs of low priority.

    A job of `training` keeps its request, times and user.
    """
    begin = training.jobs[0].submit_time if training is not None else 0.0
    last = len(plan.active) * service.period_s
    jobs = [
        Job(f"replica{n}", n, begin, service.gpus, name=name, terms=Terms(tenant=name))
        for n in range(plan.replicas)
    ]
    durations, made_up = [last] * plan.replicas, [f"replicas of {name} by a model of its load"]
    profiles = [None] * plan.replicas
    if (service.stretch, service.repeat, service.scale) != (1.0, 1, 1.0):
        made_up.append(
            f"load of {name} times {service.scale:g}, stretched {service.stretch:g}, repeated "
            f"{service.repeat}"
        )
    windows = plan.windows(service.period_s)
    standby = {
        n: [(begin + start, begin + end) for start, end in lends]
        for n, lends in enumerate(windows)
        if lends
    }
    phases = {}
    if training is not None:
        phases = {len(jobs) + index: one for index, one in training.phases.items()}
        standby |= {len(jobs) + index: one for index, one in training.standby.items()}
        for job in training.jobs:
            terms = replace(job.terms or Terms(), low=True)
            jobs.append(replace(job, index=len(jobs), terms=terms))
        durations += training.duration_s
        made_up += training.made_up
    return Workload(
        name,
        jobs,
        durations,
        [*profiles, *(training.profiles if training is not None else [])],
        standby=standby,
        phases=phases,
        made_up=tuple(made_up),
    )
