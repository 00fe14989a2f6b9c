"""Policies on the very jobs that the published Lucid simulator was run on, and what explains gaps.

    python benchmarks/schedulers.py DATA [PART ...]

Parts: fidelity, liberties, gain, parts, unstable, failures, rules, loans, real.

DATA is a directory with phillym/phillym.csv, philly/philly.csv, lucid/single_data.csv and
lucid/data/colocate_info.csv. PhillyM is partly synthetic: real arrivals and scaled durations of one
week, workloads drawn, predictions = true duration x log-normal (sigma 1). Nothing here was fitted
to these results; the published simulator's numbers are in `PEER`.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from _record import record

from schedmate.schedulers.estimators import predicted_s
from schedmate.schedulers.lanes import Rank
from schedmate.schedulers.model import Cluster, Job, Profile
from schedmate.schedulers.policies.lucid import Bound, Lucid, has_room
from schedmate.schedulers.policy import View
from schedmate.schedulers.sim.outcome.metrics import paired_difference
from schedmate.schedulers.sim.parameters import (
    HONEST,
    LIBERTIES,
    ColocationTable,
    Parameters,
    world,
)
from schedmate.schedulers.sim.runs import Plan, Run, run_policy
from schedmate.schedulers.sim.traces import read_trace
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world import Phases

PEER = {
    # average JCT, queueing, p99.9 queueing, makespan [h], CPU s; then the paper's average JCT [h]
    "fifo": (35.84, 30.27, 74.1, 560, 164, 36.85),
    "sjf": (9.02, 3.45, 106.6, 542, 103, 9.41),
    "qssf": (8.14, 2.57, 120.6, 584, 149, 9.03),
    "tiresias": (7.25, 1.68, 65.5, 551, 106, 9.02),
    "lucid": (7.11, 1.44, 79.6, 523, 174, 6.84),
    "horus": (None, None, None, None, None, 10.49),
    "srtf": (None, None, None, None, None, None),
}
"""The published simulator on PhillyM (SJF there knows the true durations), and the paper on the
Philly week that it had; Lucid's time is after a patch that made it hours faster."""

ORIGIN = "synthetic: a seventh of the jobs resampled, durations scaled, what they train drawn"

LUCID = "lucid:profile_limit_s=80:profile_gpus=4"
"""With the settings of the published simulator for Philly."""

PREDICTED = "column:predicted_duration_s"

AFFECTED = {
    "free-profiling": ("lucid",),
    "lucid-backfill": ("fifo", "sjf", "qssf", "tiresias", "horus", "lucid"),
    "harmless-pairs": ("lucid", "horus"),
    "quota-walk": ("tiresias", "srtf"),
    "cheap-restarts": ("tiresias", "srtf"),
    "true-durations": ("sjf", "srtf"),
    "its-settings": ("tiresias", "lucid"),
}
"""Which policies each liberty of the published simulator can change."""

EXPLAINED = """
Published mode: mean JCT within 5 %, mean queueing within 17 % and its p99.9 within 7 %, where
Lucid has the measured pairs and the scores of measured jobs. With thresholds for scores the same
jobs count as less demanding, more of them share, and p99.9 queueing is 58 to 74 % lower: the tail
of Lucid is that of its scores. FIFO differs by which of two equally full nodes is taken. Tiresias
agrees (0.37 preemptions a job against 0.38) only when it chooses by the count of GPUs and then may
find no node for them (quota-walk). Lucid looks for partners among the longest running jobs first,
the published one in the order in which they started, which is a third of the difference in JCT
(`lucid in order`); and to treat the two halves of a pair of equal jobs alike, or not, moves its
mean by 2 %, so that no comparison of Lucid's mean on this trace means anything below that. Honest
mode: FIFO, SJF, QSSF and Tiresias are lower than published because all may let jobs pass one that
does not fit (schedulers_liberties has each liberty by itself); SJF and SRTF are told predictions
there, the truth in the published mode. Horus is not in the published simulator; here it follows
the simulator of its first author: least utilisation first, five jobs looked at, and any pair that
fits into memory. As pairs of these jobs slow each other by 8 % on average, that is better than
Lucid. Lucid's paper has 10.5 h, 4.1 h of queue and 223 h at p99.9 for its Horus; with at most 100 %
of utilisation together it has 10.7, 5.0 and 86 h here, near that on another week of jobs, with
utilisation known exactly rather than predicted from the model's graph. Which of the two the paper
ran is not known."""

