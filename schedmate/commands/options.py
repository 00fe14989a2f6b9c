"""Options that commands of several groups have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

HistoryOption = Annotated[
    Path | None, typer.Option("--history", metavar="DIR", help="Directory of the job history.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PlainOption = Annotated[bool, typer.Option("--plain", help="No colour, like NO_COLOR=1.")]
FollowLinks = Annotated[
    bool,
    typer.Option(
        "--follow-links",
        help="Read what links in a directory lead to outside of it; else they are left out, and "
        "named.",
    ),
]
