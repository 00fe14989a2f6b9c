"""The repository's modules: importing them, and what they hold."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from schedmate.agent.interp.flow import Frame, Raised
from schedmate.agent.interp.objects import Module, Scope, Symbol
from schedmate.agent.values import Value
from schedmate.paths import is_dir

if TYPE_CHECKING:
    from schedmate.agent.interp.state import State


def import_module(state: State, name: str, importer: Module | None = None) -> Value:
    """`import name`: a repository module, a modelled standard module, or a symbol."""
    module = state.sources.find(name, importer, state.search_path())
    if module is None:
        state.trace.imports.add(name.split(".", maxsplit=1)[0])
        return Value(Symbol(state.sources.canonical(name)))
    state.load(module)
    return Value(module)


def search_path(state: State) -> list[str]:
    """Extra import roots the program added to `sys.path` as plain strings."""
    value = state.shared.get("sys.path")
    if value is None:
        return []
    return [item.data for item in value.data if isinstance(item.data, str)]


def load(state: State, module: Module) -> None:
    """Follow a module's top level, once."""
    if not module.loaded:
        _load_package(state, module)
    if module.loaded:  # its package may have loaded it
        return
    state.look()
    module.loaded = True
    tree = state.sources.parse(module.path, state.trace)
    if tree is None:
        return
    state.run_module(module, tree)


def _load_package(state: State, module: Module) -> None:
    """Follow the package around a module, which may register what the module needs."""
    package, _, own = module.name.rpartition(".")
    followed: set[str] = state.shared.setdefault("packages", set())
    if package and own != "__main__" and package not in followed:
        followed.add(package)
        above = state.sources.find(package, None, state.search_path())
        if above is not None and above is not module and not state.sources.defer(above):
            load(state, above)


def run_module(state: State, module: Module, tree: ast.Module) -> None:
    scope = module.scope
    scope.names["__name__"] = Value(module.name)
    scope.names["__file__"] = Value(str(module.path))
    scope.names["__package__"] = Value(module.package)
    state.frames.append(Frame(scope, ""))
    doubt, state.doubt = state.doubt, 0
    try:
        state.follow(tree.body, scope)
    except Raised as error:
        if module.name == "__main__" or not state.certain:
            raise
        state.trace.warn(f"{module.file}: loading stopped at a raised {error.name}")
    finally:
        state.doubt = doubt
        state.frames.pop()


def module_attr(state: State, module: Module, name: str) -> Value | None:
    """`module.name`: a name defined there, a star-imported one, or a submodule."""
    state.load(module)
    scope = module.scope
    if name in scope.names:
        return scope.names[name]
    for star in scope.stars:
        if star is not module:
            found = star.scope.names.get(name) if star.loaded else None
            if found is None:
                found = state.module_attr(star, name)
            if found is not None:
                return found
    if module.path.name == "__init__.py" or is_dir(module.path):
        child = state.sources.find(f"{module.name}.{name}", None, state.search_path())
        if child is not None:
            state.load(child)
            return Value(child)
    return None


def import_(state: State, node: ast.Import, scope: Scope) -> None:
    for alias in node.names:
        value = state.import_module(alias.name, scope.module)
        if alias.asname is None and "." in alias.name:
            value = state.import_module(alias.name.split(".")[0], scope.module)
        state.bind(alias.asname or alias.name.split(".")[0], value, scope)


def import_from(state: State, node: ast.ImportFrom, scope: Scope) -> None:
    name = state.sources.absolute(node.module or "", node.level, scope.module)
    module = state.sources.find(name, scope.module, state.search_path())
    if module is None:
        if node.level == 0:
            state.trace.imports.add(name.split(".")[0])
        for alias in node.names:
            if alias.name == "*":
                continue
            child = state.sources.find(f"{name}.{alias.name}", scope.module, state.search_path())
            if child is not None:
                state.load(child)
                state.bind(alias.asname or alias.name, Value(child), scope)
                continue
            path = state.sources.canonical(f"{name}.{alias.name}")
            state.bind(alias.asname or alias.name, symbol(state, path), scope)
        return
    for alias in node.names:
        if alias.name == "*":
            if not state.sources.defer(module):
                state.load(module)
            scope.module.scope.stars.insert(0, module)
            continue
        found = state.module_attr(module, alias.name)
        if found is None:
            # a package that loads its names lazily: known by path, as a third party's
            found = symbol(state, state.sources.canonical(f"{name}.{alias.name}"))
        state.bind(alias.asname or alias.name, found, scope)


def symbol(state: State, path: str) -> Value:
    """A third-party name; schedmate's own model of it when there is one."""
    constant = state.library.constant(state, path)
    return constant if constant is not None else Value(Symbol(path))
