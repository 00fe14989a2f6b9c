"""The packages behind the models, which come with the `schedulers` extra."""

from __future__ import annotations

from importlib.util import find_spec

from schedmate.errors import UsageError


def require(*packages: str) -> None:
    """Raises `UsageError` when one of these cannot be imported."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise UsageError(
            f"this model needs {', '.join(missing)}: pip install 'schedmate[schedulers]'."
        )
