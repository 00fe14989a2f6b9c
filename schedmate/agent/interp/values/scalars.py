"""Numbers, truth values, bytes and None."""

from __future__ import annotations

from typing import Any

from schedmate.agent.interp.natives import native
from schedmate.agent.interp.objects import Symbol
from schedmate.agent.interp.values.base import Plain, of
from schedmate.agent.values import Value, unknown

_METHODS = frozenset(["is_integer", "bit_length", "conjugate"])
_ITSELF = ("real", "numerator")


class Scalar(Plain):
    """A single datum."""

    scalar = True


@of(type(None))
class Nothing(Scalar):
    """None."""

    def method(self, base: Value, name: str) -> Value:
        return Value(Symbol(f"?.{name}", base), base.origin)


@of(bytes)
class Bytes(Nothing):
    """Bytes."""

    def key(self, value: Value) -> Any:
        return value.data


@of(bool, int, float)
class Number(Scalar):
    """A number or a truth value."""

    def method(self, base: Value, name: str) -> Value:
        if name in _METHODS:
            return native(name, lambda *_: Value(getattr(base.data, name)(), base.origin))
        return base if name in _ITSELF else unknown(name)

    def key(self, value: Value) -> Any:
        return value.data
