"""What the commands of `schedmate recover` share: options, who runs them, the two files."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from schedmate.plain import dumps

if TYPE_CHECKING:
    from schedmate.recovery.configuration import Configuration
    from schedmate.recovery.document import RecoverDocument
    from schedmate.recovery.service import Recovery
    from schedmate.schedulers.live.record import Record

VARIABLE = "SCHEDMATE_RECOVERY"
SITE_FILE = Path("/etc/schedmate/recovery.yaml")

RecoveryOption = Annotated[
    Path | None,
    typer.Option(
        "--recovery",
        metavar="FILE",
        help=f"The administrator's recovery.yaml. Default: ${VARIABLE}, else {SITE_FILE} if it is "
        "there. Without one, plans are made and nothing can be done.",
    ),
]
RecordOption = Annotated[
    Path | None,
    typer.Option("--record", metavar="FILE", help="Record file, instead of recovery.yaml's."),
]
NoteOption = Annotated[str, typer.Option(metavar="TEXT", help="Reason, kept in the record.")]
PlanId = Annotated[str, typer.Argument(metavar="ID", help="Id of a plan, as in `recover status`.")]


def answer(document: RecoverDocument, *, as_json: bool, what: str, kept: bool = True) -> None:
    """Print what `schedmate recover WHAT` has to say; `kept` is false for a plan that is not."""
    from schedmate.recovery.document import SCHEMA
    from schedmate.render.recovery import show
    from schedmate.terminal.screen import Screen

    if as_json:
        typer.echo(dumps({"schema": SCHEMA, **document.model_dump(mode="json")}, indent=2))
    else:
        show(document, Screen(sys.stdout), what=what, kept=kept)


def person() -> str:
    """The user who runs this; through sudo, who asked for it."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = str(os.geteuid())
    asked = os.environ.get("SUDO_USER", "") if os.geteuid() == 0 else ""
    return f"{asked} (as {name})" if asked and asked != name else name


def place_of(named: Path | None) -> Path | None:
    """The recovery.yaml that counts: the one that is named, else the site's, if there is one."""
    if named is not None:
        return named
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    return SITE_FILE if SITE_FILE.is_file() else None


def configured(named: Path | None, record: Path | None) -> Configuration:
    """The administrator's configuration, with another record where one is named."""
    from schedmate.recovery.configuration import load_configuration

    found = load_configuration(place_of(named))
    return found if record is None else found.model_copy(update={"record": record.absolute()})


@contextmanager
def to_read(configuration: Configuration, dry_run: bool) -> Iterator[Record]:
    """The record; for a dry run only to be read, or an empty one where there is none."""
    from schedmate.schedulers.live.record import Record

    with ExitStack() as stack:
        place = configuration.record
        if dry_run and not place.exists():
            place = Path(stack.enter_context(TemporaryDirectory())) / "record.db"
            Record(place).close()
        yield stack.enter_context(Record(place, read_only=dry_run))


def service_of(configuration: Configuration, record: Record) -> Recovery:
    """Recovery through the commands of recovery.yaml, if it names any."""
    from schedmate.recovery.local import LocalExecutor
    from schedmate.recovery.service import Recovery

    folder = record.path.with_name(record.path.name + ".claims")
    commands = configuration.commands
    executor = LocalExecutor(commands, folder) if commands is not None else None
    return Recovery(configuration, record, executor, by=person())
