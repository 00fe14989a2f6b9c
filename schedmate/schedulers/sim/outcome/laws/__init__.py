"""Conservation laws of rare events, one module for each concept; see `outcome.audit` for the rest.

Each is checked from the record alone, independently of the engine.
"""

from __future__ import annotations

from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.engine.record import Outcome
from schedmate.schedulers.sim.outcome.laws.broken import LawBrokenError
from schedmate.schedulers.sim.outcome.laws.constraints import check_constraints
from schedmate.schedulers.sim.outcome.laws.endings import check_endings
from schedmate.schedulers.sim.outcome.laws.evictions import check_evictions
from schedmate.schedulers.sim.outcome.laws.loans import check_loans
from schedmate.schedulers.sim.outcome.laws.moves import check_moves
from schedmate.schedulers.sim.outcome.laws.outages import check_outages
from schedmate.schedulers.sim.workload import Workload

__all__ = ["LawBrokenError", "check_laws"]


def check_laws(workload: Workload, cluster: Cluster, outcome: Outcome) -> None:
    """Check all of them. Raises `LawBrokenError`."""
    check_constraints(workload, cluster, outcome)
    check_endings(workload, outcome)
    check_evictions(workload, outcome)
    check_loans(workload, cluster, outcome)
    check_moves(workload, outcome)
    check_outages(cluster, outcome)
