"""One run: a policy over a trace, with everything that its result depends on."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from schedmate.errors import SchedmateError, UsageError, did_you_mean, ends_the_program
from schedmate.schedulers import registry
from schedmate.schedulers.estimators import Estimator, Table, TimeLimit, UserMean, noisy
from schedmate.schedulers.load import Load
from schedmate.schedulers.model import Cluster
from schedmate.schedulers.policy import Policy, check_pool
from schedmate.schedulers.sim import static_queue
from schedmate.schedulers.sim.engine.record import Outcome
from schedmate.schedulers.sim.equipment import Equipment, Equipped, World
from schedmate.schedulers.sim.outcome.audit import audit
from schedmate.schedulers.sim.outcome.metrics import PerJob, summary
from schedmate.schedulers.sim.outcome.spent import Spent, spent
from schedmate.schedulers.sim.parameters import Parameters
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.space import Space

if TYPE_CHECKING:
    from schedmate.schedulers.sim.elastic.physics import TablePhysics
    from schedmate.schedulers.sim.world.failures import FailureRates
    from schedmate.schedulers.sim.world.phases import ChangingUse, Phases

ESTIMATORS = {
    "oracle": "the true duration and utilisation: an upper bound that no scheduler can know",
    "noisy:SIGMA": "the true duration times a log-normal factor: an oracle of known quality",
    "column:NAME": "a column of the trace with predicted seconds",
    "limit": "the time limit that the user gave",
    "user-mean": "the mean of the user's finished jobs of as many GPUs; learns while it runs",
    "qssf": "half the user's last jobs of such a name, half boosted trees over the past (QSSF)",
    "boosting": "gradient-boosted trees over the past alone, fitted every week",
    "ga2m": "an additive model with interactions over the past, fitted every week (Lucid)",
    "none": "nothing is known",
}


def make_estimator(text: str, workload: Workload, seed: int = 0) -> Estimator | None:
    """The estimator called `text`, one of `ESTIMATORS`. Raises `UsageError` for another."""
    name, _, argument = text.partition(":")
    if name == "oracle" and not argument:
        return Table(workload.duration_s, workload.profiles, method="oracle", oracle=True)
    if name == "noisy":
        try:
            sigma = float(argument)
        except ValueError:
            sigma = -1.0
        if not 0.0 <= sigma < float("inf"):
            raise UsageError(
                f"--estimator {text}: write it like noisy:1.0, a number of at least 0."
            )
        durations = noisy(workload.duration_s, sigma, seed)
        return Table(durations, workload.profiles, method=text, oracle=True)
    if name == "column":
        if argument not in workload.columns:
            has = ", ".join(workload.columns) or "none"
            hint = did_you_mean(argument, workload.columns) or "."
            raise UsageError(f"the trace has no column {argument!r} of numbers; it has {has}{hint}")
        return Table(workload.columns[argument], workload.profiles, method=text)
    return _without_trace(text)


def _without_trace(text: str) -> Estimator | None:
    if text == "limit":
        return TimeLimit()
    if text == "user-mean":
        return UserMean()
    if text in ("boosting", "ga2m"):
        from schedmate.schedulers.learned import Learned

        return Learned(text)
    if text == "qssf":
        from schedmate.schedulers.learned import QuasiShortest

        return QuasiShortest()
    if text == "none":
        return None
    name = text.partition(":")[0]
    hint = did_you_mean(name, [one.partition(":")[0] for one in ESTIMATORS]) or "."
    raise UsageError(f"no estimator {text!r}; there are {', '.join(ESTIMATORS)}{hint}")


def make_load(text: str) -> Load:
    """The forecast of submissions called `text`: `season` or `ga2m`. Raises `UsageError`."""
    if text == "season":
        return Load()
    if text == "ga2m":
        from schedmate.schedulers.learned import LearnedLoad

        return LearnedLoad()
    raise UsageError(f"no forecast {text!r}; there are season and ga2m.")


PLACEMENTS = ("best-fit", "fgd", "fgd-priced")
"""The fullest nodes, or where a job leaves least GPUs to waste (`FragmentationSpace`)."""


def make_space(placement: str, workload: Workload) -> Callable[[Cluster], Space]:
    """The class of free space for a placement rule. Raises `UsageError` for an unknown one."""
    if placement == "best-fit":
        return Space
    if placement not in PLACEMENTS:
        raise UsageError(f"no placement {placement!r}; there are {', '.join(PLACEMENTS)}.")
    from schedmate.schedulers.fragmentation import FragmentationSpace

    return lambda cluster: FragmentationSpace(
        cluster, workload.jobs, priced=placement == "fgd-priced"
    )


class PolicyError(SchedmateError):
    """A custom policy raised an error, or returned no decisions."""


@dataclass(frozen=True)
class Plan:
    """A run: everything besides the trace that the result depends on."""

    policies: tuple[str, ...]
    cluster: Cluster
    estimator: str
    parameters: Parameters
    seed: int = 0
    check: bool = True
    cluster_name: str = ""
    """What the cluster is called in results."""
    load: str = "season"
    """The forecast of submissions (`make_load`)."""
    placement: str = "best-fit"
    """Where jobs are put on free GPUs, one of `PLACEMENTS`."""
    failures: FailureRates | None = None
    """How jobs fail by themselves."""
    phases: Phases | None = None
    """How the GPU use of jobs changes; None: it does not."""


def check_plan(plan: Plan) -> None:
    """Find what is wrong with a plan before its trace is read.

    Raises `UsageError` for an unknown policy, setting, estimator or forecast, and for a policy
    that the cluster is not for, and `MissingExtraError` for one whose packages are not installed.
    """
    for policy in plan.policies:
        check_pool(registry.make(policy), plan.cluster)
    make_load(plan.load)
    if plan.estimator.partition(":")[0] not in ("oracle", "noisy", "column"):
        _without_trace(plan.estimator)


@dataclass(frozen=True)
class Run:
    """One policy's result."""

    policy: str
    numbers: dict[str, Any]
    per_job: PerJob
    outcome: Outcome
    cluster: Cluster
    spent: Spent | None
    """What became of the GPU time of each segment; None where work is not seconds."""


