"""Says what one line of a log means: by the rules, by its wording, and how severe it calls
itself.

Rules are data (`rules/*.yaml`), matched in linear time. A site adds its own: a folder that the
settings name (`site_rules`), or one that a package registers as an entry point. A line without a
rule reports trouble by its level, by words for failure or by an errno; the subsystem that it names
decides the type (`subsystems.yaml`). The severity that a line states for itself is read in the
formats of many loggers (`severity.yaml`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from schedmate.base.data import load
from schedmate.base.errors import InputError, UsageError, reason_of, unreadable
from schedmate.base.inputs import first_fault
from schedmate.base.plugins import RULES, load_plugin, plugins
from schedmate.base.reading import MOST_RULES, open_binary
from schedmate.jobs import ErrorType, FaultyComponent

RULES_FOLDER = Path(__file__).parent / "rules"
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
LONGEST_NAME = 200
"""Longest name that is taken for one of an exception; their patterns are Python's [characters]."""
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
    knows the name of a failure but only guesses its type: there a language model may be asked.
    A cause of `unknown` type may say which is `likely`; that of a symptom's own `type` is no more.
    `why_own` is the reason to give for an exception whose class the program itself defines.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    name: str | None
    type: ErrorType
    component: FaultyComponent | None
    recoverable: bool
    role: Role = "cause"
    strength: Strength = "normal"
    likely: ErrorType | None = None
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

    def as_script(self, why: str | None = None, *, shown: bool = True) -> Rule:
        """The rule where the job's own program is at fault, why, and whether that is shown."""
        changes = {"type": "script", "general": self.general and not shown}
        return self.model_copy(update=changes | {"why": self.why_own or why or self.why})


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

        wanted = [
            _without_groups(rule.pattern or "") for rule in self._lines if rule.role != "benign"
        ]
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
        start = text.encode("utf-8", "replace")
        numbers = sorted(self._set.Match(start) or ())
        candidates = (self._lines[number] for number in numbers if self._matches(number, start))
        if _A_KEY.match(text):
            candidates = (rule for rule in candidates if "KeyError" in (rule.pattern or ""))
        return deciding_rule(candidates)

    def _matches(self, number: int, text: bytes) -> bool:
        import re2

        exact = self._exact.get(number)
        if exact is None:
            pattern = (self._lines[number].pattern or "").encode()
            exact = self._exact[number] = re2.compile(pattern, self._options)
        return exact.search(text) is not None

    def exception(self, name: str) -> Rule | None:
        """The rule for an exception of that name, given without its modules."""
        if len(name) > LONGEST_NAME:
            return None
        return next((rule for one, rule in self._exceptions if one.fullmatch(name)), None)

    def quoted(self, rule: Rule, message: str) -> Rule | None:
        """The infrastructure failure, or the stop, that an exception's message names.

        The class of a wrapping exception says less about the cause than the name that it quotes.
        """
        if rule.exception is None or STRENGTH[rule.strength] or rule.name in NAMES_CODE:
            return None
        if rule.type in ("infrastructure", "none"):
            return None
        for match in _QUOTED.finditer(message):
            named = self.exception(match["name"])
            if named is not None and not named.general:
                # an interrupt is one where the whole message is, not where a sentence speaks of it
                whole = not _WORD.search(message[: match.start()] + message[match.end() :])
                if whole if named.name == INTERRUPTED else _takes_over(named):
                    return named
        return None


def _takes_over(named: Rule) -> bool:
    return named.type == "infrastructure" or named.role == "stop"


def deciding_rule(rules: Iterator[Rule]) -> Rule | None:
    """The rule that decides: a benign one, else the strongest, else the first."""
    strongest: Rule | None = None
    for rule in rules:
        if rule.role == "benign":
            return rule
        if strongest is None or STRENGTH[rule.strength] > STRENGTH[strongest.strength]:
            strongest = rule
    return strongest


def _loose(pattern: str) -> str:
    """A pattern that compiles faster and matches, within a line, wherever this one does.

    Any counted repetition becomes an unlimited one.
    """
    pattern = _COUNTED.sub(lambda match: "*" if match[1] == "0" else "+", pattern)
    return _NEGATED.sub(r"[^\\n", pattern)


