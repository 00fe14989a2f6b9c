"""Whether an exception comes from the user's program or from a library.

Frames in files below `site-packages` or `dist-packages`, in Python's own library and in no file at
all (`<frozen ...>`, `<string>`) are a library's; all others are the program's. So are those of a
library installed in editable mode: a log does not show that its checkout is not the user's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

LIBRARY = re.compile(  # the last two as Windows has it
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:32|64)?[/\\]python\d|^<(?!module)"
    r"|(?i:[/\\](?:python|(?:ana|mini)conda)\d[\d.]{0,9}[/\\]lib[/\\]|\\python\\lib\\)"
)
FRAME = re.compile(r'File "([^"]+)", line (\d+)(?:, in (\S+))?')
_IN_MAIN = re.compile(r"\s*(?:__main__|__mp_main__)\.[A-Za-z_]")
_RAISES = re.compile(r"\s+raise\b")


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
    for number in range(len(texts) - 1, -1, -1):
        frame = FRAME.search(texts[number])
        if frame is not None:
            source = texts[number + 1] if number + 1 < len(texts) else ""
            raises = _RAISES.match(source) is not None or not source[:1].isspace()
            return raises and LIBRARY.search(frame[1]) is None
    return False
