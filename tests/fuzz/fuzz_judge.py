"""Running the command line in this process, and judging what it does.

An answer is right when the exit code is a documented one that is no internal error, and what was
printed is UTF-8 without a traceback and, with --json, JSON as everybody reads it: no NaN, no lone
surrogates.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

_BROKEN = re.compile(
    r"^(?:Traceback \(most recent call last\)|error: internal error)", re.MULTILINE
)
_SWALLOWED = re.compile(r'following the code stopped early \(\w+:|"error": "internal error')
_UNPAIRED = re.compile("[\ud800-\udfff]")


class ViolationError(AssertionError):
    """An input to which schedmate does not answer as it should."""


def command_line(arguments: Sequence[str], *, codes: Sequence[int] = (0, 2, 3, 4, 6)) -> str:
    """Run `schedmate` in this process, judge what it does, and give what it printed."""
    from schedmate import cli
    from schedmate.logparse.triage import run as triage_run

    spread, triage_run.spread = triage_run.spread, _alone  # type: ignore[assignment]
    raw, errors = io.BytesIO(), io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="utf-8")
    err = io.TextIOWrapper(errors, encoding="utf-8", errors="backslashreplace")  # as Python's own
    before, code = sys.argv, 0
    sys.argv = ["schedmate", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv, triage_run.spread = before, spread
    out.flush()
    err.flush()
    printed, said = raw.getvalue().decode(), errors.getvalue().decode()
    if found := _SWALLOWED.search(printed):  # an answer, but not for want of anything in the input
        raise ViolationError(printed[found.start() : found.start() + 300])
    if code not in codes or _BROKEN.search(said):
        if "--debug" not in arguments:  # once more, to see where
            command_line(["--debug", *arguments], codes=codes)
        raise ViolationError(f"exit code {code}: {said[-3000:]}")
    if code == 0 and "--json" in arguments:
        judge_json(printed)
    return printed


def judge_json(text: str) -> Any:
    """The document that a text is; anything that others could not read is a violation."""
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise ViolationError(f"no JSON ({error}): {text[:300]}") from None
    if _UNPAIRED.search(json.dumps(document, ensure_ascii=False)):
        raise ViolationError("JSON with a lone surrogate, which many readers refuse")
    return document


def _no_constant(name: str) -> None:
    raise ViolationError(f"{name} in JSON")


def _alone(work: Any, items: Any, shared: Any, **_: Any) -> Iterator[Any]:
    """As `schedmate.base.pool.spread`, in this process, whose limits and coverage count."""
    return ((item, work(item, shared)) for item in items)


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