GAIN = """
Of the 1.03 h that Lucid gains over QSSF with the same predictions and a strict queue, 0.38 h (37
%) are backfill and 0.70 h (68 %) packing; the profiler, which holds two nodes and makes jobs
start twice, costs 0.06 h (-6 %). The estimate: an error of one sigma costs nothing that can be
told from none, the user's mean so far 9 %, no estimate at all 43 %. It is ordering by an
estimate that makes QSSF four times as good as FIFO; what Lucid adds is an eighth."""


FAILURES = """
That FIFO's mean JCT falls when nodes fail is no error of the simulator: failures defragment. A
failed node comes back whole, and the jobs that were on it go elsewhere, one by one; a job of eight
GPUs at the head of the queue, for which no node was ever empty, then starts, and whoever waited
behind it. The same jobs on one GPU each know no fragments, and there every failure costs, under
every policy, for every seed; so it does where nobody waits. With backfill, FIFO is besides so
sensitive to who is first that a few failures in the whole week move its mean by 15 %: differences
below that, from any cause, mean nothing."""


def main(data: Path, chosen: Sequence[str]) -> None:
    """Make the tables called for, or all."""
    phillym = read_trace(data / "phillym" / "phillym.csv", origin=ORIGIN)
    pairs = data / "lucid" / "data" / "colocate_info.csv"
    scores = data / "lucid" / "single_data.csv"
    for table in (fidelity, liberties, gain, parts, unstable, failures, rules, loans):
        if not chosen or table.__name__ in chosen:
            table(phillym, pairs, scores)
    if not chosen or "real" in chosen:
        real(data)


def fidelity(workload: Workload, pairs: Path, scores: Path) -> None:
    """Each policy in the published and the honest mode beside the published simulator.

    Policies that pack, also without the pair table, the scores, or both.
    """
    rows = []
    others = {"lucid in order": PEER["lucid"], WITHIN: PEER["horus"]}
    for name, peer in {**PEER, **others}.items():
        for mode in ("published", "honest") if name != "lucid in order" else ("published",):
            for title, has_pairs, has_scores in KNOWN if name in ("lucid", "horus") else KNOWN[:1]:
                if not has_scores and name != "lucid":
                    continue
                policy = f"lucid:scores={scores}" if (name, has_scores) == ("lucid", True) else name
                if name == "lucid in order":
                    policy = f"{IN_ORDER}:scores={scores}"
                elif name == WITHIN:
                    policy = "horus:max_util=100"
                parameters = _world(mode, pairs) if has_pairs else world(mode)
                run = _run(workload, policy, "108x8", PREDICTED, parameters)
                numbers = run.numbers
                rows.append(
                    {
                        "policy": name,
                        "mode": mode,
                        "packs by": title if name in ("lucid", "horus") else "",
                        "settings": _settings(run),
                        "durations": numbers["estimator"].partition(":")[0],
                        **_distribution(numbers),
                        "makespan": round(numbers["makespan_h"]),
                        "preemptions": numbers["preemptions"],
                        "published JCT": peer[0],
                        "JCT differs": _percent(numbers["avg_jct_h"], peer[0]),
                        "published queue": peer[1],
                        "queue differs": _percent(numbers["avg_queue_h"], peer[1]),
                        "published p99.9 queue": peer[2],
                        "p99.9 queue differs": _percent(numbers["p999_queue_h"], peer[2]),
                        "paper JCT": peer[5],
                        "CPU s": numbers["cpu_s"],
                        "published CPU s": peer[4],
                    }
                )
    record(
        "schedulers_phillym",
        rows,
        trace="PhillyM, 12,389 jobs, 108 x 8 GPUs; partly synthetic",
        units="hours; CPU s of the published simulator on another day of the same machine",
        explained=" ".join(EXPLAINED.split()),
    )


IN_ORDER = (
    "schedulers:LucidInOrder:profile_limit_s=80:profile_gpus=4:lookahead_s=0:remaining=false"
    ":pair_waiting=false:backfill=true"
)
"""As the published mode sets Lucid, which it knows by name only."""

WITHIN = "horus within 100 %"
"""Of jobs whose utilisation adds up to no more, as its abstract can be read."""

KNOWN = (
    ("measured pairs, scores of measured jobs", True, True),
    ("summed utilisation, scores of measured jobs", False, True),
    ("measured pairs, thresholds", True, False),
    ("summed utilisation, thresholds", False, False),
)
"""What is known of interference: of the truth and of the policy's scores."""


