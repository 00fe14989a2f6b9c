"""Follows one launch from its entry file, without running it, and returns a `Trace`.

`follow` is the way in. `registry` lists the models of libraries, in the order they are asked.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from schedmate.agent.interp.libs import (
    argparse,
    configs,
    experiments,
    files,
    hydra,
    libraries,
    records,
)
from schedmate.agent.interp.libs.configs import mmengine_from_file
from schedmate.agent.interp.libs.libraries import canonical_path
from schedmate.agent.interp.machine import Machine, Registry
from schedmate.agent.interp.objects import (
    BudgetSpent,
    Invocation,
    Limits,
    Module,
    Raised,
    Site,
    as_function,
)
from schedmate.agent.interp.source import Sources
from schedmate.agent.interp.trace import Trace, Watcher
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.launch.repo import Repo
from schedmate.agent.values import Data, Origin, Value
from schedmate.base.files import is_dir, is_file


def follow(
    repo: Repo,
    plan: LaunchPlan,
    facts: Mapping[str, Data],
    limits: Limits,
    written: dict[str, Value] | None = None,
) -> Trace:
    """Follow the program a launch plan starts, and return what was seen.

    Args:
        repo: the repository.
        plan: entry file, arguments and environment; `plan.entry` must be set.
        facts: launch facts for library results (gpus, gpus_per_node, nodes, distributed, cwd).
        limits: step and time limits; past them the trace is partial and says so.
        written: files that programs before this one wrote, by place; what this one writes is added.
    """
    return _follow(repo, plan, facts, limits, plan.entry, written=written)


def follow_config(
    repo: Repo, plan: LaunchPlan, config: str, facts: Mapping[str, Data], limits: Limits
) -> Trace:
    """Follow a Python configuration file (as mmengine's) that an installed program reads.

    `config` is its path from the repository's root; the other arguments are those of `follow`.
    """
    path = Value(str(repo.root / config), Origin("config", config, 1))

    def load(machine: Machine, module: Module) -> None:
        mmengine_from_file(machine, Invocation("Config.fromfile", [path], {}, Site(config, 1)))

    return _follow(repo, plan, facts, limits, config, load)


def _follow(
    repo: Repo,
    plan: LaunchPlan,
    facts: Mapping[str, Data],
    limits: Limits,
    file: str | None,
    instead: Callable[[Machine, Module], None] | None = None,
    written: dict[str, Value] | None = None,
) -> Trace:
    """Follow `file`, or call `instead` with the machine and module prepared for it."""
    assert file is not None
    root = repo.root
    entry = root / file
    sources = Sources(_import_roots(root, plan, entry), repo, canonical_path)
    watcher = Watcher()
    argv = [Value(file), *plan.argv]
    machine = Machine(sources, registry(), facts, watcher, argv, dict(plan.env), limits)
    machine.written = {} if written is None else written
    first = root / plan.cwd if plan.module is not None else entry.parent
    machine.shared["sys.path"] = Value([Value(str(first))])
    module = Module("__main__", entry.resolve(), sources.relative(entry), _package_of(plan))
    if plan.function is not None:
        module.name = plan.module or entry.stem
    sources.modules[module.path] = module
    module.loaded = True
    tree = machine.parse(entry)
    if tree is None:
        watcher.partial()
        return watcher.trace
    try:
        if instead is not None:
            instead(machine, module)
        else:
            _run_module(machine, module, tree, plan)
    except Raised as error:
        if error.name != "SystemExit":
            watcher.warns(f"{module.file}: following the code stopped at a raised {error.name}")
    except Exception as error:  # noqa: BLE001 - no repository may break the analysis of its job
        watcher.partial()
        stopped = f"following the code stopped early ({type(error).__name__}: {error})"
        watcher.warns(_CUT_OFF.get(type(error), stopped))
    watcher.ends(machine, module if instead is None else None)
    return watcher.trace


_CUT_OFF: dict[type[Exception], str] = {
    BudgetSpent: "the code was followed up to the step or time limit only",
    RecursionError: "the code is nested too deeply to be followed to its end",
}


def _run_module(machine: Machine, module: Module, tree: ast.Module, plan: LaunchPlan) -> None:
    machine.run_module(module, tree)
    if plan.function is None:
        return
    value = Value(module)
    for part in plan.function.split("."):
        value = machine.getattr(value, part)
    function = as_function(value)
    line = function.node.lineno if function is not None else 1
    machine.call(value, [], {}, Site(module.file, line))


def _package_of(plan: LaunchPlan) -> str:
    if plan.module is None:
        return ""
    assert plan.entry is not None
    if plan.entry.endswith(("__init__.py", "__main__.py")):
        return plan.module.removesuffix(".__main__")
    return plan.module.rpartition(".")[0]


def _import_roots(root: Path, plan: LaunchPlan, entry: Path) -> list[Path]:
    """Where Python would look: the script's folder or the working directory, then PYTHONPATH."""
    cwd = root / plan.cwd
    roots = [cwd] if plan.module is not None else [entry.parent, cwd]
    extra = plan.env.get("PYTHONPATH")
    if extra is not None and extra.text is not None:
        # joining an absolute part gives that part
        roots.extend(cwd / part for part in extra.text.split(":") if part)
    projects = [root, *(folder for folder in _folders_above(root, entry) if _is_project(folder))]
    return [
        *roots,
        *projects,
        *(
            project / name
            for project in projects
            for name in ("src", "lib", "python")
            if is_dir(project / name)
        ),
    ]


def _folders_above(root: Path, entry: Path) -> list[Path]:
    """The folders of a file, from its own up to the root, which is left out."""
    return [folder for folder in entry.parents if folder != root and folder.is_relative_to(root)]


def _is_project(folder: Path) -> bool:
    """Whether a folder has packaging files, so that it is installed before its programs run."""
    return any(is_file(folder / name) for name in ("setup.py", "pyproject.toml", "setup.cfg"))


# The models of libraries, in the order in which they are asked.


_PLUGINS = (
    files.FILES, argparse.PARSERS, records.RECORDS, records.FUNCTIONS,
    experiments.EXPERIMENTS, configs.CONFIGS, hydra.HYDRA, libraries.LIBRARIES,
)  # fmt: skip


@cache
def registry() -> Registry:
    """The plugins that come with schedmate, as one `Registry`; the same object each time."""
    return Registry(_PLUGINS)
