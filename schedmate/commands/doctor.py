"""`schedmate doctor`: is everything in place, and if not, how to mend it."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict
from importlib import metadata
from typing import TYPE_CHECKING, TypeVar

import typer

from schedmate.commands.checks import Check
from schedmate.commands.options import JsonOption
from schedmate.errors import INTERNAL, SchedmateError, installing
from schedmate.plain import dumps

if TYPE_CHECKING:
    from schedmate.retrieval.embedders import Embedder
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
    from schedmate.settings import explain_settings

    try:
        settings, origins = explain_settings()
    except SchedmateError as error:
        yield Check("settings", "failed", str(error), "correct that, then run this again")
        return
    yield from _settings(settings, origins)
    yield from _extras(settings)
    from schedmate.commands.doctor_history import examine_history
    from schedmate.commands.doctor_model import examine_model
    from schedmate.commands.doctor_scheduler import REACH, examine_scheduler

    embedder = yield from _guarded(
        "embedder", "choose another with the setting `embedder`", _embedder(settings)
    )
    yield from _guarded(
        "history",
        "check its name, owner and rights; if it is damaged, restore a copy or import again",
        examine_history(settings.history, embedder),
    )
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
    absent = []
    for extra, names in _requirements().items():
        if extra is None or extra == "dev":
            continue
        missing = [name for name in names if _version(name) is None]
        if not missing:
            yield Check(f"extra {extra}", "ok", ", ".join(f"{n} {_version(n)}" for n in names))
            continue
        if settings.embedder != extra:
            absent.append(extra)
            continue
        yield Check(
            f"extra {extra}",
            "failed",
            f"not installed ({', '.join(missing)}), but the setting `embedder` asks for it",
            installing(extra),
        )
    if absent:
        one = installing("EXTRA")
        fact = f"{', '.join(absent)}; the settings need none of them (to add one: {one})"
        yield Check("extras not installed", "ok", fact)


def _settings(settings: Settings, origins: dict[str, str]) -> Iterator[Check]:
    from schedmate.places import without_password
    from schedmate.settings import (
        ADDRESSES,
        ENV_PREFIX,
        config_dir,
        data_dir,
        nearest_variable,
        unknown_variables,
    )

    for name in unknown_variables():
        near = nearest_variable(name)
        fix = f"unset it, or rename it to {near}" if near else "see `schedmate config show`"
        yield Check("settings", "warning", f"{name} names no setting", fix)
    for name in ADDRESSES:
        address = getattr(settings, name)
        variable = f"{ENV_PREFIX}{name.upper()}"
        if address and without_password(address) != address and variable not in origins[name]:
            fact = f"{name} in {origins[name]} holds a password: {without_password(address)}"
            key = f"{ENV_PREFIX}{name.partition('_')[0].upper()}_API_KEY"
            fix = f"move the address into the variable {variable}, or use a key in {key}"
            yield Check("settings", "warning", fact, fix)
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
            "run `schedmate history calibrate` and set `threshold` to its result",
        )
    return embedder
