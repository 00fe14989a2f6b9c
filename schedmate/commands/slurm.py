"""`schedmate slurm`: runs schedmate's agent beside a Slurm cluster, and imports its accounting."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from schedmate.base.data import dumps
from schedmate.base.files import without_query
from schedmate.base.inputs import parse_duration
from schedmate.base.terminal import counted, progress, say
from schedmate.cluster.slurm import Slurm
from schedmate.commands.agents import BoundsOption, cluster_app
from schedmate.commands.options import HistoryOption, JsonOption

app = cluster_app(Slurm())

IMPORT_SCHEMA = "schedmate.slurm-import/v1"
PERIOD_S = 7 * 86_400.0
"""Length of the period that one command asks Slurm's accounting about [s]."""


@app.command("import")
def import_runs(
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="How far back to go, for example 90d.")
    ] = "30d",
    analyze: Annotated[
        bool,
        typer.Option(
            "--analyze/--no-analyze",
            help=(
                "Read the code in each job's working directory, as it is now. Without it, "
                "past jobs take no part in estimates."
            ),
        ),
    ] = True,
    bounds: BoundsOption = None,
    history: HistoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import past jobs from Slurm's accounting into the history.

    Needs the right to see all users' jobs (Slurm's PrivateData). Jobs already in the history are
    replaced, so it can be repeated. The history is that of --history, else of the bounds, else of
    the settings, as for the agent.

    Examples:

      schedmate slurm import --since 180d --bounds /etc/schedmate/bounds.yaml
    """
    from schedmate.cluster.bounds import load_bounds
    from schedmate.commands.history import learn_run_times, settings_history
    from schedmate.commands.history_analysis import RepositoryAnalysis
    from schedmate.settings import load_settings

    back, now = parse_duration(since), time.time()
    allowed = load_bounds(bounds)
    adapter = Slurm().adapter(allowed)
    place = history or allowed.history
    seen: set[str] = set()
    with (
        RepositoryAnalysis(load_settings().memory_mb) as analysis,
        settings_history(place, create=True, embed=True) as store,
        progress("importing", max(1, int(back))) as advance,
    ):
        begin = now - back
        while begin < now:
            end = min(now, begin + PERIOD_S)
            runs = [run for run in adapter.ended(begin, end) if run.run not in seen]
            seen |= {run.run for run in runs}
            jobs = [(run.record, run.workdir) for run in runs]
            store.add_many(analysis(jobs) if analyze else [record for record, _ in jobs])
            begin = end
            advance(int(begin - (now - back)), counted(len(seen), "job"))
        learn_run_times(store)
    if as_json:
        document = {
            "schema": IMPORT_SCHEMA,
            "cluster": adapter.cluster,
            "imported": len(seen),
            "analysed": analysis.analysed if analyze else None,
        }
        typer.echo(dumps(document, indent=2))
    read = f", {analysis.analysed:,} with what they trained" if analyze else ""
    where = without_query(str(load_settings(history=place).history))
    say(f"{counted(len(seen), 'run')} of {adapter.cluster} imported into {where}{read}.")
