"""Further parts of semantic.py: sensitivity, and what the paper does not have."""

from __future__ import annotations

from typing import Any

from _record import record
from _runs import Trace, about, counted, row
from _semantic import LUCID, PAPER, SJF, Options, Policies, table


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
