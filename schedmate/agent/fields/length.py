"""`training_config.iters` and `iter_type`: what ends the training.

The likeliest candidate of `length_candidates.py`, in the unit that a history counts in; lengths
that were set for a launch and that its training cannot run for are told instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import NamedTuple

from schedmate.agent.fields import prior, training
from schedmate.agent.fields.candidates import (
    EXPLICIT,
    Candidate,
    by_rule,
    is_launched,
    is_number,
    matching_rules,
    pattern_of,
    rule_argument,
    rules,
    source_bonus,
    unresolved_text,
)
from schedmate.agent.fields.length_candidates import (
    ENDLESS,
    Length,
    Lengths,
    consumed_from_loop,
    consumed_from_settings,
    is_about_another,
    is_inner,
    lengths_from_call,
    lengths_from_loop,
    lengths_from_settings,
    lengths_from_training_arguments,
    lengths_of_passes,
)
from schedmate.agent.fields.settings import Setting, settings_named
from schedmate.agent.interp.trace import CallEvent, LoopEvent, Trace
from schedmate.agent.interp.values.base import Passes
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.units import EPOCH, LONGEST, SAMPLE, STEP, TOKEN, Factor, Unit, convert
from schedmate.agent.values import Origin, Unknown, Value

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
        if not stands or is_from_unusable(length, unusable):
            return None
    return chosen


def _likeliest(
    trace: Trace, settings: list[Setting], plan: LaunchPlan
) -> tuple[Candidate, Unit] | None:
    found = Lengths()
    for event in trace.calls:
        lengths_from_call(event, found)
    lengths_from_training_arguments(trace, found)
    by_rule("call", found.all())
    around: dict[int, LoopEvent] = {}
    inner: list[Value] = []
    for loop in _furthest_loops(trace.loops):
        if isinstance(loop.bound.data, Passes):
            lengths_of_passes(loop, loop.bound.data, found, settings)
        elif is_inner(loop, around.get(loop.depth - 1)):
            inner.append(loop.bound)
        elif not consumed_from_loop(loop, found):
            lengths_from_loop(loop, found)
        if loop.kind == "for":
            around[loop.depth] = loop
    by_rule("loop", found.all())
    if not any(_is_unresolved(event) for event in trace.calls):
        counters = {loop.counter for loop in trace.loops if loop.kind == "for"}
        lengths_from_settings(
            # what counted a loop, and where it stopped, is not a setting
            [
                s
                for s in settings
                if (s.kind != "globals" or s.path[-1] not in counters)
                and not any(s.value is bound for bound in inner)
            ],
            found,
        )
        consumed_from_settings(settings, found)
    by_rule("setting", found.all())
    unread = configuration_unread(plan, settings) or _limit_unknown(trace)
    epoch, step = (_best_length(each, unread) for each in (found.epochs, found.steps))
    if _is_endless(trace, epoch, step):
        return None
    considered = found.all()
    whole = _best_length(found.consumed, unread)
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
        for rule in matching_rules(event, "length") if event.certain else ():
            if "epochs" not in rule:
                continue
            step = rule_argument(event, rule.get("steps", []))
            if step is not None and not step.known and rule_argument(event, rule["epochs"]) is None:
                return True
    return False


def _best_length(found: Sequence[Length], unread: bool) -> Length | None:
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


def _furthest_loops(loops: list[LoopEvent]) -> list[LoopEvent]:
    """The loops, of several written alike the one that goes furthest.

    `for lr, max_step in schedule: ... if step >= max_step: break` ends at the schedule's end, and
    of stages, `pretrain(1)` and then `finetune(9)`, the longest is what is waited for.
    """
    ends: dict[tuple[object, ...], float] = {}
    for loop in loops:
        if loop.kind != "while" and is_number(loop.bound):
            ends[_written_form(loop)] = max(
                loop.bound.number or 0, ends.get(_written_form(loop), 0)
            )
    return [
        loop for loop in loops if ends.get(_written_form(loop), loop.bound.data) == loop.bound.data
    ]


def _written_form(loop: LoopEvent) -> tuple[object, ...]:
    return loop.kind, loop.counter, loop.bound_text, loop.certain, loop.depth, loop.has_backward


def _is_endless(trace: Trace, epoch: Length | None, step: Length | None) -> bool:
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


def _is_unresolved(event: CallEvent) -> bool:
    """Whether a trainer's length is an interpolation that only the running program can compute.

    What other settings say is then about something else.
    """
    for rule in matching_rules(event, "length") if event.certain else ():
        for name in ("steps", "epochs"):
            text = unresolved_text(rule_argument(event, rule.get(name, [])))
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


# Lengths as a history counts them, in steps or epochs, whatever the program counts.


def length_in_steps(
    length: Candidate, unit: Unit, batch: Candidate | None, sequence: Candidate | None
) -> tuple[Candidate, Candidate] | str:
    """A length and its unit, in steps or epochs, or the sentence that says why there is none.

    Args:
        length: the number that the program states.
        unit: what it counts.
        batch: samples of one optimiser step, over all devices; None where it is not known.
        sequence: tokens of a sample; None where it is not known.
    """
    if not length.data <= LONGEST:
        where = length.evidence().where()
        return f"{length.data:g} is more than any training has: no length is given ({where})"
    if unit not in (SAMPLE, TOKEN):
        note = None if unit in (STEP, EPOCH) else f"{unit}s"
        kind = EPOCH if unit == EPOCH else STEP
        return length, replace(length, data=kind, note=note)
    result = convert(
        length.data,
        unit,
        _factor_of(batch, "global batch"),
        _factor_of(sequence, "sequence length"),
    )
    if isinstance(result, str):
        return f"{result}: no length is given ({length.evidence().where()})"
    used = (batch, sequence if unit == TOKEN else None)
    score = min([length.score, *(part.score for part in used if part is not None)])
    origin = (length.origin or Origin("code"))._replace(computed=result.formula)
    steps = replace(length, data=result.value, origin=origin, score=score)
    return steps, replace(steps, data=STEP, note=f"computed from {unit}s")


def _factor_of(candidate: Candidate | None, name: str) -> Factor | None:
    if candidate is None or not isinstance(candidate.data, int | float) or candidate.data <= 0:
        return None
    if candidate.score < prior.length["divisor"]:
        return None
    return Factor(name, candidate.data, candidate.evidence().where())


# What stands against a length: a program that trains nothing, a configuration that is missing.


_EVALUATES = pattern_of("length.evaluates")
_TRAINS = re.compile(r"train|tun(e|ing)|fit|learn", re.IGNORECASE)
_TRAINING = re.compile(r"train(_\w+)?")
"""Functions that train, perhaps in processes of their own."""


def only_evaluates(trace: Trace, plan: LaunchPlan) -> bool:
    """Whether the program is named for something else than training, and nothing in it trains."""
    name = PurePosixPath(plan.entry or "").stem
    if not _EVALUATES.search(name) or _TRAINS.search(name):
        return False
    if any(_TRAINING.fullmatch(function) for function in trace.functions):
        return False
    return not any(loop.has_backward and loop.kind == "for" for loop in trace.loops) and not any(
        training.makes_optimizer(event) or matching_rules(event, "length") for event in trace.calls
    )


_FLAG = re.compile(r"-{1,2}\w*(config|cfg|recipe)[\w-]*", re.IGNORECASE)
_OTHER_FLAG = re.compile(r"deepspeed|ds_|accelerate|model|token|data|log|hyp", re.IGNORECASE)
"""What options name whose files configure something else."""
_CONFIG_FILE = re.compile(r"\S+\.(ya?ml|toml|jsonnet|gin)|[A-Z_]*(CONFIG|CFG)[A-Z_]*")
"""A configuration's file, or what stands for one: `x.yaml`, `CONFIG_FILE`."""


