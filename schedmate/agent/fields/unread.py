"""Settings that the program was not seen to read: flags and files of its command, defaults of a
library's program.

A repository may hold no code of its own for a library's training program; its names and defaults
are in `outside.yaml`. `Reads` says which keys of a configuration file the program can read at all.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from schedmate.agent.configs.reader import read_config
from schedmate.agent.configs.scalars import parse_scalar
from schedmate.agent.configs.yaml_reader import BASE_KEY, read_detectron
from schedmate.agent.fields.candidates import Candidate, is_whole, pattern_of, rules
from schedmate.agent.fields.settings import Setting, all_settings, normal_name
from schedmate.agent.interp.libs.libraries import record_defaults
from schedmate.agent.interp.libs.parsers import flag_origin, parse_flags
from schedmate.agent.interp.objects import Instance
from schedmate.agent.interp.trace import Settings, Trace
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.launch.repo import Repo
from schedmate.agent.values import Origin, Value, lifted
from schedmate.base.errors import InputError
from schedmate.base.files import is_dir, is_file, paths_called

_CONFIG_FLAG = re.compile(r"^-{0,2}\w*(config|cfg|recipe|preset)[\w-]*$", re.IGNORECASE)
_WRITTEN_FLAG = re.compile(r"out|save|log|dump|report|result|write", re.IGNORECASE)
_SETTINGS_FLAG = re.compile(r"-{1,2}(c|f|conf|opt|h?params|settings)")
_CONFIG_NAME = re.compile(r"[A-Za-z0-9][\w./-]*")
_DATA_FOLDER = re.compile(r"([\w.-]+/)*data(sets?|[-_]?bin)?/[\w./-]+", re.IGNORECASE)
_PAIR = re.compile(r"[A-Za-z_][\w.]*=[^=].*", re.DOTALL)
_KEY = re.compile(r"[A-Za-z_]\w*(\.\w+)+")
_MAX_NAME = 250
_CONFIGS = (
    *(".yaml", ".yml", ".json", ".json5", ".jsonc", ".jsonnet", ".toml", ".ini", ".cfg", ".conf"),
    *(".hocon", ".config", ".pbtxt", ".prototxt", ".textproto"),
)
_CONFIG_SUFFIXES = (*_CONFIGS, ".py")


def add_command_settings(
    repo: Repo, trace: Trace, plan: LaunchPlan, missed: Collection[str] = ()
) -> None:
    """What the launcher configures, and flags and files of the command the program did not read.

    A program whose options or configuration are read by a library that could not be followed
    still means something by `--epochs 90` or `--config x.yaml`. The settings of the names `missed`
    are known not to come from the command, even if the program has some of these names.
    """
    if plan.facts:
        trace.settings.append(Settings("launcher", Value(dict(plan.facts)), "config"))
    read = {settings.name for settings in trace.settings}
    composed = any(name in read for name in ("hydra", "lightning", "merged config"))
    whole = composed and not {"hydra", "lightning"}.isdisjoint(read)
    unread = [] if whole else [f for f in config_files_in(repo, plan, trace) if f[0] not in read]
    if not unread and (usual := program_config_files(plan)):
        named = replace(plan, argv=[Value(name, Origin("library", text=name)) for name in usual])
        unread = list(config_files_in(repo, named, trace))
    parsed = any(settings.kind in ("arguments", "dataclass") for settings in trace.settings)
    if unread or not (parsed or composed):
        trace.settings.append(Settings("command", settings_from_argv(plan.argv), "arguments"))
    elif not composed:
        # flags whose declaration is in a library's dataclass or parser
        flags = settings_from_argv(plan.argv)
        used_keys = {
            normal_name(".".join(setting.path[-length:]))
            for setting in all_settings(trace)
            if setting.value.known and setting.value.data is not None
            for length in range(1, 5)
        }
        rest = _without_known(flags, used_keys.difference(map(normal_name, missed)))
        if rest:
            trace.settings.append(Settings("command", Value(rest), "arguments"))
    if not composed:
        known = {name for name, _ in unread} | read
        by_default = config_files_of_defaults(repo, plan, trace)
        unread = [*(one for one in by_default if one[0] not in known), *unread]
    for name, value in unread:
        trace.settings.append(Settings(name, value, "config"))
    trace.settings.extend(
        program_settings(plan, settings_from_argv(plan.argv), [v for _, v in unread])
    )


def _without_known(flags: Value, used_keys: set[str], above: str = "") -> dict[Any, Value]:
    """The flags that no known setting is named after, `a.b=c` by its whole path."""
    rest: dict[Any, Value] = {}
    for key, value in (flags.mapping or {}).items():
        path = f"{above}.{key}" if above else str(key)
        if isinstance(value.data, dict):
            inner = _without_known(value, used_keys, path)
            if inner:
                rest[key] = Value(inner, value.origin)
        elif normal_name(path) not in used_keys:
            rest[key] = value
    return rest


def settings_from_argv(argv: list[Value]) -> Value:
    """The flags as a mapping; `key=value` tokens count as flags too."""
    settings: dict[object, Value] = {}
    flags, loose = parse_flags(argv)
    if loose and isinstance(loose[0].data, str) and is_whole(loose[0].data):
        settings["model"] = loose[0]  # `run.py ppo --env ...`
    for name, values, flag in flags:
        origin = flag_origin(flag)
        if values and isinstance(values[0].data, str):
            settings[name.replace("-", "_")] = lifted(parse_scalar(values[0].data), origin)
            loose.extend(values if _PAIR.fullmatch(values[0].data) else values[1:])
        else:
            settings[name.replace("-", "_")] = Value(True, origin)
    for token, following in zip(loose, [*loose[1:], Value(None)], strict=False):
        if isinstance(token.data, str) and "." in token.data and "=" not in token.data:
            # yacs-style pairs: SOLVER.MAX_ITER 1000
            paired = isinstance(following.data, str) and "=" not in following.data
            if paired and _KEY.fullmatch(token.data) and not token.data.endswith(_CONFIG_SUFFIXES):
                _put_dotted(
                    settings,
                    token.data,
                    lifted(parse_scalar(following.text or ""), following.origin),
                )
        if isinstance(token.data, str) and "=" in token.data:
            key, _, text = token.data.partition("=")
            _put_dotted(settings, key.lstrip("+~"), lifted(parse_scalar(text), token.origin))
        elif isinstance(token.data, str) and _DATA_FOLDER.fullmatch(token.data):
            settings.setdefault("data", token)  # `train-tool data-bin/wikitext-103 --task ...`
    return Value(settings)


def _put_dotted(found: dict[object, Value], dotted: str, value: Value) -> None:
    *parents, last = dotted.split(".")
    place = found
    for parent in parents:
        inner = place.setdefault(parent, Value({}))
        if not isinstance(inner.data, dict):
            return
        place = inner.data
    place[last] = value


def config_files_in(repo: Repo, plan: LaunchPlan, trace: Trace) -> Iterator[tuple[str, Value]]:
    """Configuration files of the repository that the command names, by path or by name."""
    root = repo.root
    before = ""
    for token in plan.argv:
        flag, _, text = (token.data if isinstance(token.data, str) else "").rpartition("=")
        flag = flag or before
        path = _config_file(root, plan, text, flag)
        before = text if text.startswith("-") else ""
        if path is not None:
            yield from _contents(path, repo, plan, trace)
            continue
        name = f"/{text.rpartition('/')[2]}"
        elsewhere = any(f"/{settings.name}".endswith(name) for settings in trace.settings)
        if _is_read(text, flag) and not elsewhere:
            trace.warn(repo.missing_settings(text))


def config_files_of_defaults(
    repo: Repo, plan: LaunchPlan, trace: Trace
) -> Iterator[tuple[str, Value]]:
    """Configuration files of the repository that a default which the program reads names."""
    for setting in all_settings(trace):
        text = setting.value.text
        named = text is not None and text.endswith(_CONFIG_SUFFIXES) and not setting.unread
        if named and setting.source == "default" and setting.kind in ("arguments", "dataclass"):
            path = _config_file(repo.root, plan, text or "", setting.path[-1])
            if path is not None and _CONFIG_FLAG.search(setting.path[-1]):
                yield from _contents(path, repo, plan, trace)


def _contents(
    path: Path, repo: Repo, plan: LaunchPlan, trace: Trace
) -> Iterator[tuple[str, Value]]:
    """The place in the repository of a configuration file and what it holds, if it can be read.

    A module that was followed has said what it holds, and a list in JSON is data.
    """
    try:
        config = read_config(path, repo.root, variables=plan.env)
        if isinstance(config.data, dict) and BASE_KEY in config.data:
            config = read_detectron(path, repo.root)
        place = path.resolve().relative_to(repo.root).as_posix()
        if path.suffix == ".py" and (place == plan.entry or repo.read(place) in trace.texts):
            return
        if not isinstance(config.data, list) or path.suffix != ".json":
            yield place, config
    except (InputError, ValueError) as error:
        trace.warn(str(error))


def _is_read(text: str, flag: str) -> bool:
    """Whether a file is a configuration that the program reads; JSON holds data as well."""
    if text.endswith(".json"):
        return bool(not flag or _CONFIG_FLAG.search(flag) or _SETTINGS_FLAG.fullmatch(flag))
    return text.endswith(_CONFIGS) and not _WRITTEN_FLAG.search(flag)


def _config_file(root: Path, plan: LaunchPlan, text: str, flag: str) -> Path | None:
    if len(text) > _MAX_NAME:
        return None
    if text.endswith(_CONFIGS) or (text.endswith(".py") and _CONFIG_FLAG.search(flag)):
        folders = [root / plan.cwd, root]
        # `-d configs 125M.yml`: the files are in a folder that another word names
        words = [token.data for token in plan.argv if isinstance(token.data, str)]
        named = [word for word in words if _CONFIG_NAME.fullmatch(word) and len(word) <= _MAX_NAME]
        folders += [path for word in named if is_dir(path := root / plan.cwd / word)]
        return next((f / text for f in folders if is_file(f / text)), None)
    if not _CONFIG_FLAG.search(flag) or not _CONFIG_NAME.fullmatch(text) or ".." in text:
        return None
    # `--config llama/1B_lora`, a name that a library looks up in its folders
    stem = text.rpartition("/")[2]
    matching = [
        path
        for path in islice(paths_called(root, f"{stem}.y*ml"), 20)
        if path.with_suffix("").as_posix().endswith(f"/{text}")
    ]
    return matching[0] if len(matching) == 1 else None


# Training programs of libraries, run where the repository holds no code of its own for them.
#
# What their words mean, and what holds where nothing is said, is in outside.yaml.


@cache
def _library_programs() -> dict[str, tuple[str, dict[str, Any]]]:
    """Each program, by all its names: its first name and what is known of it."""
    programs: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, entry in rules("outside").items():
        for alias in (name, *entry.get("names", ())):
            programs[alias] = (name, entry)
    return programs


def library_program(plan: LaunchPlan) -> tuple[str, dict[str, Any], list[Value]] | None:
    """The program of a plan, what is known of it, and the words after its name."""
    if plan.entry is not None or plan.console is None:
        return None
    texts = [str(value.data) for value in plan.argv]
    for count in range(min(2, len(texts)), -1, -1):
        entry = _library_programs().get(" ".join([plan.console, *texts[:count]]))
        if entry is not None:
            return *entry, plan.argv[count:]
    return None


def program_python_config(root: Path, plan: LaunchPlan) -> str | None:
    """The Python file of the repository that the program of a plan is configured by."""
    found = library_program(plan)
    if found is None or not found[1].get("python"):
        return None
    for word in found[2]:
        path = root / plan.cwd / str(word.data)
        if path.suffix == ".py" and is_file(path) and path.resolve().is_relative_to(root):
            return path.resolve().relative_to(root).as_posix()
    return None


def program_config_files(plan: LaunchPlan) -> list[str]:
    """The configuration files that the program of a plan reads where its words name none."""
    found = library_program(plan)
    return list(found[1].get("files", ())) if found is not None else []


def program_domain(plan: LaunchPlan) -> tuple[str, str] | None:
    """The only domain that the program of a plan trains for, and the program."""
    found = library_program(plan)
    return (found[1]["domain"], found[0]) if found is not None and "domain" in found[1] else None


def _value_at(value: Value, path: list[str]) -> Value | None:
    for part in path:
        if not isinstance(value.data, dict) or part not in value.data:
            return None
        value = value.data[part]
    return value


def _stem_of_name(value: Value, pattern: str) -> Value | None:
    """What of a name says what it names: `llama3_1/8B` of `llama3_1/8B_lora_single_device`."""
    match = re.fullmatch(pattern, str(value.data))
    return Value(match[1], value.origin) if match else None


def _trained_part(configs: list[Value], parts: str, length: str) -> dict[Any, Value]:
    """The part of a pipeline that is trained, by its name and for how long."""
    for config in configs:
        held = _value_at(config, [parts])
        for part in held.data if held is not None and isinstance(held.data, list) else ():
            if isinstance(part.data, dict) and {"name", length} <= part.data.keys():
                return {"model_name": part.data["name"], length: part.data[length]}
    return {}


def program_settings(plan: LaunchPlan, flags: Value, configs: list[Value]) -> list[Settings]:
    """What the program's own names mean, and its defaults, laid under what the command gives.

    `configs` are the configuration files that it reads.
    """
    known_program = library_program(plan)
    if known_program is None or not isinstance(flags.data, dict):
        return []
    name, entry, words = known_program
    library = Origin("library", text=name)
    named: dict[Any, Value] = {}
    for own, usual in entry.get("options", {}).items():
        value = _value_at(flags, own.split("."))
        pattern = entry.get("stems", {}).get(usual)
        if value is not None and pattern is not None:  # unless it is a file's name, which was read
            value = None if configs else _stem_of_name(value, pattern)
        if value is not None:
            named[usual] = value
    _, loose = parse_flags(words)
    plain = [word for word in loose if isinstance(word.data, str) and "=" not in word.data]
    named |= dict(zip(entry.get("positional", ()), plain, strict=False))
    if entry.get("evaluates"):
        data = named.get("dataset", flags.data.get("dataset"))
        if data is not None:
            named["val_dataset"] = data
    if "part" in entry:
        named |= _trained_part(configs, **entry["part"])
    defaults = {key: Value(value, library) for key, value in entry.get("defaults", {}).items()}
    if "record" in entry:
        defaults = record_defaults(entry["record"]) | defaults
    missing = {key: value for key, value in defaults.items() if key not in flags.data}
    translated = [Settings(name, Value(named), "arguments")] if named else []
    return [*translated, *([Settings(name, Value(missing), "config")] if missing else [])]


# Which keys of a configuration file the program can read at all.
#
# A file may hold keys that no code reads any more. A key counts as read where a module that was
# followed spells it, or where it is in something that a library is given.


NOTE = "no code of this run was seen to read this key"
_LEAST_KEYS = 3
_LEAST_SHARE = 0.5
"""Share of a file's keys that the code must spell, so that it is known to read them by name."""
_BY_LIBRARY = pattern_of("unread.by_library")
"""How libraries are told to read configurations in ways of their own."""
_DEEP = 3
_MANY = 5_000
"""Mappings that are looked through, of those that libraries are given."""


