"""Proves findings: the cited line exists, is used by the job, and contains the value.

A model proposes, this module decides. A value counts only as a name, number or string of code or
configuration, in a file that the launch command leads to, on a line that can run (`sources`), cited
exactly or, as models count badly, at most `SLACK` lines away. A length may be computed from several
numbers, each cited, and is converted to steps here (`units`). Below `Citations` stand the form in
which a model reports, the types of fields, numbers and formulas, names, and documented defaults.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator

from schedmate.agent.fields import task
from schedmate.agent.fields.candidates import rules
from schedmate.agent.fields.dataset_names import class_dataset, dataset_name
from schedmate.agent.fields.model_built import model_name
from schedmate.agent.fields.settings import normal_name
from schedmate.agent.react.sources import DeadLines, Sources, is_readable, tokens_by_line
from schedmate.agent.units import ITERS, UNIT, Unit, as_length
from schedmate.base.data import load
from schedmate.jobs import Evidence, TaskType, WorkloadMetadata
from schedmate.llm.redact import PLACEHOLDER
from schedmate.tools import RepoFiles

SIZE_FIELDS = ("model_config.n_head", "training_config.image_size", "training_config.seq_length")
"""Further numbers, asked for where what static analysis read cannot be."""
OPTIONAL_FIELDS: tuple[str, ...] = (
    "training_config.batch_size",
    "training_config.lr",
    "training_config.optimizer",
    "training_config.precision",
    "model_config.d_model",
    "model_config.n_layer",
    "dataset_config.num_workers",
)
"""Fields beside the mandatory ones that are asked for when the model reads alone (Figure 6)."""
ASKABLE_FIELDS = WorkloadMetadata.MANDATORY + OPTIONAL_FIELDS
MAX_FINDINGS = 200
MAX_TERMS = 6


class Term(BaseModel):
    """A number of a formula, and the line that is said to hold it."""

    model_config = ConfigDict(extra="forbid")

    value: float
    file: str
    line: int


class Finding(BaseModel):
    """One value, and the line that is said to hold it.

    `value` is None where the line shows that there is none, or with `none_found` where the program
    has none and no line can show that. `quote` is the text of the line, which counts where it is
    found; `line` says which of several. A length that several numbers make is
    given as `terms` and a `formula` over their letters, `a / (b * c)`, which is computed here.
    """

    model_config = ConfigDict(extra="forbid")

    field: str
    value: str | int | float | None
    file: str
    line: int
    quote: str | None = None
    none_found: bool = False
    unit: Unit | None = None
    formula: str | None = Field(None, max_length=80)
    terms: list[Term] = Field(default_factory=list, max_length=MAX_TERMS)


class Findings(BaseModel):
    """All that the model reports; several findings of one field are tried in order."""

    model_config = ConfigDict(extra="forbid")

    findings: list[Finding]

    @field_validator("findings", mode="before")
    @classmethod
    def _only_whole_ones(cls, found: Any) -> Any:
        # One finding without a value or a line must not cost the others.
        if not isinstance(found, list):
            return found
        return [one for one in found[:MAX_FINDINGS] if _is_finding(one)]


def _is_finding(found: Any) -> bool:
    try:
        Finding.model_validate(found)
    except ValidationError:
        return False
    return True


def findings_schema(fields: tuple[str, ...]) -> type[Findings]:
    """`Findings` whose JSON schema knows only the fields asked for.

    Validation accepts any: what was not asked for is ignored later, and costs nothing else.
    """
    asked = Field(json_schema_extra={"enum": list(fields)})
    finding = create_model("Finding", __base__=Finding, field=(str, asked))
    return create_model("Findings", __base__=Findings, findings=(list[finding], ...))


# The values of findings in the types of their fields.


NUMERIC_FIELDS = frozenset(
    {
        ITERS,
        "training_config.batch_size",
        "training_config.lr",
        "model_config.d_model",
        "model_config.n_layer",
        "dataset_config.num_workers",
        *SIZE_FIELDS,
    }
)
_MAY_BE_ZERO = frozenset({"dataset_config.num_workers"})
UNIT_PATTERNS = {
    "epoch": re.compile(r"epoch", re.IGNORECASE),
    "step": re.compile(r"step|iter|update|batch|round|episode|token|sample|frame", re.IGNORECASE),
}


def typed_value(finding: Finding) -> str | int | float | None:
    """The value converted to the type of its field, or None if that is impossible."""
    value = finding.value
    if finding.field in NUMERIC_FIELDS:
        number = parse_number(str(value))
        if number is None or number < 0 or (number == 0 and finding.field not in _MAY_BE_ZERO):
            return None
        return (
            int(number) if number.is_integer() and finding.field != "training_config.lr" else number
        )
    text = str(value).strip()
    if finding.field == "model_config.task_type":
        return next((one for one in get_args(TaskType) if one.lower() == text.lower()), None)
    if finding.field == UNIT:
        unit = text.lower().rstrip("s")
        return unit if unit in UNIT_PATTERNS else None
    text = text.rstrip("_-./ ") or text
    if not text or len(text) > 200 or "\n" in text or PLACEHOLDER.search(text):
        return None
    return text


# Whether a finding is proved.


COMMAND = "command"
LIBRARY = "library:"
"""The prefix of a class or function whose documented default a finding reports."""
SLACK = 2
MIN_QUOTE = 6
"""Shorter quotations are found on any line [characters]."""
MAX_QUOTED = 20
"""Most lines that one quotation is tried on."""
STATED_CONFIDENCE = 0.95
"""Confidence of a model's value that the launch command states under an option of that field. Of 59
values that a capable model proved against static analysis all were right, so 95 % are at least."""
SURE_CONFIDENCE = 0.8
"""Confidence of a model's value that its line proves: no static answer that is as sure gives way,
as a name on a line may be that of something else."""
LIKELY_CONFIDENCE = 0.5
"""Confidence of a class (task or unit) that its line neither names nor contradicts."""

_MAY_BE_ABSENT = frozenset({ITERS, UNIT, "dataset_config.valid"})
_UNIT_WORDS = UNIT_PATTERNS | {
    "step": re.compile(r"step|iter|update|round|episode|token|sample|frame", re.IGNORECASE)
}
"""Words that name the unit of a number on their line, whose batch size says nothing of it."""

_LENGTH_WORDS = re.compile(
    r"epoch|step|iter|update|duration|budget|length|total|max", re.IGNORECASE
)
_ROLE_WORDS = {
    "iters": _LENGTH_WORDS,
    "iter_type": _LENGTH_WORDS,
    "valid": re.compile(r"val|eval|dev|test|held", re.IGNORECASE),
}
_NO_VALUE_WORDS = frozenset(
    {"none", "null", "false", "no", "-1", "~", "off", "never", "", "[]", "{}"}
)

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


@dataclass(slots=True)
class Reading:
    """The result of a reading: the values proved, and the findings rejected."""

    found: dict[str, Evidence] = field(default_factory=dict)
    dropped: list[Rejection] = field(default_factory=list)


class _NotProvedError(Exception):
    """A finding is not proved; the message says what is missing."""


class Citations:
    """Checks findings against one repository; `taking_part` comes from `sources.files_of_job`.

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
        self._sources = Sources(files)
        words = tokens_by_line("command.sh", [command]).get(1, [])
        self._command = {1: [*re.split(r"[\s=]+", command), *words]}
        self._dead = DeadLines(self._sources, taking_part, command, entry)

    def prove(self, findings: Iterable[Finding]) -> Reading:
        """The first valid finding for each field, and the rejected ones.

        A length reported with its unit proves both.
        """
        reading, units = Reading(), dict[str, Evidence]()
        for finding in findings:
            if finding.field in reading.found:
                continue
            checked = self.check(finding)
            if isinstance(checked, Rejection):
                reading.dropped.append(checked)
                continue
            reading.found[finding.field] = checked
            if finding.field == ITERS and (unit := self.unit(finding, checked)) is not None:
                units[UNIT] = unit
        reading.found |= units
        return reading

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
        except _NotProvedError as refusal:
            return Rejection(finding, str(refusal))

    def _stated(self, finding: Finding) -> Evidence:
        value = typed_value(finding)
        if value is None:
            raise _NotProvedError("the value is not one this field can have")

        def proof(line: list[str]) -> tuple[float, str]:
            return self._holds(finding.field, value, finding.file.removeprefix("./"), line)

        return self._length(finding, self._at(finding, value, proof))

    def _computed(self, finding: Finding) -> Evidence:
        if finding.field not in NUMERIC_FIELDS or not finding.formula or not finding.terms:
            raise _NotProvedError("a formula needs terms, and a field that is a number")
        shown = finding.formula
        places = [
            self._at(term, term.value, _number_proof(finding.field, term.value, term=True))
            for term in finding.terms
        ]
        for letter, term, place in zip("abcdefgh", finding.terms, places, strict=False):
            shown = re.sub(rf"\b{letter}\b", f"{term.value:,g} ({place.where()})", shown)
        value = evaluate_formula(finding.formula, [term.value for term in finding.terms])
        if value is None:
            raise _NotProvedError(
                f"{finding.formula!r} is no sum or product over its terms a, b, ..."
            )
        claimed = parse_number(str(finding.value)) if finding.value is not None else value
        if claimed is None or abs(claimed - value) > max(1.0, 0.01 * value):
            raise _NotProvedError(f"the formula gives {value:,g}, not {finding.value}")
        whole = int(value) if finding.field != "training_config.lr" and value >= 1 else value
        note = f"{shown} = {whole:,}"
        return self._length(finding, places[0].model_copy(update={"value": whole, "note": note}))

    def _length(self, finding: Finding, proof: Evidence) -> Evidence:
        """The evidence for a length in steps or epochs; other evidence is unchanged."""
        if finding.field != ITERS:
            return proof
        length = as_length(float(proof.value), finding.unit, self._known)
        if isinstance(length, str):
            raise _NotProvedError(length)
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
        named = {
            name for name, words in _UNIT_WORDS.items() if any(words.search(one) for one in line)
        }
        if named and unit not in named:
            return None
        sure = SURE_CONFIDENCE if named else LIKELY_CONFIDENCE
        return proof.model_copy(update={"value": unit, "confidence": min(sure, proof.confidence)})

    def _absent(self, finding: Finding) -> Evidence:
        if finding.field not in _MAY_BE_ABSENT:
            raise _NotProvedError("every training has one; leave it out if you did not find it")
        if finding.none_found:
            note = "the model found none"
            return Evidence(value=None, source="model", confidence=LIKELY_CONFIDENCE, note=note)
        role = _ROLE_WORDS[finding.field.rpartition(".")[2]]

        def proof(line: list[str]) -> tuple[float, str]:
            none = any(
                token.strip().lower() in _NO_VALUE_WORDS or parse_number(token) == 0
                for token in line
            )
            endless = role is _LENGTH_WORDS and "while" in line and ("True" in line or "1" in line)
            shown = endless or (none and any(role.search(token) for token in line))
            return _sure_if(shown, "the line does not say that there is none")

        return self._at(finding, None, proof)

    def _default(self, finding: Finding) -> Evidence:
        name = finding.file.removeprefix(LIBRARY).strip()
        last = bare_name(name.rpartition(".")[2])
        if not any(last in self._forms_in(path) for path in (COMMAND, *sorted(self._taking_part))):
            raise _NotProvedError(f"nothing that runs uses {name}")
        value, key = typed_value(finding), finding.field.rpartition(".")[2]
        default = documented_default(name, key)
        if default is None:
            raise _NotProvedError(f"no documented default of {name} is known for {key}")
        same = str(default) == str(value) or parse_number(str(default)) == parse_number(str(value))
        if value is None or not same:
            raise _NotProvedError(f"the documented default of {name} is {default}")
        return Evidence(value=value, source="library", text=name, confidence=SURE_CONFIDENCE)

    def _at(self, cited: Finding | Term, value: object, proof: _Proof) -> Evidence:
        """The evidence that `proof` accepts on the quoted or cited line, or next to it."""
        path = cited.file.removeprefix("./")
        lines = self._lines_of(path)
        reason = "there is no code on the line"
        quoted = self._quoted(path, cited)
        around = [
            line
            for distance in range(SLACK + 1)
            for line in dict.fromkeys((cited.line - distance, cited.line + distance))
        ]
        for line in dict.fromkeys([*quoted, *around]):
            exact = line in quoted or (not quoted and line == cited.line)
            sure, missing = proof(lines.get(line, []))
            if not sure:
                reason = missing if exact and lines.get(line) else reason
            elif dead := self._dead.reason(path, line):
                reason = dead
            elif sure == SURE_CONFIDENCE or exact:
                command = path == COMMAND
                stated = command and isinstance(cited, Finding) and _is_option(cited, lines[1])
                return Evidence(
                    value=value,
                    source="model",
                    file=None if command else path,
                    line=None if command else line,
                    text="the launch command" if command else None,
                    confidence=max(sure, STATED_CONFIDENCE) if stated else sure,
                )
        raise _NotProvedError(reason + self._nearest(path, cited.line, proof))

    def _quoted(self, path: str, cited: Finding | Term) -> list[int]:
        """The lines that hold the quotation, the nearest first: models miscount lines."""
        words = " ".join((getattr(cited, "quote", None) or "").split())
        if len(words) < MIN_QUOTE or path == COMMAND:
            return []
        found = [
            number
            for number, text in enumerate(self._sources.lines(path), 1)
            if words in " ".join(text.split())
        ]
        return sorted(found, key=lambda number: abs(number - cited.line))[:MAX_QUOTED]

    def _nearest(self, path: str, line: int, proof: _Proof) -> str:
        """Where the same file, or the command, would prove it: the end of a reason."""
        for place in dict.fromkeys((path, COMMAND)):
            lines = self._lines(place) or {}
            for number in sorted(lines, key=lambda one: abs(one - line)):
                if proof(lines[number])[0] == SURE_CONFIDENCE and not self._dead.reason(
                    place, number
                ):
                    return f"; {place}:{number} does" if place != COMMAND else "; `command` does"
        return ""

    def _lines_of(self, path: str) -> dict[int, list[str]]:
        known = path in (COMMAND, *self._taking_part) or is_readable(path)
        if not known:
            raise _NotProvedError("the file is neither code nor configuration")
        lines = self._lines(path)
        if lines is None:
            raise _NotProvedError("there is no such file, or it may not be read")
        if path != COMMAND and path not in self._taking_part:
            raise _NotProvedError("the launch command does not lead to this file")
        return lines

    def _holds(
        self, field: str, value: str | float, path: str, line: list[str]
    ) -> tuple[float, str]:
        if not line:
            return 0.0, "there is no code on the line"
        if field == "model_config.task_type":
            if says_domain(str(value), line):
                return SURE_CONFIDENCE, ""
            domains = named_domains(line)
            if domains:
                names = ", ".join(sorted(domains))
                return _sure_if(value in domains, f"it names {names}")
            return LIKELY_CONFIDENCE, ""
        if field == UNIT:
            if any(UNIT_PATTERNS[str(value)].search(token) for token in line):
                return SURE_CONFIDENCE, ""
            other = {n for n, words in _UNIT_WORDS.items() if any(map(words.search, line))}
            if other:
                return 0.0, f"the line names a {min(other)}"
            return LIKELY_CONFIDENCE, ""
        if field in NUMERIC_FIELDS:
            # On the command line a flag may be as short as -e.
            if path == COMMAND:
                is_in_command = any(parse_number(token) == value for token in line)
                return _sure_if(is_in_command, "the launch command does not hold it")
            return _number_proof(field, float(value))(line)
        missing = f"the line does not hold {str(value)[:60]!r} as a name or text of the program"
        if any(bare_name(str(value)) in name_forms(token) for token in line):
            return SURE_CONFIDENCE, ""
        if field == "training_config.optimizer" and any(
            bare_name(str(value)) in optimizer_forms(token) for token in line
        ):
            return SURE_CONFIDENCE, ""
        # `wikitext/wikitext-103-raw-v1`: a part of a name may stand elsewhere in the file.
        *others, last = (bare_name(part) for part in str(value).split("/"))
        if others and any(last in name_forms(token) for token in line):
            whole = self._forms_in(path) | self._forms_in(COMMAND)
            return _sure_if(whole.issuperset(others), missing)
        return 0.0, missing

    def _forms_in(self, path: str) -> set[str]:
        lines = self._lines(path) or {}
        return {form for line in lines.values() for token in line for form in name_forms(token)}

    def _lines(self, path: str) -> dict[int, list[str]] | None:
        return self._command if path == COMMAND else self._sources.tokens(path)


