"""Models the reading and writing of configuration files: YAML, JSON, TOML, INI and HOCON."""

from __future__ import annotations

import json
import re
from pathlib import Path

from schedmate.agent.configs.reader import read_config, read_hocon_text
from schedmate.agent.configs.scalars import parse_scalar
from schedmate.agent.interp.machine import Machine, Plugin
from schedmate.agent.interp.objects import Invocation, as_call, return_first
from schedmate.agent.interp.values.files import (
    FileHandle,
    WriteHandle,
    find_mislaid,
    keep_written,
    written_content,
)
from schedmate.agent.interp.values.mappings import attr_tree, deep_copy, plain_tree
from schedmate.agent.values import Value, lifted, unknown
from schedmate.base.errors import InputError
from schedmate.base.files import is_file

LARGE_FILE = 100_000
"""Size from which a file is asked whether it is a table [bytes]."""
MANY_ITEMS = 2_000
"""Entries that no settings have side by side."""


def locate_file(machine: Machine, path: Value) -> Path | None:
    """The repository's file that a path value means."""
    if isinstance(path.data, FileHandle):
        return path.data.path if machine.sources.inside(path.data.path) else None
    if path.text is not None:
        near = machine.frames[-1].scope.module.path if machine.frames else None
        file = machine.sources.locate(path.text, near) or machine.texts.get(path.text)
        file = file or find_mislaid(machine, path)
        return file if file is not None and is_file(file) else None
    return None


def required_file(machine: Machine, path: Value) -> Path | None:
    """The repository's file that a path value means, with a warning when it is not there."""
    file = locate_file(machine, path)
    if file is None and path.text:
        machine.observer.warns(machine.sources.repo.missing_settings(path.text))
    return file


def read_file(machine: Machine, path: Value) -> Value | None:
    """A configuration file's content, noted as settings; None when it is not in the repository."""
    named = str(path.data.path) if isinstance(path.data, FileHandle) else path.text
    if named is not None and (file := written_content(machine, named)) is not None:
        return note_settings(machine, file[1], file[0])
    located = locate_file(machine, path)
    if located is None:
        if path.text is not None and re.fullmatch(r"[^\n\0]{0,290}\.[A-Za-z]\w{1,4}", path.text):
            machine.observer.warns(machine.sources.repo.missing_settings(path.text))
        return None
    if _is_table(located):
        return unknown(origin=path.origin)
    try:
        value = plain_tree(read_config(located, machine.sources.root))
    except InputError as error:
        machine.observer.warns(str(error))
        return None
    return note_settings(machine, value, machine.sources.relative(located))


def _is_table(path: Path) -> bool:
    """Whether a large JSON file is a table, a vocabulary or an index, rather than settings."""
    try:
        if path.suffix != ".json" or path.stat().st_size < LARGE_FILE:
            return False
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    values = (
        content.values()
        if isinstance(content, dict)
        else content
        if isinstance(content, list)
        else ()
    )
    return len(values) > MANY_ITEMS and not any(isinstance(value, dict) for value in values)


def load_mapping(machine: Machine, call: Invocation) -> Value:
    """`yaml.safe_load(f)`, `json.load(f)`, `toml.load(path)` and the like."""
    source = call.argument(0, "stream", "fp", "f", "s", "path", "filename")
    if source is None:
        return unknown()
    dumped = as_call(source)
    if dumped is not None and dumped.path == "json.dumps" and dumped.args:
        return _with_object_hook(machine, call, deep_copy(dumped.args[0]))
    loaded = read_file(machine, source)
    if loaded is None:
        if source.text is not None and "\n" not in source.text and len(source.text) < 200:
            return _with_object_hook(
                machine, call, lifted(parse_scalar(source.text), source.origin)
            )
        return unknown(origin=source.origin)
    # the program may change what it loaded, and the settings noted are to change with it
    return _with_object_hook(machine, call, loaded)


def _with_object_hook(machine: Machine, call: Invocation, value: Value) -> Value:
    """`json.load(f, object_hook=Struct)`: every mapping as the hook makes it, inner ones first."""
    hook = call.kwargs.get("object_hook")
    if hook is None or hook.data is None:
        return value
    if value.elements is not None:
        return Value(
            [_with_object_hook(machine, call, item) for item in value.elements], value.origin
        )
    if value.mapping is None:
        return value
    inner = {key: _with_object_hook(machine, call, item) for key, item in value.mapping.items()}
    return machine.call(hook, [Value(inner, value.origin)], {}, call.site)


def load_documents(machine: Machine, call: Invocation) -> Value:
    """`yaml.load_all(f)`: the documents of a file."""
    loaded = load_mapping(machine, call)
    return Value([loaded], loaded.origin) if loaded.mapping is not None else loaded


def note_settings(machine: Machine, value: Value, name: str) -> Value:
    """The value, kept as settings that the program read under `name`; a JSON list is records."""
    if value.elements is not None and name.endswith(".json"):
        return value
    machine.observer.settings(name, value, "config")
    return value


def read_ini(machine: Machine, call: Invocation) -> Value:
    """`ConfigParser.read(path)`: the sections become the parser's items."""
    loaded = read_file(machine, call.args[0]) if call.args else None
    parser = as_call(call.base)
    if loaded is not None and parser is not None:
        for key, value in (machine.mapping(loaded) or {}).items():
            parser.attrs[str(key)] = value
        parser.attrs["__items__"] = loaded
    return Value([])


