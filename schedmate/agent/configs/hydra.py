"""Composes Hydra configs from their directory: by defaults lists, then overrides, then
interpolations.

Nothing is imported or run. The rules are those of Hydra 1.1 and later
(https://hydra.cc/docs/advanced/defaults_list/): a config without `_self_` comes after its defaults,
overrides anywhere in the tree hold everywhere, interpolated options are settled after their
siblings. Below `compose_hydra` stand the defaults lists, their entries and packages, the override
grammar of the command line, and where configs are found: directories in order, then entries of the
ConfigStore.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any
from typing import Literal as Choice

from schedmate.agent.configs.interpolation import (
    CustomResolver,
    Resolver,
    grammar_scalar,
    has_interpolation,
    resolve_interpolations,
)
from schedmate.agent.configs.scalars import LiteralData, LiteralError, LiteralReader
from schedmate.agent.configs.trees import (
    ConfigError,
    Source,
    child,
    deep_merge,
    delete_dotted,
    load_source,
    merge,
    set_dotted,
    split_path,
)
from schedmate.agent.configs.yaml_reader import read_yaml
from schedmate.agent.values import Origin, Unknown, Value, lifted
from schedmate.base.data import load
from schedmate.base.errors import did_you_mean
from schedmate.base.files import is_dir, is_file


@dataclass(slots=True)
class HydraResult:
    """A composed config.

    `config` is what the program gets (without the `hydra` node, which `hydra` holds); `choices`
    maps each group (`group` or `group@package`) to its option; `warnings` says what was left out.
    """

    config: Value
    warnings: list[str] = field(default_factory=list)
    choices: dict[str, Value] = field(default_factory=dict)
    hydra: Value = field(default_factory=lambda: Value({}))


def compose_hydra(
    config_dir: Path,
    config_name: str,
    overrides: Sequence[Value],
    root: Path,
    structured: Mapping[str, Value] | None = None,
    search_path: Sequence[Path] = (),
    *,
    env: Mapping[str, Value] | None = None,
    resolvers: Mapping[str, CustomResolver] | None = None,
) -> HydraResult:
    """Compose as `hydra.main(config_path=config_dir, config_name=config_name)` would.

    `overrides` are the tokens after the program, of which Hydra's own flags are passed over.
    `structured` holds what the program stores in the ConfigStore, by `group/name` or `name`
    (`@package` may follow); `search_path` adds directories; `env` is what `oc.env` sees and
    `resolvers` are the program's own. What cannot be found or resolved becomes a warning and an
    unknown value. Raises ConfigError when the primary config is missing or broken, or the result
    is too large.
    """
    line = parse_command_line(overrides)
    warnings = list(line.warnings)
    sources = ConfigSources([config_dir, *search_path], root, structured or {})
    if config_name:
        primary = sources.load(config_name)
        if primary is None:
            reason = sources.warnings[-1] if sources.warnings else "no such config"
            hint = sources.slip(config_name)
            path = config_dir / config_name
            raise ConfigError(f"{path}: the primary config is missing ({reason}){hint}")
        _extend_search_path(sources, primary.tree, line.overrides, root, config_dir, warnings)
    listed, settings = _build_settled_defaults(sources, config_name, line.overrides, warnings)
    config = Value({})
    for placed in listed.placed:
        loaded = sources.load(placed.path)
        if loaded is not None:
            config = _embed_config(config, loaded.tree, placed.package, warnings)
    for override in settings:
        config = _apply_override(config, override, warnings)
    resolved = resolve_interpolations(config, env=env, resolvers=resolvers)
    own = resolved.mapping.pop("hydra", Value({})) if resolved.mapping is not None else Value({})
    return HydraResult(
        resolved, [*warnings, *listed.warnings, *sources.warnings], listed.choices, own
    )


def _build_settled_defaults(
    sources: ConfigSources, name: str, overrides: Sequence[Override], warnings: list[str]
) -> tuple[DefaultsList, list[Override]]:
    """The defaults list, and the overrides that set values rather than choose options."""
    groups = [item for item in overrides if _chooses_option(item, sources)]
    listed = build_defaults(sources, name, groups)
    # A group may exist only in a defaults list, when its options are registered by code not read.
    late = [
        item
        for item in overrides
        if item not in groups
        and "." not in item.key
        and item.group_key in listed.choices
        and not isinstance(item.value, dict)
    ]
    unused = set(listed.unused)
    if late or unused:
        warnings += [
            f"'{key}' is in no defaults list; Hydra wants it as +{key}=<option>"
            for key in listed.unused
        ]
        groups = [
            replace(item, kind="add")
            if item.kind == "change" and item.group_key in unused
            else item
            for item in [*groups, *late]
        ]
        listed = build_defaults(sources, name, groups)
    settings = [
        item for item in overrides if item not in late and not _chooses_option(item, sources)
    ]
    return listed, settings


def _chooses_option(override: Override, sources: ConfigSources) -> bool:
    return not isinstance(override.value, dict) and sources.is_group(override.key)


def _embed_config(config: Value, tree: Value, package: str, warnings: list[str]) -> Value:
    for part in reversed(split_path(package) if package else []):
        tree = Value({part: tree}, tree.origin)
    if not isinstance(tree.data, dict):
        warnings.append("a config that is not a mapping cannot stand at the top; it was left out")
        return config
    return deep_merge(config, tree, lambda value: _expand_reference(config, value))


def _expand_reference(config: Value, value: Value) -> Value:
    """The mapping an interpolation names, when something is merged into it."""
    if value.text is None or not has_interpolation(value.text):
        return value
    match = re.fullmatch(r"\$\{([\w.\[\]]+)\}", value.text.strip())
    target: Value | None = config if match and not match[1].startswith(".") else None
    for part in split_path(match[1]) if match else []:
        target = child(target, part) if target is not None else None
    return target if target is not None and isinstance(target.data, dict) else value


def _apply_override(config: Value, override: Override, warnings: list[str]) -> Value:
    if override.kind == "delete":
        changed = delete_dotted(config, override.key)
        if changed is None:
            warnings.append(f"'{override.text}' deletes nothing: there is no '{override.key}'")
        return changed or config
    value = lifted(override.value, override.origin)
    try:
        if override.kind == "change" and not override.key.startswith("hydra."):
            return set_dotted(config, override.key, value, create=False)
    except ConfigError:
        warnings.append(f"'{override.text}' sets a value the composed config does not have")
    try:
        return set_dotted(config, override.key, value)
    except ConfigError as error:
        warnings.append(str(error))
        return config


def _extend_search_path(
    sources: ConfigSources,
    primary: Value,
    overrides: Sequence[Override],
    root: Path,
    config_dir: Path,
    warnings: list[str],
) -> None:
    """Add the directories of `hydra.searchpath` (`pkg://a.b`, `file://dir`)."""
    config = primary
    for override in overrides:
        if override.key == "hydra.searchpath":
            config = set_dotted(config, override.key, lifted(override.value, override.origin))
    listed = Resolver(config, {}).select("hydra.searchpath", ())
    for item in listed.data if listed is not None and isinstance(listed.data, list) else []:
        text = item.data if isinstance(item.data, str) else ""
        scheme, _, rest = text.rpartition("://")
        relative = rest.replace(".", "/") if scheme == "pkg" else rest
        bases = [root, config_dir.parent, root / "src"] if relative else []
        directory = _first_inside((base / relative for base in bases), root, is_dir)
        if directory is None:
            warnings.append(f"search path '{text}' is not in the repository; it was left out")
        else:
            sources.directories.append(directory)


def _first_inside(
    places: Iterable[Path], root: Path, is_there: Callable[[Path], bool]
) -> Path | None:
    """The first of `places` that is there and lies inside `root`, without links."""
    for place in places:
        try:
            resolved = place.resolve()
            if is_there(place) and resolved.is_relative_to(root.resolve()):
                return resolved
        except (OSError, RuntimeError, ValueError):
            continue
    return None


# One entry of a defaults list, and the package arithmetic of Hydra.


SELF_ENTRY = "_self_"


@dataclass(slots=True)
class DefaultsEntry:
    """`group: name`, or a bare config `group/name` when `is_group` is false.

    `name` is None for no config, a list for several. After `place` the entry knows the group and
    the package of the config that lists it.
    """

    group: str
    name: str | list[str] | None
    is_group: bool = True
    absolute: bool = False
    package: str | None = None
    optional: bool = False
    override: bool = False
    origin: Origin | None = None
    base: str = ""
    parent_package: str = ""
    header: str | None = None

    def place(self, base: str, parent_package: str) -> None:
        """Tell the entry the group and the package of the config that lists it."""
        self.base, self.parent_package = base, parent_package
        if self.package is not None and "_group_" in self.package:
            default = self.group_path.replace("/", ".")
            self.package = f"_global_.{self.package.replace('_group_', default)}"

    def set_header(self, header: str | None) -> None:
        """Note the `@package` header of the config; a header is always absolute."""
        if header is None or header == "_group_":
            return
        if header != "_global_" and not header.startswith("_global_."):
            header = f"_global_.{header}" if header else "_global_"
        self.header = header.replace("_group_", self.group_path.replace("/", "."))

    def option(self, name: str) -> DefaultsEntry:
        """The entry for one of several options of this group."""
        group, _, name = f"{self.group}/{name}".rpartition("/")
        return DefaultsEntry(group, name, False, self.absolute, self.package, self.optional)

    @property
    def group_path(self) -> str:
        """The group below the search path."""
        if self.absolute or not self.base:
            return self.group
        return f"{self.base}/{self.group}" if self.group else self.base

    @property
    def config_path(self) -> str:
        """The config below the search path."""
        return f"{self.group_path}/{self.name}" if self.group_path else str(self.name)

    def final_package(self, *, use_header: bool = True) -> str:
        """The package the config is merged at; "" is the top."""
        package = self.package
        if package is None and use_header:
            package = self.header
        if package is None:
            package = self.group.replace("/", ".")
        if isinstance(self.name, str):
            package = package.replace("_name_", self.name)
        joined = ".".join(part for part in (self.parent_package, package) if part)
        _, mark, after = joined.rpartition("_global_")
        return after[1:] if mark else after  # `[1:]` makes `__global__` mean `_global_`, too

    @property
    def key(self) -> str:
        """`group`, or `group@package` when the package is not the group's own."""
        package = self.final_package(use_header=False)
        if package == self.group_path.replace("/", "."):
            return self.group_path
        return f"{self.group_path}@{package or '_global_'}"


