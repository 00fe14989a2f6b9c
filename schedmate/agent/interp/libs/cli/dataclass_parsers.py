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
from schedmate.agent.interp.objects import (
    Class,
    Function,
    as_call,
    as_class,
    as_function,
    as_instance,
    path_of,
)
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.syntax import constant, variable
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.values import Value, unknown

PARSERS = ("transformers.HfArgumentParser", "trl.TrlParser",
       "transformers.hf_argparser.HfArgumentParser",
       "trl.commands.cli_utils.TrlParser")  # fmt: skip
_CONFIGS = ("--config_path", "--config", "--config-path")
"""Options that name a configuration file."""


def _constructed(machine: Machine, instance: Value, call: Invocation) -> None:
    """What a class built on such a parser finds in `self.dataclass_types`."""
    owner = as_instance(instance)
    if owner is not None and any(base in PARSERS for base in owner.cls.external_bases()):
        owner.attrs["dataclass_types"] = Value(_kinds(instance))


def _kinds(base: Value | None) -> list[Value]:
    """The classes that a parser was made of."""
    made, owner = as_call(base), as_instance(base)
    if made is not None:
        given = made.args[0] if made.args else made.kwargs.get("dataclass_types", unknown())
        return iterate(given) or [given]
    if owner is not None and owner.args:
        return iterate(owner.args[0]) or [owner.args[0]]
    return []


def into_dataclasses(machine: Machine, call: Invocation) -> Value:
    records = [make_record(machine, kind) for kind in _kinds(call.base)]
    words = iterate(call.argument(0, "args"))
    argv = words if words is not None else machine.argv[1:]
    declared = any("config" in attributes(record) for record in records)
    if argv and (argv[0].text or "").endswith((".json", ".yaml", ".yml")):
        apply_file(machine, records, argv[0])
        argv = argv[1:]
    argv = _with_config_files(machine, records, argv, () if declared else ("--config",))
    rest = fill(machine, records, argv)
    finish(machine, records)
    out = list(records)
    if call.kwargs.get("return_remaining_strings", Value(False)).data is True:
        separate = call.kwargs.get("separate_remaining_strings", Value(False)).data is True
        out.extend([Value([]), Value(rest)] if separate else [Value(rest)])
    return Value(tuple(out))


def _with_config_files(
    machine: Machine, records: list[Value], argv: list[Value], flags: tuple[str, ...]
) -> list[Value]:
    """Apply the files that `--config file.yaml` names; return what remains."""
    rest: list[Value] = []
    tokens = iter(argv)
    for token in tokens:
        file = next(tokens, None) if token.text in flags else None
        if file is not None:
            apply_file(machine, records, file)
        else:
            rest.append(token)
    return rest


def from_file(machine: Machine, call: Invocation) -> Value:
    records = [make_record(machine, kind) for kind in _kinds(call.base)]
    path = call.argument(0, "json_file", "yaml_file")
    if path is not None:
        apply_file(machine, records, path)
    # given beside a file, the program's own code merges it in some way
    fill(machine, records, machine.argv[1:])
    finish(machine, records)
    return Value(tuple(records))


def from_dict(machine: Machine, call: Invocation) -> Value:
    records = [make_record(machine, kind) for kind in _kinds(call.base)]
    mapping = machine.mapping(call.first)
    for record in records:
        update(record, mapping or {})
    finish(machine, records)
    return Value(tuple(records))


def from_command_line(machine: Machine, call: Invocation) -> Value:
    """`tyro.cli(Config)` and its like: an object of the class, or a call of the function."""
    kind = call.argument(0, "f", "config_class", "config_cls")
    if kind is None:
        return unknown()
    argv = iterate(call.kwargs.get("args")) or machine.argv[1:]
    function = as_function(kind)
    if function is not None:
        return call_with_flags(machine, function, argv)
    if kind.mapping is not None:
        return _chosen(machine, kind, argv)
    record = make_record(machine, kind)
    default = call.kwargs.get("default")
    if default is not None:
        update(record, attributes(default))
    owner = as_instance(record)
    if owner is not None and owner.cls.external_bases():
        _admit(record, [name for name, _, _ in parse_flags(argv)[0]])
    rest = _with_config_files(machine, [record], argv, _CONFIGS)
    left = fill(machine, [record], choose(machine, record, rest))
    loose = [token for token in left if not str(token.data).startswith("-")]
    cls = as_class(kind)
    for name, token in zip(_positional_fields(cls) if cls is not None else (), loose, strict=False):
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
    record, owner = call.owner, as_instance(call.base)
    if owner is None:
        return unknown()
    fill(machine, [record], machine.argv[1:])
    hook = owner.cls.method("process_args")
    if hook is not None:
        machine.call_function(hook, [record], {}, call.site)
    finish(machine, [record])
    return record


def _positional_fields(cls: Class) -> list[str]:
    """Fields given by position: `field(positional=True)`, `x: tyro.conf.Positional[str]`."""
    names = []
    for current in reversed(cls.mro()):
        for node in current.node.body:
            name = variable(node.target) if isinstance(node, ast.AnnAssign) else None
            if not isinstance(node, ast.AnnAssign) or name is None:
                continue
            marked = isinstance(node.value, ast.Call) and any(
                keyword.arg == "positional" and constant(keyword.value) is True
                for keyword in node.value.keywords
            )
            if marked or "Positional[" in ast.unparse(node.annotation):
                names.append(name)
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
            function = as_function(record)
            if function is not None:
                return call_with_flags(machine, function, argv[index + 1 :])
            if record.mapping is not None:
                return _chosen(machine, record, argv[index + 1 :])
            pair = record.sequence if record.elements is None else None
            if pair is not None and len(pair) == 2:
                record = pair[1]
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


_COMMAND_LINES = (
    "tyro.cli", "tyro.extras.subcommand_cli_from_dict", "tyro.extras.overridable_config_cli",
    "pyrallis.parse", "draccus.parse", "simple_parsing.parse", "chz.entrypoint",
    "chz.nested_entrypoint", "defopt.run", "tap.tapify", "sensai.util.logging.run_cli",
)  # fmt: skip

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
        **dict.fromkeys(_COMMAND_LINES, from_command_line),
        "tyro.extras.subcommand_type_from_defaults": configs_by_name,
    },
)
