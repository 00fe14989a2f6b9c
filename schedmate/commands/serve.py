"""`schedmate serve`: the service and its dashboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from schedmate.base.errors import UsageError, require
from schedmate.base.inputs import parse_duration
from schedmate.base.logs import logged
from schedmate.commands.options import HistoryOption, LogFormatOption


def serve(
    socket: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Listen on a unix socket instead of --host and --port."),
    ] = None,
    socket_mode: Annotated[
        str, typer.Option(metavar="OCTAL", help="File mode of the socket.")
    ] = "660",
    host: Annotated[
        str,
        typer.Option(help="Address to listen on; any but 127.0.0.1 and ::1 needs --token-file."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535)] = 8765,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "File with the bearer token that requests must carry, readable by its owner "
                "only, or with a line NAME TOKEN for each person. Deciding on plans always "
                "needs a token."
            ),
        ),
    ] = None,
    root: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help=(
                "Directory below which repositories and logs may be read. Repeatable. Without "
                "it, the service reads none."
            ),
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST", help="Additional host name that browsers may use. Repeatable."
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Directory of the dashboard's data, which may be deleted."
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Record of plans, as for `schedmate recover`."),
    ] = None,
    agent: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Directory of an agent (--state) whose jobs to show, too."
        ),
    ] = None,
    in_flight: Annotated[
        int, typer.Option(min=1, help="Most requests at once; more are refused with 503.")
    ] = 64,
    reading: Annotated[
        int,
        typer.Option(
            min=1,
            max=256,
            help="Most repositories and logs read at once, each in its own process.",
        ),
    ] = 4,
    rate: Annotated[
        float, typer.Option(min=0, help="Most requests per second of one client; 0 is unlimited.")
    ] = 2_000,
    max_body: Annotated[int, typer.Option(min=1, help="Largest request [KiB].")] = 4_096,
    deadline: Annotated[
        str, typer.Option(metavar="TIME", help="Time limit of one request, such as 60s.")
    ] = "60s",
    log_requests: Annotated[bool, typer.Option("--log-requests", help="Log each request.")] = False,
    log_format: LogFormatOption = "json",
    history: HistoryOption = None,
) -> None:
    """Serve estimates and diagnoses over HTTP, with a dashboard.

    POST /v1/advise, /v1/track, /v1/diagnose and /v1/history; GET /v1/plans, /metrics, /healthz,
    /readyz (503 until requests are answered) and /openapi.json; the dashboard is at /. The log is
    on standard error. SIGTERM ends the service once accepted requests are answered.

    Examples:

      schedmate serve --root /home --root /scratch

      schedmate serve --socket /run/schedmate/serve.sock --root /home
    """
    require("schedmate serve", "serve", "fastapi", "uvicorn", "prometheus_client")
    from schedmate.serve.options import (
        Limits,
        ServeOptions,
        read_token,
    )
    from schedmate.serve.roots import checked_roots
    from schedmate.serve.run import serve as run
    from schedmate.settings import data_dir, load_settings

    settings = load_settings(history=history)
    options = ServeOptions(
        state=state or data_dir() / "serve",
        record=record or data_dir() / "recovery.db",
        agent=agent,
        socket=socket,
        socket_mode=_mode(socket_mode),
        host=host,
        port=port,
        token=None if token_file is None else read_token(token_file),
        roots=checked_roots(root or []),
        names=frozenset(name or []),
        limits=Limits(
            in_flight=in_flight,
            reading=reading,
            rate=rate,
            body=max_body << 10,
            deadline_s=_positive(deadline),
            advice_s=settings.deadline_s,
        ),
    )
    with logged(log_format, requests=log_requests):
        run(settings, options)


def _positive(text: str) -> float:
    seconds = parse_duration(text)
    if not 0 < seconds <= 3600:
        raise UsageError("--deadline must be above zero and at most an hour.")
    return seconds


def _mode(text: str) -> int:
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o777:
        raise UsageError(f"--socket-mode {text!r} is not a file mode; write it like 660.")
    return mode