def parse_defaults_entry(item: Value) -> DefaultsEntry | str:
    """An item of a defaults list; a string says what is wrong with it."""
    data = item.data
    if isinstance(data, str):
        path, at, package = data.partition("@")
        group, _, name = path.rpartition("/")
        absolute = path.startswith("/")
        entry = DefaultsEntry(
            group.lstrip("/"), name, False, absolute, _package_of_entry(at, package)
        )
        entry.origin = item.origin
        return entry
    if not isinstance(data, dict) or not data:
        return f"item {item.plain()!r} is neither a config nor 'group: option'; it was left out"
    pairs = dict(data)
    old_optional = pairs.pop("optional", None) if len(pairs) > 1 else None
    key, option = next(iter(pairs.items()))
    words = str(key).split() or [""]
    keywords = words[:-1]
    group, at, package = words[-1].partition("@")
    chosen = option.plain()
    if isinstance(chosen, list | tuple):
        chosen = [str(part) for part in chosen]
    elif chosen is not None and not isinstance(chosen, str):
        return f"option {chosen!r} of '{group}' is not text; quote it"
    if not group.strip("/"):
        return f"item {key!r} names no group; it was left out"
    return DefaultsEntry(
        group.strip("/"),
        chosen,
        absolute=group.startswith("/"),
        package=_package_of_entry(at, package),
        optional="optional" in keywords or bool(old_optional and old_optional.data),
        override="override" in keywords,
        origin=option.origin,
    )


