"""Command lines made of dataclasses: HfArgumentParser, simple-parsing, tyro, pyrallis."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from schedmate.agent.configs import parse_scalar
from schedmate.agent.interp import classes
from schedmate.agent.interp.objects import (
    AttrDict,
    Call,
    Class,
    Function,
    Instance,
    Site,
    Symbol,
)
from schedmate.agent.interp.trace import Settings
from schedmate.agent.interp.values_ops import iterate
from schedmate.agent.values import Origin, Unknown, Value, lifted, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.state import Handler, Invocation, State

_SITE = Site("", 1)


def make_record(state: State, kind: Value) -> Value:
    """An object of a record class with its default values."""
    if isinstance(kind.data, Class):
        return classes.instantiate(state, kind.data, [], {}, Site(kind.data.module.file, 1))
    path = kind.data.path if isinstance(kind.data, Symbol) else ""
    defaults = state.library.record_defaults(path)
    return Value(AttrDict(dict(defaults), "record", path), kind.origin)


def attributes(record: Value) -> dict[Any, Value]:
    """The fields of a record object, by name; changing the dict changes the object."""
    data = record.data
    if isinstance(data, Instance):
        return data.attrs
    return data if isinstance(data, dict) else {}


def split_records(state: State, kinds: list[Value]) -> list[Value]:
    """Those of `kinds` that are record classes: of the repository or known of a library."""
    return [
        kind
        for kind in kinds
        if (isinstance(kind.data, Class) and classes.is_record(kind.data))
        or (isinstance(kind.data, Symbol) and state.library.record_defaults(kind.data.path))
    ]


def cast(text: Any, like: Value, annotation: str) -> Any:
    """Command-line text as the field's annotation, or else its default's type, says."""
    if not isinstance(text, str):
        return text
    lowered = text.strip().lower()
    if lowered in ("none", "null") and ("None" in annotation or "Optional" in annotation):
        return None
    wants = annotation or type(like.data).__name__
    if re.search(r"\bbool\b", wants) and lowered in ("true", "false", "yes", "no", "1", "0"):
        return lowered in ("true", "yes", "1")
    if re.search(r"\b(int|float)\b", wants) and not re.search(r"\bstr\b", wants):
        number = parse_scalar(text)
        return number if isinstance(number, int | float) else text
    if re.search(r"\bstr\b", wants) and not re.search(r"\b(List|list|Any|dict|Dict)\b", wants):
        return text
    return parse_scalar(text)


def annotation_of(record: Value, name: str) -> str:
    """The source text of a field's annotation, empty when there is none."""
    if isinstance(record.data, Instance):
        for cls in record.data.cls.mro():
            if name in cls.annotations:
                return ast.unparse(cls.annotations[name])
    return ""


def parse_flags(argv: list[Value]) -> tuple[list[tuple[str, list[Value], Value]], list[Value]]:
    """Split `argv` into (name, values, flag token) triples and what stands before any flag."""
    found: list[tuple[str, list[Value], Value]] = []
    loose: list[Value] = []
    complete = False
    for token in argv:
        text = token.data
        if isinstance(text, str) and text.startswith("--") and len(text) > 2:
            name, equals, value = text[2:].partition("=")
            found.append((name, [Value(value, token.origin)] if equals else [], token))
            complete = bool(equals)
        elif isinstance(text, str) and re.match(r"^-[A-Za-z]$", text):
            found.append((text[1:], [], token))
            complete = False
        elif found and not complete:
            found[-1][1].append(token)
        else:
            loose.append(token)
    return found, loose


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
        fields[key] = Value(False, _origin(flag))
        return True
    if rest:
        return set_field(fields[key], rest, values, flag)
    like, annotation = fields[key], annotation_of(record, key)
    origin = _origin(flag)
    if not values:
        fields[key] = Value(True, origin)
    elif len(values) > 1 or re.match(r"(Optional\[)?([Ll]ist|[Tt]uple|Sequence)\[", annotation):
        inner = re.sub(r"^(Optional\[)?\w+\[", "", annotation)
        fields[key] = Value([Value(cast(v.data, like, inner), origin) for v in values], origin)
    else:
        data = cast(values[0].data, like, annotation)
        fields[key] = lifted(data, origin) if not isinstance(values[0].data, Unknown) else values[0]
    return True


