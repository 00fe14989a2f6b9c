"""The System Tuner: tunes a policy's settings by simulating the recent past (Lucid, section
3.6.1).

Coordinate descent from the policy's defaults: each setting in turn takes the candidate with the
best result on the past, until a whole turn changes nothing. The result is then compared with the
defaults on the later jobs, which the search never used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schedmate.base.data import load
from schedmate.base.errors import InputError, UsageError
from schedmate.schedulers import registry
from schedmate.schedulers.sim.outcome.metrics import HOUR, paired_difference
from schedmate.schedulers.sim.runs import Plan, Run, run_policy
from schedmate.schedulers.sim.workload import Workload

CANDIDATES = "schedulers/sim/tuning.yaml"
"""For each bundled policy, the values worth trying of each setting."""

Settings = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """A simulation of past jobs with some settings, and its result."""

    settings: Settings
    """Where they differ from the policy's defaults."""
    value: float
    """Of the metric: lower is better."""
    best: bool
    """Whether it was the best so far."""


def candidates(policy: str) -> dict[str, list[Any]]:
    """Values to try for each setting of a policy, with its default first.

    Raises `UsageError` for a policy without settings to tune.
    """
    defaults = {one.name: one.default for one in registry.parameters(registry.policy_class(policy))}
    listed = load(CANDIDATES).get(policy)
    if not listed:
        raise UsageError(
            f"nothing is known of what to try for policy {policy!r}; name settings and values, as "
            f"--try NAME=V1,V2. It has {', '.join(defaults) or 'no settings'}."
        )
    return {name: [defaults[name], *values] for name, values in listed.items()}


def split(workload: Workload, after_s: float, window_s: float) -> tuple[Workload, Workload]:
    """The jobs submitted in the window before `after_s` since the first, and those from then on.

    Raises `InputError` when either part has no job.
    """
    times = [job.submit_time - workload.jobs[0].submit_time for job in workload.jobs]
    before = workload.select(i for i, t in enumerate(times) if after_s - window_s <= t < after_s)
    later = workload.select(i for i, t in enumerate(times) if t >= after_s)
    if not len(before) or not len(later):
        raise InputError(
            f"no job was submitted {'before' if not len(before) else 'after'} the moment of tuning;"
            " choose --at within the trace, and --window long enough."
        )
    return before, later


def search(
    workload: Workload,
    plan: Plan,
    policy: str,
    tries: Mapping[str, Sequence[Any]],
    metric: str = "avg_jct_h",
    most: int = 200,
) -> Iterator[Trial]:
    """Every simulation made, the default settings first; the last one marked best is the result.

    Args:
        tries: values of each setting to try; `candidates` has those of the bundled policies.
        metric: a number of the summary to minimise.
        most: largest number of simulations.

    Raises `UsageError` for an unknown metric or setting.
    """
    seen: dict[str, float] = {}

    def value(settings: Settings) -> float:
        numbers = run_policy(workload, plan, spelled(policy, settings)).numbers
        if not isinstance(numbers.get(metric), int | float):
            metrics = ", ".join(key for key, one in numbers.items() if isinstance(one, float))
            raise UsageError(f"no metric {metric!r}; there are {metrics}.")
        return float(numbers[metric])

    chosen: Settings = {}
    best = seen[spelled(policy, chosen)] = value(chosen)
    yield Trial(chosen, best, best=True)
    improved = True
    while improved:
        improved = False
        for name, values in tries.items():
            for one in values:
                tried = {**chosen, name: one}
                text = spelled(policy, tried)
                if text in seen:
                    continue
                if len(seen) >= most:
                    return
                seen[text] = result = value(tried)
                if result < best:
                    best, chosen, improved = result, tried, True
                yield Trial(tried, result, best=chosen is tried)


def spelled(policy: str, settings: Settings) -> str:
    """The policy as `--policy` takes it, without the settings that are its defaults."""
    defaults = {one.name: one.default for one in registry.parameters(registry.policy_class(policy))}
    parts = [
        f"{name}={registry.quoted(str(value).lower() if isinstance(value, bool) else str(value))}"
        for name, value in sorted(settings.items())
        if defaults.get(name, ...) != value
    ]
    return ":".join([policy, *parts])


def compare(
    workload: Workload, plan: Plan, policy: str, settings: Settings
) -> tuple[Run, Run, tuple[float, float, float]]:
    """The policy with its defaults and as tuned on these jobs, and the paired difference of JCT
    [h]."""
    plain = run_policy(workload, plan, policy)
    tuned = run_policy(workload, plan, spelled(policy, settings))
    difference = paired_difference(
        tuned.per_job.jct_s / HOUR, plain.per_job.jct_s / HOUR, plan.seed
    )
    return plain, tuned, difference
