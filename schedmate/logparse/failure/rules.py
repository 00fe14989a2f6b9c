"""The rules that classify lines of a log: data in `rules/*.yaml`, matched in linear time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from schedmate.data import load
from schedmate.errors import InputError
from schedmate.jobs import ErrorType, FaultyComponent

FOLDER = Path(__file__).parent / "rules"
TRACEBACK = r"Traceback \(most recent call last"
# An exception that is named without its traceback, perhaps after a rank's prefix.
BARE = (
    r"^(?:E {2,}|\[[^\]\n]{1,40}\]:? ?|\(\w[^)\n]{1,80}\) ?|\d{1,5}: ?|\[\d+,\d+\]<std\w+>: ?)?"
    r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt)\b"
)
# `module.Name: message` at the beginning of a line
EXCEPTION = re.compile(r"(?:[A-Za-z_][\w<>]*\.)*(?P<name>[A-Za-z_]\w*)(?:: ?(?P<message>.*))?$")

# What a shell reports of a program that drew a progress bar, on the bar's own line.
GLUED = (
    r"[\]\d%)}.] ?(?:Killed|Terminated|Aborted|Bus error|Segmentation fault|Illegal instruction"
    r"|Floating point exception)(?: \(core dumped\))?[ \t\r]*$"
)
# An exception that another one's message names.
_QUOTED = re.compile(r"\b(?P<name>[A-Z]\w*(?:Error|Exception|Interrupt|Refused|Timeout))\b")
# the class whose message is a key, whatever the key says
_A_KEY = re.compile(r"(?:E {2,})?(?:builtins\.)?KeyError: ")
_WORD = re.compile(r"\w")
UNKNOWN_EXCEPTION = "py-exception"
"""The id of the rule for exceptions that no other rule names."""
INTERRUPTED = "Interrupted"
"""The error name of an interruption."""
CHARACTERS = 2000
"""Characters of a message that are examined."""
NAMES_CODE = frozenset(
    {
        *("Attribute Error", "Name Error", "Import Error", "Key Error", "Type Error"),
        *("Syntax Error", "Index Error"),
    }
)
"""Errors whose messages quote the program, not the cause."""

Role = Literal["cause", "symptom", "exit", "stop", "hint", "benign"]
Strength = Literal["weak", "normal", "strong", "exact"]
STRENGTH: dict[Strength, int] = {"weak": 0, "normal": 1, "strong": 2, "exact": 3}


class Rule(BaseModel):
    """The meaning of one kind of line.

    `role`: a *cause* is a failure in its own right; a *symptom* is what others notice of one; an
    *exit* only reports that something ended; a *stop* ended the job on purpose; a *hint* is worth
    quoting; a *benign* line looks like a failure and is none. `strength` decides between rules that
    match one line. `explains` lists errors (`error_name`) that this one causes. A *general* rule
    knows the name of a failure but only guesses its type: there a language model may be asked. An
    exception with `why_own` is a script error if the program itself defines or raises it; `why_own`
    is then the reason.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    name: str | None
    type: ErrorType
    component: FaultyComponent | None
    recoverable: bool
    role: Role = "cause"
    strength: Strength = "normal"
    pattern: str | None = None
    exception: str | None = None
    explains: tuple[str, ...] = ()
    general: bool = False
    why: str
    why_own: str | None = None
    source: str
    examples: tuple[str, ...]
    counter_examples: tuple[str, ...] = ()
    area: str = ""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.pattern is None) == (self.exception is None):
            raise ValueError("give either `pattern` or `exception`")
        if not self.examples:
            raise ValueError("give at least one example")
        return self

    def own(self) -> Rule:
        """The rule to use if the job's own program defines or raises the exception."""
        if self.why_own is None:
            return self
        return self.model_copy(update={"type": "script", "why": self.why_own})


R = TypeVar("R", bound=Rule)