def _origin(flag: Value) -> Origin | None:
    origin = flag.origin
    if origin is None or not isinstance(flag.data, str):
        return origin
    return Origin(origin.source, origin.file, origin.line, flag.data.split("=", 1)[0])


def fill(state: State, records: list[Value], argv: list[Value]) -> list[Value]:
    """Set the records' fields from `argv`; returns the tokens no record took."""
    flags, rest = parse_flags(argv)
    for name, values, flag in flags:
        taken = [set_field(record, name, values, flag) for record in records]
        if not any(taken):
            rest.extend([flag, *values])
    return rest


def update(record: Value, mapping: dict[Any, Value]) -> None:
    """Set the record's fields from a mapping, nested mappings into nested records."""
    fields = attributes(record)
    for key, value in mapping.items():
        held = fields.get(key)
        nested = held is not None and isinstance(held.data, Instance | AttrDict)
        if nested and held is not None and isinstance(value.data, dict):
            update(held, value.data)
        elif held is not None:
            annotation = annotation_of(record, str(key))
            fields[key] = Value(cast(value.data, held, annotation), value.origin)


def note(state: State, records: list[Value]) -> None:
    for record in records:
        data = record.data
        name = data.cls.name if isinstance(data, Instance) else getattr(data, "label", "")
        fields = Value(attributes(record), record.origin)
        state.trace.settings.append(Settings(name, fields, "dataclass"))


def finish(state: State, records: list[Value]) -> None:
    for record in records:
        if isinstance(record.data, Instance):
            hook = record.data.cls.lookup("__post_init__")
            if hook is not None and isinstance(hook.data, Function):
                state.call(hook, [record], {}, _SITE)
    note(state, records)


# -- simple-parsing inside an argparse parser ------------------------------


def fill_prefixed(state: State, instance: Value, prefix: str) -> None:
    """Give the record the command line's values, by plain, prefixed or dotted flag."""
    flags, _ = parse_flags(state.argv[1:])
    for name, values, flag in flags:
        bare = name.removeprefix(prefix)
        if not _set_nested(instance, bare, values, flag) and "." in bare:
            _set_nested(instance, bare.partition(".")[2], values, flag)
    note(state, [instance])


def _set_nested(record: Value, name: str, values: list[Value], flag: Value) -> bool:
    """Set a field of the record, or of a record inside it that has one of that name."""
    if set_field(record, name, values, flag):
        return True
    return any(
        _set_nested(inner, name, values, flag)
        for inner in list(attributes(record).values())
        if isinstance(inner.data, Instance) and classes.is_record(inner.data.cls)
    )


# -- HfArgumentParser ------------------------------------------------------


def _kinds(state: State, base: Value | None) -> list[Value]:
    data = base.data if base is not None else None
    if isinstance(data, Call):
        given = data.args[0] if data.args else data.kwargs.get("dataclass_types", unknown())
        return iterate(given) or [given]
    if isinstance(data, Instance) and data.args:
        return iterate(data.args[0]) or [data.args[0]]
    return []


def into_dataclasses(state: State, call: Invocation) -> Value:
    records = [make_record(state, kind) for kind in _kinds(state, call.base)]
    given = call.argument(0, "args")
    items = iterate(given) if given is not None and given.data is not None else None
    argv = items if items is not None else state.argv[1:]
    argv = _with_config_files(state, records, argv)
    rest = fill(state, records, argv)
    finish(state, records)
    out = list(records)
    if call.kwargs.get("return_remaining_strings", Value(False)).data is True:
        out.append(Value(rest))
    return Value(tuple(out))


