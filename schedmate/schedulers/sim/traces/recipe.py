"""What synthetic traces are drawn from: recipes of workloads, and calibrations of clusters.

A recipe is the distribution of models, datasets and batch sizes over the jobs of a trace; a
calibration has the published figures of a cluster. Both are bundled, or a YAML file.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import yaml
from numpy.typing import NDArray

from schedmate.base.errors import InputError, UsageError, did_you_mean, similar_file
from schedmate.base.reading import MOST_SETTINGS, parse_document, read_text
from schedmate.schedulers.sim.traces.writer import trace_facts
from schedmate.schedulers.sim.workload import Workload

RECIPES = "recipes"
WEIGHTS = ("heavy", "medium", "light")
"""GPU use of a type; each size class draws among the types with its own shares."""


@dataclass(frozen=True)
class Settings:
    """How a recipe is applied: `lucid:recurrence=0.8;spread=0.2`."""

    recurrence: float = 0.6
    """Share of jobs that are resubmissions of an earlier workload."""
    spread: float = 0.4
    """Standard deviation of the logarithm of run times within one workload."""
    early: float = 0.1
    """Share of jobs that end before their workload is done."""
    noise: float = 0.3
    """Standard deviation of the logarithm of the error of iterations x step time."""
    stated: float = 0.0
    """Share of workloads whose code states, except for noise, how long they run. The others state
    the length of another workload: their own run time has no influence on what they state."""
    misread: float = 0.0
    """Share of workloads with a mandatory field that is misread or not read; which fields, and how,
    was measured on public repositories (`misread.yaml`)."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("recurrence", "early"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(
                    f"{name}={getattr(self, name):g} is not a share from 0 to below 1."
                )
        for name in ("stated", "misread"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name}={getattr(self, name):g} is not a share from 0 to 1.")
        for name in ("spread", "noise"):
            if not 0 <= getattr(self, name) <= 5:
                raise UsageError(f"{name}={getattr(self, name):g} is not from 0 to 5.")
        if self.seed < 0:
            raise UsageError(f"seed={self.seed} is negative.")


@dataclass(frozen=True)
class Choice:
    """One type of workload with every choice made: its metadata and its GPU use."""

    model: str
    task: str
    train: str
    batch_size: int
    amp: bool
    gpu_util: float
    """[%]"""
    memory_util: float
    """[%]"""
    memory_mb: float
    """[MB of one GPU]"""
    step_s: float
    """[s on one GPU]"""
    samples: int | None
    """Samples in the training set; None: it has no epochs."""
    optimizer: str
    lr: float

    @property
    def config(self) -> str:
        """The key of a colocation table: model, dataset, batch size, AMP."""
        return f"{self.model}/{self.train}/{self.batch_size}/{int(self.amp)}"


class Recipe:
    """The types of one recipe; `recipes/` has the bundled ones."""

    def __init__(self, name: str, document: Mapping[str, Any]) -> None:
        self.name = name
        self.title = str(document["title"])
        self.gpu_memory_mb = float(document.get("gpu_memory_mb", 24_576))
        """Memory of the GPUs that the figures are for: what the memory of a pair may add up to."""
        self._classes = document["classes"]
        factors = document["amp"]
        self._choices: dict[str, list[list[Choice]]] = {weight: [] for weight in WEIGHTS}
        for entry in document["types"]:
            self._choices[entry["weight"]].append(_choices(entry, factors))

    @classmethod
    def read(cls, name: str) -> Self:
        """The bundled recipe called `name`, or the YAML file of that path.

        Raises `UsageError` for neither, `InputError` for a file that is not a recipe.
        """
        return choose_bundled("recipe", RECIPES, name, cls)

    def shares(self, gpus: int, hours: float) -> tuple[float, ...]:
        """The share of each of `WEIGHTS` among workloads of this size."""
        for one in self._classes:
            if gpus >= one.get("gpus", 1 << 30) or hours >= one.get("hours", float("inf")):
                return tuple(float(one[weight]) for weight in WEIGHTS)
        raise InputError(f"recipe {self.name} has no class for {gpus} GPUs and {hours:g} h.")

    @property
    def models(self) -> tuple[tuple[str, str, str], ...]:
        """Model, task and training set of each type."""
        models = [
            (choice.model, choice.task, choice.train)
            for types in self._choices.values()
            for choices in types
            for choice in choices
        ]
        return tuple(dict.fromkeys(models))

    def draw(self, gpus: int, hours: float, random: tuple[float, float, float]) -> Choice:
        """A type for a workload of this size, from three numbers in [0, 1)."""
        shares = list(accumulate(self.shares(gpus, hours)))
        types = self._choices[WEIGHTS[bisect_right(shares, random[0] * shares[-1])]]
        choices = types[int(random[1] * len(types))]
        return choices[int(random[2] * len(choices))]