def run_policy(
    workload: Workload,
    plan: Plan,
    policy: str,
    progress: Callable[[int], None] | None = None,
) -> Run:
    """Simulate one policy; with `plan.check`, prove that the run could have happened."""
    asked = registry.PolicySpec.parse(policy)
    name = asked.name
    asked = asked.with_defaults(plan.parameters.settings_of(name))
    told = "oracle" if name in plan.parameters.oracles else plan.estimator
    estimator = make_estimator(told, workload, plan.seed)
    began = time.process_time()
    made = registry.make(asked)
    own: TablePhysics | ChangingUse | None = None
    if workload.tables is not None:
        if plan.phases is not None:
            raise UsageError("--phases is not for elastic jobs, whose speeds are measured.")
        from schedmate.schedulers.sim.elastic.workload import physics_of

        own = physics_of(workload, workload.tables, plan.cluster, plan.parameters, type(made))
    elif plan.phases is not None:
        from schedmate.schedulers.sim.world.phases import ChangingUse

        own = ChangingUse(workload, plan.parameters, plan.phases, plan.seed, plan.cluster)
    world = World(workload, estimator, plan.failures, plan.seed)
    try:
        parts = made.equip(world) if isinstance(made, Equipped) else Equipment()
    except SchedmateError:
        raise
    except BaseException as error:
        if ends_the_program(error):
            raise
        raise _failed(made, error) from error
    faults = parts.faults
    if faults is None and plan.failures is not None:
        from schedmate.schedulers.sim.world.failures import JobFailures

        faults = JobFailures(workload, plan.failures, plan.seed)
    try:
        done = _simulate(
            workload, plan, made, estimator, parts._replace(faults=faults), own, progress
        )
    except SchedmateError:
        raise
    except BaseException as error:
        if ends_the_program(error):
            raise
        raise _failed(made, error) from error
    outcome, cluster, warnings, loop = done
    cpu_s = time.process_time() - began
    if plan.check:
        audit(workload, cluster, outcome)
    became = spent(workload, outcome, plan.parameters.restart)
    per_job = PerJob.of(workload, outcome)
    numbers = {
        "policy": policy,
        "trace": workload.name,
        "origin": workload.origin,
        "settings": str(asked),
        "estimator": told,
        "oracle": (estimator is not None and estimator.oracle) or getattr(own, "published", False),
        "mode": plan.parameters.name,
        "cluster": plan.cluster_name,
        "seed": plan.seed,
        "loop": loop,
        "cpu_s": round(cpu_s, 3),
        **summary(workload, cluster, outcome, per_job, became),
        "warnings": dict(warnings),
    }
    if made.packs and workload.tables is None:
        numbers["warnings"] |= _unpackable(workload)
    if counted := parts.report():
        numbers["warnings"].update(counted.pop("warnings", {}))
        numbers["schedmate"] = counted
    if outcome.bad_estimates:
        numbers["warnings"]["an estimate was no time that a job can take"] = outcome.bad_estimates
    return Run(policy, numbers, per_job, outcome, cluster, became)


