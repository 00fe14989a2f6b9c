"""Lines that belong together: a Python traceback is one block, also where ranks interleave."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from schedmate.logparse.reading.lines import Line

START = "Traceback (most recent call last"
MAX_LINES = 2000
"""Most lines of one traceback."""
MAX_MESSAGE = 40
"""Most lines that the message of an exception goes on for."""

_EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w*\.)*(?P<name>_?[A-Z]\w*|(?<=\.)(?:error|timeout|gaierror|herror))(?:\(\w+\))?"
    r"(?::\s?(?P<message>.*)|)$"
)
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception): $")
# The head of IPython's traceback, and the lines of its frames that are not indented.
_IPYTHON = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*\s{2,}$")
_IPYTHON_FRAME = re.compile(r"<|/|~|-+(?:>|$)|[A-Z]:\\|File |Cell In|Input In|\.\.\.$")
_CHAIN = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
)
_NEW_RECORD = re.compile(
    r"\[|[\w.-]+: (?:error|warning|fatal)|(?:ERROR|WARNING|INFO|DEBUG|CRITICAL|FATAL)\b|\*\*\*"
    r"|={5}|-{5}|\s*\d+%\||>+ |srun|slurmstepd|Epoch\b|wandb:"
    r"|NVRM|LNet|Lustre|nfs:|kernel\b|mlx[45]_|EXT4-fs|XFS|mmfs|libceph|INFO:|watchdog:|mce:"
    r"|terminate called|Out of memory:|Fatal Python error",
    re.IGNORECASE,
)


@dataclass
class Block:
    """One line, or all lines of one traceback with those it was raised from.

    `exception` and `message` are the last exception's, the one that ended the program.
    """

    lines: list[Line]
    kind: Literal["line", "traceback"] = "line"
    exception: str | None = None
    message: str | None = None
    chain: list[str] = field(default_factory=list)
    """The exceptions in the order they were raised, `exception` last."""

    @property
    def first(self) -> Line:
        """The first line."""
        return self.lines[0]


class _Open:
    """A traceback that is being read, of one stream."""

    def __init__(self, line: Line) -> None:
        at = line.text.index(START)
        self.ipython = _IPYTHON.match(line.text[:at]) is not None
        if self.ipython or _RAISED.match(line.text[:at]):  # its message may be a traceback
            at = 0
        self.head = _shape(line.text[:at])
        self.width = at
        self.block = Block([line], "traceback")
        self.state: Literal["frames", "message", "after"] = "frames"
        self.message_lines = 0

    def take(self, line: Line) -> bool:
        """Whether the line belongs to the traceback; if so it is added."""
        if len(self.block.lines) >= MAX_LINES:
            return False
        headed = bool(self.head) and _shape(line.text[: self.width]) == self.head
        text = line.text[self.width :] if headed else line.text
        bare = text.strip()
        if START in text or any(phrase in text for phrase in _CHAIN):
            if START in text and self.state != "frames" and not bare.startswith("Original "):
                return False  # another one, not raised from this
            self.state = "frames"
        elif self.state == "frames":
            if bare and not text[0].isspace():
                match = _EXCEPTION.match(bare)
                if match is None and self.ipython and _IPYTHON_FRAME.match(bare):
                    self.block.lines.append(line)
                    return True
                if match is None:
                    return False
                self.block.exception, self.block.message = match["name"], match["message"] or ""
                self.block.chain.append(match["name"])
                self.state, self.message_lines = "message", 0
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
        return True

    def close(self) -> Block:
        """The block, without the blank lines at its end."""
        while len(self.block.lines) > 1 and not self.block.lines[-1].text.strip():
            self.block.lines.pop()
        return self.block


def _shape(text: str) -> str:
    return re.sub(r"\d", "0", text)


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
            reading[line.stream] = _Open(line)
        else:
            yield Block([line])
    for left in reading.values():
        yield left.close()
