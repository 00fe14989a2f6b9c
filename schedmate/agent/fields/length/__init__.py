"""`training_config.iters` and `iter_type`: what ends the training."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import (
    EXPLICIT,
    Candidate,
    argument,
    by_rule,
    is_launched,
    is_number,
    matching,
    source_bonus,
    unresolved,
)
from schedmate.agent.fields.leaves import Setting
from schedmate.agent.fields.length import consumed as consuming
from schedmate.agent.fields.length.calls import from_call, from_training_arguments
from schedmate.agent.fields.length.converted import in_steps
from schedmate.agent.fields.length.counts import Length
from schedmate.agent.fields.length.doubts import configuration_unread, only_evaluates
from schedmate.agent.fields.length.impossible import comes_from, unusable_lengths
from schedmate.agent.fields.length.loops import from_loop, is_inner, of_passes
from schedmate.agent.fields.length.settings import from_settings
from schedmate.agent.interp.passes import Passes
from schedmate.agent.interp.trace import CallEvent, LoopEvent, Trace
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.units import EPOCH, STEP, Unit
from schedmate.agent.values import Value

__all__ = ["choose_length", "in_steps"]

_FOR_EVER = 10**9
_AS_LONG_AS_IT_TAKES = 1000
"""So many epochs by default stand beside a limit of steps for as many as it takes."""


def choose_length(
    trace: Trace, settings: list[Setting], plan: LaunchPlan, warnings: list[str]
) -> tuple[Candidate, Unit] | None:
    """The length of training and what it counts, None when the code does not say.

    `warnings` is told of lengths of this launch that are unusable, less what the program's parser
    refuses. What the program does then is not known, so that no other length stands but one that
    was set for this launch as well.
    """
    if only_evaluates(trace, plan):
        return None
    chosen = _likeliest(trace, settings, plan)
    unusable = unusable_lengths(settings, trace)
    refused = set(trace.refused.values()) if trace.complete and plan.complete else ()
    warnings.extend(one.sentence for one in unusable if one.origin.text not in refused)
    if unusable and chosen is not None:
        length = chosen[0]
        stands = length.source in EXPLICIT and not any(one.ends for one in unusable)
        if not stands or comes_from(length, unusable):
            return None
    return chosen


def _likeliest(
    trace: Trace, settings: list[Setting], plan: LaunchPlan
) -> tuple[Candidate, Unit] | None:
    epochs: list[Length] = []
    steps: list[Length] = []
    consumed: list[Length] = []
    for event in trace.calls:
        from_call(event, epochs, steps, consumed)
    from_training_arguments(trace, epochs, steps)
    by_rule("call", [*epochs, *steps, *consumed])
    around: dict[int, LoopEvent] = {}
    inner: list[Value] = []
    for loop in _furthest(trace.loops):
        if isinstance(loop.bound.data, Passes):
            of_passes(loop, loop.bound.data, epochs, steps, settings)
        elif is_inner(loop, around.get(loop.depth - 1)):
            inner.append(loop.bound)
        elif not consuming.from_loop(loop, consumed):
            from_loop(loop, epochs, steps)
        if loop.kind == "for":
            around[loop.depth] = loop
    by_rule("loop", [*epochs, *steps, *consumed])
    if not any(_unresolved(event) for event in trace.calls):
        counters = {loop.counter for loop in trace.loops if loop.kind == "for"}
        from_settings(
            # what counted a loop, and where it stopped, is not a setting
            [
                s
                for s in settings
                if (s.kind != "globals" or s.path[-1] not in counters)
                and not any(s.value is bound for bound in inner)
            ],
            epochs,
            steps,
            consumed,
        )
        consuming.from_settings(settings, consumed)
    by_rule("setting", [*epochs, *steps, *consumed])
    unread = configuration_unread(plan, settings) or _limit_unknown(trace)
    epoch, step = (_best(found, unread) for found in (epochs, steps))
    if _endless(trace, epoch, step):
        return None
    considered = [*epochs, *steps, *consumed]
    whole = _best(consumed, unread)
    if whole is not None and all(
        other is None or other.score < whole.score for other in (epoch, step)
    ):
        return replace(whole, considered=considered), whole.unit or STEP
    if epoch is not None and step is not None:
        epoch, step = _arbitrate(epoch, step)
    chosen = epoch if step is None else step
    if chosen is None:
        return None
    unit = EPOCH if step is None else step.unit or STEP
    return replace(chosen, considered=considered), unit


def _limit_unknown(trace: Trace) -> bool:
    """Whether a trainer is given a limit of steps that cannot be known, beside no epochs."""
    for event in trace.calls:
        for rule in matching(event, "length") if event.certain else ():
            if "epochs" not in rule:
                continue
            step = argument(event, rule.get("steps", []))
            if step is not None and not step.known and argument(event, rule["epochs"]) is None:
                return True
    return False


def _best(found: Sequence[Length], unread: bool) -> Length | None:
    """The likeliest; without the configuration a default is doubtful, a library's says nothing."""
    likely = []
    for candidate in found:
        source = candidate.source
        if unread and source == "library":
            continue
        doubt = -prior.length["unread"] if unread and source in ("default", "code") else 0
        if candidate.score - doubt >= prior.length["likely"]:
            likely.append(replace(candidate, score=candidate.score - doubt))
    return max(likely, key=lambda length: length.score, default=None)


