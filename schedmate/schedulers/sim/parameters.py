"""What running costs besides the work itself, every number with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from schedmate.errors import UsageError
from schedmate.schedulers.model import Profile


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
        found = self.pairs.get(configs)
        return found if found is not None else self.otherwise.speeds(first, second, configs)

    @classmethod
    def read(cls, path: Path, harmless: frozenset[str] = frozenset()) -> ColocationTable:
        """From a CSV with model1, dataset1, batchsize1, amp1, speed1 and the same with 2.

        Raises `UsageError` when it is not one.
        """
        import csv

        pairs = {}
        try:
            with path.open(encoding="utf-8", newline="") as stream:
                for row in csv.DictReader(stream):
                    one, two = (
                        "/".join(
                            row[f"{key}{n}"] for key in ("model", "dataset", "batchsize", "amp")
                        )
                        for n in (1, 2)
                    )
                    speeds = (min(1.0, float(row["speed1"])), min(1.0, float(row["speed2"])))
                    pairs[one, two] = speeds
                    pairs[two, one] = speeds[::-1]
                    if one == two:  # Which of the two is the first means nothing.
                        pairs[one, one] = (sum(speeds) / 2,) * 2
        except (OSError, KeyError, ValueError, UnicodeError) as error:
            raise UsageError(f"{path} is no colocation table: {error!r}.") from None
        return cls(pairs, harmless=harmless)


@dataclass(frozen=True)
class Parameters:
    """The costs. The defaults are the honest mode: everything is paid for."""

    name: str = "honest"
    profiling_is_free: bool = False
    """Profiles are known at submission, at no time and no GPU, unless the job ends within the
    limit: as in the published Lucid simulator, which profiles before it simulates."""
    restart_s: float = 62.0
    """Time a job holds its GPUs before it goes on after a preemption, an eviction, a move or a
    change of size: 62 s as measured by Tiresias (NSDI'19), quoted by Lucid (section 4.8) [s]."""
    restart_large_s: float = 62.0
    """The same for jobs of more than eight GPUs [s]."""
    scaling: float = 1.0
    """Speed of an elastic job on n times the GPUs asked for is n ^ scaling."""
    interference: Interference = field(default_factory=UtilisationCurve)
    node_mtbf_s: float | None = None
    """Mean time between failures of one node, exponentially distributed; None: no failures [s].
    Llama 3 saw 419 unexpected interruptions in 54 days on 2,048 nodes: 264 days a node."""
    repair_s: float = 3600.0
    """Time for which a failed node is gone: an assumption [s]."""
    checkpoint_s: float = 1800.0
    """Work between two checkpoints; a failure loses what came after the last: an assumption [s]."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """What a policy asked for by its bare name stands for in this mode."""
    oracles: frozenset[str] = frozenset()
    """Policies that are told the true durations in this mode, whatever the estimator."""

    def restart(self, gpus: int) -> float:
        """Time lost to a restart [s]."""
        return self.restart_s if gpus <= 8 else self.restart_large_s


HONEST = Parameters()
PUBLISHED = Parameters(
    "published",
    profiling_is_free=True,
    restart_s=40.0,
    restart_large_s=60.0,
    settings={
        "tiresias": "tiresias:interval_s=60:backfill=false",
        "lucid": "lucid:profile_limit_s=80:profile_gpus=4",
    },
    oracles=frozenset({"sjf", "srtf"}),
)
"""As in the published Lucid simulator: free profiling, its own restart costs, Tiresias in rounds
of a minute, Lucid with its settings for Philly and as the only one with backfill, true durations
for SJF and SRTF."""

HARMLESS = frozenset({"NeuMF", "ResNet50", "BERT", "Transformer"})
"""Models whose every pair the published Lucid simulator takes as free of interference."""

MODES = {"honest": HONEST, "published": PUBLISHED}
