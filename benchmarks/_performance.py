"""Throughput of a model by GPU type and number of GPUs, for schedulers to choose from.

With adaptive parallelism the best proxy plan counts (Arena, section 3.5); schedulers that know only
data parallelism see one stage that is copied to every GPU (section 5.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from schedmate.base.errors import InputError
from schedmate.schedulers.parallelism.models import ModelSpec
from schedmate.schedulers.parallelism.network import Network
from schedmate.schedulers.parallelism.plan import Plan, Stage
from schedmate.schedulers.parallelism.planner import Planner, PlanRequest
from schedmate.schedulers.parallelism.predict import Prediction

MOST_STAGES = 8
"""Grids with more stages are not profiled: their proxy plans are seldom the fastest."""


class ModelJob(NamedTuple):
    """The properties of a job that determine its throughput."""

    spec: ModelSpec
    batch: int
    sequence: int
    precision: str


Speeds = dict[tuple[str, int], float]


@dataclass
class Performance:
    """Throughputs on one cluster, each worked out once."""

    network: Network
    types: dict[str, int]
    """GPUs of a node by GPU type."""
    most: int = 16
    """Most GPUs of one job."""
    _adaptive: dict[ModelJob, Speeds] = field(default_factory=dict)
    _parallel: dict[ModelJob, Speeds] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.planner = Planner(self.network)

    def known(self) -> dict[tuple[str, ModelJob], Speeds]:
        """The results so far, to be cached."""
        return {
            (how, kind): speeds
            for how, table in (("adaptive", self._adaptive), ("parallel", self._parallel))
            for kind, speeds in table.items()
        }

    def adopt(self, stored: Mapping[tuple[str, ModelJob], Speeds]) -> None:
        """Load stored results for the same cluster."""
        for (how, kind), speeds in stored.items():
            (self._adaptive if how == "adaptive" else self._parallel)[kind] = speeds

    def adaptive(self, kind: ModelJob) -> Speeds:
        """Throughput [samples/s] of the best plan by (GPU type, GPUs), where the model fits."""
        if kind not in self._adaptive:
            speeds: Speeds = {}
            for gpu, gpus in self._sizes():
                try:
                    planned = self.planner.plan(self._request(kind, gpu, gpus), MOST_STAGES)
                except InputError:
                    continue
                speeds[gpu, gpus] = planned.best.proxy.samples_per_s
            self._adaptive[kind] = speeds
        return self._adaptive[kind]

    def data_parallel(self, kind: ModelJob) -> Speeds:
        """Throughput [samples/s] with the whole model on every GPU, if it fits."""
        if kind not in self._parallel:
            speeds: Speeds = {}
            for gpu, gpus in self._sizes():
                prediction = self._copied(kind, gpu, gpus)
                if prediction is not None and prediction.fits:
                    speeds[gpu, gpus] = prediction.samples_per_s
            self._parallel[kind] = speeds
        return self._parallel[kind]

    def _sizes(self) -> list[tuple[str, int]]:
        powers = [1 << power for power in range(self.most.bit_length()) if 1 << power <= self.most]
        return [(gpu, gpus) for gpu in self.types for gpus in powers]

    def _request(self, kind: ModelJob, gpu: str, gpus: int) -> PlanRequest:
        return PlanRequest(
            kind.spec, gpu, gpus, self.types[gpu], kind.batch, kind.sequence, kind.precision
        )

    def _copied(self, kind: ModelJob, gpu: str, gpus: int) -> Prediction | None:
        """The prediction of data parallelism with the largest micro-batch that fits."""
        if kind.batch % gpus:
            return None
        share = kind.batch // gpus
        best = None
        micro_batch = 1
        while micro_batch <= share and share % micro_batch == 0:
            plan = Plan(
                model=kind.spec.name,
                gpus_per_node=self.types[gpu],
                global_batch=kind.batch,
                micro_batch=micro_batch,
                sequence=kind.sequence,
                precision=kind.precision,
                stages=(Stage(layers=kind.spec.layers, data=gpus, gpu_type=gpu),),
            )
            prediction = self.planner.predictor.predict(plan)
            if not prediction.fits:
                break
            best = prediction
            micro_batch *= 2
        return best
