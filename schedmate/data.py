"""Tables, patterns and rules kept as YAML beside the code that uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent


def load(name: str) -> Any:
    """The content of a YAML file that comes with schedmate, named relative to the package."""
    return parse((PACKAGE / name).read_text(encoding="utf-8"))


def parse(text: str) -> Any:
    """The plain values that YAML text says; raises `yaml.YAMLError`."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(text, Loader=loader)  # noqa: S506 - a safe loader, the fast one if built