def configuration_unread(plan: LaunchPlan, settings: list[Setting]) -> bool:
    """Whether the launch names a configuration, and the program was seen to read none."""
    read = any(s.source == "config" and s.owner != "launcher" for s in settings)
    words = [w.data.text or "" if isinstance(w.data, Unknown) else str(w.data) for w in plan.argv]
    option = ""
    for word, following in zip(words, [*words[1:], "-"], strict=False):
        flag, equals, value = word.partition("=")
        option = flag if equals or flag.startswith("-") else option
        if _OTHER_FLAG.search(option):
            continue
        # a file, and no name of one that the program knows
        named = not re.fullmatch(r"\w[\w-]*", value if equals else following)
        if (_FLAG.fullmatch(flag) and named) or _CONFIG_FILE.fullmatch(value or flag):
            return not read
    return False


# Lengths that were set for a launch and that its training cannot run for.


_SWITCHED_OFF = (-1, 0)
"""Numbers by which programs turn a limit off."""
_WORD = re.compile(r"[^\W\d_]+")
_OFF_WORDS = frozenset({"none", "null", "nil", "auto", "default", "max", "all", "off", "full"})
_SURELY_A_COUNT = pattern_of("length.surely_a_count")
"""Names whose values are numbers: `steps` alone may list what is to be done."""


