"""What commands that may ask a language model share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from schedmate.settings import Settings

LlmBaseUrl = Annotated[
    str | None,
    typer.Option(
        "--llm-base-url",
        metavar="URL",
        help="OpenAI-compatible server, for example http://127.0.0.1:8000/v1.",
    ),
]
LlmModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="Model name at that server (default: the first it serves), or scripted:FILE.",
    ),
]
LlmTimeout = Annotated[
    float | None,
    typer.Option(
        "--llm-timeout", metavar="S", min=0.1, help="Time limit of one request, in total [s]."
    ),
]
LlmDeadline = Annotated[
    float | None,
    typer.Option(
        "--llm-deadline", metavar="S", min=0.1, help="Time limit of all requests for one job [s]."
    ),
]


def announce(settings: Settings, what: str) -> None:
    """Say so when `what` is about to leave this machine."""
    from schedmate.llm.endpoint import endpoint
    from schedmate.terminal import say

    where = endpoint(settings.llm_base_url, settings.llm_model)
    if where is not None and not where.local:
        say(f"note: parts of {what}, without secrets, go to {where.place}")
