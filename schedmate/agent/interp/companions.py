"""What a machine is given along: plugins that know libraries, and an observer that watches it.

The machine that asks is an argument, of whatever class it is, so that it is not imported here.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.objects import Call, Class, Function, Instance, RangeOf, Scope, Site
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.values import Items, Value

M_contra = TypeVar("M_contra", contravariant=True)


class Plugins(Protocol[M_contra]):
    """What is known of libraries, as it is asked for while a program is followed."""

    @property
    def calls(self) -> Mapping[str, Callable[[M_contra, Invocation], Value | None]]:
        """Models of what is called, by dotted path."""

    @property
    def types(self) -> Mapping[str, tuple[type, ...]]:
        """The data that stands for instances of a library's class, by its path."""

    def model(self, path: str) -> Callable[[M_contra, Invocation], Value | None] | None:
        """The model of what is called at `path`."""

    def name(self, machine: M_contra, path: str) -> Value | None:
        """What a dotted name stands for, where that is known."""

    def attribute(self, machine: M_contra, base: Value, name: str) -> Value | None:
        """`base.name`, where a library has that name mean something."""

    def missing(self, machine: M_contra, base: Call, name: str) -> Value | None:
        """An attribute of a library's result that nothing else knows."""

    def item(self, machine: M_contra, base: Value, path: str, index: Value) -> Value | None:
        """`base[index]` of the library's thing at `path`."""

    def node_method(
        self, flavour: str, name: str
    ) -> Callable[[M_contra, Invocation], Value | None] | None:
        """A method of configuration nodes of a flavour."""

    def method(self, base: Value, name: str) -> Value | None:
        """A method of a configuration node, bound to it."""

    def otherwise(self, machine: M_contra, call: Invocation) -> Value | None:
        """The answer to a call that nothing models."""

    def defaults(self, path: str) -> dict[str, Value]:
        """Documented defaults of a library's configuration class, by field."""

    def stands_for(self, names: set[str]) -> str | None:
        """The library's class that a class is a copy of."""

    def arguments(self, machine: M_contra, target: Function | Class) -> dict[str, Value]:
        """Arguments that configuration libraries give what its caller gives none."""

    def constructed(self, machine: M_contra, instance: Value, call: Invocation) -> Value | None:
        """The object, where constructing a class built on a library's is the library's doing."""

    def defined(self, machine: M_contra, function: Function) -> None:
        """A decorated function was just defined."""

    def enter(self, machine: M_contra, function: Function) -> Value | None:
        """Run a decorated main function called without arguments, as its decorator would."""


class Observer(Protocol[M_contra]):
    """What watches a run. Only `is_training` is an answer to the evaluator."""

    def warns(self, message: str) -> None:
        """Something could not be read or followed."""

    def refuses(self, message: str, option: str) -> None:
        """The program would end at its command line, at the value of an option if one is named."""

    def partial(self) -> None:
        """The program is not followed to its end, or not all of it."""

    def called(
        self,
        machine: M_contra,
        call: Invocation,
        result: Value | None = None,
        cls: Class | None = None,
    ) -> None:
        """A library's callable was called, or an object of a class of the repository made."""

    def left(self, machine: M_contra, call: Invocation, result: Value) -> None:
        """A call left the repository for a library that nothing models."""

    def handed(self, values: Iterable[Value]) -> None:
        """Values were handed to something, or gone through."""

    def enters(self, function: Function, site: Site) -> None:
        """A function of the repository is followed."""

    def given(self, arguments: dict[str, Value]) -> None:
        """The parameters of a function have their values."""

    def constructs(self, instance: Instance) -> None:
        """An object of the repository is about to be initialised."""

    def assigns(self, machine: M_contra, node: ast.Assign, value: Value, scope: Scope) -> None:
        """An assignment is about to bind a value."""

    def names(self, target: ast.expr, value: Value) -> None:
        """An annotated assignment is about to bind a value."""

    def imports(self, name: str) -> None:
        """A library's module is imported."""

    def looks_up(self, name: str) -> None:
        """Something is looked up by a text: an attribute, an item, an equal."""

    def counts(
        self, machine: M_contra, node: ast.For | ast.AsyncFor, source: RangeOf, scope: Scope
    ) -> None:
        """A loop goes over a range."""

    def repeats(self, machine: M_contra, node: ast.While, scope: Scope) -> None:
        """A `while` loop is reached."""

    def branches(self, machine: M_contra, node: ast.If, decided: bool | None, scope: Scope) -> None:
        """An `if` is reached, and decided or not."""

    def is_training(self, node: ast.For | ast.AsyncFor | ast.While) -> bool:
        """Whether a loop trains, so that one pass tells of all."""

    def settings(self, name: str, value: Value, kind: str) -> None:
        """The program reads settings."""

    def parses_arguments(self, namespace: Value) -> None:
        """A parser fills a namespace, perhaps one that another filled before."""

    def picks(self, container: Items, value: Value, key: Value) -> None:
        """One of the items of a mapping is taken by its key."""

    def reads(self, name: str) -> None:
        """A name of a namespace of arguments is read, `*` for all."""

    def takes_out(self, mapping: Items, key: object, value: Value) -> None:
        """An item is taken out of a mapping."""

    def executes(self, file: str, names: Value) -> None:
        """The text of a file was executed in the present scope, which holds `names`."""

    def parses(self, file: str, text: str) -> None:
        """A file of source code is read."""

    def starts(self, plan: LaunchPlan) -> None:
        """The program starts a library's program."""
