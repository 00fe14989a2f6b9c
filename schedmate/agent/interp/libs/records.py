"""Command lines that fill the fields of records or the parameters of functions.

HfArgumentParser, TRL, tyro, pyrallis, draccus and chz make parsers of dataclasses, fire and argbind
of functions.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from schedmate.agent.configs.scalars import parse_scalar
from schedmate.agent.interp.libs.files import read_file
from schedmate.agent.interp.libs.libraries import record_classes, record_defaults
from schedmate.agent.interp.libs.parsers import (
    flag_origin,
    parse_flags,
    plain_scalar,
    spelled_value,
)
from schedmate.agent.interp.machine import Machine, Plugin
from schedmate.agent.interp.objects import (
    GROUPS,
    NOWHERE,
    AttrDict,
    Bound,
    Class,
    Function,
    Invocation,
    Site,
    as_call,
    as_class,
    as_function,
    as_instance,
    as_node,
    as_symbol,
    modelled,
    path_of,
)
from schedmate.agent.interp.source import constant_value, last_name, nodes_of, variable_name
from schedmate.agent.interp.values import classes
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.values import Items, Origin, Value, unknown


def make_record(machine: Machine, kind: Value) -> Value:
    """An object of a record class with its default values."""
    cls, symbol = as_class(kind), as_symbol(kind)
    if cls is not None:
        return classes.instantiate(machine, cls, [], {}, Site(cls.module.file, 1))
    path = symbol.path if symbol is not None else ""
    return Value(AttrDict(dict(record_defaults(path)), "record", path), kind.origin)


def record_attributes(record: Value) -> Items:
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


def cast_text(argument: Value, like: Value, annotation: str, origin: Origin | None) -> Value:
    """Command-line text as the field's annotation, or else its default's type, says."""
    text = argument.text
    if text is None:
        return Value(argument.data, origin)
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
    return spelled_value(argument, origin)


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
    fields = record_attributes(record)
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
        fields[key] = Value([cast_text(v, like, inner, origin) for v in values], origin)
    else:
        given = values[0]
        fields[key] = given if given.unknown else cast_text(given, like, annotation, origin)
    return True


def fill_records(machine: Machine, records: list[Value], argv: list[Value]) -> list[Value]:
    """Set the records' fields from `argv`; returns the tokens no record took."""
    flags, rest = parse_flags(argv)
    for name, values, flag in flags:
        taken = [set_field(record, name, values, flag) for record in records]
        if not any(taken):
            rest.extend([flag, *values])
    return rest


def update_record(record: Value, mapping: Items) -> None:
    """Set the record's fields from a mapping, nested mappings into nested records."""
    fields = record_attributes(record)
    for key, value in mapping.items():
        field = fields.get(key)
        nested = as_instance(field) is not None or as_node(field) is not None
        if field is not None and nested and value.mapping is not None:
            update_record(field, value.mapping)
        elif field is not None:
            annotation = annotation_of(record, str(key))
            fields[key] = cast_text(value, field, annotation, value.origin)


def apply_config_file(machine: Machine, records: list[Value], path: Value) -> None:
    loaded = read_file(machine, path)
    mapping = machine.mapping(loaded)
    for record in records:
        update_record(record, mapping or {})


def _evaluates_if_scheduled(fields: Items) -> None:
    """`TrainingArguments.__post_init__`: an evaluation strategy turns `do_eval` on."""
    do_eval = fields.get("do_eval")
    for name in ("eval_strategy", "evaluation_strategy"):
        strategy = fields.get(name)
        if do_eval is None or strategy is None or strategy.text is None:
            continue
        if do_eval.data is False and strategy.data != "no":
            fields["do_eval"] = Value(True, strategy.origin)


def note_records(machine: Machine, records: list[Value]) -> None:
    for record in records:
        _evaluates_if_scheduled(record_attributes(record))
        owner, node = as_instance(record), as_node(record)
        name = owner.cls.name if owner is not None else node.label if node is not None else ""
        fields = Value(record_attributes(record), record.origin)
        machine.observer.settings(name, fields, "dataclass")


def finish_records(machine: Machine, records: list[Value]) -> None:
    for record in records:
        owner = as_instance(record)
        hook = owner.cls.lookup("__post_init__") if owner is not None else None
        if hook is not None and as_function(hook) is not None:
            machine.call(hook, [record], {}, NOWHERE)
    note_records(machine, records)


