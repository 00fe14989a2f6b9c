"""Models the standard library, and other libraries that run or give back what they are given.

`os.environ`, `functools` and `operator`; named tuples and dataclasses; `itertools` and progress
bars; `re`; `inspect`. What documentation says of libraries (results, constants, defaults, options)
is in `libraries.yaml`; launchers, trainers and wrappers call the program's functions.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from schedmate.agent.bounds import MAX_DATA, VALUE_WEIGHT, linear_pattern_for, measure
from schedmate.agent.interp.builtins import FUNCTIONS
from schedmate.agent.interp.libs.files import read_file
from schedmate.agent.interp.machine import Machine, Plugin
from schedmate.agent.interp.objects import (  # noqa: F401 (of models.yaml)
    AttrDict,
    Bound,
    Call,
    Class,
    DefaultDict,
    Function,
    Handler,
    Instance,
    Invocation,
    Module,
    Native,
    Partial,
    Raised,
    RangeOf,
    Symbol,
    as_call,
    as_class,
    as_function,
    as_instance,
    as_symbol,
    is_own,
    modelled,
    native,
    path_of,
    return_first,
)
from schedmate.agent.interp.values import base, classes
from schedmate.agent.interp.values.base import copy_shallow, iterate, kind, origin_of, plain_key
from schedmate.agent.interp.values.plain import NAMED_TUPLE, deep_copy, fill_mapping, is_bounded
from schedmate.agent.values import UNSET, Items, Origin, Unknown, Value, lifted, unknown
from schedmate.base.data import load


def environ_get(machine: Machine, call: Invocation) -> Value:
    asked, name = call.argument(0, "key"), call.text(0, "key")
    default = call.argument(1, "default")
    if name is not None and name in machine.environ:
        return machine.environ[name]
    if default is not None:
        return default
    return Value(Unknown(str(asked.data) if asked is not None else None, UNSET))


def environ_copy(machine: Machine, _: Invocation) -> Value:
    return Value(AttrDict(dict(machine.environ), "open"))


def environ_setdefault(machine: Machine, call: Invocation) -> Value:
    return machine.environ.setdefault(call.need_text(0), call.need(1))


def partial(machine: Machine, call: Invocation) -> Value:
    return Value(Partial(call.need(0), call.args[1:], call.kwargs), call.first.origin)


def reduce(machine: Machine, call: Invocation) -> Value:
    """`functools.reduce(getattr, "a.b".split("."), x)`."""
    items = iterate(call.need(1))
    if items is None or len(items) > 500:
        return unknown()
    result, *rest = [*call.args[2:3], *items] or [unknown()]
    for item in rest:
        result = machine.call(call.first, [result, item], {}, call.site)
    return result


def item_getter(machine: Machine, call: Invocation) -> Value:
    """`operator.itemgetter("lr")`: a function that takes an item."""
    key = call.first

    def take(machine: Machine, taken: Invocation) -> Value:
        one = taken.args and len(call.args) == 1
        return machine.getitem(taken.args[0], key) if one else unknown()

    return Value(Native("itemgetter", take))


def environ_update(machine: Machine, call: Invocation) -> Value:
    for key, value in ((machine.mapping(call.first) or {}) | call.kwargs).items():
        machine.setitem(Value(Symbol("os.environ")), Value(key), value)
    return Value(None)


def ordered_dict(machine: Machine, call: Invocation) -> Value:
    items: Items = {}
    fill_mapping(machine, items, call.args, call.kwargs)
    return Value(items)


def default_dict(_: Machine, call: Invocation) -> Value:
    return Value(DefaultDict(call.first))


def copy_deep(_: Machine, call: Invocation) -> Value:
    return deep_copy(call.first)


def copy_flat(_: Machine, call: Invocation) -> Value:
    return copy_shallow(call.first)


def literal_eval(machine: Machine, call: Invocation) -> Value:
    text, origin = call.first.text, call.first.origin
    if text is None or len(text) > 5000:
        return unknown(origin=origin)
    try:
        return lifted(ast.literal_eval(text.strip()), origin)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        if machine.expects("ValueError", "SyntaxError"):
            raise Raised("ValueError") from None
        return unknown(origin=origin)


def strtobool(machine: Machine, call: Invocation) -> Value:
    text = call.first
    if text.text is None:
        return unknown(origin=text.origin)
    return Value(text.text.lower() in ("y", "yes", "t", "true", "on", "1"), text.origin)


def math_function(name: str) -> Handler:
    function = getattr(math, name)

    def apply(machine: Machine, call: Invocation) -> Value:
        numbers = [a.data for a in call.args if isinstance(a.data, int | float)]
        if not numbers or len(numbers) < len(call.args):
            return base.same_passes(call.args) or unknown(origin=origin_of(*call.args))
        try:
            return Value(function(*numbers), origin_of(*call.args))
        except (ValueError, OverflowError, TypeError):
            return unknown(origin=origin_of(*call.args))

    return apply


def as_number(machine: Machine, call: Invocation) -> Value | None:
    """`count.astype(int)`, `count.item()`: a count that only the data's length leaves open."""
    return call.base if call.base is not None and base.passes_of(call.base) else None