class Unusable(NamedTuple):
    """Where a length was set that none can be, and the sentence that says so.

    `ends` says that the training ends before its first step.
    """

    origin: Origin
    sentence: str
    ends: bool = False


def unusable_lengths(settings: list[Setting], trace: Trace) -> list[Unusable]:
    """The lengths of this launch that are no number of epochs or steps that a training can run."""
    names = rules("names")
    by_origin: dict[Origin, Unusable] = {}
    for unit, most in (("epochs", ENDLESS), ("steps", LONGEST)):
        for _, setting in settings_named(settings, names[unit]):
            origin = setting.value.origin
            if origin is None or not setting.explicit or is_about_another(setting):
                continue
            sentence = _why_unusable(setting, unit, most, _spelt(setting, origin))
            ended = _ended_by(origin, trace) if sentence is None else None
            if ended is not None:
                sentence = (
                    f"{_spelt(setting, origin)}, at which the training loop "
                    f"({ended.site.file}:{ended.site.line}) ends before its first step"
                )
            if sentence is not None:
                one = Unusable(origin.operand(), sentence, ended is not None)
                by_origin.setdefault(one.origin, one)
    return list(by_origin.values())


def is_from_unusable(length: Candidate, unusable: list[Unusable]) -> bool:
    """Whether a length is one of the unusable ones."""
    return length.origin is not None and length.origin.operand() in {one.origin for one in unusable}


def _spelt(setting: Setting, origin: Origin) -> str:
    """`--epochs is 'abc' (run.sh:3)`."""
    data = setting.value.data
    written = f"{data:g}" if isinstance(data, float) else str(data)
    where = f" ({origin.file}:{origin.line})" if origin.file else ""
    return f"{origin.text or setting.path[-1]} is '{written}'{where}"


def _why_unusable(setting: Setting, unit: str, most: float, spelt: str) -> str | None:
    """The sentence about a value that is no length, None of one that may be."""
    data = setting.value.data
    number = data
    if isinstance(data, str):
        try:
            number = float(data)
        except ValueError:
            word = _WORD.fullmatch(data.strip()) is not None and data.lower() not in _OFF_WORDS
            if not word or not _SURELY_A_COUNT.search(setting.key):
                return None
            return f"{spelt}; how many {unit} that stands for is not known, so no length is given"
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    if math.isfinite(number) and number < most and (number >= 0 or number in _SWITCHED_OFF):
        return None
    return f"{spelt}, for which no training can run; give the number of {unit} that it is to run"


def _ended_by(origin: Origin, trace: Trace) -> LoopEvent | None:
    """The training loop that this length ends before its first step, if nothing else trains."""
    if any(event.certain and matching_rules(event, "length") for event in trace.calls):
        return None
    loops = [loop for loop in trace.loops if loop.has_backward and loop.required]
    for loop in loops:
        end = loop.bound.origin
        if end is None or not loop.certain or (loop.bound.number or 0) > 0 or not loop.bound.known:
            continue
        if end.operand() == origin.operand() and not any(_trains_besides(loops, loop)):
            return loop
    return None


def _trains_besides(loops: list[LoopEvent], ended: LoopEvent) -> Iterator[bool]:
    """Of each other loop whether it may train, be it not around the one that ends."""
    for loop in loops:
        number = loop.bound.number
        yield loop.depth >= ended.depth and (number is None or number > 0)
