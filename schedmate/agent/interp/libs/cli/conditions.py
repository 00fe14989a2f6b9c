"""Whether the options of a program are the same in every environment.

It is read from the text: a program that adds options under a condition, in a function that may
return before, or by text that it executes, may have others elsewhere.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from schedmate.agent.interp.syntax import last_name
from schedmate.agent.syntax import parse

_ADDS = frozenset(
    ("add_argument", "add_option", "add_arg", "add_parser", "add_subparsers", "add_arguments")
)
_BRANCHES = (ast.If, ast.IfExp, ast.Try, ast.TryStar, ast.Match, ast.While, ast.BoolOp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Modules:
    """The program's modules by their text, each parsed when something in it is looked for.

    Parsing raises what `ast.parse` does.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = list(texts)
        self._trees: dict[str, ast.AST] = {}

    def naming(self, words: Iterable[str]) -> list[ast.AST]:
        """The trees of the modules in which one of these words occurs."""
        wanted = re.compile("|".join(map(re.escape, sorted(words))))
        found = [text for text in self._texts if wanted.search(text)]
        for text in found:
            if text not in self._trees:
                self._trees[text] = parse(text)
        return [self._trees[text] for text in found]


def depends(modules: Modules) -> bool:
    """Whether what adds options in these modules may run elsewhere and not here."""
    adding = set(_ADDS)
    while True:
        trees = modules.naming({*adding, "parse_args", "exec"})
        calls = [call for tree in trees for call in _calls(tree)]
        # what parses as well has a parser of its own
        whole = {
            owner for call, _, around in calls if call == "parse_args" for owner in around[-1:]
        }
        more = {owner for call, _, owners in calls if call in adding for owner in owners} - whole
        if more <= adding:
            break
        adding |= more
    if any(call == "exec" or (branch and call in adding) for call, branch, _ in calls):
        return True
    return any(_may_return_before(function, adding) for function in _functions(trees))


def _functions(trees: list[ast.AST]) -> Iterator[ast.AST]:
    return (node for tree in trees for node in ast.walk(tree) if isinstance(node, _FUNCTIONS))


def _calls(tree: ast.AST) -> Iterator[tuple[str, bool, tuple[str, ...]]]:
    """The names of what is called, whether under a condition, and the functions around it."""
    stack: list[tuple[ast.AST, bool, tuple[str, ...]]] = [(tree, False, ())]
    while stack:
        node, branch, owners = stack.pop()
        if isinstance(node, ast.Call):
            name = last_name(node.func)
            if name is not None:
                yield name, branch, owners
        if isinstance(node, _FUNCTIONS):
            stack += [(child, False, (*owners, node.name)) for child in ast.iter_child_nodes(node)]
            continue
        if isinstance(node, ast.ClassDef):
            owners = (*owners, node.name)
        inside = branch or (isinstance(node, _BRANCHES) and not _is_main(node))
        stack += [(child, inside, owners) for child in ast.iter_child_nodes(node)]


def _is_main(node: ast.AST) -> bool:
    """`if __name__ == "__main__":`."""
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Compare) and last_name(test.left) == "__name__"


def _may_return_before(function: ast.AST, adding: set[str]) -> bool:
    """Whether a function can return from a branch before its last option is added."""
    last = first = 0
    stack = [(function, False)]
    while stack:
        node, branch = stack.pop()
        if isinstance(node, ast.Call) and last_name(node.func) in adding:
            last = max(last, node.lineno)
        if isinstance(node, ast.Return) and branch:
            first = min(first or node.lineno, node.lineno)
        inside = branch or isinstance(node, _BRANCHES)
        stack += [(child, inside) for child in ast.iter_child_nodes(node)]
    return 0 < first < last


_COPIES = frozenset(("list", "sorted", "tuple", "set"))


def is_fixed(node: ast.expr | None, modules: Modules) -> bool:
    """Whether an expression is a list of literals, or a name for one that nothing changes."""
    if _is_literal(node):
        return True
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "keys":
            node = node.func.value
        elif isinstance(node.func, ast.Name) and node.func.id in _COPIES and len(node.args) == 1:
            node = node.args[0]
        else:
            return False
    name = last_name(node)
    if name is None:
        return _is_literal(node)
    return _uses(name, modules.naming([name])) == [True]


def _uses(name: str, trees: Sequence[ast.AST]) -> list[bool]:
    """For each assignment and change of a name, whether it gives it literals."""
    found = []
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and any(last_name(one) == name for one in node.targets):
                found.append(_is_literal(node.value))
            elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
                stored = not isinstance(node.ctx, ast.Load)
                inner = node.value if isinstance(node, ast.Attribute | ast.Subscript) else None
                method = isinstance(node, ast.Attribute) and node.attr not in _READS
                if (stored or method) and last_name(inner) == name:
                    found.append(False)
            elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.NamedExpr):
                if last_name(node.target) == name:
                    found.append(False)
            elif isinstance(node, ast.arg) and node.arg == name:
                found.append(False)
    return found


_READS = frozenset(("keys", "values", "items", "get", "copy", "index"))


def _is_literal(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Dict):
        return all(isinstance(key, ast.Constant) for key in node.keys)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return all(isinstance(item, ast.Constant | ast.UnaryOp) for item in node.elts)
    return False
