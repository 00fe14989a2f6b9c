"""Every leaf of a configuration, for tests."""

from __future__ import annotations

from collections.abc import Iterator

from schedmate.agent.values import Value


def leaves(value: Value, path: str = "") -> Iterator[tuple[str, Value]]:
    """Every scalar below a value with its dotted path, in order."""
    items = value.mapping if value.mapping is not None else dict(enumerate(value.sequence or ()))
    if value.mapping is None and value.sequence is None:
        yield path, value
    for key, item in items.items():
        yield from leaves(item, f"{path}.{key}" if path else str(key))
