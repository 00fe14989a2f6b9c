"""Classes, functions, objects and modules of the repository as values, and things of libraries.

Which classes are networks, datasets or records; how objects of them are constructed and what
fields records have. A library's thing is known by its dotted path, its results by the call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from schedmate.agent.interp.objects import (
    NOWHERE,
    AttrDict,
    Bound,
    BudgetSpent,
    Call,
    Class,
    Function,
    Handler,
    Instance,
    Invocation,
    Lacking,
    Module,
    Native,
    Partial,
    Site,
    Symbol,
    as_call,
    as_class,
    as_function,
    as_instance,
    as_symbol,
    is_own,
    native,
    path_of,
)
from schedmate.agent.interp.values.base import (
    Copies,
    D_co,
    Kind,
    copy_shallow,
    iterate,
    kind,
    kind_of,
    not_there,
    plain_key,
    truth,
)
from schedmate.agent.interp.values.plain import fill_mapping, mapping_item
from schedmate.agent.values import Items, Origin, StandIn, Unknown, Value, unknown
from schedmate.base.data import load
from schedmate.base.files import is_dir

if TYPE_CHECKING:
    from schedmate.agent.interp.machine import Machine

_KINDS = load("agent/interp/values/classes.yaml")
_NETWORKS = frozenset(_KINDS["networks"]["names"])
_NETWORK_PACKAGES = frozenset(_KINDS["networks"]["packages"])
_NETWORK_ENDINGS = tuple(_KINDS["networks"]["endings"])
_AROUND = tuple(_KINDS["networks"]["around"])
_COLLECTIONS = frozenset(_KINDS["networks"]["of_collections"]["packages"])
_COLLECTION_ENDINGS = tuple(_KINDS["networks"]["of_collections"]["endings"])
_TRAINING_MODULES = frozenset(_KINDS["training_modules"])
_DATASETS = frozenset(_KINDS["datasets"])
_ENVIRONMENTS = frozenset(_KINDS["environments"])
_OWN_ENVIRONMENTS = frozenset(_KINDS["own_environments"])
_RECORD_DECORATORS = frozenset(_KINDS["records"]["decorators"])
_RECORDS = frozenset(_KINDS["records"]["bases"])
FIELD_CALLS = frozenset(_KINDS["records"]["fields"])
"""Calls in a record's class body that describe a field instead of giving its default."""
MAPPING_BASES = frozenset(_KINDS["mappings"])
"""Base classes of objects that are mappings."""
LIST_BASES = frozenset(_KINDS["lists"])
"""Base classes of objects that are lists."""
ENUM_BASES = frozenset(_KINDS["enums"])
"""Base classes of enums."""
PLAIN_ENUM_BASES = frozenset(["str", "int", "StrEnum", "IntEnum", "IntFlag"])
"""Base classes of enums whose members equal their values."""


def last_part(path: str) -> str:
    """The final component of a dotted path without call marks."""
    return path.replace("()", "").rsplit(".", 1)[-1]


def is_network(cls: Class) -> bool:
    """Whether the class is a neural network layer or model (not a training wrapper)."""
    for base in cls.external_bases():
        name = last_part(base)
        root = base.replace("?", "").split(".")[0]
        if any(word in name for word in _AROUND):
            return False
        if name in _NETWORKS and (root in _NETWORK_PACKAGES or cls.lookup("forward")):
            return True
        if name.endswith(_NETWORK_ENDINGS):
            return True
        if root in _COLLECTIONS and name.endswith(_COLLECTION_ENDINGS):
            return True
    return False


def is_training_module(cls: Class) -> bool:
    """Whether the class is a network together with its training, as a library's trainer runs it."""
    return any(last_part(base) in _TRAINING_MODULES for base in cls.external_bases())


def is_dataset(cls: Class) -> bool:
    """Whether the class is a dataset or a data module."""
    names = [last_part(base) for base in cls.external_bases()]
    return any(name in _DATASETS or name.endswith("Dataset") for name in names)


def is_environment(cls: Class) -> bool:
    """Whether the class is an environment for reinforcement learning."""
    if any(last_part(base) in _ENVIRONMENTS for base in cls.external_bases()) or any(
        base.name in _OWN_ENVIRONMENTS for base in cls.mro()[1:]
    ):
        return True
    named = re.search(r"Env(ironment)?(V?\d+)?$", cls.name) is not None
    return named and all(cls.lookup(method) is not None for method in ("reset", "step"))


