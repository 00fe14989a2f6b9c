"""The exceptions schedmate raises, and the exit code each one gives the command line.

SchedmateError            1  an internal error
├── UsageError            2  a wrong flag, setting or combination of them
│   └── SettingsError     2  a settings file or environment variable that does not parse
└── InputError            3  an input that is missing, unreadable or not what it should be

Every message is one sentence: what is wrong, where, and what to do next. `schedmate` prints it
after `error:` and exits with `exit_code`; the whole table is `EXIT_CODES`.
"""

from __future__ import annotations

from typing import ClassVar

OK = 0
INTERNAL = 1
USAGE = 2
INPUT = 3
ABSTAINED = 4
INTERRUPTED = 130

EXIT_CODES: dict[int, str] = {
    OK: "success",
    INTERNAL: "internal error, or a failed check of `schedmate doctor`",
    USAGE: "wrong flag, argument or setting",
    INPUT: "input not found, unreadable or not what it should be",
    ABSTAINED: "no similar job in the history (only with --fail-on-abstain)",
    INTERRUPTED: "interrupted (Ctrl-C)",
}
"""Exit codes of the `schedmate` command and what each means."""


class SchedmateError(Exception):
    """Base of everything schedmate raises on purpose; its message is fit for a user."""

    exit_code: ClassVar[int] = INTERNAL


class UsageError(SchedmateError):
    """A flag, argument or setting is wrong."""

    exit_code: ClassVar[int] = USAGE


class SettingsError(UsageError):
    """A settings source cannot be read or holds a value that does not fit."""


class InputError(SchedmateError):
    """An input is missing, unreadable or not what it should be."""

    exit_code: ClassVar[int] = INPUT
