"""Asks a language model about failures that rules leave open, once for each group of similar
ones.

The most expensive groups come first, and all questions share the budget of one job. What is proved
for the representative of a group is applied to its other failures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from schedmate.base.errors import InputError, ModelError
from schedmate.llm import LLM
from schedmate.logparse.failure.opinion import is_open, note_unsettled, settle, settle_alike
from schedmate.logparse.reading import Log, open_log
from schedmate.logparse.triage.document import Group, JobVerdict, ModelUse
from schedmate.logparse.triage.summary import group_failures, pareto

MOST = 20
"""Default limit for the groups that a model is asked about."""
IN_A_ROW = 3
"""Consecutive failures of the model after which it is not asked any more."""


def ask_model(
    jobs: Sequence[JobVerdict],
    llm: LLM,
    *,
    most: int = MOST,
    opened: Callable[[JobVerdict], Log] = lambda job: open_log(job.log),
    on_progress: Callable[[int, str], None] = lambda _done, _text: None,
) -> ModelUse:
    """Settle diagnoses of `jobs` in place if a model can prove its answer.

    `opened` returns the log of a job; `on_progress` is called with the number of groups done.
    Failures without a deciding line have nothing in common, so none represents another: of those,
    only a single one is asked about. Never raises for what the model does.
    """
    by_index = {job.index: job for job in jobs}
    groups = {group.id: group for group in group_failures(jobs)}
    ordered = [groups[bar.group] for bar in pareto(list(groups.values())).bars]
    left_open = [group for group in ordered if _is_open(group, by_index)]
    batch = f"triage-{time.time_ns()}"
    use = ModelUse(
        model=llm.endpoint.model or "",
        open_groups=len(left_open),
        asked=0,
        settled=0,
        jobs=0,
        tokens=0,
        cost=0.0,
    )
    failures = 0
    for group in left_open[:most]:
        example = by_index[group.example]
        on_progress(use.asked, f"{use.asked} of {min(most, len(left_open))} groups")
        try:
            changed = _settle(group, by_index, llm, batch, opened)
            use.settled += 1
            use.jobs += changed
            failures = 0
        except InputError:
            continue  # the log is gone since it was triaged
        except ModelError as error:
            assert example.diagnosis is not None
            example.diagnosis = note_unsettled(example.diagnosis, error)
            failures += 1
            if error.verdict == "budget" or failures == IN_A_ROW:
                use.note = f"No more was asked: {error}."
                break
        finally:
            use.asked += 1
    if use.note is None and len(left_open) > most:
        use.note = f"{len(left_open) - most} groups of less cost were not asked about."
    use.model = llm.endpoint.model or use.model
    use.tokens, use.cost = llm.store.spent(job=batch)
    return use


def _is_open(group: Group, jobs: dict[int, JobVerdict]) -> bool:
    diagnosis = jobs[group.example].diagnosis
    return (
        diagnosis is not None
        and is_open(diagnosis)
        and bool(group.template or len(group.jobs) == 1)
    )


def _settle(
    group: Group,
    jobs: dict[int, JobVerdict],
    llm: LLM,
    batch: str,
    opened: Callable[[JobVerdict], Log],
) -> int:
    """The number of jobs with a new diagnosis."""
    example = jobs[group.example]
    assert example.diagnosis is not None
    with opened(example) as log:
        opinion = settle(example.diagnosis, log, llm, job=batch)
    if opinion.source != "model":  # it agrees, or proves another reading as well as rules do
        example.diagnosis = opinion
        return 0
    changed = 0
    for job in (jobs[index] for index in group.jobs):
        assert job.diagnosis is not None
        if job is example:
            job.diagnosis = opinion
        elif is_open(job.diagnosis):
            job.diagnosis = settle_alike(job.diagnosis, opinion, example.job_id)
        else:
            continue
        changed += 1
    return changed