def is_record(cls: Class) -> bool:
    """Whether construction assigns annotated fields: dataclasses, attrs, pydantic and the like."""
    for current in cls.mro():
        for decorator in current.decorators:
            own = as_function(decorator)
            if last_part(path_of(decorator)) in _RECORD_DECORATORS:
                return True
            if own is not None and "dataclass" in own.name:
                return True
    return any(last_part(base) in _RECORDS for base in cls.external_bases())


_PYTHON_KINDS: tuple[type, ...] = (type, list, dict, int, str, type(iter([])))
_PYTHONS = frozenset(name for kind in _PYTHON_KINDS for name in dir(kind)).union(_KINDS["special"])
"""Special names that classes may have without saying so."""


def is_foreign(name: str) -> bool:
    """Whether a special name is neither Python's own nor one that modules have."""
    return re.fullmatch(r"__\w+__", name) is not None and name not in _PYTHONS


# Functions and methods of the repository, and what stands for them.


class Invocable(Kind[D_co]):
    """What all callables have in common."""

    callable_ = True

    def truth(self, value: Value) -> bool | None:
        return True


@kind_of(Function)
class OwnFunction(Invocable[Function]):
    """Functions of the repository."""

    symbolic = True
    hashable = True

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        if name in ("__name__", "__qualname__"):
            return Value(data.name, base.origin)
        if name in ("main", "callback") or data.decorators:
            return Value(Symbol(f"?{data.name}.{name}", base), base.origin)
        return unknown(name)

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        return machine.call_function(self.data(func), call.args, call.kwargs, call.site)

    def has(self, machine: Machine, value: Value, name: str) -> bool | None:
        return True if name == "__dict__" else None


@kind_of(Native)
class NativeFunction(Invocable[Native]):
    """Functions that schedmate models itself."""

    symbolic = True
    hands_on = False

    def is_same(self, one: Value, other: Value) -> bool | None:
        return isinstance(other.data, Native) and self.data(one).name == other.data.name

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        data = self.data(func)
        call.path = data.name
        try:
            return data.model(machine, call) or unknown()
        except Lacking:
            return unknown()


@kind_of(Bound)
class BoundMethod(Invocable[Bound]):
    """Methods bound to their object."""

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        return machine.getattr(self.data(base).func, name)

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        data = self.data(func)
        args, function = [data.self, *call.args], as_function(data.func)
        if function is not None:
            return machine.call_function(function, args, call.kwargs, call.site)
        return machine.call(data.func, args, call.kwargs, call.site)


@kind_of(Partial)
class PartialFunction(Invocable[Partial]):
    """A function of which some arguments are given."""

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        data = self.data(func)
        kwargs = {**data.kwargs, **call.kwargs}
        return machine.call(data.func, [*data.args, *call.args], kwargs, call.site)


def bind_attribute(machine: Machine, attribute: Value, owner: Value, cls: Class) -> Value:
    """What an object of `cls` has under the name of a class attribute."""
    function = as_function(attribute)
    if function is None or function.kind == "staticmethod":
        return attribute
    if function.kind == "property":
        return machine.call_function(function, [owner], {}, Site(function.module.file, 1))
    if function.kind == "classmethod":
        return Value(Bound(attribute, Value(cls)), attribute.origin)
    return Value(Bound(attribute, owner), attribute.origin)


# Classes of the repository as values.


