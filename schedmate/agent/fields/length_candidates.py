"""Lengths of training that loops count up to, that settings name and that trainers are given.

In epochs, steps, samples or tokens: each is a `Length`, whose note says what ends the training
there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeGuard

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import (
    EXPLICIT,
    Candidate,
    is_number,
    matching_rules,
    pattern_of,
    rule_argument,
    rules,
    source_bonus,
    word_list,
)
from schedmate.agent.fields.settings import Setting, settings_named
from schedmate.agent.interp.trace import CallEvent, LoopEvent, Trace
from schedmate.agent.interp.values.base import Passes
from schedmate.agent.units import ENVIRONMENT_STEP, SAMPLE, TOKEN, Unit
from schedmate.agent.values import NumberValue, Origin, Value

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
_ANY_COUNTER = re.compile(f"{_EPOCH.pattern}|{_STEP.pattern}|itr", re.IGNORECASE)
_CONSUMED_COUNTER = re.compile(r"(^|_|\b)(frame|n?img|kimg|interaction)s?($|_|\b)", re.IGNORECASE)
"""What training consumes, counted in place of its steps where there is much of it."""

_NOT_TOTAL = pattern_of("length_candidates.not_total")
_OTHER_EPISODES = pattern_of("length_candidates.other_episodes")


_UPDATE = re.compile(r"(^|_)update($|_)")
"""Functions that learn from what an agent gathered."""


def is_inner(loop: LoopEvent, outer: LoopEvent | None) -> bool:
    """Whether a loop passes over what one step of the training loop around it gathered."""
    if loop.kind == "for" and loop.depth > 0 and _UPDATE.search(loop.function):
        return True
    if outer is None or loop.kind != "for":
        return False
    if loop.function != outer.function:
        return _is_outer_run(outer, loop)
    if not outer.has_backward or loop.site.file != outer.site.file:
        return False
    named = f"{outer.counter} {outer.bound_text}"
    return bool(_STEP.search(outer.counter) or _STEP.search(outer.bound_text)) or (
        bool(_EPOCH.search(named)) and not is_positive(outer.bound)
    )


def _is_outer_run(outer: LoopEvent, loop: LoopEvent) -> bool:
    """Whether the run is `outer`'s many iterations, in each of which a function trains a little."""
    iterations = outer.has_backward and outer.certain and outer.depth == 0
    if not (iterations and _STEP.search(outer.bound_text)) or _NOT_TOTAL.search(outer.bound_text):
        return False
    return (
        is_positive(outer.bound) and is_positive(loop.bound) and outer.bound.data > loop.bound.data
    )


def lengths_of_passes(
    loop: LoopEvent, count: Passes, found: Lengths, settings: list[Setting]
) -> None:
    """A loop whose bound hangs on the length of the data, but not what the bound was made from."""
    made = count.epochs if count.steps is None else count.steps
    text = f"{loop.counter} {loop.bound_text}"
    if (
        not loop.has_backward
        or loop.depth > 0
        or not is_positive(made)
        or _OTHER_EPISODES.search(text)
    ):
        return
    assert made is not None
    named = made.origin is not None and made.origin.source != "code"
    if count.steps is not None and count.data is None and not named:
        return  # `20000 // batch_size` counts samples as likely as it counts steps
    if count.steps is not None and consumed_unit(number_name(made, settings)) is not None:
        return  # `num_samples // batch_size` is fewer steps than samples
    score = prior.loop.sure("of passes", loop.certain)
    end = End("loop", loop.bound_text)
    if count.steps is not None and _ANY_COUNTER.search(text):
        # the phases of a schedule each go on from where the last one ended
        found.steps = [s for s in found.steps if s.end != end or s.data > (made.number or 0)]
        found.steps.append(counted_length(made, score, end))
    elif count.steps is None and (made.number or 0) > 1:
        found.epochs.append(counted_length(made, score, end))


def _points_of_while(loop: LoopEvent) -> float:
    score = prior.loop.sure("left", loop.certain)
    score += prior.loop["deeper while"] * max(0, loop.depth - 1)
    gathers = loop.kind == "while" and loop.depth > 0 and not loop.has_backward
    return score + prior.loop["gathers"] if gathers else score


