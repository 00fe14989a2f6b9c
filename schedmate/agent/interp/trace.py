"""What following a program leaves behind: calls, loops, stop conditions and settings."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, field

from schedmate.agent.interp.invocation import given
from schedmate.agent.interp.objects import Class, Site
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.values import Items, Value


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
        return given(self.args, self.kwargs, position, names)


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
    that were read of argument namespaces, with `*` where one was taken apart as a whole. `links`
    are the datasets on a hub whose addresses stand in the modules that were read, and `commands`
    the programs of libraries that were started. `refused` says what of the command line the program
    would end at, each with the option whose value that is, empty for an unknown one. `passed_over`
    are the sections of configurations, by identity, in place of which the launch chose others, and
    `texts` the modules that were read.
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
    links: dict[str, Site] = field(default_factory=dict)
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
    kept: list[Settings] = []
    made: Counter[str] = Counter()
    for group in reversed(groups):
        if group.kind == "dataclass":
            made[group.name] += 1
            if made[group.name] > MAX_RECORDS:
                continue
        kept.append(group)
    return kept[::-1]
