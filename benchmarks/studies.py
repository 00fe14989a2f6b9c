"""Case studies 1 and 3 and the paper's Table 1 over twenty seeds, without help from the recipe.

    python benchmarks/studies.py TABLE --data DATA --kept FOLDER [--seeds 20] [--processes N]

TABLE is one of those below; DATA has philly/philly.csv, helios/venus_jobs.csv.gz,
lucid/data/colocate_info.csv and lucid/single_data.csv. Finished runs are kept in FOLDER, so a
command that was stopped goes on. What jobs train is made up on every trace; what their metadata may
know of their run times is in docs/traces.md, and every table says how it was set.

    information  Lucid+SchedMate over Lucid, by recurrence, by what code states, by early ends
    parts        where that comes from: run times, or profiling that is not done
    case1        Figure 10: Lucid with SchedMate and others on four traces
    case1_large  the same on 108 nodes, two of which are kept for profiling
    undoing      Figure 13c: what it is worth to undo packings, by how jobs disturb each other
    physical     Table 1: 241 jobs on 128 GPUs
    left         what it is worth that logs of running jobs say how long they still take
    extraction   what the extractor's errors cost
    case3        Figure 11: SchedMate as a scheduler of its own, with failures
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _figure import save
from _record import RESULTS, record
from _seeds import SEEDS, SIDE_BY_SIDE, Cell, Gain, found, gain

from schedmate.report import charts

LUCID = ("lucid", "ga2m")
SCHEDMATE = "lucid+schedmate"
KNOWING = "_bounds:KnowingLucid"
PUBLISHED = {"Venus": 0.47, "Philly": 0.40, "Seren": 0.46, "Saturn": 0.42}
"""Share of GPU jobs that did not complete: Acme's Kalos (Seren has 0.50), Helios, Philly."""
JOBS = 1000
"""Of each seed: a table takes about ten minutes on two free cores."""
RECURRENCE = 0.9
"""Most jobs recur, some 90 % (Lucid, section 2.2)."""
KINDS = {
    "Seren": "synthetic, drawn to Acme's published figures",
    "Saturn": "synthetic, drawn to Helios' published figures",
    "Venus": "real submissions, GPUs and run times (cut at 48 h)",
    "Philly": "real submissions, GPUs and run times",
    "Table 1": "half real (Philly), half synthetic (Seren)",
}


class Study(NamedTuple):
    seeds: tuple[int, ...]
    run: Callable[[Iterable[Cell]], dict[Cell, dict[str, Any]]]
    traces: Sequence[str]


class Row(NamedTuple):
    """A line of a table: a policy somewhere, beside the one that it is compared with."""

    where: dict[str, Any]
    cell: partial[Cell]
    base: partial[Cell]


def recorded(name: str, study: Study, rows: Sequence[Row], **meta: Any) -> list[Gain]:
    """Run all that the rows need, and record a line for each."""
    cells = [one(seed=seed) for row in rows for one in (row.base, row.cell) for seed in study.seeds]
    runs = study.run(cells)
    lines, gains = [], []
    for row in rows:
        these = [runs[row.cell(seed=seed)] for seed in study.seeds]
        bases = [runs[row.base(seed=seed)] for seed in study.seeds]
        found_ = gain([one["avg_jct_h"] for one in bases], [one["avg_jct_h"] for one in these])
        gains.append(found_)
        lines.append(row.where | _line(these, found_))
    holds = [one.holds for one in gains if not np.isnan(one.holds)]
    traces = dict.fromkeys(row.cell.keywords["trace"] for row in rows)
    record(
        name,
        lines,
        seeds=f"{study.seeds[0]} to {study.seeds[-1]}",
        gain="base over this, geometric mean of average JCTs over seeds; interval: Student's t, "
        "95 %",
        halves=f"{np.mean(holds):.1%} of halves of the seeds lie where the other half says "
        "(95 % if intervals hold)" if holds else "",
        **{trace: KINDS[trace] for trace in traces},
        **meta,
    )  # fmt: skip
    return gains