_BEGUN = re.compile(r"range\((?:[^,()]|\([^()]*\))*,")


_LAST_LOOK = re.compile(r"\brange\([^,]*\+ 1\)+$")


def _steps_of(loop: LoopEvent) -> Value:
    """How many steps a loop takes; of `range(steps + 1)` the last pass only evaluates."""
    if is_positive(loop.bound) and _LAST_LOOK.search(loop.bound_text):
        return Value(loop.bound.data - 1, loop.bound.origin)
    return loop.bound


_TOTAL = re.compile(r"(^|[._])(num|max|total|n)_(\w+_)?(iters|iterations|steps|updates)$")


def _is_the_run(loop: LoopEvent, text: str) -> bool:
    """Whether an outermost loop that calls what trains goes up to a total that was set."""
    origin = loop.bound.origin
    given = origin is not None and origin.source in (*EXPLICIT, "config")
    total = _TOTAL.search(text) is not None and not _NOT_TOTAL.search(text)
    return given and total and loop.certain and loop.depth == 0


def lengths_from_loop(loop: LoopEvent, found: Lengths) -> None:
    if not is_positive(loop.bound):
        return
    counter = loop.counter.rsplit(".", 1)[-1]
    text = _BEGUN.sub("range(", loop.bound_text)  # up to where, not from where
    bound_is_epoch, counter_is_epoch = bool(_EPOCH.search(text)), bool(_EPOCH.search(counter))
    counter_is_step = _counts_steps(loop, counter, text)
    end = End("loop", text)
    if loop.kind == "for":
        if not loop.has_backward and not counter_is_epoch:
            if _is_the_run(loop, text):
                score = prior.loop["calls training"]
                found.steps.append(counted_length(loop.bound, score, end))
            return
        of_epochs = counter_is_epoch or bound_is_epoch
        inside = loop.depth > 0 and _times_round(loop) < FEW and not of_epochs
        if inside or (_times_round(loop) <= 1 and (not of_epochs or "episode" in text)):
            return  # once or a few times through something inside a step
        score = (
            prior.loop.sure("for", loop.certain) + prior.loop[_DEEPER[min(max(0, loop.depth), 3)]]
        )
        if of_epochs:
            if not _OTHER_EPISODES.search(text):
                found.epochs.append(counted_length(loop.bound, score, end))
        elif (counter_is_step or _STEP.search(text)) and not _NOT_TOTAL.search(text):
            score += prior.loop["of steps"]
            found.steps.append(counted_length(_steps_of(loop), score, end))
        elif _is_plain(loop, counter, text):
            plain = counted_length(loop.bound, score + prior.loop["plain"], end)
            (found.epochs if loop.over_data else found.steps).append(plain)
        return
    _lengths_from_end(loop, counter, text, found)


def _times_round(loop: LoopEvent) -> float:
    """How often a loop goes round, 0 where that is no number."""
    return loop.bound.number or 0


def _is_plain(loop: LoopEvent, counter: str, text: str) -> bool:
    """Whether this is `for i in range(1000)`, which takes the steps of training itself."""
    repeats = re.search(r"run|fold|seed|trial|repeat|client|agent|task|restart", text)
    trains = loop.over_data or (loop.over_data is False and _times_round(loop) >= FEW)
    outermost = loop.certain and loop.depth == 0
    plain = re.fullmatch(r"[a-z]?_*i*", counter) is not None
    return bool(trains) and outermost and plain and not repeats


def _counts_steps(loop: LoopEvent, counter: str, text: str) -> bool:
    consumed = _times_round(loop) >= CLIP and _CONSUMED_COUNTER.search(f"{counter} {text}")
    return bool(_STEP.search(counter) or consumed)