def _furthest(loops: list[LoopEvent]) -> list[LoopEvent]:
    """The loops, of several written alike the one that goes furthest.

    `for lr, max_step in schedule: ... if step >= max_step: break` ends at the schedule's end, and
    of stages, `pretrain(1)` and then `finetune(9)`, the longest is what is waited for.
    """
    ends: dict[tuple[object, ...], float] = {}
    for loop in loops:
        if loop.kind != "while" and is_number(loop.bound):
            ends[_written(loop)] = max(loop.bound.number or 0, ends.get(_written(loop), 0))
    return [loop for loop in loops if ends.get(_written(loop), loop.bound.data) == loop.bound.data]


def _written(loop: LoopEvent) -> tuple[object, ...]:
    return loop.kind, loop.counter, loop.bound_text, loop.certain, loop.depth, loop.has_backward


def _endless(trace: Trace, epoch: Length | None, step: Length | None) -> bool:
    """Whether only the user ends the training: nothing limits it, or an infinite number does.

    A setting that no loop counts up to (the steps of a diffusion, say) is then about another thing.
    """
    chosen = [c for c in (epoch, step) if c is not None]
    if chosen and all(
        c.data >= _FOR_EVER and c.score < prior.length["of an environment"] for c in chosen
    ):
        return True
    infinite = any(
        loop.kind != "stop" and loop.certain and loop.depth == 0 and loop.bound.data == math.inf
        for loop in trace.loops
    )
    return infinite and all(c.end is None and c.score < prior.length["said"] for c in chosen)


def _unresolved(event: CallEvent) -> bool:
    """Whether a trainer's length is an interpolation that only the running program can compute.

    What other settings say is then about something else.
    """
    for rule in matching(event, "length") if event.certain else ():
        for name in ("steps", "epochs"):
            text = unresolved(argument(event, rule.get(name, [])))
            if text is not None and "${" in text:
                return True
    return False


def _arbitrate(epoch: Length, step: Length) -> tuple[Length | None, Length | None]:
    """A step limit that is as well supported as the epochs comes first: one of the two."""
    epoch_set, step_set = source_bonus(epoch.origin), source_bonus(step.origin)
    if step.score >= epoch.score:
        return None, step
    if step.end is not None and step.score >= prior.length["limit"]:
        leaves = step.end.kind == "leaves"
        if leaves and step.data < epoch.data:
            return None, step  # an epoch has at least one step
        if leaves and re.search("max|total", step.end.bound) and not epoch_set:
            if epoch.data >= _AS_LONG_AS_IT_TAKES:
                return None, step
        if step.end.kind == "limit":
            return None, step  # libraries that take both end at the limit of steps
    enough = step.score >= prior.length["launched steps"]
    if is_launched(step.origin) and not is_launched(epoch.origin) and enough:
        return None, step
    counts = step_set or epoch.end is None
    if epoch.data == 1 and not epoch_set and counts and enough:
        return None, step  # one pass by default is no choice beside steps
    return epoch, None