def _line(these: list[dict[str, Any]], won: Gain) -> dict[str, Any]:
    def mean(key: str) -> float:
        return float(np.mean([one[key] for one in these]))

    def counted(module: str, key: str) -> int | str:
        values = [one.get("schedmate", {}).get(module, {}).get(key) for one in these]
        return "" if None in values else round(float(np.mean(values)))

    handled = {
        key: counted("handler", key) for key in ("handled", "in_vain", "missed", "left_to_user")
    }
    return {
        "base / this (95 %)": str(won),
        "median of seeds": f"{won.median:.2f}",
        "seeds from, to": f"{won.worst:.2f} to {won.best:.2f}",
        "halves": f"{won.holds:.2f}",
        "avg JCT h": f"{mean('avg_jct_h'):.3f}",
        "alone h": f"{mean('alone_h'):.3f}",
        "queue h": f"{mean('avg_queue_h'):.3f}",
        "median JCT h": f"{mean('median_jct_h'):.3f}",
        "p99 JCT h": f"{mean('p99_jct_h'):.2f}",
        "packed": round(mean("packed")),
        "evicted": round(mean("evictions")),
        "measured": counted("tracker", "measured"),
        **({"failures": round(mean("failures")), **handled} if mean("failures") else {}),
        "load": f"{mean('load'):.2f}",
        "CPU s": f"{mean('cpu_s'):.1f}",
    }


STATED = {
    "nothing of it": "stated=0",
    "within a factor of 4.7": "stated=1,noise=1.5",
    "within a factor of 1.6": "stated=1,noise=0.3",
}
"""What code states of its own run time: one standard deviation, with the spread of runs."""


def information(study: Study) -> None:
    """Sweep what the metadata may know on Seren."""
    rows, curves = [], []
    most = PUBLISHED["Seren"]
    grid = [("nothing of it", share, most) for share in (0.3, 0.6, RECURRENCE)]
    grid += [("within a factor of 4.7", share, most) for share in (0.3, RECURRENCE)]
    grid += [("within a factor of 1.6", share, early) for share, early in ((0.9, most), (0.6, 0.1))]
    for title, share, early in grid:
        settings = STATED[title]
        recipe = f"recurrence={share},early={early},{settings}"
        cell = partial(Cell, trace="Seren", recipe=recipe, jobs=JOBS)
        rows.append(
            Row(
                {"recurrence": share, "early ends": early, "code states": title},
                partial(cell, policy=f"{SCHEDMATE}:tracker=false", told="ga2m"),
                partial(cell, policy=LUCID[0], told=LUCID[1]),
            )
        )
    gains = recorded(
        "studies_information", study, rows,
        base="Lucid on the same jobs", jobs=JOBS, spread=0.4,
        published="unfinished jobs 0.46 (Acme); recurrence 0.9 (Lucid, section 2.2), 0.84 (GenAI "
        "requests); what code states of the run time of training jobs: nobody published it",
    )  # fmt: skip
    for n, title in enumerate(("nothing of it", "within a factor of 4.7")):
        at = [(row[1], one.ratio) for row, one in zip(grid, gains, strict=True) if row[0] == title]
        curves.append(charts.Series(f"code states {title}", n, *np.array(at).T))
    save(
        RESULTS / "studies_information.svg",
        "Average JCT of Lucid over that of Lucid with SchedMate, Seren, 46 % end early",
        curves,
        (charts.linear_axis("share of jobs that recur", 0.2, 1.0, "share"),
         charts.linear_axis("gain", 0.9, 2.0, "ratio")),
        (1.23, 1.91, "paper: 1.23 to 1.91"),
    )  # fmt: skip


PARTS = {
    "Lucid": LUCID,
    "Lucid, told the user's mean": ("lucid", "user-mean"),
    "Lucid, nothing profiled, nothing packed": ("lucid:profile_gpus=0", "ga2m"),
    "Lucid, told the truth": ("lucid", "oracle"),
    "Lucid+SchedMate, all is profiled": (f"{SCHEDMATE}:tracker=false:bypass=false", "ga2m"),
    "Lucid+SchedMate, estimates off by e^3": (f"{SCHEDMATE}:tracker=false:error=3", "ga2m"),
    "Lucid+SchedMate, no tracker": (f"{SCHEDMATE}:tracker=false", "ga2m"),
    "the same, the paper's mean of three": (f"{SCHEDMATE}:tracker=false:method=mean", "ga2m"),
    "the same, no node kept for profiling": (
        f"{SCHEDMATE}:tracker=false:profiler_nodes=0",
        "ga2m",
    ),
    "bound: perfect advisor, no tracker": (f"{SCHEDMATE}:tracker=false:advisor=false", "oracle"),
}


