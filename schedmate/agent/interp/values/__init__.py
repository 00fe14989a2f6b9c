"""What Python's operations do with values: a class a kind."""

from schedmate.agent.interp.values import (
    callables,
    foreign,
    instances,
    mappings,
    modules,
    paths,
    scalars,
    sequences,
    texts,
    types,
    unknowns,
)

__all__ = [
    "callables",
    "foreign",
    "instances",
    "mappings",
    "modules",
    "paths",
    "scalars",
    "sequences",
    "texts",
    "types",
    "unknowns",
]