def _package_of_entry(at: str, package: str) -> str | None:
    """The package after `@`; `_here_` is the package of the config that lists the entry."""
    if not at:
        return None
    package = package.partition(":")[0]
    return "" if package == "_here_" else package


# The command line of a Hydra program: its own flags and the override grammar.


OverrideKind = Choice["change", "add", "force", "delete"]

_TABLES: dict[str, Any] = load("agent/configs/hydra.yaml")
_VALUE_FLAGS: dict[str, str | None] = _TABLES["flags_with_a_value"]
_SWITCHES = frozenset(_TABLES["switches"])
BUILT_IN_GROUPS: dict[str, list[str]] = _TABLES["groups"]
"""Hydra's own groups below `hydra/` and the options it ships; they say nothing of training."""
_OVERRIDE = re.compile(
    r"(?P<sign>\+\+|\+|~|)(?P<key>[\w$./-]*)(?:@(?P<package>[\w$.:-]*))?(?:=(?P<value>.*))?",
    re.DOTALL,
)
_FUNCTION = re.compile(r"([A-Za-z_][\w-]*)\s*\((.*)\)", re.DOTALL)
_SWEEPS = ("choice", "range")
_FUNCTIONS = (
    "interval", "shuffle", "sort", "tag", "glob", "int", "float", "str", "bool", "json_str"
)  # fmt: skip
"""Functions of the grammar whose value is left unknown."""


