"""Whether a finding is proved: the cited line exists, is used by the job, and contains the value.

A model proposes, this module decides. A value counts only as a name, number or string of code or
configuration (`tokens`), in a file that the launch command leads to (`reach`), on a line that can
run (`dead`), cited exactly or, as models count badly, at most `SLACK` lines away. A length may be
computed from several numbers, each cited (`numerals`), and is converted to steps here (`units`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from schedmate.agent.react.answer import Finding, Term
from schedmate.agent.react.dead import Dead
from schedmate.agent.react.defaults import documented_default
from schedmate.agent.react.names import domains, forms, normal
from schedmate.agent.react.numerals import evaluate, number, stands_for
from schedmate.agent.react.sources import Sources
from schedmate.agent.react.tokens import readable
from schedmate.agent.react.values import ITERS, NUMERIC, UNITS, typed
from schedmate.agent.units import as_length
from schedmate.jobs import Evidence, WorkloadMetadata
from schedmate.tools import RepoFiles

COMMAND = "command"
LIBRARY = "library:"
"""The prefix of a class or function whose documented default a finding reports."""
SLACK = 2
SURE = 0.7
"""Confidence of a model's value that its line proves."""
LIKELY = 0.5
"""Confidence of a class (task or unit) that its line neither names nor contradicts."""

_MAY_BE_ABSENT = frozenset({ITERS, "training_config.iter_type", "dataset_config.valid"})
_NAMED = {
    "epoch": UNITS["epoch"],
    "step": re.compile(r"step|iter|update|round|episode|token|sample|frame", re.IGNORECASE),
}
"""Words that name the unit of a number on their line."""

_LASTS = re.compile(r"epoch|step|iter|update|duration|budget|length|total|max", re.IGNORECASE)
_ROLES = {
    "iters": _LASTS,
    "iter_type": _LASTS,
    "valid": re.compile(r"val|eval|dev|test|held", re.IGNORECASE),
}
_NONE = frozenset({"none", "null", "false", "no", "0", "-1", "~", "off", "never"})

_Proof = Callable[[list[str]], tuple[float, str]]
"""The confidence that a line with these tokens is proof (0: none), and the reason if not."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A finding that was rejected, and the reason."""

    finding: Finding
    reason: str

    def __str__(self) -> str:
        one = self.finding
        return f"{one.field} = {one.value!r} at {one.file}:{one.line}: {self.reason}"


class _RefusedError(Exception):
    """A finding is not proved; the message says what is missing."""