def fill_prefixed(machine: Machine, instance: Value, prefix: str) -> None:
    """Give the record the command line's values, by plain, prefixed or dotted flag."""
    flags, _ = parse_flags(machine.argv[1:])
    for name, values, flag in flags:
        bare = name.removeprefix(prefix)
        if not _set_nested(instance, bare, values, flag) and "." in bare:
            _set_nested(instance, bare.partition(".")[2], values, flag)
    note_records(machine, [instance])


def _set_nested(record: Value, name: str, values: list[Value], flag: Value) -> bool:
    """Set a field of the record, or of a record inside it that has one of that name."""
    pending, seen = [record], {id(record.data)}
    while pending:
        current = pending.pop()
        if set_field(current, name, values, flag):
            return True
        for inner in reversed(record_attributes(current).values()):
            owner = as_instance(inner)
            if owner is not None and id(owner) not in seen and classes.is_record(owner.cls):
                seen.add(id(owner))
                pending.append(inner)
    return False


def construct_record(machine: Machine, call: Invocation) -> Value:
    """A library's configuration class called directly: its defaults under the given fields."""
    fields = record_defaults(call.path)
    fields.update(call.kwargs)
    record = Value(AttrDict(dict(fields), "record", call.path))
    machine.record(call.path, call.args, call.kwargs, call.site, record)
    note_records(machine, [record])
    return record


# draccus: configuration classes chosen by name, `--policy.type act`.


_REGISTERED = "draccus choices"


def choose_classes(machine: Machine, record: Value, argv: list[Value]) -> list[Value]:
    """Put the chosen classes' objects into a record's fields; gives the arguments that remain."""
    rest = list(argv)
    for name, values, flag in parse_flags(argv)[0]:
        field, dot, kind = name.replace("-", "_").rpartition(".")
        owner = as_instance(record)
        if not dot or kind != "type" or not values or owner is None:
            continue
        base = _declared_class(machine, owner.cls, field)
        chosen = (
            _registered_choices(machine, base).get(str(values[0].data))
            if base is not None
            else None
        )
        if chosen is None:
            continue
        made = make_record(machine, chosen)
        record_attributes(made).setdefault("type", values[0])
        record_attributes(record)[field] = made
        rest = [token for token in rest if token is not flag and token is not values[0]]
    return rest


def _declared_class(machine: Machine, cls: Class, field: str) -> Class | None:
    """The class of the repository that a field's annotation names."""
    for current in cls.mro():
        annotation = current.annotations.get(field)
        for node in nodes_of([annotation] if annotation is not None else [], ast.expr):
            named = last_name(node) is not None
            declared = as_class(machine.evaluate(node, current.scope)) if named else None
            if declared is not None:
                return declared
    return None


def _registered_choices(machine: Machine, base: Class) -> dict[str, Value]:
    choices: dict[str, Value] = dict(machine.shared.get(_REGISTERED, {}).get(base, {}))
    for _, value, cls in machine.sources.defined(Class):
        for decorator in cls.decorators if base in cls.mro() else ():
            made = as_call(decorator)
            if made is not None and made.path.endswith(".register_subclass"):
                name = made.args[0] if made.args else made.kwargs.get("name", unknown())
                choices[str(name.data)] = value
    return choices


def register_choice(machine: Machine, call: Invocation) -> Value | None:
    """`Base.register_subclass("name", Chosen)`; as a decorator it is found at the class."""
    base = as_class(call.base)
    name, chosen = call.argument(0, "choice_name", "name"), call.argument(1, "choice_cls")
    if base is not None and name is not None and chosen is not None:
        registered = machine.shared.setdefault(_REGISTERED, {})
        registered.setdefault(base, {})[str(name.data)] = chosen
        return chosen
    return None


def choice_class(machine: Machine, call: Invocation) -> Value | None:
    """`Base.get_choice_class("name")`."""
    base = as_class(call.base)
    name = call.argument(0, "choice_name", "name")
    if base is None or name is None:
        return None
    return _registered_choices(machine, base).get(str(name.data))


# Functions whose parameters are the command line, as fire and argbind make them.


