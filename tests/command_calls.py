"""Calls of `schedmate` that a text names: whether each command and option is there."""

from __future__ import annotations

import re
import shlex
from functools import cache
from typing import Any

import typer.main
from typer.core import TyperGroup

from schedmate.cli import app


def calls(command: str) -> list[list[str]]:
    """The calls of schedmate in a shell command, each as its arguments."""
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found, words = [], list[str]()
    for word in [*lexer, ";"]:
        if set(word) <= set("|&;()<>"):
            called = re.sub(r"^(\w+=\S* |sudo (-n )?(-u \w+ )?)*", "", " ".join(words))
            if called.startswith("schedmate "):
                found.append(words[len(words) - called.count(" ") :] if words else [])
            words = []
        else:
            words.append(word.replace(" ", "_"))
    return found


@cache
def command_line() -> Any:
    return typer.main.get_command(app)


def parse(arguments: list[str]) -> None:
    """Raise an exception for a command or an option that does not exist; run and read nothing."""
    command, context = command_line(), None
    while arguments:
        context = command.context_class(command, info_name=command.name, parent=context)
        _, rest, _ = command.make_parser(context).parse_args(list(arguments))
        if not isinstance(command, TyperGroup) or not rest:
            return
        _, command, arguments = command.resolve_command(context, rest)
