"""`schedmate init`: the user's settings file, from a few questions or flags, and a check of it."""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from schedmate.base.errors import InputError, SchedmateError, UsageError, did_you_mean
from schedmate.base.files import is_remote, write_output
from schedmate.base.reading import MOST_SETTINGS, read_text
from schedmate.base.terminal import clean, say
from schedmate.cluster import BUNDLED, cluster_kind, cluster_names, clusters, kind_here
from schedmate.commands.options import HistoryOption, LlmBaseUrl, LlmModel

NONE = "none"
NO_SCHEDULER_STEPS = ("schedmate history import FILE    # past jobs: CSV, JSON lines or sacct",)
"""Commands to try next if the machine has no scheduler."""


def _schedulers() -> list[str]:
    return [*cluster_names(), NONE]


def init(
    history: HistoryOption = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="The scheduler of this cluster.",
            show_default="the one found here",
            metavar=f"<{'|'.join([*BUNDLED, NONE])}>",
            autocompletion=_schedulers,
        ),
    ] = None,
    llm_base_url: LlmBaseUrl = None,
    llm_model: LlmModel = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Ask nothing; use defaults."),
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Replace an existing settings file; a copy of the old one is kept."
        ),
    ] = False,
) -> None:
    """Set up the history, the scheduler and the language model.

    Asks for values that are not given, writes the user's settings file (or the one that --config
    names), and runs `schedmate doctor`. Keys are never written: put a model's key into
    SCHEDMATE_LLM_API_KEY. Exits with 1 when a check failed.

    Example: schedmate init --yes --history /shared/schedmate/history --scheduler slurm
    """
    from schedmate.commands.doctor import SCHEMA, examine_installation, print_checks
    from schedmate.settings import config_dir, explain_settings, named_file

    path = named_file() or config_dir() / "config.toml"
    flags = {
        "history": history,
        "scheduler": None if scheduler is None else _scheduler(scheduler),
        "llm_base_url": llm_base_url,
        "llm_model": llm_model,
    }
    asks = not yes and not all(flags[name] for name in ("history", "scheduler", "llm_base_url"))
    if asks and not sys.stdin.isatty():
        raise UsageError(
            "standard input is not a terminal: give --yes for the defaults, with --history, "
            "--scheduler, --llm-base-url and --model for other values."
        )
    old = old_settings(path) if path.exists() else {}
    if path.exists() and not replace:
        if not asks:
            raise UsageError(f"{path} exists; give --replace to write a new one and keep a copy.")
        if not _agrees(f"{path} exists. Replace it, and keep a copy?"):
            say("nothing was changed.")
            return
    values = old | (_answers(flags, old) if asks else _checked(_defaults(flags, old)))
    old_copy = write_settings(
        path, {name: value for name, value in values.items() if value is not None}
    )
    typer.echo(f"{path} was written" + (f"; the old one is {old_copy}" if old_copy else ""))
    typer.echo(path.read_text(encoding="utf-8"))
    _settings, origins = explain_settings()
    for name, value in values.items():
        if value is not None and origins[name] not in (str(path), "default"):
            variable = f"SCHEDMATE_{name.upper()}"
            unset = f"; to end that: unset {variable}" if variable in origins[name] else "."
            say(f"note: {name} does not hold here: {origins[name]} comes before the file{unset}")
    try:
        print_checks(list(examine_installation()), SCHEMA, as_json=False)
    finally:
        typer.echo("\nNext:")
        scheduler = values.get("scheduler")
        for line in cluster_kind(scheduler).next_steps if scheduler else NO_SCHEDULER_STEPS:
            typer.echo(f"  {line}")
        typer.echo('  schedmate analyze REPO --command "LAUNCH COMMAND"    # a job of yours')
        typer.echo("  schedmate demo    # or try it on synthetic jobs first")


def old_settings(path: Path) -> dict[str, Any]:
    """The settings in an existing file: none, with a note, if it cannot be read."""
    from schedmate.settings import Settings

    try:
        values = tomllib.loads(read_text(path, most=MOST_SETTINGS))
    except (OSError, ValueError) as error:
        say(f"note: {path} cannot be read ({error}), so none of its settings are kept.")
        return {}
    return {
        name: value
        for name, value in values.items()
        if name in Settings.model_fields and isinstance(value, str | int | float)
    }


def _defaults(flags: dict[str, str | None], old: dict[str, Any]) -> dict[str, Any]:
    """The value of each setting: the flag, else the old file's, else the one found here."""
    from schedmate.settings import Settings

    usual = {"history": str(Settings().history), "scheduler": found_scheduler()}
    return {
        name: value if value is not None else old.get(name, usual.get(name))
        for name, value in flags.items()
    }


def found_scheduler() -> str:
    """The scheduler that answers, or whose address this machine has."""
    here = kind_here()
    return NONE if here is None else here.name


