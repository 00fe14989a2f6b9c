"""What Python's operations do with a value, by its kind.

`Kind` answers for values of which nothing is known; each kind of data has a class derived from it
(`kind_of`), in the other modules of this folder. Then Python's operators, and the counts that hang
on the unknown length of data (`Passes`).
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeAlias, TypeVar

from schedmate.agent.bounds import (
    MAX_DATA,
    MAX_PATH,
    MAX_WORK,
    fits,
    is_short_number,
    measure,
    percent_length,
    repeated_length,
)
from schedmate.agent.interp.objects import (
    Class,
    Invocation,
    PathStr,
    Raised,
    Symbol,
    as_node,
    path_of,
)
from schedmate.agent.values import (
    UNSAID,
    Data,
    Items,
    Origin,
    Place,
    Unknown,
    Value,
    begun,
    unknown,
)

if TYPE_CHECKING:
    from schedmate.agent.interp.machine import Machine

D_co = TypeVar("D_co", covariant=True)
K = TypeVar("K", bound="type[Kind[object]]")


class Kind(Generic[D_co]):
    """A kind of value of which nothing is known: what most kinds answer to most questions.

    Its parameter is the type of the data of its values.
    """

    container: ClassVar[bool] = False
    """Whether it is plain data that holds other values."""
    scalar: ClassVar[bool] = False
    """Whether it is a single plain datum, or None."""
    symbolic: ClassVar[bool] = False
    """Whether it stands for one thing of the program, which is itself and no other."""
    unknown: ClassVar[bool] = False
    """Whether nothing is known of it."""
    hashable: ClassVar[bool] = False
    """Whether its data is a key of mappings as it is."""
    foreign: ClassVar[bool] = False
    """Whether it is a library's."""
    callable_: ClassVar[bool | None] = None
    """Whether it can be called, None where plain data decides."""
    hands_on: ClassVar[bool] = True
    """Whether what a call of it is given counts as handed to something."""

    def data(self, value: Value) -> D_co:
        """The data of a value, which must be of this kind."""
        return value.data  # type: ignore[return-value]  # `KINDS` goes by its type

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        """The value of `base.name`."""
        return Value(Symbol(f"?.{name}", base), base.origin)

    def method(self, base: Value, name: str) -> Value:
        """`base.name` of plain data, mostly to be called."""
        return unknown(name)

    def setattr(self, machine: Machine, base: Value, name: str, value: Value) -> None:
        """Follow `base.name = value`."""

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        """The value of `base[index]`."""
        return Value(Unknown(), base.origin)

    def setitem(self, machine: Machine, base: Value, index: Value, value: Value) -> None:
        """Follow `base[index] = value`."""

    def delitem(self, machine: Machine, base: Value, index: Value) -> None:
        """Follow `del base[index]`."""
        items, key = self.mapping(machine, base), plain_key(index)
        if items is not None and key is not None:
            items.pop(key, None)

    def slice_(self, machine: Machine, base: Value, ends: slice) -> Value:
        """The value of `base[start:stop:step]`."""
        return unknown(origin=base.origin)

    def absent(self, machine: Machine, items: Value, base: Value, index: Value) -> Value:
        """`base[index]` where `items`, a value of this kind, are those of `base` and lack it."""
        return unknown(origin=base.origin)

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        """`func(...)`; the invocation has no path yet."""
        call.path = "?"
        return machine.external(call)

    def truth(self, value: Value) -> bool | None:
        """Whether it is true, None when that cannot be decided."""
        return None

    def iterate(self, value: Value) -> list[Value] | None:
        """The items that going through it gives, None when they are not known."""
        return None

    def element(self, container: Value) -> Value:
        """An item of something whose items are not known."""
        return unknown(origin=container.origin)

    def mapping(self, machine: Machine, value: Value) -> Items | None:
        """Its items by key where it is like a mapping and they are known."""
        return None

    def key(self, value: Value) -> Hashable:
        """The value as a key of a mapping, None when it is none."""
        return value.data if self.hashable else None  # type: ignore[return-value]

    def is_same(self, one: Value, other: Value) -> bool | None:
        """Whether it and another symbolic value are the same thing."""
        return one.data is other.data

    def equals(self, value: Value, plain: Value) -> bool | None:
        """Whether it equals plain data, though it is none; None when that cannot be decided."""
        return None

    def parts(self, value: Value) -> Iterable[Value]:
        """The values that it holds, for going through all of a tree."""
        return ()

    def converted(self, value: Value, convert: Callable[[Value], Value]) -> Data:
        """The data of a container like it, whose items are what `convert` makes of its own."""
        return value.data

    def copy(self, value: Value) -> Value:
        """A copy that shares its items."""
        return value

    def deep_copy(self, value: Value, copies: Copies, copied: Callable[[Value], Value]) -> None:
        """Put the copy of a mutable thing, or of what holds some, into `copies`."""

    def has(self, machine: Machine, value: Value, name: str) -> bool | None:
        """`hasattr(value, name)`, None when it cannot be decided."""
        if value.known:
            return False if name == "__dict__" else hasattr(value.data, name)
        return None

    def class_of(self, value: Value) -> Class | None:
        """The class of the repository that it is an object of, or that it is."""
        return None

    def names(self, value: Value) -> set[str] | None:
        """The names that `dir` lists, None where they are not known."""
        return None

    def attributes(self, value: Value) -> Value:
        """The value of `vars(value)`: a mapping of its attributes."""
        return unknown()


