"""Lines that cannot run or are not used: a value that is only there proves nothing.

Judged from names alone and conservatively: code counts as dead only after a statement that ends its
block, under a condition that is never true, in a function whose name is used nowhere, or as a
constant whose name is used nowhere else.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import PurePosixPath

from schedmate.agent.react.sources import Sources
from schedmate.agent.react.tokens import CODE

_WORD = re.compile(r"[^\W\d]\w*")
_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_LEAVES = frozenset({"exit", "_exit", "quit"})
_Span = tuple[int, int, str]


class Dead:
    """Decides for lines of one job's files whether they can have had an effect.

    `entry` is the program that the command runs; other Python files that it names are settings.
    """

    def __init__(
        self, sources: Sources, taking_part: set[str], command: str, entry: str | None
    ) -> None:
        self._sources = sources
        self._taking_part = taking_part
        self._entry = entry
        self._command = set(_WORD.findall(command))
        self._spans: dict[str, list[_Span]] = {}

    def reason(self, path: str, line: int) -> str | None:
        """The reason why a line proves nothing, or None if it may."""
        if PurePosixPath(path).suffix.lower() not in CODE:
            return None
        if path not in self._spans:
            self._spans[path] = list(self._dead(path))
        return next((why for first, last, why in self._spans[path] if first <= line <= last), None)

    @cached_property
    def _named(self) -> Counter[str]:
        """How often each word occurs in the code of the job's files."""
        found: Counter[str] = Counter(self._command)
        for path in self._taking_part:
            for line in (self._sources.tokens(path) or {}).values():
                found.update(word for token in line for word in _WORD.findall(token))
            found.update(self._in_texts(path))
        return found

    def _in_texts(self, path: str) -> Iterator[str]:
        """The names that the expressions within a file's f-strings read."""
        for text in ast.walk(self._sources.tree(path)):
            if isinstance(text, ast.JoinedStr):
                yield from (node.id for node in ast.walk(text) if isinstance(node, ast.Name))

    def _dead(self, path: str) -> Iterator[_Span]:
        tree = self._sources.tree(path)
        # a configuration in Python, or a program that takes its own names as one
        named = path != self._entry and PurePosixPath(path).stem in self._command
        settings = named or _reads_names(tree)
        fields = {
            id(one) for cls in ast.walk(tree) if isinstance(cls, ast.ClassDef) for one in cls.body
        }
        for node in ast.walk(tree):
            yield from _never_run(node)
            if settings or id(node) in fields:
                continue
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node in tree.body:
                if not node.decorator_list and self._named[node.name] <= 1:
                    why = f"nothing calls the function {node.name}"
                    yield node.lineno, node.end_lineno or node.lineno, why
            elif name := _constant(node):
                if self._named[name] <= 1:
                    assert isinstance(node, ast.stmt)
                    yield node.lineno, node.end_lineno or node.lineno, f"nothing reads {name}"


def _reads_names(tree: ast.Module) -> bool:
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return not names.isdisjoint(("globals", "locals", "vars", "exec"))


def _constant(node: ast.AST) -> str | None:
    """The single plain name that a statement outside of classes assigns; None for others."""
    # with an annotation it may be the field of a record, which its library reads
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return None
    target = node.targets[0]
    plain = isinstance(node.value, ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.UnaryOp)
    return target.id if isinstance(target, ast.Name) and plain else None


def _never_run(node: ast.AST) -> Iterator[_Span]:
    for body in ("body", "orelse", "finalbody"):
        statements = getattr(node, body, None)
        if isinstance(statements, list):
            yield from _after_the_end(statements)
    if isinstance(node, ast.If | ast.While):
        truth = _constant_truth(node.test)
        if truth is False:
            yield from _whole(node.body, "its condition is never true")
        elif truth is True and isinstance(node, ast.If):
            yield from _whole(node.orelse, "the condition before it is always true")


def _after_the_end(statements: Sequence[ast.stmt]) -> Iterator[_Span]:
    for at, statement in enumerate(statements[:-1]):
        if isinstance(statement, _ENDS) or _leaves(statement):
            yield from _whole(statements[at + 1 :], f"line {statement.lineno} ends before it")
            return


def _leaves(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func
    return (name.id if isinstance(name, ast.Name) else name) in _LEAVES


def _whole(statements: Sequence[ast.stmt], why: str) -> Iterator[_Span]:
    for statement in statements:
        yield statement.lineno, statement.end_lineno or statement.lineno, f"it never runs: {why}"


def _constant_truth(test: ast.expr) -> bool | None:
    if isinstance(test, ast.Constant):
        return bool(test.value)
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
    return False if name == "TYPE_CHECKING" else None
