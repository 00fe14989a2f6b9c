"""`schedmate slurm`: schedmate beside a Slurm cluster."""

from __future__ import annotations

import typer

from schedmate.commands.agents import (
    BoundsOption,
    DryRunOption,
    OnceOption,
    StateOption,
    UndoOption,
    run_agent,
)
from schedmate.commands.options import HistoryOption, JsonOption
from schedmate.commands.slurm_doctor import doctor
from schedmate.commands.slurm_import import import_runs
from schedmate.commands.slurm_plan import plan
from schedmate.commands.slurm_setup import opened

app = typer.Typer(help="Run schedmate's agent beside a Slurm cluster.", no_args_is_help=True)


@app.command()
def agent(
    once: OnceOption = False,
    dry_run: DryRunOption = False,
    undo: UndoOption = False,
    bounds: BoundsOption = None,
    state: StateOption = None,
    history: HistoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate pending jobs, follow running ones, diagnose failed ones.

    Without --bounds it changes nothing on the cluster. One agent works on a cluster at a time; a
    second one waits for the first to end. With --json each pass is a line, with --once a document.

    Examples:

      schedmate slurm agent --once --dry-run

      schedmate slurm agent --bounds /etc/schedmate/bounds.yaml
    """
    with opened(bounds, state, history, dry_run=dry_run) as setup:
        run_agent(setup, once=once, undo=undo, as_json=as_json)


app.command()(doctor)
app.command("import")(import_runs)
app.command()(plan)
