"""Parsing Python source from several threads."""

from __future__ import annotations

import ast
import re
import threading
import warnings

MAX_MARKS = 200_000
"""Most words and marks of a source that is parsed; the largest modules of libraries have 140,000.

A syntax tree takes a kilobyte and some ten microseconds for each, whatever the text's size.
"""
MAX_BRACES = 20_000
"""Most opening braces: up to Python 3.11 an f-string takes quadratic time in its fields."""

MAX_NAME = 300
"""Longest name of a program's own [characters]; fields are chosen by patterns of names."""

_LONG_WORD = re.compile(rf"(?<!\w)\w{{{MAX_NAME + 1}}}")
_STRIDE = 10
_SAMPLED_WORD = re.compile(rf"(?<!\w)\w{{{MAX_NAME // _STRIDE}}}")
_PUNCTUATION = ",;().[]{}:=+-*/%<>|&^~@"
_LOCK = threading.Lock()


class TooMuchSource(ValueError):  # noqa: N818 - not an error of the source's author
    """A source is data rather than a program, and too much of it to be parsed."""


def marks(text: str) -> int:
    """About how many words and marks a source has."""
    return len(text.split()) + sum(map(text.count, _PUNCTUATION))


def check(text: str) -> None:
    """Raises `TooMuchSource` for what is not to be parsed."""
    if text.count("{") > MAX_BRACES or (len(text) > MAX_MARKS and marks(text) > MAX_MARKS):
        raise TooMuchSource("too much data for source code")


def parse(text: str) -> ast.Module:
    """`ast.parse`, one thread at a time and without its warnings about the source.

    Up to Python 3.12 the parser keeps its recursion depth in one place for all threads, and two
    at once make it fail (https://github.com/python/cpython/issues/106905). Raises what `ast.parse`
    raises, and `TooMuchSource`.
    """
    check(text)
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
    if has_long_word(text) and any(map(_is_long, ast.walk(tree))):
        raise TooMuchSource(f"a name of more than {MAX_NAME} characters")
    return tree


def parse_or_none(text: str) -> ast.Module | None:
    """The syntax tree of a text; None where it is not Python or too much of it."""
    try:
        return parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def has_long_word(text: str) -> bool:
    """Whether a source may have a name that is too long."""
    # a word that is too long shows in every tenth character, which are looked at ten times as fast
    return _SAMPLED_WORD.search(text[::_STRIDE]) is not None and _LONG_WORD.search(text) is not None


def _is_long(node: ast.AST) -> bool:
    """Whether a node has a name that is too long."""
    names = (getattr(node, field, None) for field in ("id", "attr", "arg", "name", "module"))
    return any(isinstance(name, str) and len(name) > MAX_NAME for name in names)


def parse_expression(text: str) -> ast.expr:
    """The expression that `text` is; like `parse`."""
    check(text)
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text.strip(), mode="eval").body