def rules(workload: Workload, pairs: Path, scores: Path) -> None:
    """What each rule of a published policy is worth: with it and without, all else alike."""
    lucid = f"lucid:scores={scores}"
    tiresias = "tiresias"
    history = _history(workload)
    variants = [
        ("Lucid", lucid, "the policy", ""),
        ("Lucid", lucid, "pairs from the queue too", "pair_waiting=false"),
        ("Lucid", lucid, "patience by what remains", "remaining=false"),
        ("Lucid", lucid, "forecast of GPU demand, not of jobs", "demand=false"),
        ("Lucid", lucid, "dynamic strategy at all", "lookahead_s=0"),
        ("Lucid", lucid, "all three", "pair_waiting=false:remaining=false:demand=false"),
        ("Tiresias", tiresias, "the policy", ""),
        (
            "Tiresias",
            f"{tiresias}:promote=2",
            "promotion after waiting twice its time",
            "promote=0",
        ),
        ("Tiresias", f"{tiresias}:promote=8", "promotion after eight times", "promote=0"),
        ("Tiresias", f"{tiresias}:history={history}", "Gittins index (history: the oracle)", ""),
        ("Tiresias", f"{tiresias}:consolidate=(?!)", "spread wherever GPUs are free (no cost)", ""),
    ]
    rows, done = [], dict[str, Run]()

    def made(policy: str) -> Run:
        if policy not in done:
            done[policy] = _run(workload, policy, "108x8", PREDICTED, _world("honest", pairs))
        return done[policy]

    for family, whole, rule, without in variants:
        run = base = made(whole)
        if family == "Tiresias":
            base = made(tiresias)
        elif without:
            base = made(f"{whole}:{without}")
        same = base is run or rule == "the policy"
        rows.append(
            {
                "policy": family,
                "rule": rule,
                **_distribution(run.numbers),
                "preempted": run.numbers["preemptions"],
                "packed": run.numbers["packed"],
                "JCT without it": "" if same else round(_jct(base), 2),
                "JCT with it less without, h (95 %)": "" if same else _interval(run, base),
                "p99.9 queue without it": "" if same else round(base.numbers["p999_queue_h"], 1),
            }
        )
    record(
        "schedulers_rules",
        rows,
        trace="PhillyM, 12,389 jobs, 108 x 8 GPUs; partly synthetic; honest costs",
        intervals="over the jobs of one run: changes below 2 % come from anything at all, see the "
        "notes of schedulers_phillym",
        gittins="its history is the service of these very jobs: an upper bound",
    )


def _history(workload: Workload) -> Path:
    """What the jobs take of GPU time, as a table for the Gittins index."""
    path = Path(tempfile.mkdtemp()) / "history.csv"
    taken = (
        str(job.gpus * duration)
        for job, duration in zip(workload.jobs, workload.duration_s, strict=True)
    )
    path.write_text("\n".join(["gpu_s", *taken]) + "\n")
    return path


def loans(*_: object) -> None:
    """What it is worth to lend the profiler idle nodes of other virtual clusters."""
    rows: list[dict[str, Any]] = []
    for waves in (1, 4):
        for seed in range(5):
            draw = random.Random(seed)
            jobs = [
                (86_400.0 * draw.random(), draw.lognormvariate(7.0, 1.5), 1) for _ in range(400)
            ]
            for wave in range(waves):
                at = 10_000.0 + 15_000.0 * wave
                jobs += [(at + n, draw.lognormvariate(6.0, 1.5), 1) for n in range(150)]
            found = {}
            for title, settings in (("lent", ""), ("not lent", ":loans=false")):
                workload = Workload.of(sorted(jobs), profiles=[None] * len(jobs))
                workload.vcs = ["busy"] * len(jobs)
                plan = Plan(
                    (f"lucid{settings}",), Cluster.parse("8x8@busy,8x8@quiet"), "oracle", HONEST
                )
                found[title] = run_policy(workload, plan, plan.policies[0]).numbers
            rows.append(
                {
                    "bursts of 150 jobs": waves,
                    "seed": seed,
                    **{
                        f"{what}, {title}": f"{found[title][key] * 60:.1f}"
                        for what, key in (("JCT", "avg_jct_h"), ("p99 queue", "p99_queue_h"))
                        for title in found
                    },
                    "JCT changes": _percent(
                        found["lent"]["avg_jct_h"], found["not lent"]["avg_jct_h"]
                    ),
                }
            )
    record(
        "schedulers_loans",
        rows,
        trace="synthetic: bursts of jobs of one GPU in one of two virtual clusters, the other idle",
        units="minutes",
        assumed="when the bursts come and how long jobs run; nobody waits in the other cluster",
    )


