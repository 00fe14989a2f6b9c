"""The observer that writes the trace."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from schedmate.agent.interp import classes
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import (
    Call,
    Class,
    Function,
    Instance,
    Module,
    RangeOf,
    Scope,
    Site,
    Symbol,
)
from schedmate.agent.interp.observe import loops
from schedmate.agent.interp.observe.choice import Choice
from schedmate.agent.interp.syntax import elements, last_name
from schedmate.agent.interp.trace import CallEvent, Settings, Trace
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.values import Items, Value

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

_TESTS = re.compile(r"(^|/)test(s|ing)?[_/]", re.IGNORECASE)
"""Files that link to any data set."""
_DATASET = re.compile(
    r"[\"']https?://huggingface\.co/datasets/([\w-]+/[\w.-]++)"
    r"(?![^\"'\s]*\.(?:png|jpe?g|gif|webp|svg|mp4|wav|mp3))"
)
"""The address of a dataset on a hub, in source code beside what reads it."""


class Watcher:
    """Keeps what fields are chosen from: calls, loops, settings, names and what they held."""

    def __init__(self) -> None:
        self.trace = Trace()
        self._events: dict[int, CallEvent] = {}
        self._executed: list[tuple[str, Value]] = []
        self._choice = Choice()

    def warns(self, message: str) -> None:
        self.trace.warn(message)

    def refuses(self, message: str, option: str) -> None:
        self.trace.refused.setdefault(message, option)

    def partial(self) -> None:
        self.trace.complete = False

    # -- calls and what is made of them ----------------------------------------

    def called(
        self,
        machine: Machine,
        call: Invocation,
        result: Value | None = None,
        cls: Class | None = None,
    ) -> None:
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
        if _TRAINS.search(call.path) and not machine.networks:
            # a library's trainer gets by a dictionary what the program could have used itself
            for value in (*call.args, *call.kwargs.values()):
                if value.mapping is not None and len(value.mapping) > 1:
                    self.settings(classes.last(call.path), value, "config")
        self.called(machine, call, result)

    def handed(self, values: Iterable[Value]) -> None:
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
        if function.cls is None or not classes.is_record(function.cls):
            # `config.validate()` tells nothing of the run
            self.trace.functions.setdefault(function.name, {}).setdefault(function.node, site)

    def given(self, arguments: dict[str, Value]) -> None:
        for name, value in arguments.items():
            if type(value.data) in (int, float):
                self.trace.parameters.setdefault(name, value)

    def constructs(self, instance: Instance) -> None:
        cls = instance.cls
        if _CONFIG.search(cls.name) and not classes.is_network(cls):
            self._choice.constructs(instance)
            # a dictionary read by attribute may be filled either way
            self.settings(cls.name, Value(instance.attrs), "dataclass")
            if instance.items is not None:
                self.settings(cls.name, instance.items, "dataclass")

    # -- names -----------------------------------------------------------------

    def assigns(self, machine: Machine, node: ast.Assign, value: Value, scope: Scope) -> None:
        self.names(node.targets[0], value)
        if isinstance(node.value, ast.Compare) and machine.frames[-1].loops:
            loops.note_end(self.trace, machine, node, scope)
        if isinstance(node.value, ast.Call) or any(map(_makes, elements(node.value))):
            self._assigned(node.targets[0], value, scope)

    def names(self, target: ast.expr, value: Value) -> None:
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
        self.trace.imports.add(name.split(".", maxsplit=1)[0])

    def looks_up(self, name: str) -> None:
        self.trace.looked_up.add(name)

    # -- loops -----------------------------------------------------------------

    def counts(
        self, machine: Machine, node: ast.For | ast.AsyncFor, source: RangeOf, scope: Scope
    ) -> None:
        loops.note_counted(self.trace, machine, node, source, scope)

    def repeats(self, machine: Machine, node: ast.While, scope: Scope) -> None:
        loops.note_bound(self.trace, machine, node.test, node.body, scope, loop=node)

    def branches(self, machine: Machine, node: ast.If, decided: bool | None, scope: Scope) -> None:
        if not decided or loops.leaves_loop(node.body):
            loops.note_bound(self.trace, machine, node.test, node.body, scope)

    def is_training(self, node: ast.For | ast.AsyncFor | ast.While) -> bool:
        return loops.is_training(node)

    # -- settings --------------------------------------------------------------

    def settings(self, name: str, value: Value, kind: str) -> None:
        self.trace.settings.append(Settings(name, value, kind))
        self._choice.reads(value)

    def picks(self, container: Items, value: Value, key: Value) -> None:
        self._choice.picks(container, value, key)

    def parses_arguments(self, namespace: Value) -> None:
        if not any(group.value.data is namespace.data for group in self.trace.settings):
            self.settings("arguments", namespace, "arguments")

    def reads(self, name: str) -> None:
        self.trace.read.add(name)

    def takes_out(self, mapping: Items, key: object, value: Value) -> None:
        # a setting that was read and taken out is a setting all the same
        self.trace.popped.setdefault(id(mapping), (mapping, {}))[1][key] = value

    def executes(self, file: str, names: Value) -> None:
        self._executed.append((file, names))

    # -- files and programs ----------------------------------------------------

    def parses(self, file: str, text: str) -> None:
        self.trace.texts.append(text)
        for link in () if _TESTS.search(file) else _DATASET.finditer(text):
            line = text.count("\n", 0, link.start()) + 1
            self.trace.links.setdefault(link[1].rstrip("."), Site(file, line))

    def starts(self, plan: LaunchPlan) -> None:
        self.trace.commands.append(plan)

    def ends(self, machine: Machine, module: Module | None) -> None:
        """The run is over: what the program of `module` and its environment hold is settings."""
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