@kind_of(Class)
class OwnClass(Invocable[Class]):
    """Classes of the repository."""

    symbolic = True
    hashable = True

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        attribute = data.lookup(name)
        if attribute is not None:
            function = as_function(attribute)
            if function is not None and function.kind == "classmethod":
                return Value(Bound(attribute, base), attribute.origin)
            return (
                enum_member(data, name, attribute)
                if is_enum_member(data, name, attribute)
                else attribute
            )
        if name in ("__name__", "__qualname__"):
            return Value(data.name, base.origin)
        if name == "__module__":
            return Value(data.module.name)
        if name == "__dict__":
            return Value(data.attrs)
        if name == "__members__":
            return Value(enum_members_by_name(data))
        if name in ("__annotations__", "__dataclass_fields__"):
            return Value({key: unknown() for key in record_fields(machine, data)})
        for external in data.external_bases():
            return Value(Symbol(f"{external}.{name}", base), base.origin)
        return not_there(machine, name, "AttributeError")

    def setattr(self, machine: Machine, base: Value, name: str, value: Value) -> None:
        self.data(base).attrs[name] = value

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        key = index.text
        if key is not None and key in self.data(base).attrs:
            return machine.getattr(base, key)
        return base

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        return instantiate(machine, self.data(func), call.args, call.kwargs, call.site)

    def has(self, machine: Machine, value: Value, name: str) -> bool | None:
        if name == "__dict__" or self.data(value).lookup(name) is not None:
            return True
        return False if is_foreign(name) else None

    def class_of(self, value: Value) -> Class | None:
        return self.data(value)

    def names(self, value: Value) -> set[str] | None:
        return self.data(value).names()

    def attributes(self, value: Value) -> Value:
        return Value(self.data(value).attrs, value.origin)


# Construction of objects of the repository's classes, and the fields of records.


def record_fields(machine: Machine, cls: Class) -> dict[str, Value]:
    """A record class's fields with their default values, inherited ones first."""
    fields: dict[str, Value] = {}
    for base in reversed(cls.external_bases()):
        fields.update(machine.plugins.defaults(base))
    for current in reversed(cls.mro()):
        for name in current.annotations:
            default = current.attrs.get(name)
            line = current.lines.get(name)
            origin = Origin("default", current.module.file, line)
            if default is None:
                fields.setdefault(name, Value(Unknown(name), origin))
                continue
            fields[name] = _field_default(machine, default, origin, current)
        for name, value in current.attrs.items():
            if name in fields and name not in current.annotations and value.known:
                fields[name] = value
    return fields


def _field_default(machine: Machine, default: Value, origin: Origin, cls: Class) -> Value:
    data = as_call(default)
    if data is not None and last_part(data.path) in FIELD_CALLS:
        stated = data.kwargs.get("default")
        if stated is None and data.args and last_part(data.path) != "subparsers":
            stated = data.args[0]
        factory = data.kwargs.get("default_factory") or data.kwargs.get("factory")
        if stated is None and factory is not None:
            made = machine.call(factory, [], {}, Site(cls.module.file, origin.line or 1))
            return Value(made.data, origin)
        if stated is None and last_part(data.path) in ("list_field", "mutable_field"):
            return Value(list(data.args), origin)
        return Value(Unknown() if stated is None or _is_no_default(stated) else stated.data, origin)
    if isinstance(default.data, Instance | AttrDict | Call):
        return default
    return Value(Unknown() if _is_no_default(default) else default.data, origin)


def _is_no_default(value: Value) -> bool:
    """Whether it stands for no default: `dataclasses.MISSING`, `omegaconf.MISSING`."""
    symbol = as_symbol(value)
    return symbol is not None and "MISSING" in symbol.path


def instantiate(
    machine: Machine, cls: Class, args: list[Value], kwargs: dict[str, Value], site: Site
) -> Value:
    """Construct an object as far as that can be followed."""
    externals = [last_part(base) for base in cls.external_bases()]
    if not ENUM_BASES.isdisjoint(externals):
        return call_enum(cls, args)
    instance = Instance(cls, args=args, kwargs=kwargs)
    if not MAPPING_BASES.isdisjoint(externals):
        instance.items = Value({})
    elif not LIST_BASES.isdisjoint(externals):
        instance.items = Value([])
    value = Value(instance, Origin("code", site.file, site.line))
    call = Invocation(f"{cls.module.name}.{cls.name}", args, kwargs, site)
    machine.observer.called(machine, call, value, cls)
    if externals:
        made = machine.plugins.constructed(machine, value, call)
        if made is not None:
            return made
    machine.observer.constructs(instance)
    init = cls.method("__init__")
    if is_record(cls) and init is None:
        instance.attrs.update(_record_arguments(machine, cls, args, kwargs))
        after = cls.method("__post_init__")
        if after is not None:
            machine.call_function(after, [value], {}, site)
        return value
    if instance.mapping is not None and cls.lookup("__init__") is None:
        fill_mapping(machine, instance.mapping, args, kwargs)
    if init is not None:
        if is_network(cls):
            _run_network(machine, cls, init, [value, *args], kwargs, site)
        else:
            machine.call_function(init, [value, *args], kwargs, site)
    elif (maker := cls.method("__new__")) is not None:
        made = machine.call_function(maker, [Value(cls), *args], kwargs, site)
        if as_instance(made) is not None:
            return made
    return value