def call_with_flags(
    machine: Machine, function: Function, argv: list[Value], owner: Value | None = None
) -> Value:
    """Call a repository function with its parameters set from flags and positionals."""
    spec = function.node.args
    annotations = annotations_of(function)
    names = list(annotations)[1 if owner is not None else 0 :]
    holder: Items = {name: function.defaults[name] for name in names if name in function.defaults}
    holder |= record_parameters(machine, function)
    flags, loose = parse_flags(argv)
    extra: dict[str, Value] = {}
    for name, values, flag in flags:
        key = name.replace("-", "_")
        origin = flag_origin(flag)
        if not values:
            off = key.removeprefix("no_") if key.startswith("no_") and key not in names else None
            target, value = (
                (off, Value(False, origin)) if off in names else (key, Value(True, origin))
            )
        else:
            target = key
            like = holder.get(key, unknown())
            value = cast_text(values[0], like, annotations.get(key, ""), origin)
            if len(values) > 1:
                loose.extend(values[1:])
        assert target is not None
        (holder if target in names else extra)[target] = value
    free = [name for name in names if name not in holder]
    for name, token in zip(free, loose, strict=False):
        like = unknown()
        holder[name] = cast_text(token, like, annotations.get(name, ""), token.origin)
    if spec.kwarg is not None:
        holder.update(extra)
    return call_with_settings(machine, function, holder, [owner] if owner is not None else [])


def call_with_settings(
    machine: Machine, function: Function, settings: Items, args: Sequence[Value] = ()
) -> Value:
    """Call a function with what the command line gives its parameters, noted as settings."""
    machine.observer.settings(function.name, Value(settings), "arguments")
    kwargs = {str(key): value for key, value in settings.items()}
    return machine.call(Value(function), list(args), kwargs, function.site)


def annotations_of(function: Function) -> dict[str, str]:
    """The source text of each parameter's annotation, empty where it has none."""
    spec = function.node.args
    parameters = (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)
    return {p.arg: ast.unparse(p.annotation) if p.annotation else "" for p in parameters}


def fire(machine: Machine, call: Invocation) -> Value:
    component = call.argument(0, "component")
    argv = machine.argv[1:]
    if component is None:
        component = Value(machine.frames[-1].scope.module)
    return _fire_component(machine, component, argv)


def _fire_component(machine: Machine, component: Value, argv: list[Value]) -> Value:
    method = component.data if isinstance(component.data, Bound) else None
    function = as_function(method.func if method is not None else component)
    if function is not None:
        owner = method.self if method is not None else None
        return call_with_flags(machine, function.undecorated(), argv, owner)
    cls = as_class(component)
    if cls is not None:
        flags, loose = parse_flags(argv)
        init = cls.method("__init__")
        spec = init.node.args if init is not None else None
        names = {a.arg for a in (*spec.args, *spec.kwonlyargs)} if spec is not None else set()
        kwargs = {
            n.replace("-", "_"): plain_scalar(v[0])
            for n, v, _ in flags
            if v and n.replace("-", "_") in names
        }
        made = machine.call(component, [], kwargs, Site(cls.module.file, cls.node.lineno))
        loose += [token for _, values, _ in flags for token in values[1:]]
        rest = [
            t for t in argv if str(t.data).lstrip("-").split("=")[0].replace("-", "_") not in names
        ]
        return _fire_component(machine, made, rest) if loose else made
    if argv and not str(argv[0].data).startswith("-"):
        name = argv[0].data
        member = (
            machine.getitem(component, argv[0])
            if component.mapping is not None
            else machine.getattr(component, str(name).replace("-", "_"))
        )
        if not member.unknown:
            return _fire_component(machine, member, argv[1:])
    return unknown()


def _enter_bound(machine: Machine, function: Function, decorator: Value) -> Value | None:
    if not path_of(decorator).endswith("argbind.bind"):
        return None
    return call_with_flags(machine, function.undecorated(), machine.argv[1:])


FUNCTIONS = Plugin(on_enter=_enter_bound)


# Parsers made of dataclasses: HfArgumentParser, TRL, tyro, pyrallis, draccus, chz.


_CONFIGS = ("--config_path", "--config", "--config-path")
"""Options that name a configuration file."""


