"""The interpreter against Python itself: each program below is both followed and run.

What the interpreter knows has to be what Python computes. A program hands its values to `out`; the
programs are this file's own, so running them is safe.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from schedmate.agent.bounds import Budget
from schedmate.agent.interp.objects import Limits
from schedmate.agent.interp.program import follow
from schedmate.agent.launch.planning import plan_launch
from schedmate.agent.launch.repo import Repo
from schedmate.jobs import LaunchConfig

PROGRAMS = {
    "folders above a path": """
from pathlib import Path
place = Path("/data/speech/train/list.txt")
out(str(place.parents[1]), [str(p) for p in place.parents], place.parents[0].name)
""",
    "words walked by their index": """
args = ["--a", "1", "x", "--b=2"]
found, rest, i = {}, [], 0
while i < len(args):
    arg = args[i]
    if arg.startswith("--b="):
        found["b"] = arg.split("=", 1)[1]
    elif arg == "--a":
        found["a"] = args[i + 1]
        i += 1
    else:
        rest.append(arg)
    i += 1
else:
    found["end"] = i
queue, order = [3, 1, 2], []
while queue:
    item = queue.pop(0)
    if item == 1:
        continue
    order.append(item)
    if len(order) > 5:
        break
out(found, rest, i, order, queue)
""",
    "what inspect tells of functions and classes": """
import inspect
class A:
    __inject__ = ["net"]
    def __init__(self, net, depth=18, *rest, wide=False, **more):
        pass
def f(a, b=2, *, c=3):
    pass
spec = inspect.getfullargspec(A.__init__)
out(spec.args, spec.defaults, spec.varargs, spec.varkw, spec.kwonlyargs, spec.kwonlydefaults)
out(inspect.getfullargspec(f).args, inspect.getfullargspec(f).defaults)
out(list(inspect.signature(f).parameters), list(inspect.signature(A).parameters))
out(inspect.signature(f).parameters["b"].default, inspect.signature(f).parameters["c"].name)
out(inspect.isclass(A), inspect.isclass(f), inspect.isfunction(f), inspect.isfunction(A))
out(getattr(A, "__inject__", []), getattr(A, "__share__", []), hasattr(A, "__init__"))
""",
    "what is a sequence and what a mapping": """
from typing import Mapping, MutableMapping, Sequence
for x in ([1], (1,), {}, "a", 1):
    out(isinstance(x, Sequence), isinstance(x, Mapping), isinstance(x, MutableMapping))
""",
    "members of enums are one object each": """
from enum import Enum, auto
class Mode(str, Enum):
    A = "a"
    B = "b"
class Kind(Enum):
    X = auto()
    Y = auto()
out(Mode("a") == Mode.A, Mode.A == "a", Mode.A.value, Mode["B"].value, Kind.X is Kind.X)
out(Kind.X == Kind.Y, Kind.X.name, Kind.Y.value, Kind.X == 1, Kind(2).name, list(Mode.__members__))
out([kind.name for kind in Kind], "a" in [mode.value for mode in Mode], {Kind.X: 3}[Kind.X])
out(Mode.A in (Mode.A, Mode.B), len(list(Kind)))
""",
    "an enum as the default and the constant of an option": """
import argparse
from enum import Enum
class Mode(Enum):
    TRAIN = 1
    TEST = 2
parser = argparse.ArgumentParser()
parser.add_argument("--train", dest="mode", default=Mode.TRAIN, action="store_const",
                    const=Mode.TRAIN)
parser.add_argument("--test", dest="mode", action="store_const", const=Mode.TEST)
mode = parser.parse_args([]).mode
out("trains" if mode == Mode.TRAIN else "tests", mode is Mode.TEST)
""",
    "an exception is caught by its class's ancestors": """
try:
    found = int("abc")
except ArithmeticError:
    found = "arithmetic"
except ValueError:
    found = "value"
try:
    chosen = {}["key"]
except LookupError:
    chosen = "lookup"
try:
    raise KeyError("x")
except (OSError, LookupError):
    out(found, chosen)
""",
    "named tuples are tuples": """
from collections import namedtuple
from typing import NamedTuple
Size = namedtuple("Size", "width height depth", defaults=(1, 2))
class Rate(NamedTuple):
    lr: float
    decay: float = 0.5
size, rate = Size(7), Rate(0.1)
width, height, depth = size
lr, decay = rate
out(width, height, depth, lr, decay, size[0], size[-1], rate[1], size.height, list(size))
out(size._replace(width=9).width, size._asdict()["depth"], len(list(rate)))
""",
    "dataclasses: fields, asdict, replace": """
