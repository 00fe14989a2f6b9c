"""`schedmate slurm plan`: what would be done about a job that failed."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from schedmate.commands.options import HistoryOption, JsonOption
from schedmate.commands.slurm_setup import BoundsOption, StateOption, opened
from schedmate.errors import InputError
from schedmate.plain import dumps

SCHEMA = "schedmate.slurm-plan/v1"
BACK_S = 14 * 86_400.0
"""How long ago the job may have failed [s]."""


def plan(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Slurm's id of the job.")],
    bounds: BoundsOption = None,
    state: StateOption = None,
    history: HistoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read the log of a job that failed, and say what is to be done; do nothing.

    With recovery in the bounds, the plan is the one that the agent would propose.
    """
    import sys

    from schedmate.commands.slurm_words import lines_of
    from schedmate.schedulers.live.report import Pass
    from schedmate.terminal.screen import Screen

    with opened(bounds, state, history, dry_run=True) as setup:
        now = time.time()
        runs = [run for run in setup.adapter.ended(now - BACK_S) if run.job == job]
        if not runs:
            raise InputError(
                f"accounting knows no run of job {job} that ended in the last 14 days; "
                "`sacct -D -j` lists them."
            )
        failed, proposed = setup.agent.look_into(runs[-1], now)
        if as_json:
            document = {
                "schema": SCHEMA,
                "cluster": setup.adapter.cluster,
                "failure": failed.model_dump(mode="json"),
                "plan": None if proposed is None else proposed.model_dump(mode="json"),
            }
            typer.echo(dumps(document, indent=2))
            return
        screen = Screen(sys.stdout)
        found = Pass(cluster=setup.adapter.cluster, time=now, failed=[failed])
        for line, tone in list(lines_of(found))[1:]:
            screen.line(line, tone)
        if failed.diagnosis is not None:
            for evidence in failed.diagnosis.evidence[:5]:
                screen.line(evidence.text, label=f"  {evidence.file}:{evidence.line}: ")
        if proposed is not None:
            screen.line(f"plan {proposed.id}:", "heading")
            for step, action in enumerate(proposed.actions, 1):
                screen.line(
                    f"{action.kind} {action.target}, if {action.precondition}", label=f"  {step}. "
                )
        elif setup.bounds.recovery is None:
            screen.line("No plan: the bounds name no recovery.yaml.")
