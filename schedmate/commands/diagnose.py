"""`schedmate diagnose`: what failed first in a job, whose fault it is, what to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from schedmate.commands.mixed_logs import mixed_logs
from schedmate.commands.model_options import LlmBaseUrl, LlmDeadline, LlmModel, LlmTimeout, announce
from schedmate.commands.options import FollowLinks, JsonOption
from schedmate.errors import FAILED_JOB, UsageError
from schedmate.plain import dumps
from schedmate.terminal import say

if TYPE_CHECKING:
    from schedmate.jobs import Diagnosis
    from schedmate.logparse.reading import Log
    from schedmate.settings import Settings

SCHEMA = "schedmate.diagnose/v1"


def diagnose(
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG...",
            help="One job's log: files, a directory with a file per rank, or - for standard input.",
        ),
    ],
    node_logs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NODE=]FILE",
            help="Kernel log (dmesg, syslog) of a node of the job. Repeatable.",
        ),
    ] = None,
    nodes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NODE,...",
            help="The nodes that the job ran on, such as gpu[01-04]. Repeatable.",
        ),
    ] = None,
    healthy: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="LOG",
            help=(
                "Log of a successful run of the same workload; lines that it also prints are "
                "no evidence. Repeatable."
            ),
        ),
    ] = None,
    locator: Annotated[
        Literal["auto", "scan", "binary"],
        typer.Option(
            help=(
                "scan: read everything. binary: bisect as in the SchedMate paper. auto: "
                "choose by size."
            )
        ),
    ] = "auto",
    llm_base_url: LlmBaseUrl = None,
    llm_model: LlmModel = None,
    llm_timeout: LlmTimeout = None,
    llm_deadline: LlmDeadline = None,
    window: Annotated[
        int,
        typer.Option(min=10, max=5000, help="Lines around the failure that are shown to a model."),
    ] = 200,
    follow_links: FollowLinks = False,
    as_json: JsonOption = False,
    exit_code: Annotated[
        bool,
        typer.Option("--exit-code", help="Exit with 6 when the job failed (any type but none)."),
    ] = False,
) -> None:
    """Find what failed first in a job, and what to do about it.

    Rules decide, with no model and no network; `schedmate rules list` shows them. If they leave the
    type of the failure open, or ranks contradict each other, a language model is asked if one is
    named. It has to cite a line as proof, and its answer never extends what the plan may do.
    """
    from schedmate.confine.limits import bounded
    from schedmate.settings import load_settings

    settings = load_settings(
        llm_base_url=llm_base_url,
        llm_model=llm_model,
        llm_timeout_s=llm_timeout,
        llm_deadline_s=llm_deadline,
    )
    from schedmate.logparse.failure import diagnose as run
    from schedmate.logparse.failure import open_job
    from schedmate.logparse.reading import open_log
    from schedmate.render.diagnosis import show
    from schedmate.terminal.screen import Screen

    with ExitStack() as stack:
        if "-" in logs and len(logs) > 1:
            raise UsageError("- stands for standard input alone; give files or -, not both.")
        stack.enter_context(bounded(f"the log {logs[0]}", settings.memory_mb))
        log = stack.enter_context(open_job(logs, follow_links=follow_links))
        usual = [stack.enter_context(open_log(path)) for path in healthy or ()]
        several = mixed_logs(logs[0], log, follow_links=follow_links) if len(logs) == 1 else []
        if as_json:
            log.warnings += several
        else:  # before the verdict that it puts in doubt
            for warning in several:
                say(f"warning: {warning}")
        found = run(
            log,
            node_logs=[stack.enter_context(node_log(one)) for one in node_logs or ()],
            nodes=node_names(nodes or ()),
            healthy=usual,
            locator=locator,
        )
        found = _consulted(found, log, settings, window, usual)
    if as_json:
        typer.echo(dumps(document(found), indent=2))
    else:
        show(found, Screen(sys.stdout))
    if exit_code and found.error_type != "none":
        raise typer.Exit(FAILED_JOB)


def node_log(text: str) -> Log:
    """The log of a node, named before it (`gpu-7=dmesg.txt`) or not."""
    from schedmate.hosts import host_name
    from schedmate.logparse.reading import open_log

    node, named, path = text.partition("=")
    if not named or os.path.exists(text) or host_name(node) is None:  # noqa: PTH110 - may be odd
        return open_log(text)
    log = open_log(path)
    for file in log.files:
        file.node = node
    return log


def node_names(nodes: Iterable[str]) -> list[str]:
    """The names in lists of nodes as Slurm writes them."""
    from schedmate.logparse.triage.targets import expand_hosts

    found = [name for text in nodes for name in expand_hosts(text)]
    if nodes and not found:
        raise UsageError("--nodes names no node; give names as the scheduler has, as gpu[01-04].")
    return found


def _consulted(
    found: Diagnosis, log: Log, settings: Settings, window: int, healthy: Sequence[Log]
) -> Diagnosis:
    """What a language model makes of a failure that the rules left open, if one is named."""
    from schedmate.llm import open_llm

    llm = None if settings.mode == "static" else open_llm(settings)
    if llm is None:
        return found
    from schedmate.logparse.failure.opinion import consult, is_open

    try:
        if is_open(found):
            announce(settings, "the log")
        return consult(found, log, llm, window=window, healthy=healthy)
    finally:
        llm.close()


def document(found: Diagnosis) -> dict[str, object]:
    """The JSON document `schedmate.diagnose/v1`."""
    return {"schema": SCHEMA, **found.model_dump(mode="json")}
