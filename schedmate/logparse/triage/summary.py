"""From verdicts to the document of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from schedmate import __version__
from schedmate.logparse.triage.document import (
    Earlier,
    JobVerdict,
    ModelUse,
    NewTemplate,
    Novelty,
    Totals,
    Triage,
)
from schedmate.logparse.triage.groups import group, pareto
from schedmate.logparse.triage.ledger import Cause, Ledger
from schedmate.logparse.triage.nodes import compare_nodes
from schedmate.logparse.triage.work import version
from schedmate.terminal import counted

NAMED = 10
"""Limit for the jobs that a warning names."""
SHOWN = 500
"""Limit for the new templates in the document."""


def summarise(
    source: str,
    verdicts: Sequence[JobVerdict],
    shown: Mapping[int, int],
    ledger: Ledger,
    warnings: Sequence[str] = (),
    model: ModelUse | None = None,
) -> Triage:
    """The summary of a batch. `shown` is the number of failures near each template, by number."""
    jobs = sorted(verdicts, key=lambda job: job.index)
    groups = group(jobs)
    past = ledger.causes()
    for one in groups:
        if one.id in past:
            one.earlier = Earlier(**past[one.id]._asdict())
    return Triage(
        source=source,
        version=__version__,
        rules=version(),
        totals=_totals(jobs),
        groups=groups,
        pareto=pareto(groups),
        node_test=compare_nodes(jobs),
        novelty=_novelty(shown, ledger),
        model=model,
        jobs=jobs,
        warnings=[*warnings, *_silent(jobs)],
    )


def _silent(jobs: Sequence[JobVerdict]) -> list[str]:
    """A note on the jobs that failed without a failure in their logs."""
    names = [job.job_id for job in jobs if job.silent]
    if not names:
        return []
    some = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
    jobs_failed = counted(len(names), "job") + " failed as the list has it"
    return [
        f"{jobs_failed}, and no failure is in the log: {some}; ask the scheduler and the nodes."
    ]


def causes(found: Triage) -> list[Cause]:
    """The root causes of a batch, as the ledger stores them."""
    jobs = {job.index: job for job in found.jobs}
    remembered = []
    for one in found.groups:
        example = jobs[one.example]
        line = example.diagnosis.line if example.diagnosis is not None else None
        remembered.append(Cause(one.id, len(one.jobs), example.log, line))
    return remembered


def _totals(jobs: Sequence[JobVerdict]) -> Totals:
    failed = [job for job in jobs if job.failed]
    found = [job.diagnosis for job in jobs if job.diagnosis is not None]
    hours = [job.gpu_hours for job in failed if job.gpu_hours is not None]
    return Totals(
        jobs=len(jobs),
        failed=len(failed),
        not_failed=len(found) - len(failed),
        unreadable=len(jobs) - len(found),
        silent=sum(job.silent for job in jobs),
        unfinished=sum(one.finished is False for one in found),
        by_type=dict(Counter(one.error_type for one in found).most_common()),
        by_name=dict(
            Counter(
                one.error_name or "unknown" for one in found if one.error_type != "none"
            ).most_common()
        ),
        gpu_hours_lost=sum(hours) if hours else None,
        gpu_hours_known=len(hours),
    )


def _novelty(shown: Mapping[int, int], ledger: Ledger) -> Novelty:
    batches, remembered = ledger.earlier()
    new = {number: seen for number, seen in ledger.new_templates().items() if number in shown}
    if not batches:
        return Novelty(
            compared=False,
            reason="There is no earlier batch in the ledger to compare with; "
            f"{len(new):,} templates near failures were remembered for the next one.",
            total=0,
            templates=[],
        )
    ordered = sorted(new, key=lambda number: (-shown[number], new[number].text))
    return Novelty(
        compared=True,
        reason=f"{counted(len(new), 'template')} near failures not seen in "
        f"{batches:,} earlier batch{'es' * (batches != 1)} ({remembered:,} known).",
        total=len(new),
        templates=[
            NewTemplate(
                template=new[number].text,
                jobs=shown[number],
                log=new[number].log,
                line=new[number].line,
            )
            for number in ordered[:SHOWN]
        ],
    )
