"""`training_config.iters` and `iter_type`: what ends the training."""

from __future__ import annotations

import math
import re
from typing import Any, Literal

from schedmate.agent.fields.candidates import (
    Candidate,
    Setting,
    argument,
    best,
    is_number,
    matches,
    named,
    rules,
    source_bonus,
    unresolved,
)
from schedmate.agent.interp.passes import Passes
from schedmate.agent.interp.trace import CallEvent, LoopEvent, Trace
from schedmate.agent.values import Origin, Value

# reinforcement learning counts environment steps, whatever its loops count
_ENVIRONMENT_STEPS = frozenset(
    [
        "totaltimesteps",
        "totalenvsteps",
        "numenvsteps",
        "numtimesteps",
        "ntimesteps",
        "maxtimesteps",
        "totalframes",
        "maxframes",
        "numframes",
        "numtrainframes",
        "envsteps",
        "totalenvironmentsteps",
    ]
)

_FOR_EVER = 10**9
_SAID = 80
_ENDLESS = 10**8
"""So many epochs or steps mean that something else ends the training."""

_LIMIT = "a limit of steps that was set for this launch"

_LEAVES = "leaves at"

_DEEPER = (0, 2, 12, 16)
"""What a loop loses by standing inside others: what trains counts in the outer ones."""

_CLIP = 1000
"""Fewer frames than this are a clip's, not a training's."""

Kind = Literal["step", "epoch"]

_EPOCH = re.compile(
    r"epoch|(^|_)epi(sode)?s?($|_)|episode|(^|_)ep(s|och)?($|_)|nepoch", re.IGNORECASE
)
_STEP = re.compile(
    r"(^|_|\.|\b)(global_?|train_?|curr?_?|current_?|n_?|num_?|total_?|max_?)*"
    r"(step|steps|iter|iters|itrs|iteration|iterations|update|updates|it|timestep|timesteps|batch_idx|"
    r"batch_num|niter|n_iter|num_iter|t|i_iter|frame_idx|steps_done)(_?(num|idx|no|count|i))?($|_|\b)",
    re.IGNORECASE,
)
_NOT_TOTAL = re.compile(
    r"per_epoch|eval|valid|test|log|save|warm|print|display|interval|freq|every|accum|micro|debug|"
    r"dry|time_limit|patience|sample|gen|window|len\(|start|resume|begin|decay|inner|critic|disc|adv_|n_step|"
    r"batch_size|burn|ckpt|checkpoint|vis|plot|grad",
    re.IGNORECASE,
)
_OTHER_EPISODES = re.compile(
    r"per_epoch|mini_?ep|ppo_?epoch|update_?epoch|learning_epoch|eval|test|valid|warm|seed|random|demo",
    re.IGNORECASE,
)
_PARTS_OF_OTHERS = re.compile(
    r"eval|valid|test|infer|generat|^val$|^env(ironment)?_?(args|kwargs|config|cfg|params?)$",
    re.IGNORECASE,
)
_OPTIM = re.compile(r"optim\w*", re.IGNORECASE)
_PARTS_NOT_LENGTH = re.compile(
    r"warm|scheduler|sched|eval|valid|test|sampl|diffusion|decay|noise|generation|infer|beta|"
    r"log|save|callback|distill|finetune_head|discriminator|ema|augment|profil",
    re.IGNORECASE,
)


def find(trace: Trace, settings: list[Setting]) -> tuple[Candidate, Kind] | None:
    """The length of training and its unit, None when the code does not say."""
    epochs: list[Candidate] = []
    steps: list[Candidate] = []
    for event in trace.calls:
        _from_call(event, epochs, steps)
        _from_runner(event, epochs, steps)
    _from_training_arguments(trace, epochs, steps)
    around: dict[int, LoopEvent] = {}
    for loop in trace.loops:
        if isinstance(loop.bound.data, Passes):
            _of_passes(loop, loop.bound.data, epochs, steps)
        elif not _is_inner(loop, around.get(loop.depth - 1)):
            _from_loop(loop, epochs, steps)
        if loop.kind == "for":
            around[loop.depth] = loop
    if not any(_unresolved(event) for event in trace.calls):
        _from_settings(settings, epochs, steps)
    epoch, step = best(epochs), best(steps)
    if _endless(trace, epoch, step):
        return None
    if epoch is None or step is None:
        chosen = epoch or step
        assert chosen is not None
        return chosen, "epoch" if step is None else "step"
    return _arbitrate(epoch, step)


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
    if (step.note or "").startswith(_LEAVES) and step.score >= 70 and step.data < epoch.data:
        return step, "step"  # an epoch has at least one step
    if step.note == _LIMIT and step.score >= 70:
        return step, "step"  # libraries that take both end at the limit of steps
    if step_set >= 5 > epoch_set and step.score >= 60:
        return step, "step"
    if epoch.data == 1 and not epoch_set and step_set and step.score >= 60:
        return step, "step"  # one pass by default is no choice beside steps that were set
    return epoch, "epoch"


