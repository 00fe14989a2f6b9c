"""What the program's calls say of optimiser, learning rate, batch size and precision."""

from __future__ import annotations

import re
from collections.abc import Sequence

from schedmate.agent.fields import loaders, prior
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
AUTOCAST = ("torch.autocast", "torch.cuda.amp.autocast", "torch.amp.autocast")

LARGEST = 1e12
"""More than any batch, sequence, rate or size; infinity and 1e308 stand for no limit."""
Found = dict[str, Candidate]


def add(trace: Trace, found: Found) -> None:
    """Add to `found` what calls state and settings did not; a certain optimiser goes before."""
    trains = loaders.for_training(trace)
    for event in trace.calls:
        if makes_optimizer(event):
            _optimizer(event, found)
        elif event.cls is not None:
            _own_optimizer(event, found)
        elif event.path.endswith(".compile"):
            _compiled(event, found)
        _batch_size(event, found, trains)
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


def place(event: CallEvent) -> Origin:
    return Origin("code", event.site.file, event.site.line)


def _number(found: Found, field: str, value: Value | None, place: Origin, score: float) -> None:
    if field not in found and is_number(value) and 0 < value.data <= LARGEST:
        found[field] = Candidate(value.data, value.origin or place, score)


def optimizer_name(event: CallEvent) -> str:
    """The name of the optimiser that this makes."""
    if event.cls is not None:
        return event.cls.name
    name = classes.last(event.path).removesuffix("Optimizer")
    return _ALIKE.get(name, name)


def _optimizer(event: CallEvent, found: Found) -> None:
    origin = event.result.origin if event.result is not None else None
    score = prior.call.sure("optimiser", event.certain)
    held = found.get("optimizer")
    if held is None or (held.score < score and event.certain and not _chosen(held)):
        found["optimizer"] = Candidate(optimizer_name(event), origin, score)
    _number(found, "lr", _first_rate(event), origin or place(event), score)


def _chosen(held: Candidate) -> bool:
    """Whether a configuration or the command names the optimiser, whatever else is made."""
    source = held.origin.source if held.origin is not None else None
    return source in (*EXPLICIT, "config") and is_optimizer(str(held.data))


_RATE_FIRST = re.compile(r"(keras|tensorflow|optax|mlx)\.")
"""Optimisers that are not given the parameters when they are made."""


def rate(event: CallEvent) -> Value | None:
    """The learning rate that an optimiser is given for all parameters."""
    position = 0 if _RATE_FIRST.match(event.path) else 1
    return argument(event, ["lr", "learning_rate", position])


def _first_rate(event: CallEvent) -> Value | None:
    """The learning rate of an optimiser, or else of its first group of parameters."""
    given = rate(event)
    if is_number(given) or not event.args:
        return given
    groups = event.args[0].data
    first = groups[0].data if isinstance(groups, list) and groups else None
    return first.get("lr") if isinstance(first, dict) else None


_LIBRARYS_BASE = re.compile(r"torch\.optim\.(\w+\.)*[A-Z]\w*|keras\.(\w+\.)*Optimizer")
"""What optimisers of a repository's own are classes of."""


def makes_own_optimizer(event: CallEvent) -> bool:
    """Whether this makes an optimiser of the repository's own: by its base, or a name it gets."""
    if event.cls is None:
        return False
    name = event.cls.name
    if not is_optimizer(name) or name.lower().endswith("optimizer"):
        return False
    return any(map(_LIBRARYS_BASE.fullmatch, event.cls.external_bases())) or bool(
        re.search(r"(^|_)optim(izer)?s?\d*$", event.target)
    )


def _own_optimizer(event: CallEvent, found: Found) -> None:
    if event.cls is not None and makes_own_optimizer(event) and "optimizer" not in found:
        # as sure as a library's: of several, the first that is made is the one that is named
        score = prior.call.sure("own optimiser", event.certain)
        found["optimizer"] = Candidate(event.cls.name, place(event), score)
        rate = event.kwargs.get("lr")
        _number(found, "lr", rate, place(event), prior.call["own optimiser rate"])


def _compiled(event: CallEvent, found: Found) -> None:
    """`model.compile("adam", lr=1e-3)`."""
    name = argument(event, ["optimizer", 0])
    if name is not None and isinstance(name.data, str) and is_optimizer(name.data):
        score = prior.call["compile"]
        found.setdefault("optimizer", Candidate(name.data, name.origin or place(event), score))
        _number(found, "lr", argument(event, ["lr", "learning_rate"]), place(event), score)


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
