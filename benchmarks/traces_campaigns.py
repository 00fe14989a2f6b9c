"""Are synthetic Venus jobs like real ones, beyond the published figures?

    python benchmarks/traces_campaigns.py --data DATA

DATA has helios/venus_jobs.csv.gz, all GPU jobs of Helios Venus. Sizes and campaigns of the
calibration (docs/traces.md) were fitted to the first half of them; what counts is the second. The
column `each by itself` is what was drawn before there were campaigns: every job by itself, sizes of
round figures.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from _record import record
from _seeds import venus

from schedmate.schedulers.sim.traces.recipe import Calibration
from schedmate.schedulers.sim.traces.synthesize import synthesize
from schedmate.schedulers.sim.workload import Workload

SEEDS = range(5)
SIZES = {2: 0.2, 4: 0.25, 8: 0.4, 16: 0.08, 32: 0.05, 64: 0.02}


def likeness(work: Workload) -> dict[str, float]:
    """What tells jobs that were submitted from jobs that were drawn."""
    at = np.array([job.submit_time for job in work.jobs])
    logs = np.log(np.maximum(work.duration_s, 1.0))
    gpus = np.array([job.gpus for job in work.jobs])
    hours = np.bincount(((at - at[0]) // 3600).astype(int)).astype(float)

    def correlation(lag: int) -> float:
        return float(np.corrcoef(logs[:-lag], logs[lag:])[0, 1])

    def within(lag: int) -> float:
        return float((abs(np.expm1(logs[lag:] - logs[:-lag])) <= 0.1).mean())

    return {
        "log run time, correlation with the job before": correlation(1),
        "with the 10th before": correlation(10),
        "with the 50th before": correlation(50),
        "next run time within 10 %": within(1),
        "the 5th next": within(5),
        "the 50th next": within(50),
        "next asks for as many GPUs": float((gpus[1:] == gpus[:-1]).mean()),
        "submissions an hour, variation": float(hours.std() / hours.mean()),
        "of one hour with the next, correlation": float(np.corrcoef(hours[1:], hours[:-1])[0, 1]),
        "median time to the next [s]": float(np.median(np.diff(at))),
        "next within 5 s": float((np.diff(at) <= 5).mean()),
        "same second": float((np.diff(at) < 1).mean()),
        "single GPU": float((gpus == 1).mean()),
        "8 GPUs": float((gpus == 8).mean()),
        "64 GPUs": float((gpus == 64).mean()),
    }


def main() -> None:
    """A row a figure: both real halves, drawn one by one, drawn in campaigns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    real = venus(parser.parse_args().data)
    half = len(real) // 2
    now = Calibration.read("venus")
    before = replace(
        now, campaigns=None, assumed={**now.assumed, "shares": {1: 0.55}, "sizes": SIZES}
    )
    columns = {
        "real, first half": [likeness(real.select(range(half)))],
        "real, second half": [likeness(real.select(range(half, len(real))))],
        "each by itself": [likeness(synthesize(before, half, seed)) for seed in SEEDS],
        "in campaigns": [likeness(synthesize(now, half, seed)) for seed in SEEDS],
    }
    record(
        "traces_campaigns",
        [
            {"figure": figure}
            | {name: _shown([one[figure] for one in found]) for name, found in columns.items()}
            for figure in columns["in campaigns"][0]
        ],
        real=f"Helios Venus, {len(real):,} GPU jobs",
        synthetic=f"{half:,} jobs, seeds 0 to {len(SEEDS) - 1}, with half the range",
    )


def _shown(values: list[float]) -> str:
    middle, wide = float(np.mean(values)), float(np.ptp(values)) / 2
    form = ".0f" if middle >= 10 else ".3f"
    return f"{middle:{form}}" + (f" ± {wide:{form}}" if len(values) > 1 else "")


if __name__ == "__main__":
    main()
