"""What the command states wins: values that a program was not seen to take are laid over the files
that it reads, and an answer that differs from what the command states says so.

A program may read its command by a parser of its own, which is not followed. Its words still mean
what they say: `policy.train_global_batch_size=256` sets that key of the configuration that the
program reads, whatever code merges the two (DESIGN.md, rule 2: the user's own words win).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from schedmate.agent.configs.reader import read_config
from schedmate.agent.fields.candidates import EXPLICIT, rules
from schedmate.agent.fields.settings import Setting, all_settings, normal_name, settings_named
from schedmate.agent.fields.unread import settings_from_argv
from schedmate.agent.interp.trace import Trace
from schedmate.agent.interp.values.plain import plain_tree
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.units import ITERS
from schedmate.agent.values import Items, Value
from schedmate.base.errors import InputError
from schedmate.base.files import is_file
from schedmate.jobs import WorkloadMetadata
from schedmate.jobs.metadata import RunnerUp

DOUBTED = 0.6
"""Most confidence in a field for which the command states what could not be matched."""
_PARTS = ("per_device_batch_size", "global_batch_size", "batch_size")
"""Fields that one setting may be meant for, or all of them."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A value that the command gives a setting, by the path of the setting's name."""

    path: tuple[str, ...]
    value: Value

    @property
    def name(self) -> str:
        """The whole name with its dots."""
        return ".".join(self.path)

    @property
    def key(self) -> str:
        """The last part of the name, normalised."""
        return normal_name(self.path[-1])

    def __str__(self) -> str:
        return f"{self.name}={self.value.plain()}"


def statements(plan: LaunchPlan) -> list[Statement]:
    """Every `--name value`, `name=value` and `A.NAME value` of a command, as it counts at last."""
    return [
        statement
        for statement in _leaves(settings_from_argv(plan.argv), ())
        if _names_itself(statement)
    ]


def _leaves(value: Value, path: tuple[str, ...]) -> Iterator[Statement]:
    for key, item in (value.mapping or {}).items():
        if item.mapping is not None:
            yield from _leaves(item, (*path, str(key)))
        elif isinstance(item.data, int | float | str) and not isinstance(item.data, bool):
            yield Statement((*path, str(key)), item)


def _names_itself(statement: Statement) -> bool:
    """Whether the word states its own name, unlike a place that was guessed to be the data's."""
    text = (statement.value.origin.text if statement.value.origin is not None else None) or ""
    return len(statement.path) > 1 or text.startswith("-") or "=" in text


def not_taken(stated: Iterable[Statement], trace: Trace) -> list[Statement]:
    """The statements that no setting of the program was seen to come from."""
    taken: set[tuple[str, object]] = set()
    words: set[tuple[str, object]] = set()
    for setting in all_settings(trace, superseded=True):
        if setting.explicit and setting.value.known and setting.value.plain() is not None:
            data = _comparable(setting.value.plain())
            taken.add((setting.key, data))
            words.add(((setting.value.origin and setting.value.origin.text) or "", data))
    return [
        statement
        for statement in stated
        if (data := _comparable(statement.value.data)) is not None
        and (statement.key, data) not in taken
        and ((statement.value.origin and statement.value.origin.text) or "", data) not in words
    ]


def overrides_followed(trace: Trace) -> bool:
    """Whether the program was seen to change a configuration by its command."""
    return any(setting.explicit and setting.kind == "config" for setting in all_settings(trace))


def by_words(stated: Iterable[Statement]) -> dict[str, Value]:
    """What statements set under names that no list of usual names has, by the usual name."""
    worded = rules("names")["worded"]
    fillers = frozenset(worded["fillers"])
    usual = {frozenset(words): name for name, sets in worded["names"].items() for words in sets}
    found: dict[str, Value] = {}
    for statement in stated:
        if statement.value.number is None or fields_named(statement):
            continue
        words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", statement.path[-1])
        name = usual.get(frozenset(map(str.lower, words)) - fillers)
        if name is not None:
            found[name] = statement.value
    return found


def _comparable(data: object) -> object:
    """Plain data as a setting may hold it, whatever its type: a number, or text."""
    try:
        return float(str(data))
    except ValueError:
        return str(data)