# `{n,m}`, and the start of a negated class, which must not reach into further lines
_COUNTED = re.compile(r"\{(\d+),\d+\}")
_NEGATED = re.compile(r"(?<!\\)\[\^(?!\\n)")


def _without_groups(pattern: str) -> str:
    """A pattern without group names, which may occur only once in a combined pattern."""
    return "(?:" + re.sub(r"\(\?P<\w+>", "(?:", pattern) + ")"


def read_rules(path: Path, kind: type[R], key: str = "rules") -> list[R]:
    """The rules of one file, under `key`; raises `InputError` if one is malformed."""
    content, rules = _content(path), []
    try:
        defaults, area = content.get("defaults", {}), content.get("area", path.stem)
        for number, entry in enumerate(content[key], start=1):
            fields = {**defaults, **entry, "area": area}
            fields["counter_examples"] = fields.pop("not", ())
            if isinstance(fields.get("pattern"), list):  # one alternative a line
                fields["pattern"] = "|".join(fields["pattern"])
            try:
                rules.append(kind(**fields))
            except ValidationError as error:
                fault = first_fault(error, kind.model_fields)
                raise InputError(
                    f"{path}: rule {fields.get('id', number)!r}: {fault}; correct it."
                ) from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"{path} does not hold rules: {reason_of(error)}; give a list of them under `{key}`."
        ) from None
    return rules


def _content(path: Path) -> Any:
    try:
        with open_binary(path, most=MOST_RULES):
            return load(str(path))
    except OSError as error:
        raise unreadable(path, error) from None
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - the parser's own, of a package imported when needed
        raise InputError(f"{path} is not YAML: {reason_of(error)}; correct it.") from None


_site_folder: ContextVar[Path | None] = ContextVar("site_folder", default=None)


@contextmanager
def site_rules(folder: Path | None) -> Iterator[None]:
    """Within this context the rules in a site's folder count, too; None leaves all as it is.

    Raises `InputError` if a rule of the site is invalid.
    """
    if folder is None:
        yield
        return
    token = _site_folder.set(folder.absolute())
    try:
        load_rules()
        yield
    finally:
        _site_folder.reset(token)


def site_folder() -> Path | None:
    """The folder of rules that counts in this context beside the bundled ones."""
    return _site_folder.get()


def site_files(folder: Path | None = None) -> list[Path]:
    """The files of rules that do not come with schedmate: those of a folder and of packages.

    Raises `InputError` for a folder without any, `UsageError` for a package that cannot be loaded.
    """
    folders = [] if folder is None else [folder]
    for name, target in plugins(RULES).items():
        what = f"the rules {name!r}, registered as {target},"
        registered = load_plugin(what, target)
        if isinstance(registered, ModuleType):
            folders += map(Path, getattr(registered, "__path__", ()))
        elif isinstance(registered, str | Path):
            folders.append(Path(registered).absolute())
        else:
            raise UsageError(
                f"{what} are {type(registered).__name__}; register a package, or the path of a "
                "folder."
            )
    return [file for one in folders for file in _rule_files(one)]


def _rule_files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.yaml"))
    if not files:
        state = "has no file *.yaml in it" if folder.is_dir() else "is no folder"
        raise InputError(f"the folder of rules {folder} {state}; correct `rules_folder`.")
    return files


def load_rules() -> RuleSet:
    """The bundled rules and those of the site, compiled once; of equal ones the site's decide.

    Raises `InputError` if a rule of the site is invalid.
    """
    return _rule_set(site_folder())


@cache
def _rule_set(folder: Path | None) -> RuleSet:
    bundled = [rule for path in _rule_files(RULES_FOLDER) for rule in read_rules(path, Rule)]
    rule_ids, own = {rule.id for rule in bundled}, list[Rule]()
    for path in site_files(folder):
        for rule in read_rules(path, Rule):
            if rule.id in rule_ids:
                raise InputError(f"{path}: there is another rule {rule.id!r}; rename this one.")
            if (fault := _pattern_fault(rule)) is not None:
                raise InputError(f"{path}: the pattern of rule {rule.id!r} {fault}; correct it.")
            rule_ids.add(rule.id)
            own.append(rule)
    return RuleSet([*own, *bundled])


