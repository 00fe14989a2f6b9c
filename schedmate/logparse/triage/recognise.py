"""Whether a file among others is a job's log, by its content.

A log shows a run: times at the beginning of lines, progress, a launcher, a traceback, the end of a
process. A page of documentation quotes such lines, and a table or a program has other forms. The
name of another format (`no_logs.yaml`) is a prior that a run in the content outweighs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from schedmate.logparse.failure.rules import severity
from schedmate.logparse.reading import LogFile, parse_line
from schedmate.logparse.reading.lines import uncoloured
from schedmate.logparse.signs import signs

SAMPLE = 1 << 14
"""Bytes at the beginning and at the end of a file that are examined."""
MOST_LINES = 150
"""Limit for the lines of either end that are examined."""
LEAST = 3
"""Lines that show a run from which on a file with the name of another format is a log."""
RUN_SHARE = 0.2
"""Share of such lines that is needed besides."""
SHARE = 0.5
"""Share of lines of one form that makes a file a table, prose or a program."""

_HEADING = re.compile(
    r"#{1,6} \S|={4,}\s*$|-{4,}\s*$|\.\. \w[\w-]*::|```|~~~|\s*[-*] \[|!\[|<[a-z]+[ >]"
)
_PROSE = re.compile(r"\s*(?:[-*>] |\d+\. )?[A-Z\"'(*_`\[].{40,}")
_SENTENCE = re.compile(r"[a-z)`\"'] [a-z]+ [a-z]+ [a-z]+")
_CODE = re.compile(
    r"\s*(?:from \S+ import|import \w|def \w+\(|class \w+[(:]|return\b|if .+:$|for .+ in .+:$|@\w|"
    r"#include|export \w+=|#SBATCH|#!/|set -|echo |elif |else:|try:|except\b|with .+:$|\"\"\"|#|//|"
    r"[\w.\[\]]+ [-+*/]?= |[})\]]|[\w.]+\(.*[,()]$)"
)
_AT_LEAST_ROWS = 3


def why_no_log(file: LogFile, *, named_otherwise: bool) -> str | None:
    """Why a file is no job's log; None if it is one, or nothing says that it is not.

    `named_otherwise` is whether its name is that of another format.
    """
    head = _lines(file.read(0, SAMPLE))[:MOST_LINES]
    form = _form([text for text in head if text.strip()], sure=not named_otherwise)
    if form is None and not named_otherwise:
        return None
    tail = _lines(file.read(max(SAMPLE, file.size - SAMPLE), SAMPLE))[-MOST_LINES:]
    texts = [text for text in (*head, *tail) if text.strip()]
    shown = _shows_run(texts, fenced=form == "prose")
    if named_otherwise:
        if form is None and shown >= max(LEAST, RUN_SHARE * len(texts)):
            return None
        return form or "named as another format, and no run is in it"
    return form if shown == 0 else None


def _lines(data: bytes) -> list[str]:
    plain, _ = uncoloured(data)
    return plain.decode("utf-8", "replace").replace("\r", "\n").split("\n")


def _form(texts: Sequence[str], *, sure: bool) -> str | None:
    """The form of a text that is no log: a table, a document, prose or a program; else None.

    To be `sure`, prose has to have the headings of a page.
    """
    if len(texts) < _AT_LEAST_ROWS:
        return None
    if texts[0].rstrip() in ("{", "[", "[{"):
        return "a document in JSON"
    for separator in (",", "\t", ";"):
        counts = Counter(text.count(separator) for text in texts)
        most, rows = counts.most_common(1)[0]
        header = texts[0].split(separator)
        words = all(re.fullmatch(r"\s*\"?[A-Za-z_][\w ./()%-]{0,40}\"?\s*", one) for one in header)
        if most >= 1 and rows >= 0.8 * len(texts) and texts[0].count(separator) == most and words:
            return "a table"
    headings = sum(_HEADING.match(text) is not None for text in texts)
    prose = sum(_PROSE.match(text) is not None and _SENTENCE.search(text) is not None
                for text in texts)  # fmt: skip
    pages = sum(text.startswith(("# ", "## ", "### ")) for text in texts)
    if pages >= (2 if sure else 1) and headings + prose >= (SHARE if sure else 0.3) * len(texts):
        return "prose"
    if prose >= SHARE * len(texts) and not sure and not _timed(texts):
        return "prose"
    code = sum(_CODE.match(text) is not None for text in texts)
    if code >= SHARE * len(texts) and not _timed(texts):
        return "a program"
    return None


def _timed(texts: Sequence[str]) -> bool:
    return sum(parse_line(_raw(text), 1).time is not None for text in texts) >= LEAST


def _shows_run(texts: Sequence[str], *, fenced: bool) -> int:
    """How many lines show a run, those quoted in a page left out."""
    found, inside = 0, False
    kinds = ("progress", "finished", "over", "checkpoint")
    for text in texts:
        if text.lstrip().startswith(("```", "~~~")):
            inside = not inside
        if fenced and (inside or text.startswith(("    ", "\t", ">"))):
            continue
        raw = _raw(text)
        if (
            parse_line(raw, 1).time is not None
            or _PROCESS.match(text)
            or severity(text) is not None
            or any(signs(kind).on(raw) for kind in kinds)
        ):
            found += 1
    return found


_PROCESS = re.compile(
    r"Traceback \(most recent call last|(?:srun|slurmstepd|sbatch|mpirun|torchrun|wandb): |"
    r"\[rank\d+\]|\(\w+ pid=\d+\)|(?:Killed|Segmentation fault|Aborted)\s*$|\s*\d+%\|"
    r"|(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): "
)


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "replace")
