"""absl flags, as TensorFlow and ml_collections use them."""

from __future__ import annotations

from collections.abc import Iterator

from schedmate.agent.interp import classes
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.cli.flags import flag_origin, plain_scalar, spelled
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import AttrDict, Call, Site
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import set_path
from schedmate.agent.interp.values.trees import as_config
from schedmate.agent.values import Origin, Value, unknown


def flags_object(machine: Machine) -> AttrDict:
    """The program's one `FLAGS`."""
    held = machine.shared.get("FLAGS")
    if held is None:
        held = AttrDict(flavour="flags")
        machine.shared["FLAGS"] = held
        machine.observer.settings("FLAGS", Value(held), "arguments")
    result: AttrDict = held
    return result


def define_flag(machine: Machine, call: Invocation) -> Value:
    """`flags.DEFINE_integer(name, default, help)`: set at once from the command line."""
    name = call.text(0, "name")
    if name is None:
        return unknown()
    default = call.argument(1, "default") or Value(None)
    here = Origin("default", call.site.file, call.site.line)
    value = Value(default.data, here) if default.known else default
    kind = classes.last(call.path).removeprefix("DEFINE_")
    several: list[Value] = []
    for flag, word, token in _words(machine):
        if flag == name:
            switch = kind in _BOOLEAN and "=" not in str(token.data)
            given = "true" if switch else str(word.data if word is not None else None)
            value = _flag_value(kind, given, token, flag)
            if kind.startswith("multi"):
                item = Value(given, value.origin)
                several.append(spelled(item, item.origin) if kind == "multi_integer" else item)
                value = Value(list(several), value.origin)
        elif flag == f"no{name}" and kind in _BOOLEAN:
            value = Value(False, token.origin)
    flags_object(machine)[name] = value
    return Value(Call(call.path, call.args, call.kwargs, {"value": value, "default": default}))


_BOOLEAN = ("bool", "boolean")


def _words(machine: Machine) -> Iterator[tuple[str, Value | None, Value]]:
    """The flags of the command, each with its value, attached or the next word, and its token."""
    words = machine.argv[1:]
    for token, after in zip(words, [*words[1:], None], strict=True):
        if token.text is not None and token.text.startswith("-"):
            name, equals, given = token.text.lstrip("-").partition("=")
            yield name, Value(given, token.origin) if equals else after, token


def _flag_value(kind: str, text: str, token: Value, flag: str) -> Value:
    origin = flag_origin(token, f"--{flag}")
    if kind in ("integer", "float"):
        return spelled(Value(text), origin)
    if kind in _BOOLEAN:
        return Value(text.lower() in ("true", "1", "yes", "t"), origin)
    if kind in ("list", "spaceseplist", "multi_string", "multi_enum"):
        return Value([Value(part, origin) for part in text.split(",")], origin)
    return Value(text, origin)


def app_run(machine: Machine, call: Invocation) -> Value:
    main = call.argument(0, "main")
    if main is None:
        main = machine.lookup("main", machine.frames[-1].scope)
    return machine.call(main, [Value(_without_flags(machine.argv))], {}, call.site)


def _without_flags(argv: list[Value]) -> list[Value]:
    """What absl leaves of the command line to the program."""
    left: list[Value] = []
    after_flag = False
    for number, token in enumerate(argv):
        text = token.text or ""
        if text == "--":
            return left + argv[number + 1 :]
        if not text.startswith("-") and not after_flag:
            left.append(token)
        after_flag = text.startswith("-") and "=" not in text
    return left


def config_file_flag(machine: Machine, call: Invocation) -> Value:
    """`config_flags.DEFINE_config_file`: follow the file's `get_config`, apply dotted flags."""
    name = call.text(0, "name")
    flag = name if name is not None else "config"
    path = call.argument(1, "default") or Value(None)
    for given, word, _ in _words(machine):
        if given == flag and word is not None:
            path = word
    config = unknown(flag)
    if path.text is not None:
        file, _, argument = path.text.partition(":")
        found = machine.sources.locate(file)
        if found is not None and found.suffix == ".py":
            module = machine.sources.module(found, found.stem)
            getter = machine.module_attr(module, "get_config")
            if getter is not None:
                args = [Value(argument, path.origin)] if argument else []
                config = machine.call(getter, args, {}, Site(module.file, 1))
                config = as_config(config, module.file)
    return _config_flag(machine, flag, config)


def config_dict_flag(machine: Machine, call: Invocation) -> Value:
    name = call.argument(0, "name")
    config = call.argument(1, "config")
    if name is None or config is None:
        return unknown()
    return _config_flag(machine, str(name.data), config)


def _config_flag(machine: Machine, flag: str, config: Value) -> Value:
    for key, word, token in _words(machine):
        if key.startswith(f"{flag}."):
            given = Value(str(word.data) if word is not None else "", token.origin)
            set_path(machine, config, key.split(".")[1:], plain_scalar(given))
    flags_object(machine)[flag] = config
    machine.observer.settings(flag, config, "config")
    return Value(Call("ml_collections.config_flags.DEFINE", [], {}, {"value": config}))


_ABSL = ("absl.flags", "tensorflow.flags", "tensorflow.app.flags", "tensorflow.compat.v1.flags",
         "tensorflow.platform.flags", "tensorflow.python.platform.flags", "gflags",
         "flags")  # fmt: skip


_DEFINES = (
    "DEFINE_string", "DEFINE_integer", "DEFINE_float", "DEFINE_bool", "DEFINE_boolean",
    "DEFINE_enum", "DEFINE_list", "DEFINE_multi_string", "DEFINE_multi_integer",
    "DEFINE_spaceseplist", "DEFINE_enum_class",
)  # fmt: skip

PLUGIN = Plugin(
    names={f"{root}.FLAGS": lambda machine: Value(flags_object(machine)) for root in _ABSL},
    calls={
        **{f"{root}.{name}": define_flag for root in _ABSL for name in _DEFINES},
        "absl.app.run": app_run,
        "tensorflow.app.run": app_run,
        "tensorflow.python.platform.app.run": app_run,
        "ml_collections.config_flags.DEFINE_config_file": config_file_flag,
        "ml_collections.config_flags.config_flags.DEFINE_config_file": config_file_flag,
        "ml_collections.config_flags.DEFINE_config_dict": config_dict_flag,
    },
)