def liberties(workload: Workload, pairs: Path, scores: Path) -> None:
    """Each liberty of the published simulator by itself: taken in the honest mode, left in its."""
    rows = []
    for liberty, policies in AFFECTED.items():
        for name in policies:
            policy = f"lucid:scores={scores}" if name == "lucid" else name
            jct = {
                mode: _run(workload, policy, "108x8", PREDICTED, _world(mode, pairs)).numbers[
                    "avg_jct_h"
                ]
                for mode in ("honest", f"honest+{liberty}", "published", f"published-{liberty}")
            }
            honest, taken, published, left = jct.values()
            rows.append(
                {
                    "liberty": liberty,
                    "policy": name,
                    "honest JCT": round(honest, 2),
                    "and with it": round(taken, 2),
                    "changes": _percent(taken, honest),
                    "published JCT": round(published, 2),
                    "and without it": round(left, 2),
                    "it changed": _percent(published, left),
                }
            )
    record(
        "schedulers_liberties",
        rows,
        trace="PhillyM, 12,389 jobs, 108 x 8 GPUs; partly synthetic",
        units="average JCT, hours",
        **{name: liberty.what for name, liberty in LIBERTIES.items()},
    )


def gain(workload: Workload, pairs: Path, scores: Path) -> None:
    """From FIFO to Lucid, one step at a time, and what the estimate is worth to Lucid."""
    whole = f"{LUCID}:scores={scores}"
    steps = [
        ("first in, first out", "fifo:backfill=false", PREDICTED),
        ("by GPUs x estimate (QSSF)", "qssf:backfill=false", PREDICTED),
        ("+ backfill", "qssf:backfill=true", PREDICTED),
        ("+ profiler, its nodes and its time", f"{whole}:capacity=-1", PREDICTED),
        ("+ packing = Lucid", whole, PREDICTED),
        ("Lucid, oracle durations", whole, "oracle"),
        ("Lucid, user's mean so far", whole, "user-mean"),
        ("Lucid, no estimates", whole, "none"),
    ]
    rows, before, lucid = [], None, None
    for title, policy, estimator in steps:
        run = _run(workload, policy, "108x8", estimator, _world("honest", pairs))
        reference = lucid or before
        rows.append(
            {
                "step": title,
                **_hours(run.numbers),
                "packed": run.numbers["packed"],
                "JCT changes": "" if reference is None else _percent(_jct(run), _jct(reference)),
                "by, h (95 %)": "" if reference is None else _interval(run, reference),
            }
        )
        before = run
        if "= Lucid" in title:
            lucid = run
    record(
        "schedulers_lucid_gain",
        rows,
        trace="PhillyM, 12,389 jobs, 108 x 8 GPUs; partly synthetic; honest costs",
        reads="each step against the one above it; those after Lucid against Lucid",
        says=" ".join(GAIN.split()),
    )


def parts(workload: Workload, pairs: Path, scores: Path) -> None:
    """Lucid with a part taken out or changed (its section 4.5), honest costs."""
    whole = f"{LUCID}:scores={scores}"
    long = f"lucid:scores={scores}:profile_limit_s=500:time_aware=false"
    fixed = whole.replace("lucid:", "schedulers:LucidOfOneScale:", 1)
    variants = {
        "Lucid": (whole, PREDICTED),
        "no binder: any pair that memory allows": (f"{whole}:capacity=4:patience=1e9", PREDICTED),
        "no sharing": (f"{whole}:capacity=-1", PREDICTED),
        "no estimator": (whole, "none"),
        "no profiler, so no sharing": (f"lucid:scores={scores}:profile_gpus=0", PREDICTED),
        "no backfill": (f"{whole}:backfill=false", PREDICTED),
        "profiling in order of submission": (f"{whole}:space_aware=false", PREDICTED),
        "no time-aware scaling": (f"{whole}:time_aware=false", PREDICTED),
        "time-aware, but for N_prof": (fixed, PREDICTED),
        "T_prof 500 s, no time-aware scaling": (long, PREDICTED),
        "the same, in order of submission": (f"{long}:space_aware=false", PREDICTED),
        "T_prof 200 s, N_prof 8": (f"lucid:scores={scores}", PREDICTED),
        "the same, no time-aware scaling": (f"lucid:scores={scores}:time_aware=false", PREDICTED),
        "the same, time-aware but for N_prof": (
            f"schedulers:LucidOfOneScale:scores={scores}",
            PREDICTED,
        ),
        "G_SS = 1": (f"{whole}:capacity=1", PREDICTED),
        "no dynamic strategy: always G_SS = 2": (f"{whole}:lookahead_s=0", PREDICTED),
        "no patience rule": (f"{whole}:patience=1e9", PREDICTED),
        "thresholds for the tree": (LUCID, PREDICTED),
    }
    runs = {
        title: _run(workload, policy, "108x8", estimator, _world("honest", pairs))
        for title, (policy, estimator) in variants.items()
    }
    says = (
        "Time-aware scaling is worth 0.33 h (5 %) with T_prof 200 s and N_prof 8, and nothing with "
        "80 s and 4 GPUs, where the profiler keeps up; scaling N_prof with it changes nothing "
        "(0.09 h worse with 80 s), as most jobs here have one GPU. The dynamic strategy packs a "
        "quarter less for the same JCT: this trace queues nearly always (schedulers_synthetic "
        "shows it where GPUs are idle)."
    )
    record(
        "schedulers_lucid_parts",
        [
            {
                "variant": title,
                **_hours(run.numbers),
                "packed": run.numbers["packed"],
                "JCT less Lucid's, h (95 %)": _interval(run, runs["Lucid"]),
                "CPU s": run.numbers["cpu_s"],
            }
            for title, run in runs.items()
        ],
        trace="PhillyM, 12,389 jobs, 108 x 8 GPUs; partly synthetic; honest costs",
        says=says,
    )