def typing_cast(_: Machine, call: Invocation) -> Value | None:
    """`typing.cast(T, value)` is its value."""
    return call.argument(1, "val")


def _environ(machine: Machine, base: Value, index: Value) -> Value:
    name = str(plain_key(index))
    return machine.environ.get(name, unknown(name))


def _modules(machine: Machine, base: Value, index: Value) -> Value:
    name = plain_key(index)
    named = (module for module in machine.sources.modules.values() if module.name == name)
    return next((Value(module) for module in named), Value(Symbol(str(name))))


def _search_path(machine: Machine) -> Value:
    paths: Value = machine.shared.setdefault("sys.path", Value([]))
    return paths


# Named tuples and dataclasses: making them, their fields, copies with changes.


def named_tuple(machine: Machine, call: Invocation) -> Value:
    """`collections.namedtuple(name, fields)`: a constructor of attribute records."""
    field_names, text = call.need(1, "field_names"), call.text(1, "field_names")
    if text is not None and len(text) > MAX_DATA:
        return unknown()
    if text is not None:
        names = text.replace(",", " ").split()
    else:
        names = [str(name.data) for name in iterate(field_names) or []]
    last = iterate(call.kwargs.get("defaults")) or []
    defaults = dict(zip(names[len(names) - len(last) :], last, strict=False))

    def make(machine: Machine, call: Invocation) -> Value:
        items = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
        ordered: Items = {
            name: items.get(name, defaults.get(name, unknown(name))) for name in names
        }
        return Value(AttrDict(ordered, "namespace", NAMED_TUPLE))

    return Value(Native(str(call.args[0].data), make))


def as_dict(machine: Machine, call: Invocation) -> Value:
    """`dataclasses.asdict(record)`: mappings all the way down."""
    value = call.first
    if as_instance(value) is not None or type(value.data) is dict:
        return _as_mapping(deep_copy(value)) if is_bounded(value) else unknown(origin=value.origin)
    if value.mapping is not None:
        return deep_copy(Value(dict(value.mapping), value.origin))
    return unknown()


def _as_mapping(value: Value) -> Value:
    match data := value.data:
        case Instance() if classes.is_record(data.cls):
            return Value({key: _as_mapping(item) for key, item in data.attrs.items()}, value.origin)
        case Instance(items=None) if not data.cls.members:
            return Value(dict(data.attrs), value.origin)
        case dict() if type(data) is dict:
            return Value({key: _as_mapping(item) for key, item in data.items()}, value.origin)
        case list() | tuple():
            return Value(type(data)(_as_mapping(item) for item in data), value.origin)
        case _:
            return value


def replace_fields(machine: Machine, call: Invocation) -> Value:
    """`dataclasses.replace(record, epochs=3)`: a copy, initialised again with the changes."""
    made = deep_copy(call.need(0))
    for key, value in call.kwargs.items():
        machine.setattr(made, key, value)
    owner = as_instance(made)
    again = owner.cls.method("__post_init__") if owner is not None else None
    if again is not None:
        machine.call_function(again, [made], {}, call.site)
    return made


def dataclass_fields(machine: Machine, call: Invocation) -> Value:
    """`dataclasses.fields(x)`: name, default and type of each."""
    cls = kind(call.first).class_of(call.first)
    if cls is None:
        return unknown()
    fields = []
    for name, default in classes.record_fields(machine, cls).items():
        owner = next((c for c in cls.mro() if name in c.annotations), None)
        of = machine.evaluate(owner.annotations[name], owner.scope) if owner else unknown()
        items = {"name": Value(name), "default": default, "type": of, "metadata": Value({}),
                 "init": Value(True)}  # fmt: skip
        fields.append(Value(AttrDict(items, "namespace")))
    return Value(fields)


