"""Whether the options of a program are the same in every environment.

It is read from the text: a program that adds options under a condition, in a function that may
return before, or by text that it executes, may have others elsewhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from schedmate.agent.interp.syntax import last_name

_ADDS = frozenset(
    ("add_argument", "add_option", "add_arg", "add_parser", "add_subparsers", "add_arguments")
)
_BRANCHES = (ast.If, ast.IfExp, ast.Try, ast.TryStar, ast.Match, ast.While, ast.BoolOp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def depends(trees: Iterable[ast.AST]) -> bool:
    """Whether what adds options in these modules may run elsewhere and not here."""
    calls: list[tuple[str, bool, tuple[str, ...]]] = []
    functions: list[ast.AST] = []
    for tree in trees:
        calls += _calls(tree)
        functions += [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
    # what parses as well has a parser of its own
    whole = {owner for call, _, owners in calls if call == "parse_args" for owner in owners[-1:]}
    adding = set(_ADDS)
    while True:
        more = {owner for call, _, owners in calls if call in adding for owner in owners} - whole
        if more <= adding:
            break
        adding |= more
    if any(call == "exec" or (branch and call in adding) for call, branch, _ in calls):
        return True
    return any(_may_return_before(function, adding) for function in functions)


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