def _with_config_files(state: State, records: list[Value], argv: list[Value]) -> list[Value]:
    """Apply `--config file.yaml` (TRL) or a lone YAML or JSON argument; return what remains."""
    rest: list[Value] = []
    skip = False
    for index, token in enumerate(argv):
        if skip:
            skip = False
            continue
        text = token.data
        following = argv[index + 1] if index + 1 < len(argv) else None
        if text == "--config" and following is not None and not _has_field(records, "config"):
            _apply_file(state, records, following)
            skip = True
        elif isinstance(text, str) and index == 0 and text.endswith((".json", ".yaml", ".yml")):
            _apply_file(state, records, token)
        else:
            rest.append(token)
    return rest


def _has_field(records: list[Value], name: str) -> bool:
    return any(name in attributes(record) for record in records)


def _apply_file(state: State, records: list[Value], path: Value) -> None:
    loaded = state.library.read_file(state, path)
    mapping = state.mapping(loaded) if loaded is not None else None
    for record in records:
        update(record, mapping or {})


def from_file(state: State, call: Invocation) -> Value:
    records = [make_record(state, kind) for kind in _kinds(state, call.base)]
    path = call.argument(0, "json_file", "yaml_file")
    if path is not None:
        _apply_file(state, records, path)
    finish(state, records)
    return Value(tuple(records))


def from_dict(state: State, call: Invocation) -> Value:
    records = [make_record(state, kind) for kind in _kinds(state, call.base)]
    mapping = state.mapping(call.args[0]) if call.args else None
    for record in records:
        update(record, mapping or {})
    finish(state, records)
    return Value(tuple(records))


# -- tyro, pyrallis, draccus, simple_parsing.parse, chz --------------------


def from_command_line(state: State, call: Invocation) -> Value:
    """`tyro.cli(Config)` and its like: an object of the class, or a call of the function."""
    kind = call.argument(0, "f", "config_class", "config_cls")
    if kind is None:
        return unknown()
    given = call.kwargs.get("args")
    argv = (iterate(given) if given is not None else None) or state.argv[1:]
    if isinstance(kind.data, Function):
        return call_with_flags(state, kind, argv)
    if isinstance(kind.data, dict):
        return _chosen(state, kind, argv)
    record = make_record(state, kind)
    default = call.kwargs.get("default")
    if default is not None:
        update(record, attributes(default))
    rest: list[Value] = []
    skip = False
    for index, token in enumerate(argv):
        if skip:
            skip = False
        elif token.data in ("--config_path", "--config", "--config-path") and index + 1 < len(argv):
            _apply_file(state, [record], argv[index + 1])
            skip = True
        else:
            rest.append(token)
    left = fill(state, [record], rest)
    loose = [token for token in left if not str(token.data).startswith("-")]
    if isinstance(kind.data, Class):
        for name, token in zip(_positional_fields(kind.data), loose, strict=False):
            attributes(record)[name] = token
    _choose_subcommands(state, record, loose)
    finish(state, [record])
    return record


def _positional_fields(cls: Class) -> list[str]:
    """Fields given by position: `field(positional=True)`, `x: tyro.conf.Positional[str]`."""
    names = []
    for current in reversed(cls.mro()):
        for node in current.node.body:
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            marked = isinstance(node.value, ast.Call) and any(
                keyword.arg == "positional"
                and isinstance(keyword.value, ast.Constant)
                and keyword.value.value is True
                for keyword in node.value.keywords
            )
            if marked or "Positional[" in ast.unparse(node.annotation):
                names.append(node.target.id)
    return names


def configs_by_name(state: State, call: Invocation) -> Value:
    return call.argument(0, "defaults") or unknown()


def _chosen(state: State, options: Value, argv: list[Value]) -> Value:
    """A config chosen by name from a dict of defaults."""
    items = state.mapping(options) or {}
    for index, token in enumerate(argv):
        name = token.data
        key = next(
            (k for k in items if str(k).replace("_", "-") == str(name).replace("_", "-")), None
        )
        if key is not None:
            record = items[key]
            if isinstance(record.data, Function):
                return call_with_flags(state, record, argv[index + 1 :])
            if isinstance(record.data, dict):
                return _chosen(state, record, argv[index + 1 :])
            if isinstance(record.data, tuple) and len(record.data) == 2:
                record = record.data[1]
            fill(state, [record], argv[index + 1 :])
            note(state, [record])
            choice = Value({"method_name": token})
            state.trace.settings.append(Settings("command", choice, "arguments"))
            return record
    return unknown()


