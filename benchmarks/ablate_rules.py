"""Which rules of `agent/fields/` change an answer: each is switched off in turn on labelled jobs.

    python benchmarks/ablate_rules.py --repos DIR [--one-in N]

A rule is a row of `names.yaml` or `calls.yaml`, an alternative of the vocabulary's models and
datasets, or a function that finds, weighs or drops candidates. A job's program is followed once;
the fields are then chosen anew without each rule that applies to it: a name that one of its
settings has, a call that it makes, an alternative that a value under consideration matches, a
function that gave something.
The jobs are those that the rules were written on, so a rule without effect here is not needed
by them; one with effect may still be of little use elsewhere.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import pkgutil
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from unittest import mock

from _record import record
from public_benchmark import FURTHER_FIELDS, MANDATORY_FIELDS, is_right

from schedmate.agent import static
from schedmate.agent.fields import candidates, confidence
from schedmate.agent.fields.candidates import call_pattern, rules
from schedmate.agent.fields.settings import all_settings, normal_name
from schedmate.base.errors import SchedmateError
from schedmate.jobs import LaunchConfig

LABELS = Path(__file__).parent / "labels/dev.jsonl"
PATHS = MANDATORY_FIELDS | FURTHER_FIELDS
SEED = 20261123
CORE = ("candidates", "confidence", "prior", "settings")
"""Modules that everything else is made of."""
EMPTY = (list, bool, str, dict, float, set)
"""Types whose empty value a function that is switched off gives in place of its results."""
Off = Callable[[], Any]
Function = Callable[..., Any]


class Job:
    """A job whose program was followed: its fields can be chosen again and again."""

    def __init__(self, row: dict[str, Any], repos: Path) -> None:
        self.repo = row["repo"]
        self.labels: dict[str, Any] = row["expected"] | row.get("also", {})
        self.args: tuple[Any, ...] = ()
        keep = mock.patch.object(static, "assemble", self._keeping(static.assemble))
        with keep:
            root = repos / row["repo"].replace("/", "+")
            static.extract(root, row["command"], LaunchConfig(**row.get("launch", {})))
        self.answers, self.values = self.choose()

    def _keeping(self, assemble: Callable[..., Any]) -> Callable[..., Any]:
        def kept(*args: Any) -> Any:
            self.args = args
            return assemble(*args)

        return kept

    def choose(self) -> tuple[dict[str, Any], set[str]]:
        """The answers to the labelled fields, and the texts that were candidates."""
        considered: set[str] = set()
        init = candidates.Candidate.__init__

        def tracked(made: Any, data: Any, *args: Any, **kwargs: Any) -> None:
            considered.add(str(data))
            init(made, data, *args, **kwargs)

        trace, plan, launch, lines, _, *rest = self.args
        with (
            mock.patch.object(candidates.Candidate, "__init__", tracked),
            # which answers there are does not depend on how sure they are
            mock.patch.object(confidence, "judge_answers", lambda given, scene: given),
            mock.patch.object(confidence, "scene_of", return_value=None),
        ):
            metadata = static.assemble(trace, plan, launch, lines, [], *rest)
        return {name: metadata.get(PATHS[name]) for name in self.labels}, considered


# -- rules, and how each is switched off ------------------------------------


@contextmanager
def without(items: list[Any], item: Any) -> Iterator[None]:
    """A list of a table without one of its items."""
    place = items.index(item)
    del items[place]
    _forget()
    try:
        yield
    finally:
        items.insert(place, item)
        _forget()


@contextmanager
def written(table: dict[str, Any], key: str, value: Any) -> Iterator[None]:
    """A table with another value under a key."""
    before = table[key]
    table[key] = value
    try:
        yield
    finally:
        table[key] = before


def _forget() -> None:
    """Look into the tables anew."""
    for cached in ("_matching", "_by_root"):
        getattr(candidates, cached).cache_clear()


def _lists(table: Any, path: str) -> Iterator[tuple[str, list[Any]]]:
    """The lists of a table of names, by where they are."""
    if isinstance(table, list):
        yield path, table
    elif isinstance(table, dict):
        for key, value in table.items():
            yield from _lists(value, f"{path}.{key}" if path else str(key))


def alternatives(text: str) -> list[str]:
    """The alternatives of a pattern at its outermost level."""
    found, depth, begun = [], 0, 0
    for place, char in enumerate(text):
        escaped = place > 0 and text[place - 1] == "\\"
        depth += (char in "([") * (not escaped) - (char in ")]") * (not escaped)
        if char == "|" and depth == 0:
            found.append(text[begun:place])
            begun = place + 1
    return [*found, text[begun:]]


def of_tables(job: Job) -> Iterator[tuple[str, Off]]:
    """The rows of the tables that apply to a job."""
    trace = job.args[0]
    keys = {setting.key for setting in all_settings(trace)} | {
        normal_name(name) for name in trace.parameters
    }
    keys |= {normal_name(name) for event in trace.calls for name in event.kwargs}
    for path, names in _lists(rules("names"), ""):
        for name in list(names):
            if isinstance(name, str) and normal_name(name.rpartition(".")[2]) in keys:
                yield f"names.yaml {path}: {name}", partial(without, names, name)
    paths = {event.path for event in trace.calls}
    for table in ("length", "model", "dataset"):
        listed = rules("calls")[table]
        for rule in list(listed):
            if any(call_pattern(rule["call"]).match(path) for path in paths):
                what = f"calls.yaml {table}: {rule['call']}"
                yield what, partial(without, listed, rule)
    texts = {re.sub(r"[_ ./]+", "-", value.lower()) for value in job.values if len(value) < 200}
    for kind in ("models", "datasets"):
        table = rules("vocabulary")[kind]
        for domain, text in list(table.items()):
            every = alternatives(text)
            for one in every if len(every) > 1 else ():
                if any(re.search(one, value) for value in texts):
                    rest = "|".join(other for other in every if other != one)
                    what = f"vocabulary.yaml {kind}.{domain}: {one}"
                    yield what, partial(written, table, domain, rest)


def modules() -> dict[str, ModuleType]:
    """The modules of `agent/fields/`, by their names in it."""
    top = importlib.import_module("schedmate.agent.fields")
    names = [found.name for found in pkgutil.walk_packages(top.__path__, f"{top.__name__}.")]
    return {name.removeprefix(f"{top.__name__}."): importlib.import_module(name) for name in names}


def functions() -> Iterator[tuple[str, Function]]:
    """The functions that find candidates, weigh them or decide about them."""
    for name, module in modules().items():
        if name not in CORE:
            for function in vars(module).values():
                if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                    yield f"{name}.{function.__name__}", function


@contextmanager
def instead(function: Function, other: Function) -> Iterator[None]:
    """Another function wherever a module has this one."""
    with ExitStack() as stack:
        for module in (static, *modules().values()):
            for name, value in list(vars(module).items()):
                if value is function:
                    stack.enter_context(mock.patch.object(module, name, other))
        yield


def of_functions(job: Job) -> Iterator[tuple[str, Off]]:
    """The functions that gave something for a job, or were called to add it."""
    found: dict[str, tuple[Function, list[Any]]] = {}
    with ExitStack() as stack:
        for name, function in functions():
            results: list[Any] = []
            found[name] = function, results
            stack.enter_context(instead(function, _watched(function, results)))
        job.choose()
    for name, (function, results) in found.items():
        adds = all(result is None for result in results)
        if not results or not (adds or any(results)):
            continue
        kind = next((type(result) for result in results if result is not None), type(None))
        if inspect.isgeneratorfunction(function):
            kind = list
        yield name, partial(instead, function, _giving(kind))


def _giving(kind: type) -> Function:
    """A function that gives nothing in place of results of a type, a new list each time."""

    def given(*_: Any, **__: Any) -> Any:
        return kind() if kind in EMPTY else None

    return given


def _watched(function: Function, results: list[Any]) -> Function:
    def watched(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        if inspect.isgeneratorfunction(function):
            found = list(found)
        results.append(found)
        return found

    return watched


def count(job: Job, kinds: Sequence[Find], effects: dict[str, Counter[str]]) -> None:
    """Add what a job's answers lose and win without each rule that applies to it."""
    for find in kinds:
        for what, off in find(job):
            effects[what]["jobs"] += 1
            try:
                with off():
                    answers, _ = job.choose()
            except (AttributeError, KeyError, TypeError, ValueError):
                effects[what]["fails"] += 1  # others need what it gives
                continue
            for name, expected in job.labels.items():
                before, after = (is_right(a[name], expected) for a in (job.answers, answers))
                if before != after:
                    effects[what]["lost" if before else "won"] += 1
                    effects[what][f"in {job.repo}"] = 1
                elif answers[name] != job.answers[name]:
                    effects[what]["otherwise"] += 1


