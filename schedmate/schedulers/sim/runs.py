"""One run of a policy over a trace, with everything that its result depends on.

Also estimators, forecasts of submissions and placement rules by their names on the command line.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from schedmate.base.errors import SchedmateError, UsageError, did_you_mean, ends_the_program
from schedmate.base.plugins import load_plugin
from schedmate.schedulers import registry
from schedmate.schedulers.estimators import Estimator, Load, Table, TimeLimit, UserMean, noisy
from schedmate.schedulers.model import Cluster
from schedmate.schedulers.policy import Policy, check_pool
from schedmate.schedulers.sim import static_queue
from schedmate.schedulers.sim.outcome.audit import audit
from schedmate.schedulers.sim.outcome.metrics import PerJob, Spent, spent, summary
from schedmate.schedulers.sim.parameters import Parameters
from schedmate.schedulers.sim.record import Outcome
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.sim.world import Equipment, Equipped, World
from schedmate.schedulers.space import Space

if TYPE_CHECKING:
    from schedmate.schedulers.sim.elastic import TablePhysics
    from schedmate.schedulers.sim.world import ChangingUse, FailureRates, Phases


class PolicyError(SchedmateError):
    """A custom policy raised an error, or returned no decisions."""


@dataclass(frozen=True)
class Plan:
    """Everything that the result of a run depends on besides the trace."""

    policies: tuple[str, ...]
    cluster: Cluster
    estimator: str
    parameters: Parameters
    seed: int = 0
    check: bool = True
    cluster_name: str = ""
    """The cluster's name in results."""
    load: str = "season"
    """The forecast of submissions (`make_load`)."""
    placement: str = "best-fit"
    """Placement rule, one of `PLACEMENTS`."""
    failures: FailureRates | None = None
    """Failure rates of jobs; None: they do not fail by themselves."""
    phases: Phases | None = None
    """Changes of GPU use over a job's life; None: it is constant."""


def check_plan(plan: Plan) -> None:
    """Check a plan before its trace is read.

    Raises `UsageError` for an unknown policy, setting, estimator or forecast and for a policy that
    does not support the cluster, and `MissingExtraError` if a package is not installed.
    """
    for policy in plan.policies:
        check_pool(registry.make(policy), plan.cluster)
    make_load(plan.load)
    if plan.estimator.partition(":")[0] not in ("oracle", "noisy", "column"):
        make_trace_free_estimator(plan.estimator)


@dataclass(frozen=True)
class Run:
    """One policy's result."""

    policy: str
    numbers: dict[str, Any]
    per_job: PerJob
    outcome: Outcome
    cluster: Cluster
    spent: Spent | None
    """Use of the GPU time of each segment; None if work is not in seconds."""


def run_policy(
    workload: Workload,
    plan: Plan,
    policy: str,
    progress: Callable[[int], None] | None = None,
) -> Run:
    """Simulate one policy, and audit the run if `plan.check`.

    `progress` is called from time to time with the number of jobs submitted so far. Raises
    `PolicyError` for an error in a custom policy, `UsageError` for settings that do not go
    together, and `LawBrokenError` if the run breaks a conservation law.
    """
    spec = registry.PolicySpec.parse(policy)
    spec = spec.with_defaults(plan.parameters.settings_of(spec.name))
    source = "oracle" if spec.name in plan.parameters.oracles else plan.estimator
    estimator = make_estimator(source, workload, plan.seed)
    began = time.process_time()
    made = registry.make(spec)
    physics = _physics_of(workload, plan, made)
    try:
        parts = _equip(workload, plan, made, estimator)
        done = _simulate(workload, plan, made, estimator, parts, physics, progress)
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
    gpu_time = spent(workload, outcome, plan.parameters.restart)
    per_job = PerJob.of(workload, outcome)
    published = getattr(physics, "published", False)
    numbers = {
        "policy": policy,
        "trace": workload.name,
        "origin": workload.origin,
        "settings": str(spec),
        "estimator": source,
        "oracle": (estimator is not None and estimator.oracle) or published,
        "mode": plan.parameters.name,
        "cluster": plan.cluster_name,
        "seed": plan.seed,
        "loop": loop,
        "cpu_s": round(cpu_s, 3),
        **summary(workload, cluster, outcome, per_job, gpu_time),
        "warnings": dict(warnings),
    }
    if made.packs and workload.tables is None:
        numbers["warnings"] |= _unpackable(workload)
    if counted := parts.report():
        numbers["warnings"].update(counted.pop("warnings", {}))
        numbers["schedmate"] = counted
    if outcome.bad_estimates:
        numbers["warnings"]["an estimate was not a possible run time"] = outcome.bad_estimates
    return Run(policy, numbers, per_job, outcome, cluster, gpu_time)


def _physics_of(
    workload: Workload, plan: Plan, policy: Policy
) -> TablePhysics | ChangingUse | None:
    """The physics that the trace or `--phases` needs; None: the engine's default."""
    if workload.tables is not None:
        if plan.phases is not None:
            raise UsageError("--phases is not for elastic jobs, whose speeds are measured.")
        from schedmate.schedulers.sim.elastic import physics_of

        return physics_of(workload, workload.tables, plan.cluster, plan.parameters, type(policy))
    if plan.phases is not None:
        from schedmate.schedulers.sim.world import ChangingUse

        return ChangingUse(workload, plan.parameters, plan.phases, plan.seed, plan.cluster)
    return None


