"""Which of a program's data loaders feeds the training."""

from __future__ import annotations

import re

from schedmate.agent.fields.candidates import argument
from schedmate.agent.interp.objects import Call, Instance
from schedmate.agent.interp.trace import CallEvent, Trace
from schedmate.agent.values import Value

_LOADERS = ("torch.utils.data.DataLoader", "torch_geometric.loader.DataLoader")
_EVALUATES = re.compile(r"(^|_)(val|valid|eval|test|dev|infer|generat)", re.IGNORECASE)
_TRAINS = re.compile(r"(^|_)train", re.IGNORECASE)
_SPLITS = ("split", "mode", "phase", "subset", "image_set", "set", "flag", "stage", "set_name")
_SWITCHES = ("train", "is_train", "training", "is_training")
_AROUND = 3
"""Datasets inside each other that are looked into: `Subset(CIFAR10(train=False), ids)`."""


def is_loader(event: CallEvent) -> bool:
    """Whether this makes a data loader."""
    return event.path in _LOADERS


def size_of(event: CallEvent) -> Value | None:
    """The batch size that a data loader is made with."""
    return argument(event, ["batch_size", 1]) if is_loader(event) else None


def for_training(trace: Trace) -> list[CallEvent]:
    """The loaders that may feed the training: those that say so, else those that deny nothing."""
    made = [event for event in trace.calls if is_loader(event)]
    roles = [_role(event) for event in made]
    wanted = True if True in roles else None
    return [event for event, role in zip(made, roles, strict=True) if role is wanted]


def held_out(event: CallEvent, size: Value) -> bool:
    """Whether a loader is for evaluation: by its name, or as it gives one after the other."""
    if "train" in event.target.lower():
        return False
    shuffled = event.kwargs.get("shuffle")
    in_order = size.data == 1 and (shuffled is None or shuffled.data is False)
    return in_order or any(_EVALUATES.search(name) for name in (event.target, event.function))


def _role(event: CallEvent) -> bool | None:
    """Whether a loader is for training, None where nothing says so."""
    data = argument(event, ["dataset", 0])
    told = _of_data(data, 0) if data is not None else None
    if told is not None:
        return told
    shuffled = event.kwargs.get("shuffle")
    return True if shuffled is not None and shuffled.data is True else None


def _of_data(value: Value, depth: int) -> bool | None:
    """What a dataset was made for, by its arguments: `train=False`, `split="val"`."""
    data = value.data
    if not isinstance(data, Call | Instance) or depth > _AROUND:
        return None
    given = data.kwargs if isinstance(data, Call) else data.attrs
    for name in _SWITCHES:
        if name in given and isinstance(given[name].data, bool):
            return bool(given[name].data)
    for name in _SPLITS:
        split = given[name].text if name in given else None
        if split is not None and _EVALUATES.search(split):
            return False
        if split is not None and _TRAINS.search(split):
            return True
    inner = data.args if isinstance(data, Call) else list(data.attrs.values())
    found = (_of_data(item, depth + 1) for item in inner[:4])
    return next((one for one in found if one is not None), None)
