"""The report of a comparison of policies: `schedmate simulate --out` and `--report`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from schedmate import __version__
from schedmate.durations import format_duration
from schedmate.report import figures, over_time
from schedmate.report.explained import explained
from schedmate.report.page import embedded, render
from schedmate.schedulers.sim.options import ESTIMATORS
from schedmate.schedulers.sim.outcome.results import Result
from schedmate.schedulers.sim.outcome.words import differences, headlines, label, varied, warnings
from schedmate.schedulers.sim.runs import Plan


@dataclass(frozen=True)
class Comparison:
    """The simulated trace and plans: results are in the order of plans, and of the policies of
    each."""

    plans: Sequence[Plan]
    results: Sequence[Result]
    document: dict[str, Any]
    """As `--json` prints it."""
    trace: str
    made_up: Sequence[str] = ()
    """What of the trace is synthetic."""
    notes: Sequence[str] = ()
    command: str = ""


def simulation_page(found: Comparison, window: tuple[float, float] | None = None) -> str:
    """The whole report as HTML. `window`: the stretch of the Gantt charts [s].

    The curves show the policies under the first plan; tables have all runs.
    """
    runs = [result.numbers for result in found.results]
    plan = found.plans[0]
    shown = list(found.results[: len(plan.policies)])
    keys = varied(runs)
    return render(
        "simulation",
        "charts",
        found=found,
        plan=plan,
        runs=runs,
        keys=keys,
        headlines=headlines(runs),
        differences=differences(runs),
        warnings=warnings(runs),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        policies=[one.numbers["policy"] for one in shown],
        oracles=sorted({run["policy"] for run in runs if run["oracle"]}),
        estimators={
            run["estimator"]: next(
                (
                    text
                    for name, text in ESTIMATORS.items()
                    if name.split(":")[0] == run["estimator"].split(":")[0]
                ),
                "",
            )
            for run in runs
        },
        span=format_duration(float(np.ptp(shown[0].jobs["submit_s"]))),
        gain=figures.gain(runs, keys),
        distributions=figures.distributions(shown),
        sizes=figures.sizes(shown),
        parts=[
            (title, key, list(shown[0].numbers[key]), [one.numbers for one in shown])
            for title, key in (("By size", "by_size"), ("By virtual cluster", "by_vc"))
            if shown[0].numbers[key]
        ],
        fairness=[
            (among, one.numbers, one.numbers["fairness"][key])
            for key, among in (("user", "users"), ("vc", "virtual clusters"))
            for one in shown
            if key in one.numbers["fairness"]
        ],
        over_time=over_time.over_time(shown, plan),
        gantts=over_time.gantts(shown, plan, window),
        pairs=[figures.pair(shown[0], other, n) for n, other in enumerate(shown[1:], start=1)],
        estimates=figures.estimates(shown),
        sweep=figures.sweep(found.plans, found.results),
        seeds=found.document.get("over_seeds", []),
        modules=[
            (label(run, keys), module, what)
            for run in runs
            for module, what in run.get("schedmate", {}).items()
            if what
        ],
        parameters=explained(plan.parameters)
        + ([] if plan.failures is None else explained(plan.failures))
        + ([] if plan.phases is None else explained(plan.phases)),
        data=embedded(found.document),
    )