def parts(study: Study) -> None:
    """Where the gain on Seren comes from: run times, or profiling that is not done."""
    recipe = f"recurrence={RECURRENCE},early={PUBLISHED['Seren']},stated=0"
    cell = partial(Cell, trace="Seren", recipe=recipe, jobs=JOBS)
    base = partial(cell, policy=LUCID[0], told=LUCID[1])
    rows = [
        Row({"policy": title}, partial(cell, policy=policy, told=told), base)
        for title, (policy, told) in PARTS.items()
    ]
    recorded("studies_parts", study, rows, base="Lucid", jobs=JOBS, recipe=recipe)


CASE1 = {
    "FIFO, backfill": ("fifo:backfill=true", "none"),
    "Horus, true utilisation": ("horus:backfill=false", "oracle"),
    "QSSF, backfill, its own boosting": ("qssf:backfill=true", "boosting"),
    "Tiresias": ("tiresias", "none"),
    "Lucid": LUCID,
    "Lucid+SchedMate, the paper's mean of three": (
        f"{SCHEDMATE}:tracker=false:method=mean",
        "ga2m",
    ),
    "Lucid+SchedMate, no tracker": (f"{SCHEDMATE}:tracker=false", "ga2m"),
    "bound: perfect advisor": (f"{SCHEDMATE}:tracker=false:advisor=false", "oracle"),
    "bound: both perfect": (f"{KNOWING}:advisor=false", "oracle"),
}


def case1(study: Study) -> None:
    """Figure 10, where as many jobs recur and end early as was published.

    What the tracker adds is in `undoing` and `physical`.
    """
    rows = []
    for trace in study.traces:
        early = PUBLISHED[trace]
        recipe = f"recurrence={RECURRENCE},early={early},stated=0"
        cell = partial(Cell, trace=trace, recipe=recipe, jobs=JOBS)
        base = partial(cell, policy=LUCID[0], told=LUCID[1])
        for title, (policy, told) in CASE1.items():
            where = {"trace": trace, "policy": title}
            rows.append(Row(where, partial(cell, policy=policy, told=told), base))
        recorded(
            "studies_case1", study, rows,
            base="Lucid", jobs=JOBS, recurrence=RECURRENCE, early=PUBLISHED, stated=0,
            packing="Lucid's measured pairs, the nearest by use for others; 24 GB, on Seren 80",
        )  # fmt: skip


LARGE_NODES = 108
LARGE = {
    title: CASE1[title]
    for title in CASE1
    if not title.startswith(("Horus", "bound: both")) and "mean of three" not in title
} | {"Lucid, no node kept for profiling": ("lucid:profiler_nodes=0", "ga2m")}


def case1_large(study: Study) -> None:
    """Case 1 on a cluster of the size that the publications have, with a fixed part for profiling.

    In `case1` the cluster of a seed has as many nodes as its jobs ask for, few on some seeds, of
    which Lucid then keeps up to a quarter for profiling.
    """
    rows = []
    for trace in study.traces:
        recipe = f"recurrence={RECURRENCE},early={PUBLISHED[trace]},stated=0"
        cell = partial(Cell, trace=trace, recipe=recipe, jobs=JOBS, nodes=LARGE_NODES)
        base = partial(cell, policy=LUCID[0], told=LUCID[1])
        for title, (policy, told) in LARGE.items():
            where = {"trace": trace, "policy": title}
            rows.append(Row(where, partial(cell, policy=policy, told=told), base))
        recorded(
            "studies_case1_large", study, rows,
            base="Lucid", jobs=SIDE_BY_SIDE * JOBS, recurrence=RECURRENCE, early=PUBLISHED,
            cluster=f"{LARGE_NODES} nodes of 8 GPUs, 2 of them for profiling (1.9 %)",
            arrivals=f"{SIDE_BY_SIDE} parts of {JOBS} jobs at once, as long as the load is 1.2",
        )  # fmt: skip


