"""What a field could be, how sure that is, and the line that proves it.

A `Candidate` is a value with its origin, its score and the rule that found it; `evidence_of` looks
up what is cited for it in the repository. `rules` reads the tables beside this module, and
`is_known` and its like ask the vocabulary about names of models and datasets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeGuard

from schedmate.agent.bounds import MAX_NESTING
from schedmate.agent.fields import prior
from schedmate.agent.interp.objects import Class, Function, Symbol
from schedmate.agent.interp.trace import CallEvent
from schedmate.agent.values import NumberValue, Origin, Place, Unknown, Value
from schedmate.base.data import load
from schedmate.base.files import is_file, resolved
from schedmate.jobs import Evidence
from schedmate.jobs.metadata import RunnerUp


@cache
def rules(name: str) -> dict[str, Any]:
    """The content of one of the YAML files of `schedmate/agent/fields`, by its stem."""
    loaded: dict[str, Any] = load(f"agent/fields/{name}.yaml")
    return loaded


def pattern_of(name: str) -> re.Pattern[str]:
    """A pattern of patterns.yaml, by `module.name`."""
    module, _, own = name.partition(".")
    return re.compile(rules("patterns")[module][own])


_LEAST = 0.05
"""Least confidence that is reported."""


@dataclass(slots=True)
class Candidate:
    """A possible value of a field.

    `score`, from 0 to 100, is the prior that orders candidates, set by hand. `rule` names what
    found this one and `note` tells people more. `considered` are all the candidates that it was
    chosen from, and `sure` how sure it is once that was computed (`confidence.py`), with what
    speaks most against it as `doubt`. One that is `doubted` for what no fitted fact is about is no
    surer than its score.
    """

    data: Any
    origin: Origin | None
    score: float
    note: str | None = None
    rule: str = ""
    considered: Sequence[Candidate] = field(default=(), repr=False, compare=False)
    sure: float | None = None
    doubt: str | None = None
    doubted: bool = False

    @property
    def source(self) -> str:
        """The kind of place the value comes from (`Origin.source`); `code` without an origin."""
        return self.origin.source if self.origin is not None else "code"

    @property
    def place(self) -> tuple[str | None, int | None]:
        """File and 1-based line that the value comes from, None where they are not known."""
        return (self.origin.file, self.origin.line) if self.origin is not None else (None, None)

    def evidence(self) -> Evidence:
        origin = self.origin or Origin("code")
        return Evidence(
            value=self.data,
            source=origin.source,
            file=origin.file,
            line=origin.line or None,
            text=origin.text,
            confidence=round(max(_LEAST, self.sure or 0.0), 2),
            note=self.note,
            doubt=self.doubt,
        )

    def runner_up(self) -> RunnerUp | None:
        """The likeliest of the other values that were considered."""
        mine = only_letters(str(self.data))
        others = (
            one
            for one in self.considered
            if one.data is not None and only_letters(str(one.data)) != mine
        )
        other = best_candidate(others)
        if other is None:
            return None
        return RunnerUp(value=other.data, where=other.evidence().where())


def best_candidate(candidates: Iterable[Candidate]) -> Candidate | None:
    """The highest-scored candidate; the first of equals."""
    chosen: Candidate | None = None
    for candidate in candidates:
        if chosen is None or candidate.score > chosen.score:
            chosen = candidate
    return chosen


def by_rule(rule: str, candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates as a list; those without a rule are marked as found by `rule`."""
    named_ones = list(candidates)
    for candidate in named_ones:
        candidate.rule = candidate.rule or rule
    return named_ones


# -- where a value was set -------------------------------------------------

EXPLICIT = ("command", "script", "environment", "launch")
_CHOSEN = frozenset({*EXPLICIT, "config"})
"""Sources of what somebody wrote for a run."""


def source_bonus(origin: Origin | None) -> float:
    """Points that a value gains where somebody wrote it for a run; 0 for defaults and code."""
    if origin is None or origin.source not in _CHOSEN:
        return 0.0
    return prior.source[origin.source]


def is_launched(origin: Origin | None) -> bool:
    """Whether this launch sets it: command, script, environment or the scheduler's own facts."""
    return origin is not None and origin.source in EXPLICIT


# -- calls -----------------------------------------------------------------


@cache
def call_pattern(text: str) -> re.Pattern[str]:
    """A call pattern of calls.yaml as a regular expression."""
    escaped = re.escape(text).replace(r"\*", ".*")
    return re.compile(f"^{escaped}$")