def unstable(workload: Workload, pairs: Path, scores: Path) -> None:
    """What it is worth to part pairs whose use turns unstable (Lucid, section 3.3, rule 4)."""
    rows = []
    for share in (0.0, 0.1, 0.3):
        for rise in (25.0, 50.0) if share else (0.0,):
            base: Run | None = None
            for title, settings in (
                ("never parted", ":evict_unstable=false"),
                ("parted", ""),
                ("never shared", ":capacity=-1"),
            ):
                policy = f"lucid:scores={scores}{settings}"
                phases = Phases(share, rise) if share else None
                plan = Plan((policy,), Cluster.parse("108x8"), PREDICTED, HONEST, phases=phases)
                run = run_policy(workload, plan, policy)
                hours = run.numbers["gpu_time_h"]
                base = base or run
                rows.append(
                    {
                        "use that rises": f"{share:.0%} of jobs by {rise:g} points",
                        "pairs": title,
                        **_hours(run.numbers),
                        "packed": run.numbers["packed"],
                        "evicted": run.numbers["evictions"],
                        "GPU h lost to sharing": round(hours["slowed"]),
                        "JCT less never parted, h (95 %)": _interval(run, base),
                    }
                )
    record(
        "schedulers_unstable_use",
        rows,
        trace="PhillyM, 12,389 jobs, 108 x 8 GPUs; partly synthetic; honest costs",
        interference="by summed utilisation: measured pairs know one use of each job only",
        assumed="who changes, when and by how much (schedmate/schedulers/sim/world.py)",
    )


def failures(workload: Workload, pairs: Path, scores: Path) -> None:
    """Why mean JCT falls when nodes fail: they defragment the cluster."""
    single = replace(workload, jobs=[replace(job, gpus=1) for job in workload.jobs])
    rows = []
    for title, some, nodes in (
        ("as it is", workload, 108),
        ("every job on one GPU", single, 60),
    ):
        for policy in ("fifo:backfill=false", "fifo", "sjf"):
            for days in (None, 26, 5):
                mtbf_s = None if days is None else days * 86_400.0
                parameters = replace(HONEST, node_mtbf_s=mtbf_s)
                found = [
                    run_policy(
                        some,
                        Plan((policy,), Cluster.parse(f"{nodes}x8"), PREDICTED, parameters, seed),
                        policy,
                    ).numbers
                    for seed in range(5 if days else 1)
                ]
                jct = [one["avg_jct_h"] for one in found]
                rows.append(
                    {
                        "jobs": title,
                        "cluster": f"{nodes}x8",
                        "policy": policy,
                        "days between failures of a node": days or "none fail",
                        "JCT": round(sum(jct) / len(jct), 2),
                        "of 5 seeds": f"{min(jct):.2f} to {max(jct):.2f}" if days else "",
                        "queue": round(sum(one["avg_queue_h"] for one in found) / len(found), 2),
                        "failures": round(sum(one["failures"] for one in found) / len(found)),
                        "GPU h undone": round(
                            sum(one["gpu_time_h"]["failures"] for one in found) / len(found)
                        ),
                    }
                )
    record(
        "schedulers_failures",
        rows,
        trace="PhillyM, 12,389 jobs; partly synthetic; honest costs",
        says=" ".join(FAILURES.split()),
    )