WORLDS = {
    "gavel-v100": "Gavel's 330 pairs (V100), by kind of network",
    "pairs": "Lucid's 1,388 pairs (RTX 3090), the nearest by utilisation",
    "slices": "jobs take turns: two saturated ones at 0.475 each",
    "curve": "curve of two published points, the same for both jobs",
}


def undoing(study: Study) -> None:
    """Figure 13c: detection rates in every physics, with Lucid's scores and without."""
    rows = []
    recipe = f"recurrence={RECURRENCE},early={PUBLISHED['Seren']}"
    scores = [("Lucid's scores", "", world) for world in WORLDS]
    anything = [("any pair", ":capacity=4:lookahead_s=0", world) for world in list(WORLDS)[:3]]
    for packs, settings, world in (*anything, *scores):
        cell = partial(Cell, trace="Seren", recipe=recipe, jobs=600, world=world, told="user-mean")
        base = partial(cell, policy=f"{SCHEDMATE}:detection_rate=0{settings}")
        rates = {
            f"{rate:g}": partial(cell, policy=f"{SCHEDMATE}:detection_rate={rate:g}{settings}")
            for rate in ((0.0, 0.5, 1.0) if settings else (0.0, 1.0))
        }
        rates["perfect, at once"] = partial(cell, policy=f"{KNOWING}{settings}")
        rates["nobody shares"] = partial(cell, policy=f"{SCHEDMATE}:capacity=-1:tracker=false")
        for rate, made in rates.items():
            where = {"slowdowns": WORLDS[world], "shares": packs, "detection rate": rate}
            rows.append(Row(where, made, base))
        recorded(
            "studies_undoing", study, rows,
            base="the same with nothing detected", jobs=600, recipe=recipe, threshold=0.35,
            paper="12.5 % less average JCT at a detection rate of 0.5 (Figure 13c)",
        )  # fmt: skip


def physical(study: Study) -> None:
    """Table 1, with the settings of section 5.2."""
    settings = ":profiler_nodes=1:profile_limit_s=100"
    rows = []
    recipe = f"recurrence={RECURRENCE},early={PUBLISHED['Seren']}"
    for world in ("pairs", "gavel-v100", "slices"):
        for load in (1.2, 2.0):
            cell = partial(Cell, trace="Table 1", recipe=recipe, world=world, load=load)
            base = partial(cell, policy=f"lucid{settings}", told="ga2m")
            for title, policy, told in (
                ("Lucid", f"lucid{settings}", "ga2m"),
                ("Lucid+SchedMate", f"{SCHEDMATE}{settings}:max_slowdown=0.5", "ga2m"),
                ("nothing undone", f"{SCHEDMATE}{settings}:tracker=false", "ga2m"),
                ("undone from 35 % on", f"{SCHEDMATE}{settings}", "ga2m"),
                ("bound: both perfect", f"{KNOWING}{settings}:advisor=false", "oracle"),
            ):
                where = {"slowdowns": WORLDS[world], "asked load": load, "policy": title}
                rows.append(Row(where, partial(cell, policy=policy, told=told), base))
    recorded(
        "studies_physical", study, rows,
        base="Lucid", jobs=241, cluster="128 GPUs of 80 GB", recipe=recipe,
        paper="6.85 h to 5.53 h: 1.24 (physical), 3 runs of one trace; simulated within 3.7 %",
        note="which 241 jobs they were, and when they were submitted, is not published",
    )  # fmt: skip


