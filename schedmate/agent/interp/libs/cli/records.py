"""Record classes (dataclasses, attrs, pydantic) whose fields are set from a command line."""

from __future__ import annotations

import ast
import re

from schedmate.agent.configs.scalars import parse_scalar
from schedmate.agent.interp import classes
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.flags import flag_origin, parse_flags, spelled
from schedmate.agent.interp.libs.configs.files import read_file
from schedmate.agent.interp.libs.documented import record_classes, record_defaults
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import (
    NOWHERE,
    AttrDict,
    Site,
    as_class,
    as_function,
    as_instance,
    as_node,
    as_symbol,
)
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values import construction
from schedmate.agent.values import Items, Origin, Value


def make_record(machine: Machine, kind: Value) -> Value:
    """An object of a record class with its default values."""
    cls, symbol = as_class(kind), as_symbol(kind)
    if cls is not None:
        return construction.instantiate(machine, cls, [], {}, Site(cls.module.file, 1))
    path = symbol.path if symbol is not None else ""
    return Value(AttrDict(dict(record_defaults(path)), "record", path), kind.origin)


def attributes(record: Value) -> Items:
    """The fields of a record object, by name; changing the dict changes the object."""
    owner = as_instance(record)
    if owner is not None:
        return owner.attrs
    return record.mapping if record.mapping is not None else {}


def is_record(kind: Value) -> bool:
    """Whether a value is a record class, of the repository or known of a library."""
    cls, symbol = as_class(kind), as_symbol(kind)
    documented = symbol is not None and bool(record_defaults(symbol.path))
    return documented or (cls is not None and classes.is_record(cls))


def cast(given: Value, like: Value, annotation: str, origin: Origin | None) -> Value:
    """Command-line text as the field's annotation, or else its default's type, says."""
    text = given.text
    if text is None:
        return Value(given.data, origin)
    lowered = text.strip().lower()
    if lowered in ("none", "null") and ("None" in annotation or "Optional" in annotation):
        return Value(None, origin)
    wants = annotation or type(like.data).__name__
    if re.search(r"\bbool\b", wants) and lowered in ("true", "false", "yes", "no", "1", "0"):
        return Value(lowered in ("true", "yes", "1"), origin)
    if re.search(r"\b(int|float)\b", wants) and not re.search(r"\bstr\b", wants):
        number = parse_scalar(text)
        return Value(number if isinstance(number, int | float) else text, origin)
    if re.search(r"\bstr\b", wants) and not re.search(r"\b(List|list|Any|dict|Dict)\b", wants):
        return Value(text, origin)
    return spelled(given, origin)


def annotation_of(record: Value, name: str) -> str:
    """The source text of a field's annotation, empty when there is none."""
    owner = as_instance(record)
    for cls in owner.cls.mro() if owner is not None else ():
        if name in cls.annotations:
            return ast.unparse(cls.annotations[name])
    return ""


def set_field(record: Value, name: str, values: list[Value], flag: Value) -> bool:
    """Set a (dotted) field from command-line values; False when the record has no such field."""
    head, _, rest = name.partition(".")
    fields = attributes(record)
    key = next((k for k in (head, head.replace("-", "_")) if k in fields), None)
    if key is None:
        no = re.match(r"no[-_](.+)$", head)
        key = no[1].replace("-", "_") if no and no[1].replace("-", "_") in fields else None
        if key is None:
            return False
        fields[key] = Value(False, flag_origin(flag))
        return True
    if rest:
        return set_field(fields[key], rest, values, flag)
    like, annotation = fields[key], annotation_of(record, key)
    origin = flag_origin(flag)
    if not values:
        fields[key] = Value(True, origin)
    elif len(values) > 1 or re.match(r"(Optional\[)?([Ll]ist|[Tt]uple|Sequence)\[", annotation):
        inner = re.sub(r"^(Optional\[)?\w+\[", "", annotation)
        fields[key] = Value([cast(v, like, inner, origin) for v in values], origin)
    else:
        given = values[0]
        fields[key] = given if given.unknown else cast(given, like, annotation, origin)
    return True


def fill(machine: Machine, records: list[Value], argv: list[Value]) -> list[Value]:
    """Set the records' fields from `argv`; returns the tokens no record took."""
    flags, rest = parse_flags(argv)
    for name, values, flag in flags:
        taken = [set_field(record, name, values, flag) for record in records]
        if not any(taken):
            rest.extend([flag, *values])
    return rest


def update(record: Value, mapping: Items) -> None:
    """Set the record's fields from a mapping, nested mappings into nested records."""
    fields = attributes(record)
    for key, value in mapping.items():
        field = fields.get(key)
        nested = as_instance(field) is not None or as_node(field) is not None
        if field is not None and nested and value.mapping is not None:
            update(field, value.mapping)
        elif field is not None:
            annotation = annotation_of(record, str(key))
            fields[key] = cast(value, field, annotation, value.origin)


def apply_file(machine: Machine, records: list[Value], path: Value) -> None:
    loaded = read_file(machine, path)
    mapping = machine.mapping(loaded)
    for record in records:
        update(record, mapping or {})


def _evaluates_if_scheduled(fields: Items) -> None:
    """`TrainingArguments.__post_init__`: an evaluation strategy turns `do_eval` on."""
    held = fields.get("do_eval")
    for name in ("eval_strategy", "evaluation_strategy"):
        strategy = fields.get(name)
        if held is None or strategy is None or strategy.text is None:
            continue
        if held.data is False and strategy.data != "no":
            fields["do_eval"] = Value(True, strategy.origin)


def note(machine: Machine, records: list[Value]) -> None:
    for record in records:
        _evaluates_if_scheduled(attributes(record))
        owner, node = as_instance(record), as_node(record)
        name = owner.cls.name if owner is not None else node.label if node is not None else ""
        fields = Value(attributes(record), record.origin)
        machine.observer.settings(name, fields, "dataclass")


def finish(machine: Machine, records: list[Value]) -> None:
    for record in records:
        owner = as_instance(record)
        hook = owner.cls.lookup("__post_init__") if owner is not None else None
        if hook is not None and as_function(hook) is not None:
            machine.call(hook, [record], {}, NOWHERE)
    note(machine, records)


def fill_prefixed(machine: Machine, instance: Value, prefix: str) -> None:
    """Give the record the command line's values, by plain, prefixed or dotted flag."""
    flags, _ = parse_flags(machine.argv[1:])
    for name, values, flag in flags:
        bare = name.removeprefix(prefix)
        if not _set_nested(instance, bare, values, flag) and "." in bare:
            _set_nested(instance, bare.partition(".")[2], values, flag)
    note(machine, [instance])


def _set_nested(record: Value, name: str, values: list[Value], flag: Value) -> bool:
    """Set a field of the record, or of a record inside it that has one of that name."""
    pending, seen = [record], {id(record.data)}
    while pending:
        current = pending.pop()
        if set_field(current, name, values, flag):
            return True
        for inner in reversed(attributes(current).values()):
            owner = as_instance(inner)
            if owner is not None and id(owner) not in seen and classes.is_record(owner.cls):
                seen.add(id(owner))
                pending.append(inner)
    return False


def construct(machine: Machine, call: Invocation) -> Value:
    """A library's configuration class called directly: its defaults under the given fields."""
    fields = record_defaults(call.path)
    fields.update(call.kwargs)
    record = Value(AttrDict(dict(fields), "record", call.path))
    machine.record(call.path, call.args, call.kwargs, call.site, record)
    note(machine, [record])
    return record


PLUGIN = Plugin(calls=dict.fromkeys(record_classes(), construct))