# itertools, and progress bars around what is gone through.


MAX_COMBINATIONS = 64


def product(machine: Machine, call: Invocation) -> Value:
    """`itertools.product(...)` of short lists; of long ones, the first combinations."""
    machine.charge(MAX_COMBINATIONS * len(call.args))
    columns = [iterate(argument) for argument in call.args]
    if any(column is None for column in columns) or call.kwargs:
        return unknown()
    rows = itertools.islice(itertools.product(*(c or [] for c in columns)), MAX_COMBINATIONS)
    return Value([Value(tuple(row)) for row in rows])


def chain(machine: Machine, call: Invocation) -> Value:
    """`itertools.chain(a, b)`, and of one iterable of them."""
    parts = iterate(call.first) if call.path.endswith("from_iterable") else call.args
    columns = []
    for part in parts or []:
        columns.append(iterate(part))
        machine.charge(VALUE_WEIGHT + len(columns[-1] or ()))
    if parts is None or any(column is None for column in columns):
        return unknown()
    return Value([item for column in columns for item in column or []])


def count(machine: Machine, call: Invocation) -> Value:
    start = call.args[0] if call.args else Value(0)
    return Value(RangeOf(start, unknown("count"), Value(1)))


def islice(machine: Machine, call: Invocation) -> Value:
    stop = call.argument(2) or call.need(1)
    return Value(RangeOf(Value(0), stop, Value(1)), stop.origin)


def progress_bar(machine: Machine, call: Invocation) -> Value:
    """`tqdm(iterable)`; with only `total=`, a counter up to it."""
    source = call.argument(0, "iterable", "sequence", "gen")
    if source is not None:
        return source
    total = call.kwargs.get("total")
    if total is not None:
        return Value(RangeOf(call.kwargs.get("initial", Value(0)), total, Value(1)), total.origin)
    return unknown()


# The `re` module on text that is known: programs take names apart with it.


MAX_TEXT = 300
"""Longest text that a pattern is applied to: a name, a path, not a file."""
_FIND_ALL = ("sub", "split", "findall")


def apply_pattern(name: str) -> Handler:
    def run(machine: Machine, call: Invocation) -> Value | None:
        args, base = list(call.args), as_call(call.base)
        if base is not None and base.path == "re.compile":
            if len(base.args) != 1 or base.kwargs:
                return None  # flags
            args = [*base.args, *args]
        texts = [value.text for value in args if value.text is not None]
        if call.kwargs or len(texts) < len(args):
            return None
        if len(texts) != (3 if name == "sub" else 2) or max(map(len, texts[1:])) > MAX_TEXT:
            return None
        pattern = linear_pattern_for(texts[0], texts[-1], every=name in _FIND_ALL)
        if pattern is None:
            return None
        try:
            result = getattr(pattern, name)(*texts[1:])
        except (re.error, IndexError, ValueError):
            return None  # a replacement that names no group
        origin = args[-1].origin
        if result is None or isinstance(result, str | list):
            made = lifted(result, origin)
            return made if measure(made.data, limit=MAX_DATA) is not None else None
        return _match(result, args)

    return run


def _match(match: re.Match[str], args: list[Value]) -> Value:
    """The value of a match, with its groups by number and name."""
    groups = {index: match.group(index) for index in range(match.re.groups + 1)}
    groups_as_items: Items = {
        key: Value(text, args[-1].origin) for key, text in (groups | match.groupdict()).items()
    }
    return Value(Call("re.Match", args, {}, groups_as_items), args[-1].origin)


def _groups_of(call: Invocation) -> Items:
    """The groups of the match whose method is called, by number and by name."""
    match = as_call(call.base)
    return match.attrs if match is not None else {}


def match_group(machine: Machine, call: Invocation) -> Value:
    groups = _groups_of(call)
    found = [groups.get(plain_key(value), unknown()) for value in call.args or [Value(0)]]
    return found[0] if len(found) == 1 else Value(tuple(found))


def match_groups(machine: Machine, call: Invocation) -> Value:
    groups = _groups_of(call)
    numbers = sorted(key for key in groups if isinstance(key, int) and key)
    return Value(tuple(groups[number] for number in numbers))


def match_groupdict(machine: Machine, call: Invocation) -> Value:
    return Value({k: value for k, value in _groups_of(call).items() if isinstance(k, str)})