def _dataclass_types(machine: Machine, instance: Value, call: Invocation) -> None:
    """What a class built on such a parser finds in `self.dataclass_types`."""
    owner = as_instance(instance)
    if owner is not None and any(
        base in GROUPS["dataclass_parser"] for base in owner.cls.external_bases()
    ):
        owner.attrs["dataclass_types"] = Value(_record_classes(instance))


def _record_classes(base: Value | None) -> list[Value]:
    """The record classes that a parser was constructed with."""
    made, owner = as_call(base), as_instance(base)
    if made is not None:
        given = made.args[0] if made.args else made.kwargs.get("dataclass_types", unknown())
        return iterate(given) or [given]
    if owner is not None and owner.args:
        return iterate(owner.args[0]) or [owner.args[0]]
    return []


def into_dataclasses(machine: Machine, call: Invocation) -> Value:
    records = [make_record(machine, kind) for kind in _record_classes(call.base)]
    words = iterate(call.argument(0, "args"))
    argv = words if words is not None else machine.argv[1:]
    declared = any("config" in record_attributes(record) for record in records)
    if argv and (argv[0].text or "").endswith((".json", ".yaml", ".yml")):
        apply_config_file(machine, records, argv[0])
        argv = argv[1:]
    argv = _with_config_files(machine, records, argv, () if declared else ("--config",))
    rest = fill_records(machine, records, argv)
    finish_records(machine, records)
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
            apply_config_file(machine, records, file)
        else:
            rest.append(token)
    return rest


def records_from_file(machine: Machine, call: Invocation) -> Value:
    records = [make_record(machine, kind) for kind in _record_classes(call.base)]
    path = call.argument(0, "json_file", "yaml_file")
    if path is not None:
        apply_config_file(machine, records, path)
    # given beside a file, the program's own code merges it in some way
    fill_records(machine, records, machine.argv[1:])
    finish_records(machine, records)
    return Value(tuple(records))


def records_from_dict(machine: Machine, call: Invocation) -> Value:
    records = [make_record(machine, kind) for kind in _record_classes(call.base)]
    mapping = machine.mapping(call.first)
    for record in records:
        update_record(record, mapping or {})
    finish_records(machine, records)
    return Value(tuple(records))


def record_from_command_line(machine: Machine, call: Invocation) -> Value:
    """`tyro.cli(Config)` and its like: an object of the class, or a call of the function."""
    kind = call.need(0, "f", "config_class", "config_cls")
    argv = iterate(call.kwargs.get("args")) or machine.argv[1:]
    function = as_function(kind)
    if function is not None:
        return call_with_flags(machine, function, argv)
    if kind.mapping is not None:
        return _chosen_config(machine, kind, argv)
    record = make_record(machine, kind)
    default = call.kwargs.get("default")
    if default is not None:
        update_record(record, record_attributes(default))
    owner = as_instance(record)
    if owner is not None and owner.cls.external_bases():
        _admit_fields(record, [name for name, _, _ in parse_flags(argv)[0]])
    rest = _with_config_files(machine, [record], argv, _CONFIGS)
    left = fill_records(machine, [record], choose_classes(machine, record, rest))
    loose = [token for token in left if not str(token.data).startswith("-")]
    cls = as_class(kind)
    for name, token in zip(_positional_fields(cls) if cls is not None else (), loose, strict=False):
        record_attributes(record)[name] = token
    _choose_subcommands(machine, record, loose)
    finish_records(machine, [record])
    return record


def _admit_fields(record: Value, names: list[str]) -> None:
    """Fields of a class of a library, known by the flags that set them only: `--steps 10`."""
    for name in names:
        if name.isidentifier() and name not in ("config", "config_path"):
            record_attributes(record).setdefault(name, unknown(name))


def parse_into_itself(machine: Machine, call: Invocation) -> Value:
    """typed-argument-parser's `Args().parse_args()`: the object that it is called on, filled."""
    record, owner = call.owner, as_instance(call.base)
    if owner is None:
        return unknown()
    fill_records(machine, [record], machine.argv[1:])
    hook = owner.cls.method("process_args")
    if hook is not None:
        machine.call_function(hook, [record], {}, call.site)
    finish_records(machine, [record])
    return record


