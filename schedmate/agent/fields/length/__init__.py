"""`training_config.iters` and `iter_type`: what ends the training."""

from __future__ import annotations

import math
import re
from typing import Literal

from schedmate.agent.fields.candidates import (
    Candidate,
    Setting,
    argument,
    best,
    is_number,
    matches,
    rules,
    source_bonus,
    unresolved,
)
from schedmate.agent.fields.length.calls import from_call, from_runner, from_training_arguments
from schedmate.agent.fields.length.counts import LEAVES, LIMIT
from schedmate.agent.fields.length.loops import from_loop, is_inner, of_passes
from schedmate.agent.fields.length.settings import from_settings
from schedmate.agent.interp.objects import Site
from schedmate.agent.interp.passes import Passes
from schedmate.agent.interp.trace import CallEvent, LoopEvent, Trace

_FOR_EVER = 10**9
_SAID = 80
_AS_LONG_AS_IT_TAKES = 1000
"""So many epochs by default stand beside a limit of steps for as many as it takes."""

Kind = Literal["step", "epoch"]


def find(trace: Trace, settings: list[Setting]) -> tuple[Candidate, Kind] | None:
    """The length of training and its unit, None when the code does not say."""
    epochs: list[Candidate] = []
    steps: list[Candidate] = []
    for event in trace.calls:
        from_call(event, epochs, steps)
        from_runner(event, epochs, steps)
    from_training_arguments(trace, epochs, steps)
    around: dict[int, LoopEvent] = {}
    for loop in _last_of_schedule(trace.loops):
        if isinstance(loop.bound.data, Passes):
            of_passes(loop, loop.bound.data, epochs, steps)
        elif not is_inner(loop, around.get(loop.depth - 1)):
            from_loop(loop, epochs, steps)
        if loop.kind == "for":
            around[loop.depth] = loop
    if not any(_unresolved(event) for event in trace.calls):
        counters = {loop.counter for loop in trace.loops if loop.kind == "for"}
        from_settings(
            # what counted a loop, and where it stopped, is no setting
            [s for s in settings if s.kind != "globals" or s.path[-1] not in counters],
            epochs,
            steps,
        )
    epoch, step = _longest_stage(epochs), best(steps)
    if _endless(trace, epoch, step):
        return None
    if epoch is None or step is None:
        chosen = epoch or step
        assert chosen is not None
        return chosen, "epoch" if step is None else "step"
    return _arbitrate(epoch, step)


def _longest_stage(found: list[Candidate]) -> Candidate | None:
    """The best, the longest of stages whose loops are equals: `pretrain(1)`, then `finetune(9)`."""
    first = best(found)
    if first is None or not (first.note or "").startswith("loop over"):
        return first
    stages = [c for c in found if c.score == first.score and c.note == first.note]
    return max(stages, key=lambda stage: stage.data)


def _last_of_schedule(loops: list[LoopEvent]) -> list[LoopEvent]:
    """The loops, where of one that goes or is left at several counts in turn the last is told.

    `for lr, max_step in schedule: ... if step >= max_step: break` ends at the schedule's end, and
    of the stages that go through one loop the longest is what is waited for.
    """
    ends: dict[Site, float] = {}
    for loop in loops:
        if loop.kind != "while" and is_number(loop.bound):
            ends[loop.site] = max(loop.bound.data, ends.get(loop.site, 0))
    return [loop for loop in loops if ends.get(loop.site, loop.bound.data) == loop.bound.data]


def _endless(trace: Trace, epoch: Candidate | None, step: Candidate | None) -> bool:
    """Whether only the user ends the training: nothing limits it, or an infinite number does.

    A setting that no loop counts up to (the steps of a diffusion, say) is then about another thing.
    """
    chosen = [c for c in (epoch, step) if c is not None]
    if all(c.data >= _FOR_EVER for c in chosen):
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
    if epoch.data == 1 and not epoch_set and step_set and step.score >= 60:
        return step, "step"  # one pass by default is no choice beside steps that were set
    return epoch, "epoch"