# What `inspect` tells of the repository's functions: registries fill in defaults by it.


_EMPTY = "inspect.Parameter.empty"


def _asked_function(value: Value) -> tuple[Function, bool] | None:
    """The repository's function that is asked about, and whether its first argument is bound."""
    match value.data:
        case Function() as function:
            return function, False
        case Bound(func=inner):
            inner_function = _asked_function(inner)
        case Class() as cls:
            init = cls.lookup("__init__")
            inner_function = _asked_function(init) if init is not None else None
        case _:
            return None
    return (inner_function[0], True) if inner_function is not None else None


def full_argument_names(machine: Machine, call: Invocation) -> Value | None:
    """`inspect.getfullargspec(f)`: names and defaults of its arguments."""
    asked = _asked_function(call.first)
    if asked is None:
        return None
    function, _ = asked
    spec = function.node.args
    names = [argument.arg for argument in (*spec.posonlyargs, *spec.args)]
    defaults = tuple(function.defaults[name] for name in names if name in function.defaults)
    only = {a.arg: function.defaults[a.arg] for a in spec.kwonlyargs if a.arg in function.defaults}
    described = {
        "args": Value([Value(name) for name in names]),
        "varargs": Value(spec.vararg.arg if spec.vararg is not None else None),
        "varkw": Value(spec.kwarg.arg if spec.kwarg is not None else None),
        "defaults": Value(defaults or None),
        "kwonlyargs": Value([Value(argument.arg) for argument in spec.kwonlyargs]),
        "kwonlydefaults": Value(only or None),
    }
    return Value(AttrDict({**described, "keywords": described["varkw"]}))


def signature(machine: Machine, call: Invocation) -> Value | None:
    """`inspect.signature(f)`: its parameters in order."""
    asked = _asked_function(call.first)
    if asked is None:
        return None
    function, bound = asked
    spec = function.node.args
    positional = [a.arg for a in (*spec.posonlyargs, *spec.args)][1 if bound else 0 :]
    kinds = dict.fromkeys(positional, "POSITIONAL_OR_KEYWORD")
    kinds |= {spec.vararg.arg: "VAR_POSITIONAL"} if spec.vararg is not None else {}
    kinds |= {argument.arg: "KEYWORD_ONLY" for argument in spec.kwonlyargs}
    kinds |= {spec.kwarg.arg: "VAR_KEYWORD"} if spec.kwarg is not None else {}
    parameters = {
        name: Value(
            AttrDict(
                {
                    "name": Value(name),
                    "kind": Value(Symbol(f"inspect.Parameter.{kind}")),
                    "default": function.defaults.get(name, Value(Symbol(_EMPTY))),
                }
            )
        )
        for name, kind in kinds.items()
    }
    return Value(AttrDict({"parameters": Value(parameters)}))


def is_class(machine: Machine, call: Invocation) -> Value | None:
    if as_class(call.first) is not None or _names_class(call.first):
        return Value(True)
    return Value(False) if _is_decided(call.first) else unknown()


def is_function(machine: Machine, call: Invocation) -> Value | None:
    if as_function(call.first) is not None:
        return Value(True)
    return Value(False) if _is_decided(call.first) or _names_class(call.first) else unknown()


def _is_decided(value: Value) -> bool:
    """Whether it is plain data, or of the repository, so that it is known what it is."""
    return value.known or isinstance(value.data, Class | Function | Instance | Bound)


_WANTED: dict[str, Callable[[Value], object]] = {
    "inspect.isclass": as_class,
    "inspect.isfunction": as_function,
}


def get_members(_: Machine, call: Invocation) -> Value | None:
    """`inspect.getmembers(module, inspect.isclass)`: names and what is under them, by name."""
    module, asked = call.first.data, as_symbol(call.args[1]) if len(call.args) > 1 else None
    wanted = _WANTED.get(asked.path) if asked is not None else lambda _: True
    if not isinstance(module, Module) or wanted is None:
        return None
    names = sorted(module.scope.names.items())
    return Value([Value((Value(name), value)) for name, value in names if wanted(value)])


def method_type(_: Machine, call: Invocation) -> Value:
    """`types.MethodType(function, instance)`."""
    return Value(Bound(call.need(0), call.need(1)))


