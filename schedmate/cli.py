"""The `schedmate` command: parse, call, render. Each command lives in `schedmate.commands`."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from schedmate import __version__
from schedmate.base import collect_seldom
from schedmate.base.errors import (
    EXIT_CODES,
    INPUT,
    INTERNAL,
    READER_LEFT,
    TERMINATED,
    SchedmateError,
    UsageError,
    did_you_mean,
)
from schedmate.base.plugins import CLUSTERS, load_plugin, plugins
from schedmate.base.plugins import COMMANDS as REGISTERED
from schedmate.base.terminal import clean, say
from schedmate.cluster import BUNDLED, cluster_kind

CLUSTER_GROUPS = {group: kind for kind, (group, _) in BUNDLED.items()}
"""The kind of cluster of each group of commands."""

PANELS: dict[str, tuple[str, ...]] = {
    "Jobs": ("analyze", "jobs", "track", "watch", "history"),
    "Failures": ("diagnose", "triage", "recover", "rules"),
    "Simulation": ("simulate", "tune", "explain", "policies", "traces", "reproduce"),
    "Clusters": (
        *(*CLUSTER_GROUPS, "site-report", "goodput", "fleet", "parallel", "serve", "mcp"),
    ),
    "Set-up": (
        *("init", "demo", "llm", "doctor", "config", "backup", "restore", "version", "help"),
    ),
}
"""The commands, in the groups in which `schedmate --help` lists them."""

COMMANDS = tuple(name for names in PANELS.values() for name in names)
"""Each is a module of `schedmate.commands` with a function of its name, or an `app`: a group.

A module's `CONTEXT` holds Click's settings of its command, `COMMAND` the command's class."""

_ELSEWHERE = {
    "rules": "diagnose",
    "site-report": "site",
    "tune": "policies",
    "explain": "policies",
    "restore": "backup",
}
"""Commands in a module of another name."""

_debug = False
_LONGEST = 1_000


