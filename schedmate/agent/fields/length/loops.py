"""Lengths that training loops count up to."""

from __future__ import annotations

import re

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import EXPLICIT
from schedmate.agent.fields.leaves import Setting
from schedmate.agent.fields.length.consumed import name_of, unit_of
from schedmate.agent.fields.length.counts import CLIP, FEW, End, Length, counted, positive
from schedmate.agent.interp.passes import Passes
from schedmate.agent.interp.trace import LoopEvent
from schedmate.agent.values import Value

_DEEPER = ("outermost", "in one loop", "in two loops", "in more loops")
"""Rows of the prior, by the number of loops around one."""

_EPOCH = re.compile(
    r"epoch|(^|_)epi(sode)?s?($|_)|episode|(^|_)ep(s|och)?($|_)|nepoch|^e$", re.IGNORECASE
)
_STEP = re.compile(
    r"(^|_|\.|\b)(global_?|train_?|curr?_?|current_?|n_?|num_?|total_?|max_?)*"
    r"(step|steps|iter|iters|itrs|iteration|iterations|update|updates|it|timestep|timesteps|batch_idx|"
    r"batch_num|niter|n_iter|num_iter|t|i_iter|frame_idx|steps_done)(_?(num|idx|no|count|i))?($|_|\b)",
    re.IGNORECASE,
)
_ANY = re.compile(f"{_EPOCH.pattern}|{_STEP.pattern}|itr", re.IGNORECASE)
_CONSUMED = re.compile(r"(^|_|\b)(frame|n?img|kimg|interaction)s?($|_|\b)", re.IGNORECASE)
"""What training consumes, counted in place of its steps where there is much of it."""

_NOT_TOTAL = re.compile(
    r"per_(epoch|episode|rollout|game|traj)|eval|valid|test|log|save|warm|print|display|interval|freq|every|accum|micro|debug|"
    r"dry|time_limit|patience|sample|gen|window|len\(|start|resume|begin|decay|inner|critic|disc|adv_|(?<![a-z])n_step|"
    r"batch_size|burn|ckpt|checkpoint|vis|plot|grad|(^|[._])(enc|dec|encoder|decoder|beam|min)_",
    re.IGNORECASE,
)
_OTHER_EPISODES = re.compile(
    r"per_epoch|mini_?ep|ppo_?epoch|update_?epoch|opt(im)?_?epoch|learning_epoch|eval|test|valid|warm|seed|random|demo|"
    r"episode_?(len|step)",
    re.IGNORECASE,
)


_UPDATE = re.compile(r"(^|_)update($|_)")
"""Functions that learn from what an agent gathered."""


def is_inner(loop: LoopEvent, outer: LoopEvent | None) -> bool:
    """Whether a loop passes over what one step of the training loop around it gathered."""
    if loop.kind == "for" and loop.depth > 0 and _UPDATE.search(loop.function):
        return True
    if outer is None or loop.kind != "for":
        return False
    if loop.function != outer.function:
        return _goes_further(outer, loop)
    if not outer.has_backward or loop.site.file != outer.site.file:
        return False
    named = f"{outer.counter} {outer.bound_text}"
    return bool(_STEP.search(outer.counter) or _STEP.search(outer.bound_text)) or (
        bool(_EPOCH.search(named)) and not positive(outer.bound)
    )


def _goes_further(outer: LoopEvent, loop: LoopEvent) -> bool:
    """Whether the run is `outer`'s many iterations, in each of which a function trains a little."""
    iterations = outer.has_backward and outer.certain and outer.depth == 0
    if not (iterations and _STEP.search(outer.bound_text)) or _NOT_TOTAL.search(outer.bound_text):
        return False
    return positive(outer.bound) and positive(loop.bound) and outer.bound.data > loop.bound.data


def of_passes(
    loop: LoopEvent,
    count: Passes,
    epochs: list[Length],
    steps: list[Length],
    settings: list[Setting],
) -> None:
    """A loop whose bound hangs on the length of the data, but not what the bound was made from."""
    made = count.epochs if count.steps is None else count.steps
    text = f"{loop.counter} {loop.bound_text}"
    if (
        not loop.has_backward
        or loop.depth > 0
        or not positive(made)
        or _OTHER_EPISODES.search(text)
    ):
        return
    assert made is not None
    named = made.origin is not None and made.origin.source != "code"
    if count.steps is not None and count.data is None and not named:
        return  # `20000 // batch_size` counts samples as likely as it counts steps
    if count.steps is not None and unit_of(name_of(made, settings)) is not None:
        return  # `num_samples // batch_size` is fewer steps than samples
    score = prior.loop.sure("of passes", loop.certain)
    end = End("loop", loop.bound_text)
    if count.steps is not None and _ANY.search(text):
        # the phases of a schedule each go on from where the last one ended
        steps[:] = [s for s in steps if s.end != end or s.data > (made.number or 0)]
        steps.append(counted(made, score, end))
    elif count.steps is None and (made.number or 0) > 1:
        epochs.append(counted(made, score, end))


def _of_while(loop: LoopEvent) -> float:
    score = prior.loop.sure("left", loop.certain)
    score += prior.loop["deeper while"] * max(0, loop.depth - 1)
    gathers = loop.kind == "while" and loop.depth > 0 and not loop.has_backward
    return score + prior.loop["gathers"] if gathers else score


