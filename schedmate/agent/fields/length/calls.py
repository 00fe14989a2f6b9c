"""Lengths that trainers, runners and training arguments are given."""

from __future__ import annotations

from schedmate.agent.fields import prior
from schedmate.agent.fields.candidates import argument, is_number, matching
from schedmate.agent.fields.length.consumed import add_timed
from schedmate.agent.fields.length.counts import Length, counted, length_of, positive
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.values import Origin, Value


def from_call(
    event: CallEvent, epochs: list[Length], steps: list[Length], consumed: list[Length]
) -> None:
    for rule in matching(event, "length"):
        base = prior.length_call.sure("trainer", event.certain)
        if event.in_loop:
            base += prior.length_call["in a loop"]
        if "duration" in rule:
            _duration(argument(event, rule["duration"]), base, epochs, steps, consumed)
            continue
        step = argument(event, rule.get("steps", []))
        epoch = argument(event, rule.get("epochs", []))
        if positive(step) and step is not None:
            score = base + prior.length_call["steps"]
            steps.append(counted(step, score, unit=rule.get("unit")))
        if positive(epoch) and epoch is not None:
            # `fit(epochs=30, initial_epoch=20)` goes on to the total
            begun = event.kwargs.get("initial_epoch")
            further = 0.0
            if begun is not None:
                further = prior.length_call["from the start" if begun.data == 0 else "further"]
            epochs.append(counted(epoch, base + further))
        elif "default_epochs" in rule and (epoch is None or epoch.data is None):
            if not positive(step) and (step is None or step.known):
                origin = Origin("library", text=f"{rule['text']}.{rule['epochs'][0]}")
                score = base + prior.length_call["default"]
                epochs.append(length_of(rule["default_epochs"], origin, score))


def from_training_arguments(trace: Trace, epochs: list[Length], steps: list[Length]) -> None:
    """Hugging Face training arguments parsed into a dataclass: positive max_steps wins."""
    for group in trace.settings:
        fields = group.value.data
        if group.kind != "dataclass" or not isinstance(fields, dict):
            continue
        if "max_steps" in fields and "num_train_epochs" in fields:
            if positive(fields["max_steps"]):
                steps.append(counted(fields["max_steps"], prior.length_call["arguments steps"]))
            elif positive(fields["num_train_epochs"]):
                passes = fields["num_train_epochs"]
                unsaid = passes.origin is not None and passes.origin.source == "library"
                epochs.append(
                    counted(
                        passes, prior.length_call["arguments default" if unsaid else "arguments"]
                    )
                )


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
