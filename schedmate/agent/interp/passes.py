"""Counts that hang on the unknown length of the data: how many passes, or how many steps, they are.

`len(loader)` is one pass in steps, whatever it is. `epochs * len(loader)` is so many passes, and
`ceil(iterations / len(loader))` is the number of passes that take so many steps: either way the
length of the training is known although the number is not.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from schedmate.agent.values import Origin, Unknown, Value


@dataclass(slots=True, eq=False)
class Passes(Unknown):
    """A count over data of unknown length.

    With `steps` it is the number of passes that take so many steps, else the number of steps (or
    samples) of `epochs` passes. `data` is what is passed over.
    """

    data: object = None
    epochs: Value | None = None
    steps: Value | None = None


def length_of(value: Value) -> Value:
    """`len(x)` of data whose length is not known."""
    return Value(Passes("len", data=value.data, epochs=Value(1)))


def same(args: list[Value]) -> Value | None:
    """`ceil(count)`, `max(count, 1)`: the count itself."""
    counts = [value for value in args if isinstance(value.data, Passes)]
    small = all(_small(value) for value in args if not isinstance(value.data, Passes))
    return counts[0] if len(counts) == 1 and small else None


_MANY = 1000
"""So many steps, shared out over an unknown number of environments, are still so many."""


def binary(op: type[ast.operator], left: Value, right: Value, here: Origin) -> Value | None:
    """`left op right` where one of them is such a count, or many steps are shared out.

    None where that says nothing.
    """
    a, b = left.data, right.data
    if not isinstance(a, Passes) and not isinstance(b, Passes):
        long = _number(left) and a >= _MANY and op in (ast.Div, ast.FloorDiv)
        return Value(Passes("passes", steps=left)) if long else None
    if op is ast.Mult:
        count, factor = (left, right) if isinstance(a, Passes) else (right, left)
        held = count.data
        if isinstance(held, Passes) and held.epochs is not None and _number(factor):
            times = held.epochs.data * factor.data
            made = Value(times, factor.origin if times == factor.data else here)
            return Value(Passes("len", data=held.data, epochs=made))
    if op in (ast.Div, ast.FloorDiv):
        if isinstance(a, Passes) and isinstance(b, Passes):
            if _alike(a.data, b.data) and a.epochs is not None and b.epochs is not None:
                quotient = a.epochs.data / b.epochs.data
                whole = int(quotient) if quotient == int(quotient) else quotient
                return Value(whole, a.epochs.origin)
            return None
        if isinstance(a, Passes) and a.epochs is not None and not isinstance(b, str):
            return left  # steps of several samples each
        if isinstance(b, Passes) and b.epochs is not None and b.epochs.data == 1 and _number(left):
            return Value(Passes("passes", data=b.data, steps=left))
    if op in (ast.Add, ast.Sub):
        return same([left, right])
    return None


_COME = re.compile(
    r"^(self\.)?(current|cur|start|init(ial)?|resumed?|last|global|done|completed|trained)"
    r"_(global_)?(epochs?|steps?|iters?|iterations?)$"
)
"""Names of how far a training has come."""


def left_over(node: ast.BinOp, total: Value, done: Value) -> bool:
    """Whether `total - current_step` is what is left of a training, all of it in a new one."""
    return (
        isinstance(node.op, ast.Sub)
        and not done.known
        and _number(total)
        and _COME.search(ast.unparse(node.right)) is not None
    )


def _alike(a: object, b: object) -> bool:
    if isinstance(a, Unknown) and isinstance(b, Unknown):
        return a is b or (a.text is not None and a.text == b.text)
    return a is b


def _number(value: Value) -> bool:
    return isinstance(value.data, int | float) and not isinstance(value.data, bool)


def _small(value: Value) -> bool:
    return _number(value) and abs(value.data) <= 1
