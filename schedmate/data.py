"""Tables, patterns and rules kept as YAML beside the code that uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def load(name: str) -> Any:
    """The content of a YAML file that comes with schedmate, named relative to the package."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    return yaml.load(text, Loader=loader)  # noqa: S506 - a safe loader, the fast one if built