class LucidInOrder(Lucid):
    """Lucid that joins the partner that started first, as the published simulator does."""

    name = "lucid-in-order"

    def rank(self, job: Job, now: float) -> Rank:
        return job.started if job.allocation else super().rank(job, now)

    def find_partner(
        self, view: View, job: Job, use: Profile, capacity: int, bound: Bound
    ) -> Job | None:
        needed, best = job.gpus * predicted_s(job) / self.patience, None
        for score in range(capacity - self.scorer.score(use) + 1):
            for other in view.running.lane((job.vc, job.gpu_type, job.gpus, score)):
                alone = not (other.index in bound or other.evictions or other.profiling)
                long = other.gpus * predicted_s(other) >= needed
                if alone and long and has_room(use, other.profile, self.rules):
                    if best is None or (other.started, other.index) < (best.started, best.index):
                        best = other
                    break
        return best


class LucidOfOneScale(Lucid):
    """Lucid whose N_prof is the same in a burst."""

    name = "lucid-of-one-scale"

    def _unless_burst(self, job: Job) -> bool:
        return False


def real(data: Path) -> None:
    """The unscaled Philly trace, on clusters small enough that jobs queue."""
    workload = read_trace(data / "philly" / "philly.csv")
    rows = []
    for cluster in ("80x8", "60x8"):
        for policy in (
            *("fifo:backfill=false", "fifo", "sjf:backfill=false", "sjf", "sjf-ageing"),
            *("qssf:backfill=false", "qssf", "srtf", "tiresias"),
        ):
            run = _run(workload, policy, cluster, "oracle", world("honest"))
            rows.append(
                {"cluster": cluster, "policy": policy, **_hours(run.numbers)}
                | {"preempted": run.numbers["preemptions"], "CPU s": run.numbers["cpu_s"]}
            )
    record(
        "schedulers_philly",
        rows,
        trace="Microsoft Philly, 82,247 jobs, all virtual clusters together; real",
        durations="oracle (FIFO and Tiresias use none)",
        mode="honest: all may let jobs pass one that does not fit, unless it says backfill=false",
    )


def _world(mode: str, pairs: Path) -> Parameters:
    parameters = world(mode)
    return replace(parameters, interference=ColocationTable.read(pairs, parameters.harmless))


def _run(
    workload: Workload, policy: str, cluster: str, estimator: str, parameters: Parameters
) -> Run:
    print(f"{policy} {parameters.name} {estimator}", file=sys.stderr)
    plan = Plan((policy,), Cluster.parse(cluster), estimator, parameters)
    return run_policy(workload, plan, policy)


def _hours(numbers: dict[str, Any]) -> dict[str, float]:
    return {
        "JCT": round(numbers["avg_jct_h"], 2),
        "median JCT": round(numbers["median_jct_h"], 2),
        "p99 JCT": round(numbers["p99_jct_h"], 1),
        "queue": round(numbers["avg_queue_h"], 2),
        "p99.9 queue": round(numbers["p999_queue_h"], 1),
        "makespan": round(numbers["makespan_h"]),
    }


def _distribution(numbers: dict[str, Any]) -> dict[str, float]:
    """Mean, median and tails of completion and of queueing."""
    return {
        f"{part} {what}".strip(): round(numbers[f"{key}_{name}_h"], 2)
        for what, name in (("JCT", "jct"), ("queue", "queue"))
        for part, key in (("", "avg"), ("p50", "median"), ("p99", "p99"), ("p99.9", "p999"))
    }


def _jct(run: Run) -> float:
    return float(run.numbers["avg_jct_h"])


def _settings(run: Run) -> str:
    shown = run.numbers["settings"].split(":")[1:]
    return ", ".join(one for one in shown if not one.startswith("scores="))


def _interval(run: Run, base: Run) -> str:
    if run is base:
        return ""
    mean, low, high = paired_difference(run.per_job.jct_s / 3600, base.per_job.jct_s / 3600)
    return f"{mean:+.2f} ({low:+.2f} to {high:+.2f})"


def _percent(value: float, other: float | None) -> str:
    return "" if other is None else f"{value / other - 1:+.1%}"


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
    else:
        main(Path(sys.argv[1]), sys.argv[2:])
