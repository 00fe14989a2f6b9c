"""`training_config.iters` and `iter_type`: what ends the training."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Literal

from schedmate.agent.fields.candidates import (
    Candidate,
    Setting,
    argument,
    best,
    by_rule,
    is_number,
    matches,
    rules,
    source_bonus,
    unresolved,
)
from schedmate.agent.fields.length.calls import from_call, from_runner, from_training_arguments
from schedmate.agent.fields.length.counts import LEAVES, LIMIT
from schedmate.agent.fields.length.doubts import configuration_unread, only_evaluates
from schedmate.agent.fields.length.loops import from_loop, is_inner, of_passes
from schedmate.agent.fields.length.settings import from_settings
from schedmate.agent.interp.passes import Passes
from schedmate.agent.interp.trace import CallEvent, LoopEvent, Trace
from schedmate.agent.launch import LaunchPlan
from schedmate.agent.values import Value

_FOR_EVER = 10**9
_SAID = 80
_SURE = 85
"""So sure are steps of an environment, of which there may be any number."""
_LIKELY = 50
"""A candidate below this is a guess."""
_UNREAD = 20
"""What a default loses where the configuration that the launch names is not at hand."""
_AS_LONG_AS_IT_TAKES = 1000
"""So many epochs by default stand beside a limit of steps for as many as it takes."""

Kind = Literal["step", "epoch"]


def find(trace: Trace, settings: list[Setting], plan: LaunchPlan) -> tuple[Candidate, Kind] | None:
    """The length of training and its unit, None when the code does not say."""
    if only_evaluates(trace, plan):
        return None
    epochs: list[Candidate] = []
    steps: list[Candidate] = []
    for event in trace.calls:
        from_call(event, epochs, steps)
        from_runner(event, epochs, steps)
    from_training_arguments(trace, epochs, steps)
    by_rule("call", [*epochs, *steps])
    around: dict[int, LoopEvent] = {}
    inner: list[Value] = []
    for loop in _furthest(trace.loops):
        if isinstance(loop.bound.data, Passes):
            of_passes(loop, loop.bound.data, epochs, steps)
        elif is_inner(loop, around.get(loop.depth - 1)):
            inner.append(loop.bound)
        else:
            from_loop(loop, epochs, steps)
        if loop.kind == "for":
            around[loop.depth] = loop
    by_rule("loop", [*epochs, *steps])
    if not any(_unresolved(event) for event in trace.calls):
        counters = {loop.counter for loop in trace.loops if loop.kind == "for"}
        from_settings(
            # what counted a loop, and where it stopped, is no setting
            [
                s
                for s in settings
                if (s.kind != "globals" or s.path[-1] not in counters)
                and not any(s.value is bound for bound in inner)
            ],
            epochs,
            steps,
        )
    by_rule("setting", [*epochs, *steps])
    unread = configuration_unread(plan, settings)
    epoch, step = (_best(found, unread) for found in (epochs, steps))
    if _endless(trace, epoch, step):
        return None
    chosen = epoch or step
    if chosen is None:
        return None
    kind: Kind = "epoch" if step is None else "step"
    if epoch is not None and step is not None:
        chosen, kind = _arbitrate(epoch, step)
    return replace(chosen, considered=[*epochs, *steps]), kind


def _best(found: list[Candidate], unread: bool) -> Candidate | None:
    """The likeliest; without the configuration a default is doubtful, a library's says nothing."""
    likely = []
    for candidate in found:
        source = candidate.origin.source if candidate.origin is not None else "code"
        if unread and source == "library":
            continue
        doubt = _UNREAD if unread and source in ("default", "code") else 0
        if candidate.score - doubt >= _LIKELY:
            likely.append(replace(candidate, score=candidate.score - doubt))
    return best(likely)


def _furthest(loops: list[LoopEvent]) -> list[LoopEvent]:
    """The loops, of several written alike the one that goes furthest.

    `for lr, max_step in schedule: ... if step >= max_step: break` ends at the schedule's end, and
    of stages, `pretrain(1)` and then `finetune(9)`, the longest is what is waited for.
    """
    ends: dict[tuple[object, ...], float] = {}
    for loop in loops:
        if loop.kind != "while" and is_number(loop.bound):
            ends[_written(loop)] = max(loop.bound.data, ends.get(_written(loop), 0))
    return [loop for loop in loops if ends.get(_written(loop), loop.bound.data) == loop.bound.data]


def _written(loop: LoopEvent) -> tuple[object, ...]:
    return loop.kind, loop.counter, loop.bound_text, loop.certain, loop.depth, loop.has_backward


def _endless(trace: Trace, epoch: Candidate | None, step: Candidate | None) -> bool:
    """Whether only the user ends the training: nothing limits it, or an infinite number does.

    A setting that no loop counts up to (the steps of a diffusion, say) is then about another thing.
    """
    chosen = [c for c in (epoch, step) if c is not None]
    if chosen and all(c.data >= _FOR_EVER and c.score < _SURE for c in chosen):
        return True
    infinite = any(
        loop.kind != "stop" and loop.certain and loop.depth == 0 and loop.bound.data == math.inf
        for loop in trace.loops
    )
    return infinite and all(c.note is None and c.score < _SAID for c in chosen)


def _unresolved(event: CallEvent) -> bool:
    """Whether a trainer's length is an interpolation that only the running program can compute.

    What other settings say is then about something else.
    """
    for rule in rules("calls")["length"]:
        if event.certain and matches(event, rule):
            for name in ("steps", "epochs"):
                text = unresolved(argument(event, rule.get(name, [])))
                if text is not None and "${" in text:
                    return True
    return False


def _arbitrate(epoch: Candidate, step: Candidate) -> tuple[Candidate, Kind]:
    """A step limit that is as well supported as the epochs ends the training first."""
    epoch_set, step_set = source_bonus(epoch.origin), source_bonus(step.origin)
    if step.score >= epoch.score:
        return step, "step"
    if (step.note or "").startswith(LEAVES) and step.score >= 70 and step.data < epoch.data:
        return step, "step"  # an epoch has at least one step
    if re.match(rf"{LEAVES} .*(max|total)", step.note or "") and not epoch_set:
        if step.score >= 70 and epoch.data >= _AS_LONG_AS_IT_TAKES:
            return step, "step"
    if step.note == LIMIT and step.score >= 70:
        return step, "step"  # libraries that take both end at the limit of steps
    if step_set >= 5 > epoch_set and step.score >= 60:
        return step, "step"
    counts = step_set or epoch.note is None
    if epoch.data == 1 and not epoch_set and counts and step.score >= 60:
        return step, "step"  # one pass by default is no choice beside steps
    return epoch, "epoch"
