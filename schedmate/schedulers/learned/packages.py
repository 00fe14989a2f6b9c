"""The packages of the learned models, which are in the `schedulers` extra."""

from __future__ import annotations

from schedmate import errors


def require(*packages: str, what: str = "this model") -> None:
    """Raises `MissingExtraError` when one of these cannot be imported."""
    errors.require(what, "schedulers", *packages)
