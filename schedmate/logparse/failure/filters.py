"""Filters: what healthy runs print as well is no evidence; a rank with unique lines is suspect.

These two follow L4 (FSE 2025, section 4): cross-job and spatial. The third works within a log:
lines that training continued after do not explain the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from schedmate.logparse.failure.events import Event
from schedmate.logparse.reading import Log, LogFile
from schedmate.logparse.reading.lines import parse_line
from schedmate.logparse.templates import Templates, mask

TAIL = 1 << 20
"""Bytes compared at the end of each rank's file."""
FEWEST = 4
"""Minimum number of ranks for one of them to stand out."""
WENT_ON = 2000
"""Lines before the last progress that are taken as harmless, since training continued."""


class Healthy:
    """The templates of runs that ended well."""

    def __init__(self, logs: Sequence[Log]) -> None:
        templates = Templates()
        for log in logs:
            for file in log.files:
                for chunk in file.chunks():
                    templates.numbers(chunk.data)
                file.close()
        self._texts = set(templates.texts)

    def knows(self, event: Event) -> bool:
        """Whether a healthy run printed the same line; a traceback is compared by its exception."""
        return bool(self._texts) and mask(event.text) in self._texts


def overcome(file: LogFile, first: int, after: int, says: Callable[[str], bool]) -> set[str]:
    """The templates of significant lines after which training continued.

    `first` is the first line of the attempt, `after` that of the last progress.
    """
    templates, examples = Templates(), dict[int, bytes]()
    start, end = file.line_offset(max(first, after - WENT_ON)), file.line_offset(after)
    for chunk in file.chunks(start, end):
        lines = chunk.data.removesuffix(b"\n").split(b"\n")
        for number, raw in zip(templates.numbers(chunk.data), lines, strict=True):
            examples.setdefault(number, raw)  # one line of each template is read closely
    texts = [parse_line(raw, 0, file.layout).text for raw in examples.values()]
    return {mask(text) for text in texts if says(text)}


def outliers(files: Sequence[LogFile]) -> list[str]:
    """A sentence for each rank whose last lines have templates that no other rank's have."""
    ranked = [file for file in files if file.rank is not None]
    if len(ranked) < FEWEST:
        return []
    seen: Counter[str] = Counter()
    texts: dict[int, set[str]] = {}
    for file in ranked:
        templates = Templates()
        start = file.align(max(0, file.size - TAIL))
        for chunk in file.chunks(start):
            templates.numbers(chunk.data)
        file.close()
        assert file.rank is not None
        texts[file.rank] = set(templates.texts)
        seen.update(texts[file.rank])
    sentences = []
    for rank, own in sorted(texts.items()):
        alone = [text for text in own if seen[text] == 1]
        absent = [
            text for text, count in seen.items() if count == len(ranked) - 1 and text not in own
        ]
        if alone and len(alone) + len(absent) > 0:
            sentences.append(f"rank {rank} differs from the others: {min(alone, key=len)[:120]}")
        elif absent:
            sentences.append(f"rank {rank} lacks what all others print: {absent[0][:120]}")
    return sentences if len(sentences) < len(ranked) // 2 else []
