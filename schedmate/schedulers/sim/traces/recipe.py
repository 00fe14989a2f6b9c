"""Recipes: the distribution of models, datasets and batch sizes over the jobs of a trace."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any, Self

from schedmate.errors import InputError, UsageError
from schedmate.schedulers.sim.traces.bundled import choose, names

FOLDER = "recipes"
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
        return choose("recipe", FOLDER, name, cls)

    def shares(self, gpus: int, hours: float) -> tuple[float, ...]:
        """The share of each of `WEIGHTS` among workloads of this size."""
        for one in self._classes:
            if gpus >= one.get("gpus", 1 << 30) or hours >= one.get("hours", float("inf")):
                return tuple(float(one[weight]) for weight in WEIGHTS)
        raise InputError(f"recipe {self.name} has no class for {gpus} GPUs and {hours:g} h.")

    @property
    def models(self) -> tuple[tuple[str, str, str], ...]:
        """Model, task and training set of each type."""
        found = [
            (choice.model, choice.task, choice.train)
            for types in self._choices.values()
            for choices in types
            for choice in choices
        ]
        return tuple(dict.fromkeys(found))

    def draw(self, gpus: int, hours: float, random: tuple[float, float, float]) -> Choice:
        """A type for a workload of this size, from three numbers in [0, 1)."""
        shares = list(accumulate(self.shares(gpus, hours)))
        types = self._choices[WEIGHTS[bisect_right(shares, random[0] * shares[-1])]]
        choices = types[int(random[1] * len(types))]
        return choices[int(random[2] * len(choices))]


def recipes() -> tuple[str, ...]:
    """Names of the bundled recipes."""
    return names(FOLDER)


def parse(text: str) -> tuple[Recipe, Settings]:
    """A recipe and its settings from `lucid` or `lucid:recurrence=0.8,spread=0.2`.

    Raises `UsageError` for an unknown recipe or setting.
    """
    name, _, rest = text.partition(":")
    known: dict[str, Any] = {one.name: one.default for one in fields(Settings)}
    values: dict[str, Any] = {}
    for part in filter(None, rest.replace(";", ",").split(",")):
        key, _, value = part.partition("=")
        key = key.strip()
        try:
            values[key] = type(known[key])(value)
        except (KeyError, ValueError):
            raise UsageError(
                f"workloads {text!r}: {part!r} is not a setting; there are "
                f"{', '.join(f'{key}={default}' for key, default in known.items())}."
            ) from None
    return Recipe.read(name), Settings(**values)


def _choices(entry: Mapping[str, Any], factors: Mapping[str, float]) -> list[Choice]:
    precisions = {"both": (False, True), "always": (True,), "never": (False,)}[entry["amp"]]
    columns = ("batch_sizes", "gpu_util", "memory_util", "memory_mb", "step_ms")
    found = []
    for batch, *numbers in zip(*(entry[column] for column in columns), strict=True):
        for amp in precisions:
            scale = factors if amp and entry["amp"] == "both" else {}
            used = [
                number * scale.get(column, 1.0)
                for column, number in zip(columns[1:], numbers, strict=True)
            ]
            found += [
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
    if not found:
        raise ValueError(f"{entry['model']} has no batch size or learning rate")
    return found
