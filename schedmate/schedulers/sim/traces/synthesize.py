"""Draws a trace that meets the published figures of a cluster.

Durations are log-normal with the published median and mean, truncated at the published maximum. GPU
demand has the published mean over sizes with an assumed distribution. The correlation of size and
duration is chosen so that all jobs have the published GPU time, and failed and cancelled jobs so
that states have their published shares of jobs and of GPU time. Everything is drawn in strata, so
that a trace of some thousand jobs already meets its targets; campaigns, if the calibration has
them, determine the order of the strata.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from schedmate.base.errors import InputError, UsageError, unreadable
from schedmate.base.reading import bounded_rows, open_text
from schedmate.schedulers.model import Job
from schedmate.schedulers.sim.traces.recipe import Calibration, ranked
from schedmate.schedulers.sim.traces.row import LARGEST_NUMBER
from schedmate.schedulers.sim.workload import Workload

Floats = NDArray[np.float64]

_STEPS = 40
_FITTED = 50_000
_LARGE = 2_000
"""Jobs on which the states are fitted, and those of them that are considered one by one."""

LEAST = 100
"""Fewer jobs cannot meet shares and means."""


def synthesize(
    calibration: Calibration,
    jobs: int | None = None,
    seed: int = 0,
    arrivals: Floats | None = None,
) -> Workload:
    """Draw `jobs` jobs (None: the published number); deterministic for a seed.

    Fewer jobs than published span a shorter time, so that the load is the published one. Their
    users, names and workloads come from a recipe (`assign`).

    Args:
        arrivals: jobs in equal parts of the published days, in order; None: the assumed profile of
            days and weeks.

    Raises `UsageError` for too few jobs or a negative seed.
    """
    targets, assumed = calibration.targets, calibration.assumed
    count = int(targets["jobs"]) if jobs is None else jobs
    if count < LEAST:
        raise UsageError(f"--jobs {count}: figures of a cluster need {LEAST} jobs or more.")
    if seed < 0:
        raise UsageError(f"--seed {seed} is negative; give 0 or more.")
    rng = np.random.default_rng(seed)
    campaigns = calibration.campaigns
    each = np.ones(count, dtype=np.int64) if campaigns is None else campaigns.sizes(count, rng)
    submit = draw_submissions(calibration, count, len(each), arrivals, rng)
    of = np.arange(count)
    if campaigns is not None:
        submit, of = campaigns.times(submit, each, rng)
    normal = NormalDist().inv_cdf
    strata = (np.arange(count) + rng.random(count)) / count
    scores = np.array([normal(one) for one in np.clip(strata, 1e-12, 1 - 1e-12).tolist()])
    scores = scores[rng.permutation(count)]
    noise = rng.standard_normal(count)
    if campaigns is not None:
        scores = ranked(scores, campaigns.latent(of, rng))
        # All jobs of one campaign request the same number of GPUs, except at the cuts of strata.
        noise = ranked(noise, rng.standard_normal(len(each))[of])
    durations = _durations(scores, targets["median_s"], targets["mean_s"], targets["max_s"])
    sizes, shares = _sizes(assumed["shares"], assumed["sizes"], float(targets["mean_gpus"]))
    wanted = float(targets["gpu_s"]) / float(targets["jobs"]) if "gpu_s" in targets else None
    gpus = _gpus(scores, durations, sizes, shares, wanted, noise)
    states = _states(gpus * durations, targets.get("states"), targets.get("gpu_time"), rng)
    vcs = _vcs(gpus, gpus * durations, calibration.vcs, rng)
    if campaigns is not None:
        first: dict[tuple[int, float], str] = {}
        of_size = zip(of.tolist(), gpus.tolist(), strict=True)
        vcs = [first.setdefault(one, vc) for one, vc in zip(of_size, vcs, strict=True)]
    rows = zip(submit.tolist(), gpus.tolist(), vcs, strict=True)
    return Workload(
        calibration.name,
        [
            Job(f"{calibration.name}-{at}", at, when, math.ceil(size), vc=vc, share=min(1.0, size))
            for at, (when, size, vc) in enumerate(rows)
        ],
        durations.tolist(),
        [None] * count,
        states=states,
        vcs=vcs,
        made_up=(f"jobs by {calibration.name}, seed {seed}",),
    )


def _durations(scores: Floats, median: float, mean: float, longest: float) -> Floats:
    """Log-normal durations [whole s] with this median and mean, none above `longest`."""

    def drawn(sigma: float) -> Floats:
        values: Floats = np.clip(median * np.exp(sigma * scores), 1.0, longest).round()
        return values

    low, high = 0.0, 8.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if drawn(middle).mean() < mean else (low, middle)
    return drawn(high)


def _sizes(
    fixed: Mapping[float, float], weights: Mapping[float, float], mean: float
) -> tuple[Floats, Floats]:
    """Sizes and their shares: some fixed, the others tilted by a power of the size to the mean."""
    sizes = np.array([*fixed, *weights], dtype=float)
    fixed_shares = np.array([*fixed.values()], dtype=float)
    base = np.array([*weights.values()], dtype=float)
    others = sizes[len(fixed_shares) :]

    def shares(power: float) -> Floats:
        tilted = base * others**power
        return np.concatenate([fixed_shares, tilted / tilted.sum() * (1 - fixed_shares.sum())])

    low, high = -6.0, 6.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if shares(middle) @ sizes < mean else (low, middle)
    order = np.argsort(sizes)
    return sizes[order], shares(high)[order]


def _gpus(
    scores: Floats,
    durations: Floats,
    sizes: Floats,
    shares: Floats,
    wanted: float | None,
    noise: Floats,
) -> Floats:
    """GPUs of each job in exact shares, correlated with durations so that GPU time is `wanted`."""
    count = len(scores)
    counts = np.diff(np.round(np.concatenate([[0.0], np.cumsum(shares)]) * count)).astype(int)
    ascending = np.repeat(sizes, counts)

    def drawn(correlation: float) -> Floats:
        gpus = np.empty(count)
        mixed = correlation * scores + math.sqrt(1 - correlation**2) * noise
        gpus[np.argsort(mixed, kind="stable")] = ascending
        return gpus

    if wanted is None:
        return drawn(0.0)
    low, high = -1.0, 1.0
    for _ in range(16):
        middle = (low + high) / 2
        enough = (drawn(middle) * durations).mean() >= wanted
        low, high = (low, middle) if enough else (middle, high)
    return drawn(high)


def _states(
    gpu_s: Floats,
    jobs: Mapping[str, float] | None,
    gpu_time: Mapping[str, float] | None,
    rng: np.random.Generator,
) -> list[str]:
    """States with these shares of jobs and, by favouring large or small jobs, of GPU time."""
    if jobs is None:
        return ["COMPLETED"] * len(gpu_s)
    names = list(jobs)
    target = np.array([jobs[name] for name in names])
    target /= target.sum()
    logs = np.log(gpu_s + 1.0)
    z = (logs - logs.mean()) / (logs.std() or 1.0)
    order = np.argsort(gpu_s, kind="stable")[::-1]
    # All of the few jobs with most GPU time, and every n-th of the others with weight n.
    step = max(1, len(z) // _FITTED)
    some = np.concatenate([order[:_LARGE], order[_LARGE::step]])
    weights = np.where(np.arange(len(some)) < _LARGE, 1.0, step)
    heavy = weights * gpu_s[some]
    level, slope = np.log(target), np.zeros(len(names))
    wanted = None
    if gpu_time is not None:
        wanted = np.array([gpu_time[name] for name in names])
        wanted /= wanted.sum()
    for _ in range(400):
        shares = _softmax(level + z[some, None] * slope)
        level += np.log(target / (weights @ shares / weights.sum()))
        if wanted is not None:
            slope += 0.2 * np.log(wanted / (heavy @ shares / heavy.sum()))
            slope -= slope[0]
    likely = _softmax(level + z[:, None] * slope)
    luck = np.empty(len(z))
    luck[order] = (np.arange(len(z)) * ((math.sqrt(5) - 1) / 2) + rng.random()) % 1.0
    reach = likely.cumsum(axis=1)
    chosen = np.minimum((luck[:, None] > reach).sum(axis=1), len(names) - 1)
    # One large job more or less is a different share of GPU time: each gets the state that is
    # furthest behind its expected number so far.
    behind = np.zeros(len(names))
    for at in order[: min(_LARGE, len(z) // 20)].tolist():
        behind += likely[at] * gpu_s[at]
        chosen[at] = int(behind.argmax())
        behind[chosen[at]] -= gpu_s[at]
    return [names[one] for one in chosen.tolist()]


def _softmax(scores: Floats) -> Floats:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    result: Floats = powers / powers.sum(axis=1, keepdims=True)
    return result


def _vcs(
    gpus: Floats, gpu_s: Floats, sizes: Mapping[str, int], rng: np.random.Generator
) -> list[str]:
    """A virtual cluster for each job that fits into it: jobs and GPU time are shared by their GPUs.

    Operators size virtual clusters by the demand of their users; large jobs drawn at random would
    flood some and leave others empty.
    """
    if not sizes:
        return [""] * len(gpus)
    names, room = list(sizes), np.array([*sizes.values()], dtype=float)
    # Few clusters would give one job everything: half is the limit, if the job fits anywhere so.
    fits = {size: room >= min(2 * size, room.max()) for size in np.unique(gpus).tolist()}
    chosen = np.zeros(len(gpus), dtype=np.int64)
    for size, holds in fits.items():
        weights = np.where(holds, room, 0.0)
        which = gpus == size
        chosen[which] = rng.choice(len(names), int(which.sum()), p=weights / weights.sum())
    large = np.argsort(gpu_s, kind="stable")[::-1][:_LARGE]
    others = np.ones(len(gpus), dtype=bool)
    others[large] = False
    left = room / room.sum() * gpu_s.sum()
    left -= np.bincount(chosen[others], gpu_s[others], len(names))
    for at in large.tolist():
        chosen[at] = int(np.where(fits[float(gpus[at])], left / room, -np.inf).argmax())
        left[chosen[at]] -= gpu_s[at]
    return [names[one] for one in chosen.tolist()]


# When jobs are submitted: the assumed shape of days and weeks, or a series of one's own.


def read_arrivals(path: Path, column: str) -> Floats:
    """The counts in one column of a CSV with a row for each of equal parts of time, in order.

    Raises `InputError` when it cannot be read, naming the line of a cell that is not a count.
    """
    try:
        with open_text(path, newline="") as stream:
            reader = csv.DictReader(stream)
            if column not in (reader.fieldnames or ()):
                has = ", ".join(reader.fieldnames or ()) or "none"
                raise InputError(f"{path} has no column {column!r}; name one that it has: {has}.")
            counts = []
            for row in bounded_rows(reader, path):
                value = float(row[column] or "nan")
                if not 0 <= value <= LARGEST_NUMBER:
                    raise ValueError(row[column])
                counts.append(value)
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValueError, TypeError, csv.Error, UnicodeDecodeError):
        raise InputError(
            f"{path}, line {reader.line_num}: {column} is not a count; correct it, a number of at "
            "least 0."
        ) from None
    if not sum(counts):
        raise InputError(f"{path} has no submissions in {column!r}; name another column.")
    return np.array(counts)


def draw_submissions(
    calibration: Calibration,
    jobs: int,
    count: int,
    arrivals: Floats | None,
    rng: np.random.Generator,
) -> Floats:
    """`count` submission times [whole s] in the time that `jobs` jobs take, ascending."""
    targets, assumed = calibration.targets, calibration.assumed
    day = datetime.fromisoformat(str(assumed["start"])).replace(tzinfo=UTC)
    span = float(targets["days"]) * 86_400
    part = jobs / float(targets["jobs"])
    if arrivals is None:
        hours = max(1, round(span * part / 3600))
        weights = np.array(
            [
                assumed["hours"][hour % 24] * assumed["weekdays"][(day.weekday() + hour // 24) % 7]
                for hour in range(hours)
            ],
            dtype=float,
        )
        if calibration.campaigns is not None:
            weights *= np.exp(rng.normal(0.0, calibration.campaigns.rate_spread, hours))
        length = span * part / hours
    else:
        # The first jobs of the series, which is repeated if it is too short.
        reach = np.cumsum(np.tile(arrivals, math.ceil(part)))
        bins = int(np.searchsorted(reach, part * arrivals.sum())) + 1
        weights = np.tile(arrivals, math.ceil(part))[:bins]
        length = span / len(arrivals)
    reached = np.concatenate([[0.0], np.cumsum(weights)])
    at = (np.arange(count) + rng.random(count)) / count * reached[-1]
    edges = np.arange(len(reached)) * length
    result: Floats = np.floor(day.timestamp() + np.interp(at, reached, edges))
    return result
