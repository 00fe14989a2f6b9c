"""Every regular expression of the package, found in its source and in its data."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import _lru_cache_wrapper, cache
from pathlib import Path
from typing import Any

import schedmate
from schedmate.base.data import load
from schedmate.logparse.failure.rules import failed_examples, load_rules
from schedmate.logparse.progress.tracker import track_log
from schedmate.logparse.reading.log import open_log

PACKAGE = Path(schedmate.__file__).parent
BOUNDS = {
    "agent/fields/": 300,  # `MAX_TEXT` of agent/static.py, `MAX_NAME` of agent/syntax.py
    "agent/fields/task.py": 2000,  # `_WIDE`
    "agent/fields/dataset.py": 500,
    "agent/bounds.py": 200,  # `MAX_PATTERN`
    "agent/interp/trace.py": 300,  # the name of a class
    "logparse/templates.py": 400,  # `LONGEST`
    "logparse/classify/": 400,  # templates
    "logparse/failure/rules/": 200,  # `LONGEST_NAME`: names of exceptions
    "logparse/progress/line.py": 400,
    "logparse/reading/lines.py": 255,  # the name of a file
}
"""The longest text [characters] that callers give the patterns of a place; the longest key counts.

For any other the time must grow with the text alone.
"""
BEGIN = ("logparse/reading/prefixes.yaml",)
"""Data whose patterns are to match at the beginning of a text."""
WHOLE = ("llm/secrets.yaml .harmless", "agent/launch/jobfiles.yaml .replicas")
"""Data whose patterns are to match the whole of a text."""
_FUNCTIONS = frozenset(
    ("compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer")
)
_REPEAT = re.compile(r"[*+]|\{\d*,")


def bound(place: str) -> int | None:
    """The longest text that a pattern is given, None for one of any length."""
    known = [key for key in BOUNDS if place.startswith(key)]
    return BOUNDS[max(known, key=len)] if known else None


@dataclass(frozen=True)
class Pattern:
    """A pattern, where it stands, and the method that is used of it."""

    place: str
    text: str
    flags: int = 0
    how: str = "search"


def of_source(path: Path) -> list[Pattern]:
    """The patterns of a module; what they take from data is in `of_data`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    module = module.removesuffix(".__init__")
    found: list[Pattern] = []
    named = {
        id(node.value): node.targets[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        if not (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "re"
            and node.func.attr in _FUNCTIONS
            and node.args
        ):
            continue
        place = f"{path.relative_to(PACKAGE)}:{node.lineno}"
        try:
            text = _evaluated(node.args[0], module)
        except NameError:
            if not isinstance(node.args[0], ast.JoinedStr):
                continue  # of a data file
            text = _with_words(node.args[0])
        if isinstance(text, bytes):
            text = text.decode("latin-1")
        if not isinstance(text, str):
            continue  # compiled elsewhere
        how = node.func.attr
        if how == "compile":
            how = _use(named.get(id(node), ""), path)
        found.append(Pattern(place, text, _flags(node, module), how))
    return found


def _evaluated(node: ast.expr, module: str) -> Any:
    names = vars(importlib.import_module(module))
    return eval(compile(ast.Expression(node), module, "eval"), dict(names))


def _with_words(node: ast.JoinedStr) -> str:
    """A pattern that is completed when it is used, with a word for each part that is open."""
    return "".join(one.value if isinstance(one, ast.Constant) else "word" for one in node.values)


def _flags(node: ast.Call, module: str) -> int:
    place = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(node.func.attr, 2)  # type: ignore[attr-defined]
    given = next((k.value for k in node.keywords if k.arg == "flags"), None)
    if given is None and len(node.args) > place:
        given = node.args[place]
    return int(_evaluated(given, module)) if given is not None else 0


@cache
def _sources() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py")))


def _use(name: str, path: Path) -> str:
    """How a compiled pattern is used: by `match` and `fullmatch` alone, or to search."""
    if not name:
        return "search"
    text = path.read_text(encoding="utf-8") if name.startswith("_") else _sources()
    text = re.sub(r"(?m)^ *from [\w.]+ import (?:\([^)]*\)|.*)", "", text)
    uses = re.findall(rf"(?<![\w.]){name}\b(?! =)(\.\w+)?", text)
    told = set(uses)
    if told and told <= {".match", ".fullmatch"}:
        return "match" if ".match" in told else "fullmatch"
    return "search"


def of_data(path: Path) -> Iterator[Pattern]:
    """All texts of a data file that may be patterns: they repeat something, and they compile."""
    name = path.relative_to(PACKAGE).as_posix()

    def walk(data: Any, place: str) -> Iterator[Pattern]:
        if place.endswith(".files"):
            return  # paths into files
        if isinstance(data, dict):
            for key, item in data.items():
                yield from walk(item, f"{place}.{key}")
        elif isinstance(data, list):
            for index, item in enumerate(data):
                yield from walk(item, f"{place}[{index}]")
        elif isinstance(data, str) and _REPEAT.search(data):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    re.compile(data)
                except (re.error, OverflowError):
                    return
            whole = f"{name} {place}".startswith(WHOLE) or place.endswith(".exception")
            how = "fullmatch" if whole else "search"
            how = "match" if name in BEGIN else how
            yield Pattern(f"{name} {place}", data, how=how)

    yield from walk(load(name), "")


# Which patterns run in RE2, where the time grows with the text whatever they are.

_READING = ("schedmate.logparse", "schedmate.llm.redact")
"""Packages whose tables of patterns are compiled to see by which engine."""


@cache
def engines() -> tuple[str, str]:
    """What RE2 and what Python's `re` compile when tables are loaded and a log is read."""
    ran = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, timeout=120, check=True
    )
    by_re2, by_re = json.loads(ran.stdout)
    return "\n".join(by_re2), "\n".join(by_re)


def runs_in_re2(pattern: Pattern) -> bool:
    """Whether RE2 was given this pattern of a data file, as a part of others perhaps, and Python's
    `re` was not, neither alone nor as one of several."""
    by_re2, by_re = engines()
    alternative = rf"(?m)(?:^|[|(:]){re.escape(pattern.text)}(?:$|[|)])"
    return pattern.text in by_re2 and re.search(alternative, by_re) is None


def _print_engines() -> None:
    import re._compiler as compiler  # type: ignore[import-not-found]

    import re2

    by_re2: set[str] = set()
    by_re: set[str] = set()

    def recorded(given: Any, seen: set[str], where: int) -> Any:
        def compile_it(*args: Any, **named: Any) -> Any:
            text = getattr(args[where], "pattern", args[where])
            seen.add(text.decode("latin-1") if isinstance(text, bytes) else str(text))
            return given(*args, **named)

        return compile_it

    re2.compile = recorded(re2.compile, by_re2, 0)
    re2.Set.Add = recorded(re2.Set.Add, by_re2, 1)
    compiler.compile = recorded(compiler.compile, by_re, 0)
    for found in pkgutil.walk_packages(schedmate.__path__, "schedmate."):
        if found.name.startswith(_READING):
            for one in list(vars(importlib.import_module(found.name)).values()):
                if isinstance(one, _lru_cache_wrapper) and one.__module__ == found.name:
                    _load(one)
    assert not failed_examples(load_rules())
    with open_log(PACKAGE / "sample/job.out") as log:
        track_log(log)
    json.dump([sorted(by_re2), sorted(by_re)], sys.stdout)


def _load(table: Callable[..., Any]) -> None:
    """Compile a table of patterns: the only one of its kind, or each of its parts."""
    parameters = list(inspect.signature(table).parameters)
    if not parameters:
        table()
    elif parameters in (["kind"], ["part"]):
        for data in map(load, _tables()):
            for part in data if isinstance(data, dict) else ():
                with suppress(KeyError, TypeError):
                    table(part)


def _tables() -> list[str]:
    return [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.glob("logparse/**/*.yaml")]


if __name__ == "__main__":
    _print_engines()
