"""Numbers, truth values, bytes and None."""

from __future__ import annotations

from typing import cast

from schedmate.agent.interp.natives import native
from schedmate.agent.interp.objects import Symbol
from schedmate.agent.interp.values.base import D_co, Plain, of
from schedmate.agent.values import Value, unknown

_METHODS = frozenset(["is_integer", "bit_length", "conjugate"])
_ITSELF = ("real", "numerator")


class Scalar(Plain[D_co]):
    """A single datum."""

    scalar = True


@of(type(None))
class Nothing(Scalar[bytes | None]):
    """None."""

    def method(self, base: Value, name: str) -> Value:
        return Value(Symbol(f"?.{name}", base), base.origin)


@of(bytes)
class Bytes(Nothing):
    """Bytes."""

    hashable = True


@of(bool, int, float)
class Number(Scalar[int | float]):
    """A number or a truth value."""

    hashable = True

    def method(self, base: Value, name: str) -> Value:
        if name in _METHODS:
            return native(
                name, lambda *_: Value(cast("int", getattr(base.data, name)()), base.origin)
            )
        return base if name in _ITSELF else unknown(name)
