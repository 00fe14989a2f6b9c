"""`schedmate slurm import`: past jobs from Slurm's accounting."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from schedmate.commands.options import HistoryOption, JsonOption
from schedmate.commands.slurm_setup import BoundsOption
from schedmate.plain import dumps
from schedmate.terminal import counted, progress, say

SCHEMA = "schedmate.slurm-import/v1"
PERIOD_S = 7 * 86_400.0
"""What is asked of accounting in one command [s]."""


def import_runs(
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="How far back to go, for example 90d.")
    ] = "30d",
    analyze: Annotated[
        bool,
        typer.Option(
            "--analyze/--no-analyze",
            help="Read each job's working directory, as it is now, for what it trained. Without "
            "this, past jobs take no part in estimates.",
        ),
    ] = True,
    bounds: BoundsOption = None,
    history: HistoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import past jobs from Slurm's accounting into the history.

    Needs the right to see all users' jobs (Slurm's PrivateData). Jobs that are in the history
    already are replaced, so that it may be repeated.

    Examples:

      schedmate slurm import --since 180d
    """
    from schedmate.commands.history_analysis import RepositoryAnalyser
    from schedmate.commands.history_common import opened
    from schedmate.commands.slurm_setup import connect
    from schedmate.durations import parse_duration
    from schedmate.readers import Readers
    from schedmate.schedulers.live.bounds import load_bounds
    from schedmate.settings import load_settings

    back, now = parse_duration(since), time.time()
    adapter = connect(load_bounds(bounds))
    seen: set[str] = set()
    readers = Readers(load_settings().memory_mb)
    analyser = RepositoryAnalyser(readers) if analyze else None
    with (
        readers,
        opened(history, create=True, embed=True) as store,
        progress("importing", max(1, int(back))) as advance,
    ):
        begin = now - back
        while begin < now:
            end = min(now, begin + PERIOD_S)
            runs = [run for run in adapter.ended(begin, end) if run.run not in seen]
            seen |= {run.run for run in runs}
            store.add_many(
                analyser(run.record, run.workdir) if analyser else run.record for run in runs
            )
            begin = end
            advance(int(begin - (now - back)), counted(len(seen), "job"))
    if as_json:
        document = {
            "schema": SCHEMA,
            "cluster": adapter.cluster,
            "imported": len(seen),
            "analysed": analyser.analysed if analyser else None,
        }
        typer.echo(dumps(document, indent=2))
    read = f", {analyser.analysed:,} with what they trained" if analyser else ""
    say(f"{counted(len(seen), 'run')} of {adapter.cluster} imported{read}.")
