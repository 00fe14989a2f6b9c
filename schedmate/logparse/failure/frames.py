"""Where a traceback ends: in the program that the user wrote, or in a library.

A file below `site-packages` or `dist-packages`, of Python itself or of no file at all (`<frozen
...>`, `<string>`) is a library's; every other one is the program's. A library that was installed
from a checkout cannot be told from it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

LIBRARY = re.compile(  # the last two as Windows has it
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:32|64)?[/\\]python\d|^<(?!module)"
    r"|(?i:[/\\](?:python|(?:ana|mini)conda)\d[\d.]{0,9}[/\\]lib[/\\]|\\python\\lib\\)"
)
FRAME = re.compile(r'File "([^"]+)", line (\d+)(?:, in (\S+))?')
_RAISES = re.compile(r"\s+raise\b")


def raised_by_program(texts: Sequence[str]) -> bool:
    """Whether the innermost frame of a traceback, up to its exception, raises in the program.

    `texts` are the lines of the traceback before the exception. Without source lines the frame
    alone decides; a source line that raises nothing may have called compiled code.
    """
    for number in range(len(texts) - 1, -1, -1):
        frame = FRAME.search(texts[number])
        if frame is not None:
            source = texts[number + 1] if number + 1 < len(texts) else ""
            raises = _RAISES.match(source) is not None or not source[:1].isspace()
            return raises and LIBRARY.search(frame[1]) is None
    return False
