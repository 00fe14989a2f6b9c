"""`schedmate init`: the user's settings file, from a few questions or flags, and a check of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import typer

from schedmate.commands.model_options import LlmBaseUrl, LlmModel
from schedmate.commands.options import HistoryOption
from schedmate.errors import InputError, SchedmateError, UsageError, did_you_mean
from schedmate.terminal import clean, say

Scheduler = Literal["slurm", "kubernetes", "ray", "none"]
SCHEDULERS: tuple[Scheduler, ...] = ("slurm", "kubernetes", "ray", "none")
NONE = "none"
STEPS: dict[str, list[str]] = {
    "slurm": [
        "schedmate slurm import --since 90d    # past jobs, with the code of those that have it",
        "schedmate slurm doctor    # each right that the agent needs",
    ],
    "kubernetes": ["schedmate k8s doctor    # each right that the agent needs"],
    "ray": ["schedmate ray up    # a queue of jobs on the cluster"],
    NONE: ["schedmate history import FILE    # past jobs: CSV, JSON lines or sacct"],
}
"""What comes next, by scheduler."""


def init(
    history: HistoryOption = None,
    scheduler: Annotated[
        Scheduler | None,
        typer.Option(
            help="The scheduler of this cluster.",
            show_default="the one found here",
            case_sensitive=False,
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
    from schedmate.commands.doctor import SCHEMA, examine, report
    from schedmate.settings import config_dir, explain_settings, named_file

    path = named_file() or config_dir() / "config.toml"
    given = {
        "history": history,
        "scheduler": scheduler,
        "llm_base_url": llm_base_url,
        "llm_model": llm_model,
    }
    asks = not yes and not all(given[name] for name in ("history", "scheduler", "llm_base_url"))
    if asks and not sys.stdin.isatty():
        raise UsageError(
            "standard input is not a terminal: give --yes for the defaults, with --history, "
            "--scheduler, --llm-base-url and --model for other values."
        )
    old = _old(path) if path.exists() else {}
    if path.exists() and not replace:
        if not asks:
            raise UsageError(f"{path} exists; give --replace to write a new one and keep a copy.")
        if not _agrees(f"{path} exists. Replace it, and keep a copy?"):
            say("nothing was changed.")
            return
    values = old | (_answers(given, old) if asks else _checked(_defaults(given, old)))
    kept = _write(path, {name: value for name, value in values.items() if value is not None})
    typer.echo(f"{path} was written" + (f"; the old one is {kept}" if kept else ""))
    typer.echo(path.read_text(encoding="utf-8"))
    _settings, origins = explain_settings()
    for name, value in values.items():
        if value is not None and origins[name] not in (str(path), "default"):
            variable = f"SCHEDMATE_{name.upper()}"
            unset = f"; to end that: unset {variable}" if variable in origins[name] else "."
            say(f"note: {name} does not hold here: {origins[name]} comes before the file{unset}")
    try:
        report(list(examine()), SCHEMA, as_json=False)
    finally:
        typer.echo("\nNext:")
        for line in STEPS[values.get("scheduler") or NONE]:
            typer.echo(f"  {line}")
        typer.echo('  schedmate analyze REPO --command "LAUNCH COMMAND"    # a job of yours')
        typer.echo("  schedmate demo    # or try it on synthetic jobs first")


def _old(path: Path) -> dict[str, Any]:
    """The settings of a file that is there; what cannot be read, or is none, is not kept."""
    from schedmate.settings import Settings

    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        say(f"note: {path} cannot be read ({error}), so none of its settings are kept.")
        return {}
    return {
        name: value
        for name, value in values.items()
        if name in Settings.model_fields and isinstance(value, str | int | float)
    }


def _defaults(given: dict[str, str | None], old: dict[str, Any]) -> dict[str, Any]:
    """What is given, else what the old file says, else what was found on this machine."""
    from schedmate.settings import Settings

    usual = {"history": str(Settings().history), "scheduler": found_scheduler()}
    return {
        name: value if value is not None else old.get(name, usual.get(name))
        for name, value in given.items()
    }


def found_scheduler() -> Scheduler:
    """The scheduler that answers, or whose address this machine has."""
    if _slurm_answers():
        return "slurm"
    kubeconfig = os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config"
    if os.environ.get("KUBERNETES_SERVICE_HOST") or Path(kubeconfig).is_file():
        return "kubernetes"
    return "ray" if os.environ.get("RAY_ADDRESS") else "none"


def _slurm_answers() -> bool:
    if shutil.which("scontrol") is None:
        return False
    try:
        ping = subprocess.run(["scontrol", "ping"], capture_output=True, timeout=10, check=False)
    except subprocess.TimeoutExpired:
        return False
    return ping.returncode == 0


def _checked(values: dict[str, Any]) -> dict[str, Any]:
    """The answers as the file holds them; raises `SettingsError` for one that does not fit."""
    from schedmate.llm.endpoint import endpoint
    from schedmate.places import is_remote
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
    from schedmate.retrieval.history import DATABASE
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


def _answers(given: dict[str, str | None], old: dict[str, Any]) -> dict[str, Any]:
    """What the user says to each question; Enter takes the default."""
    values = _defaults(given, old)
    if given["history"] is None:
        values["history"] = _asked(
            "Where is the history of jobs? A directory, or postgresql://USER@HOST/DATABASE",
            values["history"],
            lambda text: {"history": text},
        )
    if given["scheduler"] is None:
        values["scheduler"] = _asked(
            f"Which scheduler does the cluster have? {', '.join(SCHEDULERS)}",
            values["scheduler"] or NONE,
            lambda text: {"scheduler": _scheduler(text)},
        )
        values["scheduler"] = _scheduler(values["scheduler"])
    if given["llm_base_url"] is None:
        values["llm_base_url"] = _asked(
            "Which language model server may be asked (OpenAI-compatible, for example "
            "http://127.0.0.1:8000/v1)? Nothing needs one",
            values["llm_base_url"] or NONE,
            lambda text: {"llm_base_url": text},
        )
    if values["llm_base_url"] in (None, NONE):
        values["llm_model"] = None
    elif given["llm_model"] is None:
        values["llm_model"] = _asked(
            "Which model there? none: the first that it serves",
            values["llm_model"] or NONE,
            lambda text: {"llm_base_url": values["llm_base_url"], "llm_model": text},
        )
    return _checked(values)


def _asked(question: str, usual: str, setting: Callable[[str], dict[str, Any]]) -> str:
    """The answer to a question, asked again until it fits."""
    while True:
        answer = _line(f"{question} [{usual}]: ") or usual
        try:
            _checked(setting(answer))
        except SchedmateError as error:
            say(f"error: {error}")
        else:
            return answer


def _scheduler(text: str) -> str:
    """The scheduler that an answer names; raises `UsageError` when it names none of them."""
    name = {"k8s": "kubernetes", "kueue": "kubernetes"}.get(text.lower(), text.lower())
    if name not in SCHEDULERS:
        hint = did_you_mean(name, SCHEDULERS) or "."
        raise UsageError(f"{text!r} is not one of {', '.join(SCHEDULERS)}{hint}")
    return name


def _agrees(question: str) -> bool:
    return _line(f"{question} [y/N]: ").lower() in ("y", "yes")


def _line(question: str) -> str:
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise UsageError("standard input ended before every question was answered; give --yes.")
    return clean(line)


def _write(path: Path, values: dict[str, Any]) -> Path | None:
    """Write the file, and keep the old one, whose new name is given."""
    from schedmate.files import open_output

    text = "# Settings of schedmate; `schedmate config show --origin` says what holds and why.\n"
    text += "".join(f"{name} = {_toml(value)}\n" for name, value in sorted(values.items()))
    kept = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            names = (path.with_name(f"{path.name}.old{number}") for number in count(1))
            kept = next(name for name in names if not name.exists())
            shutil.copy2(path, kept)
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}; name another file: "
            "schedmate --config FILE init."
        ) from None
    with open_output(path) as stream:
        stream.write(text)
    return kept


def _toml(value: str | float) -> str:
    """A value of a setting, which are all scalars, as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    plain = "".join(f"\\u{ord(one):04x}" if ord(one) < 32 or ord(one) == 127 else one for one in
                    value.replace("\\", "\\\\").replace('"', '\\"'))  # fmt: skip
    return f'"{plain}"'
