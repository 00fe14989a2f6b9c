"""What things cost in a simulation besides the work itself; every number has its source."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol

from schedmate.base.data import load
from schedmate.base.errors import UsageError, reason_of
from schedmate.base.reading import MOST_RECORDS, bounded_rows, open_text
from schedmate.schedulers.model import Profile
from schedmate.schedulers.sim.starts import StartDelays

_P95 = 1.6448536269514722
"""The 95th percentile of the standard normal distribution."""


@dataclass(frozen=True)
class Shutdown:
    """Log-normal times from the notice to the exit.

    Alibaba's SpotGPU measured a mean of 13 s and a 95th percentile of 48 s between SIGTERM and the
    exit of evicted containers, which are killed after 60 s (ASI paper, section 4.2).
    """

    mean_s: float = 13.0
    """[s]"""
    p95_s: float = 48.0
    """[s]"""

    def takes_s(self, job: str, count: int) -> float:
        """Time that the job with this id takes to stop on its `count`-th request."""
        # mean = exp(mu + sigma^2 / 2) and p95 = exp(mu + 1.645 sigma); the smaller root.
        sigma = _P95 - math.sqrt(max(_P95**2 - 2 * math.log(self.p95_s / self.mean_s), 0.0))
        mu = math.log(self.mean_s) - sigma**2 / 2
        draw = random.Random(f"shutdown/{job}/{count}")  # noqa: S311 - an experiment
        return math.exp(draw.gauss(mu, sigma))


def read_settings(
    kind: type[Any], option: str, text: str, most: Mapping[str, float], limits: str
) -> dict[str, float]:
    """The numbers in `one=0.27,other=3`, each from 0 to its `most`; `limits` says that in words.

    Raises `UsageError` for anything else, with the defaults of the dataclass `kind`.
    """
    values = {}
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        try:
            values[key] = float(value)
            if not 0.0 <= values[key] <= most[key]:
                raise ValueError(key)
        except (KeyError, ValueError):
            settings = ", ".join(f"{one.name}={one.default:g}" for one in fields(kind))
            raise UsageError(
                f"{option}: {part!r} is not a setting; there are {settings} ({limits})."
            ) from None
    return values


# What jobs lose that do not fit under one access switch.


@dataclass(frozen=True)
class Spanning:
    """Communication takes longer across access switches; off by default.

    Placement under one switch improves the bandwidth of all-reduce by 27 % relative to placement
    across switches (ASI paper, section 4.1), so the same bytes take 1.27 times as long across them.
    """

    longer: float = 0.27
    """By what part communication takes longer across switches than under one."""
    communication: float = 0.2
    """Share of a job's time under one switch spent in communication, if the trace has no column
    `communication`: an assumption."""

    @classmethod
    def parse(cls, text: str) -> Spanning:
        """From `longer=0.27,communication=0.3`, defaults for the rest. Raises `UsageError`."""
        most = {"longer": 100.0, "communication": 1.0}
        return cls(**read_settings(cls, "--cross-switch", text, most, "communication from 0 to 1"))

    def speed(self, communication: float | None) -> float:
        """Speed of a job across switches, as part of its speed under one."""
        part = self.communication if communication is None else communication
        return 1.0 / (1.0 + self.longer * min(max(part, 0.0), 1.0))


# Costs besides the work itself; every number has its source.


class Interference(Protocol):
    """How two jobs on the same GPUs slow each other down."""

    def speeds(
        self, first: Profile | None, second: Profile | None, configs: tuple[str, str]
    ) -> tuple[float, float]:
        """Speed of each, as part of its speed alone."""
        ...


@dataclass(frozen=True)
class UtilisationCurve:
    """Mean speed = 1 - loss x (summed GPU utilisation / 100 %) ^ power, the same for both.

    Our fit through two points that the Lucid paper publishes (section 2.3): 0.92 at a sum of
    100 % (Figure 2a), and nearly 40 % lost when two heavy jobs share a GPU (Figure 3a, taken as a
    sum of 200 %). A job of unknown utilisation counts as 100 %.
    """

    loss: float = 0.08
    power: float = 2.32

    def speeds(
        self, first: Profile | None, second: Profile | None, configs: tuple[str, str]
    ) -> tuple[float, float]:
        total = sum(100.0 if one is None else one.gpu_util for one in (first, second))
        speed = max(0.1, 1.0 - self.loss * (total / 100.0) ** self.power)
        return speed, speed


_CONFIG = ("model", "dataset", "batchsize", "amp")


@dataclass
class ColocationTable:
    """Measured pairs from a file, and `otherwise` for those it lacks.

    `harmless`: models whose every pair is taken as free of interference, a liberty of the
    published Lucid simulator that only the published mode takes.
    """

    pairs: dict[tuple[str, str], tuple[float, float]]
    otherwise: Interference = field(default_factory=UtilisationCurve)
    harmless: frozenset[str] = frozenset()

    def speeds(
        self, first: Profile | None, second: Profile | None, configs: tuple[str, str]
    ) -> tuple[float, float]:
        if self.harmless and any(one.split("/")[0] in self.harmless for one in configs):
            return 1.0, 1.0
        measured = self.pairs.get(configs)
        return measured if measured is not None else self.otherwise.speeds(first, second, configs)

    @classmethod
    def read(cls, path: Path, harmless: frozenset[str] = frozenset()) -> ColocationTable:
        """From a CSV with model1, dataset1, batchsize1, amp1, speed1 and the same with 2.

        Raises `UsageError` when it is not one.
        """
        import csv

        pairs = {}
        try:
            with open_text(path, newline="") as stream:
                for row in bounded_rows(csv.DictReader(stream), path, MOST_RECORDS):
                    first, second = ("/".join(row[f"{key}{n}"] for key in _CONFIG) for n in (1, 2))
                    measured = (float(row["speed1"]), float(row["speed2"]))
                    if not all(speed > 0 for speed in measured):
                        raise ValueError(f"{row['speed1']}, {row['speed2']} are no speeds")
                    speeds = (min(1.0, measured[0]), min(1.0, measured[1]))
                    pairs[first, second] = speeds
                    pairs[second, first] = speeds[::-1]
                    if first == second:  # The order of the two means nothing.
                        pairs[first, first] = (sum(speeds) / 2,) * 2
        except (OSError, KeyError, TypeError, ValueError, UnicodeError, csv.Error) as error:
            raise UsageError(
                f"{path} is not a colocation table ({reason_of(error)}); see --colocation in "
                "docs/simulator.md."
            ) from None
        return cls(pairs, harmless=harmless)


@dataclass(frozen=True)
class Parameters:
    """The costs. The defaults are the honest mode: everything is paid for."""

    name: str = "honest"
    profiling_is_free: bool = False
    """Profiles are known at submission without time and GPUs, unless the job ends within the limit:
    as in the published Lucid simulator, which profiles before it simulates."""
    profile_error: float = 0.0
    """Mean share by which a profile underestimates the later utilisation, because it is taken while
    the job warms up. SchedMate measured an error of 19.3 % of Lucid's profiler (section 5.4,
    profiles of 100 s); that all of it is underestimation is our reading of its section 4.1."""
    restart_s: float = 62.0
    """Time a job holds its GPUs before it resumes after a preemption, an eviction, a move or a
    resize: 62 s as measured by Tiresias (NSDI'19), quoted by Lucid (section 4.8) [s]."""
    restart_large_s: float = 62.0
    """`restart_s` of jobs of more than eight GPUs [s]."""
    sia_oracle: bool = False
    """As in the published Sia simulator: agents of elastic jobs know the true ratio of the speeds
    of single GPUs and measure immediately, moves between equal nodes are free, and restarts are
    misjudged."""
    report_s: float = 30.0
    """Time for which an elastic job runs in a new configuration before its agent has measured it:
    Pollux (OSDI'21, section 4.1) refits every 30 s [s]."""
    scaling: float = 1.0
    """Speed of an elastic job on n times the requested GPUs is n ^ scaling."""
    interference: Interference = field(default_factory=UtilisationCurve)
    node_mtbf_s: float | None = None
    """Mean time between failures of one node, exponentially distributed; None: no failures [s].
    Llama 3 saw 419 unexpected interruptions in 54 days on 2,048 nodes: 264 days a node."""
    repair_s: float = 3600.0
    """Time for which a failed node is gone: an assumption [s]."""
    checkpoint_s: float = 1800.0
    """Work between two checkpoints of a job whose user did not set it; a failure loses what came
    after the last: an assumption [s]."""
    shutdown: Shutdown = field(default_factory=Shutdown)
    """Time that jobs take to stop on request."""
    reclaim_grace_s: float = 60.0
    """Grace time of a job on borrowed GPUs when their owner reclaims them: SpotGPU kills it after
    60 s (ASI paper, section 4.2) [s]."""
    spanning: Spanning | None = None
    """Slowdown of jobs across access switches; None: none."""
    handover_s: float = 31.0
    """Pause of a job that was started on its new GPUs while it ran on the old ones: half of a
    restart, an assumption [s]."""

    start_delays: StartDelays | None = None
    """Time from the decision to start a job to its first work, as measured; None: none."""
    harmless: frozenset[str] = frozenset()
    """Models whose every measured pair counts as free of interference."""
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings of each policy in this mode, `*` for all that have them; explicit ones take
    precedence."""
    oracles: frozenset[str] = frozenset()
    """Policies that use the true durations in this mode, whatever the estimator."""

    def with_settings(self, settings: Mapping[str, Mapping[str, str]]) -> Parameters:
        """The parameters with these further settings, by policy and name."""
        merged = {name: dict(values) for name, values in self.settings.items()}
        for name, values in settings.items():
            merged.setdefault(name, {}).update(values)
        return replace(self, settings=merged)

    def settings_of(self, policy: str) -> dict[str, str]:
        """The settings in this mode of a policy, which may lack some that all have.

        What holds for `lucid` holds for `lucid+schedmate`.
        """
        family = policy.partition("+")[0]
        return {**self.settings.get("*", {}), **self.settings.get(family, {})}

    def profiled(self, job: str, use: Profile | None) -> Profile | None:
        """The profile that a profiling run of the job of this id shows."""
        if use is None or not self.profile_error:
            return use
        draw = random.Random(f"profile/{job}")  # noqa: S311 - an experiment
        seen = 1.0 - min(draw.uniform(0.0, 2.0 * self.profile_error), 1.0)
        return use._replace(gpu_util=use.gpu_util * seen, memory_util=use.memory_util * seen)

    def restart(self, gpus: int) -> float:
        """Time lost to a restart [s]."""
        return self.restart_s if gpus <= 8 else self.restart_large_s


HONEST = Parameters(settings={"*": {"backfill": "true"}})
"""Everything is paid for, and every policy may let jobs pass one that does not fit."""

LIBERTIES: Mapping[str, Mapping[str, Any]] = load("schedulers/sim/liberties.yaml")
"""Simplifications of the published Lucid simulator: what each is, and the parameters and settings
of policies by which it is taken. The published mode takes all; each can be taken, or left, by
itself (`world`)."""


def _taking(world: Parameters, liberty: Mapping[str, Any]) -> Parameters:
    values: dict[str, Any] = {
        name: frozenset(value) if isinstance(value, list) else value
        for name, value in liberty.get("parameters", {}).items()
    }
    return replace(world, **values).with_settings(liberty.get("settings", {}))


def world(mode: str) -> Parameters:
    """The parameters named `honest` or `published`, or a combination.

    `honest+free-profiling+quota-walk` adds liberties, `published-harmless-pairs` removes one.
    Raises `UsageError` for any other name.
    """
    names = "|".join(LIBERTIES)
    if not (parts := re.fullmatch(rf"(honest|published)((?:[+-](?:{names}))*)", mode)):
        raise UsageError(
            f"--mode {mode!r} is none of honest, published, and these with +NAME or -NAME of "
            f"{', '.join(LIBERTIES)}."
        )
    taken = set(LIBERTIES) if parts[1] == "published" else set()
    for sign, name in re.findall(rf"([+-])({names})", parts[2]):
        (taken.add if sign == "+" else taken.discard)(name)
    parameters = HONEST
    for name, liberty in LIBERTIES.items():
        if name in taken:
            parameters = _taking(parameters, liberty)
    return replace(parameters, name=mode)


PUBLISHED = world("published")
"""As in the published Lucid simulator: all of `LIBERTIES`."""