def recipes() -> tuple[str, ...]:
    """Names of the bundled recipes."""
    return bundled_names(RECIPES)


def parse_recipe(text: str) -> tuple[Recipe, Settings]:
    """A recipe and its settings from `lucid` or `lucid:recurrence=0.8,spread=0.2`.

    Raises `UsageError` for an unknown recipe or setting.
    """
    name, _, rest = text.partition(":")
    defaults: dict[str, Any] = {one.name: one.default for one in fields(Settings)}
    values: dict[str, Any] = {}
    for part in filter(None, rest.replace(";", ",").split(",")):
        key, _, value = part.partition("=")
        key = key.strip()
        try:
            values[key] = type(defaults[key])(value)
        except (KeyError, ValueError):
            raise UsageError(
                f"workloads {text!r}: {part!r} is not a setting; there are "
                f"{', '.join(f'{key}={default}' for key, default in defaults.items())}."
            ) from None
    return Recipe.read(name), Settings(**values)


def _choices(entry: Mapping[str, Any], factors: Mapping[str, float]) -> list[Choice]:
    precisions = {"both": (False, True), "always": (True,), "never": (False,)}[entry["amp"]]
    columns = ("batch_sizes", "gpu_util", "memory_util", "memory_mb", "step_ms")
    choices = []
    for batch, *numbers in zip(*(entry[column] for column in columns), strict=True):
        for amp in precisions:
            scale = factors if amp and entry["amp"] == "both" else {}
            used = [
                number * scale.get(column, 1.0)
                for column, number in zip(columns[1:], numbers, strict=True)
            ]
            choices += [
                Choice(
                    entry["model"],
                    entry["task"],
                    entry["train"],
                    batch,
                    amp,
                    used[0],
                    used[1],
                    used[2],
                    used[3] / 1000,
                    entry.get("samples"),
                    entry["optimizer"],
                    lr,
                )
                for lr in entry["lr"]
            ]
    if not choices:
        raise ValueError(f"{entry['model']} has no batch size or learning rate")
    return choices


