"""What the parts of semantic.py share: traces of several seeds, and tables of policies on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from _record import record
from _runs import Trace, about, row, run, trace_of

from schedmate.schedulers.sim.outcome.results import Result
from schedmate.schedulers.sim.world import FailureRates

PAPER = "method=mean"
"""The paper's estimates: the mean of the three nearest."""
LUCID, SJF = "lucid+schedmate", "sjf+schedmate"
PERFECT = f"{LUCID}:advisor=false"
"""Told the truth, it has an advisor that is never wrong and takes no time."""
BUGS, USER_S, INFRASTRUCTURE = 0.2, 7200.0, 0.11
"""A fifth of the jobs has a bug, users take two hours, and 11 % of the failures are the
infrastructure's, as in Acme (NSDI'24, section 5)."""

Policies = dict[str, tuple[str, str]]
"""By title: the policy and what it is told."""


class Options(NamedTuple):
    data: Path
    kept: Path
    seeds: tuple[int, ...]
    jobs: int
    traces: tuple[str, ...]

    def several(self, name: str, load: float = 1.2, recipe: str = "") -> list[Trace]:
        """A trace of each seed; `Seren:1500` has so many jobs."""
        name, _, jobs = name.partition(":")
        count = int(jobs or self.jobs)
        return [trace_of(name, self.data, count, seed, load, recipe) for seed in self.seeds]

    def runs(
        self, traces: list[Trace], one: tuple[str, str], fail: bool = False, **plan: Any
    ) -> list[Result]:
        """A policy on each."""
        return [
            run(
                trace,
                *one,
                self.data,
                self.kept,
                **plan,
                **({"failures": failures_of(trace)} if fail else {}),
            )
            for trace in traces
        ]


def table(
    name: str, options: Options, policies: Policies, base: str, recipe: str = ""
) -> dict[str, dict[str, list[Result]]]:
    """Every policy on every trace, beside `base`; recorded after each trace."""
    rows, traces, found = [], {}, {}
    for trace in options.traces:
        traces[trace] = options.several(trace, recipe=recipe)
        found[trace] = {t: options.runs(traces[trace], one) for t, one in policies.items()}
        for title, results in found[trace].items():
            rows.append(row(traces[trace], title, results, found[trace][base]))
        record(name, rows, base=base, recipe=recipe or "code states run times", **about(traces))
    return found


def failures_of(trace: Trace) -> FailureRates:
    """With as many failures of the infrastructure as that."""
    work = trace.workload
    gpu_s = sum(d * j.gpus for d, j in zip(work.duration_s, work.jobs, strict=True))
    wanted = BUGS * len(work) * INFRASTRUCTURE / (1 - INFRASTRUCTURE)
    return FailureRates(gpu_mtbf=gpu_s / wanted, bugs=BUGS, user=USER_S)
