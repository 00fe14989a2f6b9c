"""Parsing Python source from several threads."""

from __future__ import annotations

import ast
import threading
import warnings

_LOCK = threading.Lock()


def parse(text: str) -> ast.Module:
    """`ast.parse`, one thread at a time and without its warnings about the source.

    Up to Python 3.12 the parser keeps its recursion depth in one place for all threads, and two
    at once make it fail (https://github.com/python/cpython/issues/106905). Raises what `ast.parse`
    raises.
    """
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def parse_expression(text: str) -> ast.expr:
    """The expression that `text` is; like `parse`."""
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text.strip(), mode="eval").body