def _pattern_fault(rule: Rule) -> str | None:
    """Why a pattern cannot be used; those of lines are RE2's, those of exceptions Python's."""
    import re2

    try:
        if rule.exception is not None:
            re.compile(rule.exception)
        else:
            options = re2.Options()
            options.log_errors = False
            re2.compile((rule.pattern or "").encode(), options)
            re2.compile(_loose(rule.pattern or "").encode(), options)
    except (re.error, re2.error) as error:
        text = error.args[0] if error.args else error
        return f"is invalid ({text.decode() if isinstance(text, bytes) else text})"
    return None


def failed_examples(rules: RuleSet) -> list[str]:
    """The problems that the examples of the rules reveal, one sentence each."""
    problems = []
    seen: set[str] = set()
    for rule in rules.rules:
        if rule.id in seen:
            problems.append(f"{rule.id}: there are two rules of that id.")
        seen.add(rule.id)
        for example in rule.examples:
            match = match_text(rules, example)
            if match is None or match.id != rule.id:
                other = match.id if match else "no rule"
                problems.append(f"{rule.id}: its example goes to {other}: {example}")
        for example in rule.counter_examples:
            match = match_text(rules, example)
            if match is not None and match.id == rule.id:
                problems.append(f"{rule.id}: matches what it must not: {example}")
    return problems


def match_text(rules: RuleSet, text: str) -> Rule | None:
    """The rule for a line, or for the exception named by the line."""
    candidates = [rules.line(text)]
    match = EXCEPTION.match(text.strip())
    if match is not None:
        candidates.append(rules.exception(match["name"]))
    return deciding_rule(rule for rule in candidates if rule is not None)


# What a line without a rule reports by its wording: a failure, and of which subsystem.
#
# A line reports trouble by its level, by words for failure or by an errno; the subsystem that it
# names decides the type. Both are data (`subsystems.yaml`).


SUBSYSTEMS_FILE = Path(__file__).parent / "subsystems.yaml"
WORDING_CHARACTERS = 600
"""Characters examined at the beginning of a line, where it states what it is about."""

COLLECTIVE = "of-collective-timeout"
"""The id of the subsystem whose pattern names collectives."""
_PATH = re.compile(r"(?<![:/\w.])/(?!dev/)[\w.@+~-]+(?:/[\w.@+~-]+)+/?|(?:^|\s)--[a-z][\w-]*")
"""Paths and names of options, which are removed: they do not name the subsystem that failed."""


class Subsystem(Rule):
    """A rule whose `pattern` names a subsystem; `says` is how a line reports its failure.

    If `says` is None, any wording of a failure counts.
    """

    says: str | None = None


@cache
def subsystems() -> list[Subsystem]:
    """All subsystems; of several that a line names, the first decides."""
    return read_rules(SUBSYSTEMS_FILE, Subsystem, "subsystems")


def speaks_of_trouble(text: str) -> bool:
    """Whether a line is worded as a failure."""
    text = text[:WORDING_CHARACTERS]
    return _wording("says")(text) and (not _wording("not")(text) or _wording("over")(text))


def failed_subsystem(text: str) -> Subsystem | None:
    """The subsystem whose failure a line reports, or None."""
    if not speaks_of_trouble(text):
        return None
    text = _PATH.sub("", text[:WORDING_CHARACTERS])
    return next(
        (
            subsystem
            for subsystem, names, fails in _subsystem_searchers()
            if names(text) and fails(text)
        ),
        None,
    )


def named_subsystems(text: str) -> list[Subsystem]:
    """All subsystems that a line names, whether they failed or not."""
    text = _PATH.sub("", text[:WORDING_CHARACTERS])
    return [subsystem for subsystem, names, _ in _subsystem_searchers() if names(text)]


def is_collective(text: str) -> bool:
    """Whether a line names a collective operation or a process group."""
    return any(one.id == COLLECTIVE for one in named_subsystems(text))


def _searcher(pattern: str) -> Callable[[str], bool]:
    import re2

    search = re2.compile(pattern).search
    return lambda text: search(text) is not None