@dataclass(frozen=True, slots=True)
class Override:
    """One override: `+group@package=option`, `a.b=c`, `~key`, ..."""

    kind: OverrideKind
    key: str
    package: str | None
    value: LiteralData
    has_value: bool
    text: str
    origin: Origin | None

    @property
    def group_key(self) -> str:
        """`group` or `group@package`, as defaults lists are overridden by."""
        return f"{self.key}@{self.package}" if self.package is not None else self.key


@dataclass(slots=True)
class CommandLine:
    """Hydra's own flags and the overrides, as the command line gives them."""

    overrides: list[Override] = field(default_factory=list)
    config_name: str | None = None
    config_path: str | None = None
    config_dir: str | None = None
    warnings: list[str] = field(default_factory=list)


def parse_command_line(tokens: Sequence[Value]) -> CommandLine:
    """Hydra's flags and overrides among `tokens`; what is neither is warned of and skipped."""
    line = CommandLine()
    remaining: Iterator[Value] = iter(tokens)
    for token in remaining:
        text = token.data
        if not isinstance(text, str):
            line.warnings.append("an override is not known and was left out")
            continue
        name, equals, attached = text.partition("=")
        if name in _VALUE_FLAGS:
            following = None if equals else next(remaining, None)
            value = attached if equals else (following.data if following else None)
            attribute = _VALUE_FLAGS[name]
            if attribute is not None and isinstance(value, str):
                setattr(line, attribute, value)
        elif text in _SWITCHES:
            continue
        elif text.startswith("-"):
            line.warnings.append(f"'{text}' is not a flag of Hydra; it was left out")
        else:
            _parse_override(text, token.origin, line)
    return line


def _parse_override(text: str, origin: Origin | None, line: CommandLine) -> None:
    match = _OVERRIDE.fullmatch(text)
    if match is None or not match["key"] or (match["value"] is None and match["sign"] != "~"):
        line.warnings.append(f"'{text}' is not an override (key=value); it was left out")
        return
    kinds: dict[str, OverrideKind] = {"": "change", "+": "add", "++": "force", "~": "delete"}
    package = match["package"]
    if package is not None and ":" in package:  # the old renaming form group@from:to
        package = package.rpartition(":")[2]
    raw = match["value"]
    value, swept = (
        _parse_override_value(raw.strip()) if raw else ("" if raw is not None else None, False)
    )
    if swept:
        line.warnings.append(f"'{text}' sweeps over several values; the first is used")
    kind = kinds[match["sign"]]
    line.overrides.append(
        Override(kind, match["key"], package, value, raw is not None, text, origin)
    )


def _parse_override_value(text: str) -> tuple[LiteralData, bool]:
    """The value of an override's right side, and whether it is the first of a sweep."""
    call = _FUNCTION.fullmatch(text)
    if call and call[1] in _FUNCTIONS:
        return Unknown(text), False
    try:
        elements = _sweep_elements(call[2] if call and call[1] in _SWEEPS else text)
    except (LiteralError, ValueError, OverflowError):
        return text, False
    if call and call[1] == "range" and len(elements) == 1:
        return 0, True
    return elements[0], len(elements) > 1


def _sweep_elements(text: str) -> list[LiteralData]:
    """Comma-separated elements; parentheses are text here, as there are no tuples in Hydra."""
    reader = LiteralReader(text, grammar_scalar, tuples=False)
    elements = [reader.value(",")]
    while reader.peek() == ",":
        reader.at += 1
        elements.append(reader.value(","))
    if reader.at < len(text):
        raise LiteralError(f"unexpected text at column {reader.at + 1}")
    return elements


# Where Hydra finds configs: directories in order, then entries of the ConfigStore.


_HEADER = re.compile(r"#\s*@(\S+)\s+(\S+)\s*")


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """One config: its tree without the defaults list, the list, its `@package` header."""

    tree: Value
    defaults: list[Value]
    header: str | None