from dataclasses import asdict, dataclass, field, fields, replace
@dataclass
class Inner:
    lr: float = 0.1
@dataclass
class Config:
    epochs: int = 3
    inner: Inner = field(default_factory=Inner)
    names: list = field(default_factory=lambda: ["a", "b"])
    def __post_init__(self):
        self.total = self.epochs * 10
config = Config(epochs=4)
out(config.total, replace(config, epochs=7).total, [f.name for f in fields(Config)])
out(asdict(config)["inner"]["lr"], asdict(config)["names"])
for one in fields(config):
    if one.name == "epochs":
        setattr(config, one.name, 11)
out(config.epochs)
""",
    "decorators that are methods register": """
class Registry:
    def __init__(self):
        self.held = {}
    def register(self, cls=None, *, name=None):
        if cls is None:
            return lambda made: self.register(made, name=name)
        self.held[name or cls.__name__] = cls
        return cls
    def build(self, config):
        config = dict(config)
        return self.held[config.pop("type")](**config)
MODELS = Registry()
@MODELS.register
class Net:
    def __init__(self, depth=1):
        self.depth = depth
@MODELS.register(name="deep")
class Other(Net):
    pass
out(MODELS.build({"type": "Net", "depth": 7}).depth, MODELS.build(dict(type="deep")).depth)
""",
    "subclasses announce themselves": """
class Base:
    known = {}
    def __init_subclass__(cls, key=None, **rest):
        super().__init_subclass__(**rest)
        Base.known[key or cls.__name__] = cls
class First(Base):
    epochs = 5
class Second(Base, key="two"):
    epochs = 6
out(sorted(Base.known), Base.known["First"]().epochs, Base.known["two"].epochs)
""",
    "dictionaries read by attribute": """
