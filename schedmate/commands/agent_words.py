"""A pass of an agent in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from schedmate.durations import format_duration
from schedmate.schedulers.live.actions import Annotate, Order
from schedmate.terminal import counted

if TYPE_CHECKING:
    from schedmate.schedulers.live.report import Done, Pass
    from schedmate.terminal.layout import Tone

Line = tuple[str, "Tone | None"]


def lines_of(found: Pass) -> Iterator[Line]:
    """What a pass found and did, most important first."""
    head = f"{found.cluster}: {found.pending:,} pending, {found.running:,} running"
    if found.unread:
        head += f", {found.unread:,} still to be read"
    yield f"{head} ({found.took_s:.1f} s)", "heading"
    if found.stopped:
        yield "The kill switch is set: nothing is changed.", "doubtful"
    for problem in found.problems:
        yield f"! {problem}", "doubtful"
    for failure in found.failed:
        yield from _failure(failure.model_dump())
    for one in found.estimated:
        estimate = one.estimate
        if estimate.abstained or estimate.duration_s is None:
            yield f"job {one.job} ({one.user}): no estimate: {estimate.reason}", None
            continue
        text = f"job {one.job} ({one.user}): about {format_duration(estimate.duration_s)}"
        if estimate.duration_p10_s is not None and estimate.duration_p90_s is not None:
            low, high = estimate.duration_p10_s, estimate.duration_p90_s
            text += f", {format_duration(low)} to {format_duration(high)}"
        yield f"{text}, from {counted(len(estimate.neighbours), 'past run')}", None
    for done in found.actions:
        yield from _action(done)
    if found.learned:
        yield f"learned from {counted(found.learned, 'ended run')}", None
    for followed in found.followed:
        progress = followed.progress
        eta = "" if progress.eta_s is None else f", {format_duration(progress.eta_s)} left"
        step = "" if progress.step_time_s is None else f"{progress.step_time_s:.3g} s a step"
        yield f"job {followed.job}: {step}{eta}", None
    if found.waiting:
        yield f"{counted(len(found.waiting), 'plan')} to approve: {', '.join(found.waiting)}", None


def _failure(failed: dict[str, object]) -> Iterator[Line]:
    text = f"job {failed['job']} ended {failed['state']}"
    diagnosis = failed["diagnosis"]
    if isinstance(diagnosis, dict):
        name = diagnosis["error_name"] or diagnosis["error_type"]
        text += f": {name}"
        if diagnosis["line"]:
            text += f" ({diagnosis['file']}:{diagnosis['line']})"
        if diagnosis["plan"]:
            text += f". {diagnosis['plan']['summary']}"
    else:
        text += ": its log cannot be read" + (f" ({failed['log']})" if failed["log"] else "")
    yield text, "bad"
    if failed["plan"]:
        yield f"  plan {failed['plan']} is proposed", None


def _action(done: Done) -> Iterator[Line]:
    action, state = done.action, done.state
    said = {"would": "would be", "applied": "is"}.get(state, f"({state})")
    if isinstance(action, Order):
        levels = Counter(action.values.values())
        text = ", ".join(
            f"{counted(count, 'job')} at {value:+d}"
            for value, count in sorted(levels.items())[::-1]
        )
        yield f"the order {said} set: {text}", None
    elif isinstance(action, Annotate):
        yield f"an estimate {said} written beside {action.target}", None
    else:
        yield f"{action.kind} of {action.target}: {state}", None
    if done.detail and state not in ("applied", "would"):
        yield f"  {done.detail}", "doubtful"