def _lengths_from_end(loop: LoopEvent, counter: str, text: str, found: Lengths) -> None:
    """What a `while` loop goes up to, or the count at which a loop is left."""
    end = End("leaves", text)
    gathers = loop.kind == "while" and loop.counter.startswith("len(")  # samples, before training
    if gathers or _NOT_TOTAL.search(text) or _times_round(loop) <= 1:
        return
    score = _points_of_while(loop)
    if _EPOCH.search(counter):
        score += prior.loop["leaves at an epoch"] if loop.kind != "while" else 0
        found.epochs.append(counted_length(loop.bound, score, end))
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
        found.steps.append(counted_length(loop.bound, score, end))


# Lengths that settings name: arguments, configuration files, module constants.


_ENVIRONMENT_STEPS = word_list("environment_steps")
"""Reinforcement learning counts environment steps, whatever its loops count."""

_PARTS_OF_OTHERS = pattern_of("length_candidates.parts_of_others")
_OPTIM = re.compile(r"optim\w*", re.IGNORECASE)
_PARTS_NOT_LENGTH = pattern_of("length_candidates.parts_not_length")


def is_about_another(setting: Setting) -> bool:
    """Whether a setting's section is about something else than the length of training."""
    parents = setting.path[:-1]
    if any("sched" in part.lower() or _PARTS_OF_OTHERS.search(part) for part in parents):
        return True
    if setting.key.startswith(("maxepoch", "maxsteps", "maxiter")):
        return False
    return any(_PARTS_NOT_LENGTH.search(part) for part in parents)


def lengths_from_settings(settings: list[Setting], found: Lengths) -> None:
    """Lengths that settings are named after."""
    names = rules("names")
    for rank, setting in settings_named(settings, names["duration"]):
        if not is_about_another(setting):
            sure = prior.length_setting["named"] + prior.length["rank"] * rank
            sure += source_bonus(setting.value.origin)
            add_timed(setting.value, sure, found)
    for target, aliases in ((found.epochs, names["epochs"]), (found.steps, names["steps"])):
        for rank, setting in settings_named(settings, aliases):
            if not is_positive(setting.value):
                text = setting.value.data
                if not (isinstance(text, str) and re.fullmatch(r"\d{1,18}", text)):
                    continue
            if is_about_another(setting):
                continue
            number = setting.value.data
            optim = target is found.steps and any(_OPTIM.fullmatch(p) for p in setting.path[:-1])
            if optim and float(str(number)) < 100:
                continue  # of the optimiser's own search
            data = int(number) if isinstance(number, str) else whole_number(number)
            score = _setting_score(setting, data, target is found.steps)
            if score is None:
                continue
            limit = target is found.steps and setting.key.startswith("max")
            end = End("limit") if limit and setting.explicit else None
            unit = ENVIRONMENT_STEP if setting.key in _ENVIRONMENT_STEPS else None
            score += prior.length["rank"] * rank
            target.append(noted_length(data, setting.value.origin, score, end, unit))


def _setting_score(setting: Setting, number: float, steps: bool) -> float | None:
    """How likely a setting under such a name is the length; None when it is something else."""
    score = prior.length_setting["named"] + source_bonus(setting.value.origin)
    score += prior.length_setting["launched"] if setting.explicit else 0
    if setting.key in _ENVIRONMENT_STEPS:
        if number < CLIP:
            return None  # the frames of a video clip
        score += prior.length_setting["environment steps"]
    counted_up = setting.kind == "globals" and len(setting.path) > 1  # by an object, so far
    one = setting.explicit and setting.key.startswith(
        ("max", "total", "train")
    )  # a trial of one step
    if number <= 1 and ((steps and not one) or counted_up or "episode" in setting.key):
        return None
    few = steps and number < FEW and not one
    return None if few and setting.source == "default" else score


# Lengths that trainers, runners and training arguments are given.