def _equip(
    workload: Workload, plan: Plan, policy: Policy, estimator: Estimator | None
) -> Equipment:
    """What the policy brings along, with the failures that the plan asks for."""
    world = World(workload, estimator, plan.failures, plan.seed)
    parts = policy.equip(world) if isinstance(policy, Equipped) else Equipment()
    if parts.faults is None and plan.failures is not None:
        from schedmate.schedulers.sim.world import JobFailures

        return parts._replace(faults=JobFailures(workload, plan.failures, plan.seed))
    return parts


class _Done(NamedTuple):
    outcome: Outcome
    cluster: Cluster
    """With the roles that the policy gave its nodes."""
    warnings: Mapping[str, int]
    loop: str
    """The loop that simulated it: `queue` (specialised) or `events` (the engine)."""


def _simulate(
    workload: Workload,
    plan: Plan,
    policy: Policy,
    estimator: Estimator | None,
    parts: Equipment,
    own: TablePhysics | ChangingUse | None,
    progress: Callable[[int], None] | None,
) -> _Done:
    """Use the specialised loop if it gives the same result, else the engine."""
    observers = (*(() if own is None else (own,)), *parts.observers)
    source = parts.estimator or estimator
    usual = plan.placement == "best-fit"
    if usual and parts.physics is None and parts.faults is None and not observers:
        outcome = static_queue.simulate_queue(
            workload, policy, plan.cluster, source, plan.parameters, progress
        )
        if outcome is not None:
            return _Done(outcome, plan.cluster, {}, "queue")
    from schedmate.schedulers.sim.engine import Simulation

    workload.jobs = list(workload.jobs)  # the engine reads each job many times
    simulation = Simulation(
        workload,
        policy,
        plan.cluster,
        estimator=source,
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
        return {f"{what}: name a column of utilisation with --map, or add one by --workloads": 1}
    what = "a job cannot be packed, as the trace does not say how it uses its GPUs"
    return {what: unknown} if unknown else {}


def _failed(policy: Policy, error: BaseException) -> BaseException:
    """The message for an error under a custom policy; under a bundled one it is a bug."""
    module = sys.modules[type(policy).__module__]
    if module.__name__.startswith(f"{__name__.partition('.')[0]}."):
        return error
    if isinstance(error, NotImplementedError) and type(policy).decide is Policy.decide:
        return PolicyError(
            f"policy {policy.name} has no decide(view); write one (docs/policies.md)."
        )
    what = ": ".join(filter(None, (type(error).__name__, str(error))))
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


# Estimators, forecasts of submissions and placement rules by their names on the command line.


ESTIMATORS = {
    "oracle": "the true duration and utilisation: an upper bound that no scheduler can reach",
    "noisy:SIGMA": "the true duration times a log-normal factor: an oracle of known quality",
    "column:NAME": "predicted durations in seconds, from a column of the trace",
    "limit": "the time limit set by the user",
    "user-mean": "the mean of the user's finished jobs with the same number of GPUs, so far",
    "qssf": "half the user's last jobs of a similar name, half boosted trees over past jobs (QSSF)",
    "boosting": "gradient-boosted trees over past jobs, fitted every week",
    "ga2m": "an additive model with interactions over past jobs, fitted every week (Lucid)",
    "experts": "an online mixture of simple predictors by user, name, size and time limit",
    "none": "no estimates",
}
_EXPERTS = "schedmate.schedulers.adapters.modules:ExpertMixture"
"""An estimator of the rooms above, as policies of theirs are named in registry.py."""


def make_estimator(text: str, workload: Workload, seed: int = 0) -> Estimator | None:
    """The estimator named `text`, one of `ESTIMATORS`. Raises `UsageError` for another."""
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
    return make_trace_free_estimator(text)


def make_trace_free_estimator(text: str) -> Estimator | None:
    """The same for estimators that need nothing of the trace in advance."""
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
    if text == "experts":
        mixture: Estimator = load_plugin("the estimator experts", _EXPERTS)()
        return mixture
    if text == "none":
        return None
    name = text.partition(":")[0]
    hint = did_you_mean(name, [one.partition(":")[0] for one in ESTIMATORS]) or "."
    raise UsageError(f"no estimator {text!r}; there are {', '.join(ESTIMATORS)}{hint}")


def make_load(text: str) -> Load:
    """The forecast of submissions named `text`, `season` or `ga2m`. Raises `UsageError`."""
    if text == "season":
        return Load()
    if text == "ga2m":
        from schedmate.schedulers.learned import LearnedLoad

        return LearnedLoad()
    raise UsageError(f"no forecast {text!r}; there are season and ga2m.")


PLACEMENTS = ("best-fit", "fgd", "fgd-priced")
"""The fullest node first, or where a job wastes the fewest GPUs (`FragmentationSpace`)."""


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
