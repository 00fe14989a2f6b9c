"""Parsers made of dataclasses: HfArgumentParser, TRL, tyro, pyrallis, draccus, chz."""

from __future__ import annotations

import ast

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.choices import choose
from schedmate.agent.interp.libs.cli.flags import parse_flags
from schedmate.agent.interp.libs.cli.functions import call_with_flags
from schedmate.agent.interp.libs.cli.records import (
    apply_file,
    attributes,
    fill,
    finish,
    make_record,
    note,
    update,
)
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Call, Class, Function, Instance, path_of
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.values import Value, unknown

PARSERS = ("transformers.HfArgumentParser", "trl.TrlParser",
       "transformers.hf_argparser.HfArgumentParser",
       "trl.commands.cli_utils.TrlParser")  # fmt: skip


def _constructed(machine: Machine, instance: Value, call: Invocation) -> None:
    """What a class built on such a parser finds in `self.dataclass_types`."""
    if any(base in PARSERS for base in instance.data.cls.external_bases()):
        instance.data.attrs["dataclass_types"] = Value(_kinds(machine, instance))


def _kinds(machine: Machine, base: Value | None) -> list[Value]:
    data = base.data if base is not None else None
    if isinstance(data, Call):
        given = data.args[0] if data.args else data.kwargs.get("dataclass_types", unknown())
        return iterate(given) or [given]
    if isinstance(data, Instance) and data.args:
        return iterate(data.args[0]) or [data.args[0]]
    return []


def into_dataclasses(machine: Machine, call: Invocation) -> Value:
    records = [make_record(machine, kind) for kind in _kinds(machine, call.base)]
    given = call.argument(0, "args")
    items = iterate(given) if given is not None and given.data is not None else None
    argv = items if items is not None else machine.argv[1:]
    argv = _with_config_files(machine, records, argv)
    rest = fill(machine, records, argv)
    finish(machine, records)
    out = list(records)
    if call.kwargs.get("return_remaining_strings", Value(False)).data is True:
        separate = call.kwargs.get("separate_remaining_strings", Value(False)).data is True
        out.extend([Value([]), Value(rest)] if separate else [Value(rest)])
    return Value(tuple(out))


def _with_config_files(machine: Machine, records: list[Value], argv: list[Value]) -> list[Value]:
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
            apply_file(machine, records, following)
            skip = True
        elif isinstance(text, str) and index == 0 and text.endswith((".json", ".yaml", ".yml")):
            apply_file(machine, records, token)
        else:
            rest.append(token)
    return rest


def _has_field(records: list[Value], name: str) -> bool:
    return any(name in attributes(record) for record in records)


def from_file(machine: Machine, call: Invocation) -> Value:
    records = [make_record(machine, kind) for kind in _kinds(machine, call.base)]
    path = call.argument(0, "json_file", "yaml_file")
    if path is not None:
        apply_file(machine, records, path)
    # given beside a file, the program's own code merges it in some way
    fill(machine, records, machine.argv[1:])
    finish(machine, records)
    return Value(tuple(records))


def from_dict(machine: Machine, call: Invocation) -> Value:
    records = [make_record(machine, kind) for kind in _kinds(machine, call.base)]
    mapping = machine.mapping(call.args[0]) if call.args else None
    for record in records:
        update(record, mapping or {})
    finish(machine, records)
    return Value(tuple(records))


def from_command_line(machine: Machine, call: Invocation) -> Value:
    """`tyro.cli(Config)` and its like: an object of the class, or a call of the function."""
    kind = call.argument(0, "f", "config_class", "config_cls")
    if kind is None:
        return unknown()
    given = call.kwargs.get("args")
    argv = (iterate(given) if given is not None else None) or machine.argv[1:]
    if isinstance(kind.data, Function):
        return call_with_flags(machine, kind, argv)
    if kind.mapping is not None:
        return _chosen(machine, kind, argv)
    record = make_record(machine, kind)
    default = call.kwargs.get("default")
    if default is not None:
        update(record, attributes(default))
    if isinstance(record.data, Instance) and record.data.cls.external_bases():
        _admit(record, [name for name, _, _ in parse_flags(argv)[0]])
    rest: list[Value] = []
    skip = False
    for index, token in enumerate(argv):
        if skip:
            skip = False
        elif token.data in ("--config_path", "--config", "--config-path") and index + 1 < len(argv):
            apply_file(machine, [record], argv[index + 1])
            skip = True
        else:
            rest.append(token)
    left = fill(machine, [record], choose(machine, record, rest))
    loose = [token for token in left if not str(token.data).startswith("-")]
    if isinstance(kind.data, Class):
        for name, token in zip(_positional_fields(kind.data), loose, strict=False):
            attributes(record)[name] = token
    _choose_subcommands(machine, record, loose)
    finish(machine, [record])
    return record