def _whole(number: Any) -> Any:
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _positive(value: Value | None) -> bool:
    return is_number(value) and value is not None and value.data > 0


def _from_call(event: CallEvent, epochs: list[Candidate], steps: list[Candidate]) -> None:
    for rule in rules("calls")["length"]:
        if not matches(event, rule):
            continue
        base = 95.0 if event.certain else 75.0
        if event.in_loop:
            base -= 35
        if "duration" in rule:
            _duration(argument(event, rule["duration"]), base, epochs, steps)
            continue
        step = argument(event, rule.get("steps", []))
        epoch = argument(event, rule.get("epochs", []))
        if _positive(step) and step is not None:
            steps.append(_candidate(step, base + 2))
        if _positive(epoch) and epoch is not None:
            # `fit(epochs=30, initial_epoch=20)` goes on to the total
            begun = event.kwargs.get("initial_epoch")
            further = 0 if begun is None else 1 if begun.data == 0 else 2
            epochs.append(_candidate(epoch, base + further))
        elif "default_epochs" in rule and (epoch is None or epoch.data is None):
            if not _positive(step) and (step is None or step.known):
                origin = Origin("library", text=rule["text"])
                epochs.append(Candidate(rule["default_epochs"], origin, base - 20))


_RUNNER = re.compile(
    r"(trainer|runner|learner|experiment|solver|engine|training)\w*$", re.IGNORECASE
)


def _from_runner(event: CallEvent, epochs: list[Candidate], steps: list[Candidate]) -> None:
    """The length that a training class of the repository is given by name."""
    if event.cls is None or not _RUNNER.search(event.cls.name):
        return
    names = rules("names")
    for target, aliases in ((epochs, names["epochs"]), (steps, names["steps"])):
        for rank, alias in enumerate(aliases):
            value = event.kwargs.get(alias)
            if _positive(value) and value is not None and value.data > 1:
                score = (68.0 if event.certain else 58.0) - 0.12 * rank
                target.append(_candidate(value, score))


def _from_training_arguments(trace: Trace, epochs: list[Candidate], steps: list[Candidate]) -> None:
    """Hugging Face training arguments parsed into a dataclass: positive max_steps wins."""
    for group in trace.settings:
        fields = group.value.data
        if group.kind != "dataclass" or not isinstance(fields, dict):
            continue
        if "max_steps" in fields and "num_train_epochs" in fields:
            if _positive(fields["max_steps"]):
                steps.append(_candidate(fields["max_steps"], 97))
            elif _positive(fields["num_train_epochs"]):
                epochs.append(_candidate(fields["num_train_epochs"], 96))


def _duration(
    value: Value | None, base: float, epochs: list[Candidate], steps: list[Candidate]
) -> None:
    """Composer's `10ep`, `1000ba` time strings; a bare number counts epochs."""
    if value is None:
        return
    if is_number(value):
        epochs.append(_candidate(value, base))
        return
    found = re.fullmatch(r"(\d+)\s*(ep|ba)", value.data) if isinstance(value.data, str) else None
    if found:
        made = Candidate(int(found[1]), value.origin, base)
        (epochs if found[2] == "ep" else steps).append(made)


def _candidate(value: Value, score: float, note: str | None = None) -> Candidate:
    if value.data >= _ENDLESS:
        score -= 40
    return Candidate(
        _whole(value.data), value.origin, score + source_bonus(value.origin) / 10, note
    )


def _is_inner(loop: LoopEvent, outer: LoopEvent | None) -> bool:
    """Whether a loop passes over what one step of the training loop around it gathered."""
    if outer is None or loop.kind != "for" or loop.function != outer.function:
        return False
    if not outer.has_backward or loop.site.file != outer.site.file:
        return False
    named = f"{outer.counter} {outer.bound_text}"
    return bool(_STEP.search(outer.counter) or _STEP.search(outer.bound_text)) or (
        bool(_EPOCH.search(named)) and not _positive(outer.bound)
    )


