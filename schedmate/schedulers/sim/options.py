"""Estimators, forecasts of submissions and placement rules by their names on the command line."""

from __future__ import annotations

from collections.abc import Callable

from schedmate.errors import UsageError, did_you_mean
from schedmate.schedulers.estimators import Estimator, Table, TimeLimit, UserMean, noisy
from schedmate.schedulers.load import Load
from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.workload import Workload
from schedmate.schedulers.space import Space

ESTIMATORS = {
    "oracle": "the true duration and utilisation: an upper bound that no scheduler can reach",
    "noisy:SIGMA": "the true duration times a log-normal factor: an oracle of known quality",
    "column:NAME": "predicted durations in seconds, from a column of the trace",
    "limit": "the time limit set by the user",
    "user-mean": "the mean of the user's finished jobs with the same number of GPUs, so far",
    "qssf": "half the user's last jobs of a similar name, half boosted trees over past jobs (QSSF)",
    "boosting": "gradient-boosted trees over past jobs, fitted every week",
    "ga2m": "an additive model with interactions over past jobs, fitted every week (Lucid)",
    "none": "no estimates",
}


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