def _admit(record: Value, names: list[str]) -> None:
    """Fields of a class of a library, known by the flags that set them only: `--steps 10`."""
    for name in names:
        if name.isidentifier() and name not in ("config", "config_path"):
            attributes(record).setdefault(name, unknown(name))


def of_itself(machine: Machine, call: Invocation) -> Value:
    """typed-argument-parser's `Args().parse_args()`: the object that it is called on, filled."""
    record = call.base
    if record is None or not isinstance(record.data, Instance):
        return unknown()
    fill(machine, [record], machine.argv[1:])
    hook = record.data.cls.method("process_args")
    if hook is not None:
        machine.call_function(hook, [record], {}, call.site)
    finish(machine, [record])
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


def configs_by_name(machine: Machine, call: Invocation) -> Value:
    return call.argument(0, "defaults") or unknown()


def _chosen(machine: Machine, options: Value, argv: list[Value]) -> Value:
    """A config chosen by name from a dict of defaults."""
    items = machine.mapping(options) or {}
    for index, token in enumerate(argv):
        name = token.data
        key = next(
            (k for k in items if str(k).replace("_", "-") == str(name).replace("_", "-")), None
        )
        if key is not None:
            record = items[key]
            if isinstance(record.data, Function):
                return call_with_flags(machine, record, argv[index + 1 :])
            if record.mapping is not None:
                return _chosen(machine, record, argv[index + 1 :])
            if isinstance(record.data, tuple) and len(record.data) == 2:
                record = record.data[1]
            fill(machine, [record], argv[index + 1 :])
            note(machine, [record])
            choice = Value({"method_name": token})
            machine.observer.settings("command", choice, "arguments")
            return record
    return unknown()


def _choose_subcommands(machine: Machine, record: Value, names: list[Value]) -> None:
    for token in names:
        for key, value in list(attributes(record).items()):
            wanted = f"{key}:"
            if token.text is not None and token.text.startswith(wanted.replace("_", "-")):
                attributes(record)[key] = Value(value.data, token.origin)


def _enter(machine: Machine, function: Function, decorator: Value) -> Value | None:
    """`@pyrallis.wrap()`: the main function, given an object of its first parameter's class."""
    path = path_of(decorator)
    if path.split(".")[-1] != "wrap" or not path.startswith(
        ("pyrallis", "draccus", "?", "lerobot")
    ):
        return None
    spec = function.node.args
    first = next(iter((*spec.posonlyargs, *spec.args)), None)
    args: list[Value] = []
    if first is not None and first.annotation is not None:
        kind = machine.evaluate(first.annotation, function.scope)
        parse = Invocation("pyrallis.parse", [kind], {}, function.site)
        args = [from_command_line(machine, parse)]
    return machine.call(Value(function.undecorated()), args, {}, function.site)


def _marked(machine: Machine, base: Value, index: Value) -> Value:
    """`tyro.conf.Positional[T]` is T."""
    return index


PLUGIN = Plugin(
    on_constructed=_constructed,
    on_enter=_enter,
    items={"tyro.conf.": _marked},
    calls={
        **{f"{c}().parse_args_into_dataclasses": into_dataclasses for c in PARSERS},
        **{f"{c}().parse_args_and_config": into_dataclasses for c in PARSERS},
        **{f"{c}().parse_json_file": from_file for c in PARSERS},
        **{f"{c}().parse_yaml_file": from_file for c in PARSERS},
        **{f"{c}().parse_dict": from_dict for c in PARSERS},
        "tap.Tap().parse_args": of_itself,
        "tyro.cli": from_command_line,
        "tyro.extras.subcommand_type_from_defaults": configs_by_name,
        "tyro.extras.subcommand_cli_from_dict": from_command_line,
        "tyro.extras.overridable_config_cli": from_command_line,
        "pyrallis.parse": from_command_line,
        "draccus.parse": from_command_line,
        "simple_parsing.parse": from_command_line,
        "chz.entrypoint": from_command_line,
        "chz.nested_entrypoint": from_command_line,
        "defopt.run": from_command_line,
        "tap.tapify": from_command_line,
        "sensai.util.logging.run_cli": from_command_line,
    },
)