class Citations:
    """Checks findings against one repository; `taking_part` comes from `reach.reached`.

    The launch command is a file of one line, `COMMAND`; `entry` is the file that it runs. `known`
    is the result of static analysis, with the factors by which a length is converted.
    """

    def __init__(
        self,
        files: RepoFiles,
        taking_part: set[str],
        command: str = "",
        known: WorkloadMetadata | None = None,
        entry: str | None = None,
    ) -> None:
        self._taking_part = taking_part
        self._known = known or WorkloadMetadata()
        self._command = {1: re.split(r"[\s=]+", command)}
        self._sources = Sources(files)
        self._dead = Dead(self._sources, taking_part, command, entry)

    def check(self, finding: Finding) -> Evidence | Rejection:
        """The finding as evidence, or the reason to reject it.

        A value of None states that there is none.
        """
        try:
            if finding.value is None and not finding.formula:
                return self._absent(finding)
            if finding.file.startswith(LIBRARY):
                return self._default(finding)
            if finding.formula is not None or finding.terms:
                return self._computed(finding)
            return self._stated(finding)
        except _RefusedError as refusal:
            return Rejection(finding, str(refusal))

    def _stated(self, finding: Finding) -> Evidence:
        value = typed(finding)
        if value is None:
            raise _RefusedError("the value is not one this field can have")

        def proof(line: list[str]) -> tuple[float, str]:
            return self._holds(finding.field, value, finding.file.removeprefix("./"), line)

        return self._length(finding, self._at(finding, value, proof))

    def _computed(self, finding: Finding) -> Evidence:
        if finding.field not in NUMERIC or not finding.formula or not finding.terms:
            raise _RefusedError("a formula needs terms, and a field that is a number")
        shown = finding.formula
        places = [
            self._at(term, term.value, _number_proof(finding.field, term.value, term=True))
            for term in finding.terms
        ]
        for letter, term, place in zip("abcdefgh", finding.terms, places, strict=False):
            shown = re.sub(rf"\b{letter}\b", f"{term.value:,g} ({place.where()})", shown)
        value = evaluate(finding.formula, [term.value for term in finding.terms])
        if value is None:
            raise _RefusedError(
                f"{finding.formula!r} is no sum or product over its terms a, b, ..."
            )
        claimed = number(str(finding.value)) if finding.value is not None else value
        if claimed is None or abs(claimed - value) > max(1.0, 0.01 * value):
            raise _RefusedError(f"the formula gives {value:,g}, not {finding.value}")
        whole = int(value) if finding.field != "training_config.lr" and value >= 1 else value
        note = f"{shown} = {whole:,}"
        return self._length(finding, places[0].model_copy(update={"value": whole, "note": note}))

    def _length(self, finding: Finding, proof: Evidence) -> Evidence:
        """The evidence for a length in steps or epochs; other evidence is unchanged."""
        if finding.field != ITERS:
            return proof
        length = as_length(float(proof.value), finding.unit, self._known)
        if isinstance(length, str):
            raise _RefusedError(length)
        notes = [note for note in (proof.note, length.formula) if note]
        update = {"value": length.value, "note": "; ".join(notes) or None}
        return proof.model_copy(update=update)

    def unit(self, finding: Finding, proof: Evidence) -> Evidence | None:
        """The unit with which a proved length was reported, or None if its line names another one.

        A converted length is in steps by our own formula, and needs no line.
        """
        if finding.unit is None or proof.value is None:
            return None
        unit = "epoch" if finding.unit == "epoch" else "step"
        line = (self._lines(proof.file or COMMAND) or {}).get(proof.line or 1, [])
        named = {name for name, words in _NAMED.items() if any(words.search(one) for one in line)}
        if named and unit not in named:
            return None
        sure = SURE if named else LIKELY
        return proof.model_copy(update={"value": unit, "confidence": min(sure, proof.confidence)})

    def _absent(self, finding: Finding) -> Evidence:
        if finding.field not in _MAY_BE_ABSENT:
            raise _RefusedError("every training has one; leave it out if you did not find it")
        role = _ROLES[finding.field.rpartition(".")[2]]

        def proof(line: list[str]) -> tuple[float, str]:
            none = any(token.lower() in _NONE for token in line)
            endless = role is _LASTS and "while" in line and ("True" in line or "1" in line)
            shown = endless or (none and any(role.search(token) for token in line))
            return (SURE, "") if shown else (0.0, "the line does not say that there is none")

        return self._at(finding, None, proof)

    def _default(self, finding: Finding) -> Evidence:
        name = finding.file.removeprefix(LIBRARY).strip()
        last = normal(name.rpartition(".")[2])
        if not any(last in self._forms_in(path) for path in (COMMAND, *sorted(self._taking_part))):
            raise _RefusedError(f"nothing that runs uses {name}")
        value, key = typed(finding), finding.field.rpartition(".")[2]
        default = documented_default(name, key)
        if default is None:
            raise _RefusedError(f"no documented default of {name} is known for {key}")
        same = str(default) == str(value) or number(str(default)) == number(str(value))
        if value is None or not same:
            raise _RefusedError(f"the documented default of {name} is {default}")
        return Evidence(value=value, source="library", text=name, confidence=SURE)

    def _at(self, cited: Finding | Term, value: object, proof: _Proof) -> Evidence:
        """The evidence that `proof` accepts on the cited line, or next to it."""
        path = cited.file.removeprefix("./")
        lines = self._lines_of(path)
        reason = "there is no code on the line"
        for distance in range(SLACK + 1):
            for line in dict.fromkeys((cited.line - distance, cited.line + distance)):
                sure, missing = proof(lines.get(line, []))
                if not sure:
                    reason = missing if distance == 0 and lines.get(line) else reason
                elif dead := self._dead.reason(path, line):
                    reason = dead
                elif sure == SURE or distance == 0:
                    command = path == COMMAND
                    return Evidence(
                        value=value,
                        source="model",
                        file=None if command else path,
                        line=None if command else line,
                        text="the launch command" if command else None,
                        confidence=sure,
                    )
        raise _RefusedError(reason)

    def _lines_of(self, path: str) -> dict[int, list[str]]:
        if path != COMMAND and not readable(path):
            raise _RefusedError("the file is neither code nor configuration")
        lines = self._lines(path)
        if lines is None:
            raise _RefusedError("there is no such file, or it may not be read")
        if path != COMMAND and path not in self._taking_part:
            raise _RefusedError("the launch command does not lead to this file")
        return lines

    def _holds(
        self, field: str, value: str | float, path: str, line: list[str]
    ) -> tuple[float, str]:
        if not line:
            return 0.0, "there is no code on the line"
        if field == "model_config.task_type":
            found = domains(line)
            if found:
                names = ", ".join(sorted(found))
                return (SURE, "") if value in found else (0.0, f"it names {names}")
            return LIKELY, ""
        if field == "training_config.iter_type":
            said = any(UNITS[str(value)].search(token) for token in line)
            return (SURE, "") if said else (0.0, f"the line names no {value}")
        if field in NUMERIC:
            # On the command line a flag may be as short as -e.
            if path == COMMAND:
                said = any(number(token) == value for token in line)
                return (SURE, "") if said else (0.0, "the launch command does not hold it")
            return _number_proof(field, float(value))(line)
        missing = f"the line does not hold {str(value)[:60]!r} as a name or text of the program"
        if any(normal(str(value)) in forms(token) for token in line):
            return SURE, ""
        # `wikitext/wikitext-103-raw-v1`: a part of a name may stand elsewhere in the file.
        *others, last = (normal(part) for part in str(value).split("/"))
        if others and any(last in forms(token) for token in line):
            whole = self._forms_in(path) | self._forms_in(COMMAND)
            return (SURE, "") if whole.issuperset(others) else (0.0, missing)
        return 0.0, missing

    def _forms_in(self, path: str) -> set[str]:
        lines = self._lines(path) or {}
        return {form for line in lines.values() for token in line for form in forms(token)}

    def _lines(self, path: str) -> dict[int, list[str]] | None:
        return self._command if path == COMMAND else self._sources.tokens(path)


def _number_proof(field: str, value: float, *, term: bool = False) -> _Proof:
    """Whether a line has a number for a field; a `term` may be of any quantity."""

    def proof(line: list[str]) -> tuple[float, str]:
        if term:
            held = any(number(token) == value for token in line)
            return (SURE, "") if held else (0.0, f"the line does not hold the number {value:g}")
        reason = stands_for(field, value, line)
        return (SURE, "") if reason is None else (0.0, reason)

    return proof
