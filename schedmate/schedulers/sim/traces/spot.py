"""Streams of high-priority and spot jobs after the ASI paper; `spot.yaml` has every number.

Half of the GPUs of HP jobs belong to services that stay and lend GPUs at night (Standby); the other
HP jobs and all spot jobs come and go. That HP jobs hold 68 % of the GPUs on average is an input;
the share of spot jobs is an output of the policy.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from schedmate.base.data import parse_yaml
from schedmate.base.errors import UsageError
from schedmate.schedulers.model import Cluster, Constraints, Job, Node, Terms
from schedmate.schedulers.sim.workload import Workload

HOUR, DAY = 3600.0, 86_400.0
LEAST_NODES = 16
_NORMAL_P90 = 1.2815515655446004


class Streams(NamedTuple):
    """The jobs, and the cluster that they were drawn for."""

    workload: Workload
    cluster: Cluster


@cache
def calibration() -> dict[str, Any]:
    """The figures of `spot.yaml`, by section."""
    document: dict[str, Any] = parse_yaml(
        Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    )
    return document


def sources() -> list[tuple[str, Any, str]]:
    """Each number with the sentence or figure that it comes from."""
    rows: list[tuple[str, Any, str]] = []

    def walk(name: str, one: Any) -> None:
        if isinstance(one, dict) and "from" in one:
            rows.append((name, one["value"], " ".join(str(one["from"]).split())))
        elif isinstance(one, dict):
            for key, value in one.items():
                if isinstance(value, dict):
                    walk(f"{name}.{key}" if name else str(key), value)

    walk("", calibration())
    rows.append(("sizes", calibration()["sizes"], calibration()["sizes_from"]))
    return rows


def draw(nodes: int, days: float | None = None, seed: int = 0, lp: float | None = None) -> Streams:
    """Draw jobs of both classes for a cluster of this many nodes; deterministic.

    `lp`: GPUs that spot jobs would use, as a share of all GPUs. Raises `UsageError` for too few
    nodes or days.
    """
    if nodes < LEAST_NODES:
        raise UsageError(f"--nodes {nodes}: streams of both classes need {LEAST_NODES} or more.")
    days = float(calibration()["days"]["value"]) if days is None else days
    if days < 1:
        raise UsageError(f"--days {days:g}: nights need a day or more.")
    maker = _Maker(nodes, days, seed)
    maker.services()
    maker.stream("hp", _hp("allocated") * (1 - _hp("services")))
    maker.stream("lp", float(_of("lp", "offered")) if lp is None else lp)
    return maker.draw()


def _of(part: str, name: str) -> Any:
    return calibration()[part][name]["value"]


def _hp(name: str) -> float:
    return float(_of("hp", name))


class _Maker:
    def __init__(self, nodes: int, days: float, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._seed, self._end = seed, days * DAY
        self._rows: list[dict[str, Any]] = []
        of_node = int(_of("cluster", "gpus_of_a_node"))
        shares = _of("cluster", "types")
        self._types = list(shares)
        counts = [max(1, round(nodes * share)) for share in shares.values()]
        counts[0] += nodes - sum(counts)
        self._gpus = {kind: of_node * n for kind, n in zip(self._types, counts, strict=True)}
        self._total = of_node * nodes
        under = int(_of("cluster", "switch_nodes"))
        self._nodes = tuple(
            Node(f"{kind}-{n}", of_node, kind, switch=f"{kind}/{n // under}")
            for kind, count in zip(self._types, counts, strict=True)
            for n in range(count)
        )

    def services(self) -> None:
        """HP jobs that run from the beginning to the end, and their Standby windows."""
        for gpu_type, gpus in self._gpus.items():
            wanted = gpus * _hp("allocated") * _hp("services")
            lent = gpus * float(calibration()["standby"]["peak"]["value"])
            while wanted > 0:
                row = self._job("hp", 0.0, self._end, gpu_type)
                if row["gpus"] > max(wanted, 1.0):
                    self._rows.pop()  # one that is small enough comes soon
                    continue
                wanted -= row["gpus"]
                # This number lends at the peak if all windows are open at once.
                if lent > 0 and row["gpus"] <= _of("cluster", "gpus_of_a_node"):
                    lent -= row["gpus"]
                    row["standby"] = self._windows()

    def stream(self, kind: str, share: float) -> None:
        """Jobs of one class that use this share of the GPUs on average, once they all run."""
        for gpu_type in self._types:
            self._stream(kind, share, gpu_type)

    def _stream(self, kind: str, share: float, gpu_type: str) -> None:
        median_s, p90_s = (float(_of(kind, name)) * HOUR for name in ("median_h", "p90_h"))
        sigma = math.log(p90_s / median_s) / _NORMAL_P90
        within = float(_of("lp", "spread")) if kind == "lp" else 0.0
        users = int(_of("lp", "users")) if kind == "lp" else 0
        # Each user has one kind of job: the spread between them and within make up the whole.
        between = math.sqrt(max(sigma**2 - within**2, 0.0))
        medians = median_s * np.exp(between * self._rng.standard_normal(max(users, 1)))
        sizes, weights = self._sizes(self._gpus[gpu_type])
        mean_gpus = float((sizes * weights).sum())
        mean_s = median_s * math.exp(sigma**2 / 2)
        if users:
            mean_s = float(medians.mean()) * math.exp(within**2 / 2)
        rate = share * self._gpus[gpu_type] / (mean_gpus * mean_s)
        # Jobs that a stream without beginning would have at time 0 are all submitted then.
        begun = int(self._rng.poisson(rate * mean_s))
        arrivals = [0.0] * begun + self._arrivals(kind, rate)
        for at in arrivals:
            user = int(self._rng.integers(users)) if users else -1
            if users:
                length = medians[user] * math.exp(within * self._rng.standard_normal())
            else:
                length = median_s * math.exp(sigma * self._rng.standard_normal())
            if at == 0.0:
                # What remains of a job that began earlier: long jobs are met more often.
                length *= math.exp(sigma**2 * (within == 0.0)) * float(self._rng.random())
            row = self._job(kind, at, max(60.0, round(float(length))), gpu_type)
            row["user"] = f"{gpu_type}-user{user}" if users else ""

    def _arrivals(self, kind: str, rate: float) -> list[float]:
        swing = float(_of(kind, "swing"))
        weekend = float(calibration()[kind].get("weekend", {"value": 1.0})["value"])
        scale = 7.0 / (5.0 + 2.0 * weekend)
        peak = _hp("peak_hour") * HOUR
        most = rate * (1 + swing) * max(1.0, scale)
        times, at = list[float](), 0.0
        while True:
            at += float(self._rng.exponential(1.0 / most))
            if at >= self._end:
                return times
            shape = 1 + swing * math.cos(2 * math.pi * (at - peak) / DAY)
            if kind == "lp":
                shape *= scale * (weekend if at // DAY % 7 >= 5 else 1.0)
            if self._rng.random() < rate * shape / most:
                times.append(round(at, 3))

    def _job(self, kind: str, at: float, length_s: float, gpu_type: str) -> dict[str, Any]:
        rng = self._rng
        sizes, weights = self._sizes(self._gpus[gpu_type])
        gpus = int(rng.choice(sizes, p=weights))
        row: dict[str, Any] = {"kind": kind, "at": at, "s": length_s, "gpus": gpus}
        row["type"] = gpu_type
        row["tenant"] = f"tenant{min(int(rng.geometric(0.35)), self._tenants()) - 1}"
        if kind == "lp":
            every = _of("lp", "checkpoints_s")
            shares = np.array(list(every.values()), float)
            row["checkpoint"] = float(rng.choice(np.array(list(every), float), p=shares))
            row["saves"] = bool(rng.random() < float(_of("lp", "saves")))
        self._rows.append(row)
        return row

    def _tenants(self) -> int:
        return int(calibration()["tenants"]["value"])

    def _sizes(self, gpus: int) -> tuple[Any, Any]:
        most = max(8.0, gpus * float(calibration()["most"]["value"]))
        shares = {size: one for size, one in calibration()["sizes"].items() if size <= most}
        weights = np.array(list(shares.values()), float)
        return np.array(list(shares)), weights / weights.sum()

    def _windows(self) -> list[tuple[float, float]]:
        begins, lasts = (
            calibration()["standby"][name]["value"] for name in ("begins_h", "lasts_h")
        )
        windows = []
        for day in range(int(self._end // DAY)):
            start = day * DAY + float(self._rng.uniform(*begins)) * HOUR
            end = min(start + float(self._rng.uniform(*lasts)) * HOUR, self._end - 1.0)
            if end > start:
                windows.append((round(start, 1), round(end, 1)))
        return windows

    def draw(self) -> Streams:
        rows = sorted(self._rows, key=lambda row: row["at"])
        jobs, standby, gpu_s_of = [], dict[int, list[tuple[float, float]]](), dict[str, float]()
        gang = int(calibration()["gang"]["value"])
        for index, row in enumerate(rows):
            low = row["kind"] == "lp"
            pods = row["gpus"] // gang if row["gpus"] > gang else 0
            if not low:
                ran = min(row["s"], self._end - row["at"]) * row["gpus"]
                gpu_s_of[row["tenant"]] = gpu_s_of.get(row["tenant"], 0.0) + ran
            jobs.append(
                Job(
                    f"{row['kind']}{index}",
                    index,
                    row["at"],
                    row["gpus"],
                    user=row.get("user", ""),
                    gpu_type=row["type"],
                    constraints=Constraints(pods=pods) if pods else None,
                    terms=Terms(
                        low,
                        checkpoint_s=row.get("checkpoint"),
                        saves=row.get("saves", False),
                        tenant=row["tenant"],
                    ),
                )
            )
            if "standby" in row:
                standby[index] = row["standby"]
        factor = float(calibration()["quota"]["value"])
        quotas = tuple(
            (tenant, max(math.ceil(factor * gpu_s / self._end), 64))
            for tenant, gpu_s in sorted(gpu_s_of.items())
        )
        workload = Workload(
            "asi-spot",
            jobs,
            [float(row["s"]) for row in rows],
            [None] * len(rows),
            standby=standby,
            made_up=(f"HP and LP jobs after the ASI paper, seed {self._seed}",),
        )
        return Streams(workload, Cluster(self._nodes, quotas))
