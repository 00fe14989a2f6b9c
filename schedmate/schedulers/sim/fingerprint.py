"""A digest of everything that a run depends on, to tell whether a kept run can be used.

Everything that is not listed here as irrelevant is included, so that additions to a workload, a
plan or a job are covered. Objects that cannot be read in full never have the same digest twice, so
that the run is repeated.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import pickle
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from pydantic import BaseModel

from schedmate.schedulers import registry
from schedmate.schedulers.sim.requests import further
from schedmate.schedulers.sim.runs import Plan
from schedmate.schedulers.sim.workload import Workload

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_NO_PART = {"policies", "cluster_name", "notes", "jobs"}
"""Irrelevant fields of a plan or a workload: compared policies, the run's name, remarks of an
importer; jobs count by their requests."""


def of_workload(workload: Workload) -> str:
    """A digest of all that a simulation reads of a trace."""
    requests = workload.requests
    # Each run sets their virtual clusters again, from those of the workload.
    asked = {name: requests.values(name) for name in further() if name != "vc"}
    jobs = (requests.names(), requests.submit_s, requests.gpus, asked)
    return _digest((jobs, _fields(workload))).hex()


def of_run(workload: str, plan: Plan, policy: str) -> str:
    """A digest of one run: the digest of its trace, its settings, and the code."""
    asked = registry.PolicySpec.parse(policy)
    named = [*plan.parameters.settings_of(asked.name).values(), *asked.settings.values()]
    files = [Path(one) for one in named if one and "\0" not in one and Path(one).is_file()]
    parts = (workload, policy, _fields(plan), [(str(one), one.read_bytes()) for one in files])
    return _digest((parts, of_package(), _code(policy))).hex()[:16]


@cache
def of_package() -> bytes:
    """A digest of schedmate: its code, and the data beside it."""
    import schedmate

    digest = hashlib.sha256()
    root = Path(schedmate.__path__[0])
    for file in sorted(root.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(f"{file.relative_to(root)}\0".encode(errors="replace"))
            digest.update(file.read_bytes())
    return digest.digest()


def _code(policy: str) -> bytes:
    """The code of a custom policy and its helpers and estimator.

    All of its package, and of the packages that it imports, except installed ones and Python's.
    """
    made = registry.make(policy)
    own = _package(made)
    left = {own, *map(_package, getattr(made, "__dict__", {}).values())}
    seen: set[str] = set()
    files: set[Path] = set()
    while left:
        name = left.pop()
        seen.add(name)
        if name in _KNOWN:
            continue
        loaded = [
            module
            for key, module in list(sys.modules.items())
            if isinstance(module, ModuleType) and key.partition(".")[0] == name
        ]
        if name == own or not any(map(_is_installed, loaded)):
            files |= {file for module in loaded for file in _files(module)}
            left |= {_package(value) for module in loaded for value in [*vars(module).values()]}
            left -= seen
    digest = hashlib.sha256()
    for file in sorted(files):
        code = file.read_bytes()
        digest.update(f"{file}\0{len(code)}\0".encode(errors="replace") + code)
    return digest.digest()


_KNOWN = {"", "schedmate", "__main__", *sys.builtin_module_names, *sys.stdlib_module_names}
"""Packages that are digested elsewhere, or of Python itself."""
_LIBRARY = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
"""Where packages are installed to."""


def _package(value: object) -> str:
    """The package at the top that a module, class or function is of, or the class of an object."""
    if isinstance(value, ModuleType):
        name: object = value.__name__
    elif isinstance(value, type) or inspect.isroutine(value):
        name = getattr(value, "__module__", "")
    else:
        name = type(value).__module__
    return name.partition(".")[0] if isinstance(name, str) else ""


def _is_installed(module: ModuleType) -> bool:
    places = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
    return any(Path(place).is_relative_to(root) for place in places for root in _LIBRARY)


def _files(module: ModuleType) -> Iterable[Path]:
    """A module's file, or, of a package, every module in it: some are imported later."""
    file = getattr(module, "__file__", None)
    if file and Path(file).is_file():
        yield Path(file)
    for folder in getattr(module, "__path__", ()):
        yield from (file for file in Path(folder).rglob("*.py") if file.is_file())


def _fields(value: Workload | Plan) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value) if one.name not in _NO_PART}


def _digest(value: object) -> bytes:
    return _Walk().digest(value)


class _Walk:
    """Digests of nested values; each object is read once."""

    def __init__(self) -> None:
        # The object is kept, so that no other gets its id meanwhile.
        self._seen: dict[int, tuple[object, bytes]] = {}

    def digest(self, value: object) -> bytes:
        """Equal for equal values, in any process."""
        if isinstance(value, _PLAIN):
            return hashlib.sha256(_text(value)).digest()
        if id(value) not in self._seen:
            self._seen[id(value)] = (value, b"above")  # within itself
            whole = hashlib.sha256(f"{type(value).__module__}.{type(value).__qualname__}".encode())
            for part in self._parts(value):
                whole.update(part)
            self._seen[id(value)] = (value, whole.digest())
        return self._seen[id(value)][1]

    def _parts(self, value: object) -> Iterable[bytes]:
        if isinstance(value, np.ndarray):
            if value.dtype.kind in "biufc":
                return [f"{value.dtype} {value.shape}".encode(), value.tobytes()]
            return [self.digest(value.tolist())]
        if isinstance(value, BaseModel):
            return [value.model_dump_json().encode()]
        if isinstance(value, Mapping):
            found = sorted((self.digest(key), self.digest(one)) for key, one in value.items())
            return [part for pair in found for part in pair]
        if isinstance(value, AbstractSet):
            return sorted(map(self.digest, value))
        if isinstance(value, Sequence):
            if all(isinstance(one, _PLAIN) for one in value):
                return [_text(list(value))]
            return map(self.digest, value)
        if isinstance(value, Path):
            return [_text(str(value))]
        if isinstance(value, type) or inspect.isroutine(value):
            return [f"{value.__module__}.{value.__qualname__}".encode()]
        return self._of_object(value)

    def _of_object(self, value: object) -> Iterable[bytes]:
        if is_dataclass(value):
            names = {one.name: getattr(value, one.name) for one in fields(value)}
            return [self.digest(names)]
        if hasattr(value, "__dict__"):
            return [self.digest(vars(value))]
        try:
            return [pickle.dumps(value)]
        except (pickle.PicklingError, TypeError, AttributeError):
            # An unknown kind of object: whether it is unchanged cannot be determined.
            return [os.urandom(16)]


def _text(value: object) -> bytes:
    return f"{type(value).__name__} {value!r}".encode(errors="replace")
