"""importlib: modules by name or by file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from schedmate.agent.interp.flow import Raised
from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.libs.filesystem import MAX_LISTING
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.natives import identity
from schedmate.agent.interp.objects import Module, PathStr, as_class, as_symbol
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.values import Value, unknown
from schedmate.paths import children, is_dir, is_file


def import_module(machine: Machine, call: Invocation) -> Value:
    name = call.argument(0, "name")
    if name is None or name.text is None:
        return unknown()
    text = name.text
    importer = machine.frames[-1].scope.module
    if text.startswith("."):
        package = call.argument(1, "package")
        base = package.text if package is not None else importer.package
        above = len(text) - len(text.lstrip(".")) - 1
        if base is not None and base.count(".") >= above:
            text = ".".join([*base.split(".")[: base.count(".") + 1 - above], text.lstrip(".")])
        else:
            text = text.lstrip(".")
    if not text.replace(".", "").replace("_", "").isalnum():
        return unknown(text)
    value = machine.import_module(text, importer)
    if as_symbol(value) is not None and machine.expects("ImportError", "ModuleNotFoundError"):
        outer = text.rpartition(".")[0]
        if outer and machine.sources.find(outer, importer, machine.search_path()) is not None:
            raise Raised("ModuleNotFoundError")  # a name inside a module, which is tried next
    return Value(value.data, name.origin)


def spec_from_file(machine: Machine, call: Invocation) -> Value:
    """`importlib.util.spec_from_file_location(name, path)`, `SourceFileLoader`, `run_path`."""
    path = call.argument(1, "location", "path", "pathname")
    text = path.text if path is not None else None
    found = machine.sources.locate(text) if text is not None else None
    if found is None or found.suffix != ".py":
        return unknown()
    module = machine.sources.module(found, found.stem)
    machine.load(module)
    return Value(module, path.origin if path is not None else None)


def iter_modules(machine: Machine, call: Invocation) -> Value:
    """`pkgutil.iter_modules([folder], prefix)` and `walk_packages`: (finder, name, is package)."""
    folders = iterate(call.argument(0, "path") or unknown()) or []
    before = call.text(1, "prefix") or ""
    found: list[tuple[str, bool]] = []
    for folder in folders:
        place = machine.sources.locate(folder.text) if folder.text is not None else None
        if place is not None and is_dir(place):
            found.extend(_modules_in(place, before, call.path.endswith("walk_packages")))
    if not found:
        return unknown()
    return Value(
        [Value((unknown(), Value(name), Value(package))) for name, package in found[:MAX_LISTING]]
    )


def _modules_in(folder: Path, prefix: str, deep: bool) -> Iterator[tuple[str, bool]]:
    for child in children(folder):
        if is_file(child / "__init__.py"):
            yield prefix + child.name, True
            if deep:
                yield from _modules_in(child, f"{prefix}{child.name}.", deep)
        elif child.suffix == ".py" and child.stem != "__init__" and child.stem.isidentifier():
            yield prefix + child.stem, False


def package_files(machine: Machine, call: Invocation) -> Value:
    """`importlib.resources.files("package")`: the folder of the repository's package."""
    given = call.argument(0, "package", "anchor", "package_or_requirement")
    module = given.data if given is not None else None
    name = module.name if isinstance(module, Module) else given.text if given is not None else None
    found = machine.sources.find(name, None, machine.search_path()) if name is not None else None
    if found is None:
        return unknown()
    path = found.path if is_dir(found.path) else found.path.parent
    return Value(PathStr(str(path)), given.origin if given is not None else None)


def package_file(machine: Machine, call: Invocation) -> Value:
    """`pkg_resources.resource_filename(package, path)`; what packaging copies is at the root."""
    given = call.argument(1, "resource_name")
    folder = package_files(machine, call).text
    if given is None or given.text is None:
        return unknown()
    beside = f"{folder}/{given.text}" if folder is not None else given.text
    found = machine.sources.locate(beside) or machine.sources.locate(given.text)
    return Value(str(found) if found is not None else beside, given.origin)


def class_named(machine: Machine, name: str) -> Value | None:
    """The class of this name among the modules that were imported, if there is one only."""
    found: dict[int, Value] = {}
    for module in list(machine.sources.modules.values()):
        if not module.loaded or name not in module.scope.names:
            continue
        value = machine.getattr(Value(module), name)
        if as_class(value) is not None:
            found[id(value.data)] = value
    return next(iter(found.values())) if len(found) == 1 else None


PLUGIN = Plugin(
    calls={
        "pkgutil.iter_modules": iter_modules,
        "pkgutil.walk_packages": iter_modules,
        "importlib.import_module": import_module,
        "importlib.util.spec_from_file_location": spec_from_file,
        "importlib.machinery.SourceFileLoader": spec_from_file,
        "imp.load_source": spec_from_file,
        "importlib.util.module_from_spec": identity,
        "importlib.reload": identity,
        "importlib.resources.files": package_files,
        "importlib_resources.files": package_files,
        "pkg_resources.resource_filename": package_file,
    }
)