class Reads:
    """What the modules of a run spell, looked up when it is asked for."""

    def __init__(self, trace: Trace, settings: list[Setting]) -> None:
        self._trace = trace
        self._settings = settings
        self._handed: set[str] | None = None
        self._by_library: bool | None = None
        self._spelt: dict[str, bool] = {}
        self._by_name: dict[str, bool] = {}
        self._marked: set[tuple[str | None, int | None]] = set()

    def mark(self, known: Iterable[tuple[int, Setting]]) -> None:
        """Say of each of the settings, by rank, whether it stands in a file and is not read."""
        for _, setting in known:
            origin = setting.value.origin
            if setting.kind != "config" or setting.source != "config" or origin is None:
                continue
            if not self._is_read(setting.path[-1]) and self._reads_by_name(setting.owner):
                setting.unread = True
                self._marked.add((origin.file, origin.line))

    def doubted(self, candidate: Candidate) -> Candidate:
        """The candidate, doubted with a note for people where it is of a file and is not read."""
        if candidate.place not in self._marked:
            return candidate
        return replace(candidate, note=NOTE, doubted=True)

    def _is_read(self, key: str) -> bool:
        if key not in self._spelt:
            word = re.compile(r"\b" + "[-_]".join(map(re.escape, key.split("-"))) + r"\b")
            self._spelt[key] = any(word.search(text) for text in self._trace.texts)
        return self._spelt[key] or normal_name(key) in self._passed_keys()

    def _reads_by_name(self, owner: str) -> bool:
        """Whether the program reads a file key by key: it spells most of them."""
        if self._by_library is None:
            libraries = (event.path for event in self._trace.calls if event.cls is None)
            self._by_library = any(map(_BY_LIBRARY.search, libraries))
        if self._by_library:
            return False
        if owner not in self._by_name:
            keys = {s.path[-1] for s in self._settings if s.kind == "config" and s.owner == owner}
            spelt = sum(self._is_read(key) for key in keys)
            self._by_name[owner] = spelt >= max(_LEAST_KEYS, _LEAST_SHARE * len(keys))
        return self._by_name[owner]

    def _passed_keys(self) -> set[str]:
        """The keys, normalised, of what calls are given by keyword or in mappings."""
        if self._handed is None:
            self._handed = set()
            seen: set[int] = set()
            for event in self._trace.calls:
                self._handed.update(map(normal_name, event.kwargs))
                if event.cls is None or event.cls.external_bases():
                    for value in (*event.args, *event.kwargs.values()):
                        self._handed.update(_mapping_keys(value, 0, seen))
        return self._handed


def _mapping_keys(value: Value, depth: int, seen: set[int]) -> Iterator[str]:
    """The keys of a mapping and of those in it, normalised, each mapping once."""
    data = value.data
    items = data.attrs if isinstance(data, Instance) else data
    if not isinstance(items, dict) or depth > _DEEP or id(items) in seen or len(seen) > _MANY:
        return
    seen.add(id(items))
    for key, item in items.items():
        if isinstance(key, str):
            yield normal_name(key)
        if isinstance(item, Value):
            yield from _mapping_keys(item, depth + 1, seen)
