"""Lengths that trainers, runners and training arguments are given."""

from __future__ import annotations

import re

from schedmate.agent.fields.candidates import argument, is_number, matching, rules
from schedmate.agent.fields.length.consumed import add_timed
from schedmate.agent.fields.length.counts import Length, counted, length_of, positive
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.values import Origin, Value

_RUNNER = re.compile(
    r"(trainer|runner|learner|experiment|solver|engine|training)\w*$", re.IGNORECASE
)


def from_call(
    event: CallEvent, epochs: list[Length], steps: list[Length], consumed: list[Length]
) -> None:
    for rule in matching(event, "length"):
        base = 95.0 if event.certain else 75.0
        if event.in_loop:
            base -= 35
        if "duration" in rule:
            _duration(argument(event, rule["duration"]), base, epochs, steps, consumed)
            continue
        step = argument(event, rule.get("steps", []))
        epoch = argument(event, rule.get("epochs", []))
        if positive(step) and step is not None:
            steps.append(counted(step, base + 2, unit=rule.get("unit")))
        if positive(epoch) and epoch is not None:
            # `fit(epochs=30, initial_epoch=20)` goes on to the total
            begun = event.kwargs.get("initial_epoch")
            further = 0 if begun is None else 1 if begun.data == 0 else 2
            epochs.append(counted(epoch, base + further))
        elif "default_epochs" in rule and (epoch is None or epoch.data is None):
            if not positive(step) and (step is None or step.known):
                origin = Origin("library", text=f"{rule['text']}.{rule['epochs'][0]}")
                epochs.append(length_of(rule["default_epochs"], origin, base - 20))


def from_runner(event: CallEvent, epochs: list[Length], steps: list[Length]) -> None:
    """The length that a training class of the repository is given by name."""
    if event.cls is None or not _RUNNER.search(event.cls.name):
        return
    names = rules("names")
    for target, aliases in ((epochs, names["epochs"]), (steps, names["steps"])):
        for rank, alias in enumerate(aliases):
            value = event.kwargs.get(alias)
            if positive(value) and value.data > 1:
                score = (68.0 if event.certain else 58.0) - 0.12 * rank
                target.append(counted(value, score))


def from_training_arguments(trace: Trace, epochs: list[Length], steps: list[Length]) -> None:
    """Hugging Face training arguments parsed into a dataclass: positive max_steps wins."""
    for group in trace.settings:
        fields = group.value.data
        if group.kind != "dataclass" or not isinstance(fields, dict):
            continue
        if "max_steps" in fields and "num_train_epochs" in fields:
            if positive(fields["max_steps"]):
                steps.append(counted(fields["max_steps"], 97))
            elif positive(fields["num_train_epochs"]):
                passes = fields["num_train_epochs"]
                unsaid = passes.origin is not None and passes.origin.source == "library"
                epochs.append(counted(passes, 80 if unsaid else 96))


def _duration(
    value: Value | None,
    base: float,
    epochs: list[Length],
    steps: list[Length],
    consumed: list[Length],
) -> None:
    """Composer's `10ep`, `1000ba`, `5000sp` time strings; a bare number counts epochs."""
    if value is None:
        return
    if is_number(value):
        epochs.append(counted(value, base))
        return
    add_timed(value, base, epochs, steps, consumed)