def _run_network(
    machine: Machine,
    cls: Class,
    init: Function,
    args: list[Value],
    kwargs: dict[str, Value],
    site: Site,
) -> None:
    """Follow a network's constructor a little way: its parts matter less than its name."""
    if len(machine.networks) >= 2:
        return
    machine.networks.append(cls.name)
    limit = machine.step_limit
    machine.step_limit = min(limit, machine.steps + machine.limits.network_steps)
    try:
        machine.call_function(init, args, kwargs, site)
    except BudgetSpent:
        if machine.steps > limit or machine.out_of_time():
            raise
    finally:
        machine.step_limit = limit
        machine.networks.pop()


def _record_arguments(
    machine: Machine, cls: Class, args: list[Value], kwargs: dict[str, Value]
) -> dict[str, Value]:
    values = record_fields(machine, cls)
    names = list(values)
    values.update(machine.plugins.arguments(machine, cls))
    for name, value in zip(names, args, strict=False):
        values[name] = value
    values.update(kwargs)
    return values


# Members of the repository's enums, each the same object always.


def call_enum(cls: Class, args: list[Value]) -> Value:
    """What calling an enum gives: the member that is meant, or what was given."""
    wanted = args[0] if args else unknown()
    for member in enum_members_by_name(cls).values():
        instance = as_instance(member)
        same = instance and wanted.known and instance.attrs["value"].plain() == wanted.plain()
        if same or member.data is wanted.data:
            return member
    return wanted


def is_enum_member(cls: Class, name: str, value: Value) -> bool:
    """Whether a class attribute is a member of an enum."""
    return (
        as_function(value) is None
        and not name.startswith("_")
        and any(last_part(base) in ENUM_BASES for base in cls.external_bases())
    )


def enum_members(value: Value) -> Value:
    """What a loop over an enum class goes over; `value` itself for other classes."""
    cls = as_class(value)
    if cls is None or ENUM_BASES.isdisjoint(map(last_part, cls.external_bases())):
        return value
    return Value(list(enum_members_by_name(cls).values()), value.origin)


def enum_members_by_name(cls: Class) -> dict[str, Value]:
    """The members of an enum, none for other classes."""
    return {
        n: enum_member(cls, n, held)
        for n, held in cls.attrs.items()
        if is_enum_member(cls, n, held)
    }


def enum_member(cls: Class, name: str, value: Value) -> Value:
    """`Class.MEMBER` of an enum: an object with `name` and `value`."""
    if as_call(value) is not None and last_part(path_of(value)) == "auto":
        numbers = [n for n, held in cls.attrs.items() if is_enum_member(cls, n, held)]
        value = Value(1 + numbers.index(name), value.origin)
    attrs = {"name": Value(name, value.origin), "value": value, "_value_": value}
    return Value(cls.members.setdefault(name, Instance(cls, attrs)), value.origin)


# Objects of the repository's classes.


_RAW = ("__setattr__", "__getattribute__")