def lengths_from_call(event: CallEvent, found: Lengths) -> None:
    for rule in matching_rules(event, "length"):
        base = prior.length_call.sure("trainer", event.certain)
        if event.in_loop:
            base += prior.length_call["in a loop"]
        if "duration" in rule:
            duration = rule_argument(event, rule["duration"])
            if is_number(duration):  # a bare one counts epochs
                found.epochs.append(counted_length(duration, base))
            elif duration is not None:
                add_timed(duration, base, found)
            continue
        step = rule_argument(event, rule.get("steps", []))
        epoch = rule_argument(event, rule.get("epochs", []))
        if is_positive(step) and step is not None:
            score = base + prior.length_call["steps"]
            found.steps.append(counted_length(step, score, unit=rule.get("unit")))
        if is_positive(epoch) and epoch is not None:
            found.epochs.append(counted_length(epoch, base))
        elif "default_epochs" in rule and (epoch is None or epoch.data is None):
            if not is_positive(step) and (step is None or step.known):
                origin = Origin("library", text=f"{rule['text']}.{rule['epochs'][0]}")
                score = base + prior.length_call["default"]
                found.epochs.append(noted_length(rule["default_epochs"], origin, score))


def lengths_from_training_arguments(trace: Trace, found: Lengths) -> None:
    """Hugging Face training arguments parsed into a dataclass: positive max_steps wins."""
    for group in trace.settings:
        fields = group.value.data
        if group.kind != "dataclass" or not isinstance(fields, dict):
            continue
        if "max_steps" in fields and "num_train_epochs" in fields:
            if is_positive(fields["max_steps"]):
                score = prior.length_call["arguments steps"]
                found.steps.append(counted_length(fields["max_steps"], score))
            elif is_positive(fields["num_train_epochs"]):
                passes = fields["num_train_epochs"]
                unsaid = passes.origin is not None and passes.origin.source == "library"
                score = prior.length_call["arguments default" if unsaid else "arguments"]
                found.epochs.append(counted_length(passes, score))


# Lengths in samples or tokens: what a run is to go through, rather than how often it steps.


LEAST_CONSUMED = 1000
"""Fewer samples than this are a look at the data, and no training."""
_THOUSANDS = "kilosamples"

_COUNTED_UNIT: tuple[tuple[Unit, re.Pattern[str]], ...] = (
    (TOKEN, re.compile(r"(^|[\W_])tokens?($|[\W_])", re.IGNORECASE)),
    (
        SAMPLE,
        re.compile(
            r"(^|[\W_])(k?(samples?|examples?|imgs?|images?|pictures?|sentences?)|nimg)($|[\W_])",
            re.IGNORECASE,
        ),
    ),
)
_OTHER_COUNT = pattern_of("length_candidates.other_count")
"""Names of counts that something else than the training ends at."""


_TIMED_UNITS: dict[str, Unit] = {"sp": SAMPLE, "tok": TOKEN}


def add_timed(value: Value, score: float, found: Lengths) -> None:
    """Add a duration that is written with its unit, `10ep`, to those of its unit."""
    duration = timed_length(value)
    if duration is None:
        return
    number, written = duration
    if written in _TIMED_UNITS:
        unit = _TIMED_UNITS[written]
        found.consumed.append(noted_length(number, value.origin, score, unit=unit))
    else:
        of_unit = found.epochs if written == "ep" else found.steps
        of_unit.append(noted_length(number, value.origin, score))


def consumed_unit(name: str) -> Unit | None:
    """What a name says it counts, None where that is neither samples nor tokens."""
    return next((unit for unit, words in _COUNTED_UNIT if words.search(name)), None)


def consumed_from_settings(settings: list[Setting], found: Lengths) -> None:
    """Settings that are named after the samples or tokens of the whole training."""
    names = rules("names")["consumed"]
    for kind, aliases in names.items():
        unit: Unit = TOKEN if kind == "tokens" else SAMPLE
        for rank, setting in settings_named(settings, aliases):
            if not is_positive(setting.value) or _OTHER_COUNT.search(".".join(setting.path[:-1])):
                continue
            value = setting.value.data * (1000 if kind == _THOUSANDS else 1)
            if value < LEAST_CONSUMED:
                continue
            origin = setting.value.origin
            if kind == _THOUSANDS and origin is not None:
                origin = origin._replace(computed=f"{setting.value.data:,} thousand samples")
            score = (
                prior.length_setting["named"] + source_bonus(origin) + prior.length["rank"] * rank
            )
            found.consumed.append(noted_length(whole_number(value), origin, score, unit=unit))


