"""Models of libraries join the machine as plugins."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.agent.interp.machine import ANY, Machine, Plugin, Registry, TwiceError
from schedmate.agent.interp.objects import (
    AttrDict,
    Class,
    Function,
    Invocation,
    Module,
    Symbol,
    path_of,
)
from schedmate.agent.interp.program import registry
from schedmate.agent.interp.source import Sources
from schedmate.agent.interp.trace import Watcher
from schedmate.agent.launch.repo import Repo
from schedmate.agent.values import Value


def follow(folder: Path, source: str, *plugins: Plugin) -> dict[str, object]:
    """The plain values of a program's names, followed with these plugins alone."""
    (folder / "main.py").write_text(source)
    sources = Sources([folder], Repo(folder))
    watcher = Watcher()
    machine = Machine(sources, Registry(plugins), {}, watcher, [Value("main.py")], {})
    module = Module("__main__", folder / "main.py", "main.py", "")
    module.loaded = True
    tree = machine.parse(folder / "main.py")
    assert tree is not None
    machine.run_module(module, tree)
    assert watcher.trace.complete, watcher.trace.warnings
    return {name: value.plain() for name, value in module.scope.names.items()}


def double(machine: Machine, call: Invocation) -> Value | None:
    number = call.first.data
    return Value(2 * number) if isinstance(number, int) else None


def test_calls_are_modelled_by_path_and_by_the_name_of_a_method(tmp_path: Path) -> None:
    plugin = Plugin(calls={"lib.double": double, "*.double_of": double})
    source = "import lib\nx = lib.double(4)\ny = lib.make().double_of(5)\nz = lib.double('a')\n"
    names = follow(tmp_path, source, plugin)
    assert (names["x"], names["y"], names["z"]) == (8, 10, None)


def test_names_items_and_attributes(tmp_path: Path) -> None:
    plugin = Plugin(
        names={"lib.SIZE": lambda _: Value(12), "lib.make().size": lambda _: Value(13)},
        items={
            "lib.env": lambda m, base, key: Value(f"of {key.data}"),
            "lib.types.": lambda m, b, k: k,
        },
        attributes={"remote": lambda m, base: base if isinstance(base.data, Function) else None},
        missing=lambda m, base, name: Value(name) if base.path == "lib.read" else None,
    )
    source = (
        "import lib\n"
        "def f(): return 3\n"
        "a, b, c, d = lib.SIZE, lib.make().size, lib.env['x'], lib.types.Some[7]\n"
        "e, g = f.remote(), lib.read().epochs\n"
    )
    names = follow(tmp_path, source, plugin)
    assert [names[n] for n in "abcdeg"] == [12, 13, "of x", 7, 3, "epochs"]


def test_methods_of_configuration_nodes_are_those_of_their_flavour(tmp_path: Path) -> None:
    def make(machine: Machine, call: Invocation) -> Value:
        return Value(AttrDict({"lr": Value(1)}, call.path.rpartition(".")[2]))

    plugin = Plugin(
        calls={"lib.plain": make, "lib.own": make},
        methods={
            ANY: {"rate": lambda m, call: m.getitem(call.owner, Value("lr"))},
            "own": {"__missing__": lambda m, call: Value(f"no {call.first.data}")},
        },
    )
    source = "import lib\na = lib.plain().rate()\nb = lib.own()['x']\nc = lib.own().rate()\n"
    names = follow(tmp_path, source, plugin)
    assert (names["a"], names["b"], names["c"]) == (1, "no x", None)


def test_hooks_are_told_of_functions_and_classes(tmp_path: Path) -> None:
    def enter(machine: Machine, function: Function, decorator: Value) -> Value | None:
        if path_of(decorator) != "lib.main":
            return None
        return machine.call(Value(function.undecorated()), [Value(5)], {}, function.site)

    def arguments(machine: Machine, target: Function | Class) -> dict[str, Value]:
        return {"size": Value(9)} if target.name == "build" else {}

    def constructed(machine: Machine, instance: Value, call: Invocation) -> Value | None:
        return Value("made") if "lib.Base" in instance.data.cls.external_bases() else None

    defined: list[str] = []
    plugin = Plugin(
        on_enter=enter,
        arguments=arguments,
        on_constructed=constructed,
        on_defined=lambda _, function: defined.append(function.name),
        defaults=lambda path: {"steps": Value(100)} if path == "lib.Args" else {},
        otherwise=lambda m, call: call.first if call.path == "lib.same" else None,
        stands_for=lambda names: "lib.Known" if "telling" in names else None,
        calls={"lib.Known.telling": lambda *_: Value("known")},
    )
    source = (
        "import lib\n"
        "@lib.main\n"
        "def start(x): return x\n"
        "def build(size, more=1): return size\n"
        "class Own(lib.Base): pass\n"
        "class Args(lib.Args):\n"
        "    lr: float = 0.1\n"
        "class Copy:\n"
        "    def telling(self): return 'own'\n"
        "a, b, c, d = start(), build(), Own(), lib.same(6)\n"
        "e = Copy.telling()\n"
    )
    names = follow(tmp_path, source, plugin)
    assert [names[n] for n in "abcde"] == [5, 9, "made", 6, "known"]
    assert defined == ["start"]


@pytest.mark.parametrize("table", ["calls", "names", "methods", "attributes", "items", "types"])
def test_a_path_is_modelled_once(table: str) -> None:
    one, two = Plugin(**{table: {"lib.f": {}}}), Plugin(**{table: {"lib.f": {}}})  # type: ignore[arg-type]
    with pytest.raises(TwiceError, match=r"'lib\.f'"):
        Registry([one, two])


def test_the_plugins_that_come_with_schedmate_agree() -> None:
    found = registry()
    assert found.model("argparse.ArgumentParser().parse_args") is not None
    assert found.model("anything.cuda") is found.calls["*.cuda"]
    assert found.model("os.path.join") is not found.model("os.path.dirname")
    assert isinstance(found.defaults("transformers.TrainingArguments")["max_steps"], Value)
    assert path_of(Value(Symbol("a.b"))) == "a.b"
