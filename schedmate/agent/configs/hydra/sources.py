"""Where Hydra finds configs: directories in order, then entries of the ConfigStore."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from schedmate.agent.configs.files import ConfigError, Source, load
from schedmate.agent.configs.trees import merge
from schedmate.agent.configs.yaml_reader import read_yaml
from schedmate.agent.values import Value
from schedmate.errors import did_you_mean
from schedmate.paths import is_dir, is_file

_HEADER = re.compile(r"#\s*@(\S+)\s+(\S+)\s*")

BUILT_IN = {
    "output": ("default",),
    "launcher": ("basic",),
    "sweeper": ("basic",),
    "help": ("default",),
    "hydra_help": ("default",),
    "hydra_logging": ("default", "disabled", "none", "hydra_debug"),
    "job_logging": ("default", "disabled", "none", "stdout"),
    "callbacks": (),
    "env": ("default",),
}
"""Hydra's own groups below `hydra/` and the options it ships; they say nothing of training."""


@dataclass(frozen=True, slots=True)
class Config:
    """One config: its tree without the defaults list, the list, its `@package` header."""

    tree: Value
    defaults: list[Value]
    header: str | None


class Sources:
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
        self._loaded: dict[str, Config | None] = {}

    def load(self, path: str) -> Config | None:
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
        if head == "hydra" and name in BUILT_IN:
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
        for parent in self.directories:
            try:
                place = parent / path
                if is_dir(place) if directory else is_file(place):
                    resolved = place.resolve()
                    if resolved.is_relative_to(self._base):
                        return resolved
            except (OSError, RuntimeError, ValueError):
                continue
        return None

    def _load(self, path: str) -> Config | None:
        stem = path.removesuffix(".yaml")
        stored = self._stored.get(stem)
        named = path if path.endswith((".yaml", ".yml")) else f"{path}.yaml"
        file = self._below(named, directory=False)
        if file is None:
            if stored is not None:
                return _split(stored[0], stored[1])
            return _split(Value({}), None) if _built_in(stem) else None
        try:
            source = load(file, self._root)
            tree = read_yaml(source)
        except ConfigError as error:
            self.warnings.append(str(error))
            return None
        if tree.data is None:
            tree = Value({}, tree.origin)
        if stored is not None:  # a file is laid upon a stored schema of the same name
            tree = merge(stored[0], tree)
        return _split(tree, _header(source))


def _built_in(path: str) -> bool:
    parts = path.split("/")
    return len(parts) == 3 and parts[0] == "hydra" and parts[2] in BUILT_IN.get(parts[1], ())


def _header(source: Source) -> str | None:
    """The package of a `# @package name` header at the top of a file."""
    package = None
    for line in source.text[:512].splitlines():
        if line.strip():
            match = _HEADER.fullmatch(line.strip())
            if match is None:
                break
            package = match[2] if match[1] == "package" else package
    return package


def _split(tree: Value, header: str | None) -> Config:
    if not isinstance(tree.data, dict):
        return Config(tree, [], header)
    content = {key: item for key, item in tree.data.items() if key != "defaults"}
    listed = tree.data.get("defaults")
    defaults = list(listed.data) if listed and isinstance(listed.data, list | tuple) else []
    return Config(Value(content, tree.origin), defaults, header)