class _Done(NamedTuple):
    outcome: Outcome
    cluster: Cluster
    """With the roles that the policy gave its nodes."""
    warnings: Mapping[str, int]
    loop: str
    """What simulated it: `queue`, or `events`, the engine."""


def _simulate(
    workload: Workload,
    plan: Plan,
    policy: Policy,
    estimator: Estimator | None,
    parts: Equipment,
    own: TablePhysics | ChangingUse | None,
    progress: Callable[[int], None] | None,
) -> _Done:
    """By the short loop where that gives the same result, else by the engine."""
    observers = (*(() if own is None else (own,)), *parts.observers)
    told_by = parts.estimator or estimator
    usual = plan.placement == "best-fit"
    if usual and parts.physics is None and parts.faults is None and not observers:
        outcome = static_queue.simulate(
            workload, policy, plan.cluster, told_by, plan.parameters, progress
        )
        if outcome is not None:
            return _Done(outcome, plan.cluster, {}, "queue")
    from schedmate.schedulers.sim.engine import Simulation

    workload.jobs = list(workload.jobs)  # the engine looks at them again and again
    simulation = Simulation(
        workload,
        policy,
        plan.cluster,
        estimator=told_by,
        parameters=plan.parameters,
        physics=parts.physics or own,
        faults=parts.faults,
        load=make_load(plan.load),
        observers=observers,
        seed=plan.seed,
        space=make_space(plan.placement, workload),
    )
    outcome = simulation.run(progress)
    return _Done(outcome, simulation.cluster, simulation.view.warnings, "events")


def _unpackable(workload: Workload) -> dict[str, int]:
    """Data that a policy that packs by GPU use lacks, with the number of jobs."""
    unknown = workload.profiles.count(None)
    if unknown == len(workload):
        what = "the trace does not say how jobs use their GPUs, so none of them can be packed"
        return {f"{what}: name a column of utilisation with --map, or --workloads": 1}
    what = "a job of which the trace does not say how it uses its GPUs, and which cannot be packed"
    return {what: unknown} if unknown else {}


def _failed(policy: Policy, error: BaseException) -> BaseException:
    """The message for an error under a custom policy; under a bundled one it is a bug."""
    module = sys.modules[type(policy).__module__]
    if module.__name__.startswith(f"{__name__.partition('.')[0]}."):
        return error
    what = f"{type(error).__name__}: {error}"
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == module.__file__
    ]
    if lines:
        return PolicyError(
            f"policy {policy.name} failed in {module.__file__}, line {lines[-1]}: {what}. For the "
            "traceback, run again with `schedmate --debug ...`."
        )
    return PolicyError(
        f"a decision of policy {policy.name} cannot be carried out ({what}): decide(view) returns "
        "a list of Start, Pack and the like, with nodes of the cluster (docs/policies.md)."
    )
