"""Assign workloads to the jobs of a trace: what they train, who submits them, and resubmissions.

Public traces say how long a job ran and on how many GPUs, not what it trained. The Lucid paper
(section 4.1) draws a model for each job by its size; here the unit is a *workload* that several
jobs can share, because on real clusters most jobs are resubmissions (its section 2.2). Jobs of one
virtual cluster, user and number of GPUs with similar run times become one workload.

The metadata of a job identifies its workload, and nothing more. The stated iterations, and with
them the size of the model, are the same for all jobs of a workload, and are taken from another
workload with the same number of GPUs, so that a job's run time never influences its own metadata.
(Leaving only the job itself out of the mean over its workload would be worse than either: of two
runs the longer one would then state the shorter time.) For the share `stated` of workloads it is
the mean over their own jobs instead, each with noise of the size of their spread: code that states
how long it trains. The result is multiplied by a factor of the workload, and rounded as people
write numbers. The deviation of a job from its workload, and an early end, are in the run time only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedmate.base.data import load
from schedmate.jobs import WorkloadMetadata
from schedmate.schedulers.model import Profile
from schedmate.schedulers.sim.traces.recipe import Choice, Recipe, Settings
from schedmate.schedulers.sim.traces.writer import recurrence_of
from schedmate.schedulers.sim.workload import Workload

GROUP = "workload"
"""The column that numbers the workloads: the right answer of a search for similar jobs."""

_JOBS_OF_A_USER = 300
"""Jobs for each user where a trace has none; Philly: 319 users, some 100,000 jobs."""

_LOYAL = 0.5
"""Share of workloads whose user is the one with workloads of their size: why users predict."""

_TELLING = 0.5
"""Share of workloads whose name states what they train."""

_FEW = 8
"""Workloads of one size among which another is drawn; of rarer sizes all together are one size."""

_TRIES = 12

_MOST_EPOCHS = 1000

_NAMES = ("train", "run", "job", "exp", "test", "debug", "main", "finetune", "eval")
_ROUND = np.log([m * 10.0**e for e in range(10) for m in (1, 2, 3, 5)])


def assign(workload: Workload, recipe: Recipe, settings: Settings) -> Workload:
    """The same jobs with metadata, names, users and profiles; deterministic for a seed.

    Users and names of the trace are kept if it has them. The result is marked as synthetic, has a
    column `workload` with the number of each job's workload, and a note with the share of
    resubmissions and the spread of their run times. A trace can have fewer resubmissions than
    requested: a user's only job of its size cannot be one.
    """
    rng = np.random.default_rng(settings.seed)
    jobs = workload.jobs
    count = len(jobs)
    vcs = workload.vcs or [""] * count
    logs = np.log(np.maximum(workload.duration_s, 1.0))
    early = _early(workload, settings.early, rng)
    # A job that ended early ran for a share of its workload that may be any.
    full = logs - np.where(early, np.log(rng.uniform(0.02, 1.0, count)), 0.0)
    table: dict[tuple[str, str, int, float], int] = {}
    buckets = np.array(
        [
            table.setdefault((vc, job.user, job.gpus, job.share), len(table))
            for vc, job in zip(vcs, jobs, strict=True)
        ]
    )
    groups, cells = _groups(buckets, full, early, settings, rng)
    number = int(groups.max()) + 1
    first = np.unique(groups, return_index=True)[1]
    blurred = full + rng.normal(0.0, settings.spread, count)
    typical = np.exp(np.bincount(groups, blurred) / np.bincount(groups))
    users = _users(workload, vcs, first, cells, rng)
    draws = rng.random((number, 5))
    misses = np.exp(rng.normal(0.0, settings.noise, number))
    sizes = np.array([job.gpus for job in jobs])[first]
    stated = np.where(rng.random(number) < settings.stated, typical, typical[_others(sizes, rng)])
    misread = rng.random(number) < settings.misread
    misreading = Misreading(recipe.models, rng)
    distinct: dict[object, WorkloadMetadata] = {}
    choices, metadata, names = [], [], []
    for group, position in enumerate(first.tolist()):
        gpus = jobs[position].gpus
        a, b, c, d, e = draws[group].tolist()
        choice = recipe.draw(gpus, stated[group] / 3600, (a, b, c))
        length = _length(choice, gpus, stated[group] * misses[group])
        correct = distinct.get((choice, gpus, length))
        if correct is None:
            correct = distinct[choice, gpus, length] = _metadata(choice, gpus, *length)
        choices.append(choice)
        metadata.append(misreading(correct, group) if misread[group] else correct)
        names.append(_name(choice, d, e))
    util = np.exp(rng.normal(0.0, 0.05, count)).tolist()
    chosen = [(choices[group], group) for group in groups.tolist()]
    recurrence, spread = recurrence_of(groups, logs, early)
    replaced = " and replace those of the trace" * any(workload.metadata)
    note = (
        f"models, metadata and GPU use are synthetic, by recipe {recipe.name} (seed "
        f"{settings.seed}){replaced}: {number:,} workloads, {recurrence:.0%} of jobs are "
        f"resubmissions ({settings.recurrence:.0%} requested), run times of a workload spread by a "
        f"factor of {math.exp(spread):.2f} ({math.exp(settings.spread):.2f} requested), "
        f"{early.mean():.0%} ended early, {settings.stated:.0%} of workloads state their run time"
        + f", {misread.mean():.0%} of workloads are misread" * bool(settings.misread)
        + f"; GPU memory is {recipe.gpu_memory_mb:.0f} MB"
    )
    return replace(
        workload,
        jobs=[
            replace(job, name=job.name or names[group], user=job.user or users[group])
            for job, group in zip(jobs, groups.tolist(), strict=True)
        ],
        profiles=[
            Profile(min(100.0, one.gpu_util * noise), one.memory_util, one.memory_mb, one.amp)
            for (one, _), noise in zip(chosen, util, strict=True)
        ],
        configs=[one.config for one, _ in chosen],
        metadata=[metadata[group] for _, group in chosen],
        columns={**workload.columns, GROUP: groups.astype(float).tolist()},
        made_up=(*workload.made_up, f"workloads by {recipe.name}, seed {settings.seed}"),
        notes=[*workload.notes, note],
    )


def _early(workload: Workload, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which jobs end early: where the trace has states, only ones that did not complete."""
    eligible = np.array([state != "COMPLETED" for state in workload.states], dtype=bool)
    if not eligible.any():
        eligible = np.ones(len(workload), dtype=bool)
    chosen: NDArray[np.bool_] = eligible & (rng.random(len(workload)) < share / eligible.mean())
    return chosen