# Campaigns: jobs that one person submits one after the other, much the same.
#
# Real traces are not jobs drawn one by one: on Helios Venus every fifth job runs as long as the
# one before it, within 10 %, and an hour's submissions vary twice as much as the time of day
# explains. Here submissions come in campaigns of heavy-tailed size. Their jobs follow each other
# at heavy-tailed intervals, on the same number of GPUs, and a share of them runs as long as the
# campaign does.


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Campaigns:
    """How submissions cluster; fitted, not published (benchmarks/traces_campaigns.py)."""

    tail: float
    """Exponent of the sizes: a campaign has n jobs with probability ~ n ** -tail."""
    most: int
    """Jobs of the largest campaign."""
    alike: float
    """Share of a campaign's jobs that run as long as it does."""
    spread: float
    """How far these are from it, in standard deviations of the logarithm of all run times."""
    gap_s: float
    """Median time from one job of a campaign to the next [s]."""
    gap_spread: float
    """Standard deviation of the logarithm of that time."""
    rate_spread: float
    """Standard deviation of the logarithm of the number of campaigns that begin in an hour, beyond
    the effect of hour and weekday."""

    @classmethod
    def of(cls, values: Mapping[str, Any] | None) -> Self | None:
        """From a calibration; None: every job is a separate campaign. Raises `ValueError`."""
        if values is None:
            return None
        made = cls(**{**values, "most": int(values["most"])})
        for name in ("tail", "most", "gap_s"):
            if not getattr(made, name) > 0:
                raise ValueError(f"campaigns.{name} is not above 0")
        if (
            not 0 <= made.alike <= 1
            or made.spread < 0
            or min(made.gap_spread, made.rate_spread) < 0
        ):
            raise ValueError("campaigns: alike is a share, spreads are not negative")
        return made

    def sizes(self, jobs: int, rng: np.random.Generator) -> Integers:
        """Jobs of each campaign, `jobs` together."""
        numbers = np.arange(1, min(self.most, jobs) + 1)
        shares = numbers**-self.tail
        shares /= shares.sum()
        mean = float(numbers @ shares)
        drawn: Integers = rng.choice(numbers, int(2 * jobs / mean) + 10, p=shares)
        while drawn.sum() < jobs:
            drawn = np.concatenate([drawn, drawn])
        ends = np.searchsorted(np.cumsum(drawn), jobs)
        drawn = drawn[: ends + 1].copy()
        drawn[-1] -= drawn.sum() - jobs
        return drawn

    def times(
        self, begun: Floats, sizes: Integers, rng: np.random.Generator
    ) -> tuple[Floats, Integers]:
        """Submission times [whole s] of all jobs, ascending, and the campaign of each.

        One campaign begins at each of `begun`; those that reach beyond the end continue at the
        start.
        """
        of = np.repeat(rng.permutation(len(sizes)), sizes)
        gaps = self.gap_s * np.exp(rng.normal(0.0, self.gap_spread, len(of)))
        starts = np.cumsum(sizes) - sizes
        gaps[starts] = 0.0
        total = np.cumsum(gaps)
        since = total - np.repeat(total[starts], sizes)
        first = begun[0]
        later = (begun[of] - first + since) % (begun[-1] - first + 1)
        order = np.argsort(later, kind="stable")
        return np.floor(first + later[order]), of[order]

    def latent(self, of: Integers, rng: np.random.Generator) -> Floats:
        """A standard normal number for each job, by its campaign: similar jobs have close ones."""
        count = len(of)
        middle = rng.standard_normal(int(of.max()) + 1)[of]
        close = middle + self.spread * rng.standard_normal(count)
        alike = rng.random(count) < self.alike
        drawn: Floats = np.where(alike, close, rng.standard_normal(count))
        return drawn


def ranked(values: Floats, like: Floats) -> Floats:
    """The same values in the order of others: the n-th smallest where those have theirs."""
    placed = np.empty_like(values)
    placed[np.argsort(like, kind="stable")] = np.sort(values)
    return placed


# Recipes and calibrations by name: bundled ones, or a YAML file.


T = TypeVar("T")
TRACES = Path(__file__).parent


@cache
def bundled_names(folder: str) -> tuple[str, ...]:
    """The YAML files of a folder here, without their ending."""
    return tuple(sorted(path.stem for path in (TRACES / folder).glob("*.yaml")))


def choose_bundled(what: str, folder: str, name: str, make: Callable[[str, Any], T]) -> T:
    """`make(name, document)` for the bundled document `name`, or for a file.

    Bundled are the YAML files of a folder here; `what` is one of them in words. Raises `UsageError`
    for neither, `InputError` for an invalid file.
    """
    path = TRACES / folder / f"{name}.yaml" if name in bundled_names(folder) else Path(name)
    try:
        text = read_text(path, most=MOST_SETTINGS)
    except (OSError, UnicodeDecodeError):
        bundled = bundled_names(folder)
        hint = did_you_mean(name, bundled) or similar_file(name) or "."
        raise UsageError(
            f"no {what} {name!r}; there are {', '.join(bundled)}, or a YAML file of your own with "
            f"the same keys{hint}"
        ) from None
    try:
        return make(path.stem, parse_document(text, path))
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{name} is not a {what}: {type(error).__name__} {reason}; see docs/traces.md."
        ) from None


# Published figures of a cluster, and how well a drawn trace meets them.


CALIBRATIONS = "calibrations"


