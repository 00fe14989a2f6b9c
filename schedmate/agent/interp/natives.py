"""Models of functions as values of the program."""

from __future__ import annotations

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Handler, Machine
from schedmate.agent.interp.objects import Native
from schedmate.agent.values import Value


def native(name: str, model: Handler) -> Value:
    """A model as a value that can be called."""
    return Value(Native(name, model))


def bound(base: Value, name: str, model: Handler) -> Value:
    """`base.name`, to be called."""

    def call(machine: Machine, call: Invocation) -> Value | None:
        call.base = base
        return model(machine, call)

    return Value(Native(name, call))


def itself(machine: Machine, call: Invocation) -> Value:
    """A method that gives back the object that it is called on."""
    return call.owner


def identity(machine: Machine, call: Invocation) -> Value:
    """A callable that gives back what it is given first."""
    return call.first
