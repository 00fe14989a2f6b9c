"""A `Progress` as text for a person: position, speed and evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedmate.durations import format_duration
from schedmate.jobs import Progress
from schedmate.terminal import clean, counted
from schedmate.terminal.screen import Screen

if TYPE_CHECKING:
    from schedmate.logparse.progress.ratio import Slowdown

_SOURCES = {
    "stated": "stated in the log",
    "elapsed": "from the elapsed time that it prints",
    "samples": "from samples per second and the batch size",
    "timestamps": "from the timestamps of its lines",
    "eta": "from the remaining time that the log states",
    "summary": "from the run time of the whole run",
    "model": "read by a pattern that a language model wrote",
    "none": "",
}


_NO_NUMBER = {"nan": "NaN", "inf": "infinite"}
SUREST = 0.999
"""No confidence above this is shown."""


def show(progress: Progress, screen: Screen) -> None:
    """Print the three lines, then notes on how units were decided."""
    place, speed, because = headline(progress)
    screen.line(place)
    screen.line(speed, "doubtful" if progress.step_time_s is None else "good")
    screen.line(because)
    if progress.loss_state is not None:
        screen.line(_alarm(progress), "bad")
    if progress.no_numbers:
        named = ", ".join(
            f"{clean(name)} is {_NO_NUMBER[state]}" for name, state in progress.no_numbers.items()
        )
        screen.line(f"warning: {named}, where the log last states it.", "bad")
    for note in progress.notes:
        screen.line(f"note: {note}")


def headline(progress: Progress) -> tuple[str, str, str]:
    """Where the job is; how fast it goes and when it ends; what that rests on."""
    return _place(progress), _speed(progress), _because(progress)


def comparison(before: Progress, after: Progress, slowdown: Slowdown, screen: Screen) -> None:
    """Print what the two windows say and how they compare."""
    if slowdown.ratio is None:
        screen.line("no comparison", "doubtful")
        screen.line(f"because {slowdown.reason}")
        return
    change = (slowdown.ratio - 1) * 100
    word = "slowed down" if slowdown.slowed else "not slowed down"
    screen.line(f"{word}: throughput {change:+.1f} %", "bad" if slowdown.slowed else "good")
    screen.line(
        f"{_seconds(before.step_time_s)} per step before, {_seconds(after.step_time_s)} after"
    )
    screen.line(
        f"based on {before.readings} and {after.readings} readings; throughput fell by "
        f"{'at least' if slowdown.slowed else 'less than'} {slowdown.threshold:.0%} "
        f"(confidence {min(slowdown.confidence or 0.0, SUREST):.1%})"
    )


def _place(progress: Progress) -> str:
    parts = []
    if progress.iteration is not None:
        text = f"iteration {progress.iteration:,}"
        if progress.total_iterations:
            text += f" of {progress.total_iterations:,}"
        parts.append(text + " of its epoch" * progress.in_epoch)
    if progress.epoch is not None:
        text = f"epoch {progress.epoch:g}"
        parts.append(text + (f" of {progress.total_epochs:,}" if progress.total_epochs else ""))
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4g}")
    elif progress.loss_state is not None:
        parts.append(f"loss {_NO_NUMBER[progress.loss_state]}")
    if progress.lr is not None:
        parts.append(f"learning rate {progress.lr:.3g}")
    return " · ".join(parts) or "no training progress"


def _alarm(progress: Progress) -> str:
    """The line on a loss that is not a number: the run continues, but learns nothing."""
    since = progress.loss_state_since
    text = f"warning: the loss is {_NO_NUMBER[progress.loss_state or 'nan']}"
    text += f", since iteration {since:,} at the latest" if since is not None else ""
    return f"{text}; such a run seldom recovers; check it before it uses more GPU time."


def _speed(progress: Progress) -> str:
    if progress.step_time_s is None:
        text = "step time unknown"
        if progress.epoch_time_s is not None:
            text += f", {_lasts(progress.epoch_time_s)} per epoch"
    else:
        text = f"{_seconds(progress.step_time_s)} per step"
        low, high = progress.step_time_p10_s, progress.step_time_p90_s
        if progress.readings > 1 and _seconds(low) != _seconds(high):
            text += f" (80 % interval: {_seconds(low)} to {_seconds(high)})"
    if progress.throughput is not None and progress.throughput_unit != "iterations/s":
        text += f", {_digits(progress.throughput)} {progress.throughput_unit}"
    if progress.ended is not None:
        text += f", {progress.ended}"
        text += f" (line {progress.ended_line:,})" if progress.ended_line is not None else ""
    elif progress.eta_s is not None:
        text += f", {format_duration(progress.eta_s)} left"
    return text


def _digits(value: float) -> str:
    """Four digits, without an exponent where the number is large: `30,000`."""
    return f"{float(f'{value:.4g}'):,.15g}"


def _lasts(value: float) -> str:
    return _seconds(value) if value < 10 else format_duration(value)


def _because(progress: Progress) -> str:
    if progress.step_time_s is None:
        return f"because {clean(progress.reason)}"
    text = f"based on {counted(progress.readings, 'reading')}, {_SOURCES[progress.source]}"
    if progress.lines:
        text += f", up to line {max(progress.lines):,}"
    if progress.reader and progress.reader != "general":
        text += f" ({progress.reader})"
    return text


def _seconds(value: float | None) -> str:
    if value is None:
        return "unknown"
    if value < 1:
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g} s" if value < 1000 else format_duration(value)