class ConfigSources:
    """Loads configs by their path below the search path, such as `model/resnet`."""

    def __init__(
        self, directories: Sequence[Path], root: Path, structured: Mapping[str, Value]
    ) -> None:
        self.directories = list(directories)
        self.warnings: list[str] = []
        self._root = root
        self._base = root.resolve()
        self._stored: dict[str, tuple[Value, str | None]] = {}
        for name, tree in structured.items():
            path, _, package = name.partition("@")
            self._stored[path.removesuffix(".yaml")] = (tree, package or None)
        self._loaded: dict[str, SourceConfig | None] = {}

    def load(self, path: str) -> SourceConfig | None:
        """The config at `path`, or None when there is none or it cannot be read."""
        if path not in self._loaded:
            self._loaded[path] = self._load(path)
        return self._loaded[path]

    def is_group(self, path: str) -> bool:
        """Whether `path` names a group: a directory, or the parent of a stored config."""
        group = path.strip("/")
        if not group or self._below(group, directory=True) is not None:
            return bool(group)
        head, _, name = group.partition("/")
        if head == "hydra" and name in BUILT_IN_GROUPS:
            return True
        return any(stored.startswith(f"{group}/") for stored in self._stored)

    def slip(self, path: str) -> str:
        """`; did you mean X?` with configs beside `path`, or nothing."""
        group, _, name = path.removesuffix(".yaml").rpartition("/")
        beside = {
            stored.rpartition("/")[2]
            for stored in self._stored
            if stored.rpartition("/")[0] == group
        }
        folder = self._below(group or ".", directory=True)
        if folder is not None:
            beside |= {file.stem for file in islice(folder.glob("*.y*ml"), 1000)}
        return did_you_mean(name, sorted(beside))

    def _below(self, path: str, *, directory: bool) -> Path | None:
        places = (parent / path for parent in self.directories)
        return _first_inside(places, self._base, is_dir if directory else is_file)

    def _load(self, path: str) -> SourceConfig | None:
        stem = path.removesuffix(".yaml")
        stored = self._stored.get(stem)
        named = path if path.endswith((".yaml", ".yml")) else f"{path}.yaml"
        file = self._below(named, directory=False)
        if file is None:
            if stored is not None:
                return _split(stored[0], stored[1])
            return _split(Value({}), None) if _built_in_config(stem) else None
        try:
            source = load_source(file, self._root)
            tree = read_yaml(source)
        except ConfigError as error:
            self.warnings.append(str(error))
            return None
        if tree.data is None:
            tree = Value({}, tree.origin)
        if stored is not None:  # a file is laid upon a stored schema of the same name
            tree = merge(stored[0], tree)
        return _split(tree, _package_header(source))


def _built_in_config(path: str) -> bool:
    parts = path.split("/")
    return len(parts) == 3 and parts[0] == "hydra" and parts[2] in BUILT_IN_GROUPS.get(parts[1], [])


def _package_header(source: Source) -> str | None:
    """The package of a `# @package name` header at the top of a file."""
    package = None
    for line in source.text[:512].splitlines():
        if line.strip():
            match = _HEADER.fullmatch(line.strip())
            if match is None:
                break
            package = match[2] if match[1] == "package" else package
    return package


def _split(tree: Value, header: str | None) -> SourceConfig:
    if not isinstance(tree.data, dict):
        return SourceConfig(tree, [], header)
    content = {key: item for key, item in tree.data.items() if key != "defaults"}
    listed = tree.data.get("defaults")
    defaults = list(listed.data) if listed and isinstance(listed.data, list | tuple) else []
    return SourceConfig(Value(content, tree.origin), defaults, header)


# Hydra's defaults lists: which configs are composed, in which order, into which package.
#
# The rules are those of Hydra 1.1 and later (https://hydra.cc/docs/advanced/defaults_list/): a
# config without `_self_` comes after its defaults, overrides anywhere in the tree hold everywhere,
# interpolated options are settled after their siblings.


MAX_CONFIGS = 2_000
"""Most configs one composition visits."""
MAX_NESTING = 40
"""Deepest chain of configs that list each other."""


@dataclass(frozen=True, slots=True)
class PlacedConfig:
    """A config to merge at `package` ("" is the top)."""

    path: str
    package: str


@dataclass(slots=True)
class _ChosenOption:
    option: str | list[str] | None
    origin: Origin | None
    external: bool = False
    used: bool = False