def laid_over(root: Path, trace: Trace, missed: Sequence[Statement]) -> dict[str, Value]:
    """The configuration files that were read with the statements in them.

    A statement belongs to the file that has its whole path; a plain name also to the only place of
    all files that has it.

    Returns:
        The changed files by their place in the repository.
    """
    if not missed:
        return {}
    files = {
        group.name: value
        for group in trace.settings
        if group.kind == "config" and (value := _reread(root, group.name)) is not None
    }
    changed: dict[str, Value] = {}
    for statement in missed:
        places = [
            (name, holder)
            for name, content in files.items()
            if (holder := _holder(content, statement.path)) is not None
        ]
        if not places and len(statement.path) == 1:
            found = [
                (name, holder)
                for name, content in files.items()
                for holder in _holders(content, statement.key)
            ]
            places = found if len(found) == 1 else []
        for name, holder in places:
            key = next(key for key in holder if normal_name(str(key)) == statement.key)
            holder[key] = statement.value
            changed[name] = files[name]
    return changed


def _reread(root: Path, name: str) -> Value | None:
    path = root / name
    if path.suffix not in (".yaml", ".yml", ".json", ".toml") or not is_file(path):
        return None
    try:
        value = plain_tree(read_config(path, root))
    except (InputError, ValueError):
        return None
    return value if value.mapping is not None else None


def _holder(content: Value, path: tuple[str, ...]) -> Items | None:
    """The mapping that holds the last part of a path, each part under its name as it is spelled."""
    items = content.mapping
    for part in path[:-1]:
        if items is None or part not in items:
            return None
        items = items[part].mapping
    wanted = normal_name(path[-1])
    return items if items is not None and wanted in {normal_name(str(k)) for k in items} else None


def _holders(content: Value, key: str) -> Iterator[Items]:
    """Every mapping in a file that has an entry of this name."""
    items = content.mapping or {}
    if key in {normal_name(str(name)) for name in items}:
        yield items
    for item in items.values():
        yield from _holders(item, key)


def doubt_contradicted(
    metadata: WorkloadMetadata,
    stated: Sequence[Statement],
    missed: Sequence[Statement],
    warnings: list[str],
) -> dict[str, str]:
    """Warn where the command states one value of a field and the answer is another.

    Returns those fields, each with the statement that contradicts it.

    An answer that comes from the command itself, from whichever word, stands. Where the program was
    not seen to take the statement (`missed`), the answer is no surer than `DOUBTED`.
    """
    contradicted: dict[str, str] = {}
    for statement in stated:
        fields = [field for field in fields_named(statement) if metadata.get(field) is not None]
        proofs = [metadata.evidence[field] for field in fields if field in metadata.evidence]
        if not proofs or any(proof.source in (*EXPLICIT, "derived") for proof in proofs):
            continue
        if any(_states(proof.value, statement.value.data) for proof in proofs):
            continue
        proof, field = proofs[0], fields[0]
        place = f" ({proof.file}:{proof.line})" if proof.file and proof.line else ""
        warnings.append(
            f"the command states {statement}, and the answer is "
            f"{field.partition('.')[2]} {proof.value}{place}: check which one counts"
        )
        contradicted |= dict.fromkeys(fields, str(statement))
        if statement in missed:
            for proof in proofs:
                proof.lower(
                    DOUBTED,
                    "the command states another value, which no code was seen to take",
                    RunnerUp(value=statement.value.plain(), where=f"{statement} of the command"),
                )
    return contradicted


def _states(answer: object, data: object) -> bool:
    if _comparable(answer) == _comparable(data):
        return True
    text, other = normal_name(str(answer)), normal_name(str(data))
    return isinstance(data, str) and bool(text) and (text in other or other in text)


def fields_named(statement: Statement) -> list[str]:
    """The fields of the metadata that the name of a statement is one of the usual names of."""
    names = rules("names")
    setting = Setting(statement.path, statement.value, "arguments", "command")
    number = statement.value.number is not None
    tables: list[tuple[str, list[str]]] = []
    if number:
        tables.append((ITERS, [*names["steps"], *names["epochs"]]))
        tables += [
            (f"training_config.{key}", names["extras"][key])
            for key in ("lr", "image_size", *_PARTS)
        ]
    else:
        tables.append(("model_config.model_name", names["model"]))
    matching = [field for field, usual in tables if settings_named([setting], usual)]
    parts = [f"training_config.{part}" for part in _PARTS]
    return [*dict.fromkeys([*matching, *parts])] if set(matching) & set(parts) else matching