def _names_class(value: Value) -> bool:
    """Whether a library's name is that of a class: `torch.cuda.amp.GradScaler`."""
    symbol = as_symbol(value)
    return symbol is not None and re.search(r"\.[A-Z]+[a-z]\w*$", symbol.path) is not None


# Libraries that run what they are given: launchers, trainers, wrappers, registries.


_SETTINGS = ("config", "train_loop_config", "param_space")
_RECORDED = (
    *("model_fn", "train_loop_per_worker", "trainable", "env_fns"),
    *("run_or_experiment", "func", "function"),
)
"""Arguments of calls that are recorded: constructors, whose object they give, and searches."""


def callback_model(position: int | None, how: str, keyword: str) -> Handler:
    """A model of a call that runs a function given at `position` or as `keyword`."""

    def run(machine: Machine, call: Invocation) -> Value | None:
        function = call.argument(position, keyword)
        if function is not None and function.elements:
            function = function.elements[0]  # one of several alike
        bound = function is not None and isinstance(function.data, Bound | Instance)
        if function is None or not (is_own(function) or (bound and how == "rest")):
            return None
        if how == "rest":
            machine.call(function, call.args[1:], dict(call.kwargs), call.site)
            return None  # a handle of the job
        given = call.kwargs.get("args")
        if given is None and how == "rank" and len(call.args) > 1:
            given = call.args[1]
        args = iterate(given) or []
        if how == "rank":
            args = [Value(0), *args]
        elif how == "none":
            args = []
        elif how == "config":
            settings = (call.kwargs[name] for name in _SETTINGS if name in call.kwargs)
            own = as_function(function)
            takes_one = own is None or bool(own.node.args.args)
            args = [next(settings, unknown())] if takes_one else []
        result = machine.call(function, args, {}, call.site)
        return None if keyword in _RECORDED else result

    return run


def wrapped_model(machine: Machine, call: Invocation) -> Value:
    return call.argument(0, "model", "module", "fun", "cfg") or unknown()


def fluent(machine: Machine, call: Invocation) -> Value | None:
    """`x.to(device)`: x itself, for objects of unknown libraries and for networks."""
    base = call.base
    if as_instance(base) is None and as_call(base) is None:
        return None
    name = classes.last_part(call.path)
    if name != "to" and (call.kwargs or len(call.args) > 1):
        return None  # a library's own `model.train(data, epochs=3)`
    kind = call.argument(0, "dtype") if name == "to" else Value(name)
    if kind is not None and (kind.text is not None or as_symbol(kind) is not None):
        machine.record("torch.nn.Module.to", [kind], {}, call.site)
    return base


def prepare_objects(machine: Machine, call: Invocation) -> Value:
    """`accelerator.prepare(a, b)` and `fabric.setup(a, b)`: the same objects."""
    return call.args[0] if len(call.args) == 1 else Value(tuple(call.args))


def wandb_init(machine: Machine, call: Invocation) -> Value:
    """`wandb.init(config=...)`: the run's config, which programs read their settings back from."""
    given = call.kwargs.get("config")
    mapping, record = machine.mapping(given), as_instance(given)
    if mapping is None and record is not None:
        mapping = record.attrs
    config = Value(AttrDict(dict(mapping or {}), "attr"))
    machine.shared["wandb.config"] = config
    if mapping:
        machine.observer.settings("wandb", config, "config")
    return Value(Call(call.path, call.args, call.kwargs, {"config": config}))


def deepspeed_initialize(machine: Machine, call: Invocation) -> Value:
    config = call.kwargs.get("config") or call.kwargs.get("config_params")
    if config is not None:
        loaded = read_file(machine, config) if config.text is not None else config
        if loaded is not None and loaded.mapping is not None:
            machine.observer.settings("deepspeed", loaded, "config")
    model = call.argument(1, "model") or unknown()
    optimizer = call.argument(2, "optimizer") or unknown()
    return Value((model, optimizer, unknown(), unknown()))


_TASK = re.compile(r"ray\.remote|(\?|modal)\S*\.(function|cls)")
"""Decorators of Ray and Modal by which a function or class runs elsewhere."""


def _is_task(value: Value) -> bool:
    """Whether a function, or the class of an object, runs elsewhere by its decorator."""
    owner = as_instance(value.data.self) if isinstance(value.data, Bound) else None
    task = owner.cls if owner is not None else as_class(value) or as_function(value)
    decorators = task.decorators if task is not None else []
    return any(_TASK.match(path_of(decorator)) for decorator in decorators)