def matching_rules(event: CallEvent, table: str) -> Sequence[dict[str, Any]]:
    """The rules of a table of calls.yaml that apply to this call, in the table's order."""
    return _rules_for(event.path, table)


@lru_cache(16_384)
def _rules_for(path: str, table: str) -> tuple[dict[str, Any], ...]:
    by_root = _by_root(table)
    root = re.split(r"[.(]", path, maxsplit=1)[0]
    return tuple(
        rule for rule in by_root.get(root, by_root["*"]) if call_pattern(rule["call"]).match(path)
    )


@cache
def _by_root(table: str) -> dict[str, list[dict[str, Any]]]:
    """A table's rules by the first part of their paths, with those for any path among them."""
    roots = [(rule["call"].split(".", 1)[0], rule) for rule in rules("calls")[table]]
    return {
        root: [rule for begins, rule in roots if begins == root or "*" in begins]
        for root in {"*", *(begins for begins, _ in roots)}
    }


def rule_argument(event: CallEvent, spec: list[Any]) -> Value | None:
    """The first argument of the call that a rule names, by position (int) or keyword (str)."""
    for item in spec:
        argument = event.argument(item, *()) if isinstance(item, int) else event.kwargs.get(item)
        if argument is not None:
            return argument
    return None


def text_of(value: Value | None) -> str | None:
    """The string a value holds (the first, of a list), or the name of its class or function."""
    if value is None:
        return None
    data = value.data
    for _ in range(MAX_NESTING):  # a list can contain itself
        if isinstance(data, list | tuple) and data and isinstance(data[0], Value):
            data = data[0].data
    if isinstance(data, str):
        return data
    if isinstance(data, Class | Function):
        return data.name
    if isinstance(data, Symbol) and re.fullmatch(r"[A-Za-z_][\w.]*", data.path):
        return data.path.rsplit(".", 1)[-1]
    return None


def is_number(value: Value | None) -> TypeGuard[NumberValue]:
    return value is not None and value.number is not None


def unresolved_text(value: Value | None) -> str | None:
    """The expression that an unknown value stands for; None for a known value."""
    if value is not None and isinstance(value.data, Unknown):
        return value.data.text
    return None


# What is cited for a value: a line that exists, a flag as it is written, or a named default.
#
# A citation is worth no more than what a reader finds there. So it is looked up before it is
# shown: a line that is not in the repository is not cited, and where a line does not state the
# value, the evidence says what it was computed from.


MAX_FORMULA = 120
"""Longest formula or line that evidence shows [characters]."""
_MAX_BYTES = 4_000_000
_UNPROVED = 0.5
"""Most confidence in a value that no line, flag or named default can be cited for."""
_NUMBER = re.compile(r"\d[\d_]*(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?")
_HEADING = 3
"""Most lines between a section's first entry and its name, for comments and blank lines."""
_STATEMENT = 5
"""Most further lines of a statement that are looked at."""
_GOES_ON = ("(", "[", "{", ",", "\\", "=", ":")
_IN_FILES = ("script", "config", "default", "code")


class Lines:
    """The lines of a repository's files, each file read once, and none that lies outside."""

    def __init__(self, root: Path) -> None:
        self._root = resolved(root)
        self._files: dict[str, list[str]] = {}

    def at(self, place: Place) -> str | None:
        """The text of a line without the blanks around it; None where there is no such line."""
        lines = self.of(place.file)
        return lines[place.line - 1].strip() if 0 < place.line <= len(lines) else None

    def of(self, file: str) -> list[str]:
        """All lines of a file of the repository; none where there is no such file."""
        if file not in self._files:
            path = resolved(self._root / file)
            inside = path.is_relative_to(self._root) and is_file(path)
            self._files[file] = _read(path) if inside else []
        return self._files[file]

    def statement(self, place: Place, value: Any) -> str:
        """The text of a line, followed by the line of its statement that states `value`, if any."""
        first = self.at(place) or ""
        if first.endswith(_GOES_ON):
            for number in range(place.line + 1, place.line + 1 + _STATEMENT):
                line = self.at(Place(place.file, number))
                if line and line_states(line, value):
                    return f"{first} … {line}"
        return first

    def naming(self, place: Place, name: str) -> Place:
        """The line near `place`, itself or shortly before, that names the section; else `place`."""
        if not line_states(self.at(place) or "", name):
            for number in range(place.line - 1, max(0, place.line - 1 - _HEADING), -1):
                if line_states(self.at(Place(place.file, number)) or "", name):
                    return Place(place.file, number)
        return place


