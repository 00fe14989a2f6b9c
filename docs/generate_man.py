"""Write the manual page schedmate(1) from the commands' own help.

To standard output, or to the file that is named:

    python docs/generate_man.py ~/.local/share/man/man1/schedmate.1
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer.main

from schedmate import __version__
from schedmate.base.errors import EXIT_CODES
from schedmate.cli import app


def released() -> str:
    """The date of this version in CHANGELOG.md, today where it has none yet."""
    changes = (Path(__file__).parent.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    dated = re.search(rf"(?m)^## \[?{re.escape(__version__)}\]?.*?(\d{{4}}-\d\d-\d\d)", changes)
    return dated[1] if dated else f"{datetime.now(UTC):%Y-%m-%d}"


def escaped(text: str) -> str:
    """A text in ASCII in which roff finds no request and no escape; hyphens stay hyphens."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    lines = re.sub(r"[^\x00-\x7f]", lambda one: f"\\[u{ord(one[0]):04X}]", text).splitlines()
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a help text, each as one line."""
    for part in text.replace("\b", "").split("\n\n"):
        if part.strip():
            yield escaped(" ".join(part.split()))


def section(command: Any, path: tuple[str, ...], parent: Any = None) -> Iterator[str]:
    """A command with its arguments and options, then those below it."""
    context = command.context_class(command, info_name=path[-1], parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f'.SS "{escaped(" ".join(path))}"'
    yield f".B {escaped(' '.join(path))}\n{escaped(usage)}"
    for paragraph in paragraphs(command.help or "" if parent else ""):  # the page begins with it
        yield f".PP\n{paragraph}"
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in parameter.opts:
            name, about = record
            yield f".TP\n.B {escaped(' '.join(name.split()))}\n{escaped(' '.join(about.split()))}"
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from section(child, (*path, name), context)


def page() -> str:
    """The page as roff, with the macros of man(7)."""
    os.environ.update(NO_COLOR="1", COLUMNS="80")
    command = typer.main.get_command(app)
    summary = "estimates, progress and failure diagnosis for GPU cluster schedulers"
    parts = [
        f'.TH SCHEDMATE 1 "{released()}" "schedmate {__version__}" "User Commands"',
        f".SH NAME\nschedmate \\- {summary}",
        ".SH SYNOPSIS\n.B schedmate\n[OPTIONS] COMMAND [ARGS]...",
        ".SH DESCRIPTION",
        "\n.PP\n".join(paragraphs(command.help or "")),
        ".SH COMMANDS",
        *section(command, ("schedmate",)),
        ".SH EXIT STATUS",
        *(f".TP\n.B {code}\n{escaped(meaning)}" for code, meaning in EXIT_CODES.items()),
        ".SH FILES\n.TP\n.I ~/.config/schedmate/config.toml",
        "The user's settings; see `schedmate config show \\-\\-origin`.",
    ]
    return "\n".join(parts) + "\n"


def main() -> None:
    """Write the page."""
    if len(sys.argv) > 1:
        path = Path(sys.argv[1])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())


if __name__ == "__main__":
    main()