_BEGUN = re.compile(r"range\((?:[^,()]|\([^()]*\))*,")


_LAST_LOOK = re.compile(r"\brange\([^,]*\+ 1\)+$")


def _steps_of(loop: LoopEvent) -> Value:
    """How many steps a loop takes; of `range(steps + 1)` the last pass only evaluates."""
    if positive(loop.bound) and _LAST_LOOK.search(loop.bound_text):
        return Value(loop.bound.data - 1, loop.bound.origin)
    return loop.bound


_TOTAL = re.compile(r"(^|[._])(num|max|total|n)_(\w+_)?(iters|iterations|steps|updates)$")


def _is_the_run(loop: LoopEvent, text: str) -> bool:
    """Whether an outermost loop that calls what trains goes up to a total that was set."""
    origin = loop.bound.origin
    given = origin is not None and origin.source in (*EXPLICIT, "config")
    total = _TOTAL.search(text) is not None and not _NOT_TOTAL.search(text)
    return given and total and loop.certain and loop.depth == 0


def from_loop(loop: LoopEvent, epochs: list[Length], steps: list[Length]) -> None:
    if not positive(loop.bound):
        return
    counter = loop.counter.rsplit(".", 1)[-1]
    text = _BEGUN.sub("range(", loop.bound_text)  # up to where, not from where
    bound_is_epoch, counter_is_epoch = bool(_EPOCH.search(text)), bool(_EPOCH.search(counter))
    counter_is_step = _counts_steps(loop, counter, text)
    end = End("loop", text)
    if loop.kind == "for":
        if not loop.has_backward and not counter_is_epoch:
            if _is_the_run(loop, text):
                steps.append(counted(loop.bound, prior.loop["calls training"], end))
            return
        of_epochs = counter_is_epoch or bound_is_epoch
        inside = loop.depth > 0 and _passes(loop) < FEW and not of_epochs
        if inside or (_passes(loop) <= 1 and (not of_epochs or "episode" in text)):
            return  # once or a few times through something inside a step
        score = (
            prior.loop.sure("for", loop.certain)
            + (0 if loop.has_backward else prior.loop["no step"])
            + prior.loop[_DEEPER[min(max(0, loop.depth), 3)]]
        )
        if of_epochs:
            if not _OTHER_EPISODES.search(text):
                epochs.append(counted(loop.bound, score, end))
        elif (counter_is_step or _STEP.search(text)) and not _NOT_TOTAL.search(text):
            steps.append(counted(_steps_of(loop), score + prior.loop["of steps"], end))
        elif _is_plain(loop, counter, text):
            (epochs if loop.over_data else steps).append(
                counted(loop.bound, score + prior.loop["plain"], end)
            )
        return
    _from_end(loop, counter, text, (epochs, steps))


def _passes(loop: LoopEvent) -> float:
    """How often a loop goes round, 0 where that is no number."""
    return loop.bound.number or 0


def _is_plain(loop: LoopEvent, counter: str, text: str) -> bool:
    """Whether this is `for i in range(1000)`, which takes the steps of training itself."""
    repeats = re.search(r"run|fold|seed|trial|repeat|client|agent|task|restart", text)
    trains = loop.over_data or (loop.over_data is False and _passes(loop) >= FEW)
    outermost = loop.certain and loop.depth == 0
    plain = re.fullmatch(r"[a-z]?_*i*", counter) is not None
    return bool(trains) and outermost and plain and not repeats


def _counts_steps(loop: LoopEvent, counter: str, text: str) -> bool:
    consumed = _passes(loop) >= CLIP and _CONSUMED.search(f"{counter} {text}")
    return bool(_STEP.search(counter) or consumed)


def _from_end(
    loop: LoopEvent, counter: str, text: str, found: tuple[list[Length], list[Length]]
) -> None:
    """What a `while` loop goes up to, or the count at which a loop is left."""
    epochs, steps = found
    counter_is_epoch = bool(_EPOCH.search(counter))
    end = End("leaves", text)
    gathers = loop.kind == "while" and loop.counter.startswith("len(")  # samples, before training
    if gathers or _NOT_TOTAL.search(text) or _passes(loop) <= 1:
        return
    score = _of_while(loop)
    if counter_is_epoch and loop.kind == "while":
        epochs.append(counted(loop.bound, score, end))
    elif counter_is_epoch:
        epochs.append(counted(loop.bound, score + prior.loop["leaves at an epoch"], end))
    elif _counts_steps(loop, counter, text) or re.search(
        r"step|iter|itrs|update", text, re.IGNORECASE
    ):
        named_total = re.search(
            r"max|total|num|n_|train|niter|iterations|steps$|limit|budget", text, re.IGNORECASE
        )
        if text.replace("_", "").isdigit():
            score += prior.loop["written out"]
        elif not named_total:
            score += prior.loop["no total"]
        elif re.search(r"global|total", f"{counter} {text}", re.IGNORECASE):
            # leaving the loop at a count of all steps comes before the last epoch
            score += prior.loop["total"]
        steps.append(counted(loop.bound, score, end))
