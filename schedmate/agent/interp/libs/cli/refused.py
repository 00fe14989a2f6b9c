"""What a program's parser would refuse of its command line: the job would end at once.

It is told only of parsers whose options are all known. One that a library adds to, that takes what
it does not know, or that reads other words than those of the command says nothing here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from schedmate.agent.interp.libs.cli.conditions import Modules, depends, is_fixed
from schedmate.agent.interp.libs.cli.parser import Option, Parser, spellings
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Native
from schedmate.agent.interp.repair import decode
from schedmate.agent.values import Value
from schedmate.paths import is_file

_HELP = ("-h", "--help")
_END = "it would end at once"
_MOST = 8
"""Choices that are listed."""
_LONGEST = 80
"""Characters of a word that are quoted."""
_PLACEHOLDER = re.compile(r"[<>$\[\]{}…*]|\.\.\.|^[A-Z][A-Z_]{3,}$")
"""Words of a command that are not yet what will be typed."""
_OTHER_WORDS = re.compile(
    r"parse_known_args|parse_known_intermixed|\bparser\.error\s*=|_remove_action|_add_action|"
    r"\bdel\s+sys\.argv|sys\.argv\s*(\[[^\]]*\]\s*)?(=[^=]|\+=)|sys\.argv\.\w+\(|"
    r"token_normalize_func|ignore_unknown_options|allow_extra_args|ignore_unknown"
)
"""How programs read other words than those of the command, or let unknown ones pass."""
_LEAST: dict[object, object] = {None: 1, "+": 1}
"""Fewest values of an option, by its `nargs`."""
_COUNTS: dict[object, str] = {None: "one value", "+": "at least one value"}
_KINDS = {"int": (int, "a whole number"), "float": (float, "a number")}


def tell_refused(machine: Machine, parser: Parser, extras: Iterable[Value]) -> None:
    """Tell the observer what `parser` would end at, given what it left over, where that is sure."""
    parsers = list(_all(parser))
    if not machine.certain or machine.catches("SystemExit"):
        return
    if any(one.open or one.records or one.config_flags for one in parsers):
        return
    if any(option.nargs == "..." for one in parsers for option in one.options):
        return
    program = str(machine.argv[0].data)
    left = list(extras)
    if not any((*_unknown(parsers, left), *_values(parsers, None))):
        return
    modules = _modules(machine)
    try:
        if modules is None or depends(modules):
            return
        unknown = (("", complaint) for complaint in _unknown(parsers, left))
        for option, complaint in islice(chain(unknown, _values(parsers, modules)), _MOST):
            machine.observer.refuses(f"{program} {complaint}", option)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # what is left out as not valid in this Python may be an option


def _all(parser: Parser, depth: int = 0) -> Iterator[Parser]:
    yield parser
    for child in parser.commands.values() if depth < 3 else ():
        yield from _all(child, depth + 1)


def _unknown(parsers: list[Parser], extras: Iterable[Value]) -> Iterator[str]:
    """Options that no parser has, in one line."""
    flags = [flag for one in parsers for option in one.options for flag in spellings(option)]
    found: dict[str, str] = {}
    for token in extras:
        flag = (token.text or "").partition("=")[0]
        if not re.fullmatch(r"--[A-Za-z][\w.-]*", flag) or flag in _HELP or flag in found:
            continue
        if any(known.startswith(flag) for known in flags):
            continue  # an abbreviation
        near = _nearest(flag, flags) if len(found) < _MOST else ""
        found[flag] = f"{_cut(flag)}{near}"
    if found:
        yield f"has no option {_listed(list(found.values()))}: {_END}"


def _listed(words: list[str]) -> str:
    return ", ".join(words[:_MOST]) + (", …" if len(words) > _MOST else "")


def _cut(word: str) -> str:
    return word if len(word) <= _LONGEST else f"{word[: _LONGEST - 1]}…"


def _nearest(word: str, known: list[str]) -> str:
    # what a switch is spelt with is no part of what was meant
    if len(word) > _LONGEST:
        return ""
    spelt = {one.replace("_", "-"): one for one in known if len(one) <= _LONGEST}
    near = difflib.get_close_matches(word.replace("_", "-"), spelt, n=1, cutoff=0.7)
    return f" (did you mean {spelt[near[0]]}?)" if near else ""


def _values(parsers: list[Parser], modules: Modules | None) -> Iterator[tuple[str, str]]:
    """Options and the values that they do not take; without `modules`, choices may be computed."""
    fixed: dict[int, bool] = {}
    for one in parsers:
        for option, flag, values in one.given:
            if modules is not None and option.choices is not None and id(option) not in fixed:
                fixed[id(option)] = is_fixed(option.written, modules)
            twice = [other for other in one.options if flag in other.flags]
            if len(twice) > 1 or option.own is not None or flag not in option.flags:
                continue
            least = _LEAST.get(option.nargs, option.nargs)
            if isinstance(least, int) and len(values) < least:
                if option.action in ("store", "append", "extend"):
                    wants = _COUNTS.get(option.nargs, f"{least} values")
                    has = len(values) or "none"
                    yield flag, f"takes {wants} for {_cut(flag)}, which has {has}: {_END}"
                continue
            for value in values:
                if value.text is not None and not _PLACEHOLDER.search(value.text):
                    for complaint in _value(option, flag, value.text, fixed.get(id(option), True)):
                        yield flag, complaint


def _value(option: Option, flag: str, text: str, fixed: bool) -> Iterator[str]:
    data = option.type.data if option.type is not None else None
    kind = _KINDS.get(data.name) if isinstance(data, Native) else None
    given: object = text
    if kind is not None:
        try:
            given = kind[0](text)
        except ValueError:
            yield f"takes {kind[1]} for {_cut(flag)}, not {_cut(text)!r}: {_END}"
            return
    elif option.type is not None and not (isinstance(data, Native) and data.name == "str"):
        return  # what a function makes of it is not known
    allowed = _choices(option.choices)
    if allowed and given not in allowed and fixed:
        listed = _listed([_cut(str(one)) for one in allowed[: _MOST + 1]])
        near = _nearest(text, [str(one) for one in allowed])
        yield f"takes {listed} for {_cut(flag)}, not {_cut(text)!r}{near}: {_END}"


def _choices(value: Value | None) -> list[object]:
    """The plain values of a list, tuple or set of choices; none where one is not known."""
    items = value.sequence if value is not None else None
    if not items or any(not isinstance(one.data, str | int | float) for one in items):
        return []
    return [one.data for one in items]


def _modules(machine: Machine) -> Modules | None:
    """The program's modules, None where its parser need not get the command as it is."""
    texts = []
    for module in list(machine.sources.modules.values()):
        if not is_file(module.path):
            continue
        try:
            text = decode(module.path.read_bytes())
        except OSError:
            return None
        if _OTHER_WORDS.search(text):
            return None
        texts.append(text)
    return Modules(texts)
