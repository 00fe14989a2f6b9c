"""The exceptions schedmate raises, and the exit code each one gives the command line.

SchedmateError            1  an internal error, or a policy that fails
├── UsageError            2  a wrong flag, setting or combination of them
│   ├── MissingExtraError 2  packages of an extra that is not installed
│   └── SettingsError     2  a settings file or environment variable that does not parse
├── InputError            3  an input that is missing, unreadable or not what it should be
│   └── LimitError        3  an input that takes more time or memory than reading it may take
├── ModelError            5  a language model that gave no usable answer, where one was insisted on
└── ActionError           7  an action on a cluster that was not taken, or no answer of it

Every message is one sentence: what is wrong, where, and what to do next. `schedmate` prints it
after `error:` and exits with `exit_code`; the whole table is `EXIT_CODES`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import ClassVar, Literal

OK = 0
INTERNAL = 1
USAGE = 2
INPUT = 3
ABSTAINED = 4
MODEL = 5
FAILED_JOB = 6
NOT_TAKEN = 7
ALARM = 8
INTERRUPTED = 130
READER_LEFT = 141
TERMINATED = 143

EXIT_CODES: dict[int, str] = {
    OK: "success",
    INTERNAL: "internal error, a custom policy that fails or makes an impossible decision, or a "
    "failed check of `schedmate doctor` or `rules test`",
    USAGE: "wrong flag, argument or setting",
    INPUT: "input not found, unreadable or invalid",
    ABSTAINED: "no confident answer: no similar job, no step time (only with --fail-on-abstain)",
    MODEL: "the language model gave no usable answer (only if static analysis has no answer)",
    FAILED_JOB: "the job of the log failed (only with --exit-code)",
    NOT_TAKEN: "a cluster did not answer, or a plan was not carried out: not approved, forbidden "
    "by a guard, failed, or with unknown outcome",
    ALARM: "a running job needs attention (only with --exit-code)",
    INTERRUPTED: "interrupted (Ctrl-C)",
    READER_LEFT: "the reader of the output closed it, as `head` does",
    TERMINATED: "ended by SIGTERM, as sent by `scancel` and `timeout`",
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


class MissingExtraError(UsageError):
    """Packages that come with one of schedmate's extras are not installed."""

    def __init__(self, what: str, packages: Iterable[str], extra: str) -> None:
        self.packages, self.extra = tuple(packages), extra
        super().__init__(f"{what} needs {', '.join(self.packages)}: {installing(extra)}.")


class InputError(SchedmateError):
    """An input is missing, unreadable or invalid."""

    exit_code: ClassVar[int] = INPUT


class LimitError(InputError):
    """Reading an input took more time or memory than allowed, and was ended."""


class ActionError(SchedmateError):
    """An action on a cluster was not taken, or nobody can tell whether it was."""

    exit_code: ClassVar[int] = NOT_TAKEN


def require(what: str, extra: str, *packages: str) -> None:
    """Raise `MissingExtraError` when one of these cannot be imported; `what` needs them."""
    missing = [package for package in packages if not _is_there(package)]
    if missing:
        raise MissingExtraError(what, missing, extra)


def _is_there(package: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`; did you mean X?` with the names that `name` may be a slip for, or nothing."""
    from difflib import get_close_matches

    lowered = {spelling.lower(): spelling for spelling in names}
    close = get_close_matches(name.lower(), lowered, 3, 0.7)
    swapped = [one for one in lowered if sorted(one) == sorted(name.lower())]  # `sfj`
    near = [lowered[spelling] for spelling in close or swapped]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def similar_file(path: str | os.PathLike[str]) -> str:
    """`; did you mean X?` with names beside a path at which nothing is, or nothing."""
    folder, name = os.path.split(os.fspath(path))
    try:
        beside = os.listdir(folder or ".")  # noqa: PTH208 - keeps the path as it was given
    except OSError:
        return ""
    if name in beside:  # it is there, but cannot be read
        return ""
    return did_you_mean(name, beside).replace("mean ", f"mean {folder}/" if folder else "mean ")


def unreadable(path: str | os.PathLike[str], error: OSError) -> InputError:
    """What to say of an input file that the system refuses: why, and what else may be meant."""
    hints = {FileNotFoundError: "correct the path", PermissionError: "ask for the right to read it"}
    hint = similar_file(path) or f"; {hints.get(type(error), 'give a file that can be read')}."
    return InputError(f"cannot read {os.fspath(path)}: {error.strerror or error}{hint}")


def reason_of(error: BaseException) -> str:
    """An exception that others raised as one line within a sentence, without a full stop."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, KeyError):
        return f"there is no {error.args[0]!r}"
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def installing(extra: str) -> str:
    """The command that adds an extra to this installation: from the index, or from a clone."""
    import shutil
    import sys
    from pathlib import Path

    place, built = _clone(), _built_from()
    what = f"-e '{place}[{extra}]'" if place else f"'{built or 'schedmate'}[{extra}]'"
    pip = shutil.which("pip")
    own = pip is not None and Path(pip).parent == Path(sys.executable).parent
    return f"{'pip' if own else f'{sys.executable} -m pip'} install {what}"


def _clone() -> str | None:
    """The folder of the source code that this runs from, `.` where that is the current one."""
    from pathlib import Path

    root = Path(__file__).resolve().parents[2]
    if not (root / "pyproject.toml").is_file():
        return None
    return "." if root == Path.cwd() else str(root)


def _built_from() -> str | None:
    """The folder that `pip install .` was given, if it is still there (PEP 610)."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path
    from urllib.parse import unquote, urlsplit

    try:
        found = distribution("schedmate")
        address = urlsplit(json.loads(found.read_text("direct_url.json") or "{}").get("url", ""))
        installed = Path(str(found.locate_file("schedmate"))).resolve()
        own = installed == Path(__file__).resolve().parents[1]
    except (PackageNotFoundError, ValueError, OSError, AttributeError):
        return None
    path = Path(unquote(address.path))
    there = own and address.scheme == "file" and (path / "pyproject.toml").is_file()
    return str(path) if there else None


def ends_the_program(error: BaseException) -> bool:
    """Whether an exception is the user's or the system's wish to end: Ctrl-C or SIGTERM.

    Any other `SystemExit` in code that is not schedmate's own (a policy, an embedder) is a failure
    of that code, which may not end schedmate without a result.
    """
    return isinstance(error, KeyboardInterrupt | GeneratorExit) or (
        isinstance(error, SystemExit) and error.code == TERMINATED
    )


Verdict = Literal[
    "ok",  # a reply that could be used
    "unavailable",  # no connection, or a server that reports its own failure
    "timeout",  # no whole reply within the time
    "rejected",  # the server refuses this kind of request (4xx, and 500)
    "length",  # the reply was cut off by its token limit
    "malformed",  # not what the protocol or the schema asks for
    "echo",  # the schema or the prompt repeated in place of an answer
    "budget",  # a token or cost budget is used up; nothing was sent
]
"""What became of one call of a language model; the ledger stores it."""


class ModelError(SchedmateError):
    """A language model gave no usable answer; `verdict` says in what way.

    Commands that can answer without a model catch this, say so and go on.
    """

    exit_code: ClassVar[int] = MODEL

    def __init__(self, verdict: Verdict, message: str) -> None:
        super().__init__(message)
        self.verdict: Verdict = verdict
