"""`schedmate doctor`: is everything in place, and if not, how to mend it."""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict
from importlib import metadata
from typing import TYPE_CHECKING, TypeVar

import typer

from schedmate.commands.checks import Check
from schedmate.commands.options import JsonOption
from schedmate.durations import format_duration
from schedmate.errors import INTERNAL, SchedmateError, installing
from schedmate.plain import dumps
from schedmate.terminal import counted

if TYPE_CHECKING:
    from schedmate.places import Place
    from schedmate.retrieval.embedders import Embedder
    from schedmate.retrieval.history import JobHistory
    from schedmate.settings import Settings
    from schedmate.terminal.layout import Tone

SCHEMA = "schedmate.doctor/v1"
MINIMUM_PYTHON = (3, 11)
T = TypeVar("T")
MARKS = {"ok": "✓", "warning": "!", "failed": "✗"}
TONES: dict[str, Tone] = {"warning": "doubtful", "failed": "bad"}


def doctor(
    as_json: JsonOption = False,
) -> None:
    """Check the installation and what the settings name.

    Each finding says what to do. Exits with 1 when a check failed (✗); a warning (!) leaves the
    exit code at 0.
    """
    report(list(examine()), SCHEMA, as_json=as_json)


def report(checks: Sequence[Check], schema: str, *, as_json: bool) -> None:
    """Print what was found; ends the command with 1 when a check failed."""
    from schedmate.terminal.screen import Screen

    failed = any(check.status == "failed" for check in checks)
    if as_json:
        document = {"schema": schema, "ok": not failed, "checks": [asdict(one) for one in checks]}
        typer.echo(dumps(document, indent=2))
    else:
        screen = Screen(sys.stdout)
        for check in checks:
            mark, tone = MARKS[check.status], TONES.get(check.status)
            screen.line(f"{mark} {check.name}: {check.fact}", tone)
            if check.fix:
                screen.line(check.fix, label="    to mend: ")
    if failed:
        raise typer.Exit(INTERNAL)


SET_MODEL = (
    "set llm_base_url to the server's address and llm_model to a model it serves, for example: "
    "export SCHEDMATE_LLM_BASE_URL=http://127.0.0.1:8000/v1"
)


def examine() -> Iterator[Check]:
    """Every check, in the order in which a fault would be looked for."""
    yield _python()
    yield from _packages()
    from schedmate.settings import load_settings

    try:
        settings = load_settings()
    except SchedmateError as error:
        yield Check("settings", "failed", str(error), "correct or remove that setting")
        return
    yield from _settings()
    yield from _extras(settings)
    embedder = yield from _guarded(
        "embedder", "choose another with the setting `embedder`", _embedder(settings)
    )
    yield from _guarded(
        "history",
        "check its name, owner and rights; if it is damaged, restore a copy or import again",
        _history(settings.history, embedder),
    )
    from schedmate.commands.doctor_model import examine_model
    from schedmate.commands.doctor_scheduler import REACH, examine_scheduler

    yield from _guarded("scheduler", REACH, examine_scheduler(settings))

    yield from _guarded("model", SET_MODEL, examine_model(settings))


def _guarded(
    name: str, fix: str, checks: Generator[Check, None, T]
) -> Generator[Check, None, T | None]:
    """The findings of `checks` and what they return; an exception is a finding too."""
    try:
        return (yield from checks)
    except SchedmateError as error:
        yield Check(name, "failed", str(error), fix)
    except Exception as error:  # noqa: BLE001 - a doctor reports whatever is broken
        yield Check(name, "failed", f"{type(error).__name__}: {error}", fix)
    return None


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if tuple(sys.version_info[:2]) < MINIMUM_PYTHON:
        return Check("python", "failed", version, "install Python 3.11 or newer")
    return Check("python", "ok", version)


def _requirements() -> dict[str | None, list[str]]:
    """Distribution names by extra; None is the base."""
    found: dict[str | None, list[str]] = {None: []}
    for requirement in metadata.requires("schedmate") or []:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", requirement)
        if name:
            found.setdefault(extra[1] if extra else None, []).append(name[0])
    return found


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _packages() -> Iterator[Check]:
    versions = {name: _version(name) for name in _requirements()[None]}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        yield Check("packages", "failed", f"missing: {', '.join(missing)}", "pip install schedmate")
    else:
        yield Check("packages", "ok", ", ".join(f"{n} {v}" for n, v in versions.items()))


def _extras(settings: Settings) -> Iterator[Check]:
    for extra, names in _requirements().items():
        if extra in (None, "dev"):
            continue
        missing = [name for name in names if _version(name) is None]
        if not missing:
            yield Check(f"extra {extra}", "ok", ", ".join(f"{n} {_version(n)}" for n in names))
            continue
        needed = settings.embedder == extra
        yield Check(
            f"extra {extra}",
            "failed" if needed else "ok",
            f"not installed ({', '.join(missing)}), "
            + ("but the setting `embedder` asks for it" if needed else "and not needed"),
            installing(extra) if needed and extra else None,
        )


