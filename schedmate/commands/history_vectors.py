"""`schedmate history rebuild` and `calibrate`: what depends on the embedder."""

from __future__ import annotations

from typing import Annotated

import typer

from schedmate.commands.history_common import opened
from schedmate.commands.options import HistoryOption, JsonOption
from schedmate.plain import dumps
from schedmate.terminal import progress, say

CALIBRATION = "schedmate.calibration/v1"


def rebuild(
    index: Annotated[
        bool, typer.Option("--index", help="Rebuild only the index, from the stored vectors.")
    ] = False,
    history: HistoryOption = None,
) -> None:
    """Recompute all vectors and the index.

    Needed after a change of the embedder. Records are not changed, so it can be interrupted and run
    again.
    """
    with opened(history, embed=not index) as store:
        if index:
            store.rebuild_index()
        else:
            with progress("embedding", len(store)) as advance:
                store.rebuild(lambda done, total: advance(done, f"{done:,} of {total:,} jobs"))
    say(f"rebuilt the {'index' if index else 'vectors and the index'}.")


def calibrate(as_json: JsonOption = False) -> None:
    """Measure which similarity means "the same work".

    With the embedder of the settings, embeds a bundled set of labelled workloads, chooses on one
    half the lowest threshold that accepts 1 % of near misses, and checks it on the other. Prints
    the setting `threshold`; changes nothing.
    """
    from dataclasses import asdict

    from schedmate.advice import embedder_of
    from schedmate.retrieval.calibration import calibrate as measure
    from schedmate.settings import load_settings

    embedder = embedder_of(load_settings())
    found = measure(embedder)
    if as_json:
        document = {"schema": CALIBRATION, "embedder": embedder.id, **asdict(found)}
        typer.echo(dumps(document, indent=2))
        return
    typer.echo(f"threshold = {found.threshold}")
    say(f"for {embedder.id}; of pairs that it was not chosen on it lets through:")
    say(f"{found.other_model:.1%} of near misses with another model")
    say(f"{found.other_dataset:.1%} of near misses with another dataset")
    say(f"{found.same_spelt_otherwise:.1%} of the same work spelt otherwise")
    say(f"{found.same_named_otherwise:.1%} of the same work under another name")
    say(f"its default is {embedder.threshold}; the line above is for config.toml.")
