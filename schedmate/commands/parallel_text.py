"""Plans for people: what to run, why, and what the alternatives would cost."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from schedmate.terminal import clean
from schedmate.terminal.screen import Screen, Table

if TYPE_CHECKING:
    from schedmate.schedulers.parallelism.planner import GridPlans, Planning
    from schedmate.schedulers.parallelism.predict import Prediction

MOST_SHOWN = 6
"""Grids that are listed."""


def show_planning(found: Planning) -> None:
    """Print the best plan with its reasons, then the best plan of every other number of stages."""
    screen = Screen(sys.stdout)
    best = found.best.proxy
    request = found.request
    screen.line(
        f"{request.spec.name} ({request.spec.parameters() / 1e9:.2f} billion parameters) on "
        f"{request.gpus} {request.gpu}: {best.samples_per_s:.4g} samples/s, "
        f"{best.iteration_s:.4g} s an iteration of {request.global_batch} samples"
    )
    for note in found.notes:
        screen.line(f"note: {note}")
    screen.line()
    stages = Table("stage", "layers", "GPUs", "tensor", "data", "memory", "", right=("memory",))
    for place, stage in enumerate(best.plan.stages):
        stages.add(
            place + 1,
            stage.layers,
            stage.gpus,
            stage.tensor,
            stage.data,
            f"{best.memory[place].total / 1e9:.1f} GB",
            "slowest" if place == best.bottleneck and len(best.plan.stages) > 1 else "",
        )
    screen.table(stages)
    screen.line()
    for reason in reasons(best):
        screen.line(reason)
    if len(found.grids) > 1:
        screen.line()
        screen.table(_alternatives(found))
    if len(found.grids) > MOST_SHOWN:
        screen.line(f"{len(found.grids) - MOST_SHOWN} slower ones are left out; --json has all.")


def show_prediction(one: Prediction) -> None:
    """Print the time and memory that a plan is predicted to take."""
    title = f"{clean(one.plan.id)}: " if one.plan.id else ""
    typer.echo(
        f"{title}{one.iteration_s:.4g} s an iteration, {one.samples_per_s:.4g} samples/s, "
        f"{one.max_memory_bytes / 1e9:.1f} GB on the fullest GPU ({one.source})"
    )
    for name, seconds in one.parts.items():
        share = seconds / one.iteration_s
        typer.echo(
            f"  {name.removesuffix('_s').replace('_', ' '):24}{seconds:10.4g} s {share:6.0%}"
        )
    if not one.fits:
        typer.echo(f"  does not fit: {one.why_not}")
    for note in one.notes:
        typer.echo(f"  note: {clean(note)}")


def reasons(best: Prediction) -> list[str]:
    """Where the time and the memory of a plan go, in sentences."""
    plan = best.plan
    largest = sorted(best.parts.items(), key=lambda part: -part[1])[:3]
    spent = ", ".join(
        f"{name.removesuffix('_s').replace('_', ' ')} {seconds / best.iteration_s:.0%}"
        for name, seconds in largest
    )
    fullest = max(range(len(best.memory)), key=lambda stage: best.memory[stage].total)
    memory = best.memory[fullest]
    return [
        f"Time goes to: {spent}.",
        (
            f"{plan.micro_batches} micro-batches of {plan.micro_batch} samples in each of "
            f"{plan.data} data-parallel replicas."
        ),
        (
            f"The fullest GPU (stage {fullest + 1}) holds {memory.total / 1e9:.1f} GB: "
            f"{memory.states / 1e9:.1f} weights, gradients and optimiser states, "
            f"{memory.activations / 1e9:.1f} activations, {memory.temporary / 1e9:.1f} temporary, "
            f"{memory.context / 1e9:.1f} the framework itself."
        ),
        *best.notes,
    ]


def _alternatives(found: Planning) -> Table:
    table = Table("stages", "samples/s", "against the best", "fullest GPU", "plan")
    best = found.best.proxy.iteration_s
    for grid in found.grids[:MOST_SHOWN]:
        one = grid.proxy
        table.add(
            grid.stages,
            f"{one.samples_per_s:.4g}",
            f"{best / one.iteration_s - 1:+.0%}",
            f"{one.max_memory_bytes / 1e9:.1f} GB",
            shape(grid),
        )
    return table


def shape(grid: GridPlans) -> str:
    """The stages of a plan in short: `16 layers on 8 GPUs (tensor 2) + ...`."""
    return " + ".join(
        f"{stage.layers} on {stage.gpus}" + (f" (t{stage.tensor})" if stage.tensor > 1 else "")
        for stage in grid.proxy.plan.stages
    )
