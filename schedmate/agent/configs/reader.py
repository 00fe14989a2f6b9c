"""`read_config`: one door for every format of plain configuration file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from schedmate.agent.configs.files import Source, load
from schedmate.agent.configs.hocon_reader import looks_like_hocon, read_hocon
from schedmate.agent.configs.json_reader import read_json
from schedmate.agent.configs.jsonnet import is_jsonnet, read_jsonnet
from schedmate.agent.configs.text_reader import read_ini, read_pairs, read_toml
from schedmate.agent.configs.trees import set_dotted
from schedmate.agent.configs.yaml_reader import read_yaml
from schedmate.agent.configs.yaml_refs import REF, resolve_refs
from schedmate.agent.values import Value

_BY_SUFFIX: dict[str, Callable[[Source], Value]] = {
    ".yaml": read_yaml,
    ".yml": read_yaml,
    ".json": read_json,
    ".json5": read_json,
    ".jsonc": read_json,
    ".toml": read_toml,
    ".ini": read_ini,
    ".hocon": read_hocon,
    ".properties": read_pairs,
    ".args": read_pairs,
}


_JSONNET = (".jsonnet", ".libsonnet")


def read_config(
    path: Path,
    root: Path,
    *,
    overrides: Mapping[str, Value] | None = None,
    variables: Mapping[str, Value] | None = None,
) -> Value:
    """Read a configuration file inside `root`; every leaf has its file and 1-based line.

    The format follows from the extension, and from the content where that says too little
    (`.cfg`, `.conf`, `.txt`, none). YAML with several documents gives a list of them. `overrides`
    are set by dotted path, before HyperPyYAML's references are followed; `variables` are what
    Jsonnet's `std.extVar` finds. Raises ConfigError, with file and line, for what cannot be read.
    """
    source = load(path, root)
    suffix = source.path.suffix.lower()
    if suffix in _JSONNET or (suffix == ".json" and is_jsonnet(source)):
        return read_jsonnet(source, root, variables)
    read = _BY_SUFFIX.get(suffix) or _guess(source)
    config = read(source)
    for key, value in (overrides or {}).items():
        config = set_dotted(config, key, value)
    return resolve_refs(config) if REF in source.text and read is read_yaml else config


def read_hocon_text(text: str, name: str | None) -> Value:
    """A HOCON text that a program made, cited as the file `name` that it made it from."""
    return read_hocon(Source(text, name, Path(name or "")))


def _guess(source: Source) -> Callable[[Source], Value]:
    stripped = (line.strip() for line in source.text[:4000].split("\n"))
    first = next((line for line in stripped if line and line[0] not in "#;"), "")
    if re.fullmatch(r"\[[^\[\]{}\"',]+\]\s*(?:[#;].*)?", first):
        return read_ini
    if first.startswith(("{", "[")):
        return read_json
    if source.path.suffix == ".conf" and looks_like_hocon(source.text):
        return read_hocon
    if first.startswith(("---", "- ", "%YAML")) or re.match(r"[\w.\"'/-]+:(\s|$)", first):
        return read_yaml
    return read_pairs
