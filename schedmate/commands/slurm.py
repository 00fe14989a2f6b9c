"""`schedmate slurm`: schedmate beside a Slurm cluster."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from schedmate.commands.options import HistoryOption, JsonOption
from schedmate.commands.slurm_doctor import doctor
from schedmate.commands.slurm_import import import_runs
from schedmate.commands.slurm_plan import plan
from schedmate.commands.slurm_setup import BoundsOption, StateOption, opened
from schedmate.plain import dumps
from schedmate.terminal import counted, say

if TYPE_CHECKING:
    from schedmate.schedulers.live.report import Pass

app = typer.Typer(help="Schedmate beside a Slurm cluster.", no_args_is_help=True)


@app.command()
def agent(
    once: Annotated[bool, typer.Option("--once", help="Make one pass and end.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Take back the order that was given, and end.")
    ] = False,
    bounds: BoundsOption = None,
    state: StateOption = None,
    history: HistoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate pending jobs, follow running ones, look into failed ones.

    Without --bounds it changes nothing on the cluster. One agent works on a cluster at a time; a
    second one waits for the first to end. With --json each pass is a line, with --once a document.

    Examples:

      schedmate slurm agent --once --dry-run

      schedmate slurm agent --bounds /etc/schedmate/bounds.yaml
    """
    from schedmate.schedulers.live.claims import ClaimedError
    from schedmate.schedulers.live.loop import only_agent
    from schedmate.schedulers.live.watch import watch

    def tell(found: Pass) -> None:
        if as_json:
            _print_json(found, indent=2 if once else None)
        elif once or found.eventful:
            _print(found)

    with opened(bounds, state, history, dry_run=dry_run) as setup:
        if setup.record is None:
            tell(setup.agent.once())
            return
        waits = False
        while True:
            try:
                with only_agent(setup.record, setup.adapter.cluster):
                    if undo:
                        say(f"{counted(setup.agent.take_back_order(), 'job')} put back.")
                    elif once:
                        tell(setup.agent.once())
                    else:
                        say(f"watching cluster {setup.adapter.cluster}; Ctrl-C ends it.")
                        watch(setup.agent, tell, say)
                    return
            except ClaimedError:
                if once or undo:
                    raise
                if not waits:
                    say("another agent works on this cluster; waiting for it to end.")
                    waits = True
            setup.wait()


app.command()(doctor)
app.command("import")(import_runs)
app.command()(plan)


def _print_json(found: Pass, indent: int | None) -> None:
    from schedmate.schedulers.live.report import SCHEMA

    document = {"schema": SCHEMA, **found.model_dump(mode="json")}
    typer.echo(dumps(document, indent=indent))
    sys.stdout.flush()


def _print(found: Pass) -> None:
    from schedmate.commands.slurm_words import lines_of
    from schedmate.terminal.screen import Screen

    screen = Screen(sys.stdout)
    for line, tone in lines_of(found):
        screen.line(line, tone)
    sys.stdout.flush()