class RuleSet:
    """All rules, compiled as far as they are needed.

    Counted repetitions take most of the time to compile. All patterns together are therefore
    compiled without them (`_loose`), and each with them only if it may match.
    """

    def __init__(self, rules: list[Rule]) -> None:
        import re2

        self.rules = rules
        self.by_id = {rule.id: rule for rule in rules}
        self._lines = [rule for rule in rules if rule.pattern is not None]
        self._exact: dict[int, Any] = {}
        self._options = re2.Options()
        self._options.max_mem = 1 << 26
        self._options.log_errors = False

    @cached_property
    def prefilter(self) -> Any:
        """A pattern for every line of some bytes that a rule may match, benign ones excepted."""
        import re2

        wanted = [_bare(rule.pattern or "") for rule in self._lines if rule.role != "benign"]
        together = "(?m)" + "|".join(map(_loose, [TRACEBACK, BARE, GLUED, *wanted]))
        return re2.compile(together.encode(), self._options)

    @cached_property
    def _set(self) -> Any:
        import re2

        patterns = re2.Set.SearchSet(self._options)
        for rule in self._lines:
            patterns.Add(_loose(rule.pattern or ""))
        patterns.Compile()
        return patterns

    @cached_property
    def _exceptions(self) -> list[tuple[re.Pattern[str], Rule]]:
        return [(re.compile(rule.exception), rule) for rule in self.rules if rule.exception]

    def line(self, text: str) -> Rule | None:
        """The rule for one line (`Line.text`); benign rules take precedence.

        The message of a `KeyError` is a key, so only rules that name that class apply to it.
        """
        start = text[:4000].encode("utf-8", "replace")
        numbers = sorted(self._set.Match(start) or ())
        found = (self._lines[number] for number in numbers if self._matches(number, start))
        if _A_KEY.match(text):
            found = (rule for rule in found if "KeyError" in (rule.pattern or ""))
        return best(found)

    def _matches(self, number: int, text: bytes) -> bool:
        import re2

        exact = self._exact.get(number)
        if exact is None:
            pattern = (self._lines[number].pattern or "").encode()
            exact = self._exact[number] = re2.compile(pattern, self._options)
        return exact.search(text) is not None

    def exception(self, name: str) -> Rule | None:
        """The rule for an exception of that name, given without its modules."""
        return next((rule for one, rule in self._exceptions if one.fullmatch(name)), None)

    def quoted(self, rule: Rule, message: str) -> Rule | None:
        """The infrastructure failure, or the stop, that an exception's message names.

        The class of a wrapping exception says less about the cause than the name that it quotes.
        """
        if rule.exception is None or STRENGTH[rule.strength] or rule.name in NAMES_CODE:
            return None
        if rule.type in ("infrastructure", "none"):
            return None
        for match in _QUOTED.finditer(message[:CHARACTERS]):
            named = self.exception(match["name"])
            if named is not None and not named.general:
                # an interrupt is one where the whole message is, not where a sentence speaks of it
                whole = not _WORD.search(message[: match.start()] + message[match.end() :])
                if whole if named.name == INTERRUPTED else _decides(named):
                    return named
        return None


def _decides(named: Rule) -> bool:
    return named.type == "infrastructure" or named.role == "stop"


def best(rules: Iterator[Rule]) -> Rule | None:
    """The rule that decides: a benign one, else the strongest, else the first."""
    found: Rule | None = None
    for rule in rules:
        if rule.role == "benign":
            return rule
        if found is None or STRENGTH[rule.strength] > STRENGTH[found.strength]:
            found = rule
    return found


def _loose(pattern: str) -> str:
    """A pattern that compiles faster and matches, within a line, wherever this one does.

    Any counted repetition becomes an unlimited one.
    """
    pattern = _COUNTED.sub(lambda match: "*" if match[1] == "0" else "+", pattern)
    return _NEGATED.sub(r"[^\\n", pattern)


# `{n,m}`, and the start of a negated class, which must not reach into further lines
_COUNTED = re.compile(r"\{(\d+),\d+\}")
_NEGATED = re.compile(r"(?<!\\)\[\^(?!\\n)")


def _bare(pattern: str) -> str:
    """A pattern without group names, which may occur only once in a combined pattern."""
    return "(?:" + re.sub(r"\(\?P<\w+>", "(?:", pattern) + ")"


def read_rules(path: Path, kind: type[R], key: str = "rules") -> list[R]:
    """The rules of one file, under `key`; raises `InputError` if one is malformed."""
    content = load(str(path))
    try:
        defaults, area = content.get("defaults", {}), content["area"]
        rules = []
        for entry in content[key]:
            fields = {**defaults, **entry, "area": area}
            fields["counter_examples"] = fields.pop("not", ())
            if isinstance(fields.get("pattern"), list):  # one alternative a line
                fields["pattern"] = "|".join(fields["pattern"])
            rules.append(kind(**fields))
    except (ValidationError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} does not hold rules: {error}; correct it.") from error
    return rules


@cache
def load_rules() -> RuleSet:
    """The rules that come with schedmate, compiled once."""
    return RuleSet(
        [rule for path in sorted(FOLDER.glob("*.yaml")) for rule in read_rules(path, Rule)]
    )


def failed_examples(rules: RuleSet) -> list[str]:
    """The problems that the examples of the rules reveal, one sentence each."""
    problems = []
    seen: set[str] = set()
    for rule in rules.rules:
        if rule.id in seen:
            problems.append(f"{rule.id}: there are two rules of that id.")
        seen.add(rule.id)
        for example in rule.examples:
            found = match_text(rules, example)
            if found is None or found.id != rule.id:
                other = found.id if found else "no rule"
                problems.append(f"{rule.id}: its example goes to {other}: {example}")
        for example in rule.counter_examples:
            found = match_text(rules, example)
            if found is not None and found.id == rule.id:
                problems.append(f"{rule.id}: matches what it must not: {example}")
    return problems


def match_text(rules: RuleSet, text: str) -> Rule | None:
    """The rule for a line, or for the exception named by the line."""
    candidates = [rules.line(text)]
    match = EXCEPTION.match(text.strip())
    if match is not None:
        candidates.append(rules.exception(match["name"]))
    return best(rule for rule in candidates if rule is not None)
