"""`schedmate ray logs`: what a job has printed, or prints now."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from schedmate.commands.log_text import LogText
from schedmate.commands.ray_client import DEFAULT, AddressOption, Client, NameOption
from schedmate.errors import InputError
from schedmate.terminal import counted, say

FOLLOW_S = 0.5


def logs(
    job: Annotated[int, typer.Argument(min=1, help="The job's number.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the log until the job ends.")
    ] = False,
    run: Annotated[
        int | None,
        typer.Option(min=0, help="Log of this run of the job, from 0. Default: the last."),
    ] = None,
    rank: Annotated[int, typer.Option(min=0, help="Log of this node, from 0.")] = 0,
    address: AddressOption = None,
    name: NameOption = DEFAULT,
) -> None:
    """Show the log of a job."""
    client = Client(address, name)
    if follow:
        follow_log(client, job, run, rank)
        return
    offset, shown = 0, LogText(sys.stdout)
    while True:
        part = _part(client, job, run, rank, offset)
        if part["run"] is None or (not offset and "error" in part):
            raise InputError(no_log(job, part, run))
        if not part["text"]:
            shown.end()
            return
        shown.write(part["text"])
        offset = part["next"]


def follow_log(client: Client, job: int, run: int | None, rank: int) -> None:
    """Print a log as it grows, continuing with the log of the job's next run."""
    shown, offset, text = run, 0, LogText(sys.stdout)
    while True:
        part = _part(client, job, shown, rank, offset)
        text.write(part["text"])
        offset = part["next"]
        if part["text"]:
            continue
        later = run is None and shown is not None and part["runs"] > shown + 1
        if part["run"] is not None and shown is None:
            shown = part["run"]
        elif later and part.get("ended"):
            text.end()
            shown, offset = (shown or 0) + 1, 0
            say(f"job {job} runs again")
        elif part["over"] or (run is not None and part.get("ended")):
            text.end()
            if part["run"] is None or (not offset and "error" in part):
                raise InputError(no_log(job, part, run))
            return
        else:
            time.sleep(FOLLOW_S)


def no_log(job: int, part: dict[str, Any], run: int | None) -> str:
    """Why there is nothing to show of a job (`Service.log`), in a sentence."""
    if part["run"] is not None:
        return f"the log {part['path']} cannot be read: {part['error']}."
    if run is not None and part["runs"]:
        return f"job {job} has run {counted(part['runs'], 'time')}; --run counts from 0."
    if part["over"]:
        why = f": {part['why']}" if part["why"] else ""
        return f"job {job} never ran; it is {part['state']}{why}."
    return f"job {job} has not run yet; `schedmate ray queue` says why, `logs -f` waits for it."


def _part(client: Client, job: int, run: int | None, rank: int, offset: int) -> dict[str, Any]:
    part: dict[str, Any] = client.ask("log", job, run, rank, offset)
    if not part["job"]:
        raise InputError(f"there is no job {job}; `schedmate ray queue --all` lists them.")
    return part
