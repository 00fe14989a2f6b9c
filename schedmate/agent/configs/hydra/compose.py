"""Hydra composition: configs by defaults lists, then overrides, then interpolations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from schedmate.agent.configs.files import ConfigError
from schedmate.agent.configs.hydra.defaults import DefaultsList, build_defaults
from schedmate.agent.configs.hydra.overrides import Override, parse_command_line
from schedmate.agent.configs.hydra.sources import Sources
from schedmate.agent.configs.interpolation import (
    CustomResolver,
    Resolver,
    has_interpolation,
    resolve_interpolations,
)
from schedmate.agent.configs.trees import (
    child,
    deep_merge,
    delete_dotted,
    set_dotted,
    split_path,
    wrap,
)
from schedmate.agent.values import Value
from schedmate.paths import is_dir


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
    sources = Sources([config_dir, *search_path], root, structured or {})
    if config_name:
        primary = sources.load(config_name)
        if primary is None:
            reason = sources.warnings[-1] if sources.warnings else "no such config"
            hint = sources.slip(config_name)
            path = config_dir / config_name
            raise ConfigError(f"{path}: the primary config is missing ({reason}){hint}")
        _extend_search_path(sources, primary.tree, line.overrides, root, config_dir, warnings)
    listed, settings = _defaults(sources, config_name, line.overrides, warnings)
    config = Value({})
    for placed in listed.placed:
        loaded = sources.load(placed.path)
        if loaded is not None:
            config = _embed(config, loaded.tree, placed.package, warnings)
    for override in settings:
        config = _apply(config, override, warnings)
    resolved = resolve_interpolations(config, env=env, resolvers=resolvers)
    own = resolved.mapping.pop("hydra", Value({})) if resolved.mapping is not None else Value({})
    return HydraResult(
        resolved, [*warnings, *listed.warnings, *sources.warnings], listed.choices, own
    )


def _defaults(
    sources: Sources, name: str, overrides: Sequence[Override], warnings: list[str]
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


def _chooses_option(override: Override, sources: Sources) -> bool:
    return not isinstance(override.value, dict) and sources.is_group(override.key)


def _embed(config: Value, tree: Value, package: str, warnings: list[str]) -> Value:
    for part in reversed(split_path(package) if package else []):
        tree = Value({part: tree}, tree.origin)
    if not isinstance(tree.data, dict):
        warnings.append("a config that is not a mapping cannot stand at the top; it was left out")
        return config
    return deep_merge(config, tree, lambda value: _expand(config, value))


def _expand(config: Value, value: Value) -> Value:
    """The mapping an interpolation names, when something is merged into it."""
    if value.text is None or not has_interpolation(value.text):
        return value
    match = re.fullmatch(r"\$\{([\w.\[\]]+)\}", value.text.strip())
    target: Value | None = config if match and not match[1].startswith(".") else None
    for part in split_path(match[1]) if match else []:
        target = child(target, part) if target is not None else None
    return target if target is not None and isinstance(target.data, dict) else value


def _apply(config: Value, override: Override, warnings: list[str]) -> Value:
    if override.kind == "delete":
        changed = delete_dotted(config, override.key)
        if changed is None:
            warnings.append(f"'{override.text}' deletes nothing: there is no '{override.key}'")
        return changed or config
    value = wrap(override.value, override.origin)
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
    sources: Sources,
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
            config = set_dotted(config, override.key, wrap(override.value, override.origin))
    listed = Resolver(config, {}).select("hydra.searchpath", ())
    for item in listed.data if listed is not None and isinstance(listed.data, list) else []:
        text = item.data if isinstance(item.data, str) else ""
        scheme, _, rest = text.rpartition("://")
        relative = rest.replace(".", "/") if scheme == "pkg" else rest
        directory = _directory(relative, [root, config_dir.parent, root / "src"], root)
        if directory is None:
            warnings.append(f"search path '{text}' is not in the repository; it was left out")
        else:
            sources.directories.append(directory)


def _directory(path: str, bases: Sequence[Path], root: Path) -> Path | None:
    """The first directory `path` names below one of `bases` that lies inside `root`."""
    for base in bases:
        try:
            directory = (base / path).resolve()
            if path and is_dir(directory) and directory.is_relative_to(root.resolve()):
                return directory
        except (OSError, RuntimeError, ValueError):
            continue
    return None
