"""The report of a site (`schedmate site-report`) on a terminal, as Markdown and as one HTML page.

Markdown and the page are made of the same sections: sentences, charts and tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from schedmate.base.inputs import format_duration
from schedmate.base.terminal import Screen, clean, counted
from schedmate.report import charts
from schedmate.report.charts import Axis, Figure, Series
from schedmate.report.markdown import escaped, prose, table
from schedmate.report.page import embedded, render
from schedmate.site.document import (
    Failures,
    Fidelity,
    Predictability,
    Predicted,
    Queue,
    Repeat,
    SiteReport,
    StateCost,
    baseline_words,
    unused_words,
)
from schedmate.site.queue import BACKFILL, BOTH, ORDERED, PERFECT, TODAY

SHOWN = 12
"""Rows of a table in the report; the JSON document has more."""
_SCENARIOS = (ORDERED, BACKFILL, BOTH, PERFECT)
_LEAST_WAIT_S = 60.0


@dataclass(frozen=True)
class Listing:
    """A table: its caption, heads and rows; all columns but the first hold numbers."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    """A part of the report; the first sentence is what it says in short."""

    id: str
    title: str
    text: Sequence[str]
    figures: Sequence[Figure] = ()
    tables: Sequence[Listing] = ()


def show_site(report: SiteReport, screen: Screen) -> None:
    """The report in short, on a terminal."""
    for line in headlines(report):
        screen.line(line)
    for number, one in enumerate(report.advice, 1):
        screen.line()
        screen.line(f"{number}. {one.title} ({one.kind})", "heading")
        screen.line(one.why, label="   ")
        for indent, text in _lines(one.setting):
            screen.line(text, label=f"       {indent}")
        screen.line(f"Undo: {one.undo}", label="   ")
    for note in report.notes:
        screen.line()
        screen.line(f"note: {note}")


def _lines(setting: str) -> Iterator[tuple[str, str]]:
    """The lines of a setting, each with its indentation apart."""
    for line in setting.rstrip().splitlines():
        yield " " * (len(line) - len(line.lstrip(" "))), clean(line)


def headlines(report: SiteReport) -> list[str]:
    """What the report says, a sentence for each part."""
    covered = report.coverage
    users = f" of {counted(covered.users, 'user')}" if covered.users else ""
    lasted = (
        f"{covered.days:,.0f} days" if covered.days >= 2 else format_duration(covered.days * 86_400)
    )
    return [
        f"{counted(covered.jobs, 'job')}{users}, submitted over {lasted}.",
        *(section.text[0] for section in sections(report)),
    ]


def sections(report: SiteReport) -> list[Section]:
    """The three parts that the advice rests on."""
    return [
        _predictability(report.predictability),
        _queue(report.queue),
        _failures(report.failures, report.unit),
    ]


# How predictable jobs are.


def _predictability(found: Predictability) -> Section:
    title = "How predictable are the jobs?"
    total = found.total
    if total is None:
        few = (
            f"Nothing is said of predictability: {counted(found.scored, 'job')} of the second half "
            "completed, which is too few."
        )
        return Section("predictability", title, [few])
    text = [
        (
            f"At submission the estimates were within 2x of the run time for {total.estimate:.0%} "
            f"of {total.jobs:,} completed jobs, {baseline_words(total)}."
        ),
        f"The 80 % interval held the run time of {total.covered:.0%}.",
        (
            f"{counted(found.replayed, 'job')} replayed in order of submission; each estimate "
            "knows the runs that had ended by then. Scored are jobs of the second half that "
            "completed. Where a job requests no time, or has no like run, the running "
            "median stands in."
        ),
    ]
    if total.unused is not None:
        text.insert(
            2,
            f"Of the requested time, weighted by size, {unused_words(total.unused)} was never "
            "used.",
        )
    tables = [
        Listing(
            f"By {kind}",
            (kind, "jobs", "estimates", "requested", "last run", "in interval", "unused"),
            [_predicted(one) for one in some[:SHOWN]],
        )
        for kind, some in found.by.items()
        if some
    ]
    figures = []
    if found.curve is not None:
        curve = found.curve
        x = charts.log_ratio_axis("factor between prediction and run time", 1.0, 100.0)
        y = charts.linear_axis("share of jobs", 0.0, 1.0, "count")
        told = (
            ("estimates", curve.estimate),
            ("requested", curve.requested),
            ("last run", curve.last),
        )
        kept = [n for n, factor in enumerate(curve.factors) if factor <= 100.0]
        at = np.array([curve.factors[n] for n in kept])
        series = [
            Series(name, style, at, np.array([shares[n] for n in kept]))
            for style, (name, shares) in enumerate(told)
        ]
        figures.append(
            Figure(
                "Jobs within each factor of their prediction",
                charts.line_chart("Share of jobs within each factor", series, x, y),
                ["factor", "estimates", "requested", "last run"],
                [
                    [f"{curve.factors[n]:.2f}", *(f"{shares[n]:.1%}" for _, shares in told)]
                    for n in kept
                    if n % 3 == 2
                ],
                "Above is better.",
                charts.legend([name for name, _ in told]),
            )
        )
    return Section("predictability", title, text, figures, tables)


def _predicted(one: Predicted) -> list[str]:
    unused = "" if one.unused is None else unused_words(one.unused)
    shares = (one.estimate, one.requested, one.last, one.covered)
    return [one.name, f"{one.jobs:,}", *(f"{share:.0%}" for share in shares), unused]


# The queue.


def _queue(found: Queue) -> Section:
    title = "What would the queue have been?"
    fidelity = found.fidelity
    if fidelity is None:
        return Section("queue", title, [found.reason])
    text = [
        (
            f"The model of the queue is {'' if fidelity.faithful else 'not '}faithful enough: rank "
            f"correlation of modelled and recorded waits {fidelity.correlation:.2f}, mean wait "
            f"{_wait(fidelity.modelled_mean_s)} modelled, "
            f"{_wait(fidelity.recorded_mean_s)} recorded."
        ),
        (
            f"The bound is a {fidelity.bound}. {fidelity.near:.0%} of the waits are within a "
            "factor of 2 or ten minutes."
        ),
        (
            f"Model: {fidelity.model}, {counted(round(fidelity.capacity), fidelity.unit)}; chosen "
            f"on other windows of the list than the {fidelity.windows} tested here, with "
            f"{fidelity.jobs:,} jobs."
        ),
        found.reason,
    ]
    tables = []
    if found.scenarios:
        tables.append(
            Listing(
                "Waits",
                ("way to use estimates", "mean wait", "95th percentile", "over a day longer"),
                [
                    [one.name, _wait(one.mean_wait_s), _wait(one.p95_wait_s), f"{one.starved:,}"]
                    for one in found.scenarios
                ],
            )
        )
    if found.groups:
        tables.append(
            Listing(
                f"Change of mean waits by user group, losers by “{ORDERED}” first",
                ("group", "jobs", TODAY, *_SCENARIOS),
                [
                    [
                        one.group,
                        f"{one.jobs:,}",
                        _wait(one.today_s),
                        *(_change(one.change_s[name]) for name in _SCENARIOS),
                    ]
                    for one in found.groups[:SHOWN]
                ],
            )
        )
    return Section("queue", title, text, [_waits_figure(fidelity)], tables)


def _wait(seconds: float) -> str:
    return format_duration(seconds)


def _change(seconds: float) -> str:
    if abs(seconds) < 1:
        return "0"
    return f"{'+' if seconds > 0 else '-'}{format_duration(abs(seconds))}"


def _waits_figure(fidelity: Fidelity) -> Figure:
    recorded, modelled = (
        np.maximum(_LEAST_WAIT_S, np.array(one))
        for one in (fidelity.recorded_s, fidelity.modelled_s)
    )
    most = float(max(recorded.max(), modelled.max(), 2 * _LEAST_WAIT_S))
    axes: tuple[Axis, Axis] = (
        charts.log_duration_axis("recorded wait", _LEAST_WAIT_S, most),
        charts.log_duration_axis("modelled wait", _LEAST_WAIT_S, most),
    )
    levels = (0.25, 0.5, 0.75, 0.95)
    return Figure(
        "Waits of single jobs, recorded and modelled",
        charts.density_chart("Recorded wait against modelled wait", recorded, modelled, axes),
        ["quantile", "recorded", "modelled"],
        [
            [f"{level:.0%}", *(_wait(float(np.quantile(one, level))) for one in (
                np.array(fidelity.recorded_s), np.array(fidelity.modelled_s)))]
            for level in levels
        ],
        "Waits below a minute are drawn at one minute; on the line both are equal.",
    )  # fmt: skip


# Failures and their cost.


def _failures(found: Failures, unit: str) -> Section:
    title = "What failed, and what did it cost?"
    if not found.states_known:
        unknown = (
            "Nothing is said of failures: the list has no states, so all that ran counts as "
            "completed. Name their column, --map state=COLUMN (sacct: State)."
        )
        return Section("failures", title, [unknown])
    unit = f"{unit} hours"
    used = _Hours(found)
    lost = (
        f"{found.lost_share:.0%} of all {unit} went to jobs that did not complete"
        if found.lost_share is not None
        else f"{sum(one.jobs for one in found.states if one.state != 'COMPLETED'):,} jobs did not "
        "complete"
    )
    again = (
        f"{counted(found.repeated, 'run')} repeated the failure of the run before, for "
        f"{found.repeated_hours:,.0f} {unit}"
        if found.repeats_known
        else "whether failures were repeated is unknown, since the list states no users or no ends"
    )
    text = [
        f"{lost}; {again}.",
        f"Nodes: {found.nodes.reason}",
    ]
    if found.logs_read or found.logs_missing:
        text.append(
            f"{counted(found.logs_read, 'log')} of the costliest failed jobs read; "
            f"{found.logs_missing:,} could not be found."
        )
    tables = [
        Listing(
            "Jobs by state",
            ("state", "jobs", *used.head),
            [[one.state, f"{one.jobs:,}", *used.of(one)] for one in found.states],
        )
    ]
    if found.repeats:
        named = ("work",) if any(one.name for one in found.repeats[:SHOWN]) else ()
        tables.append(
            Listing(
                "Repeated failures, the costliest first",
                ("user", *named, "state", "longest chain", "repeats in all", *used.head),
                [
                    [
                        one.user or "",
                        *(one.name or "without a name" for _ in named),
                        one.state,
                        f"{one.runs:,}",
                        f"{one.repeats:,}",
                        *used.of(one),
                    ]
                    for one in found.repeats[:SHOWN]
                ],
            )
        )
    worst = [one for one in found.nodes.nodes if one.failures][:SHOWN]
    if worst:
        tables.append(
            Listing(
                "Nodes with most failures beyond chance",
                ("node", "jobs", "failures", "expected", "p, corrected", "suspect"),
                [
                    [
                        one.node,
                        f"{one.jobs:,}",
                        f"{one.failures:,}",
                        f"{one.expected:.1f}",
                        f"{one.p_adjusted:.2g}",
                        "yes" if one.suspect else "no",
                    ]
                    for one in worst
                ],
            )
        )
    if found.causes:
        tables.append(
            Listing(
                "Causes, by the logs",
                ("cause", "type", "jobs", "GPU hours"),
                [
                    [
                        one.error_name or "no failure found",
                        one.error_type,
                        f"{one.jobs:,}",
                        f"{one.gpu_hours:,.1f}",
                    ]
                    for one in found.causes[:SHOWN]
                ],
            )
        )
    return Section("failures", title, text, (), tables)


class _Hours:
    """Columns of what was used: GPU and CPU hours where there are any, else node hours."""

    def __init__(self, found: Failures) -> None:
        self._names = [
            name
            for name in ("gpu_hours", "cpu_hours")
            if any(getattr(one, name) for one in found.states)
        ] or ["node_hours"]
        words = {"gpu_hours": "GPU hours", "cpu_hours": "CPU hours", "node_hours": "node hours"}
        self.head = [words[name] for name in self._names]

    def of(self, one: StateCost | Repeat) -> list[str]:
        return [f"{getattr(one, name):,.1f}" for name in self._names]


# Markdown and HTML.


def site_markdown(report: SiteReport) -> str:
    """The report as Markdown; nothing of the list can be markup."""
    return "\n".join(_markdown_lines(report)) + "\n"


def _markdown_lines(report: SiteReport) -> Iterator[str]:
    yield f"# Site report: {escaped(report.source)}"
    yield ""
    yield escaped(headlines(report)[0])
    for section in sections(report):
        yield from ("", f"## {section.title}", "")
        for text in section.text:
            yield prose(text)
            yield ""
        for listing in section.tables:
            yield from (f"**{escaped(listing.caption)}**", "")
            yield from table(listing.head, listing.rows, left=1)
            yield ""
    yield "## What to switch on first"
    for number, one in enumerate(report.advice, 1):
        yield from ("", f"### {number}. {escaped(one.title)} ({one.kind})", "", prose(one.why))
        yield from ("", f"In {escaped(one.where)}:", "")
        yield from (f"    {indent}{line}" for indent, line in _lines(one.setting))
        yield from ("", f"Undo: {prose(one.undo)}")
    if report.notes:
        yield from ("", "## Notes", "")
        yield from (f"- {prose(note)}" for note in report.notes)


def site_page(report: SiteReport) -> str:
    """The report as one HTML page, with its JSON document inside."""
    return render(
        "site",
        "charts",
        found=report,
        headlines=headlines(report),
        sections=sections(report),
        data=embedded(report.document()),
    )