@cache
def _wording(kind: str) -> Callable[[str], bool]:
    return _searcher(
        "|".join(f"(?:{entry['pattern']})" for entry in load(str(SUBSYSTEMS_FILE))[kind])
    )


@cache
def _subsystem_searchers() -> list[tuple[Subsystem, Callable[[str], bool], Callable[[str], bool]]]:
    return [
        (one, _searcher(one.pattern or ""), _searcher(one.says) if one.says else lambda _: True)
        for one in subsystems()
    ]


# The severity that a line states for itself, in the formats of many loggers (`severity.yaml`).


class Severity(IntEnum):
    """The levels of all loggers on one scale."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    FATAL = 3


LEVEL_WITHIN = 80
"""A level stands near the beginning of a line [characters], but as a field of a record anywhere."""

_LEVEL_WORDS = {
    **dict.fromkeys(("t", "d", "i", "trace", "verbose", "debu", "debug", "info", "notice"), 0),
    **dict.fromkeys(("10", "20", "30"), 0),
    **dict.fromkeys(("w", "warn", "warning", "40"), 1),
    **dict.fromkeys(("e", "erro", "error", "err", "severe", "50"), 2),
    **dict.fromkeys(("f", "fata", "fatal", "pani", "panic", "crit", "critical", "60"), 3),
    **dict.fromkeys(("alert", "emerg", "emergency"), 3),
}
# NCCL knows no error: a warning is what it says before it fails.
_NCCL = re.compile(r"\bNCCL WARN\b")
# As an administrator's choice of facility: those of the kernel are as grave as they can be.
_KERNEL_PRIORITIES = range(8)


def severity(text: str) -> Severity | None:
    """The severity that a line states for itself, or None."""
    return _level(text)[0]


def is_harmless(text: str) -> bool:
    """Whether a line states, as a person would read it, that nothing failed.

    `W` does not: TensorFlow uses it for errors that end a job.
    """
    level, letter = _level(text)
    return level is not None and level < (Severity.WARNING if letter else Severity.ERROR)


def _level(text: str) -> tuple[Severity | None, bool]:
    """The severity that a line states for itself, and whether it is written as one letter."""
    if _NCCL.search(text[:LEVEL_WITHIN]):
        return Severity.ERROR, False
    for form, priority in _severity_forms():
        match = form.search(text if text.startswith("{") else text[:LEVEL_WITHIN])
        if match is None or match["level"] is None:
            continue
        if priority:
            return _of_syslog(int(match["level"])), False
        word = match["level"].lower().rstrip("0123456789") or match["level"]
        return Severity(_LEVEL_WORDS[word]), len(word) == 1
    return None, False


def _of_syslog(priority: int) -> Severity | None:
    """RFC 5424: the facility times eight and the severity, 0 the gravest."""
    if priority in _KERNEL_PRIORITIES:
        return None
    grave = priority % 8
    if grave < 3:
        return Severity.FATAL
    return Severity.ERROR if grave == 3 else Severity(grave == 4)


def is_mild(text: str) -> bool:
    """Whether a line states a severity below error."""
    level = severity(text)
    return level is not None and level < Severity.ERROR


def is_grave(text: str) -> bool:
    """Whether a line states a severity of error or above."""
    level = severity(text)
    return level is not None and level >= Severity.ERROR


def has_letter_level(text: str) -> bool:
    """Whether a line's level is one letter, as libraries in native code write it."""
    return _level(text)[1]


def is_faint(text: str) -> bool:
    """Whether a line is of a kind that rarely ended a job, whatever its level."""
    return _faint_kinds().search(text) is not None


@cache
def _severity_forms() -> list[tuple[re.Pattern[str], bool]]:
    entries = load("logparse/failure/severity.yaml")["forms"]
    return [(re.compile(one["pattern"]), one["pattern"].startswith("^<(?P")) for one in entries]


@cache
def _faint_kinds() -> re.Pattern[str]:
    entries = load("logparse/failure/severity.yaml")["faint"]
    return re.compile("|".join(f"(?:{one['pattern']})" for one in entries))