@dataclass(slots=True)
class DefaultsList:
    """The result: configs in order, the option each group got, and what went wrong."""

    placed: list[PlacedConfig] = field(default_factory=list)
    choices: dict[str, Value] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def build_defaults(
    sources: ConfigSources, config_name: str | None, group_overrides: Sequence[Override]
) -> DefaultsList:
    """The defaults list of a primary config under overrides of groups.

    `unused` names the group overrides (`group` or `group@package`) that matched no entry.
    """
    builder = _DefaultsBuilder(sources, group_overrides)
    builder.run(config_name)
    return builder.result


class _DefaultsBuilder:
    def __init__(self, sources: ConfigSources, overrides: Sequence[Override]) -> None:
        self.result = DefaultsList()
        self._sources = sources
        self._overrides: dict[str, _ChosenOption] = {}
        self._deletions: dict[str, Override] = {}
        self._deleted_keys: set[str] = set()
        self._appended: list[DefaultsEntry] = []
        self._visited = 0
        for override in overrides:
            option = _option_of_value(override)
            if override.kind == "delete":
                self._deletions[override.group_key] = override
            elif override.kind == "change":
                self._overrides[override.group_key] = _ChosenOption(option, override.origin, True)
            else:
                entry = DefaultsEntry(
                    override.key, option, package=override.package, origin=override.origin
                )
                self._appended.append(entry)

    def run(self, config_name: str | None) -> None:
        primary: list[PlacedConfig] = []
        if config_name:
            group, slash, name = config_name.rpartition("/")
            entry = DefaultsEntry(group.lstrip("/"), name, is_group=False, absolute=bool(slash))
            entry.place("", "")
            primary = self._expand(entry, (), primary=True)
        elif self._appended:
            primary = self._children(self._appended, "", "", ())
        own = [
            DefaultsEntry(group, options[0] if options else None)
            for group, options in BUILT_IN_GROUPS.items()
        ]
        hydra = self._children(own, "hydra", "hydra", ())
        self.result.placed = [*hydra, *primary]
        for key, chosen in self._overrides.items():
            if chosen.external and not chosen.used:
                self.result.unused.append(key)
            elif not chosen.used:
                self._warn(f"'override {key}: {chosen.option}' matches no entry of a defaults list")
        self.result.unused += [key for key in self._deletions if key not in self._deleted_keys]
        for key in [key for key in self.result.choices if _own_default(key, self.result.choices)]:
            del self.result.choices[key]

    def _warn(self, message: str) -> None:
        if message not in self.result.warnings:
            self.result.warnings.append(message)

    def _expand(
        self,
        entry: DefaultsEntry,
        ancestors: tuple[str, ...],
        *,
        primary: bool = False,
        interpolated: bool = False,
    ) -> list[PlacedConfig]:
        """The configs that `entry`, already placed, stands for, in order of merging."""
        path = entry.config_path
        config = None
        if isinstance(entry.name, str) and entry.name != "???":
            config = self._sources.load(path)
        if config is not None:
            entry.set_header(config.header)
        if self._deleted(entry):
            return []
        if entry.is_group:
            first = self.result.choices.setdefault(entry.key, lifted(entry.name, entry.origin))
            if first.plain() != entry.name:
                self._warn(f"'{entry.key}' is given both '{first.plain()}' and '{entry.name}'")
        if entry.name is None:
            return []
        if config is None:
            if entry.name == "???":
                self._warn(f"'{entry.key}' has no option yet; give one as {entry.key}=<option>")
            elif not entry.optional:
                hint = self._sources.slip(path)
                self._warn(f"config '{path}' is not in the repository; it was left out{hint}")
            return []
        here = PlacedConfig(path, entry.final_package())
        if path in ancestors:
            self._warn(f"the defaults list of '{path}' leads back to itself; it was cut there")
            return []
        self._visited += 1
        if self._visited > MAX_CONFIGS or len(ancestors) >= MAX_NESTING:
            self._warn(f"the defaults lists grow too large at '{path}'; the rest was left out")
            return [here]
        listed = [parse_defaults_entry(item) for item in config.defaults]
        entries = [item for item in listed if isinstance(item, DefaultsEntry)]
        for problem in (item for item in listed if isinstance(item, str)):
            self._warn(f"in the defaults list of '{path}': {problem}")
        appended = [replace(item) for item in self._appended] if primary else []
        if not any(item.name == SELF_ENTRY for item in entries) and (
            any(not item.override for item in entries) or (appended and not entries)
        ):
            entries.append(DefaultsEntry("", SELF_ENTRY, is_group=False))
        placed = self._children(
            [*entries, *appended],
            entry.group_path,
            entry.final_package(),
            (*ancestors, path),
            here,
            interpolated,
        )
        return placed if any(not item.override for item in [*entries, *appended]) else [here]

    def _children(
        self,
        entries: Sequence[DefaultsEntry],
        base: str,
        package: str,
        ancestors: tuple[str, ...],
        here: PlacedConfig | None = None,
        interpolated: bool = False,
    ) -> list[PlacedConfig]:
        """Expand the entries of one list, the last first: what it overrides reaches the others."""
        for entry in entries:
            if entry.name != SELF_ENTRY:
                entry.place(base, package)
            if entry.override and not interpolated:
                self._overrides.setdefault(entry.key, _ChosenOption(entry.name, entry.origin))
        slots: list[list[PlacedConfig]] = []
        deferred: list[tuple[int, DefaultsEntry]] = []
        for entry in reversed(entries):
            if entry.name == SELF_ENTRY:
                slots.append([here] if here else [])
                continue
            if entry.override:
                continue
            chosen = self._chosen(entry, entries) if entry.is_group else None
            if chosen is not None:
                entry.name, entry.origin, chosen.used = chosen.option, chosen.origin, True
            if isinstance(entry.name, list):
                self.result.choices.setdefault(entry.key, lifted(list(entry.name), entry.origin))
                for option in reversed(entry.name):
                    item = entry.option(option)
                    item.place(base, package)
                    slots.append(self._expand(item, ancestors, interpolated=interpolated))
            elif has_interpolation(entry.config_path):
                deferred.append((len(slots), entry))
                slots.append([])
            else:
                slots.append(self._expand(entry, ancestors, interpolated=interpolated))
        known = self._known_choices(entries) if deferred else Value({})
        for slot, entry in deferred:
            if self._settle(entry, known):
                slots[slot] = self._expand(entry, ancestors, interpolated=True)
        return [placed for slot in reversed(slots) for placed in slot]

    def _chosen(
        self, entry: DefaultsEntry, siblings: Sequence[DefaultsEntry]
    ) -> _ChosenOption | None:
        """The override of an entry; `task=x` also reaches the only `task@package` listed."""
        exact = self._overrides.get(entry.key)
        if exact is not None or "@" not in entry.key:
            return exact
        group = entry.key.partition("@")[0]
        same = [e for e in siblings if e.is_group and e.key.partition("@")[0] == group]
        return self._overrides.get(group) if len(same) == 1 else None

    def _known_choices(self, entries: Sequence[DefaultsEntry]) -> Value:
        listed = [
            lifted(
                {entry.key: list(entry.name) if isinstance(entry.name, list) else entry.name}
                if entry.is_group
                else entry.config_path,
                None,
            )
            for entry in entries
        ]
        return Value({**self.result.choices, "defaults": Value(listed)})

    def _settle(self, entry: DefaultsEntry, known: Value) -> bool:
        """Resolve the interpolation in an entry's name from the choices made so far."""
        text = f"{entry.group}/{entry.name}" if not entry.is_group else str(entry.name)
        asked = Value({**(known.mapping or {}), " ": Value(text.lstrip("/"))})
        answer = (resolve_interpolations(asked).mapping or {})[" "].data
        if not isinstance(answer, str):
            self._warn(f"option '{entry.name}' of '{entry.key}' cannot be resolved; left out")
            return False
        if entry.is_group:
            entry.name = answer
        else:
            entry.group, _, entry.name = answer.rpartition("/")
            entry.absolute = False  # Hydra reads the answer relative to the listing config
        return True

    def _deleted(self, entry: DefaultsEntry) -> bool:
        deletion = self._deletions.get(entry.key) if entry.is_group else None
        if deletion is None or (deletion.has_value and deletion.value != entry.name):
            return False
        self._deleted_keys.add(entry.key)
        return True


def _option_of_value(override: Override) -> str | list[str] | None:
    if isinstance(override.value, list):
        return [str(item) for item in override.value]
    if override.value is None or isinstance(override.value, str):
        return override.value
    return override.text.partition("=")[2].strip()


def _own_default(key: str, choices: dict[str, Value]) -> bool:
    """Whether a choice is Hydra's own default."""
    head, _, group = key.partition("/")
    return head == "hydra" and group in BUILT_IN_GROUPS and choices[key].origin is None