def _checked(values: dict[str, Any]) -> dict[str, Any]:
    """The answers as the file holds them; raises `SettingsError` for one that does not fit."""
    from schedmate.llm.endpoint import endpoint
    from schedmate.settings import settings_of_flags

    shown = {name: None if value in ("", NONE) else value for name, value in values.items()}
    settings = settings_of_flags(**shown)
    where = endpoint(shown.get("llm_base_url"), shown.get("llm_model"))
    if where is not None and urlsplit(where.base_url).password:
        raise UsageError(
            "a password does not belong in the address, which is written to a file: put a key into "
            "SCHEDMATE_LLM_API_KEY, or the whole address into SCHEDMATE_LLM_BASE_URL."
        )
    if shown.get("history") and not is_remote(settings.history):
        shown["history"] = str(_directory(Path(settings.history).absolute()))
    return shown


def _directory(path: Path) -> Path:
    """The same path, which is that of a history or of nothing yet.

    Raises `UsageError` for a file, and for a directory in which other things are kept: importing
    puts a database, an index and locks there.
    """
    from schedmate.retrieval.database import DATABASE
    from schedmate.settings import data_dir

    if path.exists() and not path.is_dir():
        raise UsageError(
            f"{path} is a file, and the history is a directory; to import a file, first name a "
            f"directory here, such as {data_dir() / 'history'}."
        )
    others = path.is_dir() and any(path.iterdir()) and not (path / DATABASE).exists()
    if others or path == Path.cwd():
        what = "holds other files" if others else "is the current directory"
        raise UsageError(f"{path} {what}; name a directory for the history alone: {path}/history.")
    return path


def _answers(flags: dict[str, str | None], old: dict[str, Any]) -> dict[str, Any]:
    """The user's answers to the questions whose flag is not given; Enter takes the default."""
    values = _defaults(flags, old)
    if flags["history"] is None:
        values["history"] = _asked(
            "Where is the history of jobs? A directory, or postgresql://USER@HOST/DATABASE",
            values["history"],
            lambda text: {"history": text},
        )
    if flags["scheduler"] is None:
        values["scheduler"] = _asked(
            f"Which scheduler does the cluster have? {', '.join(_schedulers())}",
            values["scheduler"] or NONE,
            lambda text: {"scheduler": _scheduler(text)},
        )
        values["scheduler"] = _scheduler(values["scheduler"])
    if flags["llm_base_url"] is None:
        values["llm_base_url"] = _asked(
            "Which language model server may be asked (OpenAI-compatible, for example "
            "http://127.0.0.1:8000/v1)? Nothing needs one",
            values["llm_base_url"] or NONE,
            lambda text: {"llm_base_url": text},
        )
    if values["llm_base_url"] in (None, NONE):
        values["llm_model"] = None
    elif flags["llm_model"] is None:
        values["llm_model"] = _asked(
            "Which model there? none: the first that it serves",
            values["llm_model"] or NONE,
            lambda text: {"llm_base_url": values["llm_base_url"], "llm_model": text},
        )
    return _checked(values)


def _asked(question: str, usual: str, setting: Callable[[str], dict[str, Any]]) -> str:
    """The answer to a question, asked again until it fits."""
    while True:
        answer = _read_line(f"{question} [{usual}]: ") or usual
        try:
            _checked(setting(answer))
        except SchedmateError as error:
            say(f"error: {error}")
        else:
            return answer


def _scheduler(text: str) -> str:
    """The scheduler that an answer names; raises `UsageError` when it names none of them."""
    name = text.lower()
    if name in _schedulers():
        return name
    for kind in clusters():
        if name in kind.aliases:
            return kind.name
    hint = did_you_mean(name, _schedulers()) or "."
    raise UsageError(f"{text!r} is not one of {', '.join(_schedulers())}{hint}")


def _agrees(question: str) -> bool:
    return _read_line(f"{question} [y/N]: ").lower() in ("y", "yes")


def _read_line(question: str) -> str:
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise UsageError("standard input ended before every question was answered; give --yes.")
    return clean(line)


def write_settings(path: Path, values: dict[str, Any]) -> Path | None:
    """Write the file; return the path of the copy of an older one, or None without one."""
    text = "# Settings of schedmate; `schedmate config show --origin` says what holds and why.\n"
    text += "".join(f"{name} = {_toml(value)}\n" for name, value in sorted(values.items()))
    old_copy = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            names = (path.with_name(f"{path.name}.old{number}") for number in count(1))
            old_copy = next(name for name in names if not name.exists())
            shutil.copy2(path, old_copy)
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}; name another file: "
            "schedmate --config FILE init."
        ) from None
    write_output(path, text)
    return old_copy


def _toml(value: str | float) -> str:
    """A value of a setting, which are all scalars, as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    plain = "".join(f"\\u{ord(one):04x}" if ord(one) < 32 or ord(one) == 127 else one for one in
                    value.replace("\\", "\\\\").replace('"', '\\"'))  # fmt: skip
    return f'"{plain}"'
