"""An `Analysis` as text for a person: the answer in three lines, then what it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedmate.durations import format_duration
from schedmate.jobs import Estimate, ModelUse, Neighbour, WorkloadMetadata
from schedmate.terminal import clean, counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from schedmate.analysis import Analysis


NAMED = 3
"""Neighbours named in the headline."""
LISTED = 10
"""Neighbours listed in the table; JSON has all of them."""


def show(analysis: Analysis, console: Console) -> None:
    """Print the analysis; nothing that a repository says can control the terminal."""
    for line in headline(analysis):
        console.print(line, soft_wrap=True)
    console.print()
    console.print(_fields(analysis.metadata))
    console.print()
    neighbours = analysis.estimate.neighbours
    if neighbours:
        console.print(_neighbours(neighbours[:LISTED]))
    if len(neighbours) > LISTED:
        console.print(f"and {len(neighbours) - LISTED} more past jobs, listed by --json")
    if not analysis.estimate.abstained and analysis.estimate.reason:
        console.print(f"note: {clean(analysis.estimate.reason)}", soft_wrap=True)
    if analysis.model is not None:
        console.print(_model(analysis.model), soft_wrap=True)
    for warning in analysis.warnings:
        console.print(f"warning: {clean(warning)}", soft_wrap=True)


def headline(analysis: Analysis) -> tuple[str, str, str]:
    """What the job is; how long it will run; why."""
    estimate = analysis.estimate
    job = _job(analysis)
    if estimate.abstained:
        size = analysis.history_size
        reason = clean(estimate.reason or "no past job was close enough")
        return job, f"no similar job in {counted(size, 'record')}", f"because {reason}"
    neighbours = estimate.neighbours
    named = [
        f"{clean(one.job_id, 40)} "
        + ("(same job)" if one.exact else f"(similarity {one.similarity:.2f})")
        for one in neighbours[:NAMED]
    ]
    if len(neighbours) > NAMED:
        named.append(f"{len(neighbours) - NAMED} more")
    count = len(neighbours)
    return job, _forecast(estimate), f"because of {counted(count, 'past job')}: {', '.join(named)}"


def _model(use: ModelUse) -> str:
    """One line on what a language model was asked."""
    name = f"model {clean(use.model, 80)}"
    if use.outcome == "not needed":
        return f"{name}: not asked, static analysis left nothing open"
    fields = ", ".join(one.rpartition(".")[2] for one in use.filled) or "nothing"
    tokens = use.input_tokens + use.output_tokens
    return (
        f"{name}: decided {fields} of {len(use.asked)} asked; {len(use.dropped)} findings without "
        f"proof; {counted(use.calls, 'call')}, {tokens:,} tokens, {use.seconds:.1f} s"
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
    return " · ".join(clean(part, 80) for part in parts)


def _forecast(estimate: Estimate) -> str:
    middle = estimate.duration_p50_s
    if middle is None:
        middle = estimate.duration_s
    text = "runs an unknown time" if middle is None else f"runs about {format_duration(middle)}"
    if estimate.duration_p10_s is not None and estimate.duration_p90_s is not None:
        low, high = map(format_duration, (estimate.duration_p10_s, estimate.duration_p90_s))
        text += f" (10-90 %: {low} to {high})"
    for value, what, unit in (
        (estimate.gpu_util, "GPU utilisation", "%"),
        (estimate.sm_util, "SM activity", "%"),
        (estimate.gpu_mem_mb, "GPU memory", "MB"),
    ):
        if value is not None:
            text += f", {what} {value:,.0f} {unit}"
    return text


def _fields(metadata: WorkloadMetadata) -> Table:
    rows = table("field", "value", "from", "sure")
    for section, values in metadata.sections().items():
        for key, value in values.items():
            name = f"{section}.{key}"
            evidence = metadata.evidence.get(name)
            rows.add_row(
                clean(name, 60),
                "unknown" if value is None else clean(value, 100),
                clean(evidence.where(), 200) if evidence else "",
                f"{evidence.confidence:.0%}" if evidence else "",
            )
    return rows


def _neighbours(neighbours: list[Neighbour]) -> Table:
    rows = table("past job", "similar", "share", "ran", "for this job", "ended", "what")
    for one in neighbours:
        rows.add_row(
            clean(one.job_id, 40),
            f"{one.similarity:.3f}" + " (same)" * one.exact,
            f"{one.weight:.0%}",
            format_duration(one.duration_s) + f" ({one.state})" * (one.state != "COMPLETED"),
            (">= " if one.censored else "") + format_duration(one.adjusted_duration_s),
            _ago(one.age_s),
            clean(one.summary, 120),
        )
    return rows


def _ago(age_s: float | None) -> str:
    if age_s is None:
        return ""
    days = round(age_s / 86_400)
    return f"{days} d ago" if days >= 2 else f"{format_duration(age_s)} ago"


def table(*columns: str) -> Table:
    """A table in the one style of this command line; cells fold."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
