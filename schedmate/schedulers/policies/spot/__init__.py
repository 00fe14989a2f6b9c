"""SpotGPU (ASI paper, section 4.2): spot jobs on what jobs of high priority leave idle."""

from schedmate.schedulers.policies.spot.policy import Spot

__all__ = ["Spot"]
