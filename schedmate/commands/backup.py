"""`schedmate backup` and `schedmate restore`: all that schedmate keeps, copied while in use."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from hashlib import file_digest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from schedmate.base.data import dumps
from schedmate.base.errors import InputError, UsageError
from schedmate.base.files import is_remote, without_query
from schedmate.base.terminal import clean, counted, say
from schedmate.commands.options import HistoryOption, JsonOption

if TYPE_CHECKING:
    from schedmate.base.files import Place

SCHEMA = "schedmate.backup/v1"
MANIFEST = "backup.json"

BoundsOption = Annotated[
    Path | None,
    typer.Option(
        "--bounds", metavar="FILE", help="The agent's bounds.yaml, which names its files."
    ),
]
StateOption = Annotated[
    Path | None, typer.Option("--state", metavar="DIR", help="Directory of the agent's files.")
]
FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the backup.")]


class _Part(NamedTuple):
    """A database of schedmate's: its name in a backup, and its place."""

    name: str
    place: Place


def backup(
    folder: FolderArgument,
    bounds: BoundsOption = None,
    state: StateOption = None,
    history: HistoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy all that schedmate keeps, while it is in use.

    The history (a directory, or PostgreSQL as read now), the record of plans, the agent's memory
    and alarms, the ledger of model calls and the dashboard's data, each as it is at one moment. DIR
    must not exist; it appears when it is whole.

    Examples:

      schedmate backup /backup/$(date +%F) --bounds /etc/schedmate/bounds.yaml
    """
    from schedmate import __version__

    if folder.exists():
        raise UsageError(f"{folder} exists; name a directory that does not, such as one of today.")
    parts = []
    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.absolute().parent, prefix=".schedmate-backup-") as made:
        whole = Path(made) / "backup"
        whole.mkdir(mode=0o700)
        for part in _parts(bounds, state, history):
            target = whole / f"{part.name}.db"
            if _copied(part, target):
                parts.append({"name": part.name, "from": _shown(part.place), **_facts(target)})
        document = {"schema": SCHEMA, "made": time.time(), "version": __version__, "parts": parts}
        (whole / MANIFEST).write_text(dumps(document, indent=2) + "\n", encoding="utf-8")
        if not parts:
            raise InputError("there is nothing to back up yet; name the files with --bounds.")
        whole.rename(folder)
    if as_json:
        typer.echo(dumps(document, indent=2))
    names = ", ".join(str(part["name"]) for part in parts)
    say(f"{counted(len(parts), 'database')} ({names}) copied into {folder}.")


def restore(
    folder: FolderArgument,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Only this database, as history. Repeatable."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Also where there is one already.")
    ] = False,
    bounds: BoundsOption = None,
    state: StateOption = None,
    history: HistoryOption = None,
) -> None:
    """Put a backup back where schedmate keeps its data.

    Each database appears whole, in one transaction, also for processes that have it open; stop the
    agent before its record is replaced, which may list plans as open that were carried out since.
    A history goes into a directory or, with --history postgresql://..., into that database.

    Examples:

      schedmate restore /backup/2026-11-28 --only history --replace
    """
    stored = _manifest(folder)
    places = {part.name: part.place for part in _parts(bounds, state, history)}
    wanted = list(stored) if only is None else only
    for name in wanted:
        if name not in stored or name not in places:
            raise UsageError(f"the backup has no {clean(name, 50)!r}; it has {', '.join(stored)}.")
        if _facts(folder / f"{name}.db")["sha256"] != stored[name]:
            raise InputError(f"{folder / name}.db is not what was backed up; use another backup.")
        place = places[name]
        if not replace and isinstance(place, Path) and _file(name, place).exists():
            raise UsageError(f"{place} exists; --replace gives it the content of the backup.")
    for name in wanted:
        _put_back(name, folder / f"{name}.db", places[name])
        say(f"{name}: restored to {_shown(places[name])}.")


def _parts(bounds: Path | None, state: Path | None, history: str | None) -> Iterator[_Part]:
    """All databases that schedmate may have, of which not each is there."""
    from schedmate.cluster import ALARMS_FILE, MEMORY_FILE, RECORD_FILE
    from schedmate.cluster.bounds import load_bounds
    from schedmate.cluster.recovery.configuration import load_configuration
    from schedmate.commands.agents import state_dir
    from schedmate.llm.store import STORE_FILE
    from schedmate.serve.board import FILE
    from schedmate.settings import data_dir, load_settings

    allowed = load_bounds(bounds)
    agent = state_dir(state, allowed)
    yield _Part("history", load_settings(history=history or allowed.history).history)
    recovery = data_dir() / "recovery.db"
    if allowed.recovery is not None:
        recovery = load_configuration(allowed.recovery).record
    yield _Part("recovery", recovery)
    yield _Part("record", agent / RECORD_FILE)
    yield _Part("memory", agent / MEMORY_FILE)
    yield _Part("alarms", agent / ALARMS_FILE)
    yield _Part("ledger", data_dir() / STORE_FILE)
    yield _Part("dashboard", data_dir() / "serve" / FILE)


def _file(name: str, place: Path) -> Path:
    from schedmate.retrieval.database import DATABASE

    return place / DATABASE if name == "history" else place


def _copied(part: _Part, target: Path) -> bool:
    """Copy a database into a file; whether there was one."""
    from schedmate.base.journal import copy_database
    from schedmate.retrieval.database import DATABASE
    from schedmate.retrieval.shared import open_history

    if is_remote(part.place):
        with open_history(part.place, create=False, read_only=True) as store:
            if not getattr(store, "reached", False):
                raise InputError(f"{_shown(part.place)} does not answer; nothing was copied.")
            copy_database(store.path / DATABASE, target)
        return True
    source = _file(part.name, Path(part.place))
    if not source.is_file():
        return False
    copy_database(source, target)
    return True


def _put_back(name: str, copy: Path, place: Place) -> None:
    from schedmate.base.journal import copy_database
    from schedmate.mate import embedder_of
    from schedmate.retrieval.database import DATABASE
    from schedmate.retrieval.history import JobHistory, restore_history
    from schedmate.retrieval.shared import open_history
    from schedmate.settings import load_settings

    if name == "history" and is_remote(place):
        with TemporaryDirectory() as temporary:
            copy_database(copy, Path(temporary) / DATABASE)
            with (
                JobHistory.open(Path(temporary)) as source,
                open_history(place, embedder_of(load_settings())) as target,
            ):
                target.add_many(source.export())
    elif name == "history":
        restore_history(copy, Path(place))
    else:
        if name in ("record", "recovery"):
            _check_record(copy)
        copy_database(copy, Path(place))


def _check_record(copy: Path) -> None:
    from schedmate.cluster.record import Record

    with Record(copy, read_only=True) as record:
        broken = record.verify().broken
    if broken is not None:
        raise InputError(f"{copy}: {broken}; it is no record of this site's key.")


def _manifest(folder: Path) -> dict[str, str]:
    """The databases of a backup and the digests of their files."""
    from schedmate.base.reading import read_text

    try:
        document: Any = json.loads(read_text(folder / MANIFEST))
        if document["schema"] != SCHEMA:
            raise ValueError
        return {str(part["name"]): str(part["sha256"]) for part in document["parts"]}
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"{folder} is no backup of schedmate; name the directory that `schedmate backup` made."
        ) from None


def _facts(path: Path) -> dict[str, Any]:
    from schedmate.base.reading import open_descriptor

    try:
        with os.fdopen(open_descriptor(path), "rb") as stream:
            return {
                "bytes": os.fstat(stream.fileno()).st_size,
                "sha256": file_digest(stream, "sha256").hexdigest(),
            }
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None


def _shown(place: Place) -> str:
    return without_query(str(place)) if is_remote(place) else str(place)
