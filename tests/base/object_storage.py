"""What tests of objects are handed."""

from __future__ import annotations

from collections.abc import Callable

Put = Callable[[str, bytes | str], str]
"""Writes an object, and gives its URL."""
