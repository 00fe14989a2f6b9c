"""How long jobs take to end after the signal."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

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
