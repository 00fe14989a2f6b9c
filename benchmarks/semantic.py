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

import numpy as np
from _figure import save
from _record import RESULTS, record
from _runs import mean, ratio
from _semantic import LUCID, PAPER, PERFECT, Options, Policies, table
from _semantic_parts import beyond, sensitivity

from schedmate.report import charts
from schedmate.schedulers.sim.interference import GavelPairs
from schedmate.schedulers.sim.outcome.results import Result
from schedmate.schedulers.sim.parameters import ColocationTable

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