def _of_passes(
    loop: LoopEvent, count: Passes, epochs: list[Candidate], steps: list[Candidate]
) -> None:
    """A loop whose bound hangs on the length of the data, but not what the bound was made from."""
    made = count.epochs if count.steps is None else count.steps
    text = f"{loop.counter} {loop.bound_text}"
    if (
        not loop.has_backward
        or loop.depth > 0
        or not _positive(made)
        or _OTHER_EPISODES.search(text)
    ):
        return
    assert made is not None
    score, note = 84.0 if loop.certain else 63.0, f"loop over {loop.bound_text}"
    if count.steps is not None and _EPOCH.search(text):
        steps.append(_candidate(made, score, note))
    elif count.steps is None and made.data > 1:
        epochs.append(_candidate(made, score, note))


def _from_loop(loop: LoopEvent, epochs: list[Candidate], steps: list[Candidate]) -> None:
    if not _positive(loop.bound):
        return
    counter = loop.counter.rsplit(".", 1)[-1]
    text = loop.bound_text
    bound_is_epoch, counter_is_epoch = bool(_EPOCH.search(text)), bool(_EPOCH.search(counter))
    counter_is_step = bool(_STEP.search(counter))
    note = f"loop over {text}" if loop.kind == "for" else f"{_LEAVES} {text}"
    if loop.kind == "for":
        if not loop.has_backward and not counter_is_epoch:
            return
        if "episode" in text and loop.bound.data <= 1:
            return
        score = (
            (88.0 if loop.certain else 66.0)
            - (0 if loop.has_backward else 8)
            - _DEEPER[min(max(0, loop.depth), 3)]
        )
        if counter_is_epoch or (bound_is_epoch and not counter_is_step):
            if not _OTHER_EPISODES.search(text):
                epochs.append(_candidate(loop.bound, score, note))
        elif (counter_is_step or _STEP.search(text)) and not _NOT_TOTAL.search(text):
            steps.append(_candidate(loop.bound, score - 3, note))
        return
    if _NOT_TOTAL.search(text) or loop.bound.data <= 1:
        return
    score = (86.0 if loop.certain else 64.0) - 2 * max(0, loop.depth - 1)
    if counter_is_epoch and loop.kind == "while":
        epochs.append(_candidate(loop.bound, score, note))
    elif counter_is_epoch:
        epochs.append(_candidate(loop.bound, score - 20, note))
    elif counter_is_step or re.search(r"step|iter|itrs|update", text, re.IGNORECASE):
        named_total = re.search(
            r"max|total|num|n_|train|niter|iterations|steps$|limit|budget", text, re.IGNORECASE
        )
        if text.replace("_", "").isdigit():
            score -= 26
        elif not named_total:
            score -= 22
        elif re.search(r"global|total", f"{counter} {text}", re.IGNORECASE):
            # leaving the loop at a count of all steps comes before the last epoch
            score += 4
        steps.append(_candidate(loop.bound, score, note))


def _of_another(setting: Setting) -> bool:
    """Whether a setting's section is about something else than the length of training."""
    parents = setting.path[:-1]
    if any("sched" in part.lower() or _PARTS_OF_OTHERS.search(part) for part in parents):
        return True
    if setting.key.startswith(("maxepoch", "maxsteps", "maxiter")):
        return False
    return any(_PARTS_NOT_LENGTH.search(part) for part in parents)


def _from_settings(
    settings: list[Setting], epochs: list[Candidate], steps: list[Candidate]
) -> None:
    names = rules("names")
    for target, aliases in ((epochs, names["epochs"]), (steps, names["steps"])):
        for rank, setting in named(settings, aliases):
            if not _positive(setting.value):
                text = setting.value.data
                if not (isinstance(text, str) and re.fullmatch(r"\d+", text)):
                    continue
            if _of_another(setting):
                continue
            number = setting.value.data
            optim = target is steps and any(_OPTIM.fullmatch(p) for p in setting.path[:-1])
            if optim and float(number) < 100:
                continue  # of the optimiser's own search
            data = int(number) if isinstance(number, str) else _whole(number)
            score = 74.0 - 0.12 * rank + source_bonus(setting.value.origin)
            if setting.key in _ENVIRONMENT_STEPS:
                if isinstance(data, int | float) and data < _CLIP:
                    continue  # the frames of a video clip
                score += 18
            if setting.kind == "globals":
                score -= 6
            if isinstance(data, int | float) and data <= 1 and target is steps:
                continue
            if "episode" in setting.key:
                if isinstance(data, int | float) and data <= 1:
                    continue
                score -= 8
            if setting.explicit:
                score += 2
            limit = target is steps and setting.key.startswith("max")
            note = _LIMIT if limit and setting.explicit else None
            target.append(Candidate(data, setting.value.origin, score, note))