Find = Callable[[Job], Iterator[tuple[str, Off]]]
KINDS: dict[str, Sequence[Find]] = {
    "all": (of_functions, of_tables),
    "functions": (of_functions,),
    "tables": (of_tables,),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repos", type=Path, required=True, help="checkouts named OWNER+NAME")
    parser.add_argument("--one-in", type=int, default=1, help="a share of the jobs, drawn by seed")
    parser.add_argument("--rules", choices=KINDS, default="all", help="which are switched off")
    options = parser.parse_args()
    rows = [json.loads(line) for line in LABELS.read_text().splitlines()]
    rows = [row for row in rows if (options.repos / row["repo"].replace("/", "+")).is_dir()]
    drawn = random.Random(SEED).sample(rows, len(rows) // options.one_in)
    effects: dict[str, Counter[str]] = defaultdict(Counter)
    answers = Counter[bool]()
    for row in drawn:
        try:
            job = Job(row, options.repos)
        except SchedmateError:
            continue
        answers.update(is_right(job.answers[name], value) for name, value in job.labels.items())
        count(job, KINDS[options.rules], effects)
    idle = defaultdict(list)
    needed = []
    table = []
    for what, counter in sorted(effects.items()):
        if counter["fails"]:
            needed.append(what)
        elif counter["lost"] or counter["won"] or counter["otherwise"]:
            table.append(
                {"without": what, "jobs": counter["jobs"],
                 "repositories where it matters": sum(name.startswith("in ") for name in counter),
                 "right to wrong": counter["lost"], "wrong to right": counter["won"],
                 "otherwise": counter["otherwise"]}
            )  # fmt: skip
        else:
            listed, _, row = what.partition(": ")
            idle[listed if row else "functions"].append(row or what)
    record(
        "extraction_ablation" + (f"_{options.rules}" if options.rules != "all" else ""),
        table,
        labels=LABELS.name,
        jobs=len(drawn),
        of_jobs=len(rows),
        repositories=len({row["repo"] for row in drawn}),
        seed=SEED,
        answers=f"{answers.total()}, {answers[True]} of them right",
        rules_that_apply=len(effects),
        with_effect=len(table),
        others_need=", ".join(needed),
        without_effect={name: ", ".join(sorted(rest)) for name, rest in sorted(idle.items())},
    )


if __name__ == "__main__":
    main()
