"""A batch from beginning to end; work that the ledger has recorded is not repeated."""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from schedmate.confine.limits import MEMORY_MB
from schedmate.logparse.triage.document import JobVerdict
from schedmate.logparse.triage.ledger import Ledger
from schedmate.logparse.triage.targets import Target
from schedmate.logparse.triage.work import (
    MOST_CPU_S,
    Outcome,
    examine_within,
    restore,
)
from schedmate.scale.journal import Memo
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

    The work runs on `processes` of this machine, or as tasks of the Ray cluster at the address
    `ray`, whose nodes must see the logs under the same paths or URLs. A log that cannot be read
    gives a verdict with an `error`, and the others continue. Each process may use `memory_mb` [MiB]
    to read a log.
    """
    shared: tuple[Container[bytes], int] = ledger.known(), memory_mb
    memo: Memo[Target, Outcome] = Memo(
        _Done(ledger), lambda target: target.key, _packed, partial(_unpacked, ledger)
    )
    results = spread(examine_within, targets, shared, processes=processes, ray=ray, memo=memo)
    for target, outcome in results:
        yield _verdict(target, outcome or Outcome(error=ENDED), ledger)


def _verdict(target: Target, outcome: Outcome, ledger: Ledger) -> tuple[JobVerdict, array[int]]:
    document, numbers = outcome.document, array("q")
    if outcome.content is not None and document is None:
        document, numbers = ledger.verdict(outcome.content)
    elif document is not None:
        numbers = ledger.put(target, outcome)
    files = [*target.objects] or [str(path) for path in target.files]
    verdict = JobVerdict(
        index=target.index,
        job_id=target.job_id,
        log=target.name,
        files=files if len(files) > 1 else [],
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


@dataclass(frozen=True)
class _Done:
    """The ledger as a journal of the logs that have been read."""

    ledger: Ledger

    def get(self, key: str) -> str | None:
        return self.ledger.get(key)

    def put(self, key: str, result: str) -> None:
        self.ledger.note(key, result)


def _packed(outcome: Outcome) -> str | None:
    """The reference to a verdict in the ledger; errors are not stored, as they may be temporary."""
    return None if outcome.content is None else outcome.content.hex()


def _unpacked(ledger: Ledger, text: str) -> Outcome | None:
    content = bytes.fromhex(text)
    return Outcome(content) if ledger.has(content) else None
