"""How near do predicted iteration times and memory come to measured ones?

    python benchmarks/parallel_times.py FOLDER

FOLDER has measured plans (`plans.jsonl`), profile tables (`layers.csv.gz`, `collectives.csv.gz`,
`network.json`), measured FSDP throughput (`fsdp_throughput.csv`) and single-GPU training
(`end_to_end.csv`), as published with Sailor (SOSP'25), llm-foundry and NeuSight (ASPLOS'25).

parallel_times   predicted / measured - 1 of every plan, by cluster and model: mean of the absolute
                 values, worst, sign. `in`: with the constants as bundled, which were fitted to
                 these rows. `left out`: the fitted constants (what timing an operator alone adds,
                 what an iteration and a message add, how long messages hold stages up) fitted anew
                 without the plan, its cluster, model or number of GPUs, or all plans of its
                 cluster, model and kind (pipelined or not) at once; the rule on contended links,
                 which one cluster gave, is off where that is left out. `no profile`: by the
                 device model and datasheets. `naive`: layers' times times counts, slowest stage,
                 ring all-reduce, nothing fitted.
parallel_intervals  the factor that 80 % of measured times are within of predicted ones, with the
                 correction of conformal prediction for few plans, by what a prediction rests on;
                 and how many are within the bundled factor, which was taken from here.
parallel_memory  the same for the peak memory of a GPU.
parallel_fsdp    rows left out of the kriging one by one.
parallel_single  one GPU by the device model alone, which no row was fitted to; types that were
                 never timed at all have the default share of their peak.

Plans are left out that the table's own notes call invalid: one whose layers are another model's,
and for memory one that reports less than its weights need.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from _record import record
from scipy.optimize import least_squares

from schedmate.base.errors import InputError
from schedmate.schedulers.parallelism import predict
from schedmate.schedulers.parallelism.models import find_model
from schedmate.schedulers.parallelism.network import Network
from schedmate.schedulers.parallelism.operators import Sizes, calibration
from schedmate.schedulers.parallelism.plan import Plan, read_plans
from schedmate.schedulers.parallelism.predict import Compute, Predictor
from schedmate.schedulers.parallelism.profile import Tables, read_tables

FITTED = {
    "operator_overhead_s": 1e-5,
    "iteration_overhead_s": 1e-2,
    "message_s": 1e-4,
    "message_factor": 1.0,
}
"""The fitted constants, each with the order of magnitude that it is drawn to where plans do not
show it: an error of 5 % weighs as much as a factor of e."""
DRAWN = 0.05
CONTENDED = "mit"
"""The cluster that the rule on contended links was found on."""
UNRELIABLE_MEMORY = ("mit/N2/N2_D2",)
SINGLE = {
    "bert_large": "bert-large",
    "gpt2_large": "gpt2-large",
    "gpt3_27": "gpt3-2.7b",
    "opt_13": "opt-1.3b",
}
"""Names of the table to ours; its gpt3_xl takes as long as a model of twice the size."""


class Measured:
    """The plans with what was measured, and a predictor over the tables."""

    def __init__(self, folder: Path) -> None:
        self.tables = read_tables(
            [folder / name for name in ("layers.csv.gz", "collectives.csv.gz", "network.json")]
        )
        lines = [json.loads(line) for line in (folder / "plans.jsonl").open()]
        measured = {line["id"]: line["measured"] for line in lines}
        predictor = Predictor(Network(self.tables))
        self.plans: list[Plan] = []
        self.invalid: list[str] = []
        for plan in read_plans(folder / "plans.jsonl"):
            try:
                predictor.predict(plan)
            except InputError as error:
                self.invalid.append(f"{plan.id} ({error})")
            else:
                self.plans.append(plan)
        self.seconds = {plan.id: measured[plan.id]["iteration_s"] for plan in self.plans}
        self.memory = {plan.id: measured[plan.id]["max_memory_bytes"] for plan in self.plans}

    def errors(self, plans: Sequence[Plan], tables: Tables | None = None) -> list[float]:
        """Relative errors of iteration times under the constants as they are."""
        predictor = Predictor(Network(tables or self.tables))
        return [predictor.predict(one).iteration_s / self.seconds[one.id] - 1 for one in plans]

    def fitted_without(self, plans: Sequence[Plan], left: Sequence[Plan]) -> list[float]:
        """Errors of `left` with the constants fitted to the rest of `plans`."""
        constants = calibration()["iteration"]
        kept = {name: constants[name] for name in (*FITTED, "contended_weight")}
        rest = [plan for plan in plans if plan not in left]
        if not any(cluster(plan) == CONTENDED for plan in rest):
            constants["contended_weight"] = 0.0

        def wrong(logs: Any) -> list[float]:
            constants.update(zip(FITTED, (math.exp(one) for one in logs), strict=True))
            drawn = [DRAWN * (log - prior) for log, prior in zip(logs, priors, strict=True)]
            return [*(math.log1p(error) for error in self.errors(rest)), *drawn]

        priors = [math.log(prior) for prior in FITTED.values()]
        try:
            found = least_squares(wrong, priors, loss="soft_l1", f_scale=0.05, diff_step=0.05)
            constants.update(zip(FITTED, (math.exp(one) for one in found.x), strict=True))
            return self.errors(left)
        finally:
            constants.update(kept)


def naive(tables: Tables, plan: Plan) -> float:
    """The plain sum that any operator could make from the same tables [s]."""
    network = Network(tables)
    found = []
    spec, _ = plan.spec()
    constants = calibration()["iteration"]
    kept = constants["operator_overhead_s"]
    constants["operator_overhead_s"] = 0.0
    try:
        compute = Compute(network)
        first = 0
        for stage in plan.stages:
            times = []
            for one in stage.kinds():
                sizes = Sizes(plan.micro_batch, plan.sequence, plan.precision, one.tensor)
                layers = compute.layers(spec, one.gpu_type, sizes, plan.gpus_per_node)
                times.append(sum(layers.stage(first, stage.layers)))
            found.append(max(times))
            first += stage.layers
    finally:
        constants["operator_overhead_s"] = kept
    reduction = Predictor(network).predict(plan).parts["gradient_reduction_s"]
    return (plan.micro_batches - 1) * max(found) + sum(found) + reduction


def groups(plans: Iterable[Plan], key: Callable[[Plan], Any]) -> dict[Any, list[Plan]]:
    """Plans by a key."""
    found = defaultdict(list)
    for plan in plans:
        found[key(plan)].append(plan)
    return found


def cluster(plan: Plan) -> str:
    """The cluster that a plan was measured on."""
    return plan.id.partition("/")[0]


def alike(plan: Plan) -> tuple[str, str, bool]:
    """Cluster, model and kind of a plan."""
    return cluster(plan), plan.model, len(plan.stages) > 1


def summary(errors: Sequence[float]) -> dict[str, str]:
    """Mean and worst absolute error, and the mean error."""
    absolute = [abs(error) for error in errors]
    return {
        "plans": str(len(errors)),
        "mean": f"{sum(absolute) / len(absolute):.1%}",
        "worst": f"{max(absolute):.1%}",
        "bias": f"{sum(errors) / len(errors):+.1%}",
    }


def times(measured: Measured) -> None:
    """Iteration times of plans."""
    plans = measured.plans
    left_out = {
        "left out one by one": [[plan] for plan in plans],
        "left out by model": list(groups(plans, lambda one: one.model).values()),
        "left out by number of GPUs": list(groups(plans, lambda one: one.gpus).values()),
        "left out by cluster": list(groups(plans, cluster).values()),
        "left out by cluster, model and kind": list(groups(plans, alike).values()),
    }
    everything = {
        "in (as bundled)": dict(zip((p.id for p in plans), measured.errors(plans), strict=True))
    }
    for name, parts in left_out.items():
        everything[name] = {
            plan.id: error
            for part in parts
            for plan, error in zip(part, measured.fitted_without(plans, part), strict=True)
        }
    for precision in ("fp32", "tf32"):
        priced = [plan.model_copy(update={"precision": precision}) for plan in plans]
        errors = measured.errors(priced, Tables())
        name = f"no profile, {precision}"
        everything[name] = dict(zip((p.id for p in plans), errors, strict=True))
    everything["naive"] = {
        plan.id: naive(measured.tables, plan) / measured.seconds[plan.id] - 1 for plan in plans
    }
    rows = []
    for how, errors in everything.items():
        for name, part in {
            **groups(plans, lambda one: f"{cluster(one)} {one.model}"),
            "all": plans,
        }.items():
            rows.append({"how": how, "of": name, **summary([errors[plan.id] for plan in part])})
    each = [
        f"{plan.id} {everything['in (as bundled)'][plan.id]:+.1%} "
        f"({everything['left out one by one'][plan.id]:+.1%} left out)"
        for plan in plans
    ]
    record("parallel_times", rows, plans="; ".join(each), left_out=measured.invalid)
    intervals(measured, everything)


RESTS_ON = {
    "fitted": ("left out one by one",),
    "unlike": ("left out by cluster",),
    "datasheet": ("no profile, fp32", "no profile, tf32"),
}


def intervals(measured: Measured, errors: dict[str, dict[str, float]]) -> None:
    """The factor that 80 % of measured times are within, and coverage of the bundled one."""
    bundled = calibration()["interval"]["factors"]
    rows = []
    for rests_on, folds in RESTS_ON.items():
        wrong = [error for fold in folds for error in errors[fold].values()]
        factors = sorted(math.exp(abs(math.log1p(error))) for error in wrong)
        row = {"rests on": rests_on, "folds": "; ".join(folds), "errors": str(len(wrong))}
        row["factor"] = f"{factors[min(len(wrong), math.ceil((len(wrong) + 1) * 0.8)) - 1]:.3g}"
        inside = sum(factor <= bundled[rests_on] for factor in factors)
        rows.append(row | {"within bundled": f"{inside / len(wrong):.0%}"})
    record("parallel_intervals", rows)


def memory(measured: Measured) -> None:
    """Peak memory of plans."""
    predictor = Predictor(Network(measured.tables))
    errors = {
        plan.id: predictor.predict(plan).max_memory_bytes / measured.memory[plan.id] - 1
        for plan in measured.plans
    }
    parts = groups(measured.plans, lambda one: f"{cluster(one)} {one.model}")
    rows = []
    for name, part in {**parts, "all": measured.plans}.items():
        kept = [errors[plan.id] for plan in part if plan.id not in UNRELIABLE_MEMORY]
        rows.append({"of": name, **summary(kept)})
    record(
        "parallel_memory",
        rows,
        plans="; ".join(f"{name} {error:+.1%}" for name, error in errors.items()),
        left_out=UNRELIABLE_MEMORY,
    )


def fsdp() -> None:
    """FSDP throughput, each row predicted by the others."""
    found = defaultdict(list)
    for place, (at, measured) in enumerate(predict.measured_rows()):
        share, _ = predict.flop_utilisation(at, without=place)
        kind = "H100" if at.peak > 1 else "A100-80" if at.memory == 0 else "A100-40"
        if at.precision:
            kind = "H100 fp8"
        found[kind].append(share / math.exp(measured) - 1)
    found["all"] = [error for errors in list(found.values()) for error in errors]
    record("parallel_fsdp", [{"of": kind, **summary(errors)} for kind, errors in found.items()])


def single(folder: Path) -> None:
    """Training on one GPU by the device model."""
    compute = Compute(Network(Tables()))
    found = defaultdict(list)
    for row in csv.DictReader((folder / "end_to_end.csv").open()):
        if row["model"] not in SINGLE or row["parallel"] != "single":
            continue
        spec = find_model(SINGLE[row["model"]])
        sizes = Sizes(int(row["batch"]), int(row["sequence"]), "fp32", 1)
        forward, backward = compute.layers(spec, row["device"], sizes, 8).stage(0, spec.layers)
        predicted = forward if row["mode"] == "inf" else forward + backward
        found[row["device"]].append(predicted / float(row["iteration_ms"]) * 1e3 - 1)
    found["all"] = [error for errors in list(found.values()) for error in errors]
    record("parallel_single", [{"of": kind, **summary(errors)} for kind, errors in found.items()])


def main() -> None:
    """All four tables."""
    folder = Path(sys.argv[1])
    measured = Measured(folder)
    times(measured)
    memory(measured)
    fsdp()
    single(folder)


if __name__ == "__main__":
    main()