@kind_of(Instance)
class OwnObject(Kind[Instance]):
    """An object; `items` of its data are set where its class is built on dict or list."""

    symbolic = True

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        if name in data.attrs:
            return data.attrs[name]
        if name == "__dict__":
            return Value(data.attrs if data.items is None else data.items.data, base.origin)
        if name == "__class__":
            return Value(data.cls)
        attribute = data.cls.lookup(name)
        if attribute is not None:
            return bind_attribute(machine, attribute, base, data.cls)
        getter = data.cls.lookup("__getattr__")
        item = _attribute_among_items(base, data, name, getter)
        if item is not None:
            return item
        if getter is not None and data.cls.method("__getattr__") and not name.startswith("__"):
            return machine.call(getter, [base, Value(name)], {}, Site(data.cls.module.file, 1))
        if getter is not None and data.mapping is not None and _is_get(getter):
            return Value(None)
        if name in _RAW:
            return native(name, _raw_attribute(data))
        for external in data.cls.external_bases():
            if external != "object":
                return Value(Symbol(f"{external}().{name}", base), base.origin)
        return not_there(machine, name, "AttributeError")

    def setattr(self, machine: Machine, base: Value, name: str, value: Value) -> None:
        data = self.data(base)
        found = data.cls.method(name)
        if found is not None and found.setter:
            machine.call_function(found.setter, [base, value], {}, NOWHERE)
            return
        items = data.mapping
        if name == "__dict__" and value.data is data and items is not None:
            data.attrs = items  # `self.__dict__ = self`
            return
        by_attribute = items is not None and data.cls.lookup("__getattr__") is not None
        (items if items is not None and by_attribute else data.attrs)[name] = value

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        data = self.data(base)
        if _is_named_tuple(data) and index.integer is not None:
            return machine.getitem(Value(iterate(base)), index)
        items, own = data.mapping, data.cls.lookup("__missing__")
        if items is not None:
            if own is None or plain_key(index) in items:
                return mapping_item(machine, base, items, index)
            return machine.call(own, [base, index], {}, Site(data.cls.module.file, 1))
        if data.items is not None:
            return machine.getitem(data.items, index)
        getter = data.cls.lookup("__getitem__")
        if getter is None or data.cls.method("__getitem__") is None:
            return unknown()
        if is_dataset(data.cls) or is_network(data.cls):
            return unknown()
        return machine.call(getter, [base, index], {}, Site(data.cls.module.file, 1))

    def setitem(self, machine: Machine, base: Value, index: Value, value: Value) -> None:
        data = self.data(base)
        setter = data.cls.method("__setitem__")
        if setter is not None:
            machine.call_function(setter, [base, index, value], {}, NOWHERE)
        elif data.items is not None:
            kind(data.items).setitem(machine, data.items, index, value)

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        cls = self.data(func).cls
        method = cls.method("__call__")
        if method is None or is_network(cls):
            return unknown()
        return machine.call_function(method, [func, *call.args], call.kwargs, call.site)

    def truth(self, value: Value) -> bool | None:
        data = self.data(value)
        if data.items is not None:
            return truth(data.items)
        return None if data.cls.lookup("__bool__") is not None else True

    def iterate(self, value: Value) -> list[Value] | None:
        data = self.data(value)
        if data.items is not None:
            return iterate(data.items)
        return list(data.attrs.values()) if _is_named_tuple(data) else None

    def mapping(self, machine: Machine, value: Value) -> Items | None:
        data = self.data(value)
        return data.mapping

    def key(self, value: Value) -> Hashable:
        data = self.data(value)
        return data if data.is_member else None

    def is_same(self, one: Value, other: Value) -> bool | None:
        data = self.data(one)
        if data is other.data:
            return True
        own = is_record(data.cls) or data.cls.lookup("__eq__") is not None
        return None if own else False

    def equals(self, value: Value, plain: Value) -> bool | None:
        data = self.data(value)
        if not data.cls.members:
            return None
        # a member of an enum of strings or numbers equals its value; other members nothing
        bases = {last_part(base) for base in data.cls.external_bases()}
        held = data.attrs.get("value", unknown())
        return not bases.isdisjoint(PLAIN_ENUM_BASES) and bool(held.plain() == plain.plain())

    def copy(self, value: Value) -> Value:
        data = self.data(value)
        if data.is_member:
            return value
        held = copy_shallow(data.items) if data.items is not None else None
        same = Instance(data.cls, dict(data.attrs), held, data.args, data.kwargs)
        return Value(same, value.origin)

    def parts(self, value: Value) -> Iterable[Value]:
        data = self.data(value)
        return [*data.attrs.values(), *([data.items] if data.items is not None else [])]

    def deep_copy(self, value: Value, copies: Copies, copied: Callable[[Value], Value]) -> None:
        data = self.data(value)
        if data.is_member:
            return
        same = Instance(data.cls, args=data.args, kwargs=data.kwargs)
        copies[id(data)] = same
        same.items = copied(data.items) if data.items is not None else None
        same.attrs.update({key: copied(item) for key, item in data.attrs.items()})

    def has(self, machine: Machine, value: Value, name: str) -> bool | None:
        data = self.data(value)
        if name == "__dict__" or name in data.attrs or data.cls.lookup(name) is not None:
            return True
        if name in (data.mapping or ()):
            return True
        if data.cls.lookup("__getattr__") is not None or data.cls.external_bases():
            return None
        return False

    def class_of(self, value: Value) -> Class | None:
        return self.data(value).cls

    def names(self, value: Value) -> set[str] | None:
        data = self.data(value)
        return data.cls.names() | data.attrs.keys()

    def attributes(self, value: Value) -> Value:
        return Value(self.data(value).attrs, value.origin)


