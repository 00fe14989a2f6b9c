"""Parses Python source: from several threads, within limits, and bodies of functions when
entered.

A run enters few of the functions of a large program, and making their nodes is half of what
parsing takes. So `parse_later` cuts the bodies out and parses each on first use. A file is cut
only where that is sure to give the same tree: strings have to end on the side of a cut on which
they begin, and brackets that a cut parts make what is left invalid, so that the whole is parsed.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, SupportsIndex

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


def count_marks(text: str) -> int:
    """About how many words and marks a source has."""
    return len(text.split()) + sum(map(text.count, _PUNCTUATION))


def ensure_parsable(text: str) -> None:
    """Raises `TooMuchSource` for what is not to be parsed."""
    if text.count("{") > MAX_BRACES or (len(text) > MAX_MARKS and count_marks(text) > MAX_MARKS):
        raise TooMuchSource("too much data for source code")


def parse(text: str) -> ast.Module:
    """`ast.parse`, one thread at a time and without its warnings about the source.

    Up to Python 3.12 the parser keeps its recursion depth in one place for all threads, and two
    at once make it fail (https://github.com/python/cpython/issues/106905). Raises what `ast.parse`
    raises, and `TooMuchSource`.
    """
    ensure_parsable(text)
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
    if has_long_word(text) and any(map(_has_long_name, ast.walk(tree))):
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


def _has_long_name(node: ast.AST) -> bool:
    """Whether a node has a name that is too long."""
    names = (getattr(node, field, None) for field in ("id", "attr", "arg", "name", "module"))
    return any(isinstance(name, str) and len(name) > MAX_NAME for name in names)


def parse_expression(text: str) -> ast.expr:
    """The expression that `text` is; like `parse`."""
    ensure_parsable(text)
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text.strip(), mode="eval").body


# Syntax trees whose functions are parsed when somebody looks into them.
#
# A run enters few of the functions of a large program, and making their nodes is half of what
# parsing takes. So the bodies are cut out before, and parsed one by one on first use. A file is
# cut only where that is sure to give the same tree: strings have to end on the side of a cut on
# which they begin, and brackets that a cut parts make what is left invalid, so that the whole file
# is parsed.


SHORTEST_DEFERRED = 6_000
"""Shortest source of which functions are parsed later [characters]."""
MOST_LINES = 10_000
"""Most lines of a source that is cut: each body is read below as many empty lines as precede it."""
MIN_BODY = 120
"""Shortest body that is parsed later [characters]."""

_FUNCTION = re.compile(
    r"^([ \t]*+)(?:async[ \t]++)?def[ \t]++\w++[ \t]*+[(\[]"
    # to a colon at its end; not far, as this is tried from every `def` of a hostile file
    r"(?:[^\n]{0,200}+\n){0,40}?[^\n]{0,200}?:[ \t]*+(?:#[^\n]{0,200}+)?\n"
    r"((?:(?:\1[ \t]++[^\s#][^\n]*+|[ \t]*+(?:#[^\n]*+)?)\n)++)",
    re.MULTILINE,
)
_STRINGS = re.compile(
    r"""(?:[^"'#\\]++|\\[\s\S]|#[^\n]*+"""
    r'''|"{3}(?:[^"\\]++|\\[\s\S]|"(?!""))*+"{3}|(?!"{3})"(?:[^"\\\n]++|\\[\s\S])*+"'''
    r"""|'{3}(?:[^'\\]++|\\[\s\S]|'(?!''))*+'{3}|(?!'{3})'(?:[^'\\\n]++|\\[\s\S])*+')*+"""
)
_MAY_GO_ON = ('"""', "'''", "\\\n")
"""Without these, no string goes from one line to the next."""

ParseBody = Callable[[str], list[ast.stmt]]


class DeferredBody(list[ast.stmt]):
    """The statements of a function, parsed on first use."""

    def __init__(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, read: Callable[[], list[ast.stmt]]
    ) -> None:
        super().__init__()
        self._function = function
        self._read: Callable[[], list[ast.stmt]] | None = read

    def _filled(self) -> list[ast.stmt]:
        if self._read is not None:
            statements = self._read()
            self._read = None
            self.extend(statements)
            self._function.body = statements  # whoever comes next need not come through here
        return self._function.body

    def __iter__(self) -> Iterator[ast.stmt]:
        return iter(self._filled())

    def __reversed__(self) -> Iterator[ast.stmt]:
        return reversed(self._filled())

    def __len__(self) -> int:
        return len(self._filled())

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        return self._filled()[index]


def parse_later(text: str, read: ParseBody) -> ast.Module | None:
    """The tree of a large source, with functions whose bodies `read` parses on first use.

    `read` gets a function of the source under another name, its body in the lines where it stands,
    and gives the statements of the body. None where the source is small or very long, cannot be
    cut, or is not valid between the functions: then it is to be parsed as a whole.
    """
    text = text.replace("\r\n", "\n")
    if len(text) < SHORTEST_DEFERRED or "\r" in text or "\f" in text or has_long_word(text):
        return None
    if text.count("\n") > MOST_LINES:
        return None
    try:
        ensure_parsable(text)
    except TooMuchSource:
        return None
    if not text.endswith("\n"):
        text += "\n"
    cuts, rest = _cut_bodies(text)
    if not cuts:
        return None
    try:
        tree = parse(rest)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    replaced = 0
    for function in _cut_functions(tree):
        line = function.body[0].lineno
        if line in cuts and _is_placeholder(function.body):
            start, end = cuts[line]
            kind = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
            function.body = DeferredBody(function, _body_reader(read, text, start, end, line, kind))
            replaced += 1
    return tree if replaced == len(cuts) else None


def _body_reader(
    read: ParseBody, text: str, start: int, end: int, line: int, kind: str
) -> Callable[[], list[ast.stmt]]:
    above = "\n" * (line - 2)
    return lambda: read(f"{above}{kind} _():\n{text[start:end]}")


def _cut_bodies(text: str) -> tuple[dict[int, tuple[int, int]], str]:
    """Where the bodies stand, by the line they begin in, and the source with `...` for each."""
    cuts: dict[int, tuple[int, int]] = {}
    parts: list[str] = []
    done, line = 0, 1
    for match in _FUNCTION.finditer(text):
        start, end = match.span(2)
        if end - start < MIN_BODY or not _closes_its_strings(text, start, end):
            continue
        if not _closes_its_strings(text, done, start):
            return {}, text
        line += text.count("\n", done, start)
        cuts[line] = start, end
        lines = text.count("\n", start, end)
        parts += (text[done:start], match[1], " ...", "\n" * lines)
        done, line = end, line + lines
    parts.append(text[done:])
    return cuts, "".join(parts)


def _closes_its_strings(text: str, start: int, end: int) -> bool:
    """Whether strings and lines that begin in a part of a source end there."""
    if all(text.find(mark, start, end) < 0 for mark in _MAY_GO_ON):
        return True
    if text[start:end].rstrip().endswith("\\"):
        return False
    return _STRINGS.fullmatch(text, start, end) is not None


def _cut_functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a module, without those inside functions that are left to be read."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            below = getattr(node, name, None)
            if type(below) is list:
                pending += below


def _is_placeholder(body: list[ast.stmt]) -> bool:
    first = body[0]
    return (
        len(body) == 1
        and isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and first.value.value is Ellipsis
    )