def _is_option(finding: Finding, command: Sequence[str]) -> bool:
    """Whether the command states the value after an option of its field."""
    roles = load("agent/react/roles.yaml")
    key = finding.field.rpartition(".")[2]
    pattern = roles["options"].get(key) or roles["roles"].get(key, r"(?!)")
    option = re.compile(pattern, re.IGNORECASE)
    number, name = parse_number(str(finding.value)), bare_name(str(finding.value))
    return any(
        option.search(before) is not None
        and (parse_number(value) == number if number is not None else name in name_forms(value))
        for before, value in pairwise(command)
    )


def _sure_if(holds: bool, reason: str) -> tuple[float, str]:
    return (SURE_CONFIDENCE, "") if holds else (0.0, reason)


def _number_proof(field: str, value: float, *, term: bool = False) -> _Proof:
    """Whether a line has a number for a field; a `term` may be of any quantity."""

    def proof(line: list[str]) -> tuple[float, str]:
        if term:
            held = any(parse_number(token) == value for token in line)
            return _sure_if(held, f"the line does not hold the number {value:g}")
        reason = refusal_of_number(field, value, line)
        return _sure_if(reason is None, reason or "")

    return proof


# Numbers on a line: the quantity of each, and formulas over several of them.


MAX_VALUE = 1e18
_LETTERS = "abcdefgh"
_CARRIER_WORDS = frozenset({"default", "type", "int", "float", "str", "value", "const", "optional"})
"""Words between the name of an argument and its number."""
_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def parse_number(text: str) -> float | None:
    """The number that a token spells, `30_000` and `6.5e12` included, or None."""
    try:
        number = float(text.replace(",", "").replace("_", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def refusal_of_number(field: str, wanted: float, line: Sequence[str]) -> str | None:
    """The reason why no token of a line has this number for this field, or None if one does.

    The name before a number determines its quantity. An uninformative name is accepted; the name of
    another quantity is not.
    """
    places = [at for at, token in enumerate(line) if _is_number(token, wanted)]
    if not places:
        return f"the line does not hold the number {wanted:g}"
    own, other = _role_patterns(field)
    reason = ""
    for at in places:
        before = [token for token in reversed(line[:at]) if parse_number(token) is None]
        name = next((token for token in before if token.lower() not in _CARRIER_WORDS), "")
        role = None if own.search(name) else other.search(name)
        if role is None:
            return None
        reason = f"there the number is a {role[0].lower().strip('._-')}"
    return reason


def _is_number(token: str, wanted: float) -> bool:
    found = parse_number(token)
    return found is not None and math.isclose(found, wanted)


@cache
def _role_patterns(field: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Names of this field's quantity, and those of all others."""
    roles: Mapping[str, Any] = load("agent/react/roles.yaml")["roles"]
    own = roles.get(field.rpartition(".")[2], r"(?!)")
    others = [pattern for name, pattern in roles.items() if name != field.rpartition(".")[2]]
    return re.compile(own, re.IGNORECASE), re.compile("|".join(others), re.IGNORECASE)


def evaluate_formula(formula: str, values: Sequence[float]) -> float | None:
    """The value of a formula over the letters `a`, `b`, ... and plain numbers below 10.

    Sums, differences, products and quotients only; None for anything else, and for a result that is
    not a number. Larger numbers have to be cited as terms.
    """
    try:
        tree = ast.parse(formula, mode="eval")
        result = _formula_value(tree.body, dict(zip(_LETTERS, values, strict=False)))
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError, MemoryError):
        return None
    return result if math.isfinite(result) and 0 < result <= MAX_VALUE else None


def _formula_value(node: ast.expr, letters: Mapping[str, float]) -> float:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = _formula_value(node.left, letters), _formula_value(node.right, letters)
        return _OPERATIONS[type(node.op)](left, right)
    if isinstance(node, ast.Name) and node.id in letters:
        return letters[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        if 0 < node.value < 10:
            return float(node.value)
    raise ValueError("no formula over the terms")


# The names that a token of a program may denote, and the domains they belong to.


def named_domains(line: list[str]) -> set[str]:
    """The domains of the models and datasets named on a line."""
    vocabulary = rules("vocabulary")
    return {
        domain
        for token in line
        for table in ("models", "datasets")
        for domain in task.domains_of(token, vocabulary[table])
    }


def says_domain(domain: str, line: list[str]) -> bool:
    """Whether a line speaks of a domain by its name or in the words of its field."""
    words = rules("vocabulary")["words"].get(domain, r"(?!)")
    texts = [re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_ ./]+", "-", token).lower() for token in line]
    return any(domain.lower() in text.split("-") or re.search(words, text) for text in texts)


@lru_cache(maxsize=65_536)  # a long-lived hook reads many repositories
def name_forms(token: str) -> frozenset[str]:
    """The names that a token may denote: itself, or parts of a path or dotted name."""
    file = PurePosixPath(token.replace("\\", "/"))
    parts = [token, *re.split(r"[/\\]", token), *token.split("."), file.stem]
    read = (dataset_name(token), model_name(token), class_dataset(token))
    return frozenset(form for part in (*parts, *read) if part and (form := bare_name(part)))


def optimizer_forms(token: str) -> set[str]:
    """The optimisers that a name may be made of: AdamW of `AdamWConfig` and of `adamw_torch`."""
    last = token.rpartition(".")[2]
    stem = re.sub(r"_?(optimizers?|optim|config|cfg|args|params)$", "", last, flags=re.IGNORECASE)
    return {bare_name(part) for part in (stem, *re.split(r"[\W_]+", last)) if bare_name(part)}


def bare_name(text: str) -> str:
    """A name without case and punctuation."""
    return re.sub(r"[\W_]", "", text.casefold())


# Documented defaults of libraries, from the table that static analysis uses as well.


_LENGTH_NAMES = ("num_train_epochs", "max_epochs", "epochs", "max_steps")


def documented_default(name: str, key: str) -> Any:
    """The default of the field `key` of the library class `name`; None if not known.

    `name` is a dotted path, or its last part alone.
    """
    table: dict[str, dict[str, Any]] = load("agent/interp/libs/libraries.yaml")["records"]
    last = name.rpartition(".")[2]
    fields = table.get(name) or next(
        (entry for path, entry in table.items() if path.rpartition(".")[2] == last), None
    )
    if fields is None:
        return None
    names = rules("names")
    aliases = _LENGTH_NAMES if key == "iters" else (key, *names["extras"].get(key, ()))
    defaults = {normal_name(field): value for field, value in fields.items()}
    values = (defaults.get(normal_name(alias)) for alias in aliases)
    return next((one for one in values if one is not None and one != -1), None)