def _attribute_among_items(
    base: Value, data: Instance, name: str, getter: Value | None
) -> Value | None:
    """`base.name` where that is an item, or a method, of the mapping or list that it is."""
    items = data.mapping
    if items is not None and name in items:
        held = items[name]
        if getter is not None and held.mapping is not None:
            return Value(Instance(data.cls, items=held), held.origin)  # read by attribute as well
        return held
    if data.items is None:
        return None
    inner = Value(data.items.data, base.origin)
    method = kind(inner).method(inner, name)
    return method if isinstance(method.data, Native) else None


def _is_named_tuple(data: Instance) -> bool:
    """Whether its attributes are the items of a tuple."""
    return "NamedTuple" in str(data.cls.external_bases())


def _is_get(getter: Value) -> bool:
    """Whether `__getattr__ = dict.get`: what a mapping does not have is None."""
    symbol = as_symbol(getter)
    return symbol is not None and symbol.path.endswith(".get")


@dataclass(eq=False, slots=True)
class Super(StandIn):
    """The data of `super()` inside a method of `cls`."""

    cls: Class
    self: Value


@kind_of(Super)
class SuperKind(Kind[Super]):
    """Values of `super()`: attributes of the classes after `cls`."""

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        owner = as_instance(data.self)
        start = kind(data.self).class_of(data.self) or data.cls
        order = start.mro()
        position = order.index(data.cls) + 1 if data.cls in order else 1
        for cls in order[position:]:
            if name in cls.attrs:
                return bind_attribute(machine, cls.attrs[name], data.self, start)
        if owner is not None:
            if owner.items is not None:
                if name == "__init__" and owner.mapping is not None:
                    return native("dict.__init__", _filling_method(owner.mapping))
                return kind(owner.items).method(owner.items, name)
            if name in (*_RAW, "__getattr__"):
                return native(name, _raw_attribute(owner))
        for external in data.cls.external_bases():
            return Value(Symbol(f"{external}().{name}", data.self), data.self.origin)
        return unknown(name)


def _filling_method(items: Items) -> Handler:
    def call(machine: Machine, call: Invocation) -> Value:
        fill_mapping(machine, items, call.args, call.kwargs)
        return Value(None)

    return call


def _raw_attribute(owner: Instance) -> Handler:
    def access(machine: Machine, call: Invocation) -> Value:
        key = call.first.text
        if key is None:
            return unknown()
        if len(call.args) > 1:
            owner.attrs[key] = call.args[1]
            return Value(None)
        return owner.attrs.get(key, unknown(key))

    return access


# Things of libraries, known by their dotted path, and what calling them gave.


_RECORD = re.compile(r"\w(Config|Args|Arguments|Options|Settings|Hparams|Namespace)$")
"""Classes of libraries that keep what they are given under the names that it was given by."""


@kind_of(Symbol)
class LibraryName(Kind[Symbol]):
    """Names of libraries (`Symbol`): modules, classes, functions, by dotted path."""

    foreign = True
    symbolic = True

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        module, _, last = data.path.rpartition(".")
        if name in ("__name__", "__module__") and data.base is None and last[:1].isupper():
            return Value(last if name == "__name__" else module)
        path = machine.sources.canonical(f"{data.path}.{name}")
        return symbol_value(machine, path) if data.base is None else Value(Symbol(path, data.base))

    def setattr(self, machine: Machine, base: Value, name: str, value: Value) -> None:
        if f"{self.data(base).path}.{name}" == "sys.argv":
            machine.argv = iterate(value) or machine.argv

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        data = self.data(base)
        modelled = machine.plugins.item(machine, base, data.path, index)
        if modelled is not None:
            return modelled
        return Value(Symbol(f"{data.path}[]", data.base or base), base.origin)

    def setitem(self, machine: Machine, base: Value, index: Value, value: Value) -> None:
        key = index.text
        if self.data(base).path == "os.environ" and key is not None and machine.certain:
            machine.environ[key] = value
            if len(machine.frames) == 1:  # for the whole program, not for one of its processes
                machine.shared.setdefault("os.environ", {})[key] = value

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        data = self.data(func)
        call.path, call.base = data.path, data.base
        return machine.external(call)

    def is_same(self, one: Value, other: Value) -> bool | None:
        same = as_symbol(other)
        if same is None:
            return False
        return True if self.data(one).path == same.path else None

    def has(self, machine: Machine, value: Value, name: str) -> bool | None:
        return False if is_foreign(name) else None