class _Warnings(logging.Handler):
    """Prints the library's logged warnings to standard error, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"warning: {record.getMessage()}")


_WARNINGS = _Warnings(logging.WARNING)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"schedmate {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an internal error.")
    ] = False,
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Settings file to read before the user file ~/.config/schedmate/config.toml; or "
            "set SCHEDMATE_CONFIG. No file in the current directory is read unless named.",
        ),
    ] = None,
) -> None:
    global _debug  # noqa: PLW0603 - one process, one command line
    _debug = debug
    if config_file is not None:
        from schedmate.settings import FILE_VARIABLE

        # For this process and those that it starts.
        os.environ[FILE_VARIABLE] = str(config_file.absolute())


def _print_version() -> None:
    """Print the version."""
    typer.echo(f"schedmate {__version__}")


def _help(
    context: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="Such as `history import`.", show_default=False),
    ] = None,
) -> None:
    """Show the help of a command, as --help does."""
    words = command or []
    known = [*_requested_command(words)]
    if words and not known:
        names = (*COMMANDS, *_registered())
        raise UsageError(
            f"there is no command {clean(words[0], 100)!r}; `schedmate --help` lists them"
            f"{did_you_mean(words[0], names) or '.'}"
        )
    application(*known)([*words, "--help"], prog_name=context.find_root().info_name)


_OWN: dict[str, Callable[..., None]] = {"version": _print_version, "help": _help}
"""Commands about the command line itself."""


class _Panels(TyperGroup):
    """The commands in groups; those of other packages come last."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each panel."""
        longest = max(map(len, self.commands), default=0)
        further = tuple(name for name in self.commands if name not in COMMANDS)
        for title, names in {**PANELS, "Other packages": further}.items():
            shown = [(name, self.commands[name]) for name in names if name in self.commands]
            width = formatter.width - 6 - longest
            rows = [
                (name.ljust(longest), command.get_short_help_str(width))
                for name, command in shown
                if not command.hidden
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def application(*names: str) -> typer.Typer:
    """The command line with these commands, which alone are imported, or with all of them.

    All of them include those that other packages register; one that cannot be loaded says so in the
    list, and when it is asked for.
    """
    app = typer.Typer(
        name="schedmate",
        cls=_Panels,
        help="Estimates how long GPU jobs will run, tracks their progress and explains why they "
        "failed, from their source code, their logs and the history of past jobs.",
        epilog=f"Exit codes: {'; '.join(f'{code} {what}' for code, what in EXIT_CODES.items())}.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        # Plain help takes half the time, and is the text of docs/cli.md.
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in names or (*COMMANDS, *_registered()):
        if name not in COMMANDS:
            _add_registered(app, name)
            continue
        if name in _OWN:
            app.command(name)(_OWN[name])
            continue
        if name in CLUSTER_GROUPS:
            app.add_typer(_cluster_commands(CLUSTER_GROUPS[name]), name=name)
            continue
        module = import_module(f"schedmate.commands.{_ELSEWHERE.get(name, name)}")
        command = getattr(module, name.replace("-", "_"), None) or module.app
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            context = getattr(module, "CONTEXT", None)
            kind = getattr(module, "COMMAND", None)
            app.command(name, cls=kind, context_settings=context)(command)
    return app


def _registered() -> list[str]:
    """Commands of other packages, and of the kinds of clusters that they add."""
    return [*plugins(REGISTERED, COMMANDS), *plugins(CLUSTERS, (*COMMANDS, *plugins(REGISTERED)))]


def _cluster_commands(name: str) -> Any:
    """The commands of a kind of cluster: its own, or those that every kind has."""
    kind = cluster_kind(name)
    if kind.commands:
        return import_module(kind.commands).app
    from schedmate.commands.agents import cluster_app

    return cluster_app(kind)


def _registered_command(name: str) -> Any:
    if name not in plugins(REGISTERED):
        return _cluster_commands(name)
    target = plugins(REGISTERED)[name]
    what = f"the command {name!r}, registered as {target},"
    command = load_plugin(what, target)
    if not callable(command):
        raise UsageError(f"{what} is no function and no typer.Typer; register one of them.")
    return command


def _add_registered(app: typer.Typer, name: str) -> None:
    """Add a command of another package: a function, or a `typer.Typer` with commands."""
    try:
        command = _registered_command(name)
    except SchedmateError as error:
        failure = error

        def unusable() -> None:
            raise failure

        app.command(
            name,
            help=str(error),
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )(unusable)
        return
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(command)


def __getattr__(name: str) -> typer.Typer:
    if name == "app":  # all of it, for whoever documents or embeds it
        return application()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _requested_command(arguments: Sequence[str]) -> list[str]:
    """The command that is asked for, if nothing but options of `schedmate` itself is before it."""
    first = next((word for word in arguments if word != "--debug"), "")
    is_command = first in COMMANDS or (not first.startswith("-") and first in _registered())
    return [first] if is_command else []


def _terminated(_signal: int, _frame: object) -> None:
    # An exception, so that what was begun is tidied up as after Ctrl-C.
    sys.exit(TERMINATED)


def _run() -> None:
    try:
        try:
            application(*_requested_command(sys.argv[1:]))()
        finally:
            sys.stdout.flush()  # what Python finds when it ends, it can only complain of
    except (SystemExit, BrokenPipeError) as end:
        # Typer and Rich make it an exit of their own
        if not isinstance(end if isinstance(end, OSError) else end.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(READER_LEFT)


def _refused(error: OSError) -> str:
    """What the operating system refused, where nobody knew better what to say."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        place = error.filename or "the output"
        return f"cannot write {place}: {error.strerror}; make room and try again."
    place = "a file" if error.filename is None else f"{error.filename!r}"
    return f"cannot use {clean(place, 200)}: {error.strerror or error}; check its name and rights."


def main() -> None:
    """Run the command line and exit with a documented code; never shows a traceback unasked."""
    collect_seldom()
    # What was closed by whoever started this goes nowhere.
    sys.stdout = sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    signal.signal(signal.SIGTERM, _terminated)
    # What the terminal's encoding lacks is printed as a question mark, not as a failure.
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    logging.getLogger("schedmate").addHandler(_WARNINGS)  # once, however often it is called
    failure: Exception
    try:
        _run()
        return
    except SchedmateError as error:
        failure, code, message = error, error.exit_code, str(error)
    except Exception as error:  # noqa: BLE001 - the last resort between a bug and the user
        failure, code = error, INTERNAL
        message = (
            f"internal error, {type(error).__name__}: {error}; "
            "run again with `schedmate --debug ...` for the details."
        )
        if isinstance(error, OSError):
            code, message = INPUT, _refused(error)
    if len(message) > _LONGEST:  # what to do next stands at the end
        message = f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 2 :]}"
    if _debug:
        traceback.print_exception(failure)
    say(f"error: {message}")
    sys.exit(code)
