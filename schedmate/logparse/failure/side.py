"""Whose an exception is, by where it was raised and what it refuses; its class is only a prior.

The frames of a traceback say whether the last step was the job's own: those in files below
`site-packages` or `dist-packages`, in Python's own library and in no file at all (`<frozen ...>`,
`<string>`) are a library's; all others are the program's. So are those of a library installed in
editable mode: a log does not show that its checkout is not the user's. Compiled code leaves no
frame. What a library raises within a few frames of the job's own last one is taken for a refusal of
what the job asked for; what it raises deeper inside, for its own failure.

Words (`side.yaml`) say which reports only pass on a failure inside, which refuse what the program
handed over, and which lines wait or try again rather than fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from schedmate.base.data import load
from schedmate.logparse.failure.rules import Rule

LIBRARY = re.compile(  # the last two as Windows has it
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:32|64)?[/\\]python\d|^<(?!module)"
    r"|(?i:[/\\](?:python|(?:ana|mini)conda)\d[\d.]{0,9}[/\\]lib[/\\]|\\python\\lib\\)"
)
FRAME = re.compile(r'File "([^"]+)", line (\d+)(?:, in (\S+))?')
_IN_MAIN = re.compile(r"\s*(?:__main__|__mp_main__)\.[A-Za-z_]")
_STATES = re.compile(r"\s+(?:raise|assert)\b")
_RAISES = re.compile(r"\s+raise\b")
_TRACEBACK = "Traceback (most recent call"
BY_OWN_CODE = "The job's own code raises it."
PASSED = "The job's own code handed over what is refused."
ASKED = "A library refuses what the job's own code asks of it, right below the call."
LACKING = frozenset({"Out of Memory", "Model Loading"})
"""Names of failures in which something was missing or damaged: nothing is refused."""
NEAR = 2
"""Frames of libraries below the job's own last one up to which they only check what was asked."""


class Frame(NamedTuple):
    """One call of a traceback, with its source line if the log has it."""

    file: str
    function: str | None
    source: str

    @property
    def own(self) -> bool:
        """Whether it is the program's, not a library's."""
        return LIBRARY.search(self.file) is None


def frames(texts: Sequence[str]) -> list[Frame]:
    """The frames among lines of a traceback, outermost first."""
    found = []
    for number, text in enumerate(texts):
        match = FRAME.search(text)
        if match is not None:
            below = texts[number + 1] if number + 1 < len(texts) else ""
            found.append(Frame(match[1], match[3], below if below[:1].isspace() else ""))
    return found


def defined_by_program(text: str) -> bool:
    """Whether a line begins with an exception whose class is defined in the launched script.

    Python prints such a class as `__main__.ConfigBroken`, in a spawned child with `__mp_main__`.
    """
    return _IN_MAIN.match(text) is not None


def raised_by_program(texts: Sequence[str]) -> bool:
    """Whether the innermost frame of a traceback, up to its exception, raises in the program.

    `texts` are the lines of the traceback before the exception. Without source lines the frame
    alone decides; a source line that raises nothing may have called compiled code.
    """
    calls = frames(texts)
    if not calls:
        return False
    return calls[-1].own and (not calls[-1].source or _RAISES.match(calls[-1].source) is not None)


def side_of(rule: Rule, texts: Sequence[str], text: str) -> Rule:
    """A rule for an exception's class, with the type that its frames and words show.

    `texts` are the lines of the traceback before the exception, `text` is that line. What the rule
    knows by more than the class stays as it is, unless nothing was handed over (None); and so does
    an error of infrastructure.
    """
    if rule.role != "cause" or rule.type != "framework":
        return rule
    calls = frames(texts)
    own = any(call.own for call in calls)
    if own and _says("passed")(text) and _handed_over(calls):
        return rule.as_script(PASSED)
    if rule.exception is None:
        return rule
    if defined_by_program(text):
        return rule.as_script()
    if not calls:
        return rule
    last = calls[-1]
    if last.own and (_STATES.match(last.source) or _says("interpreted")(text)):
        return rule.as_script(BY_OWN_CODE)
    if rule.general and raised_by_program(texts):  # the frame alone decides
        return rule.as_script(BY_OWN_CODE, shown=False)
    if rule.name in LACKING:
        return rule
    if own and next(n for n, call in enumerate(reversed(calls)) if call.own) <= NEAR:
        return rule.model_copy(update={"type": "script", "why": ASKED})
    return rule


def _handed_over(calls: Sequence[Frame]) -> bool:
    """Whether the refused value came from the program: a library was called, and refused it."""
    return calls[-1].own or _STATES.match(calls[-1].source) is not None


def rewords(before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether an exception was raised where another one was caught, only to say it again.

    `before` are the lines of the traceback that was caught, whose outermost frame is where; `after`
    are those of the one that followed, whose innermost frame raised it.
    """
    starts = [n for n, text in enumerate(before) if _TRACEBACK in text]
    caught, again = frames(before[starts[-1] if starts else 0 :]), frames(after)
    if not caught or not again or not _RAISES.match(again[-1].source):
        return False
    return caught[0][:2] == again[-1][:2]


def passes_on(text: str) -> bool:
    """Whether a line only passes on what failed inside of it, by its words."""
    return _says("wrappers")(text)


def only_waits(text: str) -> bool:
    """Whether a line says that something is waited for or tried again, and not that it was over."""
    return _says("polling")(text) and not _says("over")(text)


def says_handled(text: str) -> bool:
    """Whether the line of a failure says that the program goes on without what failed."""
    return _says("handled")(text)


@cache
def _says(kind: str) -> Callable[[str], bool]:
    import re2

    entries = load("logparse/failure/side.yaml")[kind]
    search = re2.compile("|".join(f"(?:{entry['pattern']})" for entry in entries)).search
    return lambda text: search(text) is not None
