"""Extraction patterns that a language model writes, once for each kind of line.

The SchedMate paper (section 3.2) lets a model read the numbers of every progress line. Here it is
shown one line of each kind that no reader understands, and writes a pattern instead. The pattern is
checked against all lines of that kind, stored, and reads such lines from then on. Patterns run in a
linear-time engine, and their readings pass the tracker's own checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from schedmate.base.errors import ModelError
from schedmate.jobs import Progress
from schedmate.logparse.progress.collect import Reader
from schedmate.logparse.progress.line import Sample, Shape, read_match
from schedmate.logparse.progress.tracker import track
from schedmate.logparse.reading import LogFile, parse_line
from schedmate.logparse.templates import TemplateStore, mask

if TYPE_CHECKING:
    from schedmate.llm import LLM


PURPOSE = "metrics"
KIND = "pattern/1"
"""The key under which patterns are stored; its number changes with the question."""
LOOKED_AT = 3000
"""Lines from the end of a log whose kinds are considered."""
ASKED = 6
"""Kinds shown in one question, the most frequent first."""
REPEATED = 4
"""Minimum number of lines of a kind."""
SHARE = 0.8
"""Share of the lines of its kind that a pattern must read."""
MAX_PATTERN = 400
MAX_LINE = 600

GROUPS = frozenset(
    {
        *("iteration", "total", "epoch", "loss", "lr", "step_time_s", "step_time_ms", "rate"),
        *("elapsed_s", "samples_per_s", "tokens_per_s", "batch"),
    }
)


class Written(BaseModel):
    """A pattern for the kind of line of one example."""

    model_config = ConfigDict(extra="forbid")

    example: int
    pattern: str


class Patterns(BaseModel):
    """Patterns for those kinds of lines that show training."""

    model_config = ConfigDict(extra="forbid")

    patterns: list[Written]


@dataclass
class Willing:
    """Whether a model is still asked: not after a failure, which `failure` describes."""

    failure: ModelError | None = None


def track_by_patterns(
    file: LogFile,
    progress: Progress,
    store: TemplateStore,
    llm: LLM | None,
    *,
    batch: int | None = None,
    since: int = 0,
    willing: Willing | None = None,
) -> Progress:
    """`progress`, or if that abstained, the readings of `file` by written patterns.

    A model that fails adds a note and changes nothing else; with the same `willing` it is not asked
    again. Parameters as of `track` and `written_reader`.
    """
    if not progress.abstained:
        return progress
    willing = willing or Willing()
    try:
        reader = written_reader(file, store, None if willing.failure else llm)
    except ModelError as error:
        willing.failure = error
        note = f"the language model wrote no pattern: {error}"
        return progress.model_copy(update={"notes": [*progress.notes, note]})
    if reader is None:
        return progress
    by_patterns = track(file, batch=batch, since=since, reader=reader, every_line=True)
    return progress if by_patterns.abstained else by_patterns.model_copy(update={"source": "model"})


def written_reader(file: LogFile, store: TemplateStore, llm: LLM | None) -> Reader | None:
    """A reader of the lines of `file` by patterns that a model wrote, or None without any.

    `llm` is asked about kinds of lines that `store` has no answer for; without it only stored
    patterns are used. Raises `ModelError` if the model fails; nothing is stored then.
    """
    kinds = _kinds(file)
    patterns = {template: store.get(KIND, template) for template in kinds}
    unknown = [template for template, value in patterns.items() if value is None][:ASKED]
    if unknown and llm is not None:
        answers = _ask(llm, {template: kinds[template] for template in unknown})
        store.put(KIND, answers)
        patterns |= answers
    compiled = [
        pattern
        for template, value in patterns.items()
        if value and value["pattern"] and (pattern := _compiled(value["pattern"])) is not None
    ]
    return _reader(compiled) if compiled else None


def _kinds(file: LogFile) -> dict[str, list[str]]:
    """Lines by template, the newest first: those that repeat and contain numbers."""
    kinds: dict[str, list[str]] = {}
    for text in _texts(file):
        kinds.setdefault(mask(text), []).append(text)
    likely = {
        template: lines
        for template, lines in kinds.items()
        if len(lines) >= REPEATED and template.count("<num>") >= 2
    }
    return dict(sorted(likely.items(), key=lambda one: -len(one[1])))


def _texts(file: LogFile) -> Iterator[str]:
    for count, (_, data) in enumerate(file.pieces_reversed()):
        if count >= LOOKED_AT:
            return
        yield parse_line(data, 0, file.layout).text[:MAX_LINE]


def _ask(llm: LLM, kinds: dict[str, list[str]]) -> dict[str, dict[str, str | None]]:
    """The pattern for each template, None if the model wrote no valid one."""
    from langchain_core.messages import HumanMessage, SystemMessage

    from schedmate.llm.chat import ask
    from schedmate.llm.redact import Fence
    from schedmate.prompts import fill, load

    fence = Fence()
    shown = "\n".join(f"{n}| {lines[0]}" for n, lines in enumerate(kinds.values(), 1))
    question = fill("metrics.question.v1", nonce=fence.nonce, examples=fence.wrap("lines", shown))
    messages: list[Any] = [SystemMessage(load("metrics.system.v1")), HumanMessage(question)]
    patterns: dict[str, dict[str, str | None]] = {template: {"pattern": None} for template in kinds}
    numbered = dict(enumerate(kinds.items(), 1))
    for written in ask(llm.chat(PURPOSE), messages, Patterns).patterns:
        if written.example in numbered:
            template, lines = numbered[written.example]
            if holds(written.pattern, lines):
                patterns[template] = {"pattern": written.pattern}
    return patterns


def holds(pattern: str, lines: list[str]) -> bool:
    """Whether a pattern reads lines of one kind, the newest first, as progress.

    It must compile in the linear-time engine, name an iteration and no unknown quantities, match
    nearly all of the lines, and count forward.
    """
    compiled = _compiled(pattern)
    if compiled is None:
        return False
    read = _reader([compiled])
    samples = [sample for line in lines if (sample := read(line)) is not None]
    counts = [sample.iteration for sample in samples if sample.iteration is not None]
    if len(counts) < max(REPEATED, SHARE * len(lines)) or len(set(counts)) < 2:
        return False
    back = sum(newer < older for newer, older in pairwise(counts))
    totals = [one.total for one in samples if one.total is not None]
    return back <= 0.1 * len(counts) and all(total >= max(counts) for total in totals)


def _compiled(pattern: str) -> Any:
    """The pattern in the linear-time engine; None if it is invalid or not as required."""
    import re2

    if not 0 < len(pattern) <= MAX_PATTERN:
        return None
    options = re2.Options()
    options.max_mem = 1 << 20
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error:
        return None
    names = set(compiled.groupindex)
    return compiled if "iteration" in names and names <= GROUPS else None


def _reader(compiled: list[Any]) -> Reader:
    shape = Shape("model", "", alone=True, ignore=False)

    def read(text: str) -> Sample | None:
        for pattern in compiled:
            match = pattern.search(text[:MAX_LINE])
            if match is None:
                continue
            sample = read_match(shape, match, text, None)
            if sample is None or sample.iteration is None:
                return None
            # What a model calls a step time is doubted as a time without a name or unit is.
            sample.bare, sample.unit = True, False
            return sample
        return None

    return read
