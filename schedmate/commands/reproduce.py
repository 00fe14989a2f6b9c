"""`schedmate reproduce`: published results of schedulers, repeated on the published traces."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from hashlib import file_digest
from pathlib import Path
from shlex import join
from typing import Annotated, Any

import typer

from schedmate.base.data import dumps, load
from schedmate.base.errors import INPUT, InputError, UsageError, did_you_mean
from schedmate.base.files import open_output
from schedmate.base.reading import open_binary
from schedmate.base.terminal import Screen, Table, progress, say
from schedmate.commands.options import JsonOption, OutputOption

SCHEMA = "schedmate.reproduce/v1"
LONGEST_S = 3600.0
"""Time limit of one simulation [s]; the longest takes half a minute."""
_MOST = 64 << 20
_COLUMNS = {"avg_jct_h": "mean JCT h", "makespan_h": "makespan h"}


def reproduce(
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="STUDY", help="sia, philly or openb; without it, all are described."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder with the published trace. Without it, nothing is run."
        ),
    ] = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Repeat published results on the published traces.

    Says where to get the trace, checks its SHA-256, runs the simulation, and prints the result
    beside the published one and the one that schedmate recorded. Downloads nothing.

    Example: schedmate reproduce sia --data artifacts/sia-simulator
    """
    studies: dict[str, Any] = load("schedulers/sim/published.yaml")
    if study is not None and study not in studies:
        raise UsageError(
            f"there is no study {study!r}; there are {', '.join(studies)}"
            f"{did_you_mean(study, studies) or '.'}"
        )
    if study is None and data is not None:
        raise UsageError("name the study whose trace --data holds, as in `reproduce sia`.")
    wanted = {study: studies[study]} if study is not None else studies
    rows = [row for name, one in wanted.items() for row in _rows(name, one, data)]
    with open_output(output) as stream:
        if as_json:
            about = {name: _about(one) for name, one in wanted.items()}
            stream.write(dumps({"schema": SCHEMA, "studies": about, "rows": rows}, indent=2) + "\n")
            return
        screen = Screen(stream)
        for name, one in wanted.items():
            _describe(name, one, [row for row in rows if row["study"] == name], data, screen)


def _about(study: dict[str, Any]) -> dict[str, Any]:
    return {key: study[key] for key in ("what", "from", "recorded_in", "published_by")}


def _words(study: dict[str, Any], run: dict[str, Any], folder: str) -> list[str]:
    policies = ",".join(run["rows"])
    return ["simulate", f"{folder}/{run['file']}", "--policy", policies, *study["options"]]


def _columns(study: dict[str, Any]) -> dict[str, str]:
    columns: dict[str, str] = study.get("columns", _COLUMNS)
    return columns


def _here(study: dict[str, Any], run: dict[str, Any], data: Path) -> dict[str, dict[str, float]]:
    """What each policy, or rule of placement, gives on this machine."""
    if "seeds" not in study:
        return _simulate(_words(study, run, str(data)))
    from schedmate.schedulers.fleet.openb import unallocated

    return {rule: unallocated(data, rule, study["seeds"]) for rule in run["rows"]}


def _rows(name: str, study: dict[str, Any], data: Path | None) -> Iterator[dict[str, Any]]:
    """A row for each policy of each run: what was published, recorded, and found here."""
    if data is not None:
        _check(study, data)
    with progress(f"reproducing {name}", len(study["runs"])) as advance:
        for number, run in enumerate(study["runs"], start=1):
            here = _here(study, run, data) if data is not None else {}
            for policy, numbers in run["rows"].items():
                yield {
                    "study": name,
                    "trace": run["file"],
                    "policy": policy,
                    "published": numbers.get("published"),
                    "recorded": numbers["recorded"],
                    "here": here.get(policy),
                }
            advance(number, run["file"])


def _check(study: dict[str, Any], data: Path) -> None:
    where = study["from"]
    source = f"{where['folder']} of {where['repository']}"
    missing = [part for part in study["layout"] if not (data / part).exists()]
    if missing:
        raise InputError(f"{data} has no {', '.join(missing)}; name a copy of {source}.")
    for name, digest in _digests(study).items():
        with open_binary(data / name) as stream:
            found = file_digest(stream, "sha256").hexdigest()
        if found != digest:
            raise InputError(
                f"{data / name} is not the published file (SHA-256 {found[:12]}..., not "
                f"{digest[:12]}...); take it again from {source}."
            )


def _digests(study: dict[str, Any]) -> dict[str, str]:
    """The files that are read, with their SHA-256."""
    more: dict[str, str] = study.get("more", {})
    return {run["file"]: run["sha256"] for run in study["runs"]} | more


def _simulate(words: list[str]) -> dict[str, dict[str, float]]:
    from schedmate.base.running import run

    done = run(
        [sys.executable, "-m", "schedmate", *words, "--json"], timeout_s=LONGEST_S, most=_MOST
    )
    if done.code != 0 or done.cut_off:
        told = done.errors.decode(errors="replace").strip().splitlines()
        say(told[-1] if told else f"error: `schedmate {join(words)}` {done.cut_off or 'failed'}")
        raise typer.Exit(done.code or INPUT)
    return {
        one["policy"]: {name: one[name] for name in _COLUMNS}
        for one in json.loads(done.output)["runs"]
    }


def _describe(
    name: str, study: dict[str, Any], rows: list[dict[str, Any]], data: Path | None, screen: Screen
) -> None:
    where = study["from"]
    screen.line(f"{name}: {study['what']}", "good")
    screen.line(
        f"{where['repository']}, folder {where['folder']} (licence: {where['licence']})",
        label="trace: ",
    )
    folder = str(data) if data is not None else where["folder"]
    for file, digest in _digests(study).items():
        screen.line(f"{digest}  {file}", label="SHA-256: ")
    for run in study["runs"] if "options" in study else ():
        screen.line(join(["schedmate", *_words(study, run, folder)]), label="command: ")
    screen.line(study["published_by"], label="published by: ")
    recorded = study["recorded_in"]
    file = f"benchmarks/results/{recorded.partition('_')[0]}.json"
    screen.line(f"{recorded} in {file}", label="recorded in: ")
    if data is None:
        screen.line(f"schedmate reproduce {name} --data {folder}", label="to run it: ")
    screen.line()
    kinds = [kind for kind in ("published", "recorded", "here") if any(row[kind] for row in rows)]
    columns = _columns(study)
    numbers = [f"{label}, {kind}" for label in columns.values() for kind in kinds]
    table = Table("trace", "policy", *numbers, right=numbers)
    for row in rows:
        cells = (
            f"{row[kind][column]:.4g}" if row[kind] else "" for column in columns for kind in kinds
        )
        table.add(row["trace"], row["policy"], *cells)
    screen.table(table)
    screen.line()
