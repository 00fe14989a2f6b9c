"""The option tables of programs that start other programs (launchers.yaml)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, NamedTuple

from schedmate.agent.launch.state import token
from schedmate.agent.values import Origin, Unknown, Value
from schedmate.data import load


@dataclass(frozen=True, slots=True)
class Evidence:
    """A pattern that speaks for or against a run being the training."""

    where: str
    pattern: re.Pattern[str]
    points: int


@dataclass(frozen=True, slots=True)
class Table:
    """One launcher's command line. Option names have no dashes and no underscores."""

    name: str
    run: str | None = None
    arity: dict[str, int] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    flags: dict[str, dict[str, Any]] = field(default_factory=dict)
    boolean: frozenset[str] = frozenset()
    module: frozenset[str] = frozenset()
    command: frozenset[str] = frozenset()
    env: frozenset[str] = frozenset()
    chdir: frozenset[str] = frozenset()
    wrap: frozenset[str] = frozenset()
    defaults: dict[str, Any] = field(default_factory=dict)
    sets: dict[str, str] = field(default_factory=dict)
    subcommands: dict[str, Table] = field(default_factory=dict)
    skip: int = 0
    assignments: bool = False
    plain: bool = False
    program: frozenset[str] = frozenset()
    binary: frozenset[str] = frozenset()
    tasks: str | None = None
    files: Sequence[str] = ()
    main: dict[str, str] = field(default_factory=dict)

    def setting(self, fact: str) -> str:
        """The launcher and its option for a fact: `torchrun --nnodes`."""
        option = next((name for name, states in self.facts.items() if states == fact), None)
        dashes = "" if option is None else "-" if len(option) == 1 else "--"
        return f"{self.name} {dashes}{option or fact}"


_SETS = ("boolean", "module", "command", "env", "chdir", "wrap", "program", "binary")
_PLAIN = {field.name for field in fields(Table)} - {"name", "arity", "subcommands", *_SETS}
"""What a table takes from launchers.yaml as it stands there."""


class Option(NamedTuple):
    """One option: its name, its values, and the word it stands in."""

    name: str
    values: list[Value]
    word: Value


@dataclass(slots=True)
class Options:
    """A parsed command line: the options in order, and the words that follow."""

    given: list[Option]
    rest: list[Value]


@dataclass(frozen=True, slots=True)
class Rules:
    """All of launchers.yaml."""

    launchers: dict[str, Table]
    modules: dict[str, Table]
    provided: dict[str, str | None]
    allocation: dict[str, str]
    utilities: frozenset[str]
    utility_modules: frozenset[str]
    uncertain: frozenset[str]
    not_followed: dict[str, str]
    shells: frozenset[str]
    evidence: tuple[Evidence, ...]


@cache
def rules() -> Rules:
    """The rules shipped with the package."""
    data = load("agent/launch/launchers.yaml")
    launchers: dict[str, Table] = {}
    modules: dict[str, Table] = {}
    for name, entry in data["launchers"].items():
        table = _table(name, entry)
        for alias in (name, *entry.get("names", ())):
            launchers[alias] = table
        for module in entry.get("modules", ()):
            modules[module] = table
        for word, inner in entry.get("subcommands", {}).items():
            for module in inner.get("modules", ()):
                modules[module] = table.subcommands[word]
    return Rules(
        launchers=launchers,
        modules=modules,
        provided=data["provided"],
        allocation=data["allocation"],
        utilities=frozenset(data["utilities"].split()),
        utility_modules=frozenset(data["utility_modules"]),
        uncertain=frozenset(data["uncertain"]),
        not_followed=data["not_followed"],
        shells=frozenset(data["shells"]),
        evidence=tuple(
            Evidence(item["where"], re.compile(item["pattern"], re.IGNORECASE), item["points"])
            for item in data["evidence"]
        ),
    )


def _table(name: str, entry: dict[str, Any]) -> Table:
    sets = {key: frozenset(map(str, entry.get(key, ()))) for key in _SETS}
    arity: dict[str, int] = {}
    for item in entry.get("values", ()):
        arity |= item if isinstance(item, dict) else {str(item): 1}
    facts: dict[str, str] = entry.get("facts", {})
    valued = (sets[key] for key in ("env", "chdir", "wrap", "program", "binary"))
    arity |= dict.fromkeys((*facts, *(name for names in valued for name in names)), 1)
    # `--wait` of srun takes a time, of sbatch, which shares its table of values, none
    arity = {option: count for option, count in arity.items() if option not in sets["boolean"]}
    own: dict[str, Any] = {key: entry[key] for key in _PLAIN & entry.keys()} | sets
    inner = {word: _table(name, table) for word, table in entry.get("subcommands", {}).items()}
    return Table(name=name, arity=arity, subcommands=inner, **own)


def parse_options(table: Table, words: Sequence[Value]) -> Options:
    """Split the words after a launcher's name into its own options and what it runs.

    An option missing from the table takes a value only where that value cannot be the program:
    before a `.py` file that follows.
    """
    given: list[Option] = []
    position = 0
    while position < len(words):
        word = words[position]
        text = token(word)
        if text == "--":
            position += 1
            break
        if not text.startswith("-") or text == "-":
            break
        position += 1
        option, equals, attached = text.partition("=")
        name = option.lstrip("-").replace("_", "-")
        if not text.startswith("--") and name not in table.arity and name not in table.boolean:
            glued = _glued(table, text)
            if glued is not None:
                name, attached = glued
                equals = "="
        name = _full_name(table, name)
        if equals:
            given.append(Option(name, [_part(word, attached)], word))
            continue
        if (name in table.module or name in table.command) and name not in table.program:
            given.append(Option(name, [], word))
            continue
        count = table.arity.get(name)
        if count is None and any(option.name in table.program for option in given):
            position -= 1
            break  # the program's own
        if count is None:
            count = int(_unlisted_takes_value(table, name, words[position:]))
        given.append(Option(name, list(words[position : position + count]), word))
        position += count
    return Options(given, list(words[position:]))


def _glued(table: Table, text: str) -> tuple[str, str] | None:
    """`-N2`, `-np8` as option and value."""
    body = text[1:]
    for length in (2, 1):
        if table.arity.get(body[:length]) == 1 and len(body) > length:
            return body[:length], body[length:].removeprefix("=")
    return None


def _full_name(table: Table, name: str) -> str:
    """The option that `name` abbreviates, as argparse and getopt_long allow."""
    known = {*table.arity, *table.boolean, *table.flags, *table.module, *table.command}
    if name in known or len(name) < 4:
        return name
    longer = [option for option in known if option.startswith(name)]
    return longer[0] if len(longer) == 1 else name


def _unlisted_takes_value(table: Table, name: str, following: Sequence[Value]) -> bool:
    if table.run != "python" or name in table.boolean or name in table.flags or not following:
        return False
    first = token(following[0])
    if first.startswith("-") or first.endswith(".py"):
        return False
    return any(token(word).endswith(".py") for word in following[1:])


def _part(value: Value, text: str) -> Value:
    """The piece `text` of a token, with the token's origin and known-ness."""
    known = not isinstance(value.data, Unknown) or ("$" not in text and "`" not in text)
    return Value(text if known else Unknown(text), value.origin)


def option_origin(option: Option) -> Origin | None:
    """The origin of an option's value, whose text is option and value as they are written."""
    value = option.values[0]
    origin = value.origin
    if origin is None or origin.source not in ("command", "script"):
        return origin
    word, text = token(option.word), token(value)
    attached = option.word is not value and word.endswith(text) and len(word) > len(text) + 1
    return origin._replace(text=word if attached else f"{word} {text}")