def _settings() -> Iterator[Check]:
    from schedmate.settings import config_dir, data_dir, nearest_variable, unknown_variables

    for name in unknown_variables():
        near = nearest_variable(name)
        fix = f"unset it, or rename it to {near}" if near else "see `schedmate config show`"
        yield Check("settings", "warning", f"{name} names no setting", fix)
    for what, directory in (("configuration", config_dir()), ("data", data_dir())):
        place = directory
        while not place.exists() and place != place.parent:
            place = place.parent
        if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
            yield Check(f"{what} directory", "ok", f"{directory} can be written")
        else:
            variable = "XDG_CONFIG_HOME" if what == "configuration" else "XDG_DATA_HOME"
            yield Check(
                f"{what} directory",
                "warning",
                f"{directory} cannot be written",
                f"set {variable} to a directory that can",
            )


def _embedder(settings: Settings) -> Generator[Check, None, Embedder | None]:
    from schedmate.advice import embedder_of
    from schedmate.retrieval.embedders import UNMEASURED

    began = time.perf_counter()
    embedder = embedder_of(settings)
    width = embedder.embed(["model resnet50; dataset imagenet"]).shape[1]
    took = time.perf_counter() - began
    if width != embedder.dim:
        yield Check(
            "embedder",
            "failed",
            f"{embedder.id} returns {width} numbers, not {embedder.dim}",
            "give its right dimension, or choose another embedder",
        )
        return None
    yield Check(
        "embedder", "ok", f"{embedder.id}, {embedder.dim} dimensions, ready in {took:.1f} s"
    )
    if settings.threshold is None and embedder.threshold == UNMEASURED:
        yield Check(
            "threshold",
            "warning",
            f"which similarity means alike was not measured for {embedder.id}; {UNMEASURED} is "
            "used, which finds hardly more than equal names",
            "run `schedmate history calibrate` and set `threshold` to what it says",
        )
    return embedder


def _history(place: Place, embedder: Embedder | None) -> Generator[Check, None, None]:
    from schedmate.retrieval.history import DATABASE, JobHistory

    if isinstance(place, str):
        yield from _shared(place, embedder)
        return
    if not (place / DATABASE).exists():
        fix = "schedmate history import FILE, or schedmate analyze --record"
        yield Check("history", "warning", f"there is none at {place} yet", fix)
        return
    with JobHistory.open(place, embedder, create=False, read_only=True) as history:
        mismatch = history.mismatch() if embedder else None
        stats = history.stats()
        if mismatch is not None:
            yield Check("history", "failed", mismatch, "schedmate history rebuild")
        else:
            different = counted(stats["workloads"], "different workload")
            fact = f"{place}: {counted(stats['jobs'], 'record')}, {different}"
            yield Check("history", "ok", fact)
        yield _index(history, stats["workloads"])
        yield _disk(history)
    if not os.access(place, os.W_OK):
        yield Check(
            "history rights",
            "warning",
            f"{place} can be read but not written",
            "ask its owner for write access, if you want to use --record",
        )
    elif place.stat().st_mode & stat.S_IWOTH:
        yield Check(
            "history rights",
            "warning",
            f"anybody can write to {place}, and so change estimates",
            f"chmod o-w {place}",
        )
    else:
        yield Check("history rights", "ok", f"{place} can be read and written")


def _shared(url: str, embedder: Embedder | None) -> Iterator[Check]:
    """A history in PostgreSQL: whether it answers, and how old the copy of it is."""
    from schedmate.places import shown
    from schedmate.retrieval.shared import SharedHistory

    with SharedHistory.connect(url, embedder, create=False, poll=False) as history:
        stats = history.stats()
        fact = (
            f"{shown(url)}: {counted(stats['jobs'], 'record')}, read from a copy at {history.path}"
        )
        mismatch = history.mismatch() if embedder else None
        if history.reached:
            yield Check("history", "ok", fact)
        else:
            fix = "see that the database runs and can be reached; advice goes on meanwhile"
            yield Check("history", "warning", f"{fact}; the database does not answer", fix)
        if mismatch is not None:
            yield Check("vectors", "failed", mismatch, "schedmate history rebuild")
        yield _index(history, stats["workloads"])


def _index(history: JobHistory, workloads: int) -> Check:
    """How old the saved index is; it is derived data that every search completes."""
    from schedmate.retrieval.index import EXACT_UP_TO

    saved = history.snapshot()
    if saved is not None:
        age = format_duration(max(0.0, time.time() - saved.stat().st_mtime))
        return Check("index", "ok", f"saved {age} ago; searches add what is newer")
    fact = f"not saved; a search builds it from {workloads:,} vectors"
    if workloads > EXACT_UP_TO:
        return Check("index", "warning", fact, "schedmate history rebuild --index")
    return Check("index", "ok", fact)


def _disk(history: JobHistory) -> Check:
    """Whether SQLite can work there as it does best."""
    if history.network is None:
        return Check("history disk", "ok", "local; one may write while others read")
    return Check(
        "history disk",
        "warning",
        f"{history.path} is on a network file system ({history.network}): SQLite keeps a rollback "
        "journal there, so readers and a writer wait for each other, and it relies on that file "
        "system's locks",
        "if one machine alone uses the history, move it to a local disk",
    )
