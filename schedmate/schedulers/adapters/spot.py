"""SpotGPU with SchedMate: what jobs have left to do decides what the published rules cannot."""

from __future__ import annotations

from typing import Any, ClassVar

from schedmate.schedulers.adapters.modules import WithSchedMate
from schedmate.schedulers.policies.spot import Spot


class SpotWithSchedMate(WithSchedMate, Spot):
    """SpotGPU with SchedMate: remaining times decide evictions, windows and the order of spot jobs.

    Ours: `policies/spot/knowing.py`.
    """

    name: ClassVar[str] = "spot+schedmate"

    def __init__(
        self,
        victims: str = "remaining",
        windows: str = "worth",
        shortest: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(victims=victims, windows=windows, shortest=shortest, **settings)
