"""What a program is watched for is written by the observer, and the evaluator knows none of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Module
from schedmate.agent.interp.program import registry
from schedmate.agent.interp.source import Sources
from schedmate.agent.interp.trace import Watcher
from schedmate.agent.launch.repo import Repo
from schedmate.agent.values import Value

PROGRAM = """
import argparse, torch
from dataclasses import dataclass
@dataclass
class TrainConfig:
    width: int = 8
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()
config = TrainConfig(width=16)
model = torch.nn.Linear(config.width, 2)
def train(steps):
    total = 0
    for step in range(steps):
        if step >= 500:
            break
        model.backward()
    while total < 40:
        total += 1
    return getattr(config, "width")
width = train(args.epochs * 100)
"""


class Deaf:
    """An observer that keeps nothing."""

    def is_training(self, node: object) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        assert name in dir(Watcher), f"{name} is not an event"
        return lambda *args: None


def run(folder: Path, observer: Watcher) -> dict[str, object]:
    (folder / "main.py").write_text(PROGRAM)
    sources = Sources([folder], Repo(folder))
    argv = [Value("main.py"), Value("--epochs"), Value("7")]
    machine = Machine(sources, registry(), {}, observer, argv, {})
    module = Module("__main__", folder / "main.py", "main.py", "")
    module.loaded = True
    tree = machine.parse(folder / "main.py")
    assert tree is not None
    machine.run_module(module, tree)
    return {name: value.plain() for name, value in module.scope.names.items()}


def test_values_do_not_depend_on_who_watches(tmp_path: Path) -> None:
    watcher = Watcher()
    watched, unwatched = run(tmp_path, watcher), run(tmp_path, Deaf())  # type: ignore[arg-type]
    assert watched == unwatched
    assert unwatched["width"] == 16


def test_the_watcher_keeps_calls_loops_settings_and_names(tmp_path: Path) -> None:
    watcher = Watcher()
    run(tmp_path, watcher)
    trace = watcher.trace
    made = next(call for call in trace.calls if call.path == "torch.nn.Linear")
    assert (made.target, made.site.line, made.args[0].plain()) == ("model", 11, 16)
    told = {(loop.kind, loop.counter, loop.bound.plain()) for loop in trace.loops}
    assert told == {("for", "step", 700), ("stop", "step", 500), ("while", "total", 40)}
    kinds = {group.name: group.kind for group in trace.settings}
    assert kinds == {"arguments": "arguments", "TrainConfig": "dataclass"}
    assert trace.read == {"epochs"}
    assert "width" in trace.looked_up
    assert trace.imports == {"argparse", "torch", "dataclasses"}
    assert trace.parameters["steps"].plain() == 700
    assert list(trace.functions) == ["train"]
    assert {"parser", "args", "config", "model"} <= trace.assigned.keys()
