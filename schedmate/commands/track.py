"""`schedmate track`: how fast a job goes and when it will end, from its log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schedmate.base.data import dumps
from schedmate.base.errors import ABSTAINED, UsageError
from schedmate.base.files import open_output
from schedmate.base.inputs import parse_duration
from schedmate.base.terminal import Screen, say
from schedmate.commands import options

if TYPE_CHECKING:
    from schedmate.jobs import Progress, Remaining
    from schedmate.logparse.progress.written import Willing
    from schedmate.logparse.reading import LogFile
    from schedmate.settings import Settings


SCHEMA = "schedmate.track/v1"
COMPARISON = "schedmate.track-compare/v1"


def track(
    log: Annotated[
        str | None,
        typer.Argument(
            metavar="LOG",
            help="The job's log: a file (also .gz, .zst), a directory with a file per rank, or - "
            "for standard input; or a run of TensorBoard, W&B, MLflow, Lightning or Trainer. On "
            "the cluster, the job's id is enough.",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Follow the log as it grows, through rotation and truncation."
        ),
    ] = False,
    every: Annotated[
        float, typer.Option(min=0.1, help="Shortest time between two lines of --follow [s].")
    ] = 2.0,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            "--compare",
            metavar="A B",
            help="Compare the throughput in log B with that in log A: has the job slowed down?",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        int, typer.Option(min=0, metavar="BYTES", help="Ignore the log before this byte offset.")
    ] = 0,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Global batch size, for logs that only state samples per second."),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            "--job",
            metavar="ID",
            help="The job's id in the history. Its estimate and its log together give the time "
            "that is left.",
        ),
    ] = None,
    elapsed: Annotated[
        str | None,
        typer.Option(
            "--elapsed",
            metavar="TIME",
            help="How long that job has run, such as 90m. Default: since its start in the history.",
        ),
    ] = None,
    history: options.HistoryOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help=f"One JSON document ({SCHEMA}); a line each to follow.")
    ] = False,
    form: options.Format = "text",
    html: options.HtmlOption = None,
    follow_links: options.FollowLinks = False,
    output: options.OutputOption = None,
    fail_on_abstain: Annotated[
        bool,
        typer.Option("--fail-on-abstain", help="Exit with 4 when the log states no step time."),
    ] = False,
    llm_base_url: options.LlmBaseUrl = None,
    llm_model: options.LlmModel = None,
    llm_timeout: options.LlmTimeout = None,
    llm_deadline: options.LlmDeadline = None,
    plain: options.PlainOption = False,
) -> None:
    """Show a job's speed and remaining time, from its log.

    Reads the log backwards from its end, so its size does not matter. Knows the progress lines of
    some fifty frameworks, and reads others by their labels, units and timestamps. If nothing gives
    a step time, none is shown. If a language model is named, it sees one line of each unknown kind
    and writes a pattern for it, which is checked against the other lines and kept.
    """
    from schedmate.logparse.progress.ratio import throughput_ratio
    from schedmate.report.jobs import show_comparison, show_progress, show_remaining
    from schedmate.settings import load_settings

    options.check_format(form, as_json=as_json)
    settings = load_settings(
        llm_base_url=llm_base_url,
        llm_model=llm_model,
        llm_timeout_s=llm_timeout,
        llm_deadline_s=llm_deadline,
    )
    if settings.mode != "static":
        options.announce_model(settings, "lines of the log")
    _check(log, compare, html, output, job, elapsed, follow=follow)
    if compare is not None:
        before, after = (
            _track(str(path), 0, batch_size, settings, follow_links=follow_links)[0]
            for path in compare
        )
        slowdown = throughput_ratio(before, after)
        with open_output(output) as stream:
            if as_json:
                document = {"schema": COMPARISON, "compare": [str(path) for path in compare]}
                _write(stream.write, {**document, **slowdown.model_dump(mode="json")})
            else:
                show_comparison(before, after, slowdown, Screen(stream, plain=plain))
        if fail_on_abstain and slowdown.ratio is None:
            raise typer.Exit(ABSTAINED)
        return
    assert log is not None
    (log, *_), _ = options.named_logs([log])
    if follow:
        _follow(
            Path(log), since, batch_size, every, as_json, settings, Screen(sys.stdout, plain=plain)
        )
        return
    progress, whole = _track(log, since, batch_size, settings, follow_links=follow_links)
    remaining = None
    if job is not None:
        remaining = _remaining(job, elapsed, progress, history)
        whole["remaining"] = remaining.model_dump(mode="json")
    with open_output(output) as stream:
        if as_json:
            _write(stream.write, whole, indent=2)
        elif form == "markdown":
            from schedmate.report.markdown import progress_markdown

            stream.write(progress_markdown(progress))
        else:
            screen = Screen(stream, plain=plain)
            show_progress(progress, screen)
            if remaining is not None:
                show_remaining(remaining, screen)
    if html is not None:
        _write_page(html, log, progress, remaining, settings, follow_links=follow_links)
    if fail_on_abstain and progress.abstained:
        raise typer.Exit(ABSTAINED)


def _check(
    log: str | None,
    compare: tuple[Path, Path] | None,
    html: Path | None,
    output: Path | None,
    job: str | None,
    elapsed: str | None,
    *,
    follow: bool,
) -> None:
    """Refuse options that do not go together."""
    from schedmate.logparse.reading.log import is_directory

    if (log is None) == (compare is None):
        raise UsageError("give one LOG, or two logs with --compare.")
    if job is None and elapsed is not None:
        raise UsageError("--elapsed says how long the job of --job has run; give both.")
    if job is not None and (follow or compare is not None):
        raise UsageError("--job takes one LOG, without --follow and --compare.")
    if html is not None and (follow or compare is not None or log == "-"):
        raise UsageError("--html is for one LOG, a file, without --follow and --compare.")
    if follow and (log is None or log == "-" or is_directory(Path(log)) or output is not None):
        raise UsageError("--follow takes one file that is being written, and prints to the screen.")


def _write_page(
    page: Path,
    log: str,
    progress: Progress,
    remaining: Remaining | None,
    settings: Settings,
    *,
    follow_links: bool,
) -> None:
    """The answer as a page, with the curves of loss and step time."""
    from schedmate.base.confine.limits import bounded
    from schedmate.logparse.experiments import read_curve
    from schedmate.report.answer import curves
    from schedmate.report.jobs import show_progress, show_remaining

    def show(screen: Screen) -> None:
        show_progress(progress, screen)
        if remaining is not None:
            show_remaining(remaining, screen)

    with bounded(f"the log {log}", settings.memory_mb):
        points = read_curve(Path(log), follow_links=follow_links)
    options.write_page(page, "track", log, show, curves(points))


def _track(
    path: str,
    since: int,
    batch: int | None,
    settings: Settings,
    *,
    follow_links: bool = False,
    willing: Willing | None = None,
) -> tuple[Progress, dict[str, Any]]:
    from schedmate.base.confine.limits import bounded
    from schedmate.logparse.experiments import curve_progress
    from schedmate.logparse.failure.ending import track_job
    from schedmate.logparse.reading import open_log

    if path != "-":
        with bounded(f"the run {path}", settings.memory_mb):
            curve = curve_progress(Path(path))
        if curve is not None:
            whole = {"schema": SCHEMA, "log": path, "file": path, **curve.model_dump(mode="json")}
            return curve, {**whole, "warnings": []}
    within = bounded(f"the log {path}", settings.memory_mb)
    with within, open_log(path, follow_links=follow_links) as log:
        log.warnings += options.mixed_logs_warnings(path, log, follow_links=follow_links)
        for warning in log.warnings:
            say(f"warning: {warning}")
        progress, file = track_job(log, batch=batch, since=since)
        if len(log.files) > 1:
            say(f"note: of {len(log.files):,} logs of {path} this is about {file.name}")
        progress = _by_patterns(file, progress, settings, batch, since, willing)
    document = {
        "schema": SCHEMA,
        "log": path,
        "file": file.name,
        **progress.model_dump(mode="json"),
    }
    return progress, {**document, "warnings": log.warnings}


def _remaining(job: str, elapsed: str | None, progress: Progress, history: str | None) -> Remaining:
    """How long a job of the history still takes, with what its log says."""
    from schedmate.mate import SchedMate
    from schedmate.retrieval.remaining import remaining_time
    from schedmate.settings import load_settings

    with SchedMate(load_settings(history=history)) as mate:
        stored = mate.stored(job)
        if elapsed is not None:
            elapsed_s = parse_duration(elapsed)
        elif stored.start_time is not None:
            elapsed_s = max(0.0, time.time() - stored.start_time)
        else:
            raise UsageError(
                f"the history does not say when job {job} started; say how long it has run: "
                "--elapsed 90m."
            )
        estimate = mate.estimate(stored.metadata, stored.launch, stored.submit_time, stored)
    return remaining_time(elapsed_s, estimate, progress)


def _by_patterns(
    file: LogFile,
    progress: Progress,
    settings: Settings,
    batch: int | None,
    since: int,
    willing: Willing | None,
) -> Progress:
    """`progress`, or if it abstained, the progress by patterns that a model wrote."""
    if not progress.abstained or settings.mode == "static":
        return progress
    from schedmate.llm import open_llm
    from schedmate.logparse.progress.written import track_by_patterns
    from schedmate.logparse.templates import TemplateStore
    from schedmate.settings import data_dir

    llm, store = open_llm(settings), TemplateStore(data_dir() / "templates.sqlite")
    try:
        return track_by_patterns(
            file, progress, store, llm, batch=batch, since=since, willing=willing
        )
    finally:
        store.close()
        if llm is not None:
            llm.close()


def _write(
    write: Callable[[str], Any], document: dict[str, Any], indent: int | None = None
) -> None:
    write(dumps(document, indent=indent) + "\n")


def _follow(
    path: Path,
    since: int,
    batch: int | None,
    every: float,
    as_json: bool,
    settings: Settings,
    screen: Screen,
) -> None:
    """Answer anew whenever the log has grown, until the process is stopped.

    A model that fails is not asked at every growth again.
    """
    from schedmate.logparse.progress.written import Willing
    from schedmate.logparse.reading import LogError
    from schedmate.logparse.reading.log import follow
    from schedmate.report.jobs import progress_headline

    willing, warned = Willing(), False
    shown_lines: tuple[str, ...] = ()
    due, grown = 0.0, True
    start = 0
    with suppress(OSError):  # which `follow` explains
        start = path.stat().st_size
    for new in follow(path, start=start, poll_s=min(0.5, every)):
        grown = grown or bool(new)
        if not grown or time.monotonic() < due:
            continue
        try:
            if path.stat().st_size < since:
                since = 0  # another file by now, or one that was cut
            progress, document = _track(str(path), since, batch, settings, willing=willing)
        except (LogError, OSError):
            # rotated away or just truncated: the next look finds what takes its place
            continue
        if willing.failure is not None and not warned:
            say(f"warning: the language model is not asked again, it failed: {willing.failure}")
            warned = True
        due, grown = time.monotonic() + every, False
        lines = progress_headline(progress)[:2]
        if lines == shown_lines:
            continue
        shown_lines = lines
        if as_json:
            _write(sys.stdout.write, document)
        else:
            screen.line(" · ".join(lines))
        sys.stdout.flush()