@dataclass(frozen=True)
class Calibration:
    """The contents of a file in calibrations/."""

    name: str
    title: str
    targets: Mapping[str, Any]
    """Published; times in seconds, GPU time in GPU seconds, states as shares."""
    nodes: int
    gpus_of_a_node: int
    vcs: Mapping[str, int]
    """GPUs of each virtual cluster; empty: there are none."""
    assumed: Mapping[str, Any]
    """Unpublished parameters: the shapes of arrivals and GPU demand."""
    campaigns: Campaigns | None
    """How submissions cluster and repeat; None: each job is drawn by itself."""

    @property
    def cluster(self) -> str:
        """The cluster as `simulate --cluster` takes it."""
        size = self.gpus_of_a_node
        if not self.vcs:
            return f"{self.nodes}x{size}"
        return ",".join(f"{gpus // size}x{size}@{vc}" for vc, gpus in self.vcs.items())

    @classmethod
    def read(cls, name: str) -> Calibration:
        """The bundled calibration called `name`, or the YAML file of that path.

        Raises `UsageError` for neither, `InputError` for a file that is none.
        """
        return choose_bundled("calibration", CALIBRATIONS, name, cls._of)

    @classmethod
    def _of(cls, name: str, document: Any) -> Calibration:
        cluster, targets = document["cluster"], document["targets"]
        vcs = {str(vc): int(gpus) for vc, gpus in cluster.get("vcs", {}).items()}
        size = int(cluster["gpus_of_a_node"])
        nodes = int(cluster.get("nodes", 0)) or sum(vcs.values()) // size
        for key in ("jobs", "days", "median_s", "mean_s", "max_s", "mean_gpus"):
            if not float(targets[key]) > 0:
                raise ValueError(f"targets.{key} is not above 0")
        for key in ("start", "hours", "weekdays", "shares", "sizes", "recipe"):
            document["assumed"][key]
        title = str(document.get("title", name))
        campaigns = Campaigns.of(document["assumed"].get("campaigns"))
        return cls(name, title, targets, nodes, size, vcs, document["assumed"], campaigns)


@dataclass(frozen=True)
class Match:
    """A published figure and that of a drawn trace."""

    target: str
    published: float
    drawn: float

    @property
    def off(self) -> float:
        """Difference of the drawn from the published figure, relative to the published one."""
        return self.drawn / self.published - 1 if self.published else 0.0


def matches(workload: Workload, calibration: Calibration) -> list[Match]:
    """How well a trace meets each target; GPU time is per job, as it may have fewer jobs."""
    targets = calibration.targets
    facts = trace_facts(workload)
    gpus_held = [job.gpus * job.share for job in workload.jobs]
    times = [gpus * length for gpus, length in zip(gpus_held, workload.duration_s, strict=True)]
    rows = [
        Match("jobs a day", targets["jobs"] / targets["days"], _rate(workload, calibration)),
        Match("median duration [s]", targets["median_s"], facts["median_s"]),
        Match("mean duration [s]", targets["mean_s"], facts["mean_s"]),
        Match("longest [s], at most", targets["max_s"], facts["max_s"]),
        Match("mean GPUs", targets["mean_gpus"], facts["mean_gpus"]),
    ]
    if "median_gpus" in targets:
        rows.append(Match("median GPUs", targets["median_gpus"], statistics.median(gpus_held)))
    total = sum(times)
    if "gpu_s" in targets:
        each = targets["gpu_s"] / targets["jobs"]
        rows.append(Match("GPU time a job [GPU s]", each, total / len(times)))
    for state, share in targets.get("states", {}).items():
        drawn = workload.states.count(state) / len(workload)
        rows.append(Match(f"{state.lower()}, share of jobs", share, drawn))
    for state, share in targets.get("gpu_time", {}).items():
        part = sum(time for time, one in zip(times, workload.states, strict=True) if one == state)
        rows.append(Match(f"{state.lower()}, share of GPU time", share, part / total))
    return rows


def calibrations() -> tuple[str, ...]:
    """Names of the bundled calibrations."""
    return bundled_names(CALIBRATIONS)


def _rate(workload: Workload, calibration: Calibration) -> float:
    """Jobs per day, over whole days of the calibration's length if that was drawn."""
    span = workload.jobs[-1].submit_time - workload.jobs[0].submit_time
    return len(workload) / max(span, 1.0) * 86_400