class Node(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__
class Same(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self
node, same = Node(a=1), Same(x=1)
node.b = 2
same.y = 3
out(node.a, node["b"], node.missing, same.x, same["y"], same.y)
""",
    "classes by name": """
import sys
class Net:
    depth = 8
made = type("Options", (Net,), {"epochs": 20})()
out(getattr(sys.modules[__name__], "Net").depth, globals()["Net"].depth, made.epochs, made.depth)
""",
    "json by way of hooks": """
import json
from collections import namedtuple
class Struct:
    def __init__(self, held):
        self.__dict__.update(held)
text = json.dumps({"model": {"depth": 50}, "sizes": [1, 2]})
made = json.loads(text, object_hook=lambda held: Struct(held))
record = json.loads('{"a": {"b": 3}}', object_hook=lambda d: namedtuple("X", d.keys())(*d.values()))
out(made.model.depth, made.sizes, record.a.b)
""",
    "options of argparse": """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--save", action=argparse.BooleanOptionalAction, default=True)
parser.add_argument("-v", action="count", default=0)
parser.add_argument("--epochs", type=int, default=3)
out(parser.parse_args(["--no-save"]).save, parser.parse_args(["--save"]).save)
out(parser.parse_args(["-vvv"]).v, parser.parse_args(["--epochs=4"]).epochs)
""",
    "a way that returned is taken before one that raises": """
import os
def find(name):
    if os.path.exists(name):
        return 5
    raise FileNotFoundError(name)
try:
    found = find(os.devnull)
except FileNotFoundError:
    found = None
out(found)
""",
    "overrides that may be numbers": """
found = {}
for item in ("lr=0.2", "name=vit", "sizes=[1, 2]"):
    key, value = item.split("=", 1)
    try:
        value = eval(value)
    except NameError:
        pass
    found[key] = value
out(found["lr"], found["name"], found["sizes"])
""",
    "sorting and choosing by a key": """
from functools import reduce
scores = {"a": 3, "b": 9, "c": 5}
names = ["ccc", "a", "bb"]
names.sort(key=len)
out(names, sorted(scores, key=lambda k: -scores[k]), max(scores, key=lambda k: scores[k]))
out(min(names, key=len), sorted([3, 1, 2], reverse=True), len(set([1, 1, 2])))
out(reduce(lambda a, b: a + b, [1, 2, 3]), reduce(getattr, "real.numerator".split("."), 5))
del names[0]
out(names)
""",
    "actions and converters of the program's own": """
import argparse, ast
class Pairs(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None):
        held = dict(getattr(namespace, self.dest) or {})
        for item in values:
            key, value = item.split("=")
            held[key] = int(value)
        setattr(namespace, self.dest, held)
class Split(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, [int(item) for item in values.split(",")])
parser = argparse.ArgumentParser()
parser.add_argument("--extra", nargs="*", action=Pairs)
parser.add_argument("--sizes", action=Split, default=[1])
parser.add_argument("--shape", type=ast.literal_eval, default="[1]")
parser.add_argument("--unused")
args = parser.parse_args("--extra a=1 b=2 --sizes 3,4 --shape (1,2)".split())
out(args.extra["a"], args.extra["b"], args.sizes, args.shape)
for key in list(vars(args)):
    if getattr(args, key) is None:
        delattr(args, key)
out(hasattr(args, "unused"), "unused" in vars(args))
""",
    "names taken apart by patterns": """
import re
name = "resnet50_cifar10"
match = re.search(r"resnet(\\d+)", name)
pattern = re.compile(r"(?P<word>[a-z]+)(?P<number>\\d+)")
out(int(match.group(1)) if match else None, match[1], match.groups(), re.match("vgg", name))
out(re.sub("_", "-", name), re.split("[_]", name), pattern.findall(name), pattern.sub("X", name))
out(pattern.match(name).group("word"), pattern.match(name).groupdict()["number"])
if re.match(r"^resnet", name):
    out("a branch that is certain")
""",
    "sets, slices and orders": """
import itertools, operator
a, b = {1, 2, 3}, {2, 3, 4}
out(sorted(a | b), sorted(a & b), sorted(a - b), sorted(a.union(b)), sorted(a.intersection(b)))
a.discard(1)
items = list(range(6))
items[1:3] = ["x"]
out(sorted(a), items, list(itertools.chain([1], [2])), operator.itemgetter(1)([5, 6]))
items.reverse()
out(items, "7".zfill(3))
items.clear()
out(items, sorted([{"n": 2}, {"n": 1}], key=operator.itemgetter("n"))[0]["n"])
""",
    "copies, properties that are set, objects with their own truth": """
import copy
class Rate:
    def __init__(self):
        self._value = 1
    @property
    def value(self):
        return self._value
    @value.setter
    def value(self, given):
        self._value = given * 10
rate = Rate()
rate.value = 4
other = copy.copy(rate)
other._value = 9
out(rate.value, other.value, rate._value)
""",
    "context managers made of generators": """
import contextlib
@contextlib.contextmanager
def opened(number):
    yield number + 1
with opened(3) as held:
    out(held)
""",
}


def _run(program: str) -> list[list[Any]]:
    """What the program hands to `out` when Python runs it."""
    given: list[list[Any]] = []
    module = types.ModuleType("__main__")
    module.__dict__["out"] = lambda *values: given.append(list(values))
    before, sys.modules["__main__"] = sys.modules["__main__"], module
    try:
        exec(compile(program, "main.py", "exec"), module.__dict__)
    finally:
        sys.modules["__main__"] = before
    return given


def _plain(value: Any) -> Any:
    """Tuples as lists, which the interpreter's own plain data has as well."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


@pytest.mark.parametrize("name", PROGRAMS)
def test_following_a_program_gives_what_python_gives(name: str, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("from elsewhere import out\n" + PROGRAMS[name])
    repo = Repo(tmp_path)
    plan = plan_launch("python main.py", repo, LaunchConfig())
    trace = follow(repo, plan, {}, Limits(time=Budget(20)))
    calls = [event for event in trace.calls if event.path == "elsewhere.out"]
    followed = [[value.plain() for value in event.args] for event in calls]
    assert all(event.certain for event in calls)
    assert _plain(followed) == _plain(_run(PROGRAMS[name]))


PATTERNS = {"(a+)+$": False, "(.+(.))+$": True, "(a|a)*$": False, "(?:a?){60}b": False}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_that_takes_python_for_ever_is_followed_all_the_same(
    pattern: str, tmp_path: Path
) -> None:
    program = (
        f"import re\nfrom elsewhere import out\nout(bool(re.match({pattern!r}, 'a' * 90 + 'c')))\n"
    )
    (tmp_path / "main.py").write_text(program)
    repo = Repo(tmp_path)
    plan = plan_launch("python main.py", repo, LaunchConfig())
    trace = follow(repo, plan, {}, Limits(time=Budget(20)))
    (given,) = [event.args[0] for event in trace.calls if event.path == "elsewhere.out"]
    assert given.data is PATTERNS[pattern]