def extraction(study: Study) -> None:
    """What the errors of static extraction cost."""
    rows = []
    recipe = f"recurrence={RECURRENCE},early={PUBLISHED['Seren']},{STATED['nothing of it']}"
    cell = partial(Cell, trace="Seren", jobs=JOBS)
    # The same jobs: what is misread is drawn last, and Lucid reads no code.
    base = partial(cell, recipe=recipe, policy=LUCID[0], told=LUCID[1])
    for share, title in (
        (0.0, "none"),
        (0.11, "as on the repositories that the rules were written on"),
        (0.54, "as on repositories that the rules had never seen"),
        (1.0, "every workload"),
    ):
        read = f"{recipe},misread={share}" if share else recipe
        this = partial(cell, recipe=read, policy=f"{SCHEDMATE}:tracker=false", told="ga2m")
        rows.append(Row({"workloads misread": share, "which is": title}, this, base))
    recorded("studies_extraction", study, rows, base="Lucid", jobs=JOBS, recipe=recipe)


CASE3 = {
    "FIFO, backfill": ("fifo:backfill=true", "none"),
    "Tiresias": ("tiresias", "none"),
    "QSSF, backfill, its own boosting": ("qssf:backfill=true", "boosting"),
    "QSSF, backfill, Lucid's GA2M": ("qssf:backfill=true", "ga2m"),
    "SJF+SchedMate, the paper's mean of three, strict, no handler": (
        "sjf+schedmate:method=mean:backfill=false:handler=false",
        "user-mean",
    ),
    "the same, with backfill": ("sjf+schedmate:method=mean:handler=false", "user-mean"),
    "SJF+SchedMate, no handler": ("sjf+schedmate:handler=false", "user-mean"),
    "SJF+SchedMate": ("sjf+schedmate", "user-mean"),
    "SRTF+SchedMate (ours)": ("srtf+schedmate", "user-mean"),
    "bound: perfect advisor, no handler": ("sjf+schedmate:advisor=false:handler=false", "oracle"),
    "bound: SRTF, perfect advisor, no handler": (
        "srtf+schedmate:advisor=false:handler=false",
        "oracle",
    ),
}


def case3(study: Study) -> None:
    """Figure 11, with failures as in Acme."""
    rows = []
    for trace in ("Seren", "Philly"):
        early = PUBLISHED[trace]
        cell = partial(
            Cell,
            trace=trace,
            recipe=f"recurrence={RECURRENCE},early={early}",
            failing=0.2,
            jobs=JOBS,
        )
        base = partial(cell, policy="qssf:backfill=true", told="boosting")
        for title, (policy, told) in CASE3.items():
            where = {"trace": trace, "policy": title}
            rows.append(Row(where, partial(cell, policy=policy, told=told), base))
    recorded(
        "studies_case3", study, rows,
        base="QSSF with its own boosting", jobs=JOBS, recurrence=RECURRENCE, stated=0,
        failures="a fifth of the jobs has a bug, 11 % of failures are the infrastructure's, users "
        "take two hours",
    )  # fmt: skip


LEFT = {
    "SRTF+SchedMate": ("srtf+schedmate:handler=false", "user-mean"),
    "the same, logs say what is left": (
        "srtf+schedmate:handler=false:progress=true",
        "user-mean",
    ),
    "bound: SRTF, true run times": ("srtf", "oracle"),
}


def left(study: Study) -> None:
    """What it is worth to a policy that stops jobs to know what running ones have left."""
    rows = []
    for trace in study.traces:
        recipe = f"recurrence={RECURRENCE},early={PUBLISHED[trace]},stated=0"
        cell = partial(Cell, trace=trace, recipe=recipe, jobs=JOBS)
        (base, told), *_ = LEFT.values()
        for title, (policy, by) in LEFT.items():
            where = {"trace": trace, "policy": title}
            made = partial(cell, policy=policy, told=by)
            rows.append(Row(where, made, partial(cell, policy=base, told=told)))
        recorded("studies_left", study, rows, base="SRTF+SchedMate", jobs=JOBS)


TABLES = {
    one.__name__: one
    for one in (information, parts, case1, case1_large, undoing, physical, left, extraction, case3)
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many, from 1 on")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--traces", default=",".join(PUBLISHED), help="of case 1")
    given = parser.parse_args()
    run = partial(found, data=given.data, kept=given.kept, processes=given.processes)
    TABLES[given.table](Study(SEEDS[: given.seeds], run, given.traces.split(",")))