def _choose_subcommands(state: State, record: Value, names: list[Value]) -> None:
    for token in names:
        for key, value in list(attributes(record).items()):
            wanted = f"{key}:"
            if isinstance(token.data, str) and token.data.startswith(wanted.replace("_", "-")):
                attributes(record)[key] = Value(value.data, token.origin)


def call_with_flags(
    state: State, function: Value, argv: list[Value], owner: Value | None = None
) -> Value:
    """Call a repository function with its parameters set from flags and positionals."""
    assert isinstance(function.data, Function)
    spec = function.data.node.args
    names = [a.arg for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
    annotations = {
        a.arg: ast.unparse(a.annotation) if a.annotation is not None else ""
        for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)
    }
    if owner is not None:
        names = names[1:]
    holder: dict[Any, Value] = {}
    for name in names:
        if name in function.data.defaults:
            holder[name] = function.data.defaults[name]
    flags, loose = parse_flags(argv)
    extra: dict[str, Value] = {}
    for name, values, flag in flags:
        key = name.replace("-", "_")
        origin = _origin(flag)
        if not values:
            off = key.removeprefix("no_") if key.startswith("no_") and key not in names else None
            target, value = (
                (off, Value(False, origin)) if off in names else (key, Value(True, origin))
            )
        else:
            target = key
            like = holder.get(key, unknown())
            value = lifted(cast(values[0].data, like, annotations.get(key, "")), origin)
            if len(values) > 1:
                loose.extend(values[1:])
        assert target is not None
        (holder if target in names else extra)[target] = value
    free = [name for name in names if name not in holder]
    for name, token in zip(free, loose, strict=False):
        like = unknown()
        holder[name] = lifted(cast(token.data, like, annotations.get(name, "")), token.origin)
    if spec.kwarg is not None:
        holder.update(extra)
    state.trace.settings.append(Settings(function.data.name, Value(holder), "arguments"))
    kwargs = {str(key): value for key, value in holder.items()}
    first = [owner] if owner is not None else []
    site = Site(function.data.module.file, function.data.node.lineno)
    return state.call(function, first, kwargs, site)


_HF = ("transformers.HfArgumentParser", "trl.TrlParser",
       "transformers.hf_argparser.HfArgumentParser",
       "trl.commands.cli_utils.TrlParser")  # fmt: skip


def construct(state: State, call: Invocation) -> Value:
    """A library's configuration class called directly: its defaults under the given fields."""
    fields = state.library.record_defaults(call.path)
    fields.update(call.kwargs)
    record = Value(AttrDict(dict(fields), "record", call.path))
    state.record(call.path, call.args, call.kwargs, call.site, record)
    note(state, [record])
    return record


HANDLERS: dict[str, Handler] = {
    **{f"{c}().parse_args_into_dataclasses": into_dataclasses for c in _HF},
    **{f"{c}().parse_args_and_config": into_dataclasses for c in _HF},
    **{f"{c}().parse_json_file": from_file for c in _HF},
    **{f"{c}().parse_yaml_file": from_file for c in _HF},
    **{f"{c}().parse_dict": from_dict for c in _HF},
    "tyro.cli": from_command_line,
    "tyro.extras.subcommand_type_from_defaults": configs_by_name,
    "tyro.extras.subcommand_cli_from_dict": from_command_line,
    "tyro.extras.overridable_config_cli": from_command_line,
    "pyrallis.parse": from_command_line,
    "draccus.parse": from_command_line,
    "simple_parsing.parse": from_command_line,
    "chz.entrypoint": from_command_line,
    "chz.nested_entrypoint": from_command_line,
    "jsonargparse.CLI": from_command_line,
    "jsonargparse.auto_cli": from_command_line,
    "defopt.run": from_command_line,
    "sensai.util.logging.run_cli": from_command_line,
}
