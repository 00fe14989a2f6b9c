"""The repository's modules: importing them, and what they hold."""

from __future__ import annotations

import ast

from schedmate.agent.interp.flow import Frame, Raised
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import Module, Scope, Symbol
from schedmate.agent.interp.values.foreign import symbol
from schedmate.agent.values import Value
from schedmate.paths import is_dir


def import_module(machine: Machine, name: str, importer: Module | None = None) -> Value:
    """`import name`: a repository module, a modelled standard module, or a symbol."""
    module = machine.sources.find(name, importer, machine.search_path())
    if module is None:
        machine.observer.imports(name)
        return Value(Symbol(machine.sources.canonical(name)))
    machine.load(module)
    return Value(module)


def search_path(machine: Machine) -> list[str]:
    """Extra import roots the program added to `sys.path` as plain strings."""
    value = machine.shared.get("sys.path")
    if value is None:
        return []
    return [item.text for item in value.data if item.text is not None]


def load(machine: Machine, module: Module) -> None:
    """Follow a module's top level, once."""
    if not module.loaded:
        _load_package(machine, module)
    if module.loaded:  # its package may have loaded it
        return
    machine.look()
    module.loaded = True
    tree = machine.parse(module.path)
    if tree is None:
        return
    machine.run_module(module, tree)


def _load_package(machine: Machine, module: Module) -> None:
    """Follow the package around a module, which may register what the module needs."""
    package, _, own = module.name.rpartition(".")
    followed: set[str] = machine.shared.setdefault("packages", set())
    if package and own != "__main__" and package not in followed:
        followed.add(package)
        above = machine.sources.find(package, None, machine.search_path())
        if above is not None and above is not module and not machine.sources.defer(above):
            load(machine, above)


def run_module(machine: Machine, module: Module, tree: ast.Module) -> None:
    scope = module.scope
    scope.names["__name__"] = Value(module.name)
    scope.names["__file__"] = Value(str(module.path))
    scope.names["__package__"] = Value(module.package)
    machine.frames.append(Frame(scope, ""))
    doubt, machine.doubt = machine.doubt, 0
    try:
        machine.follow(tree.body, scope)
    except Raised as error:
        if module.name == "__main__" or not machine.certain:
            raise
        machine.observer.warns(f"{module.file}: loading stopped at a raised {error.name}")
    finally:
        machine.doubt = doubt
        machine.frames.pop()


def module_attr(machine: Machine, module: Module, name: str) -> Value | None:
    """`module.name`: a name defined there, a star-imported one, or a submodule."""
    machine.load(module)
    scope = module.scope
    if name in scope.names:
        return scope.names[name]
    for star in scope.stars:
        if star is not module:
            found = star.scope.names.get(name) if star.loaded else None
            if found is None:
                found = machine.module_attr(star, name)
            if found is not None:
                return found
    if module.path.name == "__init__.py" or is_dir(module.path):
        child = machine.sources.find(f"{module.name}.{name}", None, machine.search_path())
        if child is not None:
            machine.load(child)
            return Value(child)
    return None


def import_(machine: Machine, node: ast.Import, scope: Scope) -> None:
    for alias in node.names:
        value = machine.import_module(alias.name, scope.module)
        if alias.asname is None and "." in alias.name:
            value = machine.import_module(alias.name.split(".")[0], scope.module)
        machine.bind(alias.asname or alias.name.split(".")[0], value, scope)


def import_from(machine: Machine, node: ast.ImportFrom, scope: Scope) -> None:
    name = machine.sources.absolute(node.module or "", node.level, scope.module)
    module = machine.sources.find(name, scope.module, machine.search_path())
    if module is None:
        if node.level == 0:
            machine.observer.imports(name)
        for alias in node.names:
            if alias.name == "*":
                continue
            child = machine.sources.find(
                f"{name}.{alias.name}", scope.module, machine.search_path()
            )
            if child is not None:
                machine.load(child)
                machine.bind(alias.asname or alias.name, Value(child), scope)
                continue
            path = machine.sources.canonical(f"{name}.{alias.name}")
            machine.bind(alias.asname or alias.name, symbol(machine, path), scope)
        return
    for alias in node.names:
        if alias.name == "*":
            if not machine.sources.defer(module):
                machine.load(module)
            scope.module.scope.stars.insert(0, module)
            continue
        found = machine.module_attr(module, alias.name)
        if found is None:
            # a package that loads its names lazily: known by path, as a third party's
            found = symbol(machine, machine.sources.canonical(f"{name}.{alias.name}"))
        machine.bind(alias.asname or alias.name, found, scope)
