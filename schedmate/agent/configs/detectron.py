"""Detectron2 and yacs YAML: `_BASE_` files underneath, Python literals in strings."""

from __future__ import annotations

from pathlib import Path

from schedmate.agent.configs.files import ConfigError, load
from schedmate.agent.configs.scalars import parse_scalar
from schedmate.agent.configs.trees import ensure_bounded, merge, wrap
from schedmate.agent.configs.yaml_reader import read_yaml
from schedmate.agent.values import Value, unknown

BASE = "_BASE_"
_MAX_FILES = 100


def read_detectron(path: Path, root: Path) -> Value:
    """The config at `path` upon the configs its `_BASE_` names, which are read first.

    `_BASE_` is one path or a list, relative to the file. A base that is not in the repository
    (`detectron2://...`, `http://...`, absent) is left in `_BASE_` as an unknown value with its
    text. Strings such as `(60000, 80000)` become the literal, as yacs reads them. Raises
    ConfigError for a cycle of bases and for what `read_config` refuses.
    """
    reader = _Reader(root)
    config = reader.read(path, ())
    if reader.absent and isinstance(config.data, dict):
        absent = reader.absent
        bases = absent[0] if len(absent) == 1 else Value(absent, absent[0].origin)
        config = Value({BASE: bases, **config.data}, config.origin)
    return ensure_bounded(config, f"{path.name}: with its bases, the file")


class _Reader:
    def __init__(self, root: Path) -> None:
        self.absent: list[Value] = []
        self._root = root
        self._files = 0

    def read(self, path: Path, above: tuple[Path, ...]) -> Value:
        source = load(path, self._root)
        if source.path in above:
            raise source.error(f"is its own {BASE}, directly or through another; break the cycle")
        self._files += 1
        if self._files > _MAX_FILES:
            raise source.error(f"has more than {_MAX_FILES} files under {BASE}; reduce them")
        own = _literals(read_yaml(source))
        if not isinstance(own.data, dict):
            return own
        bases = own.data.pop(BASE, None)
        listed = bases.data if bases is not None and isinstance(bases.data, list) else [bases]
        config = Value({}, own.origin)
        for base in (item for item in listed if item is not None):
            base_path = _local(base, source.path.parent, self._root)
            if base_path is None:
                self.absent.append(unknown(str(base.data), base.origin))
            else:
                config = merge(config, self.read(base_path, (*above, source.path)))
        return merge(config, own)


def _local(base: Value, directory: Path, root: Path) -> Path | None:
    """The file a base names, when it is one of the repository."""
    if not isinstance(base.data, str) or "://" in base.data:
        return None
    path = directory / base.data
    try:
        load(path, root)
    except ConfigError:
        return None
    return path


def _literals(value: Value) -> Value:
    if isinstance(value.data, dict):
        return Value({key: _literals(item) for key, item in value.data.items()}, value.origin)
    if isinstance(value.data, list):
        return Value([_literals(item) for item in value.data], value.origin)
    if isinstance(value.data, str) and value.data.strip()[:1] in ("(", "["):
        return wrap(parse_scalar(value.data), value.origin)
    return value