class Plain(Kind[D_co]):
    """Plain data: what scalars, sequences and mappings of Python have in common."""

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        if name == "__class__" and (self.container or base.known):
            return machine.builtin(type(base.data).__name__) or unknown(name)
        return self.method(base, name)

    def truth(self, value: Value) -> bool | None:
        return bool(value.data)


Copies: TypeAlias = dict[int, Data]
"""Copies by the `id` of what they are copies of."""
ANYTHING: Kind[object] = Kind()
KINDS: dict[type, Kind[object]] = {}


def kind_of(*types: type) -> Callable[[K], K]:
    """Declare a class the kind of values whose data is of these types."""

    def declare(kind: K) -> K:
        KINDS.update(dict.fromkeys(types, kind()))
        return kind

    return declare


def kind(value: Value) -> Kind[object]:
    """The `Kind` of a value, by the type of its data."""
    return KINDS.get(type(value.data), ANYTHING)


def truth(value: Value) -> bool | None:
    """Whether `value` is true; None when that cannot be decided."""
    return KINDS.get(type(value.data), ANYTHING).truth(value)


def iterate(value: Value | None) -> list[Value] | None:
    """The items that iterating over `value` gives, None when they are not known."""
    return kind(value).iterate(value) if value is not None else None


def plain_key(value: Value) -> Hashable:
    """`value` as a dict key, None when it is not known or not hashable."""
    return KINDS.get(type(value.data), ANYTHING).key(value)


def copy_shallow(value: Value) -> Value:
    """A copy of a container or an object that shares its items."""
    return KINDS.get(type(value.data), ANYTHING).copy(value)


def several(value: Value) -> list[Value]:
    """The items of a sequence, or the one value there is."""
    return list(value.sequence) if value.sequence is not None else [value]


def not_there(machine: Machine, name: str, error: str) -> Value:
    """What is not there: an error where the program expects it, else unknown."""
    if machine.certain and machine.expects(error):
        raise Raised(error)
    return unknown(name)


def set_path(machine: Machine, base: Value, names: list[str], value: Value) -> None:
    """Follow `base.first.second = value` for a dotted path."""
    for name in names[:-1]:
        base = machine.getattr(base, name)
    machine.setattr(base, names[-1], value)


_FIRST = {"command": 0, "script": 0, "environment": 1, "config": 2, "default": 3, "launch": 10}


def origin_of(*values: Value) -> Origin | None:
    """The most telling origin among operands: what a user set, before what the code says.

    The size of the launch comes last: `lr * world_size` comes from where `lr` is set.
    """
    best: Origin | None = None
    for value in values:
        origin = value.origin
        if origin is not None and (
            best is None or _FIRST.get(origin.source, 9) < _FIRST.get(best.source, 9)
        ):
            best = origin
    return best


