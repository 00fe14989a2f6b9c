"""What the program's calls say of optimiser, learning rate, batch size and precision."""

from __future__ import annotations

import re

from schedmate.agent.fields.candidates import (
    EXPLICIT,
    Candidate,
    argument,
    is_number,
    rules,
    text_of,
)
from schedmate.agent.interp import classes
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.values import Origin, Value

_OPTIMIZER = re.compile(
    r"adam|sgd|rmsprop|adagrad|adadelta|adafactor|lamb|lars|lion|muon|momentum|shampoo|sophia|soap|"
    r"novograd|prodigy|ranger|lbfgs|rprop|yogi|adan$|galore|optimi[sz]er$",
    re.IGNORECASE,
)
_ALIKE = {"GradientDescent": "SGD"}
_PRECISION = (
    (re.compile(r"bf16|bfloat16", re.IGNORECASE), "bf16"),
    (re.compile(r"fp8|float8", re.IGNORECASE), "fp8"),
    (re.compile(r"^(16|16-mixed|fp16|float16|half|16-true)$", re.IGNORECASE), "fp16"),
    (re.compile(r"^(32|32-true|fp32|float32|full|no|highest)$", re.IGNORECASE), "fp32"),
    (re.compile(r"amp", re.IGNORECASE), "amp"),
)
_AUTOCAST = ("torch.autocast", "torch.cuda.amp.autocast", "torch.amp.autocast")
_LOADERS = ("torch.utils.data.DataLoader", "torch_geometric.loader.DataLoader")

Found = dict[str, Candidate]


def add(trace: Trace, found: Found) -> None:
    """Add to `found` what calls state and settings did not; a certain optimiser goes before."""
    for event in trace.calls:
        if makes_optimizer(event):
            _optimizer(event, found)
        elif event.cls is not None:
            _own_optimizer(event, found)
        elif event.path.endswith(".compile"):
            _compiled(event, found)
        _batch_size(event, found)
        if "precision" not in found:
            _cast(event, found)


def makes_optimizer(event: CallEvent) -> bool:
    """Whether this makes one of a library's optimisers."""
    return re.match(rules("calls")["optimizer"], event.path) is not None


def is_optimizer(name: str) -> bool:
    """Whether a class or function is named after an optimiser."""
    plain = name.lower() in ("optimizer", "optimizers", "optim")
    return not plain and bool(_OPTIMIZER.search(name))


def precision(value: Value) -> str | None:
    """A precision setting in the project's words: fp32, fp16, bf16, amp, tf32, fp8."""
    text = str(value.data) if isinstance(value.data, int) else text_of(value)
    if text is None or isinstance(value.data, bool):
        return None
    for pattern, name in _PRECISION:
        if pattern.search(text.rsplit(".", 1)[-1]):
            return name
    return None


def _place(event: CallEvent) -> Origin:
    return Origin("code", event.site.file, event.site.line)


def _number(found: Found, field: str, value: Value | None, place: Origin, score: float) -> None:
    if field not in found and value is not None and is_number(value) and value.data > 0:
        found[field] = Candidate(value.data, value.origin or place, score)


def _optimizer(event: CallEvent, found: Found) -> None:
    origin = event.result.origin if event.result is not None else None
    score = 82.0 if event.certain else 60.0
    held = found.get("optimizer")
    if held is None or (held.score < score and event.certain and not _chosen(held)):
        name = classes.last(event.path).removesuffix("Optimizer")
        found["optimizer"] = Candidate(_ALIKE.get(name, name), origin, score)
    _number(found, "lr", _rate(event), origin or _place(event), score)


def _chosen(held: Candidate) -> bool:
    """Whether a configuration or the command names the optimiser, whatever else is made."""
    source = held.origin.source if held.origin is not None else None
    return source in (*EXPLICIT, "config") and is_optimizer(str(held.data))


_RATE_FIRST = re.compile(r"(keras|tensorflow|optax|mlx)\.")
"""Optimisers that are not given the parameters when they are made."""


def _rate(event: CallEvent) -> Value | None:
    """The learning rate of an optimiser, or else of its first group of parameters."""
    place = 0 if _RATE_FIRST.match(event.path) else 1
    given = argument(event, ["lr", "learning_rate", place])
    if is_number(given) or not event.args:
        return given
    groups = event.args[0].data
    first = groups[0].data if isinstance(groups, list) and groups else None
    return first.get("lr") if isinstance(first, dict) else None


def _own_optimizer(event: CallEvent, found: Found) -> None:
    """An optimiser of the repository's own, kept under a name that says so."""
    if event.cls is None or not re.search(r"(^|_)optim(izer)?s?\d*$", event.target):
        return
    name = event.cls.name
    if is_optimizer(name) and not name.lower().endswith("optimizer") and "optimizer" not in found:
        found["optimizer"] = Candidate(name, _place(event), 70 if event.certain else 55)
        _number(found, "lr", event.kwargs.get("lr"), _place(event), 65)


def _compiled(event: CallEvent, found: Found) -> None:
    """`model.compile("adam", lr=1e-3)`."""
    name = argument(event, ["optimizer", 0])
    if name is not None and isinstance(name.data, str) and is_optimizer(name.data):
        found.setdefault("optimizer", Candidate(name.data, name.origin or _place(event), 74))
        _number(found, "lr", argument(event, ["lr", "learning_rate"]), _place(event), 74)


def loader_size(event: CallEvent) -> Value | None:
    """The batch size that a data loader is made with."""
    return argument(event, ["batch_size", 1]) if event.path in _LOADERS else None


def _batch_size(event: CallEvent, found: Found) -> None:
    if event.path in _LOADERS:
        size, score = loader_size(event), 70
    elif event.path.endswith(".fit"):
        size, score = event.kwargs.get("batch_size"), 75
    elif event.cls is not None and re.search(r"Loader|Dataset", event.cls.name):
        size, score = event.kwargs.get("batch_size"), 65
    else:
        return
    if size is not None and not _held_out(event, size):
        _number(found, "batch_size", size, _place(event), score)


_EVALUATES = re.compile(r"(^|_)(val|valid|eval|test|dev|infer|generat)", re.IGNORECASE)


def _held_out(event: CallEvent, size: Value) -> bool:
    """Whether a loader is for evaluation: by its name, or as it gives one after the other."""
    if "train" in event.target.lower():
        return False
    shuffled = event.kwargs.get("shuffle")
    in_order = size.data == 1 and (shuffled is None or shuffled.data is False)
    return in_order or any(_EVALUATES.search(name) for name in (event.target, event.function))


def _cast(event: CallEvent, found: Found) -> None:
    if event.path == "torch.nn.Module.to":
        cast = precision(event.args[0])
        if cast in ("bf16", "fp16"):
            found["precision"] = Candidate(cast, _place(event), 72)
    elif event.path in _AUTOCAST:
        enabled = event.kwargs.get("enabled")
        if enabled is None or enabled.data is not False:
            kind = event.kwargs.get("dtype")
            name = (precision(kind) if kind is not None else None) or "amp"
            found["precision"] = Candidate(name, _place(event), 72)