def _groups(
    buckets: NDArray[np.int64],
    logs: NDArray[np.float64],
    early: NDArray[np.bool_],
    settings: Settings,
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The workload of each job, numbered by first submission, and the cell of each workload.

    Jobs of a bucket are sorted by run time with noise, and divided into cells. The noise that gives
    the requested spread depends on how dense run times are, so it is found by trying.
    """
    noise = rng.normal(0.0, 1.0, len(buckets))
    luck = rng.random(len(buckets))
    width = max(settings.spread, 0.05)
    size = settings.spread
    for _ in range(_TRIES):
        bins = np.floor((logs + noise * size) / width).astype(np.int64)
        groups, cells = _cut(buckets, bins, settings.recurrence, luck)
        spread = recurrence_of(groups, logs, early)[1]
        if size == 0 or spread == 0 or abs(spread / settings.spread - 1) < 0.03:
            break
        size *= min(2.0, max(0.5, settings.spread / spread))
    return groups, cells


def _others(sizes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """For each workload another one with the same number of GPUs, each of them once.

    If there are fewer than `_FEW` of that size, any of the rare sizes; itself if there is no other.
    """
    _, kind, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    kind = np.where(counts[kind] < _FEW, -1, kind)
    order = np.lexsort((rng.random(len(sizes)), kind))
    partner = np.empty(len(sizes), dtype=np.int64)
    for part in np.split(order, np.flatnonzero(np.diff(kind[order])) + 1):
        partner[part] = np.roll(part, 1)
    return partner


def _cut(
    buckets: NDArray[np.int64],
    bins: NDArray[np.int64],
    recurrence: float,
    luck: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """In each cell of similar jobs, one workload follows the other in time, as users move on."""
    count = len(buckets)
    order = np.lexsort((np.arange(count), bins, buckets))
    starts = np.ones(count, dtype=bool)
    starts[1:] = np.diff(buckets[order]).astype(bool) | np.diff(bins[order]).astype(bool)
    cell = np.cumsum(starts) - 1
    cells = int(cell[-1]) + 1
    wanted = (1 - recurrence) * count
    more = max(0.0, (wanted - cells) / (count - cells)) if count > cells else 0.0
    starts |= luck < more
    groups = np.empty(count, dtype=np.int64)
    groups[order] = np.cumsum(starts) - 1
    by_time = np.argsort(np.unique(groups, return_index=True)[1], kind="stable")
    rank = np.empty_like(by_time)
    rank[by_time] = np.arange(len(by_time))
    return rank[groups], cell[starts][by_time]


def _users(
    workload: Workload,
    vcs: list[str],
    first: NDArray[np.int64],
    cells: NDArray[np.int64],
    rng: np.random.Generator,
) -> list[str]:
    """A user for each workload; few of a virtual cluster submit most."""
    people: dict[str, tuple[int, NDArray[np.float64]]] = {}
    names, sizes = np.unique(vcs, return_counts=True)
    for name, size in zip(names.tolist(), sizes.tolist(), strict=True):
        total = max(1, round(size / _JOBS_OF_A_USER))
        people[name] = (len(people), np.cumsum(1.0 / np.arange(1, total + 1)))
    own = rng.random(len(first))
    loyal = rng.random(len(first)) < _LOYAL
    of_cell = rng.random(int(cells.max()) + 1)
    users = []
    for group, position in enumerate(first.tolist()):
        vc, weights = people[vcs[position]]
        luck = of_cell[cells[group]] if loyal[group] else own[group]
        user = int(np.searchsorted(weights, luck * weights[-1], side="right"))
        users.append(f"u{vc:02d}-{user:03d}")
    return users


def _length(choice: Choice, gpus: int, seconds: float) -> tuple[int, str]:
    """Iterations that take about `seconds`, a round number of epochs or else of steps."""
    steps = seconds / choice.step_s
    if choice.samples is not None:
        epochs = steps * choice.batch_size * gpus / choice.samples
        if 0.8 <= epochs <= _MOST_EPOCHS:
            return _rounded(epochs), "epoch"
    return _rounded(steps), "step"


def _rounded(value: float) -> int:
    nearest = int(np.abs(_ROUND - math.log(max(value, 1.0))).argmin())
    return round(math.exp(_ROUND[nearest]))


def _name(choice: Choice, telling: float, word: float) -> str:
    """A job name that states model and data set, or a common word; two draws from 0 to 1."""
    name = _NAMES[int(word * len(_NAMES))]
    if telling < _TELLING:
        name = f"{choice.model}-{choice.train}".lower().replace(" ", "-")
    return f"{name}-{int(telling * 1e4) % 10}"


def _metadata(choice: Choice, gpus: int, iters: int, iter_type: str) -> WorkloadMetadata:
    return WorkloadMetadata.model_validate(
        {
            "model_config": {"model_name": choice.model, "task_type": choice.task},
            "training_config": {
                "iters": iters,
                "iter_type": iter_type,
                "batch_size": choice.batch_size,
                "lr": choice.lr,
                "optimizer": choice.optimizer,
                "precision": "amp" if choice.amp else "fp32",
                "num_gpus": gpus,
            },
            "dataset_config": {"train": choice.train, "valid": choice.train},
        }
    )


# Extraction errors of a workload's code, with measured frequencies.
#
# The same code is read the same way each time, so a misread workload is misread for all of its
# jobs: its resubmissions still resemble each other, and it may resemble others that it should not.


_SECTIONS = {
    "model_name": "model_config",
    "task_type": "model_config",
    "iters": "training_config",
    "iter_type": "training_config",
    "train": "dataset_config",
    "valid": "dataset_config",
}


class Misreading:
    """Introduces errors into metadata in patterns that were measured (`misread.yaml`).

    Args:
        models: model, task and training set of each type.
        rng: random number generator.
    """

    def __init__(self, models: Sequence[tuple[str, str, str]], rng: np.random.Generator) -> None:
        document = load("schedulers/sim/traces/misread.yaml")
        self._patterns = [dict(one) for one in document["patterns"]]
        jobs = np.array([one.pop("jobs") for one in self._patterns], dtype=float)
        self._shares = jobs / jobs.sum()
        self._factors: list[float] = document["iters"]
        self._another: float = document["another"]
        self._models = models
        self._rng = rng

    def __call__(self, metadata: WorkloadMetadata, workload: int) -> WorkloadMetadata:
        """The metadata with one pattern of errors; `workload` makes random words distinct."""
        pattern = self._patterns[int(self._rng.choice(len(self._patterns), p=self._shares))]
        return self._with(metadata, pattern, workload)

    def _with(
        self, metadata: WorkloadMetadata, pattern: Mapping[str, str], workload: int
    ) -> WorkloadMetadata:
        read: dict[str, dict[str, Any]] = {
            name: dict(values) for name, values in metadata.sections().items()
        }
        another = self._models[int(self._rng.integers(len(self._models)))]
        is_wrong = self._rng.random() < self._another
        for field, outcome in pattern.items():
            section = read[_SECTIONS[field]]
            if outcome == "missing":
                section[field] = None
            elif field == "iters":
                factor = self._factors[int(self._rng.integers(len(self._factors)))]
                section[field] = max(1, round(section[field] * factor))
            elif field == "iter_type":
                section[field] = "step" if section[field] == "epoch" else "epoch"
            elif is_wrong:
                names = dict(zip(("model_name", "task_type", "train"), another, strict=True))
                section[field] = names.get(field, names["train"])
            elif field == "task_type":
                section[field] = another[1]  # a closed list, without random words
            else:
                section[field] = f"{field}_{workload}"
        return WorkloadMetadata.model_validate(read)
