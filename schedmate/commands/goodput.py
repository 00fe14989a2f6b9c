"""`schedmate goodput`: how much of its time a large training makes progress, and what helps."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schedmate.base.data import dumps
from schedmate.base.errors import UsageError
from schedmate.base.inputs import format_duration, parse_duration
from schedmate.base.terminal import Screen, Table, counted, progress, say
from schedmate.commands.options import HistoryOption, JsonOption

if TYPE_CHECKING:
    from schedmate.site.reliability import AtInterval, GoodputReport, Rates, SiteRates

MOST = 10_000_000
_DETECT, _RESTART, _WRITE = "10m", "10m", "30s"
"""Detect: the usual timeout of collectives (ByteRobust, table 3). Restart: FT-HSDP; Meta's clusters
take 5 to 20 minutes. Write: an assumption."""


def goodput(
    gpus: Annotated[
        int, typer.Option(min=1, max=MOST, help="GPUs that the job needs, all of them.")
    ],
    mtbf: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Mean time between failures of the whole job, such as 3h."
        ),
    ] = None,
    node_mtbf: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The same of one node, such as 200d."),
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Published rates: llama3 (default), rsc-1, rsc-2, ft-hsdp, delta-h100, "
            "delta-a100.",
        ),
    ] = None,
    sacct: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Rates of your site, from a list of jobs in any format of site-report; - is "
            "standard input.",
        ),
    ] = None,
    history: HistoryOption = None,
    own: Annotated[
        bool, typer.Option("--own", help="Rates of your site, from the job history.")
    ] = False,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Training between checkpoints. Default: the best."),
    ] = None,
    write: Annotated[
        str,
        typer.Option(metavar="TIME", help="Time for which a checkpoint stops the training."),
    ] = _WRITE,
    save: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Time after that until it can be restored from (asynchronous saving).",
        ),
    ] = "0s",
    detect: Annotated[
        str, typer.Option(metavar="TIME", help="Time until a failure is noticed.")
    ] = _DETECT,
    restart: Annotated[
        str,
        typer.Option(metavar="TIME", help="From there until training runs again."),
    ] = _RESTART,
    repair: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time that a node with broken hardware is away. Default: a replacement is "
            "always at hand.",
        ),
    ] = None,
    spares: Annotated[
        int | None,
        typer.Option(
            min=0, max=MOST, help="With --repair: hot spare nodes. Default: the best number."
        ),
    ] = None,
    lemons: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE:FACTOR",
            help="Share of nodes that fail FACTOR times as often as others, as 1%:20. Default: "
            "those found in --sacct or --own.",
        ),
    ] = None,
    run: Annotated[
        str, typer.Option(metavar="TIME", help="Length of the run whose spread is simulated.")
    ] = "30d",
    gpus_per_node: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Default: 8, or as published.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Predict a large training's goodput under failures.

    Says which share of its time a training makes lasting progress (the effective training time
    ratio, ETTR) with failures, their detection, restarts, checkpoints and spare nodes, by the best
    checkpoint interval and by yours, and how that changes with interval, GPUs and spares.

    Examples:

      schedmate goodput --gpus 4096 --mtbf 12h --checkpoint 30m --write 1m

      schedmate goodput --gpus 16384 --rates llama3 --restart 5m --repair 2d

      sacct -a -S 2026-01-01 --json | schedmate goodput --gpus 1024 --sacct -
    """
    from schedmate.site.reliability import (
        SCHEMA,
        Lemons,
        Question,
        goodput_report,
        published,
        stated_rate,
    )

    sources = {
        "--mtbf": mtbf is not None,
        "--node-mtbf": node_mtbf is not None,
        "--rates": rates is not None,
        "--sacct": sacct is not None,
        "--own": own or history is not None,
    }
    given = [name for name, is_given in sources.items() if is_given]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other; give one of them.")
    if spares is not None and repair is None:
        raise UsageError("--spares needs --repair: the time that a broken node is away.")
    site: SiteRates | None = None
    chosen: Rates
    if mtbf is not None or node_mtbf is not None:
        per_node = gpus_per_node or 8
        nodes = -(-gpus // per_node) if mtbf is not None else 1
        chosen = stated_rate(_positive(given[0], mtbf or node_mtbf or ""), nodes, per_node)
    elif given and given[0] in ("--sacct", "--own"):
        site = _site(sacct, history, gpus_per_node or 8)
        chosen = site.rates
    else:
        chosen = published(rates or "llama3")
        if gpus_per_node is not None:
            chosen = chosen.for_nodes_of(gpus_per_node)
    bad = None if site is None else site.lemons
    if lemons is not None:
        share, factor = _lemons(lemons)
        value, _, _ = chosen.per_node_day()
        bad = Lemons(
            nodes=[],
            why=f"{share:.3g} of the nodes fail {factor:g} times as often as the others",
            per_1000_node_days=1000 * value / (1 - share + share * factor),
        )
    defaults = {"--detect": (detect, _DETECT), "--restart": (restart, _RESTART)}
    defaults["--write"] = (write, _WRITE)
    assumed = [f"{name} {value}" for name, (value, usual) in defaults.items() if value == usual]
    notes = [f"Assumed where you know better: {', '.join(assumed)}."] if assumed else []
    if not given:
        notes.append("The failure rate is not yours: give --mtbf, --node-mtbf, --sacct or --own.")
    if chosen.errors:
        notes.append("These rates count errors of GPUs; not every one ends a job.")
    report = goodput_report(
        Question(
            gpus=gpus,
            rates=chosen,
            detect_s=parse_duration(detect),
            restart_s=parse_duration(restart),
            write_s=parse_duration(write),
            save_s=parse_duration(save),
            interval_s=None if checkpoint is None else _positive("--checkpoint", checkpoint),
            spares=spares,
            repair_s=None if repair is None else _positive("--repair", repair),
            run_s=_positive("--run", run),
            states=() if site is None else site.states,
            lemons=bad,
            notes=notes,
        )
    )
    if as_json:
        typer.echo(dumps({"schema": SCHEMA, **report.model_dump()}, indent=1))
    else:
        show(report, Screen(sys.stdout))


def _positive(name: str, text: str) -> float:
    seconds = parse_duration(text)
    if not seconds:
        raise UsageError(f"{name} {text} is no time; give more than 0.")
    return seconds


def _lemons(text: str) -> tuple[float, float]:
    share, _, factor = text.partition(":")
    try:
        part = float(share.rstrip("%")) / (100 if share.endswith("%") else 1)
        found = part, float(factor)
    except ValueError:
        found = -1.0, 0.0
    if not (0 < found[0] < 1 and 1 <= found[1] <= 1e6):
        raise UsageError(f"--lemons {text}: write a share of nodes and a factor, as 1%:20.")
    return found


def _site(sacct: Path | None, history: str | None, gpus_per_node: int) -> SiteRates:
    from schedmate.commands.site import open_jobs
    from schedmate.retrieval.sacct import ImportReport
    from schedmate.site.reliability import site_rates

    report = ImportReport()
    with ExitStack() as stack:
        jobs, _ = open_jobs(stack, sacct, history, report)
        name = "the history" if sacct is None else sacct.name
        advance = stack.enter_context(progress("read jobs"))
        found = site_rates(jobs, name, gpus_per_node, lambda done: advance(done, "jobs"))
    if report.bad:
        say(f"warning: {counted(report.bad, 'row')} could not be used; {report.problems[0]}")
    return found


# What a person reads.


def show(report: GoodputReport, screen: Screen) -> None:
    """The report on a terminal."""
    rate, mtbf = report.per_1000_node_days, report.mtbf_s
    exact = rate.low == rate.high
    screen.line(
        f"{report.gpus:,} GPUs on {counted(report.nodes, 'node')} fail every "
        f"{format_duration(mtbf.value)}"
        + ("" if exact else f" ({format_duration(mtbf.low)} to {format_duration(mtbf.high)})")
        + f": {rate.value:.3g} failures per 1,000 node-days"
        + ("" if exact else f" (95 %: {rate.low:.3g} to {rate.high:.3g})")
        + f", {report.rates.stated}."
    )
    for source in report.rates.sources:
        screen.line(source, label="  ")
    screen.line()
    if report.asked is not None:
        _at(report, report.asked, "with a checkpoint every", screen)
    _at(report, report.best, "at the best interval,", screen)
    screen.line(
        f"Young: {format_duration(report.young_s)}. Daly: {format_duration(report.daly_s)}. "
        f"Without counting checkpoints, 1 - downtime / MTBF: {report.naive:.1%}."
    )
    chosen = report.asked or report.best
    lost = Table("where the time goes", "share", right=("share",))
    for name, share in chosen.shares.model_dump().items():
        lost.add({"ettr": "progress", "lost": "work undone"}.get(name, name), f"{share:.2%}")
    screen.line()
    screen.table(lost)
    screen.line()
    by_interval = Table("checkpoint every", "ETTR", right=("checkpoint every", "ETTR"))
    for point in report.intervals:
        by_interval.add(format_duration(point.interval_s), f"{point.ettr:.2%}")
    screen.table(by_interval)
    screen.line()
    right = ("GPUs", "fails every", "best interval", "ETTR", "at this interval")
    sizes = Table(*right, right=right)
    for size in report.sizes:
        sizes.add(
            f"{size.gpus:,}",
            format_duration(size.mtbf_s),
            format_duration(size.best_interval_s),
            f"{size.ettr:.1%}",
            f"{size.as_asked:.1%}",
        )
    screen.table(sizes)
    if report.spares:
        screen.line()
        columns = ("spare nodes", "waits", "ETTR", "goodput")
        table = Table(*columns, right=columns)
        for one in report.spares:
            table.add(one.spares, f"{one.waiting:.2%}", f"{one.ettr:.2%}", f"{one.goodput:.2%}")
        screen.table(table)
        screen.line(
            f"Most progress per GPU held: {counted(report.best_spares or 0, 'spare node')}."
        )
    if len(report.causes) > 1:
        screen.line()
        heads = ("share", "per 1,000 node-days", "95 %")
        causes = Table("cause", *heads, right=heads)
        for cause in report.causes:
            level = cause.per_1000_node_days
            causes.add(
                *(cause.name, f"{cause.share:.1%}", f"{level.value:.3g}"),
                f"{level.low:.2g} to {level.high:.2g}",
            )
        screen.table(causes)
    if report.states:
        screen.line()
        heads = ("jobs", "per 1,000 node-days", "95 %")
        states = Table("state", *heads, right=heads)
        for state in report.states:
            states.add(
                *(state.state, f"{state.jobs:,}", f"{state.per_1000_node_days:.3g}"),
                f"{state.low:.3g} to {state.high:.3g}",
            )
        screen.table(states)
    if report.lemons is not None:
        screen.line()
        names = f" ({', '.join(report.lemons.nodes[:8])})" if report.lemons.nodes else ""
        screen.line(
            f"Lemon nodes{names}: {report.lemons.why}. Without them "
            f"{report.lemons.per_1000_node_days:.3g} failures per 1,000 node-days"
            + (
                f", ETTR {report.without_lemons.ettr.value:.1%}."
                if report.without_lemons is not None
                else "."
            )
        )
    for note in report.notes:
        screen.line(f"note: {note}")


def _at(report: GoodputReport, one: AtInterval, how: str, screen: Screen) -> None:
    ends = one.ettr
    screen.line(
        f"ETTR {ends.value:.1%} {how} {format_duration(one.interval_s)}"
        + ("" if ends.low == ends.high else f" ({ends.low:.1%} to {ends.high:.1%} by the rate)")
        + (f"; goodput of all GPUs held {one.goodput:.1%}" if report.spares else "")
        + f"; 80 % of runs of {format_duration(report.run_s)} between {one.run[0]:.1%} and "
        f"{one.run[1]:.1%}."
    )
