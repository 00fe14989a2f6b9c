"""Fields beside the mandatory ones: batch sizes, optimiser, precision, parallelism, sizes."""

from __future__ import annotations

import re

from schedmate.agent.fields.candidates import (
    Candidate,
    Setting,
    argument,
    best,
    is_number,
    named,
    rules,
    source_bonus,
    text_of,
)
from schedmate.agent.interp import classes
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.values import Origin, Value

_STRINGS = {"optimizer", "precision"}
_NOT_HERE = re.compile(
    r"eval|valid|test|teacher|discriminator|logger|wandb|sampl|infer|scheduler", re.IGNORECASE
)
_PRECISION = (
    (re.compile(r"bf16|bfloat16", re.IGNORECASE), "bf16"),
    (re.compile(r"fp8|float8", re.IGNORECASE), "fp8"),
    (re.compile(r"^(16|16-mixed|fp16|float16|half|16-true)$", re.IGNORECASE), "fp16"),
    (re.compile(r"^(32|32-true|fp32|float32|full|no|highest)$", re.IGNORECASE), "fp32"),
    (re.compile(r"amp", re.IGNORECASE), "amp"),
)


def find(trace: Trace, settings: list[Setting]) -> dict[str, Candidate]:
    """Extra training fields that the code states, by field name."""
    found: dict[str, Candidate] = {}
    for field, aliases in rules("names")["extras"].items():
        chosen = best(_candidates(field, named(settings, aliases)))
        if chosen is not None:
            found[field] = chosen
    _from_calls(trace, found)
    _precision(settings, found)
    if named(settings, ["train_micro_batch_size_per_gpu"]):
        # DeepSpeed's train_batch_size counts all GPUs and accumulation steps
        whole = best(_candidates("batch_size", named(settings, ["train_batch_size"])))
        if whole is not None:
            found["global_batch_size"] = whole
    per_device = found.get("per_device_batch_size")
    parsed = any(
        settings_.kind == "dataclass" and "per_device_train_batch_size" in settings_.value.data
        for settings_ in trace.settings
        if isinstance(settings_.value.data, dict)
    )
    if per_device is not None and (parsed or "batch_size" not in found):
        found["batch_size"] = per_device
    elif "batch_size" not in found and "global_batch_size" in found:
        found["batch_size"] = found["global_batch_size"]
    return found


def architecture(settings: list[Setting]) -> dict[str, Candidate]:
    """Sizes of the model that settings state as plain numbers."""
    found: dict[str, Candidate] = {}
    for field, aliases in rules("names")["architecture"].items():
        usable = [
            (rank, setting)
            for rank, setting in named(settings, aliases)
            if is_number(setting.value) and setting.value.data > 0
        ]
        chosen = best(_candidates(field, usable))
        if chosen is not None:
            found[field] = chosen
    return found


def _candidates(field: str, options: list[tuple[int, Setting]]) -> list[Candidate]:
    out = []
    for rank, setting in options:
        if any(_NOT_HERE.search(part) for part in setting.path[:-1]):
            continue
        data = _usable(field, setting.value)
        if data is None:
            continue
        score = 80.0 - 0.5 * rank + source_bonus(setting.value.origin)
        if setting.kind == "globals":
            score -= 6
        out.append(Candidate(data, setting.value.origin, score))
    return out


def _usable(field: str, value: Value) -> object:
    if field in _STRINGS:
        if field == "precision":
            return precision(value)
        text = text_of(value)
        return text if text and len(text) < 40 and "/" not in text else None
    if field == "image_size" and isinstance(value.data, list | tuple):
        numbers = [item.data for item in value.data if is_number(item)]
        return numbers[-1] if numbers else None
    if isinstance(value.data, str) and re.fullmatch(r"\d+(\.\d+)?([eE]-?\d+)?", value.data):
        return (
            float(value.data) if "." in value.data or "e" in value.data.lower() else int(value.data)
        )
    if not is_number(value) or value.data <= 0:
        return None
    number = value.data
    return (
        int(number)
        if field != "lr" and isinstance(number, float) and number.is_integer()
        else number
    )


def precision(value: Value) -> str | None:
    """A precision setting in the project's words: fp32, fp16, bf16, amp, tf32, fp8."""
    text = str(value.data) if isinstance(value.data, int) else text_of(value)
    if text is None or isinstance(value.data, bool):
        return None
    for pattern, name in _PRECISION:
        if pattern.search(text.rsplit(".", 1)[-1]):
            return name
    return None


def _precision(settings: list[Setting], found: dict[str, Candidate]) -> None:
    if "precision" in found and found["precision"].data != "fp32":
        return
    flags = rules("names")["precision_flags"]
    for name, meaning in flags.items():
        for _, setting in named(settings, [name]):
            if setting.value.data is True:
                found["precision"] = Candidate(meaning, setting.value.origin, 80)
                return
        for setting in settings:
            # DeepSpeed and detectron2 keep a section: fp16: {enabled: true}
            if len(setting.path) > 1 and setting.path[-2].lower() == name:
                if setting.key == "enabled" and setting.value.data is True:
                    found["precision"] = Candidate(meaning, setting.value.origin, 78)
                    return


_AUTOCAST = ("torch.autocast", "torch.cuda.amp.autocast", "torch.amp.autocast")


def _place(event: CallEvent) -> Origin:
    return Origin("code", event.site.file, event.site.line)


def _from_calls(trace: Trace, found: dict[str, Candidate]) -> None:
    pattern = re.compile(rules("calls")["optimizer"])
    for event in trace.calls:
        if pattern.match(event.path):
            origin = event.result.origin if event.result is not None else None
            score = 82.0 if event.certain else 60.0
            held = found.get("optimizer")
            if held is None or (held.score < score and event.certain):
                found["optimizer"] = Candidate(classes.last(event.path), origin, score)
            rate = argument(event, ["lr", "learning_rate"])
            if "lr" not in found and is_number(rate) and rate is not None and rate.data > 0:
                found["lr"] = Candidate(rate.data, rate.origin or origin, score)
        if event.path in ("torch.utils.data.DataLoader", "torch_geometric.loader.DataLoader"):
            size = argument(event, ["batch_size", 1])
            if "batch_size" not in found and is_number(size) and size is not None:
                found["batch_size"] = Candidate(size.data, size.origin, 70)
        if event.path == "torch.nn.Module.to" and "precision" not in found:
            cast = precision(event.args[0])
            if cast in ("bf16", "fp16"):
                found["precision"] = Candidate(cast, _place(event), 72)
        if event.path in _AUTOCAST and "precision" not in found:
            enabled = event.kwargs.get("enabled")
            if enabled is None or enabled.data is not False:
                kind = event.kwargs.get("dtype")
                name = (precision(kind) if kind is not None else None) or "amp"
                found["precision"] = Candidate(name, _place(event), 72)
        if event.path.endswith(".fit") and "batch_size" in event.kwargs:
            size = event.kwargs["batch_size"]
            if "batch_size" not in found and is_number(size):
                found["batch_size"] = Candidate(size.data, size.origin, 75)
