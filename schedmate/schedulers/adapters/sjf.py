"""SchedMate as a scheduler of its own: shortest job first by the advisor's estimates, failed jobs
restarted by the handler (SchedMate paper, section 4.3)."""

from __future__ import annotations

from typing import Any, ClassVar

from schedmate.schedulers.adapters.modules import WithSchedMate
from schedmate.schedulers.policies.queues import Qssf, Sjf


class SjfWithSchedMate(WithSchedMate, Sjf):
    """Shortest job first with SchedMate: its estimates and its restarts.

    `backfill` is on, because one large job taken for a short one otherwise holds up the cluster.
    """

    name: ClassVar[str] = "sjf+schedmate"

    def __init__(self, backfill: bool = True, **settings: Any) -> None:
        super().__init__(backfill=backfill, **settings)


class QssfWithSchedMate(WithSchedMate, Qssf):
    """Least GPU time first with SchedMate: its estimates and its restarts."""

    name: ClassVar[str] = "qssf+schedmate"

    def __init__(self, backfill: bool = True, **settings: Any) -> None:
        super().__init__(backfill=backfill, **settings)
