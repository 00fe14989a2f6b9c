"""`schedmate mcp`: a server of the Model Context Protocol, so that assistants can use schedmate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from schedmate.base.errors import UsageError, require
from schedmate.base.inputs import parse_duration
from schedmate.commands.options import HistoryOption


def mcp(
    root: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="Directory below which code and logs may be read. Repeatable; at least one.",
        ),
    ] = None,
    deadline: Annotated[
        str, typer.Option(metavar="TIME", help="Time limit of one reading, such as 60s.")
    ] = "60s",
    history: HistoryOption = None,
) -> None:
    """Serve the commands as tools of an assistant (MCP).

    The client starts it and talks over standard input and output. Tools: analyze, track, diagnose,
    triage, site_report and search_history; all only read. Needs schedmate[mcp].

    Example: schedmate mcp --root /home/me/work --root /var/log/slurm
    """
    require("schedmate mcp", "mcp", "mcp")
    from schedmate.serve.mcp_server import Limits, serve
    from schedmate.serve.roots import checked_roots
    from schedmate.settings import load_settings

    if not root:
        raise UsageError("name at least one directory that may be read, as in --root .")
    seconds = parse_duration(deadline)
    if not seconds:
        raise UsageError("--deadline must be above zero, such as 60s.")
    serve(load_settings(history=history), checked_roots(root), Limits(seconds))
