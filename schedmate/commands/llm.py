"""`schedmate llm`: what language models were asked, and what it took."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from schedmate.commands.llm_serving import capacity, serve_command
from schedmate.commands.options import JsonOption
from schedmate.durations import parse_duration
from schedmate.plain import dumps

SCHEMA = "schedmate.ledger/v1"

app = typer.Typer(
    no_args_is_help=True, help="Serve a language model; list its calls and their cost."
)
app.command("serve-command")(serve_command)
app.command()(capacity)


@app.command()
def ledger(
    last: Annotated[
        int, typer.Option("--last", "-n", min=1, help="How many calls to list, newest first.")
    ] = 20,
    since: Annotated[
        str | None,
        typer.Option(help="Only calls of the last 24h, 7-0 (days-hours) or other time span."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List calls of language models: tokens, time, verdict, sums.

    A request that reached no server (none there, no time or budget left) is not a call and has no
    tokens. The ledger has no text; the setting `trajectories` keeps records of readings.
    """
    from schedmate.llm.store import FILE, Store
    from schedmate.settings import data_dir

    began = 0.0 if since is None else time.time() - parse_duration(since)
    calls: list[dict[str, Any]] = []
    if (data_dir() / FILE).exists():
        store = Store(data_dir())
        try:
            calls = store.calls(since=began)
        finally:
            store.close()
    totals = _totals(calls)
    if as_json:
        document = {"schema": SCHEMA, "totals": totals, "calls": calls[:last]}
        typer.echo(dumps(document, indent=2))
        return
    _print(calls[:last], totals)


def _totals(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sums by endpoint, model and purpose, the most used first."""
    sums: dict[tuple[str, str, str], dict[str, Any]] = {}
    for call in calls:
        key = (call["endpoint"], call["model"], call["purpose"])
        total = sums.setdefault(
            key,
            dict(zip(("endpoint", "model", "purpose"), key, strict=True))
            | dict.fromkeys(
                (
                    *("calls", "from_cache", "failed", "unsent"),
                    *("input_tokens", "cached_tokens", "output_tokens"),
                ),
                0,
            )
            | {"seconds": 0.0, "cost": 0.0},
        )
        answered = call["verdict"] == "ok"
        unsent = not answered and call["sent"] == 0  # no server, no time or no budget
        total["calls"] += not unsent
        total["from_cache"] += call["attempts"] == 0 and answered
        total["failed"] += not (answered or unsent)
        total["unsent"] += unsent
        for name in ("input_tokens", "cached_tokens", "output_tokens", "seconds", "cost"):
            total[name] += call[name]
    return sorted(sums.values(), key=lambda one: -one["calls"])


def _print(calls: list[dict[str, Any]], totals: list[dict[str, Any]]) -> None:
    from schedmate.terminal.screen import Screen, Table

    screen = Screen(sys.stdout)
    if not calls:
        screen.line("no model has been called yet.")
        return
    tokens = sum(one["input_tokens"] + one["output_tokens"] for one in totals)
    seconds = sum(one["seconds"] for one in totals)
    count, unsent = (sum(one[name] for one in totals) for name in ("calls", "unsent"))
    never = f", {unsent:,} more reached no server" if unsent else ""
    screen.line(f"{count:,} calls, {tokens:,} tokens, {seconds:,.1f} s{never}")
    numbers = ("calls", "cached", "failed", "not sent", "tokens in", "out", "s", "cost")
    sums = Table("model", "at", "for", *numbers, right=numbers)
    for one in totals:
        sums.add(
            one["model"],
            one["endpoint"],
            one["purpose"],
            *(f"{one[name]:,}" for name in ("calls", "from_cache", "failed", "unsent")),
            *(f"{one[name]:,}" for name in ("input_tokens", "output_tokens")),
            f"{one['seconds']:,.1f}",
            f"{one['cost']:,.4f}",
        )
    screen.line()
    screen.table(sums)
    columns = ("time (UTC)", "for", "job", "model", "verdict", "in", "out", "s", "why")
    listed = Table(*columns, right=("in", "out", "s"))
    for call in calls:
        moment = datetime.fromtimestamp(call["time"], UTC)
        listed.add(
            moment.strftime("%Y-%m-%d %H:%M:%S"),
            call["purpose"],
            call["job"] or "",
            call["model"],
            call["verdict"]
            + (" (cache)" if call["attempts"] == 0 else "") * (call["verdict"] == "ok"),
            f"{call['input_tokens']:,}",
            f"{call['output_tokens']:,}",
            f"{call['seconds']:.1f}",
            call["detail"] or "",
        )
    screen.line()
    screen.table(listed)
