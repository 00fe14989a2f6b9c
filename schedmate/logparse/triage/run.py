"""A batch from beginning to end: what the ledger knows is not done again."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from schedmate.confine.limits import MEMORY_MB
from schedmate.logparse.triage.document import JobVerdict
from schedmate.logparse.triage.ledger import Ledger
from schedmate.logparse.triage.targets import Target
from schedmate.logparse.triage.work import (
    MOST_CPU_S,
    Outcome,
    examine,
    examine_within,
    restore,
)
from schedmate.scale.spread import spread

ENDED = (
    "the process that read it was killed or crashed, or took more than "
    f"{MOST_CPU_S:.0f} s of CPU time; is the log too large for this machine?"
)


def triage(
    targets: Sequence[Target],
    ledger: Ledger,
    *,
    processes: int = 1,
    ray: str | None = None,
    memory_mb: int = MEMORY_MB,
) -> Iterator[tuple[JobVerdict, array[int]]]:
    """The verdict on each job in order of completion, with the numbers of its templates.

    On `processes` of this machine, or as tasks of the Ray cluster at the address `ray`, whose
    nodes must see the logs under the same paths. A log that cannot be read gives a verdict with an
    `error`; the others go on. On this machine each process has `memory_mb` [MiB]; on a cluster,
    what Ray gives its tasks.
    """
    if ray is not None:
        results = spread(examine, targets, ledger.known(), ray=ray)
    else:
        shared = ledger.known(), memory_mb
        results = spread(examine_within, targets, shared, processes=processes)
    for target, outcome in results:
        yield _verdict(target, outcome or Outcome(error=ENDED), ledger)


def _verdict(target: Target, outcome: Outcome, ledger: Ledger) -> tuple[JobVerdict, array[int]]:
    document, numbers = outcome.document, array("q")
    if outcome.content is not None and document is None:
        document, numbers = ledger.verdict(outcome.content)
    elif document is not None:
        numbers = ledger.put(target, outcome)
    verdict = JobVerdict(
        index=target.index,
        job_id=target.job_id,
        log=str(target.log),
        files=[str(path) for path in target.files] if len(target.files) > 1 else [],
        merged=target.merged,
        workload=target.workload,
        state=target.state,
        user=target.user,
        nodes=list(target.nodes),
        duration_s=target.duration_s,
        gpus=target.gpus,
        gpu_hours=target.gpu_hours,
        error=outcome.error,
        diagnosis=None if document is None else restore(document, target.base),
        cached=outcome.content is not None and outcome.document is None,
    )
    return verdict, numbers