def _task_remote(machine: Machine, base: Value) -> Value | None:
    """`task.remote`: the task, called here."""
    return base if _is_task(base) else None


def _task_options(machine: Machine, base: Value) -> Value | None:
    """`task.options(num_gpus=1)`: the same on other resources."""
    return native("options", lambda *_: base) if _is_task(base) else None


# What libraries' documentation says of them: results, constants, defaults, functions that pass on.
#
# All of it is data, in `libraries.yaml`.


_LIBRARIES: dict[str, Any] = load("agent/interp/libs/libraries.yaml")
_ALIASES: tuple[tuple[str, str], ...] = tuple(_LIBRARIES["aliases"].items())
TRAINER_OPTIONS: list[str] = _LIBRARIES["trainer_options"]
"""Arguments of Lightning's trainer."""


@lru_cache(16_384)
def canonical_path(path: str) -> str:
    """One spelling for what can be imported under several names."""
    for old, new in _ALIASES:
        if path.startswith(old):
            return new + path[len(old) :]
    renamed: str = _LIBRARIES["renamed"].get(path, path)
    return renamed


@lru_cache(1024)
def documented_defaults(path: str) -> tuple[str, dict[str, Any]] | None:
    """The class at `path`, or of that name in a library, and its fields' documented defaults."""
    name = classes.last_part(path)
    for documented, fields in _LIBRARIES["records"].items():
        if documented == path or (
            documented.rsplit(".", 1)[-1] == name and path.split(".", maxsplit=1)[0] != "?"
        ):
            return documented, fields
    return None


def record_defaults(path: str) -> dict[str, Value]:
    """Documented defaults of a library's configuration class, by field."""
    documented = documented_defaults(path)
    if documented is None:
        return {}
    return {
        key: Value(value, Origin("library", text=f"{documented[0]}.{key}"))
        for key, value in documented[1].items()
    }


def record_classes() -> list[str]:
    """Configuration classes of libraries whose defaults are documented."""
    return list(_LIBRARIES["records"])


def config_defaults(name: str) -> Value:
    """A library's default configuration tree."""
    return _named_defaults(_LIBRARIES["configs"][name], name)


def _named_defaults(data: Any, name: str) -> Value:
    """A tree of documented defaults, each under its whole name."""
    if isinstance(data, dict):
        items = {key: _named_defaults(item, f"{name}.{key}") for key, item in data.items()}
        return Value(items, Origin("library", text=name))
    return lifted(data, Origin("library", text=name))


def documented_parsers() -> dict[str, list[dict[str, Any]]]:
    """The options of argument parsers that libraries make, by the function that makes one."""
    options: dict[str, list[dict[str, Any]]] = _LIBRARIES["parsers"]
    return options


def _class_copied(names: set[str]) -> str | None:
    for path, copies in _LIBRARIES["copies"].items():
        if any(names >= set(telling) for telling in copies):
            return str(path)
    return None


def _constant_model(constant: Any) -> Callable[[Machine], Value]:
    """A value, or with `{name}` what the launch says of it."""
    if isinstance(constant, str) and constant.startswith("{") and constant.endswith("}"):
        fact = constant[1:-1]
        return lambda machine: machine.facts[fact]
    value = Value(constant)
    return lambda _: value


def _result_model(said: Any) -> Handler:
    constant = _constant_model(said)

    def answer(machine: Machine, call: Invocation) -> Value:
        value = constant(machine)
        return Value(value.data, value.origin)

    return answer


LIBRARIES = Plugin(
    attributes={"remote": _task_remote, "options": _task_options},
    calls={
        **modelled("libraries", {**FUNCTIONS, **globals()}),
        **{path: _result_model(said) for path, said in _LIBRARIES["results"].items()},
        **dict.fromkeys(_LIBRARIES["identity"], wrapped_model),
        **{f"*.{name}": fluent for name in _LIBRARIES["fluent"]},
        **{path: callback_model(*how) for path, how in _LIBRARIES["callbacks"].items()},
    },
    items={"os.environ": _environ, "sys.modules": _modules},
    names={
        "sys.argv": lambda machine: Value(machine.argv),
        "sys.path": _search_path,
        "wandb.config": lambda machine: machine.shared.get("wandb.config"),
        **{path: _constant_model(said) for path, said in _LIBRARIES["constants"].items()},
    },
    defaults=record_defaults,
    stands_for=_class_copied,
)
