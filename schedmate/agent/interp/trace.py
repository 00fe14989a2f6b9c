"""What following a program leaves behind, and the observer that writes it.

The `Trace` holds calls, loops, stop conditions and settings. The `Watcher` hears of each event of a
run and keeps what fields are chosen from: which loops train, what they count up to, which of
several configurations was taken.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import TYPE_CHECKING, TypeGuard

from schedmate.agent.interp.objects import (
    Call,
    Class,
    Function,
    Instance,
    Invocation,
    Module,
    RangeOf,
    Scope,
    Site,
    Symbol,
    as_instance,
    pick_argument,
)
from schedmate.agent.interp.source import (
    constant_value,
    elements,
    last_name,
    nodes_of,
    variable_name,
)
from schedmate.agent.interp.values import base, classes
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.values import Items, Value, unknown

if TYPE_CHECKING:
    from schedmate.agent.interp.machine import Machine


@dataclass(slots=True)
class CallEvent:
    """A call of a third-party callable, or the construction of one of the repository's classes.

    `path` is the dotted path (`torch.optim.AdamW`, `?.fit` when the object is unknown, the
    qualified class name for the repository's own classes, whose class is in `cls`). `certain` is
    false under a condition that could not be decided. `inside` lists the repository's network
    classes whose construction was under way; `owner` is the class whose method made the call.
    """

    path: str
    args: list[Value]
    kwargs: dict[str, Value]
    site: Site
    certain: bool
    inside: tuple[str, ...] = ()
    cls: Class | None = None
    function: str = ""
    result: Value | None = None
    target: str = ""
    in_loop: bool = False
    on_import: bool = False
    owner: Class | None = None

    def argument(self, position: int | None, *names: str) -> Value | None:
        """The argument at `position` or under the first of `names` that was given."""
        return pick_argument(self.args, self.kwargs, position, names)


@dataclass(slots=True)
class LoopEvent:
    """A `for` over a range or a `while`/`break` bound: what counts, and up to where.

    `over_data` says of one that itself takes training's steps whether a loop over data inside does,
    `required` that it goes on only below this bound, whatever else its condition asks for.
    """

    kind: str  # "for" | "while" | "stop"
    counter: str
    bound: Value
    bound_text: str
    site: Site
    certain: bool
    depth: int
    function: str
    has_backward: bool = False
    over_data: bool | None = None
    required: bool = False


@dataclass(slots=True)
class Settings:
    """A namespace or configuration that the program read: its name there and its values."""

    name: str
    value: Value
    kind: str  # "arguments" | "config" | "globals" | "dataclass"


@dataclass(slots=True)
class Trace:
    """Everything seen while following one launch.

    `functions` are the repository's functions called, those of each name, and `assigned` the names
    that results of its calls went into, each with where that first happened; `results` is what they
    then held, and `used` how often one was handed to something or gone through, by identity.
    `parameters` are the numbers that functions were first given, by parameter. `read` are the names
    that were read of argument namespaces, with `*` where one was taken apart as a whole. `commands`
    are the programs of libraries that were started. `refused` says what of the command line the
    program would end at, each with the option whose value that is, empty for an unknown one.
    `passed_over` are the sections of configurations, by identity, in place of which the launch
    chose others, and `texts` the modules that were read.
    """

    calls: list[CallEvent] = field(default_factory=list)
    loops: list[LoopEvent] = field(default_factory=list)
    settings: list[Settings] = field(default_factory=list)
    imports: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    passed_over: dict[int, object] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    looked_up: set[str] = field(default_factory=set)
    functions: dict[str, dict[ast.AST, Site]] = field(default_factory=dict)
    used: Counter[int] = field(default_factory=Counter)
    popped: dict[int, tuple[object, Items]] = field(default_factory=dict)
    assigned: dict[str, Site] = field(default_factory=dict)
    results: dict[str, object] = field(default_factory=dict)
    parameters: dict[str, Value] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    commands: list[LaunchPlan] = field(default_factory=list)
    complete: bool = True

    def warn(self, message: str) -> None:
        if message not in self.warnings and len(self.warnings) < 50:
            self.warnings.append(message)


MAX_RECORDS = 40
"""More records of one class are a table, such as of pretrained weights."""


def without_tables(groups: list[Settings]) -> list[Settings]:
    """The settings with the last few records alone of a class that a table was made of."""
    newest_first: list[Settings] = []
    made: Counter[str] = Counter()
    for group in reversed(groups):
        if group.kind == "dataclass":
            made[group.name] += 1
            if made[group.name] > MAX_RECORDS:
                continue
        newest_first.append(group)
    return newest_first[::-1]


# The observer that writes the trace.


MAX_NESTED = 4
"""Sequences inside each other that are looked into for what they hand on."""
MAX_EVENTS = 20_000
"""Calls noted in the trace."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The devices a program makes visible to itself."""

_TRAINS = re.compile(r"^(?!\?).*\b[A-Z]\w*(Runner|Trainer|Learner|Agent|Engine)$")
_LAYER = re.compile(r"torch\.(?!optim\.)")
_CONFIG = re.compile(
    r"(Config|Configuration|Cfg|Args|Arguments|H[Pp]arams?|Hyper\w*|Options?|Opts?|Settings|Params)$"
)


class Watcher:
    """Writes the `Trace`: the machine calls one method for each thing that it follows."""

    def __init__(self) -> None:
        self.trace = Trace()
        self._events: dict[int, CallEvent] = {}
        self._executed: list[tuple[str, Value]] = []
        self._choice = ConfigChoice()

    def warns(self, message: str) -> None:
        """Record a warning: something could not be read or followed."""
        self.trace.warn(message)

    def refuses(self, message: str, option: str) -> None:
        """Record that the program would refuse its command line, at `option` if one is named."""
        self.trace.refused.setdefault(message, option)

    def partial(self) -> None:
        """Record that the program was not followed to its end."""
        self.trace.complete = False

    # -- calls and what is made of them ----------------------------------------

    def called(
        self,
        machine: Machine,
        call: Invocation,
        result: Value | None = None,
        cls: Class | None = None,
    ) -> None:
        """Record a library's call, or the construction (`cls`) of an object of the repository."""
        frame = machine.frames[-1] if machine.frames else None
        event = CallEvent(
            call.path,
            call.args,
            call.kwargs,
            call.site,
            machine.certain,
            tuple(machine.networks),
            cls,
            frame.function if frame else "",
            result,
            in_loop=any(f.loops for f in machine.frames),
            on_import=len(machine.frames) > 1 and frame is not None and frame.function == "",
            owner=frame.cls if frame else None,
        )
        layer = machine.networks and _LAYER.match(call.path)
        if len(self.trace.calls) < MAX_EVENTS and not layer:
            self.trace.calls.append(event)
        if result is not None:
            self._events[id(result.data)] = event

    def left(self, machine: Machine, call: Invocation, result: Value) -> None:
        """Record a call of a library that no plugin models."""
        if _TRAINS.search(call.path) and not machine.networks:
            # a library's trainer gets by a dictionary what the program could have used itself
            for value in (*call.args, *call.kwargs.values()):
                if value.mapping is not None and len(value.mapping) > 1:
                    self.settings(classes.last_part(call.path), value, "config")
        self.called(machine, call, result)

    def handed(self, values: Iterable[Value]) -> None:
        """Record that values were passed to a call, or iterated over: their objects are used."""
        for value in values:
            self._choice.hands(value)
            self._use(value, 0)

    def _use(self, value: Value, depth: int) -> None:
        match data := value.data:
            case Instance():
                self.trace.used[id(data)] += 1
            case Call():
                self.trace.used[id(data)] += 1
                if data.callee is not None and "(" in data.path:
                    self._use(data.callee, 0)
            case Symbol(base=Value(data=Call()) as base):
                self._use(base, 0)
            case list() | tuple() if len(data) <= 8 and depth < MAX_NESTED:
                for item in data:
                    self._use(item, depth + 1)

    def enters(self, function: Function, site: Site) -> None:
        """Record that a function of the repository is followed, called at `site`."""
        if function.cls is None or not classes.is_record(function.cls):
            # `config.validate()` tells nothing of the run
            self.trace.functions.setdefault(function.name, {}).setdefault(function.node, site)

    def binds_parameters(self, arguments: dict[str, Value]) -> None:
        """Record the numbers that a followed function's parameters have, the first of each name."""
        for name, value in arguments.items():
            if type(value.data) in (int, float):
                self.trace.parameters.setdefault(name, value)

    def constructs(self, instance: Instance) -> None:
        """Record an object of a configuration class before its `__init__` runs."""
        cls = instance.cls
        if _CONFIG.search(cls.name) and not classes.is_network(cls):
            self._choice.constructs(instance)
            # a dictionary read by attribute may be filled either way
            self.settings(cls.name, Value(instance.attrs), "dataclass")
            if instance.items is not None:
                self.settings(cls.name, instance.items, "dataclass")

    # -- names -----------------------------------------------------------------

    def assigns(self, machine: Machine, node: ast.Assign, value: Value, scope: Scope) -> None:
        """Record an assignment before it binds: its name, its call, a loop's end it decides."""
        self.names(node.targets[0], value)
        compared = isinstance(node.value, ast.Compare) and machine.frames[-1].loops
        if compared and _END.search(variable_name(node.targets[0]) or ""):
            # `done = count >= total` of a loop that a later test of the name leaves
            self._note_bound(machine, node.value, [ast.Break()], scope)
        if isinstance(node.value, ast.Call) or any(map(_makes, elements(node.value))):
            self._assigned(node.targets[0], value, scope)

    def names(self, target: ast.expr, value: Value) -> None:
        """Record the name that an annotated assignment is about to bind."""
        event = self._events.get(id(value.data)) if not value.known else None
        if event is not None and not event.target:
            event.target = last_name(target) or ""

    def _assigned(self, target: ast.expr, value: Value, scope: Scope) -> None:
        """Remember the names that a call's result went into, unless it gave nothing."""
        if isinstance(target, ast.Tuple):
            items = value.sequence if value.sequence is not None else ()
            for index, element in enumerate(target.elts):
                self._assigned(element, items[index] if index < len(items) else value, scope)
        elif value.data is not None and not isinstance(value.data, bool | int | float | str):
            name = last_name(target)
            if name is not None:
                self.trace.assigned.setdefault(name, Site(scope.module.file, target.lineno))
                self.trace.results.setdefault(name, value.data)

    def imports(self, name: str) -> None:
        """Record the library that a module is imported from."""
        self.trace.imports.add(name.split(".", maxsplit=1)[0])

    def looks_up(self, name: str) -> None:
        """Record a text by which an attribute or item is looked up, or that is compared with."""
        self.trace.looked_up.add(name)

    # -- loops -----------------------------------------------------------------

    def counts(
        self, machine: Machine, node: ast.For | ast.AsyncFor, source: RangeOf, scope: Scope
    ) -> None:
        """Record a loop over a range."""
        counter, end = _counter(node.target), _range_end(node.iter)
        bound = _counted_from_one(end, source, _pass_count(source))
        trains, over_data = body_trains(node.body), steps_over_data(node.body)
        site = Site(scope.module.file, node.lineno)
        self._note_loop(machine, "for", counter, bound, end, site, trains, over_data, required=True)

    def repeats(self, machine: Machine, node: ast.While, scope: Scope) -> None:
        """Record the bound of a `while` loop."""
        self._note_bound(machine, node.test, node.body, scope, loop=node)

    def branches(self, machine: Machine, node: ast.If, decided: bool | None, scope: Scope) -> None:
        """Record the bound in an `if` that leaves a loop, or that was not decided as true."""
        if not decided or leaves_loop(node.body):
            self._note_bound(machine, node.test, node.body, scope)

    def _note_bound(
        self,
        machine: Machine,
        test: ast.expr,
        body: Sequence[ast.stmt],
        scope: Scope,
        loop: ast.While | None = None,
    ) -> None:
        """Record `counter < bound` of a while loop, or of a condition that leaves the loop."""
        kind = "stop" if loop is None else "while"
        if kind == "stop" and not (leaves_loop(body) and any(f.loops for f in machine.frames)):
            return
        if kind == "stop" and not machine.frames[-1].loops and _returns_value(body[-1]):
            return  # a function called in a loop has its result, and the loop goes on
        required = test.values if _is_conjunction(test) else [test]
        for compare in nodes_of([test], ast.Compare):
            sides = _counter_and_bound(compare, kind) if len(compare.ops) == 1 else None
            if sides is None:
                continue
            counter, end = sides
            if isinstance(end, ast.BinOp) and ast.unparse(end).endswith(" + 1"):
                end = end.left  # `epoch < epochs + 1` counts from one
            with machine.uncertain():
                bound = machine.evaluate(end, scope)
            if bound.number is not None or base.passes_of(bound):
                site = Site(scope.module.file, test.lineno)
                trains = body_trains(loop.body) if loop is not None else True
                needed = loop is not None and compare in required
                counted = ast.unparse(counter)[:80]
                self._note_loop(machine, kind, counted, bound, end, site, trains, required=needed)

    def _note_loop(
        self,
        machine: Machine,
        kind: str,
        counter: str,
        bound: Value,
        end: ast.expr,
        site: Site,
        trains: bool,
        over_data: bool | None = None,
        required: bool = False,
    ) -> None:
        depth, function = sum(f.loops for f in machine.frames), machine.frames[-1].function
        event = LoopEvent(
            kind, counter, bound, ast.unparse(end)[:200], site, machine.certain, depth, function
        )
        event.has_backward, event.over_data, event.required = trains, over_data, required
        self.trace.loops.append(event)

    def is_training(self, node: ast.For | ast.AsyncFor | ast.While) -> bool:
        """Whether a loop trains, so that following one pass is enough."""
        if isinstance(node, ast.While):
            return body_trains(node.body)
        return "epoch" in _counter(node.target).lower() or body_trains(node.body, simulated=True)

    # -- settings --------------------------------------------------------------

    def settings(self, name: str, value: Value, kind: str) -> None:
        """Record settings that the program reads under `name`; `kind` is that of `Settings`."""
        self.trace.settings.append(Settings(name, value, kind))
        self._choice.reads(value)

    def picks(self, container: Items, value: Value, key: Value) -> None:
        """Record that an item of a mapping was taken by its key: perhaps a configuration."""
        self._choice.picks(container, value, key)

    def parses_arguments(self, namespace: Value) -> None:
        """Record the namespace that a parser fills, once for each namespace."""
        if not any(group.value.data is namespace.data for group in self.trace.settings):
            self.settings("arguments", namespace, "arguments")

    def reads(self, name: str) -> None:
        """Record that an argument is read from its namespace; `*` stands for all of them."""
        self.trace.read.add(name)

    def takes_out(self, mapping: Items, key: object, value: Value) -> None:
        """Record an item popped from a mapping: it remains a setting."""
        # a setting that was read and taken out is a setting all the same
        self.trace.popped.setdefault(id(mapping), (mapping, {}))[1][key] = value

    def executes(self, file: str, names: Value) -> None:
        """Record that a file's text was executed in a scope, whose variables `names` holds."""
        self._executed.append((file, names))

    # -- files and programs ----------------------------------------------------

    def parses(self, file: str, text: str) -> None:
        """Record the text of a source file."""
        self.trace.texts.append(text)

    def starts(self, plan: LaunchPlan) -> None:
        """Record a library's program that this one starts, as a launch plan."""
        self.trace.commands.append(plan)

    def ends(self, machine: Machine, module: Module | None) -> None:
        """Complete the trace: add the variables of `module` and the environment as settings."""
        self.trace.settings = self._choice.chosen(self.trace.settings)
        self.trace.passed_over = self._choice.sections()
        if module is not None:
            self.settings("__main__", Value(dict(module.scope.names)), "globals")
        visible = machine.shared.get("os.environ", {}).get(VISIBLE)
        if visible is not None:
            self.settings("environment", Value({VISIBLE.lower(): visible}), "config")
        for file, names in self._executed:
            self.settings(file, names, "config")


def _makes(node: ast.expr) -> bool:
    """Whether an expression makes something of what is called, or takes a part: `data[n:]`."""
    match node:
        case ast.Subscript():
            return type(node.slice) is ast.Slice
        case ast.Dict():
            return any(type(value) is ast.Call for value in node.values)
        case ast.DictComp() | ast.ListComp():
            return any(type(part) is ast.Call for part in ast.walk(node))
        case _:
            return False


# Which of several configurations a program chose, where it reads or makes them all.
#
# A package that keeps a file for each model reads every one of them into a table and takes one by
# its name. A module of presets makes a record for each experiment. What was passed over says
# nothing of the run, however much it looks like its settings.


_OF_THE_LAUNCH = frozenset({"command", "script", "environment", "default", "config"})
"""Sources of keys that a launch chooses a section by; those that the code spells only name one."""


class ConfigChoice:
    """Tells which of several configurations the program chose, by what it took and passed on."""

    def __init__(self) -> None:
        self._read: dict[int, object] = {}  # kept alive, so that no other has their identity
        self._in_tables: set[int] = set()
        self._picked: set[int] = set()
        self._records: dict[int, tuple[Class, list[Instance]]] = {}
        self._handed: set[int] = set()
        self._sections: dict[int, tuple[Items, set[int]]] = {}
        self._by_launch: set[int] = set()

    def reads(self, value: Value) -> None:
        """Record a configuration that was read, or a record of settings that was made."""
        self._read[id(value.data)] = value.data

    def constructs(self, record: Instance) -> None:
        """Record an object of a configuration class."""
        self._records.setdefault(id(record.cls), (record.cls, []))[1].append(record)

    def hands(self, value: Value) -> None:
        """Record a value that is an argument by itself, not one of a sequence."""
        if as_instance(value) is not None:
            self._handed.add(id(value.data))

    def picks(self, table: Items, value: Value, key: Value) -> None:
        """Record that `value` was taken from a mapping by its key."""
        self._sections.setdefault(id(table), (table, set()))[1].add(id(value.data))
        if key.origin is not None and key.origin.source in _OF_THE_LAUNCH:
            self._by_launch.add(id(table))
        taken = _settings_identity(value)
        if taken not in self._read:
            return
        beside = {_settings_identity(item) for item in table.values()} & self._read.keys()
        if len(beside) > 1:
            self._in_tables |= beside
            self._picked.add(taken)

    def chosen(self, settings: list[Settings]) -> list[Settings]:
        """The settings without configurations that others were chosen in place of."""
        passed_over = (self._in_tables - self._picked) | self._left_aside()
        if not passed_over:
            return settings
        return [group for group in settings if id(group.value.data) not in passed_over]

    def sections(self) -> dict[int, object]:
        """The sections of tables that nothing took, where the launch says which one is taken.

        `full[args.dataset][args.model]` of a file leaves those of other datasets and models aside.
        """
        return {
            id(item.data): item.data
            for place, (table, taken) in self._sections.items()
            if place in self._by_launch
            for item in table.values()
            if isinstance(item.data, dict) and id(item.data) not in taken
        }

    def _left_aside(self) -> set[int]:
        """Records that nothing was given, of classes of which another one was handed on."""
        identities: set[int] = set()
        for _, records in self._records.values():
            used = [record for record in records if id(record) in self._handed]
            if used:
                for record in records:
                    if id(record) not in self._handed:
                        identities.add(id(record.attrs))
                        if record.items is not None:
                            identities.add(id(record.items.data))
        return identities


def _settings_identity(value: Value) -> int:
    """The identity that the settings of a configuration or a record are known by."""
    record = as_instance(value)
    return id(record.attrs if record is not None else value.data)


# Loops, and conditions that end them: what counts, and up to where.


def _pass_count(source: RangeOf) -> Value:
    """The number of passes of a loop over a range, as a value."""
    start, stop, step = source.start.integer, source.stop, source.step.integer
    end = stop.number if stop.number is not None else stop.integer
    if start is not None and end is not None and source.step.data == 1:
        return Value(end - start, stop.origin)
    if start is not None and stop.integer is not None and step is not None:
        if step > 1 and stop.integer > start:
            return Value(-((start - stop.integer) // step), stop.origin)
    return unknown(origin=stop.origin) if source.step.unknown else stop


def _counted_from_one(end: ast.expr, source: RangeOf, counted: Value) -> Value:
    """`range(start, epochs + 1)` with an unknown start counts from one.

    `range(last + 1, epochs)` does not: before the first epoch the last one is -1.
    """
    count = counted.integer if source.start.integer is None else None
    bound = ast.unparse(end)
    if count is not None and (bound.rstrip(")").endswith(" + 1") or bound.startswith("1 + ")):
        return Value(count - 1, counted.origin)
    return counted


def _counter(target: ast.expr) -> str:
    match target:
        case ast.Name():
            return target.id
        case ast.Attribute():
            return target.attr
        case ast.Tuple(elts=[first, *_]):
            return _counter(first)
        case _:
            return ""


def _range_end(source: ast.expr) -> ast.expr:
    """What a loop counts up to: of `tqdm(range(start, end))` a named end, else all of it."""
    inner = source
    while isinstance(inner, ast.Call) and inner.args:
        name = ast.unparse(inner.func).rpartition(".")[2]
        if name == "zip":  # with a range and batches
            source = next((arg for arg in inner.args if "range(" in ast.unparse(arg)), source)
        if name in ("range", "trange", "xrange"):
            end = inner.args[1] if len(inner.args) > 1 else None
            return source if end is None or isinstance(end, ast.Constant) else end
        inner = inner.args[0]
    return source


_ABOVE, _BELOW = (ast.Gt, ast.GtE), (ast.Lt, ast.LtE)


def _counter_and_bound(compare: ast.Compare, kind: str) -> tuple[ast.expr, ast.expr] | None:
    """Which side of a comparison counts, and which is the bound; None where neither does."""
    left, op, right = compare.left, type(compare.ops[0]), compare.comparators[0]
    over = op in _ABOVE or (op is ast.Eq and kind == "stop")
    if not over and op not in _BELOW and op is not ast.NotEq:
        return None
    return (left, right) if over is (kind == "stop") else (right, left)


def _is_conjunction(test: ast.expr) -> TypeGuard[ast.BoolOp]:
    """Whether a condition has parts that each have to hold."""
    return isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)


_END = re.compile(
    r"(^|_)(done|finish(ed)?|stop(ped)?|end(ed)?|complete[d]?|over|terminated?)(_training)?$"
)


def _returns_value(last: ast.stmt) -> bool:
    """Whether this returns a value, rather than that something is over."""
    value = last.value if isinstance(last, ast.Return) else None
    return value is not None and type(constant_value(value)) not in (bool, NoneType)


def leaves_loop(body: Sequence[ast.stmt]) -> bool:
    match body[-1] if body else None:
        case ast.Break() | ast.Return() | ast.Assign(value=ast.Constant(value=bool())):
            return True
        case ast.Expr(value=ast.Call(func=func)):
            return ast.unparse(func) in ("sys.exit", "exit", "quit")
        case _:
            return False


# What a loop's body says of training: whether it takes steps, and over what.


_TRAINING_STEP = re.compile(
    r"^(backward|step|minimize|apply_gradients|update|learn)$|[Tt]rain|"
    r"^update_(params?|parameters|policy|policies|model|networks?|weights|agents?|actor|critic)|"
    r"^(ppo|grpo|sac|td3|dqn|policy|actor|critic|agent|model)_update$"
)
"""Functions that take a step of training."""
_OTHER_STEP = re.compile(r"sampler$|(^|[._])envs?$|simulator$")
"""Objects that draw samples or simulate, whose steps are no training's."""
_STEPS = frozenset(["backward", "minimize", "apply_gradients"])
"""Methods that do so, whatever their object."""


def body_trains(body: Sequence[ast.stmt], simulated: bool = False) -> bool:
    """Whether a loop body looks like training: it steps an optimiser or calls a train function.

    With `simulated`, stepping an environment counts too.
    """
    for call in nodes_of(body, ast.Call):
        name = last_name(call.func) or ast.unparse(call.func).rpartition(".")[2]
        if _runs_session(call.func):
            return True
        if _TRAINING_STEP.search(name):
            owner = ast.unparse(call.func).rpartition(".")[0]
            if simulated or name != "step" or not _OTHER_STEP.search(owner):
                return True
    return False


def _runs_session(func: ast.expr) -> bool:
    """Whether this is `sess.run(...)`, TensorFlow 1's way to take a step."""
    if not isinstance(func, ast.Attribute) or func.attr != "run":
        return False
    return "sess" in (last_name(func.value) or "").lower()


def steps_over_data(body: Sequence[ast.stmt]) -> bool | None:
    """Whether a loop that itself takes steps takes them in a loop over data inside it.

    None where it takes none itself.
    """
    steps = {
        call
        for call in nodes_of(body, ast.Call)
        if variable_name(call.func) is None
        and (last_name(call.func) in _STEPS or _runs_session(call.func))
    }
    if not steps:
        return None
    return any(
        not re.search(r"range\(", ast.unparse(inner.iter))
        and any(node in steps for node in ast.walk(inner))
        for inner in nodes_of(body, ast.For)
    )
