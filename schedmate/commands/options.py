"""Options that commands of several groups have."""

from __future__ import annotations

from typing import Annotated

import typer

HistoryOption = Annotated[
    str | None,
    typer.Option(
        "--history",
        metavar="DIR|URL",
        help="Directory of the job history, or postgresql://USER@HOST/DATABASE.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PlainOption = Annotated[bool, typer.Option("--plain", help="No colour, like NO_COLOR=1.")]
FollowLinks = Annotated[
    bool,
    typer.Option(
        "--follow-links",
        help="Follow links that lead out of a directory. Default: skip and report them.",
    ),
]
