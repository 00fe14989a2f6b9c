"""Groups lines: a Python traceback is one block, also if the output of ranks interleaves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from schedmate.logparse.reading.lines import Line

START = "Traceback (most recent call last"
MAX_LINES = 2000
"""Limit for the lines of one traceback."""
MAX_MESSAGE = 40
"""Limit for the lines of an exception's message."""

_EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w*\.)*(?P<name>_?[A-Z]\w*|(?<=\.)(?:error|timeout|gaierror|herror))(?:\(\w+\))?"
    r"(?::\s?(?P<message>.*)|)$"
)
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception): $")
# The head of IPython's traceback, and the lines of its frames that are not indented.
_IPYTHON = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*\s{2,}$")
_IPYTHON_FRAME = re.compile(r"<|/|~|-+(?:>|$)|[A-Z]:\\|File |Cell In|Input In|\.\.\.$")
# The frame that loguru points at, and what rich draws around frames.
_POINTED_FRAME = re.compile(r"> File \"")
_BOX = re.compile(r"[╭┌│|├╰└]")
# What a traceback of an exception group has before its lines.
_GROUP = re.compile(r"\s*\+ Exception Group $")
_OF_GROUP = re.compile(r"(?<!\s)\s*+[|+](?:[-+|]++| \|)*+(?: (?:\d+|\.\.\.) -+$| ?)")
# A traceback that a line holds as a string, its line feeds written as `\n`.
_LINE_FEED = re.compile(r"(?<!\\)\\++n(?:['\"],\s?['\"])?")
_FRAME = re.compile(r"( *)File \"")
FOLLOWS = "The above exception was the direct cause of the following exception"
_CHAIN = ("During handling of the above exception, another exception occurred", FOLLOWS)
_NEW_RECORD = re.compile(
    r"\[|[\w.-]+: (?:error|warning|fatal)|(?:ERROR|WARNING|INFO|DEBUG|CRITICAL|FATAL)\b|\*\*\*"
    r"|={5}|-{5}|\s*\d+%\||>+ |srun|slurmstepd|Epoch\b|wandb:"
    r"|NVRM|LNet|Lustre|nfs:|kernel\b|mlx[45]_|EXT4-fs|XFS|mmfs|libceph|INFO:|watchdog:|mce:"
    r"|terminate called|Out of memory:|Fatal Python error",
    re.IGNORECASE,
)


@dataclass
class Block:
    """One line, or all lines of a traceback with those of the exceptions before it.

    `exception` and `message` are those of the last exception, which ended the program. `inner` are
    the lines of the traceback as Python wrote them, without text that a logger put before each,
    around them or, if all of it is on one line, between them.
    """

    lines: list[Line]
    kind: Literal["line", "traceback"] = "line"
    exception: str | None = None
    message: str | None = None
    chain: list[str] = field(default_factory=list)
    """The exceptions in the order they were raised, `exception` last."""
    inner: list[Line] = field(default_factory=list)

    @property
    def first(self) -> Line:
        """The first line."""
        return self.lines[0]


class _Open:
    """A traceback of one stream while it is being read."""

    def __init__(self, line: Line) -> None:
        at = line.text.index(START)
        before = line.text[:at]
        self.ipython = _IPYTHON.match(before) is not None
        self.group = _GROUP.match(before) is not None
        box = re.search(r"[╭┌]", before)
        self.boxed = box is not None
        if self.ipython or _RAISED.match(before):  # its message may be a traceback
            before = ""
        if box is not None:
            before = before[: box.start()]
        self.head = _OF_GROUP if self.group else _head(before)
        self.margin = 0  # where exceptions stand, two columns left of the frames
        self.block = Block([line], "traceback", inner=[line])
        self.state: Literal["frames", "message", "after"] = "frames"
        self.message_lines = 0

    def take(self, line: Line) -> bool:
        """Add the line if it belongs to the traceback; returns whether it does."""
        if len(self.block.lines) >= MAX_LINES:
            return False
        headed = self.head.match(line.text) if self.head is not None else None
        text = line.text[headed.end() :] if headed else line.text
        bare = text.strip()
        if START in text or any(phrase in text for phrase in _CHAIN):
            again = START in text and not self.group and not bare.startswith("Original ")
            if again and self.state != "frames":
                return False  # another one, not raised from this
            self.state = "frames"
        elif self.state == "frames":
            if not self._frames(text, bare):
                return False
        elif self.state == "after":
            if bare:  # a blank line ended the message, and no chained traceback followed it
                return False
        elif not bare:
            self.state = "after"
        elif self.message_lines >= MAX_MESSAGE or line.time or _NEW_RECORD.match(bare):
            return False
        else:
            self.message_lines += 1
        self.block.lines.append(line)
        inner = text[self.margin :] if text[: self.margin].isspace() else text
        self.block.inner.append(line if inner is line.text else line._replace(text=inner))
        return True

    def _frames(self, text: str, bare: str) -> bool:
        """Whether a line belongs to the frames, or is the exception that ends them."""
        frame = _FRAME.match(text)
        if frame is not None:
            self.margin = max(0, len(frame[1]) - 2)
        if not bare or _indent(text) > self.margin:
            return True
        if (self.boxed and _BOX.match(bare)) or _POINTED_FRAME.match(bare):
            return True
        match = _EXCEPTION.match(bare)
        if match is None:
            return self.ipython and _IPYTHON_FRAME.match(bare) is not None
        self._raised(match)
        self.state, self.message_lines = "message", 0
        return True

    def _raised(self, match: re.Match[str]) -> None:
        self.block.exception, self.block.message = match["name"], match["message"] or ""
        self.block.chain.append(match["name"])

    def quoted(self) -> bool:
        """Read the traceback from the first line, if all of it is there as a string; else False."""
        line = self.block.lines[0]
        parts = _LINE_FEED.split(line.text[line.text.index(START) :])
        if len(parts) < 2:
            return False
        self.block.inner = [line._replace(text=part) for part in parts]
        for part in parts[1:]:
            match = _EXCEPTION.match(part) if part[:1].strip() else None
            if match is not None:
                self._raised(match)
        return True

    def close(self) -> Block:
        """The block, without the blank lines at its end."""
        while len(self.block.lines) > 1 and not self.block.lines[-1].text.strip():
            self.block.lines.pop()
            self.block.inner.pop()
        return self.block


def _head(before: str) -> re.Pattern[str] | None:
    """The text before each line of a traceback: as before its first, with other numbers."""
    if not before:
        return None
    parts = re.split(r"(\d+|0x[0-9a-f]+|(?<=\S) +(?=\S))", before)
    loose = (
        r"[\da-fx]+" if part[0].isdigit() else " *" if part.isspace() and n > 0 else re.escape(part)
        for n, part in enumerate(parts)
        if part
    )
    return re.compile("".join(loose))


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def blocks(lines: Iterable[Line]) -> Iterator[Block]:
    """The lines grouped, each traceback in one block where it begins.

    Lines of other streams in the middle of a traceback come as blocks of their own before it.
    """
    reading: dict[str, _Open] = {}
    for line in lines:
        current = reading.get(line.stream)
        if current is not None:
            if current.take(line):
                continue
            yield reading.pop(line.stream).close()
        if START in line.text:
            opened = _Open(line)
            if opened.quoted():
                yield opened.block
            else:
                reading[line.stream] = opened
        else:
            yield Block([line])
    for left in reading.values():
        yield left.close()
