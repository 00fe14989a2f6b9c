"""What SchedMate's modules are worth in the loop of a scheduler, by load and setting, three seeds.

    python benchmarks/semantic.py PART --data DATA --kept FOLDER [--seeds 1,2,3] [--jobs 2500]

PART is phillym, pairs, load, sensitivity or beyond (case studies 1 and 3: studies.py); DATA has
philly/philly.csv, phillym/phillym.csv and lucid/data/colocate_info.csv. Finished runs are kept in
FOLDER.
What jobs train is made up by a recipe on every trace (docs/traces.md), so that no row is wholly
real: `Philly` has real submissions and run times, `PhillyM` real arrivals, the others are drawn to
meet published figures. The advisor, the tracker and the handler are the real ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _figure import save
from _record import RESULTS, record
from _runs import Trace, about, counted, mean, ratio, row, run, trace_of

from schedmate.report import charts
from schedmate.schedulers.sim.interference import GavelPairs
from schedmate.schedulers.sim.outcome.results import Result
from schedmate.schedulers.sim.parameters import ColocationTable
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


ALONE = ("lucid", "ga2m")
PHILLYM: Policies = {
    "FIFO, backfill": ("fifo:backfill=true", "none"),
    "Horus, true utilisation": ("horus:backfill=false", "oracle"),
    "QSSF, backfill, its own boosting": ("qssf:backfill=true", "boosting"),
    "Tiresias": ("tiresias", "none"),
    "Lucid": ALONE,
    "Lucid+SchedMate, paper, no tracker": (f"{LUCID}:{PAPER}:tracker=false", "ga2m"),
    "Lucid+SchedMate, no tracker": (f"{LUCID}:tracker=false", "ga2m"),
    "Lucid+SchedMate, perfect tracker": ("_bounds:KnowingLucid", "ga2m"),
    "SRTF+SchedMate (ours)": ("srtf+schedmate", "user-mean"),
    "bound: perfect advisor and tracker": ("_bounds:KnowingLucid:advisor=false", "oracle"),
}


def phillym(options: Options) -> None:
    """Case 1 on a whole week for 864 GPUs; the tracker lies between none and a perfect one."""
    recipe = "lucid:recurrence=0.9,early=0.4,stated=0"
    _cdfs("semantic_phillym", table("semantic_phillym", options, PHILLYM, "Lucid", recipe))


def _cdfs(name: str, found: dict[str, dict[str, list[Result]]]) -> None:
    for key, policies in found.items():
        trace = key.partition(":")[0]
        shown = {t: np.concatenate([one.jobs["jct_s"] for one in r]) for t, r in policies.items()}
        shown = {t: values for t, values in shown.items() if not t.startswith("bound")}
        x = charts.log_duration_axis("JCT", 10.0, max(float(one.max()) for one in shown.values()))
        curves = [
            charts.Series(title, n, *charts.cdf_chart(values, x))
            for n, (title, values) in enumerate(shown.items())
        ]
        y = charts.linear_axis("share of jobs", 0.0, 1.0, "share")
        save(RESULTS / f"{name}_{trace.lower()}.svg", f"JCT on {trace}", curves, (x, y))


def pairs(options: Options) -> None:
    """What there is to undo: how many of the pairs that others measured slow a job by how much."""
    lucid = ColocationTable.read(options.data / "lucid" / "data" / "colocate_info.csv").pairs
    tables = {"Lucid, RTX 3090, 24 GB": lucid}
    for gpu in ("v100", "p100", "k80"):
        tables[f"Gavel, {gpu.upper()}"] = GavelPairs(gpu).pairs
    rows = []
    for title, measured in tables.items():
        speeds = np.array([value for (one, two), value in measured.items() if one <= two])
        rows.append(
            {
                "measured": title,
                "pairs": len(speeds),
                "mean speed": f"{speeds.mean():.3f}",
                "mean difference within a pair": f"{abs(np.diff(speeds)).mean():.3f}",
                "one loses 35 % or more": f"{(speeds.min(axis=1) <= 0.65).mean():.1%}",
                "one loses 50 % or more": f"{(speeds.min(axis=1) <= 0.5).mean():.1%}",
                "both together do less than one alone": f"{(speeds.sum(axis=1) < 1).mean():.1%}",
            }
        )
    record(
        "semantic_pairs", rows,
        source="S-Lab-System-Group/Lucid; stanford-futuredata/gavel (single GPUs)",
    )  # fmt: skip


def load(options: Options) -> None:
    """The gain over Lucid by how loaded the cluster is, beside what is at most to be had."""
    rows, curves = [], []
    loads = (0.8, 1.0, 1.2, 1.5)
    for place, name in enumerate(options.traces):
        gains: dict[str, list[float]] = {"Lucid+SchedMate": [], "bound: perfect advisor": []}
        for one in loads:
            traces = options.several(name, one)
            base = options.runs(traces, ALONE)
            alone = float(np.mean([trace.alone_h for trace in traces]))
            line = {"trace": name, "load": f"{np.mean([t.load for t in traces]):.2f}"}
            line |= {"Lucid JCT h": f"{mean(base, 'avg_jct_h'):.3f}", "alone h": f"{alone:.3f}"}
            for title, policy in (
                ("Lucid+SchedMate", (f"{LUCID}:tracker=false", "ga2m")),
                ("bound: perfect advisor", (f"{PERFECT}:tracker=false", "oracle")),
            ):
                gain = ratio(base, options.runs(traces, policy))
                line[title] = "{:.3f} ({:.3f} to {:.3f})".format(*gain)
                gains[title].append(gain[0])
            rows.append({**line, "bound: nobody waits": f"{mean(base, 'avg_jct_h') / alone:.2f}"})
        for n, (title, values) in enumerate(gains.items()):
            curve = charts.Series(
                f"{name}: {title}", 2 * place + n, np.array(loads), np.array(values)
            )
            curves.append(curve)
        record("semantic_load", rows, base="Lucid", seeds=options.seeds, jobs=options.jobs)
    top = max(2.0, *(float(one.y.max()) for one in curves))
    save(
        RESULTS / "semantic_load.svg",
        "Average JCT of Lucid over that of Lucid with SchedMate",
        curves,
        (
            charts.linear_axis("load", 0.8, 1.5, "count"),
            charts.linear_axis("gain", 0.8, top, "ratio"),
        ),
        (1.23, 1.91, "paper: 1.23 to 1.91"),
    )


def sensitivity(options: Options) -> None:
    """Detection rate, errors of profiles and estimates, latency, recall and false alarms."""
    rows = []
    rates = {"fail": True}
    # Any pair that fits into 80 GB is made: the tracker has something to undo.
    large = "gpu_memory_mb=81920"
    any_pair = f"{LUCID}:capacity=4:lookahead_s=0:{large}"
    groups: dict[str, list[tuple[str, str, str, dict[str, Any]]]] = {
        "GPUs of 80 GB:": [
            ("Lucid", f"lucid:{large}", "ga2m", {}),
            ("Lucid+SchedMate", f"{LUCID}:{large}", "ga2m", {}),
            ("perfect tracker", f"_bounds:KnowingLucid:{large}", "ga2m", {}),
        ],
        "detection rate, any pair shares": [
            (f"{rate:g}", f"{any_pair}:detection_rate={rate}", "user-mean", {})
            for rate in (0.0, 0.25, 0.5, 0.75, 1.0)
        ]
        + [("no baseline of past jobs", f"{any_pair}:baseline=false", "user-mean", {})],
        "error of profiles (Lucid)": [
            (f"{error:g}", "lucid", "ga2m", {"error": error}) for error in (0.0, 0.193, 0.4)
        ],
        "error of estimates, x e^": [
            (f"{error:g}", f"{SJF}:error={error}", "user-mean", {})
            for error in (0.0, 0.5, 1.0, 2.0, 3.0)
        ],
        "latency of the advisor [s]": [
            (f"{latency}", f"{SJF}:latency_s={latency}", "user-mean", {})
            for latency in (0, 9, 60, 600)
        ],
        "handler: recall, false alarms": [
            (f"{r:g}, {a:g}", f"{SJF}:recall={r}:false_alarms={a}", "user-mean", rates)
            for r, a in ((0.0, 0.0), (0.61, 0.05), (1.0, 0.0), (1.0, 0.2), (1.0, 1.0))
        ]
        + [("the handler itself", SJF, "user-mean", rates)],
    }
    queues = ("error of estimates, x e^", "latency of the advisor [s]")  # so as to matter
    shown: dict[str, list[Trace]] = {}
    for trace in options.traces:
        for group, members in groups.items():
            name = f"{trace}:2500" if group in queues else trace
            shown[name] = shown.get(name) or options.several(name)
            base = None
            for title, policy, told, plan in members:
                results = options.runs(shown[name], (policy, told), **plan)
                base = base or results
                line = row(shown[name], f"{group} {title}", results, base)
                rows.append({**line, "measured": counted(results, "tracker", "measured")})
        record("semantic_sensitivity", rows, base="the first of each group", **about(shown))


BEYOND: Policies = {
    "Lucid+SchedMate, paper": (f"{LUCID}:{PAPER}:tracker=false", "user-mean"),
    "weighted estimates": (f"{LUCID}:tracker=false", "user-mean"),
    "and risk 1": (f"{LUCID}:tracker=false:risk=1", "user-mean"),
    "and spread": (f"{LUCID}:tracker=false:spread=true", "user-mean"),
    "and affine": (f"{LUCID}:tracker=false:affine=true", "user-mean"),
    "SJF, paper": (f"{SJF}:{PAPER}", "user-mean"),
    "SJF, weighted, risk 0": (f"{SJF}:risk=0", "user-mean"),
    "SJF, weighted, risk 1": (SJF, "user-mean"),
    "QSSF, weighted, risk 0": ("qssf+schedmate:risk=0", "user-mean"),
    "QSSF, weighted, risk 1": ("qssf+schedmate", "user-mean"),
    "SRTF, wrong estimates doubled": ("srtf+schedmate", "user-mean"),
    "SRTF, risk 1": ("srtf+schedmate:risk=1", "user-mean"),
    "SRTF, as it was, GA2M": ("srtf", "ga2m"),
    "Tiresias": ("tiresias", "none"),
}


def beyond(options: Options) -> None:
    """What the paper does not have; looked at on other draws and another part of Philly."""
    table("semantic_beyond", options, BEYOND, "Lucid+SchedMate, paper")


PARTS = {
    "phillym": (phillym, "PhillyM"),
    "pairs": (pairs, ""),
    "load": (load, "Seren,Venus,Philly"),
    "sensitivity": (sensitivity, "Philly,Seren"),
    "beyond": (beyond, "Philly,Seren,Venus,Saturn"),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--jobs", type=int, default=2500)
    parser.add_argument("--traces", default="")
    given = parser.parse_args()
    part, usual = PARTS[given.part]
    seeds = tuple(int(one) for one in given.seeds.split(","))
    names = tuple((given.traces or usual).split(","))
    part(Options(given.data, given.kept, seeds, given.jobs, names))
