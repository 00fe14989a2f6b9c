"""The registry of known progress lines (patterns.yaml), and reading one line of any shape."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any, NamedTuple

from schedmate.data import load
from schedmate.logparse.progress.bars import OTHER, read_bar
from schedmate.logparse.progress.general import is_about_something_else, read_general
from schedmate.logparse.progress.labels import LARGEST, clock_s
from schedmate.logparse.progress.sample import Sample

_INTEGERS = frozenset(["iteration", "total", "total_epochs", "batch", "samples"])


class Shape(NamedTuple):
    """One entry of patterns.yaml."""

    name: str
    pattern: str
    alone: bool
    ignore: bool
    headed: bool = False


@cache
def shapes() -> tuple[Shape, ...]:
    """All entries, in the order in which they are tried."""
    return tuple(
        Shape(
            entry["name"],
            entry["pattern"],
            entry.get("alone", False),
            entry.get("ignore", False),
            entry.get("headed", False),
        )
        for entry in load("logparse/progress/patterns.yaml")
    )


@cache
def _set_of_shapes() -> Any:
    """All patterns at once: most lines match none, and this says so in a microsecond."""
    import re2

    patterns = re2.Set.SearchSet()
    for shape in shapes():
        patterns.Add(shape.pattern)
    patterns.Compile()
    return patterns


@cache
def _compiled(pattern: str) -> Any:
    import re2

    # only those that are met: to compile all takes longer than to track a log
    return re2.compile(pattern)


def read_line(text: str) -> Sample | None:
    """What one line or one refresh of a bar says about training, or None."""
    sample = _read_line(text)
    if sample is not None:
        # a counter beyond its total is not the one that total is of
        if sample.total is not None and (sample.iteration or 0) > sample.total:
            sample.total, sample.in_epoch = None, False
        if sample.total_epochs is not None and (sample.epoch or 0) > sample.total_epochs:
            sample.total_epochs = None
    return sample


def _read_line(text: str) -> Sample | None:
    bar = read_bar(text) if "[" in text and ":" in text else None
    if bar is OTHER:
        return None
    for index in sorted(_set_of_shapes().Match(text.encode("utf-8", "replace")) or []):
        shape = shapes()[index]
        if match := _compiled(shape.pattern).search(text):
            if shape.ignore or (shape.headed and is_about_something_else(text)):
                return None
            return read_match(shape, match, text, bar)
    return bar or read_general(text)


def read_match(shape: Shape, match: re.Match[str], text: str, bar: Sample | None) -> Sample | None:
    """What the groups of a match say; what they leave open is read as the shape allows."""
    sample = bar or (None if shape.alone else read_general(text)) or Sample(shape.name)
    sample.reader = shape.name
    said = [name for name, value in match.groupdict().items() if value is not None]
    for name in said:
        try:
            _set(sample, name, match[name].rstrip(".,;"))
        except ValueError:
            continue
    if "per" in said and sample.step_time_s is not None:
        per = float(match["per"])
        sample.step_time_s = sample.step_time_s / max(1.0, per) if per <= LARGEST else None
        sample.since_last = False
    if sample.epoch is not None and sample.total is not None and "iteration" in said:
        sample.in_epoch = sample.in_epoch or "epoch" in said or "epoch_eta" in said
    sample.named = True
    sample.group = sample.group if bar else f"{shape.name} {' '.join(said)}"
    return sample


def _set(sample: Sample, name: str, text: str) -> None:
    value = clock_s(text) if ":" in text or re.search(r"\dm\b", text) else _number(text)
    if name != "loss" and not abs(value) <= LARGEST:
        return
    if name == "loss" and value == 0 and sample.loss is not None and math.isnan(sample.loss):
        return  # see `read_general`: the gradient says what the mean of the loss leaves out
    if name in _INTEGERS:
        setattr(sample, name, int(value))
    elif name in ("step_time_s", "step_time_ms", "interval_s", "rate"):
        if value > 1 / LARGEST:
            sample.step_time_s = {"step_time_ms": value / 1000, "rate": 1 / value}.get(name, value)
            sample.rated = name == "rate"
            sample.bare, sample.unit = False, True
            sample.since_last = name == "interval_s"
    elif name == "so_far_s":
        steps = sample.iteration or 0
        sample.step_time_s = value / steps if steps and value > 0 else None
    elif name == "elapsed_ms":
        sample.elapsed_s = value / 1000
    elif name == "eta":
        sample.eta_s = value
    elif name not in ("per", "epoch_eta"):
        setattr(sample, name, value)


def _number(text: str) -> float:
    return float(text.replace(",", "").strip("'\""))