def consumed_from_loop(loop: LoopEvent, found: Lengths) -> bool:
    """Whether a loop counts samples or tokens, which it then adds where it ends the training."""
    text = f"{loop.counter} {loop.bound_text}"
    unit = consumed_unit(loop.counter) or consumed_unit(loop.bound_text)
    if unit is None or loop.kind == "for" or loop.counter.startswith("len("):
        return False
    if not is_positive(loop.bound) or loop.bound.data < LEAST_CONSUMED or _OTHER_COUNT.search(text):
        return False
    if not loop.has_backward:
        return False
    score = prior.loop.sure("left", loop.certain)
    score += prior.loop["deeper while"] * max(0, loop.depth - 1)
    end = End("leaves", loop.bound_text)
    number = whole_number(loop.bound.data)
    found.consumed.append(noted_length(number, loop.bound.origin, score, end, unit))
    return True


def number_name(value: Value, settings: list[Setting]) -> str:
    """What the program calls a number: the setting that holds it."""
    for setting in settings:
        same = setting.value.origin is not None and setting.value.origin == value.origin
        if setting.value is value or (same and setting.value.data == value.data):
            return setting.path[-1]
    return ""


# A number that code or settings give, as a candidate for the length of training.


ENDLESS = 10**8
"""So many epochs or steps mean that something else ends the training."""
_STEPS = 10_000
"""A duration without a unit from here on is in steps: nobody trains for so many epochs."""
CLIP = 1000
"""Fewer frames than this are a clip's, not a training's."""
FEW = 50
"""Fewer steps than this are no training beside others that were set, or inside another loop."""


class End(NamedTuple):
    """What ends a training at a length: a limit that was set, a loop's bound, a count in a loop."""

    kind: Literal["limit", "loop", "leaves"]
    bound: str = ""
    """The bound as the program writes it."""

    def note(self) -> str:
        """What ends the training, in words for the evidence's note."""
        match self.kind:
            case "limit":
                return "a limit of steps that was set for this launch"
            case "loop":
                return f"loop over {self.bound}"
            case "leaves":
                return f"leaves at {self.bound}"


@dataclass(slots=True)
class Length(Candidate):
    """A length: what it counts, None for what it is listed under, and how it ends the training."""

    unit: Unit | None = None
    end: End | None = None


@dataclass(slots=True)
class Lengths:
    """What was found: lengths in epochs, in steps, and in samples or tokens."""

    epochs: list[Length] = field(default_factory=list)
    steps: list[Length] = field(default_factory=list)
    consumed: list[Length] = field(default_factory=list)

    def all(self) -> list[Length]:
        """The lengths of all units."""
        return [*self.epochs, *self.steps, *self.consumed]


def whole_number(number: Any) -> Any:
    return int(number) if isinstance(number, float) and number.is_integer() else number


def is_positive(value: Value | None) -> TypeGuard[NumberValue]:
    return is_number(value) and value.data > 0


def timed_length(value: Value) -> tuple[int, str] | None:
    """A time string of Composer: `10ep` epochs, `1000ba` batches, `5000sp` samples.

    A large number without a unit is one of batches; `tok` and `sp` are what is consumed.
    """
    text = value.data if isinstance(value.data, str) else ""
    if type(value.data) is int and value.data >= _STEPS:
        return value.data, "ba"
    found = re.fullmatch(r"(\d+)\s*(ep|ba|sp|tok)", text)
    return (int(found[1]), found[2]) if found else None


def counted_length(
    value: Value, score: float, end: End | None = None, unit: Unit | None = None
) -> Length:
    """The candidate that a number is, doubted where it stands for no end at all."""
    if is_number(value) and value.data >= ENDLESS:
        score += prior.length["endless"]
    score += source_bonus(value.origin) * prior.length["source"]
    return noted_length(whole_number(value.data), value.origin, score, end, unit)


def noted_length(
    number: float,
    origin: Origin | None,
    score: float,
    end: End | None = None,
    unit: Unit | None = None,
) -> Length:
    """A candidate whose note says what ends the training."""
    return Length(number, origin, score, end and end.note(), unit=unit, end=end)
