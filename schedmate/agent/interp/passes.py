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


def of(value: Value) -> Passes | None:
    """The count that a value is, None where it is none."""
    return value.data if isinstance(value.data, Passes) else None


def same(args: list[Value]) -> Value | None:
    """`ceil(count)`, `max(count, 1)`: the count itself."""
    counts = [value for value in args if of(value)]
    small = all(_small(value) for value in args if not of(value))
    return counts[0] if len(counts) == 1 and small else None


_MANY = 1000
"""So many steps, shared out over an unknown number of environments, are still so many."""


def binary(op: type[ast.operator], left: Value, right: Value, here: Origin) -> Value | None:
    """`left op right` where one of them is such a count, or many steps are shared out.

    None where that says nothing.
    """
    a, b = of(left), of(right)
    if a is None and b is None:
        long = left.number is not None and left.number >= _MANY
        return Value(Passes("passes", steps=left)) if long and op in _SHARES else None
    if op is ast.Mult:
        held, factor = (a, right) if a is not None else (b, left)
        epochs = held.epochs.number if held is not None and held.epochs is not None else None
        if held is not None and epochs is not None and factor.number is not None:
            times = epochs * factor.number
            made = Value(times, factor.origin if times == factor.data else here)
            return Value(Passes("len", data=held.data, epochs=made))
    if op in _SHARES:
        return _shared(a, b, left, right)
    return same([left, right]) if op in (ast.Add, ast.Sub) else None


_SHARES = (ast.Div, ast.FloorDiv)


def _shared(a: Passes | None, b: Passes | None, left: Value, right: Value) -> Value | None:
    """`left / right` with one count in each of them, or in one."""
    if a is not None and b is not None:
        if not _alike(a.data, b.data) or a.epochs is None or b.epochs is None:
            return None
        times, by = a.epochs.number, b.epochs.number
        if times is None or not by:
            return None
        quotient = times / by
        return Value(int(quotient) if quotient == int(quotient) else quotient, a.epochs.origin)
    if a is not None and a.epochs is not None and right.text is None:
        return left  # steps of several samples each
    if b is not None and b.epochs is not None and b.epochs.data == 1 and left.number is not None:
        return Value(Passes("passes", data=b.data, steps=left))
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
        and total.number is not None
        and _COME.search(ast.unparse(node.right)) is not None
    )


def _alike(a: object, b: object) -> bool:
    if isinstance(a, Unknown) and isinstance(b, Unknown):
        return a is b or (a.text is not None and a.text == b.text)
    return a is b


def _small(value: Value) -> bool:
    return value.number is not None and abs(value.number) <= 1
