"""An `Analysis` as text for a person: the answer in three lines, then its evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedmate.durations import format_duration
from schedmate.jobs import Estimate, Evidence, ModelUse, Neighbour, WorkloadMetadata
from schedmate.terminal import clean, counted
from schedmate.terminal.screen import Screen, Table

if TYPE_CHECKING:
    from schedmate.analysis import Analysis

NAMED = 3
"""Neighbours named in the headline."""
LISTED = 10
"""Neighbours listed in the table; JSON has all of them."""


def show(analysis: Analysis, screen: Screen) -> None:
    """Print the analysis; text of a repository cannot control the terminal."""
    what, how_long, why = headline(analysis)
    screen.line(what)
    screen.line(how_long, "doubtful" if analysis.estimate.abstained else "good")
    screen.line(why)
    if analysis.estimate.interval_basis is not None:
        screen.line(analysis.estimate.interval_basis.text, label="interval: ")
    for beyond in analysis.estimate.extrapolated:
        screen.line(beyond.text, "doubtful", label="extrapolated: ")
    screen.line()
    screen.table(_fields(analysis.metadata))
    screen.line()
    neighbours = analysis.estimate.neighbours
    if neighbours:
        screen.table(_neighbours(neighbours[:LISTED]))
    if len(neighbours) > LISTED:
        screen.line(f"and {len(neighbours) - LISTED} more past jobs, listed by --json")
    if not analysis.estimate.abstained and analysis.estimate.reason:
        screen.line(f"note: {analysis.estimate.reason}")
    if analysis.model is not None:
        screen.line(_model(analysis.model))
    for warning in analysis.warnings:
        screen.line(f"warning: {warning}")


def headline(analysis: Analysis) -> tuple[str, str, str]:
    """What the job is; how long it will run; why."""
    estimate = analysis.estimate
    job = _job(analysis)
    if estimate.abstained:
        size = analysis.history_size
        reason = clean(estimate.reason or "no past job was close enough")
        reason = reason.removeprefix("no similar job: ")  # which stands in the line above
        near = len(estimate.neighbours)
        outcome = f"no run time from {counted(near, 'similar job')}" if near else "no similar job"
        return job, f"{outcome} among {counted(size, 'record')}", f"because {reason}"
    neighbours = estimate.neighbours
    named = [
        f"{clean(one.job_id, 200)} "
        + ("(same job)" if one.exact else f"(similarity {one.similarity:.2f})")
        for one in neighbours[:NAMED]
    ]
    if len(neighbours) > NAMED:
        named.append(f"{len(neighbours) - NAMED} more")
    count = len(neighbours)
    return job, _forecast(estimate), f"based on {counted(count, 'past job')}: {', '.join(named)}"


def _model(use: ModelUse) -> str:
    """One line on the use of a language model."""
    name = f"model {clean(use.model, 200)}"
    if use.outcome == "not needed":
        return f"{name}: not asked, because static analysis settled every field"
    fields = ", ".join(one.rpartition(".")[2] for one in use.filled) or "nothing"
    tokens = use.input_tokens + use.output_tokens
    return (
        f"{name}: settled {fields} of {len(use.asked)} fields asked; {len(use.dropped)} findings "
        f"rejected for lack of proof; {counted(use.calls, 'call')}, {tokens:,} tokens, "
        f"{use.seconds:.1f} s"
    )


def _job(analysis: Analysis) -> str:
    metadata = analysis.metadata
    training = metadata.training
    parts = [
        metadata.model.model_name or "unknown model",
        metadata.dataset.train or "unknown dataset",
        "unknown length"
        if training.iters is None
        else counted(training.iters, training.iter_type or "iteration"),
    ]
    gpus = analysis.launch.gpus
    if gpus is not None:
        parts.append(counted(gpus, "GPU"))
    return " · ".join(clean(part, 200) for part in parts)


def _forecast(estimate: Estimate) -> str:
    middle = estimate.duration_p50_s
    if middle is None:
        middle = estimate.duration_s
    text = "run time unknown" if middle is None else f"run time about {format_duration(middle)}"
    if estimate.duration_p10_s is not None and estimate.duration_p90_s is not None:
        low, high = map(format_duration, (estimate.duration_p10_s, estimate.duration_p90_s))
        text += f" (80 % interval: {low} to {high})"
    for value, what, unit in (
        (estimate.gpu_util, "GPU utilisation", "%"),
        (estimate.sm_util, "SM activity", "%"),
        (estimate.gpu_mem_mb, "GPU memory", "MB"),
    ):
        if value is not None:
            text += f", {what} {value:,.0f} {unit}"
    return text


def _fields(metadata: WorkloadMetadata) -> Table:
    table = Table("field", "value", "source", "confidence", below="source")
    for section, values in metadata.sections().items():
        for key, value in values.items():
            name = f"{section}.{key}"
            evidence = metadata.evidence.get(name)
            table.add(
                name,
                "unknown" if value is None else _with_unit(key, value, evidence),
                evidence.where() if evidence else "",
                f"{evidence.confidence:.0%}" if evidence else "",
            )
    return table


_WITH_UNIT = ("batch_size", "iter_type", "optimizer")
"""Fields whose note says what they count, or gives a related value."""


def _with_unit(key: str, value: object, evidence: Evidence | None) -> object:
    """A value and its unit, if that is not obvious: `16 (per device)`."""
    note = evidence.note if evidence is not None and key in _WITH_UNIT else None
    return f"{value} ({note})" if note and not note.startswith("the unit of") else value


def _neighbours(neighbours: list[Neighbour]) -> Table:
    columns = ("past job", "similarity", "weight", "run time", "rescaled", "ended", "workload")
    table = Table(*columns, below="workload")
    for one in neighbours:
        table.add(
            one.job_id,
            f"{one.similarity:.3f}" + " (same)" * one.exact,
            f"{one.weight:.0%}",
            format_duration(one.duration_s) + f" ({one.state})" * (one.state != "COMPLETED"),
            (">= " if one.censored else "") + format_duration(one.adjusted_duration_s),
            _ago(one.age_s),
            one.summary,
        )
    return table


def _ago(age_s: float | None) -> str:
    if age_s is None:
        return ""
    days = round(age_s / 86_400)
    return f"{days} d ago" if days >= 2 else f"{format_duration(age_s)} ago"
