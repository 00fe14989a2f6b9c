"""What a class of the repository is: a network, a dataset, a record."""

from __future__ import annotations

import re

from schedmate.agent.interp.objects import Class, as_function, path_of
from schedmate.data import load

_KINDS = load("agent/interp/classes.yaml")
_NETWORKS = frozenset(_KINDS["networks"]["names"])
_NETWORK_PACKAGES = frozenset(_KINDS["networks"]["packages"])
_NETWORK_ENDINGS = tuple(_KINDS["networks"]["endings"])
_AROUND = tuple(_KINDS["networks"]["around"])
_COLLECTIONS = frozenset(_KINDS["networks"]["of_collections"]["packages"])
_COLLECTION_ENDINGS = tuple(_KINDS["networks"]["of_collections"]["endings"])
_TRAINING_MODULES = frozenset(_KINDS["training_modules"])
_DATASETS = frozenset(_KINDS["datasets"])
_ENVIRONMENTS = frozenset(_KINDS["environments"])
_OWN_ENVIRONMENTS = frozenset(_KINDS["own_environments"])
_RECORD_DECORATORS = frozenset(_KINDS["records"]["decorators"])
_RECORDS = frozenset(_KINDS["records"]["bases"])
FIELDS = frozenset(_KINDS["records"]["fields"])
"""Calls in a record's class body that describe a field instead of giving its default."""
MAPPINGS = frozenset(_KINDS["mappings"])
"""Base classes of objects that are mappings."""
LISTS = frozenset(_KINDS["lists"])
"""Base classes of objects that are lists."""
ENUMS = frozenset(_KINDS["enums"])
"""Base classes of enums."""
PLAIN_ENUMS = frozenset(["str", "int", "StrEnum", "IntEnum", "IntFlag"])
"""Base classes of enums whose members equal their values."""


def last(path: str) -> str:
    """The final component of a dotted path without call marks."""
    return path.replace("()", "").rsplit(".", 1)[-1]


def qualified(cls: Class) -> str:
    """`module.Class` of a repository class."""
    return f"{cls.module.name}.{cls.name}"


def is_network(cls: Class) -> bool:
    """Whether the class is a neural network layer or model (not a training wrapper)."""
    for base in cls.external_bases():
        name = last(base)
        root = base.replace("?", "").split(".")[0]
        if any(word in name for word in _AROUND):
            return False
        if name in _NETWORKS and (root in _NETWORK_PACKAGES or cls.lookup("forward")):
            return True
        if name.endswith(_NETWORK_ENDINGS):
            return True
        if root in _COLLECTIONS and name.endswith(_COLLECTION_ENDINGS):
            return True
    return False


def is_training_module(cls: Class) -> bool:
    """Whether the class is a network together with its training, as a library's trainer runs it."""
    return any(last(base) in _TRAINING_MODULES for base in cls.external_bases())


def is_dataset(cls: Class) -> bool:
    """Whether the class is a dataset or a data module."""
    names = [last(base) for base in cls.external_bases()]
    return any(name in _DATASETS or name.endswith("Dataset") for name in names)


def is_environment(cls: Class) -> bool:
    """Whether the class is an environment for reinforcement learning."""
    if any(last(base) in _ENVIRONMENTS for base in cls.external_bases()) or any(
        base.name in _OWN_ENVIRONMENTS for base in cls.mro()[1:]
    ):
        return True
    named = re.search(r"Env(ironment)?(V?\d+)?$", cls.name) is not None
    return named and all(cls.lookup(method) is not None for method in ("reset", "step"))


def is_record(cls: Class) -> bool:
    """Whether construction assigns annotated fields: dataclasses, attrs, pydantic and the like."""
    for current in cls.mro():
        for decorator in current.decorators:
            own = as_function(decorator)
            if last(path_of(decorator)) in _RECORD_DECORATORS:
                return True
            if own is not None and "dataclass" in own.name:
                return True
    return any(last(base) in _RECORDS for base in cls.external_bases())


_PYTHON_KINDS: tuple[type, ...] = (type, list, dict, int, str, type(iter([])))
_PYTHONS = frozenset(name for kind in _PYTHON_KINDS for name in dir(kind)) | {
    "__call__",
    "__enter__",
    "__exit__",
    "__getattr__",
    "__array__",
    "__version__",
    "__all__",
    "__file__",
    "__path__",
    "__spec__",
    "__package__",
    "__dict__",
}
"""Special names that classes may have without saying so."""


def is_foreign(name: str) -> bool:
    """Whether a special name is neither Python's own nor one that modules have."""
    return re.fullmatch(r"__\w+__", name) is not None and name not in _PYTHONS
