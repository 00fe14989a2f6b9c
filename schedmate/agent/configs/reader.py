"""`read_config`: one door for every format of plain configuration file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from schedmate.agent.configs.files import Source, load
from schedmate.agent.configs.json_reader import read_json
from schedmate.agent.configs.text_reader import read_ini, read_pairs, read_toml
from schedmate.agent.configs.yaml_reader import read_yaml
from schedmate.agent.values import Value

_BY_SUFFIX: dict[str, Callable[[Source], Value]] = {
    ".yaml": read_yaml,
    ".yml": read_yaml,
    ".json": read_json,
    ".json5": read_json,
    ".jsonc": read_json,
    ".toml": read_toml,
    ".ini": read_ini,
    ".properties": read_pairs,
    ".args": read_pairs,
}
_FIRST_LINES = re.compile(r"^\s*(?![#;\s])(.+)$", re.MULTILINE)


def read_config(path: Path, root: Path) -> Value:
    """Read a configuration file inside `root`; every leaf has its file and 1-based line.

    The format follows from the extension, and from the content where that says too little
    (`.cfg`, `.conf`, `.txt`, none). YAML with several documents gives a list of them. Raises
    ConfigError, with file and line, for what cannot be read.
    """
    source = load(path, root)
    read = _BY_SUFFIX.get(source.path.suffix.lower()) or _guess(source)
    return read(source)


def _guess(source: Source) -> Callable[[Source], Value]:
    found = _FIRST_LINES.findall(source.text[:4000])
    first = found[0].strip() if found else ""
    if re.fullmatch(r"\[[^\[\]{}\"',]+\]\s*(?:[#;].*)?", first):
        return read_ini
    if first.startswith(("{", "[")):
        return read_json
    if first.startswith(("---", "- ", "%YAML")) or re.match(r"[\w.\"'/-]+:(\s|$)", first):
        return read_yaml
    return read_pairs