def _read(path: Path) -> list[str]:
    try:
        with path.open("rb") as stream:
            return stream.read(_MAX_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []


def evidence_of(candidate: Candidate, lines: Lines, unit_of: str | None = None) -> Evidence:
    """The evidence of a chosen candidate, looked up.

    Args:
        candidate: the value that was chosen.
        lines: the repository that it is from.
        unit_of: the field whose unit the candidate is, which the same line tells.
    """
    proof = candidate.evidence()
    place = Place(proof.file, proof.line) if proof.file and proof.line else None
    if place is not None and proof.source == "config" and isinstance(proof.value, str):
        place = lines.naming(place, proof.value)
        proof.line = place.line
    line = lines.at(place) if place is not None else None
    if place is not None and line is None:
        proof.file = proof.line = None
    if proof.source in _IN_FILES and proof.file is None:
        proof.note = proof.note or "where this is said is not known"
        proof.lower(_UNPROVED, "where this is said is not known")
    if proof.unsure:
        proof.runner_up = candidate.runner_up() if unit_of is None else None
    else:
        proof.doubt = None
    if unit_of is not None:
        proof.note = proof.note or f"the unit of {unit_of}"
        return proof
    if proof.source != "derived":  # whose note says what it was derived from
        proof.formula = _cited_formula(candidate, place, line, lines)
    return proof


def _cited_formula(
    candidate: Candidate, place: Place | None, line: str | None, lines: Lines
) -> str | None:
    computed = candidate.origin.computed if candidate.origin is not None else None
    if isinstance(computed, str):
        return computed
    if candidate.data is None:  # the expression is all there is
        return _shortened_text(line) if line else None
    if computed is not None and computed != place:
        text = lines.at(computed)
        if text and not (line and line_states(line, candidate.data)):
            return _shortened_text(f"{text}, {computed.file}:{computed.line}")
    if line and place and not line_states(line, candidate.data):
        return _shortened_text(lines.statement(place, candidate.data))
    return None


def _shortened_text(text: str) -> str:
    return text if len(text) <= MAX_FORMULA else f"{text[: MAX_FORMULA - 1]}…"


def line_states(line: str, value: Any) -> bool:
    """Whether a line holds a value as a literal, however it is spelled."""
    if isinstance(value, bool) or value is None:
        return True
    if isinstance(value, int | float):
        return any(_number_of(text) == value for text in _NUMBER.findall(line))
    return only_letters(str(value)) in only_letters(line)


def _number_of(text: str) -> float | None:
    try:
        return float(text.replace("_", ""))
    except ValueError:
        return None


def only_letters(text: str) -> str:
    """A text in lower case without anything but letters and digits."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


# What the vocabulary knows, and the words that name nothing.


@cache
def word_list(name: str) -> frozenset[str]:
    """One of the word lists of words.yaml; the empty word belongs to each."""
    return frozenset({"", *rules("words")[name].split()})


def is_known(name: str, table: str) -> bool:
    """Whether the vocabulary's table `models` or `datasets` has a pattern that is in `name`."""
    text = re.sub(r"[_ ./]+", "-", name.lower())
    return any(re.search(pattern, text) for pattern in rules("vocabulary")[table].values())


def is_whole(name: str) -> bool:
    """Whether a pattern of the vocabulary's `models` matches all of `name`, not only a part."""
    text = re.sub(r"[_ ./]+", "-", name.lower())
    return any(re.fullmatch(pattern, text) for pattern in rules("vocabulary")["models"].values())


def begins_known(stem: str) -> bool:
    """Whether a folder's name is that of a well-known dataset, with no more than a version."""
    text = re.sub(r"[_ .]+", "-", stem.lower())
    return any(
        re.match(rf"({pattern})[-\dv]*$", text)
        for domain, pattern in rules("vocabulary")["datasets"].items()
        if domain != "RL"
    )


def is_ambiguous(word: str) -> bool:
    """Whether a dataset's name is also a word that may stand anywhere: `weather`, `stock`."""
    return re.sub(r"(?<=[a-z])\d$", "", word.lower()) in word_list("ambiguous")


def says_nothing(stripped: str, of_class: bool = False) -> bool:
    """Whether a name only says what kind of thing it is of: `AudioMel`, `SalObj`, `train_clips`.

    A class's name may also say how it reads: `BucketingData`.
    """
    parts = re.findall(r"MMap|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", stripped)
    return all(
        part.isdigit()
        or part.lower() in word_list("reader_words")
        or (of_class and part.lower() in word_list("class_words"))
        or re.match(r"(train|val|test)(val|no)", part)
        for part in parts
    )
