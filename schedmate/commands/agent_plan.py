"""What would be done about a job that failed, shown by the agent of any scheduler."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from schedmate.plain import dumps

if TYPE_CHECKING:
    from schedmate.commands.agents import Setup
    from schedmate.schedulers.live.adapter import EndedRun


def show_plan(setup: Setup[Any], run: EndedRun, now: float, schema: str, *, as_json: bool) -> None:
    """Read the logs of a run that failed and print the verdict and the plan; nothing is done."""
    from schedmate.commands.agent_words import lines_of
    from schedmate.schedulers.live.report import Pass
    from schedmate.terminal.screen import Screen

    failed, proposed = setup.agent.look_into(run, now)
    if as_json:
        document = {
            "schema": schema,
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
