"""`schedmate recover checkpoint` and `check`: where a job goes on, and the file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schedmate.commands.options import JsonOption
from schedmate.commands.recover_common import place_of
from schedmate.errors import ABSTAINED
from schedmate.plain import dumps
from schedmate.terminal import say

if TYPE_CHECKING:
    from schedmate.recovery.checkpoints import Saved

CHECKPOINT, FILE = "schedmate.checkpoint/v1", "schedmate.recovery-file/v1"


def checkpoint(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where a job saves checkpoints.")],
    command: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="The command that started the job.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find a job's newest complete checkpoint.

    With --command, print the command that resumes from it. Nothing is loaded. Layouts of torch,
    torch.distributed.checkpoint, DeepSpeed, Megatron, Lightning and Hugging Face are known. Exits
    with 4 when there is none.
    """
    from schedmate.recovery.checkpoints import newest, resumed
    from schedmate.terminal.screen import Screen

    found = newest(folder)
    again = resumed(command, found) if found is not None and command is not None else None
    if as_json:
        typer.echo(dumps(_document(found, again), indent=2))
    else:
        screen = Screen(sys.stdout)
        if found is None:
            screen.line(f"{folder} has no checkpoint of a layout that is known.", "doubtful")
        else:
            step = f"step {found.step}" if found.step is not None else "no step in its name"
            screen.line(f"{found.path} · {found.layout} · {step}", "good")
            for passed in found.passed_over:
                screen.line(passed, label="passed over: ")
        if again is not None:
            screen.line(again[0])
            say(f"note: {again[1]}.")
    if found is None:
        raise typer.Exit(ABSTAINED)


def check(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A recovery.yaml.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a recovery.yaml and print it with all defaults."""
    from schedmate.recovery.configuration import load_configuration

    place = place_of(file)
    configuration = load_configuration(place)
    document = configuration.model_dump(mode="json")
    if as_json:
        typer.echo(dumps({"schema": FILE, **document}, indent=2))
        return
    import yaml

    sys.stdout.write(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    say(f"{place} is in order." if place else "there is no recovery.yaml; these are the defaults.")


def _document(found: Saved | None, again: tuple[str, str] | None) -> dict[str, object]:
    document: dict[str, object] = {"schema": CHECKPOINT, "found": found is not None}
    if found is not None:
        document |= {
            "path": str(found.path),
            "layout": found.layout,
            "step": found.step,
            "time": found.time,
            "load": str(found.load),
            "passed_over": list(found.passed_over),
        }
    if again is not None:
        document |= {"command": again[0], "note": again[1]}
    return document