@kind_of(Call)
class LibraryResult(Kind[Call]):
    """Results of library calls (`Call`)."""

    foreign = True

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        if name in data.attrs:
            return data.attrs[name]
        if name in data.kwargs and _RECORD.search(data.path):
            return data.kwargs[name]
        modelled = machine.plugins.name(machine, f"{data.path}().{name}")
        if modelled is None:
            modelled = machine.plugins.missing(machine, data, name)
        return modelled or Value(Symbol(f"{data.path}().{name}", base), base.origin)

    def setattr(self, machine: Machine, base: Value, name: str, value: Value) -> None:
        self.data(base).attrs[name] = value

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        data = self.data(base)
        key = plain_key(index)
        if key in data.attrs:
            return data.attrs[key]
        suffix = f"[{key!r}]" if index.text is not None else "[]"
        return Value(Symbol(f"{data.path}(){suffix}", base), base.origin)

    def call(self, machine: Machine, func: Value, call: Invocation) -> Value:
        data = self.data(func)
        if _wraps(machine, data):
            return machine.call(data.args[0], call.args, call.kwargs, call.site)
        call.path, call.base = f"{data.path}()", func
        return machine.external(call)

    def truth(self, value: Value) -> bool | None:
        return True if self.data(value).path == "re.Match" else None

    def element(self, container: Value) -> Value:
        return Value(Symbol(f"{self.data(container).path}()[]", container), container.origin)


def _wraps(machine: Machine, made: Call) -> bool:
    """Whether a library's wrapper was given a class or function: called, it makes the same."""
    inner = made.args[0] if made.args else None
    name = as_symbol(inner)
    callable_ = name.path.rpartition(".")[2][:1].isupper() if name else is_own(inner)
    return callable_ and f"{made.path}()" not in machine.plugins.calls


def symbol_value(machine: Machine, path: str) -> Value:
    """A library's name; what stands for it when that is known."""
    constant = machine.plugins.name(machine, path)
    return constant if constant is not None else Value(Symbol(path))


# Modules of the repository as values.


@kind_of(Module)
class OwnModule(Kind[Module]):
    """A module, which stands for its `__dict__` and its specification as well."""

    symbolic = True

    def getattr(self, machine: Machine, base: Value, name: str) -> Value:
        data = self.data(base)
        attribute = machine.module_attr(data, name)
        if attribute is not None:
            return attribute
        if name == "__dict__":
            return Value(data)
        if name == "__path__" and (is_dir(data.path) or data.path.name == "__init__.py"):
            return Value([Value(str(data.path if is_dir(data.path) else data.path.parent))])
        child = machine.sources.find(f"{data.name}.{name}", None, machine.search_path())
        if child is not None:
            machine.load(child)
            return Value(child)
        if name in ("items", "keys", "values", "get"):
            names = Value(dict(data.scope.names))
            return kind(names).getattr(machine, names, name)
        if name == "loader":
            return Value(data)
        if name == "load_module":
            return native(name, lambda *_: Value(data))
        return Value(Symbol(machine.sources.canonical(f"{data.name}.{name}")))

    def setattr(self, machine: Machine, base: Value, name: str, value: Value) -> None:
        data = self.data(base)
        machine.load(data)
        data.scope.names[name] = value

    def getitem(self, machine: Machine, base: Value, index: Value) -> Value:
        items = self.mapping(machine, base)
        key = index.text
        if key is None:
            return mapping_item(machine, base, items, index)
        machine.observer.looks_up(key)
        return machine.module_attr(self.data(base), key) or unknown(key)

    def truth(self, value: Value) -> bool | None:
        return True

    def mapping(self, machine: Machine, value: Value) -> Items:
        data = self.data(value)
        machine.load(data)
        return data.scope.names

    def has(self, machine: Machine, value: Value, name: str) -> bool | None:
        return machine.module_attr(self.data(value), name) is not None

    def attributes(self, value: Value) -> Value:
        return value