def _positional_fields(cls: Class) -> list[str]:
    """Fields given by position: `field(positional=True)`, `x: tyro.conf.Positional[str]`."""
    names = []
    for current in reversed(cls.mro()):
        for node in current.node.body:
            name = variable_name(node.target) if isinstance(node, ast.AnnAssign) else None
            if not isinstance(node, ast.AnnAssign) or name is None:
                continue
            marked = isinstance(node.value, ast.Call) and any(
                keyword.arg == "positional" and constant_value(keyword.value) is True
                for keyword in node.value.keywords
            )
            if marked or "Positional[" in ast.unparse(node.annotation):
                names.append(name)
    return names


def configs_by_name(machine: Machine, call: Invocation) -> Value:
    return call.argument(0, "defaults") or unknown()


def _chosen_config(machine: Machine, options: Value, argv: list[Value]) -> Value:
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
                return _chosen_config(machine, record, argv[index + 1 :])
            pair = record.sequence if record.elements is None else None
            if pair is not None and len(pair) == 2:
                record = pair[1]
            fill_records(machine, [record], argv[index + 1 :])
            note_records(machine, [record])
            choice = Value({"method_name": token})
            machine.observer.settings("command", choice, "arguments")
            return record
    return unknown()


def _choose_subcommands(machine: Machine, record: Value, names: list[Value]) -> None:
    for token in names:
        for key, value in list(record_attributes(record).items()):
            wanted = f"{key}:"
            if token.text is not None and token.text.startswith(wanted.replace("_", "-")):
                record_attributes(record)[key] = Value(value.data, token.origin)


def _enter_wrapped(machine: Machine, function: Function, decorator: Value) -> Value | None:
    """`@pyrallis.wrap()`: the main function, given an object of its first parameter's class.

    So is one under any decorator that is not followed, as nothing else could give it: it is called
    without arguments.
    """
    spec = function.node.args
    first = next(iter((*spec.posonlyargs, *spec.args)), None)
    if path_of(decorator).startswith("hydra.") or first is None or first.arg in function.defaults:
        return None
    kind = _annotated_record(machine, function, first)
    if kind is None:
        return None
    parse = Invocation("pyrallis.parse", [kind], {}, function.site)
    args = [record_from_command_line(machine, parse)]
    return machine.call(Value(function.undecorated()), args, {}, function.site)


def _annotated_record(machine: Machine, function: Function, parameter: ast.arg) -> Value | None:
    """The record class that a parameter is annotated with."""
    if parameter.annotation is None:
        return None
    kind = machine.evaluate(parameter.annotation, function.scope)
    return kind if is_record(kind) else None


def record_parameters(machine: Machine, function: Function) -> Items:
    """Objects for the parameters without defaults that are annotated with record classes.

    Their fields are set by `--config.lr 0.1`, or by `--lr 0.1` alone.
    """
    spec = function.node.args
    records: Items = {}
    for parameter in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs):
        kind = None
        if parameter.arg not in function.defaults:
            kind = _annotated_record(machine, function, parameter)
        if kind is not None:
            record = records[parameter.arg] = make_record(machine, kind)
            fill_prefixed(machine, record, f"{parameter.arg}.")
            finish_records(machine, [record])
    return records


_READS_COMMAND = re.compile(
    r"parse|(^|_)cli(_|$)|from_(args|argv|cli|command)|entry_?point"
    r"|(load|get|make|build)_(args|arguments|config|cfg|settings)"
)
"""Names of functions that make an object of a class by the command line."""


def _by_unknown_parser(machine: Machine, call: Invocation) -> Value | None:
    """`parse(Config)` of a parser that is not known: an object of the record class."""
    kind = call.first
    if kind is None or not _READS_COMMAND.search(call.path.rpartition(".")[2]):
        return None
    cls = as_class(kind)
    return record_from_command_line(machine, call) if cls is not None and is_record(kind) else None


def _marked_type(machine: Machine, base: Value, index: Value) -> Value:
    """`tyro.conf.Positional[T]` is T."""
    return index


RECORDS = Plugin(
    on_constructed=_dataclass_types,
    on_enter=_enter_wrapped,
    otherwise=_by_unknown_parser,
    items={"tyro.conf.": _marked_type},
    calls=modelled("records", globals()) | dict.fromkeys(record_classes(), construct_record),
)