def _sections(call: Invocation) -> Value | None:
    """What the parser whose method is called has read."""
    parser = as_call(call.base)
    return parser.attrs.get("__items__") if parser is not None else None


def ini_get(machine: Machine, call: Invocation) -> Value:
    value = _sections(call)
    for key in call.args[:2]:
        mapping = machine.mapping(value)
        value = mapping.get(key.data) if mapping is not None else None
        if value is None and mapping is not None and key.text is not None:
            value = mapping.get(key.text.lower())  # options are read without their case
    return value if value is not None else call.kwargs.get("fallback", unknown())


def ini_items(machine: Machine, call: Invocation) -> Value:
    mapping = machine.mapping(_sections(call))
    if mapping is None:
        return unknown()
    inner = machine.mapping(mapping.get(call.first.text)) if call.args else mapping
    return Value([Value((lifted(key), value)) for key, value in (inner or {}).items()])


def dump_file(machine: Machine, call: Invocation) -> Value | None:
    """`yaml.dump(data, stream)`; None, a call like any other, for text that goes nowhere yet."""
    stream = call.argument(1, "stream", "fp", "f")
    if stream is None or not isinstance(stream.data, WriteHandle):
        return None
    keep_written(machine, stream, call.first)
    return Value(None)


def save_config(machine: Machine, call: Invocation) -> Value:
    """`OmegaConf.save(config, path)`."""
    target = call.argument(1, "f")
    if target is not None:
        keep_written(machine, target, call.argument(0, "config") or Value(None))
    return Value(None)


_LOADERS = (
    "yaml.safe_load", "yaml.load", "yaml.full_load", "yaml.unsafe_load", "yaml.YAML().load",
    "json.load", "json.loads", "toml.load", "toml.loads", "pyhocon.parse",
    "hyperpyyaml.load_hyperpyyaml", "mmcv.load", "mmengine.load", "rtoml.load", "hjson.load",
    "anyconfig.load", "pyjson5.load", "oyaml.safe_load", "yamlinclude.load",
)  # fmt: skip

_INI = ("ConfigParser", "RawConfigParser", "SafeConfigParser")

CONFIG_FILES = Plugin(
    calls={
        **dict.fromkeys(_LOADERS, load_mapping),
        **dict.fromkeys(("json.dump", "yaml.dump", "yaml.safe_dump", "toml.dump"), dump_file),
        "omegaconf.OmegaConf.save": save_config,
        **{
            f"yaml.{name}": load_documents
            for name in ("load_all", "safe_load_all", "full_load_all")
        },
        **{f"configparser.{kind}().read": read_ini for kind in _INI},
        **{
            f"configparser.{kind}().{method}": ini_get
            for kind in _INI
            for method in ("get", "getint", "getfloat", "getboolean")
        },
        **{f"configparser.{kind}().items": ini_items for kind in _INI},
    }
)


# pyhocon: trees read from HOCON, asked by dotted path.


HOCON_FLAVOUR = "hocon"


def parse_hocon_file(machine: Machine, call: Invocation) -> Value:
    """`ConfigFactory.parse_file(path)`."""
    loaded = read_file(machine, call.argument(0, "filename") or unknown())
    return attr_tree(loaded, HOCON_FLAVOUR) if loaded is not None else unknown()


def parse_hocon_text(machine: Machine, call: Invocation) -> Value:
    """`ConfigFactory.parse_string(text)`; the program may have put words into a file's text."""
    content = call.text(0, "content")
    if content is None:
        return unknown()
    lines = content.count("\n")
    files = [path for text, path in machine.texts.items() if text.count("\n") == lines]
    name = machine.sources.relative(files[-1]) if files else None
    try:
        tree = read_hocon_text(content, name)
    except InputError as error:
        machine.observer.warns(str(error))
        return unknown()
    return note_settings(machine, attr_tree(tree, HOCON_FLAVOUR), name or "configuration text")


def hocon_get(machine: Machine, call: Invocation) -> Value:
    """`tree.get_int("train.steps", default=0)` and its kin."""
    key = call.text(0, "key")
    value: Value | None = call.owner
    for part in (key or "").split("."):
        mapping = machine.mapping(value)
        value = mapping.get(part) if mapping is not None else None
    default = call.argument(1, "default")
    return value or default or unknown()


_HOCON_KINDS = ("int", "float", "bool", "string", "list", "config")


def _hocon_item(machine: Machine, call: Invocation) -> Value | None:
    """`tree["train.steps"]`: an item of the tree that the first name stands for."""
    outer, dot, rest = (call.first.text or "").partition(".")
    items = machine.mapping(call.owner)
    found = items.get(outer) if items is not None and dot else None
    return machine.getitem(found, Value(rest)) if found is not None else None


HOCON = Plugin(
    methods={
        HOCON_FLAVOUR: {
            "get": hocon_get,
            "__missing__": _hocon_item,
            **{f"get_{kind}": hocon_get for kind in _HOCON_KINDS},
        }
    },
    calls={
        "pyhocon.ConfigFactory.parse_file": parse_hocon_file,
        "pyhocon.ConfigFactory.parse_string": parse_hocon_text,
        "pyhocon.ConfigFactory.from_dict": return_first,
    },
)
