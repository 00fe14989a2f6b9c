"""What the program's calls say of batch size and precision."""

from __future__ import annotations

import re
from collections.abc import Sequence

from schedmate.agent.fields import loaders, prior
from schedmate.agent.fields.candidates import Candidate, argument, is_number, text_of
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.values import Origin, Value

_PRECISION = (
    (re.compile(r"bf16|bfloat16", re.IGNORECASE), "bf16"),
    (re.compile(r"fp8|float8", re.IGNORECASE), "fp8"),
    (re.compile(r"^(16|16-mixed|fp16|float16|half|16-true)$", re.IGNORECASE), "fp16"),
    (re.compile(r"^(32|32-true|fp32|float32|full|no|highest)$", re.IGNORECASE), "fp32"),
    (re.compile(r"amp", re.IGNORECASE), "amp"),
)
AUTOCAST = ("torch.autocast", "torch.cuda.amp.autocast", "torch.amp.autocast")

LARGEST = 1e12
"""More than any batch, sequence, rate or size; infinity and 1e308 stand for no limit."""
Found = dict[str, Candidate]


def add(trace: Trace, found: Found) -> None:
    """Add to `found` what calls state and settings did not."""
    trains = loaders.for_training(trace)
    for event in trace.calls:
        _batch_size(event, found, trains)
        if "precision" not in found:
            _cast(event, found)


def precision(value: Value) -> str | None:
    """A precision setting in the project's words: fp32, fp16, bf16, amp, tf32, fp8."""
    text = str(value.data) if isinstance(value.data, int) else text_of(value)
    if text is None or isinstance(value.data, bool):
        return None
    for pattern, name in _PRECISION:
        if pattern.search(text.rsplit(".", 1)[-1]):
            return name
    return None


def place(event: CallEvent) -> Origin:
    return Origin("code", event.site.file, event.site.line)


def _number(found: Found, field: str, value: Value | None, place: Origin, score: float) -> None:
    if field not in found and is_number(value) and 0 < value.data <= LARGEST:
        found[field] = Candidate(value.data, value.origin or place, score)


def _batch_size(event: CallEvent, found: Found, trains: Sequence[CallEvent]) -> None:
    if loaders.is_loader(event):
        size, score = loaders.size_of(event), prior.call["loader"]
        if not any(event is one for one in trains):
            return
    elif event.path.endswith(".fit"):
        size, score = event.kwargs.get("batch_size"), prior.call["fit"]
    elif event.cls is not None and re.search(r"Loader|Dataset", event.cls.name):
        size, score = event.kwargs.get("batch_size"), prior.call["own loader"]
    else:
        return
    if size is not None and not loaders.held_out(event, size):
        _number(found, "batch_size", size, place(event), score)


def _cast(event: CallEvent, found: Found) -> None:
    if event.path == "torch.nn.Module.to":
        cast = precision(event.args[0])
        if cast in ("bf16", "fp16"):
            found["precision"] = Candidate(cast, place(event), prior.call["cast"])
    elif event.path == "apex.amp.initialize" and event.certain:
        level = argument(event, ["opt_level", 2])
        if level is None or level.data != "O0":
            found["precision"] = Candidate("amp", place(event), prior.call["apex"])
    elif event.path in AUTOCAST:
        enabled = event.kwargs.get("enabled")
        if enabled is None or enabled.data is not False:
            kind = event.kwargs.get("dtype")
            name = (precision(kind) if kind is not None else None) or "amp"
            found["precision"] = Candidate(name, place(event), prior.call["cast"])
