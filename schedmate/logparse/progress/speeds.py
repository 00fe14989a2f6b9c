"""Step times derived from throughput: samples or tokens a second, and their number in a step."""

from __future__ import annotations

from typing import Any

from schedmate.logparse.progress.facts import Facts
from schedmate.logparse.progress.pace import Spread, Tick, pace, typical
from schedmate.logparse.progress.sample import Sample
from schedmate.logparse.progress.series import SAME

Found = tuple[Spread, Any, list[str]]
"""A step time, its source, and notes on how it was chosen."""


def by_tokens(ordered: list[Sample], counted: list[Sample], facts: Facts) -> Found | None:
    speeds = typical([s.tokens_per_s for s in ordered if s.tokens_per_s])
    if speeds is None:
        return None
    size = _same([s.step_tokens for s in ordered]) or facts.tokens
    seen = pace([Tick(float(s.tokens), s.iteration) for s in counted if s.tokens])  # type: ignore[arg-type]
    if seen is not None and seen.p90 - seen.p10 <= SAME * seen.median:
        size = round(seen.median)
    if not size:
        return None
    times = Spread(size / speeds.median, size / speeds.p90, size / speeds.p10, speeds.n)
    return times, "samples", [f"{size:,} tokens a step"]


def _same(sizes: list[int | None]) -> int | None:
    """The size that nearly all lines state, or None."""
    found = {size for size in sizes[:-1] or sizes if size}
    return found.pop() if len(found) == 1 else None


def by_samples(
    ordered: list[Sample], counted: list[Sample], facts: Facts, batch: int | None
) -> Found | None:
    speeds = typical([s.samples_per_s for s in ordered if s.samples_per_s])
    if speeds is None:
        return None
    note = "batch size from the job's metadata"
    size = batch
    if (said := next((s.batch for s in reversed(ordered) if s.batch), None)) is not None:
        size, note = said, f"batch size {said} from the same line"
    elif seen := pace([Tick(float(s.samples), s.iteration) for s in counted if s.samples]):  # type: ignore[arg-type]
        size, note = round(seen.median), f"batch size {round(seen.median)} from the samples seen"
    elif facts.batch is not None:
        size, note = facts.batch, f"batch size {facts.batch} from the beginning of the log"
    elif (line := _same([s.line_batch for s in ordered])) is not None:
        size, note = line, f"batch size {line} from the same line"
    elif facts.plain_batch is not None:
        size = facts.plain_batch
        note = f"batch size {size} from the beginning of the log, which speaks of no other device"
    if not size:
        return None
    times = Spread(size / speeds.median, size / speeds.p90, size / speeds.p10, speeds.n)
    return times, "samples", [note]