# Python's operators on `Value`s.


_BINARY: dict[type[ast.operator], Callable[[Data, Data], Data]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}

_COMPARE: dict[type[ast.cmpop], Callable[..., bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def binary_operation(op: type[ast.operator], left: Value, right: Value, here: Origin) -> Value:
    """`left op right` on plain data within size limits, else unknown."""
    origin = origin_of(left, right) or here
    text = left.text
    if op is ast.Div and text is not None:
        return _joined(text, right, origin)
    if op is ast.Mod and text is not None:
        return _percent(text, right, origin)
    if op is ast.BitOr and left.mapping is not None and right.mapping is not None:
        return Value({**left.mapping, **right.mapping}, origin)
    if left.sequence is not None or right.sequence is not None:
        return _sequence_op(op, left, right, origin)
    return _plain_op(op, left, right, origin, here)


def _joined(text: str, right: Value, origin: Origin) -> Value:
    """`path / name`."""
    name = right.text
    if name is None:
        return begun(text, origin, joint="/")
    if len(text) + len(name) > MAX_PATH:
        return unknown(origin=origin)
    return Value(PathStr(name if name.startswith("/") else f"{text.rstrip('/')}/{name}"), origin)


def _plain_op(
    op: type[ast.operator], left: Value, right: Value, origin: Origin, here: Origin
) -> Value:
    if passes_of(left) or passes_of(right):
        return binary_of_passes(op, left, right, origin) or unknown(origin=origin)
    if not (left.known and right.known) or (op not in _BINARY and op is not ast.Pow):
        other = kind(right)
        open_ended = other.unknown or (other.foreign and other.symbolic)
        shared = binary_of_passes(op, left, right, origin) if open_ended else None
        if shared is None and op in (ast.Add, ast.Div) and not right.known and left.number is None:
            return begun(left, origin)
        # of what is not known it is known where it is computed, and from what
        return shared or unknown(origin=_computed_here(origin, here))
    a, b = left.data, right.data
    if not (_fits_size(op, a, b) and is_short_number(a) and is_short_number(b)):
        return unknown(origin=origin)
    try:
        if op is ast.Pow:
            if not _small_power(a, b):
                return unknown(origin=origin)
            result = operator.pow(a, b)
        elif op is ast.LShift and (right.integer is None or right.integer > 256):
            return unknown(origin=origin)
        else:
            result = _BINARY[op](a, b)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return unknown(origin=origin)
    if not is_short_number(result):
        return unknown(origin=origin)
    if type(a) is PathStr and type(result) is str:
        result = PathStr(result)
    return Value(result, _computed_here(origin, here))


def _computed_here(origin: Origin, here: Origin) -> Origin:
    """The origin of an operand, as that of what is computed from it `here`."""
    if here.file is None or here.line is None:
        return origin
    return origin._replace(computed=Place(here.file, here.line))


def _small_power(base: Data, exponent: Data) -> bool:
    """Whether `base**exponent` takes no time to speak of."""
    if not isinstance(base, int | float) or not isinstance(exponent, int | float):
        return False
    return abs(exponent) <= 1024 and abs(base) <= 1e12


def _fits_size(op: type[ast.operator], a: Data, b: Data) -> bool:
    """Whether what two texts, or a text and a number, make is not too long."""
    for text, other in ((a, b), (b, a)):
        if isinstance(text, str | bytes):
            if op is ast.Mult and isinstance(other, int):
                return repeated_length(text, other) <= MAX_DATA
            if op is ast.Add and isinstance(other, str | bytes):
                return len(text) + len(other) <= MAX_DATA
    return True


_SLOT = re.compile(r"(%[^a-zA-Z%(]*[a-zA-Z])")


def _percent(template: str, right: Value, origin: Origin) -> Value:
    if len(template) > 500:
        return unknown(origin=origin)
    if not right.known:
        return _percent_around(template, right, origin)
    if not fits(percent_length(template, right.data)):
        return unknown(origin=origin)
    try:
        return Value(template % right.plain(), origin)
    except (TypeError, ValueError, KeyError, OverflowError):
        return unknown(origin=origin)


def _percent_around(template: str, right: Value, origin: Origin) -> Value:
    """`"--port %d --config %s" % (unknown, path)`: the text around what is not known."""
    arguments = [right] if right.elements is not None else several(right)
    pieces = _SLOT.split(template.replace("%%", "%"))
    if len(pieces) != 2 * len(arguments) + 1:
        return unknown(origin=origin)
    for index, value in enumerate(arguments):
        slot = 2 * index + 1
        pieces[slot] = (
            str(_percent(pieces[slot], Value((value,)), origin).data) if value.known else UNSAID
        )
    return unknown("".join(pieces), origin)


_SETS = (ast.BitOr, ast.BitAnd, ast.Sub)


def _set_op(op: type[ast.operator], a: list[Value], b: list[Value]) -> list[Value]:
    """`a | b`, `a & b` and `a - b` of sets, which are lists of what they hold."""
    keys, others = [plain_key(value) for value in a], [plain_key(value) for value in b]
    if op is ast.BitOr:
        held = set(keys)
        return a + [value for value, key in zip(b, others, strict=True) if key not in held]
    held, wanted = set(others), op is ast.BitAnd
    return [value for value, key in zip(a, keys, strict=True) if (key in held) is wanted]


def _sequence_op(op: type[ast.operator], left: Value, right: Value, origin: Origin) -> Value:
    a, b = left.sequence, right.sequence
    if op is ast.Mult:
        count, items = right.integer if a is not None else left.integer, a if a is not None else b
        if items is not None and count is not None and count >= 0:
            if repeated_length(items, count) <= MAX_DATA:
                return Value(items * count, origin)
    elif a is None or b is None:
        return unknown(origin=origin)
    elif op is ast.Add and len(a) + len(b) <= MAX_DATA:
        return Value(type(a)([*a, *b]), origin)
    elif op in _SETS and left.elements is not None and right.elements is not None:
        return Value(_set_op(op, left.elements, right.elements), origin)
    return unknown(origin=origin)


_OPPOSITE: dict[type[ast.cmpop], ast.cmpop] = {ast.IsNot: ast.Is(), ast.NotIn: ast.In()}


def compare_values(machine: Machine, op: ast.cmpop, left: Value, right: Value) -> bool | None:
    """The outcome of one comparison, None when it cannot be decided."""
    opposite = _OPPOSITE.get(type(op))
    if opposite is not None:
        positive = compare_values(machine, opposite, left, right)
        return None if positive is None else not positive
    if type(op) is ast.In:
        return _contains(machine, left, right)
    if type(op) in (ast.Is, ast.Eq, ast.NotEq):
        same = _are_same(left, right)
        if same and left.text is not None and right.text is not None:
            machine.observer.looks_up(left.text)
        return same if same is None or type(op) is not ast.NotEq else not same
    if left.known and right.known and left.mapping is None and right.mapping is None:
        try:
            return bool(_COMPARE[type(op)](left.plain(), right.plain()))
        except TypeError:
            return None
    return None


def _are_same(left: Value, right: Value) -> bool | None:
    """Whether two values are equal, or the same thing; None when that cannot be decided."""
    a, b = kind(left), kind(right)
    if left.data is None or right.data is None:
        other = left if right.data is None else right
        return True if other.data is None else None if kind(other).unknown else False
    if a.scalar and b.scalar:
        return bool(left.data == right.data)
    if a.unknown or b.unknown:
        return None
    if left.known and right.known:
        return bool(left.plain() == right.plain())
    if a.symbolic and b.symbolic:
        return a.is_same(left, right)
    for member, plain in ((left, right), (right, left)):
        if plain.known:
            same = kind(member).equals(member, plain)
            if same is not None:
                return same
    return None


_ENVIRON = ("os.environ", "os.environ.keys")


def _contains(machine: Machine, item: Value, container: Value) -> bool | None:
    if item.text is not None and container.text is not None:
        return item.text in container.text
    key = plain_key(item)
    if path_of(container) in _ENVIRON:
        return True if key in machine.environ else None
    mapping = machine.mapping(container)
    if mapping is not None:
        if key is None:
            return None
        if key in mapping:
            return True
        node = as_node(container)
        return None if node is not None and node.flavour == "open" else False
    items = iterate(container)
    weight = measure(item.data)
    if items is None or weight is None or weight * len(items) > MAX_WORK:
        return None
    machine.charge(weight * len(items) // 8)
    undecided = False
    for other in items:
        same = _are_same(item, other)
        if same:
            return True
        undecided = undecided or same is None
    return None if undecided else False


# Counts that hang on the unknown length of the data: how many passes, or how many steps, they are.
#
# `len(loader)` is one pass in steps, whatever it is. `epochs * len(loader)` is so many passes, and
# `ceil(iterations / len(loader))` is the number of passes that take so many steps: either way the
# length of the training is known although the number is not.


@dataclass(slots=True, eq=False)
class Passes(Unknown):
    """A count over data of unknown length.

    With `steps` it is the number of passes that take so many steps, else the number of steps (or
    samples) of `epochs` passes. `data` is what is passed over.
    """

    data: object = None
    epochs: Value | None = None
    steps: Value | None = None


def unknown_length(value: Value) -> Value:
    """`len(x)` of data whose length is not known."""
    return Value(Passes("len", data=value.data, epochs=Value(1)))


def passes_of(value: Value) -> Passes | None:
    """The count that a value is, None where it is none."""
    return value.data if isinstance(value.data, Passes) else None


def same_passes(args: list[Value]) -> Value | None:
    """`ceil(count)`, `max(count, 1)`: the count itself."""
    counts = [value for value in args if passes_of(value)]
    small = all(_is_small(value) for value in args if not passes_of(value))
    return counts[0] if len(counts) == 1 and small else None


_MANY_STEPS = 1000
"""So many steps, shared out over an unknown number of environments, are still so many."""


def binary_of_passes(
    op: type[ast.operator], left: Value, right: Value, here: Origin
) -> Value | None:
    """`left op right` where one of them is such a count, or many steps are shared out.

    None where that says nothing.
    """
    a, b = passes_of(left), passes_of(right)
    if a is None and b is None:
        long = left.number is not None and left.number >= _MANY_STEPS
        return Value(Passes("passes", steps=left)) if long and op in _SHARES else None
    if op is ast.Mult:
        passes, factor = (a, right) if a is not None else (b, left)
        epochs = passes.epochs.number if passes is not None and passes.epochs is not None else None
        if passes is not None and epochs is not None and factor.number is not None:
            times = epochs * factor.number
            made = Value(times, factor.origin if times == factor.data else here)
            return Value(Passes("len", data=passes.data, epochs=made))
    if op in _SHARES:
        return _shared_out(a, b, left, right)
    return same_passes([left, right]) if op in (ast.Add, ast.Sub) else None


_SHARES = (ast.Div, ast.FloorDiv)


def _shared_out(a: Passes | None, b: Passes | None, left: Value, right: Value) -> Value | None:
    """`left / right` with one count in each of them, or in one."""
    if a is not None and b is not None:
        if not _is_same_data(a.data, b.data) or a.epochs is None or b.epochs is None:
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


_STEPS_DONE = re.compile(
    r"^(self\.)?(current|cur|start|init(ial)?|resumed?|last|global|done|completed|trained)"
    r"_(global_)?(epochs?|steps?|iters?|iterations?)$"
)
"""Names of how far a training has come."""


def is_left_over(node: ast.BinOp, total: Value, done: Value) -> bool:
    """Whether `total - current_step` is what is left of a training, all of it in a new one."""
    return (
        isinstance(node.op, ast.Sub)
        and not done.known
        and total.number is not None
        and _STEPS_DONE.search(ast.unparse(node.right)) is not None
    )


def _is_same_data(a: object, b: object) -> bool:
    if isinstance(a, Unknown) and isinstance(b, Unknown):
        return a is b or (a.text is not None and a.text == b.text)
    return a is b


def _is_small(value: Value) -> bool:
    return value.number is not None and abs(value.number) <= 1
